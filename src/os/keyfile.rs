//! The cluster's key file: a secret that is text, checked as strictly as any password.

use std::path::Path;

use super::secret::{Readers, Secret, SecretError, read_private};

/// Reads the key file. Its text is for the keyring to parse.
///
/// A key that systemd hands over as a credential lies in `$CREDENTIALS_DIRECTORY`; a path into that directory is
/// judged as a credential is.
///
/// # Errors
/// As for any secret; and the file is not text.
pub fn read(path: &Path) -> Result<Secret, SecretError> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    let handed_over = credentials.is_some_and(|directory| path.parent() == Some(Path::new(&directory)));
    let readers = if handed_over { Readers::OwnerAndAccessList } else { Readers::Owner };
    let secret = read_private(path, readers)?;
    match secret.text() {
        Some(_) => Ok(secret),
        None => Err(SecretError::NotText { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_is_private_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "v1 a QUJD\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read(&path), Err(SecretError::Mode { mode: 0o640, .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap().text(), Some("v1 a QUJD\n"));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(read(&path), Err(SecretError::NotText { .. })));
    }
}
