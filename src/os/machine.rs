//! What this machine is: its boot, its hardware, its randomness, its memory. Read once, at the start of the daemon.
#![allow(unsafe_code)]

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

/// Brings the whole program and its libraries into memory and keeps them there. What a daemon does when its lease ends it
/// has never done before in its life: that code must not have to come from a disk that stands still.
///
/// # Errors
/// As [`lock_memory`].
pub fn lock_program() -> io::Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    maps.lines().filter_map(file_range).try_for_each(|(start, length)| {
        // SAFETY: it reads and changes no byte; a range that is unmapped meanwhile is an error.
        let locked = unsafe { rustix::mm::mlock(start as *mut _, length) };
        Ok(locked?)
    })
}

/// Start and length of a mapping that can be read and comes from a file (proc_pid_maps(5)).
fn file_range(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let readable = fields.next()?.starts_with('r');
    let path = fields.nth(3)?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    (readable && path.starts_with('/')).then_some((start, end - start))
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

/// `01234567-89ab-cdef-0123-456789abcdef`, in either case, with white space around; or without the dashes, as systemd writes
/// an id (machine-id(5)).
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.trim();
    let dashes: &[usize] = if text.len() == 32 { &[] } else { &[8, 13, 18, 23] };
    let well_formed = text.len() == 32 + dashes.len()
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
        assert_eq!(parse_uuid("00112233445566778899aabbccddeeff"), Some(id), "as systemd writes it");
        let wrong = [
            "",
            "not settable",
            "0011223344556677-8899-AABBCCDDEEFF--",
            "00112233445566778899aabbccddee-f",
            "00112233445566778899aabbccddeef",
            "+0112233-4455-6677-8899-AABBCCDDEEFF",
            "é0112233-4455-6677-8899-AABBCCDDEEF",
        ];
        assert!(wrong.iter().all(|text| parse_uuid(text).is_none()));
    }

    /// How many kB the mappings of a file have, and how many of them are in memory.
    fn in_memory(file: &str) -> (u64, u64) {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut inside, mut size, mut resident) = (false, 0, 0);
        for line in smaps.lines() {
            let kb = |text: &str| text.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            match line.split_once(": ") {
                Some(("Size", text)) if inside => size += kb(text),
                Some(("Rss", text)) if inside => resident += kb(text),
                Some(_) => {}
                None => inside = line.ends_with(file) && !line.contains(" ---p "),
            }
        }
        (size, resident)
    }

    #[test]
    fn the_whole_program_is_in_memory_also_what_was_never_called() {
        let program = std::env::current_exe().unwrap();
        let program = program.to_str().unwrap();
        let (size, resident) = in_memory(program);
        assert!(size > 0 && resident < size, "{resident} of {size} kB before");
        if let Err(error) = lock_program() {
            assert!(!rustix::process::geteuid().is_root(), "{error}");
            return;
        }
        assert_eq!(in_memory(program), (size, size));
    }

    #[test]
    fn only_what_comes_from_a_file_and_can_be_read_is_locked() {
        let text = "7f00-7f80 r-xp 00001000 fe:00 77                         /usr/bin/leasehold";
        assert_eq!(file_range(text), Some((0x7f00, 0x80)));
        for other in [
            "7f00-7f80 ---p 00001000 fe:00 77 /usr/bin/leasehold",
            "1-2 rw-p 0 00:00 0",
            "1-2 r--p 0 00:00 0 [vvar]",
            "",
        ] {
            assert_eq!(file_range(other), None, "{other}");
        }
    }

    #[test]
    fn two_random_numbers_differ() {
        assert_ne!(random_u64().unwrap(), random_u64().unwrap());
    }
}
