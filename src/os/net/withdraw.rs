//! Takes one address away wherever it is, at once: for the guard, when nobody is left who would ask first.
//!
//! The kernel lists all its addresses, each entry of the wanted one is deleted, and a list without it is the proof. What
//! the daemon adds takes no neighbour along (`remove`); an entry that somebody else made may, and here that is accepted.
//! Nothing allocates once this is made. Numbers: `linux/rtnetlink.h`, `linux/if_addr.h`.

use std::net::IpAddr;

use rustix::io::Errno;

use super::netlink::{ACK, Channel, DUMP, Message, Writer, attributes};

const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const LIST_ADDRESSES: u16 = 22;
/// `IFA_ADDRESS`: of IPv6 the address itself; `IFA_LOCAL`, of IPv4.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// `struct nlmsghdr`, and `struct ifaddrmsg`: family, prefix, flags, scope, index.
const HEADER: usize = 16;
const IFADDRMSG: usize = 8;
/// `struct nlattr`
const ATTR: usize = 4;
/// Nobody gives one address to more interfaces; the rest goes with the next look.
const AT_ONCE: usize = 16;

/// One entry: prefix and interface.
type Entry = (u8, [u8; 4]);

/// A channel to the kernel with its messages.
#[derive(Debug)]
pub struct Withdrawer {
    channel: Channel,
    list: Vec<u8>,
    of_4: Vec<u8>,
    of_6: Vec<u8>,
}

impl Withdrawer {
    /// Of the network namespace of the calling thread.
    ///
    /// # Errors
    /// No socket is left.
    pub fn prepare() -> Result<Withdrawer, Errno> {
        let mut list = Writer::default();
        list.message(LIST_ADDRESSES, DUMP, |w| w.raw(&[0; IFADDRMSG]));
        Ok(Withdrawer {
            channel: Channel::open(None)?,
            list: list.into_bytes(),
            of_4: deletion(AF_INET, IFA_LOCAL, &[0; 4]),
            of_6: deletion(AF_INET6, IFA_ADDRESS, &[0; 16]),
        })
    }

    /// Whether the kernel's list, read after all deletions, has none of it.
    ///
    /// # Errors
    /// The kernel's: it may be there still.
    pub fn withdraw(&mut self, address: IpAddr) -> Result<bool, Errno> {
        let mut entries = [(0, [0; 4]); AT_ONCE];
        let found = self.entries(address, &mut entries)?;
        if found == 0 {
            return Ok(true);
        }
        entries[..found].iter().for_each(|entry| self.delete(address, *entry));
        Ok(self.entries(address, &mut entries)? == 0)
    }

    fn entries(&mut self, address: IpAddr, entries: &mut [Entry; AT_ONCE]) -> Result<usize, Errno> {
        let mut found = 0;
        self.channel.dump(&self.list, |message| {
            let entry = entry_of(message, address);
            if let (Some(entry), Some(place)) = (entry, entries.get_mut(found)) {
                *place = entry;
                found += 1;
            }
        })?;
        Ok(found)
    }

    /// The next list says what came of it.
    fn delete(&mut self, address: IpAddr, (prefix, interface): Entry) {
        let message = match address {
            IpAddr::V4(v4) => fill(&mut self.of_4, &v4.octets()),
            IpAddr::V6(v6) => fill(&mut self.of_6, &v6.octets()),
        };
        message[HEADER + 1] = prefix;
        message[HEADER + 4..HEADER + IFADDRMSG].copy_from_slice(&interface);
        let _ = self.channel.request(message);
    }
}

fn deletion(family: u8, attribute: u16, octets: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.message(DELETE_ADDRESS, ACK, |w| {
        w.raw(&[family, 0, 0, 0, 0, 0, 0, 0]);
        w.attr(attribute, octets);
    });
    w.into_bytes()
}

fn fill<'m>(message: &'m mut [u8], octets: &[u8]) -> &'m mut [u8] {
    message[HEADER + IFADDRMSG + ATTR..].copy_from_slice(octets);
    message
}

/// `None`: another address.
fn entry_of(message: &Message<'_>, address: IpAddr) -> Option<Entry> {
    let (head, rest) = message.body.split_first_chunk::<IFADDRMSG>()?;
    let [family, prefix, _, _, interface @ ..] = *head;
    let has = |wanted: u16, octets: &[u8]| attributes(rest).any(|(kind, value)| kind == wanted && value == octets);
    let is_it = match address {
        IpAddr::V4(v4) => family == AF_INET && has(IFA_LOCAL, &v4.octets()),
        // With a peer (RFC 4291 knows none, Linux does) the own address stands as the local one.
        IpAddr::V6(v6) => family == AF_INET6 && (has(IFA_ADDRESS, &v6.octets()) || has(IFA_LOCAL, &v6.octets())),
    };
    (message.kind == NEW_ADDRESS && is_it).then_some((prefix, interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_nowhere_is_gone_and_that_of_the_loopback_is_found() {
        let mut withdrawer = Withdrawer::prepare().unwrap();
        for address in ["192.0.2.77", "2001:db8::77"] {
            assert_eq!(withdrawer.withdraw(address.parse().unwrap()), Ok(true), "{address}");
        }
        let mut entries = [(0, [0; 4]); AT_ONCE];
        assert_eq!(withdrawer.entries("127.0.0.1".parse().unwrap(), &mut entries), Ok(1));
        assert_eq!(entries[0], (8, 1u32.to_ne_bytes()));
    }
}
