//! Tells the service manager to stop a unit, without a bus and without memory: a connection to its own socket, the words
//! of D-Bus that let in, and a call that the daemon has made ahead (D-Bus specification, "Authentication Protocol" and
//! "Message Protocol").
//!
//! What is killed without this would be started again by `Restart=`.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::plan::UnitPlan;
use super::scan::Name;

/// As root, whom the kernel names to the manager; no answer is waited for in between.
const LET_IN: &[u8] = b"\0AUTH EXTERNAL 30\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n";
/// A manager that is well answers in a millisecond, one on a machine that is overloaded in more.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// The manager's news, which come on this connection as well, and the answer.
const SPACE: usize = 16 << 10;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
/// The error of a unit that is not even loaded.
const UNKNOWN: &[u8] = b"org.freedesktop.systemd1.NoSuchUnit";

/// Whether the manager has taken the order: from then on it starts the unit only if somebody asks it to.
pub fn stop(unit: UnitPlan<'_>) -> bool {
    talk(Name::new().with(unit.manager), unit.stop).unwrap_or(false)
}

/// `None`: it cannot be reached, or does not answer in time.
fn talk(socket: &CStr, call: &[u8]) -> Option<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&stream, &SocketAddrUnix::new(socket).ok()?).ok()?;
    send_all(&stream, LET_IN)?;
    send_all(&stream, call)?;
    let (mut heard, mut length) = ([0; SPACE], 0);
    loop {
        if let Some(taken) = answer(&heard[..length]) {
            return Some(taken);
        }
        if poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&PATIENCE)).ok()? == 0 {
            return None;
        }
        let (read, _) = recv(&stream, &mut heard[length..], RecvFlags::DONTWAIT).ok()?;
        length += read;
        if read == 0 {
            return None;
        }
    }
}

/// Less than a socket's buffer: it goes at once, or there is nobody who reads.
fn send_all(stream: &OwnedFd, bytes: &[u8]) -> Option<()> {
    let sent = send(stream, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok()?;
    (sent == bytes.len()).then_some(())
}

/// What was answered to the one call of this connection, once it is there whole.
fn answer(heard: &[u8]) -> Option<bool> {
    let mut rest = messages(heard)?;
    loop {
        let (head, _) = rest.split_first_chunk::<16>()?;
        let number = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            let value = if head[0] == b'l' { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) };
            value as usize
        };
        let length = 16usize.checked_add(number(12))?.checked_next_multiple_of(8)?.checked_add(number(4))?;
        let (message, next) = rest.split_at_checked(length)?;
        match head[1] {
            RETURN => return Some(true),
            ERROR => return Some(message.windows(UNKNOWN.len()).any(|part| part == UNKNOWN)),
            _ => rest = next,
        }
    }
}

/// What follows the lines of the authentication: `OK …` and `AGREE_UNIX_FD`, or `ERROR`.
fn messages(heard: &[u8]) -> Option<&[u8]> {
    let mut rest = heard;
    for _ in 0..2 {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        rest = &rest[end + 2..];
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header, fields, padding, body.
    fn message(kind: u8, fields: &[u8], body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![b'l', kind, 0, 1];
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(7u32.to_le_bytes());
        bytes.extend((fields.len() as u32).to_le_bytes());
        bytes.extend(fields);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn the_answer_is_found_behind_the_managers_news_and_only_when_it_is_whole() {
        let greeting = b"OK 0123\r\nAGREE_UNIX_FD\r\n".to_vec();
        let news = message(4, b"signal fields", b"a job is new");
        let returned = message(RETURN, b"x", b"/org/job/1");
        let whole = [greeting.clone(), news.clone(), returned].concat();
        assert_eq!(answer(&whole), Some(true));
        assert!((0..whole.len()).all(|length| answer(&whole[..length]).is_none()));
        let refused = |name: &[u8]| answer(&[greeting.clone(), news.clone(), message(ERROR, name, b"no")].concat());
        assert_eq!(refused(b"org.freedesktop.systemd1.NoSuchUnit"), Some(true), "what is not loaded does not run");
        assert_eq!(refused(b"org.freedesktop.systemd1.TransactionIsDestructive"), Some(false));
    }
}
