//! The listening side: who connects, how many at once, and where their requests go.
//!
//! One loop does everything in the daemon, so nothing here may hold it up: every read and write of a connection has a
//! limit, connections are counted, and a request waits for the daemon in its own task.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

use super::connection;
use super::error::ControlError;
use super::figures::Figures;
use super::groups::{Access, Rights};
use super::journal::Journal;
use super::reply::{Answer, ErrorCode, Failure, Reply, Version};
use super::status::Status;
use crate::core::Command;

/// Connections at once: far more than people and monitors need, little memory even if all are used.
const MAX_CONNECTIONS: u64 = 64;

/// Of these, how many may belong to users other than root: they cannot lock root out.
const MAX_UNPRIVILEGED: u64 = 48;

/// Pause after `accept` failed (no descriptors left): trying at once again would only burn the loop's time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Everything that the server must know before it listens.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub socket: PathBuf,
    pub access: Access,
    /// Name of the other node: `confirm-fenced` has to name it.
    pub peer_name: String,
    pub version: Version,
}

/// The process at the other end, as the kernel saw it when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub pid: Option<i32>,
}

/// What the daemon is asked. Everything else the server answers by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Answer with [`Outcome::Status`]; `control` in it is filled in by the server.
    Status,
    /// Hand to the core; answer with [`Outcome::Accepted`], or its refusal through `Failure::from`.
    Command(Command),
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Status(Box<Status>),
    Accepted,
    Failed(Failure),
}

/// One request for the daemon. Dropping `reply` unanswered tells the client that the daemon is ending.
#[derive(Debug)]
pub struct Call {
    pub ask: Ask,
    pub caller: Caller,
    pub reply: oneshot::Sender<Outcome>,
}

/// The control socket. Removed when this is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    shared: Arc<Shared>,
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ServerOptions,
    pub(super) journal: Journal,
    pub(super) calls: mpsc::Sender<Call>,
    pub(super) counters: Counters,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    open: AtomicU64,
    open_unprivileged: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) bad_requests: AtomicU64,
    pub(super) denied: AtomicU64,
    turned_away: AtomicU64,
    pub(super) dropped: AtomicU64,
}

impl Server {
    /// Listens. The caller holds the daemon's lock: a socket that is there already is left over and is replaced.
    pub fn bind(options: ServerOptions, journal: Journal, calls: mpsc::Sender<Call>) -> Result<Server, ControlError> {
        let path = options.socket.clone();
        remove_old(&path)?;
        let listener =
            UnixListener::bind(&path).map_err(|source| ControlError::Listen { path: path.clone(), source })?;
        // Credentials decide, not this mode; with groups everybody may connect, and is told which group is missing.
        let mode = if options.access.is_shared() { 0o666 } else { 0o600 };
        fs::set_permissions(&path, Permissions::from_mode(mode))
            .map_err(|source| ControlError::Mode { path, source })?;
        let shared = Arc::new(Shared { options, journal, calls, counters: Counters::default() });
        Ok(Server { listener, shared })
    }

    /// Serves until it is dropped.
    pub async fn run(self) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    tracing::warn!(%error, "control socket: cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// What has been counted so far.
    pub fn figures(&self) -> Figures {
        self.shared.counters.figures()
    }

    fn admit(&self, stream: UnixStream) {
        let caller = match stream.peer_cred() {
            Ok(cred) => Caller { uid: cred.uid(), gid: cred.gid(), pid: cred.pid() },
            Err(error) => return tracing::warn!(%error, "control socket: a connection without credentials"),
        };
        let privileged = caller.uid == 0 || caller.uid == self.shared.options.access.own_uid;
        match Seat::take(self.shared.clone(), privileged) {
            Some(seat) => drop(tokio::spawn(connection::serve(stream, caller, seat))),
            None => turn_away(&stream),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Left over it does no harm: the next start replaces it, and a client finds nobody behind it.
        let _ = fs::remove_file(&self.shared.options.socket);
    }
}

/// One of the limited number of connections, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) shared: Arc<Shared>,
    privileged: bool,
}

impl Seat {
    fn take(shared: Arc<Shared>, privileged: bool) -> Option<Seat> {
        let counters = &shared.counters;
        let full = counters.open.load(Ordering::Relaxed) >= MAX_CONNECTIONS;
        let crowded = !privileged && counters.open_unprivileged.load(Ordering::Relaxed) >= MAX_UNPRIVILEGED;
        if full || crowded {
            counters.turned_away.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        counters.open.fetch_add(1, Ordering::Relaxed);
        counters.open_unprivileged.fetch_add(u64::from(!privileged), Ordering::Relaxed);
        Some(Seat { shared, privileged })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let counters = &self.shared.counters;
        counters.open.fetch_sub(1, Ordering::Relaxed);
        counters.open_unprivileged.fetch_sub(u64::from(!self.privileged), Ordering::Relaxed);
    }
}

impl Shared {
    pub(super) async fn rights(&self, caller: Caller) -> Rights {
        self.options.access.rights(caller).await
    }
}

impl Counters {
    pub(super) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            connections: read(&self.open),
            requests: read(&self.requests),
            bad_requests: read(&self.bad_requests),
            denied: read(&self.denied),
            turned_away: read(&self.turned_away),
            dropped: read(&self.dropped),
        }
    }
}

impl From<Outcome> for Result<Answer, Failure> {
    fn from(outcome: Outcome) -> Result<Answer, Failure> {
        match outcome {
            Outcome::Status(status) => Ok(Answer::Status(status)),
            Outcome::Accepted => Ok(Answer::Accepted),
            Outcome::Failed(failure) => Err(failure),
        }
    }
}

/// One line, if it fits at once; the connection ends here in any case.
fn turn_away(stream: &UnixStream) {
    let failure = Failure::new(ErrorCode::Busy, "too many connections to the control socket")
        .remedy("see who holds them: `ss -xp`, and try again");
    let _ = stream.try_write(&Reply::error(None, failure).line());
}

fn remove_old(path: &Path) -> Result<(), ControlError> {
    let replace = |source: io::Error| ControlError::Replace { path: path.into(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(replace(error)),
        Ok(old) if old.file_type().is_socket() => fs::remove_file(path).map_err(replace),
        Ok(_) => Err(ControlError::NotASocket { path: path.into() }),
    }
}
