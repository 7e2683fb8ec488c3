//! The kernel's table of mounts (proc_pid_mountinfo(5)). Reading it touches no file system, however dead.

use std::io;
use std::path::PathBuf;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountLine {
    pub id: u64,
    /// Major and minor number, as `stat` would give them for a file on it.
    pub device: (u32, u32),
    /// What part of the file system is mounted.
    pub root: PathBuf,
    pub point: PathBuf,
    pub file_system: String,
    pub source: String,
    /// Of the mount and of the file system below it.
    pub options: Vec<String>,
}

/// The mounts that a process sees; "self" for this one.
pub fn of_process(pid: &str) -> io::Result<Vec<MountLine>> {
    let text = std::fs::read(format!("/proc/{pid}/mountinfo"))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

pub fn parse(table: &str) -> Vec<MountLine> {
    table.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<MountLine> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (major, minor) = left.get(2)?.split_once(':')?;
    let (file_system, source) = (right.next()?, right.next()?);
    let options = left.get(5)?.split(',').chain(right.next().unwrap_or("").split(','));
    Some(MountLine {
        id: left.first()?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: plain(left.get(3)?).into(),
        point: plain(left.get(4)?).into(),
        file_system: file_system.to_owned(),
        source: plain(source),
        options: options.map(str::to_owned).collect(),
    })
}

/// Blanks, tabs, line ends and backslashes stand there as three octal digits.
fn plain(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte.into());
                out.push_str(&part[3..]);
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_with_its_escapes_and_optional_fields() {
        let table = "36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 shared:7 - ext3 /dev/root ro,errors=continue\n\
                     broken line\n\
                     40 35 0:45 / /srv/nfs rw - nfs4 nas:/export rw,vers=4.2\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].id, mounts[0].device), (36, (98, 0)));
        assert_eq!((mounts[0].root.to_str(), mounts[0].point.to_str()), (Some("/mnt1"), Some("/mnt/a b")));
        assert_eq!(mounts[0].options, ["rw", "noatime", "ro", "errors=continue"]);
        assert_eq!((mounts[1].file_system.as_str(), mounts[1].source.as_str()), ("nfs4", "nas:/export"));
    }

    #[test]
    fn this_process_sees_proc() {
        assert!(of_process("self").unwrap().iter().any(|m| m.file_system == "proc"));
    }
}
