//! Interfaces and addresses, by rtnetlink.
//!
//! A list counts only when the kernel has said that it is whole and was not changed while it was read: "this address is
//! nowhere" is what a verified stop rests on. Each [`Netlink`] is a connection of its own, and ends when it is dropped:
//! nothing that was asked for through it happens later.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;

use futures_util::{FutureExt, Stream, StreamExt};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, CacheInfo};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use rtnetlink::packet_route::route::{RouteMessage, RouteScope};
use rtnetlink::{AddressMessageBuilder, MulticastGroup, RouteMessageBuilder};
use tokio::task::JoinHandle;

pub use super::sys::Hardware;

/// Lists that were changed while they were read, before this gives up: each takes about a millisecond.
const READINGS: u32 = 10;
/// Valid for ever, as `ifa_valid` says it.
const FOR_EVER: u32 = u32::MAX;

/// Why the kernel did not do it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}{}", hint(source))]
pub struct NetError {
    pub what: String,
    pub source: io::Error,
}

impl NetError {
    pub fn exists(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }

    /// What was to be removed, or what it was on, is not there any more.
    pub fn is_gone(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV))
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM) => "; the daemon needs CAP_NET_ADMIN and CAP_NET_RAW",
        Some(libc::EACCES) => "; for IPv6: is net.ipv6.conf.INTERFACE.disable_ipv6 set?",
        _ => "",
    }
}

/// One interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    pub name: String,
    /// Switched on by the administrator.
    pub up: bool,
    pub carrier: Carrier,
    /// `None` where addresses are not found by asking the segment: loopback, tunnels.
    pub hardware: Option<Hardware>,
    /// How often the carrier was lost since it was made.
    pub carrier_losses: u32,
}

/// Whether something is at the other end of the cable, here and in every layer below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Off,
    /// It is there and not in use yet: the kernel's link watch has a second for it, a port that must be let in may take longer.
    Settling,
    On,
}

/// Whether an address is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressState {
    Usable,
    /// The kernel still asks the segment whether somebody else has it.
    Tentative,
    /// Somebody else on the segment has it.
    Duplicate,
}

/// An address on an interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub index: u32,
    pub address: IpAddr,
    pub prefix: u8,
    pub state: AddressState,
    /// IPv4: it goes when the first address of its subnet goes.
    pub secondary: bool,
    pub(super) message: AddressMessage,
}

/// Whether the kernel asks the segment before it uses an address (IPv6 alone).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    On,
    Off,
}

/// A connection to the kernel's table of interfaces and addresses.
#[derive(Debug)]
pub struct Netlink {
    handle: rtnetlink::Handle,
    connection: JoinHandle<()>,
}

impl Netlink {
    /// Must be called within a tokio runtime.
    pub fn open() -> Result<Netlink, NetError> {
        let opened = rtnetlink::new_connection();
        let (mut connection, handle, _) = opened.map_err(|e| failed("open a netlink socket", e))?;
        connection.set_forward_done(true);
        connection.set_forward_ack(true);
        Ok(Netlink { handle, connection: tokio::spawn(connection) })
    }

    pub async fn interfaces(&self) -> Result<Vec<Interface>, NetError> {
        let what = "list the interfaces";
        let answers = self.dump(what, RouteNetlinkMessage::GetLink(LinkMessage::default())).await?;
        let interface = |answer| match answer {
            RouteNetlinkMessage::NewLink(link) => interface(&link),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(interface).collect())
    }

    /// All addresses of all interfaces.
    pub async fn addresses(&self) -> Result<Vec<Held>, NetError> {
        let what = "list the addresses";
        let answers = self.dump(what, RouteNetlinkMessage::GetAddress(AddressMessage::default())).await?;
        let held = |answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => held(message),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(held).collect())
    }

    /// Adds an address. An IPv6 address is marked as deprecated: it answers, but nothing that this machine begins by
    /// itself (heartbeats among it) comes from an address that may leave at any time.
    pub async fn add(&self, on: &Interface, address: IpAddr, prefix: u8, how: Detection) -> Result<(), NetError> {
        let message = match address {
            IpAddr::V4(v4) => AddressMessageBuilder::<Ipv4Addr>::new().index(on.index).address(v4, prefix).build(),
            IpAddr::V6(v6) => {
                let builder = AddressMessageBuilder::<Ipv6Addr>::new();
                let mut message = builder.index(on.index).address(v6, prefix).build();
                let mut life = CacheInfo::default();
                (life.ifa_preferred, life.ifa_valid) = (0, FOR_EVER);
                message.attributes.push(AddressAttribute::CacheInfo(life));
                if how == Detection::Off {
                    message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
                }
                message
            }
        };
        let what = format!("add {address}/{prefix} to {}", on.name);
        self.create(&what, RouteNetlinkMessage::NewAddress(message)).await
    }

    pub(super) async fn add_again(&self, held: &Held) -> Result<(), NetError> {
        let what = format!("put {}/{} back, which had to go with another one", held.address, held.prefix);
        self.create(&what, RouteNetlinkMessage::NewAddress(again(&held.message))).await
    }

    /// Removes exactly this entry; an IPv4 address may take its secondaries along (see [`super::remove`]).
    pub(super) async fn delete(&self, held: &Held) -> Result<(), NetError> {
        let what = format!("remove {}/{}", held.address, held.prefix);
        let message = RouteNetlinkMessage::DelAddress(held.message.clone());
        self.acknowledged(&what, message, NLM_F_REQUEST | NLM_F_ACK).await
    }

    /// The way into the subnet of an address that was added with a host prefix. It goes with the address.
    pub async fn add_subnet(&self, on: &Interface, address: Ipv4Addr, prefix: u8) -> Result<(), NetError> {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(network(address, prefix), prefix)
            .output_interface(on.index)
            .scope(RouteScope::Link)
            .pref_source(address)
            .build();
        let what = format!("add the route to the subnet of {address}/{prefix} on {}", on.name);
        self.create(&what, RouteNetlinkMessage::NewRoute(route)).await
    }

    /// All IPv4 routes.
    pub(super) async fn routes(&self) -> Result<Vec<RouteMessage>, NetError> {
        let all = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let answers = self.dump("list the routes", RouteNetlinkMessage::GetRoute(all)).await?;
        let route = |answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(route).collect())
    }

    pub(super) async fn add_route(&self, route: RouteMessage) -> Result<(), NetError> {
        self.create("put a route back", RouteNetlinkMessage::NewRoute(route)).await
    }

    async fn create(&self, what: &str, message: RouteNetlinkMessage) -> Result<(), NetError> {
        self.acknowledged(what, message, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).await
    }

    async fn acknowledged(&self, what: &str, message: RouteNetlinkMessage, flags: u16) -> Result<(), NetError> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        let mut answers = self.handle.clone().request(request).map_err(|_| closed(what))?;
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(told) = answer.payload {
                return if told.code.is_none() { Ok(()) } else { Err(failed(what, told.to_io())) };
            }
        }
        Err(closed(what))
    }

    /// A whole list: one that was changed meanwhile is read again.
    async fn dump(&self, what: &str, message: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>, NetError> {
        for _ in 0..READINGS {
            let mut request = NetlinkMessage::from(message.clone());
            request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
            if let Some(list) = self.read_list(what, request).await? {
                return Ok(list);
            }
        }
        Err(failed(what, io::Error::other("the list was changed each time while it was read")))
    }

    async fn read_list(
        &self,
        what: &str,
        request: NetlinkMessage<RouteNetlinkMessage>,
    ) -> Result<Option<Vec<RouteNetlinkMessage>>, NetError> {
        let mut answers = self.handle.clone().request(request).map_err(|_| closed(what))?;
        let (mut list, mut torn) = (Vec::new(), false);
        while let Some(answer) = answers.next().await {
            torn |= answer.header.flags & NLM_F_DUMP_INTR != 0;
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => list.push(message),
                NetlinkPayload::Done(_) => return Ok((!torn).then_some(list)),
                NetlinkPayload::Error(told) => return Err(failed(what, told.to_io())),
                _ => torn = true,
            }
        }
        Err(closed(what))
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Tells that something has changed with some interface or address.
pub struct Events {
    changes: Pin<Box<dyn Stream<Item = ()> + Send>>,
    connection: JoinHandle<()>,
}

impl Events {
    /// Must be called within a tokio runtime. What happens from now on is told.
    pub fn open() -> Result<Events, NetError> {
        let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        let opened = rtnetlink::new_multicast_connection(&groups);
        let (connection, _, messages) = opened.map_err(|e| failed("open a netlink socket for events", e))?;
        Ok(Events { changes: Box::pin(messages.map(drop)), connection: tokio::spawn(connection) })
    }

    /// Waits for a change; those that came in the same breath are one. Which it was does not matter: events may be lost,
    /// so whoever hears of one looks at the world.
    ///
    /// # Errors
    /// The socket has ended: open another.
    pub async fn next(&mut self) -> Result<(), NetError> {
        self.changes.next().await.ok_or_else(|| closed("hear of changes"))?;
        while let Some(Some(())) = self.changes.next().now_or_never() {}
        Ok(())
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Whether two addresses are of one subnet of this prefix.
pub fn same_subnet(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => network(a, prefix) == network(b, prefix),
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let host = 128u32.saturating_sub(u32::from(prefix));
            let cut = |x: Ipv6Addr| x.to_bits().checked_shr(host).unwrap_or(0);
            cut(a) == cut(b)
        }
        _ => false,
    }
}

fn network(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let host = 32u32.saturating_sub(u32::from(prefix));
    let mask = u32::MAX.checked_shl(host).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let flags = link.header.flags;
    let mut found = Interface {
        index: link.header.index,
        name: String::new(),
        up: flags.contains(LinkFlags::Up),
        carrier: match (flags.contains(LinkFlags::LowerUp), flags.contains(LinkFlags::Running)) {
            (false, _) => Carrier::Off,
            (true, false) => Carrier::Settling,
            (true, true) => Carrier::On,
        },
        hardware: None,
        carrier_losses: 0,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name.clone_from(name),
            LinkAttribute::Address(bytes) if link.header.link_layer_type == LinkLayerType::Ether => {
                found.hardware = bytes.as_slice().try_into().ok();
            }
            LinkAttribute::CarrierDownCount(count) => found.carrier_losses = *count,
            _ => {}
        }
    }
    if flags.contains(LinkFlags::Noarp) {
        found.hardware = None;
    }
    (!found.name.is_empty()).then_some(found)
}

fn held(message: AddressMessage) -> Option<Held> {
    let (mut local, mut remote) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => remote = Some(*address),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let state = match () {
        () if flags.contains(AddressFlags::Dadfailed) => AddressState::Duplicate,
        () if flags.contains(AddressFlags::Tentative) => AddressState::Tentative,
        () => AddressState::Usable,
    };
    let address = local.or(remote)?;
    // The bit means "temporary" for IPv6.
    let secondary = flags.contains(AddressFlags::Secondary) && address.is_ipv4();
    let (index, prefix) = (message.header.index, message.header.prefix_len);
    Some(Held { index, address, prefix, state, secondary, message })
}

/// The entry as it is to be added again: the kernel says anew what it thinks of it.
fn again(message: &AddressMessage) -> AddressMessage {
    let mut message = message.clone();
    message.header.flags = Default::default();
    for attribute in &mut message.attributes {
        if let AddressAttribute::Flags(flags) = attribute {
            flags.remove(AddressFlags::Secondary);
        }
    }
    message
}

fn failed(what: &str, source: io::Error) -> NetError {
    NetError { what: what.to_owned(), source }
}

fn closed(what: &str) -> NetError {
    failed(what, io::Error::other("the netlink connection ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_compared_at_every_length() {
        let same = |a: &str, b: &str, prefix| same_subnet(a.parse().unwrap(), b.parse().unwrap(), prefix);
        assert!(same("192.0.2.50", "192.0.2.1", 24) && !same("192.0.2.50", "192.0.3.1", 24));
        assert!(same("192.0.2.50", "203.0.113.1", 0) && !same("192.0.2.50", "192.0.2.51", 32));
        assert!(same("2001:db8::50", "2001:db8::1", 64) && !same("2001:db8::50", "2001:db8:0:1::50", 64));
        assert!(same("2001:db8::50", "fe80::1", 0) && !same("2001:db8::50", "2001:db8::51", 128));
        assert!(!same("192.0.2.50", "2001:db8::50", 0));
    }

    #[tokio::test]
    async fn the_loopback_interface_and_its_address_are_listed() {
        let netlink = Netlink::open().unwrap();
        let interfaces = netlink.interfaces().await.unwrap();
        let lo = interfaces.iter().find(|i| i.name == "lo").expect("every machine has one");
        assert_eq!(lo.hardware, None);
        let addresses = netlink.addresses().await.unwrap();
        let home = addresses.iter().find(|h| h.address == IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(home.map(|h| (h.index, h.prefix)), Some((lo.index, 8)));
    }
}
