//! Watching and signalling a process by a descriptor of it, so that a reused number never hits a stranger.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One process, whether or not it is a child of this one.
#[derive(Debug)]
pub struct PidWatch {
    pid: Pid,
    fd: AsyncFd<OwnedFd>,
}

impl PidWatch {
    /// Must be called within the runtime. The caller makes sure that `pid` is still who it thinks it is: by
    /// not having reaped its child, or by looking again after this returned.
    pub fn of(pid: Pid) -> io::Result<PidWatch> {
        let fd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        Ok(PidWatch { pid, fd: register(fd)? })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Completes when the process has ended, reaped or not.
    pub async fn exited(&self) {
        // The readiness is never cleared: the end of a process is final. An error means that the runtime
        // shuts down, when nobody waits for an answer any more.
        if self.fd.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Signals this very process; that it has ended is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(self.fd.get_ref(), signal);
    }
}

/// The deprecated constructor is unsound only for types that may close or exchange their descriptor under the
/// registration; an [`OwnedFd`] that nobody can take out does neither. Its successor is `unsafe` and not for this room.
#[allow(deprecated)]
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}
