//! Small files of the state directory that are replaced whole: what the daemon remembers for people and for its next life.
//!
//! Nothing that safety rests on is kept here (that is the record); a file that cannot be read is told and begun anew.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No file of this kind comes near this.
const LARGEST: u64 = 1 << 20;

/// Why such a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged ({source}); it is begun anew, and only figures for people are lost", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What was kept; `None` while there is no such file.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, KeepError> {
    let failed = |source| KeepError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    let damaged = |source| KeepError::Damaged { path: path.to_owned(), source };
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

/// Replaces the file: the old one or the new one survives a crash, never half of one. Blocks for two syncs.
pub fn save<T: Serialize>(path: &Path, value: &T) -> Result<(), KeepError> {
    let failed = |source| KeepError::Write { path: path.to_owned(), source };
    let text = serde_json::to_vec_pretty(value).map_err(|e| failed(e.into()))?;
    replace(path, &text).map_err(failed)
}

/// The same for a file of another form.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = AtomicWriteFile::open(path)?;
    file.write_all(bytes)?;
    file.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded_and_what_is_damaged_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("figures");
        assert_eq!(load::<u32>(&path).unwrap(), None);
        save(&path, &7u32).unwrap();
        save(&path, &8u32).unwrap();
        assert_eq!(load::<u32>(&path).unwrap(), Some(8));
        std::fs::write(&path, "{").unwrap();
        let told = load::<u32>(&path).unwrap_err().to_string();
        assert!(told.contains("figures is damaged"), "{told}");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let told = save(Path::new("/nonexistent/figures"), &1).unwrap_err().to_string();
        assert!(told.contains("/nonexistent/figures"), "{told}");
    }
}
