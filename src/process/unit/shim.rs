//! `leasehold launch`: started by systemd for one connection, starts what the daemon at its other end asks for.

use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid};

use super::super::Streams;
use super::letter::{LARGEST, Letter, READY};

/// Serves the connection on the standard input, until what it started has ended or is no longer wanted.
pub fn run() -> io::Result<()> {
    let line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    serve(line)
}

pub(super) fn serve(mut line: UnixStream) -> io::Result<()> {
    // A daemon that has closed the connection wants nothing any more.
    if writeln!(line, "{READY}").is_err() {
        return Ok(());
    }
    let Some((letter, streams)) = receive(&mut line)? else { return Ok(()) };
    let keep = letter.keep;
    // The streams are the program's alone: whoever reads them waits for their end.
    let started = letter.program().command(streams).spawn();
    match started {
        Ok(child) => {
            let _ = writeln!(line, "started {}", child.id());
            mind(child, line, keep)
        }
        Err(error) => {
            let _ = writeln!(line, "failed {}", error.raw_os_error().unwrap_or(libc::EINVAL));
            Ok(())
        }
    }
}

/// `None` when the connection was closed instead.
fn receive(line: &mut UnixStream) -> io::Result<Option<(Letter, Streams)>> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(&*line, &mut [IoSliceMut::new(&mut length)], &mut control, RecvFlags::CMSG_CLOEXEC);
    match got {
        Ok(got) if got.bytes == 0 => return Ok(None),
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        got => line.read_exact(&mut length[got?.bytes..])?,
    }
    let sent = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds: Vec<OwnedFd> = sent.flatten().collect();
    let length = u32::from_be_bytes(length) as usize;
    if fds.len() != 3 || length > LARGEST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut letter = vec![0; length];
    line.read_exact(&mut letter)?;
    let streams = Streams { stderr: fds.pop(), stdout: fds.pop(), stdin: fds.pop() };
    Ok(Some((serde_json::from_slice(&letter)?, streams)))
}

/// Waits for the end of the program, or of the wish for it. It stays a zombie until the daemon closes the connection, so
/// that its number is given to nobody else while the daemon may still signal it.
fn mind(mut child: Child, mut line: UnixStream, keep: bool) -> io::Result<()> {
    let pid = Pid::from_child(&child);
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let closed = until_closed_or(&line, Some(&ended))?;
    if closed && !keep {
        let _ = kill_process_group(pid, Signal::KILL);
        return Ok(());
    }
    if closed {
        return child.wait().map(drop);
    }
    let _ = writeln!(line, "ended {}", status(pid)?);
    until_closed_or(&line, None)?;
    if !keep {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    child.wait().map(drop)
}

/// Whether the connection was closed, and not only the process has ended. The daemon says nothing after its letter.
fn until_closed_or(line: &UnixStream, ended: Option<&OwnedFd>) -> io::Result<bool> {
    let mut fds = vec![PollFd::new(line, PollFlags::IN)];
    fds.extend(ended.map(|ended| PollFd::new(ended, PollFlags::IN)));
    loop {
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(fds.get(1).is_none_or(|ended| ended.revents().is_empty())),
        }
    }
}

/// As wait(2) has it, without taking it.
fn status(pid: Pid) -> io::Result<i32> {
    let how = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let how = how.ok_or(ErrorKind::NotFound)?;
    Ok(how.exit_status().map_or_else(|| how.terminating_signal().unwrap_or_default(), |code| (code & 0xff) << 8))
}
