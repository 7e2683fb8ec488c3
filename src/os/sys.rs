//! What tokio cannot check for us.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A file descriptor whose readability tokio reports. Shared access only, so that nobody can put another one in its place.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Registers `fd` with the tokio runtime of the caller.
    ///
    /// # Errors
    /// Those of `epoll_ctl`.
    pub fn readable(fd: OwnedFd) -> io::Result<Watched> {
        // SAFETY: an `OwnedFd` is open and keeps its number until it is dropped; the `AsyncFd` owns it, and this
        // type lends it out by shared reference only, so that it stays the same descriptor for as long as it is registered.
        let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        registered.map(Watched).map_err(|e| e.into_parts().1)
    }

    pub fn get(&self) -> &AsyncFd<OwnedFd> {
        &self.0
    }
}
