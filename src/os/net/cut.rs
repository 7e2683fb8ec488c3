//! The clients of the service are cut off at once: a client in the middle of a request gets an error, not an
//! acknowledgement that is lost later.
//!
//! Two means, each prepared before it is needed. The nftables table ([`super::nft`]) refuses what comes, and answers it
//! with a reset. `SOCK_DESTROY` ([`super::sockdiag`]) resets the connections that are there: without it, a client that
//! waits in silence learns of the cut with its next packet only. See `docs/cut.md`.

use std::net::IpAddr;

use rustix::io::Errno;

use super::nft::{Barrier, Gate};
use super::sockdiag::{Ended, Sockets};
use crate::core::Span;
use crate::os::clock;

/// `NFT_NAME_MAXLEN` is 256; what nobody reads to its end is cut.
const READABLE: usize = 64;

/// Who is a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Name of the table.
    pub table: String,
    /// All TCP and UDP of these addresses is cut.
    pub addresses: Vec<IpAddr>,
    /// TCP of these ports is cut on every address but the loopback ones.
    pub ports: Vec<u16>,
    /// Addresses of the other node, whose connections to `ports` are spared: it replicates.
    pub peers: Vec<IpAddr>,
}

/// One TCP connection, as the service sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conn {
    pub local: IpAddr,
    pub port: u16,
    pub remote: IpAddr,
}

impl Spec {
    /// The name of the table of this node: `node` for people, `instance` for the difference.
    pub fn table_name(node: &str, instance: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
        let node: String = node.chars().map(plain).take(READABLE).collect();
        format!("leasehold-{node}-{:08x}", fingerprint(instance))
    }

    /// Whether there is anything to cut.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.ports.is_empty()
    }

    /// By the same words as the rules of the table.
    pub fn is_client(&self, connection: &Conn) -> bool {
        let spared = self.peers.contains(&connection.remote) || connection.local.is_loopback();
        self.addresses.contains(&connection.local) || self.ports.contains(&connection.port) && !spared
    }
}

/// FNV-1a, 32 bits, as its authors give it: the same in each build.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What a cut came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutReport {
    /// Until new connections were refused; the kernel's error otherwise.
    pub refused: Result<Span, Errno>,
    /// Connections that were reset, and the first error; `None` where the kernel cannot.
    pub reset: Option<Ended>,
    /// All of it.
    pub took: Span,
}

/// Everything that a cut needs, held ready. [`Cutter::cut`] allocates nothing and reads no file.
#[derive(Debug)]
pub struct Cutter {
    spec: Spec,
    barrier: Result<Barrier, Errno>,
    sockets: Result<Sockets, Errno>,
}

impl Cutter {
    /// Prepares what this machine lets it; [`Cutter::cannot_refuse`] and [`Cutter::cannot_reset`] say what that is not.
    /// Clients that a former daemon has cut stay cut. Works on the network namespace of the calling thread.
    pub fn prepare(spec: Spec) -> Cutter {
        let barrier = Barrier::prepare(&spec);
        Cutter { spec, barrier, sockets: Sockets::prepare() }
    }

    /// For whoever cuts beside the daemon that has prepared: changes nothing yet.
    pub fn attach(spec: Spec) -> Cutter {
        let barrier = Barrier::attach(&spec);
        Cutter { spec, barrier, sockets: Sockets::prepare() }
    }

    /// Clients are refused and reset when this returns. Doing it again is no harm.
    pub fn cut(&mut self) -> CutReport {
        let begun = clock::now();
        let shut = match &mut self.barrier {
            Ok(barrier) => barrier.shut(),
            Err(error) => Err(*error),
        };
        let refused = shut.map(|()| clock::now().since(begun));
        let reset = self.sockets.as_mut().ok().map(|sockets| sockets.end(&self.spec));
        CutReport { refused, reset, took: clock::now().since(begun) }
    }

    /// Clients get through again when this returns.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lift(&mut self) -> Result<(), Errno> {
        self.barrier()?.open()
    }

    /// What the kernel says: are clients refused?
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&mut self) -> Result<Gate, Errno> {
        self.barrier()?.look()
    }

    /// Whether clients are refused, as far as this can be read.
    pub fn is_cut(&mut self) -> bool {
        self.look() == Ok(Gate::Shut)
    }

    /// Nothing of it is left in the kernel.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&mut self) -> Result<(), Errno> {
        self.barrier()?.remove()
    }

    /// Why new connections cannot be refused here.
    pub fn cannot_refuse(&self) -> Option<Errno> {
        self.barrier.as_ref().err().copied()
    }

    /// Why established connections cannot be reset at once here.
    pub fn cannot_reset(&self) -> Option<Errno> {
        self.sockets.as_ref().err().copied()
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    fn barrier(&mut self) -> Result<&mut Barrier, Errno> {
        self.barrier.as_mut().map_err(|error| *error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn clients_are_told_from_the_peer_and_from_the_service_itself() {
        let spec = Spec {
            table: Spec::table_name("heron", "shop/heron@/run/leasehold"),
            addresses: vec![ip("10.0.0.9"), ip("fd00::9")],
            ports: vec![5432],
            peers: vec![ip("10.0.0.2")],
        };
        let client = |local, port, remote| spec.is_client(&Conn { local: ip(local), port, remote: ip(remote) });
        assert!(client("10.0.0.9", 22, "10.0.0.5") && client("fd00::9", 1, "fd00::5"), "all of an address");
        assert!(client("10.0.0.9", 5432, "10.0.0.2"), "of an address, the peer's too");
        assert!(client("10.0.0.1", 5432, "10.0.0.5"), "the port on another address");
        assert!(!client("10.0.0.1", 5432, "10.0.0.2"), "replication");
        assert!(!client("127.0.0.1", 5432, "127.0.0.1") && !client("::1", 5432, "::1"), "its own commands");
        assert!(!client("10.0.0.1", 22, "10.0.0.5"), "another port");
    }

    #[test]
    fn the_table_has_a_name_that_nft_can_read_and_no_other_instance_has() {
        let name = Spec::table_name("db 1.example", "shop/db@/run/a");
        assert_eq!(name.rsplit_once('-').unwrap().0, "leasehold-db_1_example");
        assert_ne!(name, Spec::table_name("db 1.example", "shop/db@/run/b"));
    }
}
