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

const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
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

/// Two channels to the kernel and the messages on them.
#[derive(Debug)]
pub struct Sockets {
    list: Channel,
    end: Channel,
    lists: [Vec<u8>; 2],
    destroy: Vec<u8>,
}

impl Sockets {
    /// Finds out whether this kernel can do it, by the end of a connection that does not exist.
    ///
    /// # Errors
    /// `OPNOTSUPP` where the kernel was built without it (CONFIG_INET_DIAG_DESTROY), `NOENT` without inet_diag, `PERM`
    /// without CAP_NET_ADMIN.
    pub fn prepare() -> Result<Sockets, Errno> {
        let lists = [AF_INET, AF_INET6].map(|family| request(BY_FAMILY, DUMP, family));
        let destroy = request(DESTROY, ACK, AF_INET);
        let mut sockets = Sockets { list: Channel::open(SOCK_DIAG)?, end: Channel::open(SOCK_DIAG)?, lists, destroy };
        for list in &sockets.lists {
            sockets.list.dump(list, |_| {})?;
        }
        match sockets.end.request(&sockets.destroy) {
            // There is no connection between no address and no address.
            Ok(()) | Err(Errno::NOENT) => Ok(sockets),
            Err(error) => Err(error),
        }
    }

    /// Ends all connections of clients.
    pub fn end(&mut self, spec: &Spec) -> Ended {
        let mut all = Ended::default();
        for _ in 0..READINGS {
            let (mut count, mut error) = (0, None);
            for list in &self.lists {
                let (end, destroy) = (&mut self.end, &mut self.destroy);
                let listed = self.list.dump(list, |socket| match end_one(end, destroy, spec, socket) {
                    // It has just ended by itself.
                    None | Some(Err(Errno::NOENT)) => {}
                    Some(Ok(())) => count += 1,
                    Some(Err(why)) => error = error.or(Some(why)),
                });
                error = error.or(listed.err());
            }
            all.count += count;
            all.error = error;
            if count == 0 {
                break;
            }
        }
        all
    }
}

/// `None`: no client's.
fn end_one(
    channel: &mut Channel,
    destroy: &mut [u8],
    spec: &Spec,
    socket: &Message<'_>,
) -> Option<Result<(), Errno>> {
    let id = socket.body.get(ID_IN_ANSWER..ID_IN_ANSWER + ID)?;
    let family = *socket.body.first()?;
    if socket.kind != BY_FAMILY || !spec.is_client(&connection(family, id)?) {
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

fn request(kind: u16, flags: u16, family: u8) -> Vec<u8> {
    let mut w = Writer::default();
    w.message(kind, flags, |w| {
        w.raw(&[family, TCP, 0, 0]);
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
        assert_eq!(connection(AF_INET6, &id).unwrap(), seen);
    }

    #[test]
    fn a_request_has_the_size_that_the_kernel_wants() {
        assert_eq!(request(DESTROY, ACK, AF_INET).len(), 16 + REQUEST);
    }
}
