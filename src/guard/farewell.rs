//! The last words of a node that is reset: one datagram a link, sealed by the daemon long before and sent by the guard.
//!
//! They tell the peer's people why there is silence; nothing is decided by them. The watching thread has a copy of its
//! own, since the plan may be in the hands of one that hangs.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, sendto, socket_with};

use super::plan::Plan;

/// As many links as a configuration may sensibly have.
const MOST: usize = 8;
/// A sealed datagram of this kind has some 120 bytes.
const ROOM: usize = 256;
/// Both addresses, scope and port.
const HEAD: usize = 38;

/// One datagram, and by which way it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Farewell {
    /// The address of this node on the link: its peer listens to no other.
    pub from: IpAddr,
    pub to: SocketAddr,
    pub sealed: Vec<u8>,
}

impl Farewell {
    pub(super) fn encode(&self) -> Vec<u8> {
        let scope = match self.to {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(to) => to.scope_id(),
        };
        let addresses = [mapped(self.from), mapped(self.to.ip())].concat();
        [&addresses[..], &scope.to_le_bytes(), &self.to.port().to_le_bytes(), &self.sealed].concat()
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// All of them, with a socket each, ready to go.
#[derive(Debug)]
pub struct Farewells {
    ready: [Option<Ready>; MOST],
}

#[derive(Debug)]
struct Ready {
    socket: OwnedFd,
    to: SocketAddr,
    sealed: [u8; ROOM],
    length: usize,
}

impl Farewells {
    pub fn none() -> Farewells {
        Farewells { ready: Default::default() }
    }

    /// Takes those of a new plan over. A link whose address is missing at that moment gets none.
    pub fn take(&mut self, plan: &Plan) {
        let mut records = plan.farewells();
        self.ready.iter_mut().for_each(|place| *place = records.next().and_then(Ready::of));
    }

    /// Whatever becomes of them.
    pub fn send(&self) {
        for ready in self.ready.iter().flatten() {
            let sealed = &ready.sealed[..ready.length];
            let _ = sendto(&ready.socket, sealed, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &ready.to);
        }
    }
}

impl Ready {
    fn of(record: &[u8]) -> Option<Ready> {
        let (head, rest) = record.split_first_chunk::<HEAD>()?;
        let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&head[at..at + 16]).unwrap_or_default());
        let scope = u32::from_le_bytes([head[32], head[33], head[34], head[35]]);
        let port = u16::from_le_bytes([head[36], head[37]]);
        let (from, to) = (socket_address(address(0), 0, scope), socket_address(address(16), port, scope));
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::DGRAM, flags, None).ok()?;
        bind(&socket, &from).ok()?;
        let mut sealed = [0; ROOM];
        sealed.get_mut(..rest.len())?.copy_from_slice(rest);
        Some(Ready { socket, to, sealed, length: rest.len() })
    }
}

fn socket_address(address: Ipv6Addr, port: u16, scope: u32) -> SocketAddr {
    match address.to_ipv4_mapped() {
        Some(v4) => SocketAddr::from((v4, port)),
        None => SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope)),
    }
}
