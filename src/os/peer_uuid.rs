//! The peer's system UUID as it last told it, so that a fence device can be compared with it although the peer is dead
//! when this daemon starts.
//!
//! One line in `peer-uuid` in the state directory: version, name of the node, UUID. Replaced whole. It blocks: read it
//! at the start, write it off the loop. Nothing rests on it: without it an identity is unknown until the peer is heard.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::keep;
use super::machine::parse_uuid;
use crate::core::SystemUuid;

const FILE: &str = "peer-uuid";
const VERSION: &str = "v1";

/// Why the file says nothing.
#[derive(Debug, thiserror::Error)]
pub enum PeerUuidError {
    #[error("cannot read the peer's last known UUID: {0}")]
    Unreadable(io::Error),
    #[error("the file `{FILE}` of the state directory is damaged; it is written anew when the peer is heard")]
    Damaged,
    #[error("the file `{FILE}` of the state directory is about {found:?}, not about {peer:?}; it is ignored")]
    OtherNode { found: String, peer: String },
}

/// What is known of the node `peer`; `None` where nothing is.
///
/// # Errors
/// The file is there and says nothing of that node.
pub fn read(directory: &Path, peer: &str) -> Result<Option<SystemUuid>, PeerUuidError> {
    let text = match fs::read_to_string(directory.join(FILE)) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == ErrorKind::InvalidData => return Err(PeerUuidError::Damaged),
        Err(e) => return Err(PeerUuidError::Unreadable(e)),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [VERSION, name, uuid] => match parse_uuid(uuid) {
            Some(_) if name != peer => Err(PeerUuidError::OtherNode { found: name.to_owned(), peer: peer.to_owned() }),
            Some(uuid) => Ok(Some(SystemUuid(uuid))),
            None => Err(PeerUuidError::Damaged),
        },
        _ => Err(PeerUuidError::Damaged),
    }
}

/// Replaces it, durably.
///
/// # Errors
/// It is as it was before.
pub fn write(directory: &Path, peer: &str, uuid: SystemUuid) -> io::Result<()> {
    keep::replace(&directory.join(FILE), format!("{VERSION} {peer} {uuid}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERON: SystemUuid = SystemUuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

    #[test]
    fn what_was_written_is_read_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read(dir.path(), "heron"), Ok(None)));
        for uuid in [HERON, SystemUuid([7; 16])] {
            write(dir.path(), "heron", uuid).unwrap();
            assert_eq!(read(dir.path(), "heron").unwrap(), Some(uuid));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_damaged_file_or_one_about_another_node_says_nothing_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "heron", HERON).unwrap();
        let error = read(dir.path(), "plover").unwrap_err().to_string();
        assert!(error.contains("heron") && error.contains("plover"), "{error}");
        for text in ["", "v1 heron", "v1 heron 0102", "v2 heron 01020304-0506-0708-090a-0b0c0d0e0f10", "\u{fffd}"] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert!(matches!(read(dir.path(), "heron"), Err(PeerUuidError::Damaged)), "{text:?}");
        }
        fs::write(dir.path().join(FILE), [0xff, 0xfe]).unwrap();
        assert!(matches!(read(dir.path(), "heron"), Err(PeerUuidError::Damaged)));
    }
}
