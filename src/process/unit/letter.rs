//! What the daemon and `leasehold launch` say to each other.
//!
//! `ready 1` · then the length of the letter in four bytes, big end first, with the three streams, and the letter ·
//! `started PID` or `failed ERRNO` · `ended STATUS`, as wait(2) has it. During an upgrade the two are of different
//! versions: the number after `ready` is that of this form.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::{Class, Identity, OnDrop, Program};

pub const READY: &str = "ready 1";
/// More than the kernel takes for arguments and environment at its usual limit of stack.
pub const LARGEST: usize = 4 << 20;

/// What to run, and what becomes of it when the daemon closes the connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Letter {
    path: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    directory: Option<PathBuf>,
    identity: Option<(u32, u32)>,
    /// It lives on.
    pub keep: bool,
}

impl Letter {
    pub fn new(program: &Program, on_drop: OnDrop) -> Letter {
        Letter {
            path: program.path.clone(),
            args: program.args.clone(),
            environment: program.environment.clone(),
            directory: program.directory.clone(),
            identity: program.identity.map(|identity| (identity.uid, identity.gid)),
            keep: on_drop == OnDrop::Leave,
        }
    }

    pub fn program(self) -> Program {
        Program {
            path: self.path,
            args: self.args,
            environment: self.environment,
            directory: self.directory,
            identity: self.identity.map(|(uid, gid)| Identity { uid, gid }),
            class: Class::Agent,
        }
    }
}

/// The number after a word, if that is what was said.
pub fn number(line: &str, word: &str) -> Option<i32> {
    line.strip_prefix(word)?.trim().parse().ok()
}
