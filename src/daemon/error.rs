//! Why the daemon does not run, and whether starting it again could help.

use std::path::PathBuf;

use crate::config::{Diagnostics, SecretSource};
use crate::fence::FenceError;
use crate::os::record::RecordError;
use crate::os::secret::SecretError;

/// Why the daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("{0}")]
    Config(Diagnostics),
    #[error(
        "this machine is called {host:?}, and the configuration knows {first:?} and {second:?}: \
         say which one it is with --node NAME"
    )]
    WhoAmI { host: String, first: String, second: String },
    #[error("there is no node {name:?} in the configuration; its nodes are {first:?} and {second:?}")]
    NoSuchNode { name: String, first: String, second: String },
    #[error("cannot make the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("cannot {step}: {source}")]
    Start { step: &'static str, source: std::io::Error },
    #[error("the cluster key in {key}: {why}")]
    Key { key: SecretSource, why: String },
}

/// Whether starting again could not help: somebody has to mend the configuration, a key or the record first.
pub fn is_permanent(error: &anyhow::Error) -> bool {
    let config = matches!(
        error.downcast_ref(),
        Some(
            DaemonError::Config(_)
                | DaemonError::WhoAmI { .. }
                | DaemonError::NoSuchNode { .. }
                | DaemonError::Key { .. }
        )
    );
    let record = matches!(error.downcast_ref(), Some(RecordError::Damaged { .. } | RecordError::OtherVersion { .. }));
    // One that cannot be read now may lie on a file system that is still being mounted.
    let key = !matches!(error.downcast_ref(), None | Some(SecretError::Unreadable { .. }));
    config || record || key || error.is::<FenceError>()
}
