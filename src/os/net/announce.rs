//! What is said on the segment about an address: "who has it?" before it is used, "it is here now" afterwards.
//!
//! IPv4: ARP over a packet socket (RFC 826, RFC 5227): probes, and gratuitous requests and replies, since some neighbours
//! heed only the one or the other. IPv6: unsolicited neighbour advertisements (RFC 4861 section 7.2.6) with hop limit 255;
//! the question before is the kernel's duplicate address detection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::time::timeout;

use super::super::sys::Watched;
use super::address::Interface;
use super::sys::{Hardware, arp_address, arp_protocol};

/// Probes before an address is used. RFC 5227 waits for seconds between them, for segments of dial-up age; here a service
/// is down meanwhile, and neighbours on one segment answer within a millisecond.
const PROBES: u32 = 3;
/// Between two probes, and after the last.
const PROBE_GAP: Duration = Duration::from_millis(80);

const EVERYBODY: Hardware = [0xff; 6];
const NOBODY: Hardware = [0; 6];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Ethernet and IPv4, with the lengths of their addresses.
const ARP_HEAD: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const ARP_SIZE: usize = 28;
/// RFC 4861 section 4.4: a neighbour advertisement, code 0, checksum by the kernel, with the bit "override".
const ADVERTISEMENT: [u8; 8] = [136, 0, 0, 0, 0x20, 0, 0, 0];
/// Option "target link-layer address", one unit of 8 bytes.
const TARGET_OPTION: [u8; 2] = [2, 1];
/// Neighbours drop advertisements that have come through a router, which would have lowered it.
const HOPS: u32 = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Request,
    Reply,
}

/// What the segment says about an address that nobody should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nobody has said that it has it.
    Silence,
    /// This neighbour has it, or is about to take it.
    Taken(Hardware),
}

/// Says where the address is now, once. Interfaces without neighbours to tell are passed over.
///
/// # Errors
/// Those of the sockets: no right to them, no buffer, the interface is down.
pub fn announce(on: &Interface, address: IpAddr) -> io::Result<()> {
    let Some(hardware) = on.hardware else { return Ok(()) };
    match address {
        IpAddr::V4(v4) => {
            let socket = arp_socket(on)?;
            for operation in [Operation::Request, Operation::Reply] {
                send_arp(&socket, on, &arp(operation, (hardware, v4), (EVERYBODY, v4)))?;
            }
            Ok(())
        }
        IpAddr::V6(v6) => advertise(on, hardware, v6),
    }
}

/// Asks the segment whether somebody has the address, which must not be on this machine.
///
/// # Errors
/// Those of the socket.
pub async fn probe(on: &Interface, address: Ipv4Addr) -> io::Result<Answer> {
    let Some(hardware) = on.hardware else { return Ok(Answer::Silence) };
    let socket = arp_socket(on)?;
    let ears = Watched::readable(socket.try_clone()?.into())?;
    let question = arp(Operation::Request, (hardware, Ipv4Addr::UNSPECIFIED), (NOBODY, address));
    for _ in 0..PROBES {
        send_arp(&socket, on, &question)?;
        let taken = timeout(PROBE_GAP, hear(&ears, hardware, address)).await;
        if let Ok(heard) = taken {
            return heard.map(Answer::Taken);
        }
    }
    Ok(Answer::Silence)
}

/// Whether sockets for all this can be had: found out before they are needed.
///
/// # Errors
/// Without CAP_NET_RAW.
pub fn try_sockets(on: &Interface, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => arp_socket(on).map(drop),
        IpAddr::V6(_) => Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).map(drop),
    }
}

/// As people write it.
pub fn hardware_text(hardware: Hardware) -> String {
    hardware.map(|byte| format!("{byte:02x}")).join(":")
}

fn arp_socket(on: &Interface) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(arp_protocol()))?;
    socket.set_nonblocking(true)?;
    socket.bind(&arp_address(on.index, EVERYBODY))?;
    Ok(socket)
}

fn send_arp(socket: &Socket, on: &Interface, packet: &[u8]) -> io::Result<()> {
    socket.send_to(packet, &arp_address(on.index, EVERYBODY)).map(drop)
}

fn arp(operation: Operation, from: (Hardware, Ipv4Addr), to: (Hardware, Ipv4Addr)) -> Vec<u8> {
    let operation: [u8; 2] = match operation {
        Operation::Request => [0, 1],
        Operation::Reply => [0, 2],
    };
    [&ARP_HEAD[..], &operation, &from.0, &from.1.octets(), &to.0, &to.1.octets()].concat()
}

/// Waits for a neighbour that has the address, or asks for it as we do.
async fn hear(ears: &Watched, ours: Hardware, address: Ipv4Addr) -> io::Result<Hardware> {
    let mut packet = [0; 64];
    loop {
        let mut ready = ears.get().readable().await?;
        let read = ready.try_io(|fd| {
            let (length, _) = rustix::net::recv(fd.get_ref(), &mut packet[..], RecvFlags::empty())?;
            Ok(length)
        });
        let Ok(length) = read else { continue };
        if let Some(rival) = rival(&packet[..length?], ours, address) {
            return Ok(rival);
        }
    }
}

/// RFC 5227 section 2.1.1: whoever speaks from the address has it, and whoever else probes for it wants it too.
fn rival(packet: &[u8], ours: Hardware, address: Ipv4Addr) -> Option<Hardware> {
    let packet = packet.get(..ARP_SIZE).filter(|p| p.starts_with(&ARP_HEAD))?;
    let from: Hardware = packet[8..14].try_into().ok()?;
    let (sender, target) = (&packet[14..18], &packet[24..28]);
    let speaks = sender == address.octets();
    let probes = sender == Ipv4Addr::UNSPECIFIED.octets() && target == address.octets();
    (from != ours && (speaks || probes)).then_some(from)
}

fn advertise(on: &Interface, hardware: Hardware, address: Ipv6Addr) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.set_nonblocking(true)?;
    socket.set_multicast_hops_v6(HOPS)?;
    socket.set_multicast_if_v6(on.index)?;
    // It speaks for itself: from another source it would look like a proxy's word.
    socket.bind(&SockAddr::from(SocketAddrV6::new(address, 0, 0, 0)))?;
    let to = SockAddr::from(SocketAddrV6::new(ALL_NODES, 0, 0, on.index));
    let message = [&ADVERTISEMENT[..], &address.octets(), &TARGET_OPTION, &hardware].concat();
    socket.send_to(&message, &to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Hardware = [2, 0, 0, 0, 0, 1];
    const THEIRS: Hardware = [2, 0, 0, 0, 0, 2];
    const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
    const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

    fn rival_in(operation: Operation, from: (Hardware, Ipv4Addr), target: Ipv4Addr) -> Option<Hardware> {
        rival(&arp(operation, from, (NOBODY, target)), OURS, VIP)
    }

    #[test]
    fn a_gratuitous_request_has_the_bytes_of_rfc_826() {
        let packet = arp(Operation::Request, (OURS, VIP), (EVERYBODY, VIP));
        let want =
            [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 50, 255, 255, 255, 255, 255, 255, 192, 0, 2, 50];
        assert_eq!(packet, want);
    }

    #[test]
    fn who_speaks_from_the_address_or_probes_for_it_is_a_rival() {
        assert_eq!(rival_in(Operation::Reply, (THEIRS, VIP), OTHER), Some(THEIRS));
        assert_eq!(rival_in(Operation::Request, (THEIRS, VIP), VIP), Some(THEIRS));
        assert_eq!(rival_in(Operation::Request, (THEIRS, Ipv4Addr::UNSPECIFIED), VIP), Some(THEIRS));
    }

    #[test]
    fn who_asks_for_it_or_speaks_of_others_is_none_and_neither_is_an_echo_of_ours() {
        assert_eq!(rival_in(Operation::Request, (THEIRS, OTHER), VIP), None);
        assert_eq!(rival_in(Operation::Reply, (THEIRS, OTHER), OTHER), None);
        assert_eq!(rival_in(Operation::Request, (OURS, Ipv4Addr::UNSPECIFIED), VIP), None);
    }

    #[test]
    fn half_a_packet_or_another_protocol_says_nothing() {
        let whole = arp(Operation::Reply, (THEIRS, VIP), (OURS, OTHER));
        for length in 0..ARP_SIZE {
            assert_eq!(rival(&whole[..length], OURS, VIP), None, "{length} bytes");
        }
        let mut foreign = whole;
        foreign[2] = 0x86;
        assert_eq!(rival(&foreign, OURS, VIP), None);
    }
}
