//! Secrets in memory: wiped when dropped, never shown. Where they come from, and who else could have read them there.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::config::{CREDENTIALS, SecretSource, credential_in};

/// Far more than any key file or password needs; keeps a wrong path (a log, a device) out of memory.
pub const MAX_SIZE: u64 = 64 * 1024;

/// Bytes that nobody sees: no `Display`, a redacted `Debug`, wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// Who may be able to read the file beside its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readers {
    /// Nobody.
    Owner,
    /// systemd lets the unit's user read a credential of root by an access list, which shows as the group's bit.
    OwnerAndAccessList,
}

/// Why a secret was not read. Never holds the secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read the secret {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the secret {} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error(
        "the secret {} belongs to user {owner}: it should belong to root or to the user that runs leasehold. \
         Run: chown root {}", path.display(), path.display()
    )]
    Owner { path: PathBuf, owner: u32 },
    #[error(
        "the secret {} has mode {mode:04o}: others than its owner can get at it. Run: chmod 0600 {} \
         (and use a new secret if somebody may have read it)", path.display(), path.display()
    )]
    Mode { path: PathBuf, mode: u32 },
    #[error("the secret {} is empty", path.display())]
    Empty { path: PathBuf },
    #[error("the secret {} is larger than {MAX_SIZE} bytes: is this the right file?", path.display())]
    TooLarge { path: PathBuf },
    #[error("the secret in {from} is not UTF-8 text")]
    NotText { from: SecretSource },
    #[error(
        "there is no credential `{name}`. Put it into {CREDENTIALS}/{name} with mode 0600, or add LoadCredential={name}:FILE \
         to the unit; systemd hands it over at the next start"
    )]
    NoCredentials { name: String },
    #[error("`{name}` is not the name of a credential: it must be a plain file name")]
    CredentialName { name: String },
}

impl Secret {
    /// What it is, without the line end that editors put behind it.
    pub fn line(&self) -> &[u8] {
        let bytes = self.0.strip_suffix(b"\n").unwrap_or(&self.0);
        bytes.strip_suffix(b"\r").unwrap_or(bytes)
    }

    /// All of it, as text. `None` when it is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Reads the secret that the configuration names. Blocks: at start only, so that fencing needs no disk.
///
/// # Errors
/// The file is missing, belongs to somebody else, can be read by others, is empty or too large.
pub fn read(source: &SecretSource) -> Result<Secret, SecretError> {
    match source {
        SecretSource::File(path) => read_private(path, Readers::Owner),
        SecretSource::Credential(name) => read_credential(std::env::var_os("CREDENTIALS_DIRECTORY").as_deref(), name),
    }
}

fn read_credential(directory: Option<&std::ffi::OsStr>, name: &str) -> Result<Secret, SecretError> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(SecretError::CredentialName { name: name.to_owned() });
    }
    let none = || SecretError::NoCredentials { name: name.to_owned() };
    let path = credential_in(Path::new(directory.ok_or_else(none)?), name);
    if !path.exists() {
        return Err(none());
    }
    read_private(&path, Readers::OwnerAndAccessList)
}

/// Checks owner, mode and size of the open file itself, so that nobody can swap it in between; then reads it.
pub(super) fn read_private(path: &Path, readers: Readers) -> Result<Secret, SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    // Opening a FIFO without NONBLOCK would wait for a writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    check(path, &found, readers, rustix::process::geteuid().as_raw())?;
    let secret = read_bounded(&file).map_err(unreadable)?;
    match secret.len() as u64 {
        0 => Err(SecretError::Empty { path: path.to_owned() }),
        n if n > MAX_SIZE => Err(SecretError::TooLarge { path: path.to_owned() }),
        _ => Ok(Secret(secret)),
    }
}

fn check(path: &Path, found: &std::fs::Metadata, readers: Readers, me: u32) -> Result<(), SecretError> {
    let path = || path.to_owned();
    let forbidden = match readers {
        Readers::Owner => 0o077,
        Readers::OwnerAndAccessList => 0o037,
    };
    let mode = found.mode() & 0o7777;
    if !found.is_file() {
        return Err(SecretError::NotAFile { path: path() });
    }
    if found.uid() != 0 && found.uid() != me {
        return Err(SecretError::Owner { path: path(), owner: found.uid() });
    }
    if mode & forbidden != 0 {
        return Err(SecretError::Mode { path: path(), mode });
    }
    if found.len() > MAX_SIZE {
        return Err(SecretError::TooLarge { path: path() });
    }
    Ok(())
}

/// Into a buffer that never grows: a grown one would leave a copy behind that nobody wipes.
fn read_bounded(mut file: &File) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut buffer = Zeroizing::new(vec![0; MAX_SIZE as usize + 1]);
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Zeroizing::new(buffer[..filled].to_vec()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file_with(mode: u32, contents: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    fn read_file(path: &Path) -> Result<Secret, SecretError> {
        read(&SecretSource::File(path.to_owned()))
    }

    #[test]
    fn a_private_file_is_read_and_its_line_end_is_no_part_of_a_password() {
        for (contents, line) in [("hunter2\n", "hunter2"), ("hunter2\r\n", "hunter2"), (" a b ", " a b ")] {
            for mode in [0o600, 0o400] {
                let (_dir, path) = file_with(mode, contents.as_bytes());
                let secret = read_file(&path).unwrap();
                assert_eq!(secret.line(), line.as_bytes());
                assert_eq!(secret.text(), Some(contents));
            }
        }
    }

    #[test]
    fn a_file_that_others_can_get_at_is_refused_with_the_command_that_mends_it() {
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644, 0o777, 0o610] {
            let (_dir, path) = file_with(mode, b"hunter2");
            let text = read_file(&path).unwrap_err().to_string();
            assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
            assert!(text.contains(&format!("chmod 0600 {}", path.display())), "{text}");
            assert!(!text.contains("hunter2"));
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let (_dir, path) = file_with(0o600, b"x");
        let found = std::fs::metadata(&path).unwrap();
        if found.uid() == 0 {
            assert!(
                check(&path, &found, Readers::Owner, 1000).is_ok(),
                "root's file is fine for anybody who can read it"
            );
            std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
            let text = read_file(&path).unwrap_err().to_string();
            assert!(text.contains("belongs to user 4242") && text.contains("chown root"), "{text}");
        } else {
            assert!(matches!(check(&path, &found, Readers::Owner, found.uid() + 1), Err(SecretError::Owner { .. })));
        }
    }

    #[test]
    fn what_is_empty_too_large_or_no_file_is_refused_without_waiting() {
        let (_dir, empty) = file_with(0o600, b"");
        assert!(matches!(read_file(&empty), Err(SecretError::Empty { .. })));
        let (_dir, large) = file_with(0o600, &vec![b'x'; MAX_SIZE as usize + 1]);
        assert!(matches!(read_file(&large), Err(SecretError::TooLarge { .. })));
        let (dir, _) = file_with(0o600, b"");
        assert!(matches!(read_file(dir.path()), Err(SecretError::NotAFile { .. })));
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(read_file(&fifo), Err(SecretError::NotAFile { .. })));
        assert!(matches!(read_file(&dir.path().join("none")), Err(SecretError::Unreadable { .. })));
    }

    #[test]
    fn a_credential_is_a_file_in_the_directory_of_the_service_manager_and_nowhere_else() {
        let (dir, _) = file_with(0o440, b"key\n");
        let directory = Some(dir.path().as_os_str());
        assert_eq!(read_credential(directory, "secret").unwrap().line(), b"key");
        for name in ["../secret", "/etc/passwd", "", "..", "."] {
            assert!(matches!(read_credential(directory, name), Err(SecretError::CredentialName { .. })));
        }
        assert!(read_credential(None, "secret").unwrap_err().to_string().contains("LoadCredential=secret:"));
        let missing = read_credential(directory, "other").unwrap_err().to_string();
        assert!(missing.contains("/etc/leasehold/credentials/other"), "{missing}");
        std::fs::rename(dir.path().join("secret"), dir.path().join("leasehold_secret")).unwrap();
        assert_eq!(read_credential(directory, "secret").unwrap().line(), b"key");
        let (open, _) = file_with(0o444, b"key\n");
        assert!(matches!(read_credential(Some(open.path().as_os_str()), "secret"), Err(SecretError::Mode { .. })));
    }

    #[test]
    fn a_secret_does_not_show_when_it_is_printed_for_debugging() {
        let (_dir, path) = file_with(0o600, b"hunter2");
        assert_eq!(format!("{:?}", read_file(&path)), "Ok(Secret(..))");
    }
}
