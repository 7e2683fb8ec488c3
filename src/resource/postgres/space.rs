//! Free space as a part of fitness (casebook C31): a server whose disk is full neither starts nor promotes.

use std::path::{Path, PathBuf};

/// Below one WAL segment the server cannot even begin the next one, and stops itself.
const SEGMENT: u64 = 16 << 20;

/// What a disk has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Space {
    Enough,
    /// Less than the configured reserve: this node had better not take over.
    Low(String),
    /// Not even a WAL segment.
    Full(String),
}

/// The data directory and its WAL directory, which may lie on another disk. Blocks: call it off the loop.
pub fn look(data: &Path, least: u64) -> Space {
    let mut found = [data.to_owned(), wal(data)].map(|path| one(&path, least));
    found.sort_by_key(|space| match space {
        Space::Full(_) => 0,
        Space::Low(_) => 1,
        Space::Enough => 2,
    });
    let [worst, _] = found;
    worst
}

fn wal(data: &Path) -> PathBuf {
    let link = data.join("pg_wal");
    link.canonicalize().unwrap_or(link)
}

/// What cannot be looked at is told by whoever needs it.
fn one(path: &Path, least: u64) -> Space {
    let Ok(disk) = rustix::fs::statvfs(path) else { return Space::Enough };
    // Of the free blocks, those that users other than root may have: the server is not root.
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let told = |what: &str| {
        let reserve = if disk.f_bfree > disk.f_bavail { ", beside what is kept for root" } else { "" };
        format!("{what}: {} has {} MB free{reserve}, and needs {} MB", path.display(), free >> 20, least >> 20)
    };
    match free {
        free if free < SEGMENT => Space::Full(told("the disk is full")),
        free if free < least => Space::Low(told("the disk is nearly full")),
        _ => Space::Enough,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_too_little_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(look(dir.path(), 1), Space::Enough);
        let Space::Low(told) = look(dir.path(), u64::MAX) else { panic!("no disk has that much") };
        assert!(told.contains("full") && told.contains(&dir.path().display().to_string()), "{told}");
    }
}
