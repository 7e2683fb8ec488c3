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
use crate::core::{Instant, Span};
use crate::os::clock;

/// As root, whom the kernel names to the manager. The call follows only when it has let in: what the manager reads together
/// with these words it looks at when more comes, and no more would come.
const LET_IN: &[u8] = b"\0AUTH EXTERNAL 30\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n";
/// A manager that is well answers in a millisecond, one on a machine that is overloaded in more.
const PATIENCE: Span = Span::from_ms(500);
/// The answer; and the manager's news, which come on this connection as well, one at a time.
const SPACE: usize = 16 << 10;
const HEAD: usize = 16;
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
    let until = clock::now().after(PATIENCE);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&stream, &SocketAddrUnix::new(socket).ok()?).ok()?;
    send_all(&stream, LET_IN)?;
    let mut ear = Ear::new();
    while !ear.is_let_in() {
        ear.listen(&stream, until)?;
    }
    send_all(&stream, call)?;
    loop {
        if let Some(taken) = ear.answer() {
            return Some(taken);
        }
        ear.listen(&stream, until)?;
    }
}

/// Less than a socket's buffer: it goes at once, or there is nobody who reads.
fn send_all(stream: &OwnedFd, bytes: &[u8]) -> Option<()> {
    let sent = send(stream, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok()?;
    (sent == bytes.len()).then_some(())
}

/// What was heard and not looked at yet, and how much of what comes belongs to news that are of no interest.
struct Ear {
    space: [u8; SPACE],
    length: usize,
    skip: usize,
}

impl Ear {
    fn new() -> Ear {
        Ear { space: [0; SPACE], length: 0, skip: 0 }
    }

    /// Waits for more. `None`: nothing comes.
    fn listen(&mut self, stream: &OwnedFd, until: Instant) -> Option<()> {
        let left = until.since(clock::now());
        let left = Timespec { tv_sec: 0, tv_nsec: i64::try_from(left.0).ok()?.min(999_999_999) };
        if poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&left)).ok()? == 0 {
            return None;
        }
        let (read, _) = recv(stream, &mut self.space[self.length..], RecvFlags::DONTWAIT).ok()?;
        self.length += read;
        (read > 0).then_some(())
    }

    /// `OK …` and `AGREE_UNIX_FD`, or `ERROR`: whoever does not let in will answer no call.
    fn is_let_in(&mut self) -> bool {
        let heard = &self.space[..self.length];
        let mut ends = heard.windows(2).enumerate().filter(|(_, pair)| pair == b"\r\n").map(|(at, _)| at + 2);
        let end = ends.nth(1);
        if let Some(end) = end {
            self.forget(end);
        }
        end.is_some()
    }

    /// What was answered to the one call of this connection, once it is there whole. The news before it are forgotten.
    fn answer(&mut self) -> Option<bool> {
        loop {
            let skip = self.skip.min(self.length);
            self.forget(skip);
            self.skip -= skip;
            let heard = &self.space[..self.length];
            let (head, _) = heard.split_first_chunk::<HEAD>()?;
            let (kind, length) = (head[1], length(head)?);
            if kind == RETURN || kind == ERROR {
                let message = heard.get(..length)?;
                return Some(kind == RETURN || message.windows(UNKNOWN.len()).any(|part| part == UNKNOWN));
            }
            self.skip = length;
        }
    }

    fn forget(&mut self, bytes: usize) {
        self.space.copy_within(bytes..self.length, 0);
        self.length -= bytes;
    }
}

/// Of a whole message: its fixed head, the fields, what fills them up, the body.
fn length(head: &[u8; HEAD]) -> Option<usize> {
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let value = if head[0] == b'l' { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) };
        value as usize
    };
    HEAD.checked_add(number(12))?.checked_next_multiple_of(8)?.checked_add(number(4))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::io::{Read as _, Write as _};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::UnixListener;

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

    /// What is found when so many bytes come at a time.
    fn answered(bytes: &[u8], step: usize) -> Option<bool> {
        let (mut ear, mut let_in) = (Ear::new(), false);
        for part in bytes.chunks(step) {
            ear.space[ear.length..][..part.len()].copy_from_slice(part);
            ear.length += part.len();
            let_in = let_in || ear.is_let_in();
            let answer = if let_in { ear.answer() } else { None };
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    #[test]
    fn the_answer_is_found_behind_any_amount_of_the_managers_news_and_only_when_it_is_whole() {
        let greeting = b"OK 0123\r\nAGREE_UNIX_FD\r\n".to_vec();
        let news = [message(4, b"signal fields", b"a job is new"), message(4, b"f", &[b'x'; SPACE])].concat();
        let returned = message(RETURN, b"x", b"/org/job/1");
        let whole = [&greeting[..], &news, &news, &news, &returned].concat();
        let silent = whole.len() - returned.len();
        for step in [1, 7, 4096, SPACE / 2] {
            assert_eq!(answered(&whole, step), Some(true), "{step} at a time");
            assert!((silent..whole.len()).all(|length| answered(&whole[..length], step).is_none()));
        }
        let refused = |name: &[u8]| {
            let whole = [&greeting[..], &news, &message(ERROR, name, b"no")].concat();
            assert_eq!(answered(&whole[..whole.len() - 1], 64), None, "not whole");
            answered(&whole, 64)
        };
        assert_eq!(refused(b"org.freedesktop.systemd1.NoSuchUnit"), Some(true), "what is not loaded does not run");
        assert_eq!(refused(b"org.freedesktop.systemd1.TransactionIsDestructive"), Some(false));
    }

    #[test]
    fn the_call_comes_after_the_manager_has_let_in_and_not_with_those_words() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("private");
        let manager = UnixListener::bind(&path).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = manager.accept().unwrap();
            let mut read = [0; 256];
            let length = stream.read(&mut read).unwrap();
            assert_eq!(&read[..length], LET_IN);
            stream.write_all(b"OK 0123\r\nAGREE_UNIX_FD\r\n").unwrap();
            let length = stream.read(&mut read).unwrap();
            assert_eq!(&read[..length], b"call");
            stream.write_all(&message(RETURN, b"x", b"/org/job/1")).unwrap();
        });
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        assert_eq!(talk(&path, b"call"), Some(true));
        serving.join().unwrap();
        assert_eq!(talk(&path, b"call"), None, "nobody is there");
    }
}
