//! What must be known of a data directory before a server may run on it, over reboots (casebook C29).
//!
//! It stands beside the data directory, not in it: `pg_rewind` removes what the source does not have, and the mark belongs
//! to these data, wherever the daemon keeps its own state.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::os::keep;

/// The last thing that was begun with the data here. Each is durable *before* the act that it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Past {
    /// A replica: nothing was ever written here that did not come from the other node.
    Following,
    /// Promoted, or about to be: from here on these data count as a fork of the other node's.
    Acting { token: u64 },
    /// A rewind was begun and is not known to have ended: no server may run on these data.
    Rewinding,
    /// A full copy stands complete beside the data directory and takes its place.
    Replacing,
}

/// What the mark says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// Never touched by this program: an operator set it up.
    None,
    Known(Past),
    /// It cannot be read: then the worst is assumed.
    Unreadable(String),
}

/// The file of one data directory.
#[derive(Debug, Clone)]
pub struct MarkFile(PathBuf);

impl MarkFile {
    pub fn new(path: PathBuf) -> MarkFile {
        MarkFile(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub async fn load(&self) -> Mark {
        let path = self.0.clone();
        let loaded = tokio::task::spawn_blocking(move || keep::load(&path)).await;
        match loaded {
            Ok(Ok(None)) => Mark::None,
            Ok(Ok(Some(past))) => Mark::Known(past),
            Ok(Err(error)) => Mark::Unreadable(error.to_string()),
            Err(error) => Mark::Unreadable(error.to_string()),
        }
    }

    /// Returns when it is durable.
    pub async fn save(&self, past: Past) -> Result<(), String> {
        let path = self.0.clone();
        let saved = tokio::task::spawn_blocking(move || keep::save(&path, &past)).await;
        match saved {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(hinted(&error.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Why no server may run on these data; `None` where one may.
    pub fn forbids(&self, mark: &Mark) -> Option<String> {
        let file = self.0.display();
        match mark {
            Mark::Known(Past::Rewinding) => Some(format!(
                "a rewind of its data was begun and did not end: it needs a full copy of the other node's data; make one \
                 and remove {file}, or set rejoin = \"rewind-or-clone\""
            )),
            Mark::Known(Past::Replacing) => {
                Some(format!("a full copy is complete and has not taken the place of the old data yet ({file})"))
            }
            Mark::Unreadable(why) => Some(format!(
                "nobody knows whether its data are whole ({why}): it needs a full copy; make one and remove {file}"
            )),
            Mark::None | Mark::Known(Past::Following | Past::Acting { .. }) => None,
        }
    }
}

/// The word that an operator looks for stands in front (casebook C31).
fn hinted(error: &str) -> String {
    match error.contains("No space left") {
        true => format!("the disk is full: {error}"),
        false => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_mark_is_remembered_and_a_damaged_one_forbids_all() {
        let dir = tempfile::tempdir().unwrap();
        let file = MarkFile::new(dir.path().join("main.leasehold"));
        assert_eq!(file.load().await, Mark::None);
        for past in [Past::Following, Past::Acting { token: 7 }, Past::Rewinding, Past::Replacing] {
            file.save(past.clone()).await.unwrap();
            assert_eq!(file.load().await, Mark::Known(past));
        }
        std::fs::write(file.path(), "{\"state\":\"dancing\"}").unwrap();
        assert!(file.forbids(&file.load().await).is_some_and(|why| why.contains("full copy")));
    }

    #[test]
    fn only_whole_data_may_be_started_on() {
        let file = MarkFile::new("/srv/main.leasehold".into());
        let forbids = |past| file.forbids(&Mark::Known(past));
        assert_eq!((forbids(Past::Following), forbids(Past::Acting { token: 1 })), (None, None));
        assert!(forbids(Past::Rewinding).is_some_and(|why| why.contains("needs a full copy")));
        assert!(forbids(Past::Replacing).is_some());
    }
}
