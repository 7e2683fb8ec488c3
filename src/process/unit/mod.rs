//! Starting programs in units of their own, so that the daemon's own unit can be closed.
//!
//! ```text
//!   daemon ── connect ──▶ leasehold-agent.socket      systemd starts leasehold-agent@N.service for this connection:
//!          ◀── ready ───  `leasehold launch` in it    a sandbox, limits and a control group of its own
//!          ── letter, stdin, stdout, stderr ──▶       what to run; nobody else sees it, also not systemd
//!          ◀── started, ended ──                      the program is the child of `leasehold launch`
//!   connection closed ─▶ an agent is killed with all that it started; a service lives on
//! ```
//!
//! No bus is needed, and no answer of the service manager: it is well when the program's own unit says "ready". One that
//! is told so too late finds the connection closed, and starts nothing. What fencing needs is then started by the daemon
//! itself, inside of its sandbox; what must see the machine as it is (a mount, a service) is not.

mod client;
mod letter;
mod shim;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) use client::{Door, Lent};
pub use shim::run as launch;

use super::{ProcessError, Program};

/// Until `leasehold launch` says that it is ready: some 20 ms, unless the machine is sick. A fence attempt does not wait
/// longer for it.
const PATIENCE: Duration = Duration::from_millis(500);

static FOLDER: OnceLock<PathBuf> = OnceLock::new();
/// Whether the last program that could be started without a unit had to be.
static IS_BYPASSED: AtomicBool = AtomicBool::new(false);

/// In what kind of unit a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Fence agents and hooks: in a sandbox. Without systemd's help they are started all the same.
    Agent,
    /// What belongs to a resource: services, their commands, mounts. It sees the machine as everybody does, or is not
    /// started.
    Resource,
}

impl Class {
    fn socket(self) -> &'static str {
        match self {
            Class::Agent => "agent.sock",
            Class::Resource => "resource.sock",
        }
    }
}

/// From now on programs are started through the sockets in this folder. Said once, before the first program.
pub fn use_units(folder: &Path) {
    FOLDER.get_or_init(|| folder.to_owned());
}

/// The process whose table of mounts is the machine's, as `/proc` calls it: a unit that is closed has a table of its own.
pub fn witness_of_mounts() -> &'static str {
    if FOLDER.get().is_some() { "1" } else { "self" }
}

/// A unit that waits for this program; `None`: it is to be started from here.
pub(super) async fn open(program: &Program) -> Result<Option<Door>, ProcessError> {
    let Some(folder) = FOLDER.get() else { return Ok(None) };
    let socket = folder.join(program.class.socket());
    match program.class {
        Class::Agent => Ok(open_in_time(&socket).await),
        Class::Resource => match Door::open(&socket).await {
            Ok(door) => Ok(Some(door)),
            Err(source) => Err(ProcessError::NoUnit { program: program.path.clone(), socket, source }),
        },
    }
}

async fn open_in_time(socket: &Path) -> Option<Door> {
    let why = match tokio::time::timeout(PATIENCE, Door::open(socket)).await {
        Ok(Ok(door)) => {
            if IS_BYPASSED.swap(false, Ordering::Relaxed) {
                tracing::info!("agents and hooks run in units of their own again");
            }
            return Some(door);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };
    if !IS_BYPASSED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            socket = %socket.display(), why,
            "agents and hooks are started by the daemon itself, in its own sandbox, because systemd starts no unit for \
             them; see `systemctl status leasehold-agent.socket`"
        );
    }
    None
}
