//! `/etc/fstab`: what is mounted at boot is mounted behind this daemon's back.

use std::path::Path;

/// The remedy, if the table mounts this source or mounts at this point by itself (fstab(5)).
pub fn objection(table: &str, what: &str, point: &Path) -> Option<String> {
    let entries = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut by_itself = entries.filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (source, target, options) = (*fields.first()?, *fields.get(1)?, *fields.get(3).unwrap_or(&"defaults"));
        let ours = source == what || Path::new(target) == point;
        (ours && !options.split(',').any(|o| o == "noauto")).then(|| format!("{source} {target}"))
    });
    by_itself.next_back().map(|entry| {
        format!(
            "/etc/fstab mounts \"{entry}\" at boot, behind leasehold's back; take the line out, or add `noauto` to its options, \
             on both nodes"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_at_boot_is_told_and_the_rest_is_not() {
        let told = |table: &str| objection(table, "/dev/sdb1", Path::new("/srv/kelp")).is_some();
        assert!(told("# disks\n/dev/sdb1 /mnt ext4 defaults 0 0\n"));
        assert!(told("UUID=ab\t/srv/kelp\text4\n"));
        assert!(!told("/dev/sdb1 /srv/kelp ext4 noauto,noatime 0 2\n"));
        assert!(!told("#/dev/sdb1 /srv/kelp ext4 defaults 0 2\n/dev/sda1 / ext4 defaults 0 1\n"));
    }
}
