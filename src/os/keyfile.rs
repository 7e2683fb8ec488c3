//! The cluster's key file: a secret that is text, checked as strictly as any password.

use super::secret::{self, Secret, SecretError};
use crate::config::SecretSource;

/// Reads the key. Its text is for the keyring to parse.
///
/// # Errors
/// As for any secret; and it is not text.
pub fn read(source: &SecretSource) -> Result<Secret, SecretError> {
    let secret = secret::read(source)?;
    match secret.text() {
        Some(_) => Ok(secret),
        None => Err(SecretError::NotText { from: source.clone() }),
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
        let source = SecretSource::File(path.clone());
        assert!(matches!(read(&source), Err(SecretError::Mode { mode: 0o640, .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&source).unwrap().text(), Some("v1 a QUJD\n"));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(read(&source), Err(SecretError::NotText { .. })));
    }
}
