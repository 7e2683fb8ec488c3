//! What can keep the control server from starting.

use std::io;
use std::path::PathBuf;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("control socket {}: something that is no socket is in its place; move it away", path.display())]
    NotASocket { path: PathBuf },
    #[error("control socket {}: cannot replace the old one: {source}", path.display())]
    Replace { path: PathBuf, source: io::Error },
    #[error(
        "control socket {}: cannot listen: {source}; its directory must exist, and belong to the user of the daemon",
        path.display()
    )]
    Listen { path: PathBuf, source: io::Error },
    #[error("control socket {}: cannot set its mode: {source}", path.display())]
    Mode { path: PathBuf, source: io::Error },
}
