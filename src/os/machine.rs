//! What this machine is: its boot, its hardware, its randomness. Read once, at the start of the daemon.

use std::io;

use crate::core::{BootId, SystemUuid};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const PRODUCT_UUID: &str = "/sys/class/dmi/id/product_uuid";

/// Why the machine cannot be told from another one. The daemon does not start without.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("cannot read {path}: {source}; without it a reboot of this node cannot be told from a restart")]
    Unreadable { path: &'static str, source: io::Error },
    #[error("{path} does not hold an id but `{found}`")]
    NotAnId { path: &'static str, found: String },
    #[error("the kernel gives no random numbers: {0}")]
    NoRandomness(getrandom::Error),
}

/// The kernel's id of this boot.
///
/// # Errors
/// /proc is not mounted, or holds something else.
pub fn boot_id() -> Result<BootId, MachineError> {
    let text = std::fs::read_to_string(BOOT_ID).map_err(|source| MachineError::Unreadable { path: BOOT_ID, source })?;
    parse_uuid(&text).map(BootId).ok_or_else(|| MachineError::NotAnId { path: BOOT_ID, found: text.trim().to_owned() })
}

/// A boot id that somebody else keeps: several nodes on one kernel (containers, tests) boot one by one.
///
/// # Errors
/// The text is no UUID.
pub fn boot_id_given(text: &str) -> Result<BootId, MachineError> {
    let wrong = || MachineError::NotAnId { path: "--boot-id", found: text.to_owned() };
    parse_uuid(text).map(BootId).ok_or_else(wrong)
}

/// The kernel's name of this machine (`uname -n`).
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Keeps what this process has touched out of swap: a renewal must not wait for a disk. Pages that are never used
/// (most of each thread's stack) cost nothing.
///
/// # Errors
/// Neither privileged nor allowed enough by RLIMIT_MEMLOCK.
pub fn lock_memory() -> std::io::Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// The SMBIOS system UUID, all zero where there is none, where it is not for this user to read, or where the
/// firmware left it unset (SMBIOS specification, 7.2.1: all ones or all zeros).
pub fn system_uuid() -> SystemUuid {
    let text = std::fs::read_to_string(PRODUCT_UUID).unwrap_or_default();
    SystemUuid(parse_uuid(&text).filter(|id| *id != [0xff; 16]).unwrap_or_default())
}

/// A system UUID as somebody wrote it; `None` where it is none.
pub fn uuid_given(text: &str) -> Option<SystemUuid> {
    parse_uuid(text).map(SystemUuid)
}

/// A random number that nobody can guess: incarnations and seeds.
///
/// # Errors
/// The kernel has no random numbers for this process.
pub fn random_u64() -> Result<u64, MachineError> {
    getrandom::u64().map_err(MachineError::NoRandomness)
}

/// `01234567-89ab-cdef-0123-456789abcdef`, in either case, with white space around.
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.trim();
    let dashes = [8, 13, 18, 23];
    let well_formed = text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| if dashes.contains(&i) { b == b'-' } else { b.is_ascii_hexdigit() });
    let digits = text.replace('-', "");
    let value = well_formed.then(|| u128::from_str_radix(&digits, 16).ok())?;
    value.map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_id_is_the_kernels_and_stays() {
        let id = boot_id().unwrap();
        assert_eq!(id, boot_id().unwrap());
        let text = std::fs::read_to_string(BOOT_ID).unwrap();
        assert!(text.starts_with(&id.to_string()), "{id} is not the beginning of {text}");
    }

    #[test]
    fn a_uuid_is_read_as_it_is_printed_and_nothing_else_is_one() {
        let id = parse_uuid("00112233-4455-6677-8899-AABBCCDDEEFF\n").unwrap();
        assert_eq!(SystemUuid(id).to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        let wrong = [
            "",
            "not settable",
            "0011223344556677-8899-AABBCCDDEEFF--",
            "+0112233-4455-6677-8899-AABBCCDDEEFF",
            "é0112233-4455-6677-8899-AABBCCDDEEF",
        ];
        assert!(wrong.iter().all(|text| parse_uuid(text).is_none()));
    }

    #[test]
    fn two_random_numbers_differ() {
        assert_ne!(random_u64().unwrap(), random_u64().unwrap());
    }
}
