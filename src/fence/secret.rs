//! A secret in memory: read once at the start, wiped at the end, filtered out of every text from outside.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::config::{CREDENTIALS, SecretSource, credential_in};

/// No password or key of a fence device comes near this; a larger file was named by mistake.
const MAX_BYTES: u64 = 4096;
/// Stands in every text where a secret was.
const MASK: &str = "<secret>";

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read the secret file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the secret file {} may be read by others (mode {mode:04o}); chmod 600 it", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("the secret file {} belongs to uid {uid}; chown it to root", path.display())]
    Owner { path: PathBuf, uid: u32 },
    #[error("the secret file {} is empty", path.display())]
    Empty { path: PathBuf },
    #[error("the secret file {} has more than {MAX_BYTES} bytes; is it the right file?", path.display())]
    TooLarge { path: PathBuf },
    #[error(
        "there is no credential {name:?}: put it into {CREDENTIALS}/{name} with mode 0600, or add LoadCredential={name}:FILE \
         to the unit; systemd hands it over at the next start of leasehold"
    )]
    NoCredentials { name: String },
}

/// A secret value. It shows itself to nobody.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    /// Reads a secret byte for byte, but for one line end at the end of the file, which editors add.
    pub fn read(source: &SecretSource) -> Result<Secret, SecretError> {
        match source {
            SecretSource::File(path) => read_file(path, 0o077),
            // systemd gives a credential to the unit's user through a group entry; it is never open to others.
            SecretSource::Credential(name) => {
                let read = match std::env::var_os("CREDENTIALS_DIRECTORY") {
                    Some(directory) => read_file(&credential_in(Path::new(&directory), name), 0o027),
                    None => read_file(&Path::new(CREDENTIALS).join(name), 0o077),
                };
                match read {
                    Err(SecretError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                        Err(SecretError::NoCredentials { name: name.clone() })
                    }
                    read => read,
                }
            }
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A copy for the stdin of a child.
    pub fn to_input(&self) -> Zeroizing<Vec<u8>> {
        self.0.clone()
    }

    /// For a header of HTTP.
    pub fn base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(&*self.0))
    }

    /// `text` without this secret: plain, base64, hexadecimal or URL-encoded (casebook C34, redaction by value).
    pub fn scrub(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        self.spellings().iter().fold(text.to_owned(), |text, spelling| text.replace(spelling.as_str(), MASK))
    }

    /// Longest first, so that no part of one is left over.
    fn spellings(&self) -> Vec<Zeroizing<String>> {
        let hex = |upper: bool| -> String {
            self.0.iter().map(|b| if upper { format!("{b:02X}") } else { format!("{b:02x}") }).collect()
        };
        let mut all = vec![
            String::from_utf8_lossy(&self.0).into_owned(),
            STANDARD.encode(&*self.0),
            STANDARD_NO_PAD.encode(&*self.0),
            URL_SAFE_NO_PAD.encode(&*self.0),
            hex(true),
            hex(false),
            self.url_encoded(),
        ];
        all.sort_by_key(|s| std::cmp::Reverse(s.len()));
        all.into_iter().map(Zeroizing::new).collect()
    }

    fn url_encoded(&self) -> String {
        let unreserved = |b: &u8| b.is_ascii_alphanumeric() || b"-._~".contains(b);
        self.0.iter().map(|b| if unreserved(b) { char::from(*b).to_string() } else { format!("%{b:02X}") }).collect()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

fn read_file(path: &Path, refused: u32) -> Result<Secret, SecretError> {
    let failed = |source| SecretError::Read { path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.uid() != 0 && meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(SecretError::Owner { path: path.into(), uid: meta.uid() });
    }
    if meta.mode() & refused != 0 {
        return Err(SecretError::Open { path: path.into(), mode: meta.mode() & 0o7777 });
    }
    // Room for all of it at once: growing would leave copies behind in freed memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES as usize + 1));
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(SecretError::TooLarge { path: path.into() });
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.is_empty() { Err(SecretError::Empty { path: path.into() }) } else { Ok(Secret(bytes)) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(content: &[u8], mode: u32) -> (tempfile::TempDir, SecretSource) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (dir, SecretSource::File(path))
    }

    #[test]
    fn a_secret_arrives_byte_for_byte_without_the_editors_line_end() {
        for bytes in [&b"kelp#reef$1 'x"[..], b"\"barnacle\"", b" edge ", "größe".as_bytes(), b"a\nb", b"x\n"] {
            let (_dir, source) = file(&[bytes, b"\n"].concat(), 0o600);
            assert_eq!(Secret::read(&source).unwrap().bytes(), bytes);
        }
    }

    #[test]
    fn a_file_open_to_others_empty_or_huge_is_refused() {
        for (content, mode) in [(&b"x"[..], 0o640), (b"x", 0o604), (b"\n", 0o600), (&[b'x'; 5000], 0o600)] {
            let (_dir, source) = file(content, mode);
            let error = Secret::read(&source).unwrap_err().to_string();
            assert!(error.contains("the secret file"), "{error}");
        }
    }

    #[test]
    fn no_spelling_of_the_secret_survives_in_a_text_from_outside() {
        let secret = Secret::new(b"M4RK-kelp/77".to_vec());
        let said = "plain M4RK-kelp/77 b64 TTRSSy1rZWxwLzc3 hex 4d34524b2d6b656c702f3737 4D34524B2D6B656C702F3737 \
                    url M4RK-kelp%2F77 Debug";
        let shown = secret.scrub(said);
        assert_eq!(shown, "plain <secret> b64 <secret> hex <secret> <secret> url <secret> Debug");
        assert!(!format!("{secret:?}").contains("M4RK"));
    }
}
