//! What is to be mounted, as the kernel calls it, and whether anything holds it.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Ways to name a block device by what is written on it, and where udev keeps the links.
const BY_TAG: [(&str, &str); 4] = [
    ("UUID=", "/dev/disk/by-uuid"),
    ("LABEL=", "/dev/disk/by-label"),
    ("PARTUUID=", "/dev/disk/by-partuuid"),
    ("PARTLABEL=", "/dev/disk/by-partlabel"),
];

/// Whether something in the kernel holds a block device for itself: a mounted file system does, also one that nobody sees
/// any more because it was detached while it was in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    Held,
    Free,
    /// There is no such device now, so there is nothing to be read.
    Absent,
}

/// A block device that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its own name, links followed: what the table of mounts shows.
    pub path: PathBuf,
    pub numbers: (u32, u32),
}

/// Where the block device should be; `None` for what is none, such as a share.
pub fn link(what: &str) -> Option<PathBuf> {
    let tagged =
        BY_TAG.iter().find_map(|(tag, dir)| Some(format!("{dir}/{}", what.strip_prefix(tag)?.trim_matches('"'))));
    tagged.or_else(|| what.starts_with("/dev/").then(|| what.to_owned())).map(PathBuf::from)
}

/// Looks at files below `/dev` only, which are in memory.
pub fn find(what: &str) -> Option<Device> {
    let path = link(what)?.canonicalize().ok()?;
    let meta = path.metadata().ok().filter(|meta| meta.file_type().is_block_device())?;
    let numbers = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    Some(Device { path, numbers })
}

/// open(2): `O_EXCL` on a block device fails with EBUSY while it is in use by the system. May block on a sick device.
pub fn claim(what: &str) -> io::Result<Claim> {
    let Some(device) = find(what) else { return Ok(Claim::Absent) };
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(&device.path, flags, Mode::empty()) {
        Ok(_) => Ok(Claim::Free),
        Err(Errno::BUSY) => Ok(Claim::Held),
        // The other side of a replicated device refuses whoever wants to open it; a device that is being removed does too.
        Err(Errno::NOENT | Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM | Errno::MEDIUMTYPE | Errno::ROFS) => {
            Ok(Claim::Absent)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_told_from_names_of_shares() {
        assert_eq!(link("UUID=ab-12"), Some("/dev/disk/by-uuid/ab-12".into()));
        assert_eq!(link("LABEL=\"kelp\""), Some("/dev/disk/by-label/kelp".into()));
        assert_eq!(link("/dev/mapper/kelp"), Some("/dev/mapper/kelp".into()));
        assert_eq!((link("nas:/kelp"), link("tmpfs")), (None, None));
        assert_eq!(find("/dev/null"), None, "no block device");
        assert_eq!(claim("/dev/no-such-device").unwrap(), Claim::Absent);
    }
}
