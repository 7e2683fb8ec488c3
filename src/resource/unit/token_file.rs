//! The token, for the unit to read: a file in the form of `EnvironmentFile=`, replaced whole and only there while the unit
//! is to run. A drop-in would need systemd to read all its units anew in the middle of a take-over.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use atomic_write_file::AtomicWriteFile;

/// Writes it; the folder is made where it lacks.
pub fn write(path: &Path, variables: &[(String, String)]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text: String = variables.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect();
    let mut file = AtomicWriteFile::open(path)?;
    file.write_all(text.as_bytes())?;
    file.commit()
}

pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// systemd.exec(5): between double quotes a backslash takes away the meaning of what follows; a line end is none here.
fn quoted(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' | '`' | '$' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_stays_on_its_line_and_in_its_quotes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below").join("kelp.service.env");
        let pairs = [("LEASEHOLD_TOKEN", "7"), ("LEASEHOLD_REASON", "a \"b\" \\ $HOME\nEVIL=1")];
        write(&path, &pairs.map(|(n, v)| (n.to_owned(), v.to_owned()))).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "LEASEHOLD_TOKEN=\"7\"\nLEASEHOLD_REASON=\"a \\\"b\\\" \\\\ \\$HOME EVIL=1\"\n");
        remove(&path).unwrap();
        remove(&path).unwrap();
    }
}
