//! Raw netlink: messages are written ahead of time, so that sending one allocates nothing and waits for nobody.
//!
//! The kernel works on a request within `send`, and its answer is queued before `send` returns (`netlink_unicast` to a
//! kernel socket): no answer is ever waited for. Layout: `linux/netlink.h`; integers of the headers in host order.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// `NLM_F_REQUEST`
pub const REQUEST: u16 = 1;
/// `NLM_F_ACK`: success is answered too.
pub const ACK: u16 = 4;
/// `NLM_F_ROOT | NLM_F_MATCH`
pub const DUMP: u16 = 0x300;
/// `NLM_F_CREATE`
pub const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`
pub const APPEND: u16 = 0x800;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `struct nlmsghdr`
const HEADER: usize = 16;
/// `struct nlattr`
const ATTR: usize = 4;
/// The kernel fills at most this much at once of a dump (`netlink_dump`).
const RECEIVE: usize = 32 << 10;

/// Writes messages one after another.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    messages: u32,
}

impl Writer {
    /// One message; `body` writes its payload. Numbered from 1.
    pub fn message(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Writer)) {
        let start = self.bytes.len();
        self.messages += 1;
        self.raw(&[0; 4]);
        self.raw(&kind.to_ne_bytes());
        self.raw(&(flags | REQUEST).to_ne_bytes());
        self.raw(&self.messages.to_ne_bytes());
        self.raw(&[0; 4]);
        body(self);
        let length = u32::try_from(self.bytes.len() - start).expect("a message is far below 4 GiB");
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An attribute, padded to four bytes.
    pub fn attr(&mut self, kind: u16, value: &[u8]) {
        self.within(kind, |w| w.raw(value));
    }

    /// A number in network order, as nf_tables wants them.
    pub fn number(&mut self, kind: u16, value: u32) {
        self.attr(kind, &value.to_be_bytes());
    }

    /// A text with its NUL.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.within(kind, |w| {
            w.raw(value.as_bytes());
            w.raw(&[0]);
        });
    }

    /// An attribute of attributes.
    pub fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Writer)) {
        const NLA_F_NESTED: u16 = 1 << 15;
        self.within(kind | NLA_F_NESTED, body);
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn within(&mut self, kind: u16, body: impl FnOnce(&mut Writer)) {
        let start = self.bytes.len();
        self.raw(&[0; 2]);
        self.raw(&kind.to_ne_bytes());
        body(self);
        let length = u16::try_from(self.bytes.len() - start).expect("an attribute is written in pieces below 64 KiB");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// A socket to one part of the kernel, with its buffer.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl Channel {
    /// Of the network namespace of the calling thread. `None`: NETLINK_ROUTE, whose number is 0.
    ///
    /// # Errors
    /// The kernel does not have this part of netlink.
    pub fn open(protocol: Option<Protocol>) -> Result<Channel, Errno> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        Ok(Channel { socket, buffer: vec![0; RECEIVE].into_boxed_slice() })
    }

    /// Sends messages that ask for an acknowledgement, and gives the first refusal.
    ///
    /// # Errors
    /// The kernel's refusal; `AGAIN` where it said nothing.
    pub fn request(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.send(bytes)?;
        // A batch that failed is acknowledged in those of its parts that were right: every answer counts.
        let mut result = Err(Errno::AGAIN);
        let mut refused = None;
        while let Some(answers) = self.receive()? {
            for answer in answers.filter(|a| a.kind == NLMSG_ERROR) {
                match answer.errno() {
                    None => result = Ok(()),
                    Some(errno) => refused = refused.or(Some(errno)),
                }
            }
        }
        refused.map_or(result, Err)
    }

    /// Sends a request for a dump, and hands each of its messages to `each`.
    ///
    /// # Errors
    /// The kernel's refusal; `AGAIN` where the dump has no end.
    pub fn dump(&mut self, bytes: &[u8], mut each: impl FnMut(&Message<'_>)) -> Result<(), Errno> {
        self.send(bytes)?;
        while let Some(answers) = self.receive()? {
            for answer in answers {
                match answer.kind {
                    NLMSG_DONE | NLMSG_ERROR => return answer.errno().map_or(Ok(()), Err),
                    _ => each(&answer),
                }
            }
        }
        Err(Errno::AGAIN)
    }

    /// What is left of an earlier answer is no answer to this.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        while self.receive()?.is_some() {}
        retried(|| send(&self.socket, bytes, SendFlags::empty())).map(drop)
    }

    /// What is there already; `None` when that is nothing.
    fn receive(&mut self) -> Result<Option<Messages<'_>>, Errno> {
        let (socket, buffer) = (&self.socket, &mut self.buffer[..]);
        match retried(|| recv(socket, &mut *buffer, RecvFlags::DONTWAIT).map(|(length, _)| length)) {
            Ok(length) => Ok(Some(Messages(&self.buffer[..length]))),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// One message from the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub kind: u16,
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Of an acknowledgement or an end of a dump: why not.
    fn errno(&self) -> Option<Errno> {
        let code = i32::from_ne_bytes(*self.body.first_chunk()?);
        (code != 0).then(|| Errno::from_raw_os_error(-code))
    }
}

/// The messages of one datagram.
#[derive(Debug)]
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32::from_ne_bytes(*self.0.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*self.0.get(4..)?.first_chunk()?);
        let body = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, body })
    }
}

/// The attributes in a piece of a message: kind, without its flags, and value.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const KIND: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(ATTR..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & KIND, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::default();
        writer.message(7, ACK, |w| {
            w.raw(&[9, 9, 9, 9]);
            w.text(1, "abcd");
            w.nest(2, |w| w.number(3, 0x0102_0304));
        });
        writer.message(8, 0, |_| {});
        let bytes = writer.into_bytes();
        let messages: Vec<Message<'_>> = Messages(&bytes).collect();
        assert_eq!((messages[0].kind, messages[1].kind, messages.len()), (7, 8, 2));
        let attrs: Vec<_> = attributes(&messages[0].body[4..]).collect();
        assert_eq!(attrs[0], (1, &b"abcd\0"[..]));
        let inner: Vec<_> = attributes(attrs[1].1).collect();
        assert_eq!((attrs[1].0, inner.as_slice()), (2, &[(3, &[1, 2, 3, 4][..])][..]));
        assert!(messages[1].body.is_empty());
    }

    #[test]
    fn what_is_cut_off_or_lies_about_its_length_ends_the_reading() {
        assert_eq!(Messages(&[3, 0, 0, 0, 1, 0, 0, 0]).count(), 0);
        assert_eq!(Messages(&[200, 0, 0, 0, 1, 0, 0, 0]).count(), 0);
        assert_eq!(attributes(&[0, 0, 1, 0, 5]).count(), 0);
        assert_eq!(attributes(&[9, 0, 1, 0, 5]).count(), 0);
    }
}
