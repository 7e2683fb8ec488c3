//! The only unsafe code of this folder: an address of the link layer, which no safe API builds.
#![allow(unsafe_code)]

use socket2::SockAddr;

/// As `ETH_P_ARP` says, in network order as `sll_protocol` wants it.
const ARP: u16 = (libc::ETH_P_ARP as u16).to_be();

/// A hardware address of Ethernet.
pub type Hardware = [u8; 6];

/// Where ARP packets of the interface `index` go to, or come from: `to` is the hardware address.
pub fn arp_address(index: u32, to: Hardware) -> SockAddr {
    let mut place = [0; 8];
    place[..to.len()].copy_from_slice(&to);
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ARP,
        // The kernel hands out indices from 1 to i32::MAX.
        sll_ifindex: i32::try_from(index).unwrap_or(0),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: to.len() as u8,
        sll_addr: place,
    };
    let length = size_of::<libc::sockaddr_ll>();
    // SAFETY: the storage is at least as large and as aligned as every `sockaddr_*` (that is what it is for); a whole
    // `sockaddr_ll` is written to its beginning, and the length that is told is that of what was written.
    let made = unsafe {
        SockAddr::try_init(|storage, len| {
            storage.cast::<libc::sockaddr_ll>().write(address);
            *len = length as libc::socklen_t;
            Ok(())
        })
    };
    made.map(|((), address)| address).expect("the closure never fails")
}

/// The protocol number of a socket that hears ARP alone.
pub fn arp_protocol() -> socket2::Protocol {
    socket2::Protocol::from(i32::from(ARP))
}
