//! Ends established connections from outside (`SOCK_DESTROY`): both sides get a reset at once, also where nobody sends.
//!
//! The kernel is asked for its TCP sockets, and each that belongs to a client is destroyed by a request on a second
//! socket. A list that changes while it is read may miss some, so it is read until nothing is found any more. Nothing
//! here allocates after the start. Numbers: `linux/inet_diag.h`, `linux/sock_diag.h`, `net/tcp_states.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;

use super::cut::{Conn, Spec};
use super::netlink::{ACK, Channel, DUMP, Message, Writer};

/// `TCPDIAG_GETSOCK`, the only request that lists both families: each walk through the kernel's table takes a
/// millisecond and more.
const LIST: u16 = 18;
const DESTROY: u16 = 21;
const AF_INET: u8 = 2;
const TCP: u8 = 6;
/// All states but TIME_WAIT (6), CLOSE (7) and LISTEN (10): those have no client that waits, and whoever listens goes
/// on listening, for the next start.
const STATES: u32 = 0xfff & !(1 << 6 | 1 << 7 | 1 << 10);
/// `struct inet_diag_req_v2`
const REQUEST: usize = 56;
/// Where `struct inet_diag_sockid` stands: in an answer, and in a request.
const ID_IN_ANSWER: usize = 4;
const ID_IN_REQUEST: usize = 8;
const ID: usize = 48;
/// Reading the list again finds what an earlier reading missed; what then is left cannot be ended.
const READINGS: usize = 8;

/// How many connections are gone, and the first error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended {
    pub count: u32,
    pub error: Option<Errno>,
}

/// Two channels to the kernel, each with its message.
#[derive(Debug)]
pub struct Sockets {
    listing: Channel,
    list: Vec<u8>,
    ending: Channel,
    destroy: Vec<u8>,
}

impl Sockets {
    /// Finds out whether this kernel can do it, by the end of a connection that does not exist.
    ///
    /// # Errors
    /// `OPNOTSUPP` where the kernel was built without it (CONFIG_INET_DIAG_DESTROY), `NOENT` without inet_diag, `PERM`
    /// without CAP_NET_ADMIN.
    pub fn prepare() -> Result<Sockets, Errno> {
        let (listing, ending) = (Channel::open(Some(SOCK_DIAG))?, Channel::open(Some(SOCK_DIAG))?);
        let mut sockets = Sockets { listing, list: list(), ending, destroy: destroy() };
        sockets.listing.dump(&sockets.list, |_| {})?;
        match sockets.ending.request(&sockets.destroy) {
            // There is no connection between no address and no address.
            Ok(()) | Err(Errno::NOENT) => Ok(sockets),
            Err(error) => Err(error),
        }
    }

    /// Ends all connections of clients.
    pub fn end(&mut self, spec: &Spec) -> Ended {
        let mut all = Ended::default();
        for _ in 0..READINGS {
            let now = self.end_listed(spec);
            all = Ended { count: all.count + now.count, error: now.error };
            if now.count == 0 {
                break;
            }
        }
        all
    }

    fn end_listed(&mut self, spec: &Spec) -> Ended {
        let (mut count, mut error) = (0, None);
        let (ending, destroy) = (&mut self.ending, &mut self.destroy);
        let listed = self.listing.dump(&self.list, |socket| match end_one(ending, destroy, spec, socket) {
            // No client, or one that has just left.
            None | Some(Err(Errno::NOENT)) => {}
            Some(Ok(())) => count += 1,
            Some(Err(why)) => error = error.or(Some(why)),
        });
        Ended { count, error: error.or(listed.err()) }
    }
}

/// `None`: no client's.
fn end_one(channel: &mut Channel, destroy: &mut [u8], spec: &Spec, socket: &Message<'_>) -> Option<Result<(), Errno>> {
    let id = socket.body.get(ID_IN_ANSWER..ID_IN_ANSWER + ID)?;
    let family = *socket.body.first()?;
    if socket.kind != LIST || !spec.is_client(&connection(family, id)?) {
        return None;
    }
    let body = destroy.len() - REQUEST;
    destroy[body] = family;
    destroy[body + ID_IN_REQUEST..].copy_from_slice(id);
    Some(channel.request(destroy))
}

/// `struct inet_diag_sockid`: both ports, then both addresses in 16 bytes each.
fn connection(family: u8, id: &[u8]) -> Option<Conn> {
    Some(Conn {
        local: address(family, id.get(4..20)?.first_chunk()?),
        port: u16::from_be_bytes(*id.first_chunk()?),
        remote: address(family, id.get(20..36)?.first_chunk()?),
    })
}

/// An IPv4 address within IPv6 (a socket for both) is one of IPv4 on the wire, and for the rules.
fn address(family: u8, octets: &[u8; 16]) -> IpAddr {
    match family {
        AF_INET => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
        _ => Ipv6Addr::from(*octets).to_canonical(),
    }
}

/// `struct inet_diag_req`
fn list() -> Vec<u8> {
    let mut w = Writer::default();
    w.message(LIST, DUMP, |w| {
        w.raw(&[0; 4]);
        w.raw(&[0; ID]);
        w.raw(&STATES.to_ne_bytes());
        w.raw(&[0; 4]);
    });
    w.into_bytes()
}

/// `struct inet_diag_req_v2`, of no socket yet.
fn destroy() -> Vec<u8> {
    let mut w = Writer::default();
    w.message(DESTROY, ACK, |w| {
        w.raw(&[AF_INET, TCP, 0, 0]);
        w.raw(&STATES.to_ne_bytes());
        w.raw(&[0; ID]);
    });
    w.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_read_in_either_family_and_mapped_ones_as_ipv4() {
        let mut id = [0; ID];
        id[..4].copy_from_slice(&[0x1b, 0x58, 0xc0, 0x00]);
        id[4..8].copy_from_slice(&[10, 0, 0, 1]);
        id[20..24].copy_from_slice(&[10, 0, 0, 9]);
        let (here, there): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap());
        let seen = connection(AF_INET, &id).unwrap();
        assert_eq!((seen.local, seen.port, seen.remote), (here, 7000, there));
        for (place, last) in [(4, 1), (20, 9)] {
            let mapped = Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped();
            id[place..place + 16].copy_from_slice(&mapped.octets());
        }
        assert_eq!(connection(10, &id).unwrap(), seen);
    }

    #[test]
    fn a_request_has_the_size_that_the_kernel_wants() {
        assert_eq!((destroy().len(), list().len()), (16 + REQUEST, 16 + 60));
    }
}
