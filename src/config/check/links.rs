//! Heartbeat links: each has its own socket on each node.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use super::super::checked::Link;
use super::super::diagnostics::Finding;
use super::super::raw;
use super::super::value::{At, Findings};
use super::{per_node, unique};

/// Used where a link names no port. Unassigned by IANA.
const PORT: u16 = 7420;

/// As many as a path over anything sensible needs; each costs a socket and a datagram an interval.
const MOST_LINKS: usize = 8;

/// The kernel's limit of an interface name: IFNAMSIZ less its NUL byte.
const LONGEST_DEVICE: usize = 15;

/// All links that could be understood. The nodes' names are missing when the tables of the nodes are wrong.
pub fn check(links: &[raw::Link], names: Option<&[String; 2]>, f: &mut Findings) -> Vec<Link> {
    unique("link", links.iter().map(|l| l.name.as_ref()), f);
    if links.is_empty() {
        let finding = Finding::error("no link: the nodes could not hear each other");
        let help = "add two [[link]] tables, over different networks: name = \"lan\", addresses = { heron = \
                    \"192.0.2.1\", plover = \"192.0.2.2\" }";
        f.push(finding.help(help));
    }
    if let Some(extra) = links.get(MOST_LINKS) {
        let finding = Finding::error(format!("{} links, at most {MOST_LINKS} are possible", links.len()));
        f.push(finding.at(&extra.span, "one too many").help("keep those that share the fewest parts"));
    }
    let Some(names) = names else { return Vec::new() };
    let found: Vec<(Link, Range<usize>)> = links.iter().filter_map(|l| one(l, names, f)).collect();
    refuse_shared_sockets(&found, f);
    found.into_iter().map(|(link, _)| link).collect()
}

fn one(raw: &raw::Link, names: &[String; 2], f: &mut Findings) -> Option<(Link, Range<usize>)> {
    let place = raw.addresses_span.as_ref().unwrap_or(&raw.span).clone();
    let port = raw.port.value().and_then(|p| u16::try_from(p).ok()).unwrap_or(PORT);
    let given = per_node(&raw.addresses, names, f);
    for (name, _) in names.iter().zip(&given).filter(|(_, address)| address.is_none()) {
        let finding = Finding::error(format!("the link has no address for node \"{name}\""));
        let finding = finding.at(&place, "both nodes are needed");
        f.push(finding.help(format!("add `{name} = \"192.0.2.1\"` to its `addresses`")));
    }
    let [first, second] = given;
    let (first, second) = (first?, second?);
    let (a, b) = (address(&first, port, f), address(&second, port, f));
    let devices = per_node(&raw.devices, names, f).map(|d| d.and_then(|d| device(d, f)));
    let (a, b) = (a?, b?);
    refuse_mismatch((&first, a), (&second, b), f);
    Some((Link { name: raw.name.as_ref()?.value.clone(), addresses: [a, b], devices }, place))
}

fn refuse_mismatch((first, a): (&At<String>, SocketAddr), (second, b): (&At<String>, SocketAddr), f: &mut Findings) {
    let problem = match () {
        _ if a == b => ("both ends of the link have the same address", "give each node its own address"),
        _ if a.is_ipv4() != b.is_ipv4() => {
            ("the ends of the link speak IPv4 and IPv6", "give both nodes addresses of one family")
        }
        _ if a.ip().is_loopback() != b.ip().is_loopback() => {
            ("one end of the link is a loopback address", "give both nodes addresses that the other can reach")
        }
        _ => return,
    };
    let finding = Finding::error(problem.0).at(&second.span, "this end").with(&first.span, "the other end");
    f.push(finding.help(problem.1));
}

fn address(text: &At<String>, port: u16, f: &mut Findings) -> Option<SocketAddr> {
    let parsed = text.value.parse::<SocketAddr>().or_else(|_| text.value.parse().map(|ip| SocketAddr::new(ip, port)));
    let Ok(address) = parsed else {
        let finding = Finding::error(format!("\"{}\" is not an IP address", text.value.escape_debug()));
        let finding = finding.at(&text.span, "address expected");
        f.push(finding.help(
            "write \"192.0.2.1\", \"192.0.2.1:7420\", \"2001:db8::1\" or \"[2001:db8::1]:7420\"; names are not looked \
             up, because a heartbeat must not depend on DNS",
        ));
        return None;
    };
    if let Some(problem) = unusable(&address) {
        let finding = Finding::error(format!("\"{address}\" cannot carry heartbeats")).at(&text.span, problem);
        f.push(finding.help("write the address of this node's own interface on that network"));
        return None;
    }
    Some(address)
}

/// Why nobody could send from or to this address.
fn unusable(address: &SocketAddr) -> Option<&'static str> {
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80);
    match address.ip() {
        ip if ip.is_unspecified() => Some("the unspecified address"),
        ip if ip.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        ip if link_local(&ip) => Some("a link-local address, whose meaning differs with the interface"),
        _ if address.port() == 0 => Some("port 0"),
        _ => None,
    }
}

fn device(name: At<String>, f: &mut Findings) -> Option<String> {
    let wrong = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    let valid = !name.value.is_empty() && name.value.len() <= LONGEST_DEVICE && !name.value.contains(wrong);
    if !valid {
        let finding = Finding::error("not the name of a network device").at(&name.span, "no device can be called so");
        f.push(finding.help("write a name as `ip link` shows it, of at most 15 bytes, such as \"eth1\""));
    }
    valid.then_some(name.value)
}

/// Two links on one socket could not be told apart.
fn refuse_shared_sockets(links: &[(Link, Range<usize>)], f: &mut Findings) {
    for (i, (link, place)) in links.iter().enumerate() {
        let earlier = links[..i].iter().find(|(other, _)| (0..2).any(|n| other.addresses[n] == link.addresses[n]));
        if let Some((other, first)) = earlier {
            let finding = Finding::error(format!("links \"{}\" and \"{}\" share a socket", other.name, link.name));
            let finding = finding.at(place, "the same address and port again").with(first, "first here");
            f.push(finding.help("use an address of another network; at least another port"));
        }
    }
}
