//! The ways from this node to one disk: a registration belongs to each of them (casebook C19).

use std::path::{Path, PathBuf};

/// Where the kernel shows its block devices.
#[derive(Debug, Clone)]
pub struct Places {
    pub sys: PathBuf,
    pub dev: PathBuf,
}

impl Default for Places {
    fn default() -> Places {
        Places { sys: PathBuf::from("/sys"), dev: PathBuf::from("/dev") }
    }
}

/// The paths that the kernel has to the disk now: those below a multipath map, else the device itself. Looked up each
/// time, because they come and go.
pub fn paths_of(device: &Path, places: &Places) -> Result<Vec<PathBuf>, String> {
    let shown = device.display();
    let real = device.canonicalize().map_err(|e| format!("{shown}: {e}; is the disk connected?"))?;
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if places.sys.join("class/block").join(&name).join("partition").exists() {
        return Err(format!("{shown} is a partition; reservations belong to whole disks: name the disk"));
    }
    if !name.starts_with("dm-") {
        return Ok(vec![real]);
    }
    let slaves = places.sys.join("block").join(&name).join("slaves");
    let entries = std::fs::read_dir(&slaves).map_err(|e| format!("{shown}: {}: {e}", slaves.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| places.dev.join(e.file_name())).collect();
    paths.sort();
    if paths.is_empty() { Err(format!("{shown}: the multipath map has no path left")) } else { Ok(paths) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn places(root: &Path) -> Places {
        fs::create_dir_all(root.join("dev")).unwrap();
        fs::create_dir_all(root.join("sys/class/block")).unwrap();
        Places { sys: root.join("sys"), dev: root.join("dev") }
    }

    #[test]
    fn a_multipath_map_is_reached_by_each_disk_below_it() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        fs::create_dir_all(root.path().join("sys/block/dm-3/slaves/sdb")).unwrap();
        fs::create_dir_all(root.path().join("sys/block/dm-3/slaves/sda")).unwrap();
        fs::write(places.dev.join("dm-3"), "").unwrap();
        std::os::unix::fs::symlink(places.dev.join("dm-3"), places.dev.join("by-id")).unwrap();
        let found = paths_of(&places.dev.join("by-id"), &places).unwrap();
        assert_eq!(found, [places.dev.join("sda"), places.dev.join("sdb")]);
    }

    #[test]
    fn what_is_no_whole_disk_or_not_there_is_told() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        fs::create_dir_all(places.sys.join("class/block/sda1/partition")).unwrap();
        fs::write(places.dev.join("sda1"), "").unwrap();
        assert!(paths_of(&places.dev.join("sda1"), &places).unwrap_err().contains("name the disk"));
        assert!(paths_of(&places.dev.join("none"), &places).unwrap_err().contains("is the disk connected?"));
        fs::create_dir_all(root.path().join("sys/block/dm-1/slaves")).unwrap();
        fs::write(places.dev.join("dm-1"), "").unwrap();
        assert!(paths_of(&places.dev.join("dm-1"), &places).unwrap_err().contains("no path left"));
    }
}
