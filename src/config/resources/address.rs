//! An address that moves with the service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::diagnostics::Finding;
use super::super::value::{At, Field, Findings, Least, Section};
use super::Usual;
use crate::core::Span;

/// Duplicate detection and the first announcements; removal is one netlink message.
pub const USUAL: Usual = Usual { start: Span::from_secs(10), stop: Span::from_secs(2) };

/// The first burst lasts for more than a second: for so long some neighbours lock an entry that was just learnt.
const ANNOUNCE: u32 = 5;
const ANNOUNCE_INTERVAL: Span = Span::from_ms(300);
/// Neighbours that were rebooting or lost the burst hear of it within this time.
const ANNOUNCE_FOR: Span = Span::from_secs(60);
/// Changes are told by events; this is for those that were lost.
const MONITOR: Span = Span::from_secs(1);
/// Longer than a switch port needs with its spanning tree out of the way, shorter than anybody waits for a service.
const HOLD: Span = Span::from_secs(5);
/// Removals within a minute that are no duel yet: an upgrade restarts a network service once or twice.
const PUT_BACK: u32 = 5;
/// IFNAMSIZ less its NUL byte.
const LONGEST_INTERFACE: usize = 15;

/// `kind = "address"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressResource {
    pub address: IpAddr,
    /// Of its subnet.
    pub prefix: u8,
    pub interfaces: Interfaces,
    /// The segment is asked first whether somebody has it.
    pub probe: bool,
    pub announce: Announce,
    /// How often it is looked at, beside the events.
    pub monitor: Span,
    /// An interface may be without carrier, or gone, for so long.
    pub hold: Span,
    /// How often within a minute it is put back after somebody removed it.
    pub put_back: u32,
}

/// How the segment is told where the address is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announce {
    /// Of the first burst.
    pub count: u32,
    pub interval: Span,
    /// Reminders go out for so long afterwards.
    pub afterwards: Span,
}

/// The interface of the address on each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interfaces {
    Same(String),
    ByNode(BTreeMap<String, String>),
}

impl Interfaces {
    pub fn on(&self, node: &str) -> Option<&str> {
        match self {
            Interfaces::Same(name) => Some(name),
            Interfaces::ByNode(names) => names.get(node).map(String::as_str),
        }
    }

    /// Their names, each once.
    pub fn all(&self) -> BTreeSet<&str> {
        match self {
            Interfaces::Same(name) => BTreeSet::from([name.as_str()]),
            Interfaces::ByNode(names) => names.values().map(String::as_str).collect(),
        }
    }
}

pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<AddressResource> {
    let address = s.string("address", f);
    let address = s.require(address, "address", "\"192.0.2.50/24\"", f).and_then(|text| subnet(&text, f));
    let interfaces = interfaces(s, f);
    let probe = s.boolean("probe", f);
    let count = s.integer("announce", 1..=100, f);
    let interval = s.duration("announce_interval", Least::Millisecond, f);
    let afterwards = s.duration("announce_for", Least::Zero, f);
    let monitor = s.duration("monitor", Least::Millisecond, f);
    let hold = s.duration("hold", Least::Zero, f);
    let put_back = s.integer("put_back", 0..=1000, f);
    refuse_rush(&monitor, f);
    let bad = [interval.is_bad(), afterwards.is_bad(), monitor.is_bad(), hold.is_bad(), put_back.is_bad()];
    let bad = bad.contains(&true) || probe.is_bad() || count.is_bad();
    let ((address, prefix), interfaces) = (address?, interfaces?);
    (!bad).then(|| AddressResource {
        address,
        prefix,
        interfaces,
        probe: probe.value_or(true),
        announce: Announce {
            count: count.value_or(ANNOUNCE),
            interval: interval.value_or(ANNOUNCE_INTERVAL),
            afterwards: afterwards.value_or(ANNOUNCE_FOR),
        },
        monitor: monitor.value_or(MONITOR),
        hold: hold.value_or(HOLD),
        put_back: put_back.value_or(PUT_BACK),
    })
}

/// Each look lists all interfaces and addresses of the machine.
fn refuse_rush(monitor: &Field<Span>, f: &mut Findings) {
    const LEAST: Span = Span::from_ms(50);
    if let Some(at) = monitor.given().filter(|at| at.value < LEAST) {
        let finding = Finding::error("`resource.monitor` is too short").at(&at.span, "more often than is of use");
        f.push(finding.help(format!("write at least \"{LEAST}\"; changes are told by events anyway")));
    }
}

/// An address with the length of its subnet's prefix.
fn subnet(text: &At<String>, f: &mut Findings) -> Option<(IpAddr, u8)> {
    match parse(&text.value) {
        Ok(found) => Some(found),
        Err((label, help)) => {
            let finding = Finding::error(format!("\"{}\" cannot move between nodes", text.value.escape_debug()));
            f.push(finding.at(&text.span, label).help(help));
            None
        }
    }
}

fn parse(text: &str) -> Result<(IpAddr, u8), (&'static str, String)> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let example = "write an address and the prefix of its subnet, such as \"192.0.2.50/24\" or \"2001:db8::50/64\"";
    let address: IpAddr = address.parse().map_err(|_| ("not an IP address", example.to_owned()))?;
    let (longest, usual) = if address.is_ipv4() { (32, 24) } else { (128, 64) };
    let Some(prefix) = prefix else {
        return Err(("without its prefix", format!("write \"{address}/{usual}\", with the prefix of its subnet")));
    };
    let wrong =
        || ("its prefix is wrong", format!("write a prefix from 1 to {longest}, such as \"{address}/{usual}\""));
    let prefix = prefix.parse().ok().filter(|p| (1..=longest).contains(p)).ok_or_else(wrong)?;
    let refused = match address {
        IpAddr::V4(v4) => refused_v4(v4, prefix),
        IpAddr::V6(v6) => refused_v6(v6),
    };
    match refused {
        Some(label) => Err((label, "choose a free address of the subnet, for this service alone".to_owned())),
        None => Ok((address, prefix)),
    }
}

fn refused_v4(address: Ipv4Addr, prefix: u8) -> Option<&'static str> {
    let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
    // RFC 3021: both addresses of a /31 are hosts.
    let has_ends = prefix < 31;
    match address {
        a if a.is_unspecified() || a.is_loopback() || a.is_multicast() || a.is_broadcast() => Some("not of a host"),
        a if has_ends && a.to_bits() & host == 0 => Some("the subnet itself"),
        a if has_ends && a.to_bits() & host == host => Some("the broadcast address of its subnet"),
        _ => None,
    }
}

fn refused_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address {
        a if a.is_unspecified() || a.is_loopback() || a.is_multicast() => Some("not of a host"),
        a if a.is_unicast_link_local() => Some("link-local: it means nothing beyond one cable"),
        a if a.to_ipv4_mapped().is_some() => Some("an IPv4 address in IPv6 clothes"),
        _ => None,
    }
}

/// One name for both nodes, or a table with one for each.
fn interfaces(s: &mut Section<'_>, f: &mut Findings) -> Option<Interfaces> {
    const EXAMPLE: &str = "\"eth1\"` or `interface = { heron = \"eth1\", plover = \"enp9s0\" }";
    s.shape("interface", "a string or a table of strings");
    if let Some(name) = s.if_string("interface") {
        return name_of(&name, f).map(Interfaces::Same);
    }
    if s.value_span("interface").is_none() {
        s.require(Field::<()>::Absent, "interface", EXAMPLE, f);
        return None;
    }
    let names = s.strings_by_key("interface", f);
    let named: Vec<Option<String>> = names.iter().map(|(_, name)| name_of(name, f)).collect();
    let named: Option<Vec<String>> = named.into_iter().collect();
    let nodes = names.into_iter().map(|(node, _)| node.value);
    // An empty table: either not one, which has been told, or found wanting when the nodes are known.
    named.map(|named| Interfaces::ByNode(nodes.zip(named).collect()))
}

fn name_of(name: &At<String>, f: &mut Findings) -> Option<String> {
    let label = match name.value.as_str() {
        "" => "empty",
        n if n.len() > LONGEST_INTERFACE => "longer than 15 bytes",
        n if n.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) => {
            "has other characters"
        }
        "lo" => "the loopback interface: nobody else could reach it",
        _ => return Some(name.value.clone()),
    };
    let finding = Finding::error(format!("\"{}\" is no interface for an address", name.value.escape_debug()));
    f.push(finding.at(&name.span, label).help("write its name as `ip link` shows it, such as \"eth1\""));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_their_prefix() {
        assert_eq!(parse("192.0.2.50/24"), Ok((IpAddr::from([192, 0, 2, 50]), 24)));
        assert_eq!(parse("192.0.2.50/31"), Ok((IpAddr::from([192, 0, 2, 50]), 31)));
        assert_eq!(parse("192.0.2.0/32"), Ok((IpAddr::from([192, 0, 2, 0]), 32)));
        assert_eq!(parse("2001:DB8::50/64").map(|(a, _)| a.to_string()), Ok("2001:db8::50".to_owned()));
    }

    #[test]
    fn what_is_no_host_of_a_subnet_is_refused_with_a_label() {
        for (text, label) in [
            ("192.0.2.50", "without its prefix"),
            ("192.0.2.50/33", "prefix is wrong"),
            ("192.0.2.50/0", "prefix is wrong"),
            ("2001:db8::50/129", "prefix is wrong"),
            ("reef/24", "not an IP address"),
            ("192.0.2.0/24", "the subnet itself"),
            ("192.0.2.255/24", "broadcast"),
            ("127.0.0.2/8", "not of a host"),
            ("224.0.0.5/24", "not of a host"),
            ("fe80::1/64", "link-local"),
            ("::1/128", "not of a host"),
            ("::ffff:192.0.2.50/96", "IPv4 address in IPv6 clothes"),
        ] {
            let told = parse(text).expect_err(text).0;
            assert!(told.contains(label), "{text}: {told}");
        }
    }
}
