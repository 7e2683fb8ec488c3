//! The network of the demo: a relay for each link and direction, which can be cut without root.
//!
//! ```text
//!   heron's daemon ──▶ relay's face to heron      relay's face to plover ──▶ plover's daemon
//!     127.A.B.1    ◀──    127.A.B.12 (as plover)    127.A.B.21 (as heron)  ◀──   127.A.B.2
//! ```
//!
//! A daemon accepts datagrams only from the address that its configuration gives its peer. So each one is given the
//! address of the relay's face to it, and the relay sends what it forwards from there.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::core::NodeId;

/// Names of the links.
pub const LINKS: [&str; 2] = ["lan", "direct"];
const BOTH: [NodeId; 2] = [NodeId::First, NodeId::Second];
/// The registered-nowhere port of the sample configuration; each world has addresses of its own.
const PORT: u16 = 7420;
/// Blocks of addresses that are tried: others may run demos on this machine.
const TRIES: u32 = 64;
/// Datagrams have a few hundred bytes.
const LARGEST: usize = 2048;

/// All relays of one pair.
#[derive(Debug)]
pub struct Network {
    links: Vec<Relayed>,
}

/// One link through its relay.
#[derive(Debug)]
struct Relayed {
    /// Where each node's daemon binds.
    daemons: [SocketAddr; 2],
    /// The socket that each node's daemon takes for its peer.
    faces: [Arc<UdpSocket>; 2],
    /// By sender.
    cut: [Arc<AtomicBool>; 2],
    /// By sender: what a cut has swallowed.
    lost: [Arc<AtomicU64>; 2],
    over: Arc<AtomicBool>,
}

impl Network {
    /// Finds a free block of addresses and starts the relays. `random` chooses where to look first.
    ///
    /// # Errors
    /// No block is free, or the loopback network cannot be used.
    pub fn start(random: u64) -> io::Result<Network> {
        for attempt in 0..u64::from(TRIES) {
            let block = random.wrapping_add(attempt.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            match Network::in_block(block) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
        Err(io::Error::new(ErrorKind::AddrInUse, "no free block of addresses below 127.64.0.0"))
    }

    fn in_block(block: u64) -> io::Result<Network> {
        let links: io::Result<Vec<Relayed>> = (0..LINKS.len()).map(|link| Relayed::bind(block, link)).collect();
        let network = Network { links: links? };
        network.links.iter().try_for_each(Relayed::start)?;
        Ok(network)
    }

    /// What the configuration of `node` says of this link: an address for each node, the peer's being the relay's.
    pub fn addresses(&self, link: usize, node: NodeId) -> [SocketAddr; 2] {
        let link = &self.links[link];
        let mut addresses = link.daemons;
        let face = link.faces[node.index()].local_addr().expect("a bound socket has an address");
        addresses[node.peer().index()] = face;
        addresses
    }

    /// Cuts or mends one direction of one link.
    pub fn set_cut(&self, link: usize, sender: NodeId, cut: bool) {
        self.links[link].cut[sender.index()].store(cut, Ordering::Relaxed);
    }

    /// How many datagrams of this sender a cut of this link has swallowed so far.
    pub fn lost(&self, link: usize, sender: NodeId) -> u64 {
        self.links[link].lost[sender.index()].load(Ordering::Relaxed)
    }

    /// Cuts or mends everything.
    pub fn set_all_cut(&self, cut: bool) {
        for link in 0..self.links.len() {
            BOTH.into_iter().for_each(|sender| self.set_cut(link, sender, cut));
        }
    }
}

impl Relayed {
    fn bind(block: u64, link: usize) -> io::Result<Relayed> {
        let address = |host| address(block, link, host);
        let face = |host| UdpSocket::bind(address(host)).map(Arc::new);
        Ok(Relayed {
            daemons: [address(1), address(2)],
            faces: [face(12)?, face(21)?],
            cut: Default::default(),
            lost: Default::default(),
            over: Arc::default(),
        })
    }

    /// A thread for each direction: it sleeps in the kernel until something arrives.
    fn start(&self) -> io::Result<()> {
        for from in BOTH {
            let (heard, sent) = (Arc::clone(&self.faces[from.index()]), Arc::clone(&self.faces[from.peer().index()]));
            let (source, target) = (self.daemons[from.index()], self.daemons[from.peer().index()]);
            let (cut, over) = (Arc::clone(&self.cut[from.index()]), Arc::clone(&self.over));
            let lost = Arc::clone(&self.lost[from.index()]);
            std::thread::Builder::new().name("relay".into()).spawn(move || {
                let mut buffer = [0; LARGEST];
                while !over.load(Ordering::Relaxed) {
                    // An answer that nobody was there for a datagram is no matter.
                    let Ok((length, from)) = heard.recv_from(&mut buffer) else { continue };
                    if cut.load(Ordering::Relaxed) {
                        lost.fetch_add(1, Ordering::Relaxed);
                    } else if from == source {
                        let _ = sent.send_to(&buffer[..length], target);
                    }
                }
            })?;
        }
        Ok(())
    }
}

impl Drop for Relayed {
    /// Wakes the threads by a datagram from the other face.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for node in BOTH {
            let face = &self.faces[node.index()];
            let _ = face.local_addr().and_then(|here| self.faces[node.peer().index()].send_to(&[], here));
        }
    }
}

/// 127.64.0.0 to 127.127.255.0: far from what a machine itself uses of its loopback network.
fn address(block: u64, link: usize, host: u8) -> SocketAddr {
    let [second, third, ..] = block.to_be_bytes();
    let last = host + if link == 0 { 0 } else { 100 };
    SocketAddrV4::new(Ipv4Addr::new(127, 64 + second % 64, third, last), PORT).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn daemons(network: &Network, link: usize) -> [UdpSocket; 2] {
        BOTH.map(|node| {
            let socket = UdpSocket::bind(network.addresses(link, node)[node.index()]).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        })
    }

    fn send(network: &Network, from: &UdpSocket, node: NodeId, text: &[u8]) {
        from.send_to(text, network.addresses(0, node)[node.peer().index()]).unwrap();
    }

    #[test]
    fn a_datagram_arrives_from_the_address_that_the_configuration_names() {
        let network = Network::start(std::process::id().into()).unwrap();
        let [heron, plover] = daemons(&network, 0);
        send(&network, &heron, NodeId::First, b"beat");
        let mut buffer = [0; 16];
        let (length, from) = plover.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"beat");
        assert_eq!(from, network.addresses(0, NodeId::Second)[0]);
    }

    #[test]
    fn a_cut_takes_one_direction_of_one_link_and_is_mended() {
        let network = Network::start(u64::from(std::process::id()) << 40).unwrap();
        let [heron, plover] = daemons(&network, 0);
        network.set_cut(0, NodeId::First, true);
        send(&network, &heron, NodeId::First, b"lost");
        send(&network, &plover, NodeId::Second, b"heard");
        let mut buffer = [0; 16];
        let length = heron.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"heard");
        while network.lost(0, NodeId::First) == 0 {
            std::thread::yield_now();
        }
        network.set_all_cut(false);
        send(&network, &heron, NodeId::First, b"again");
        let length = plover.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"again");
    }

    #[test]
    fn two_networks_stand_beside_each_other() {
        let first = Network::start(7).unwrap();
        let second = Network::start(7).unwrap();
        assert_ne!(first.addresses(0, NodeId::First), second.addresses(0, NodeId::First));
    }
}
