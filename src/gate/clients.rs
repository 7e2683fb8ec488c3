//! Whether what a server calls a client is one of a node's addresses: compared as values, never as text (casebook C20).
//!
//! `2001:DB8::15`, `[2001:db8:0:0::15]` and `2001:db8::15` are one address, `::ffff:192.0.2.1` is 192.0.2.1, and a
//! network matches by its bits. A name (host, wildcard, netgroup) may be anybody's: never a "no".

use std::net::IpAddr;

/// What an entry says about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    No,
    /// Who it is cannot be told here: a name, a wildcard, a netgroup.
    Maybe,
    Yes,
}

/// Reads an address in any spelling; one that is mapped into IPv6 is the IPv4 address.
pub fn address(text: &str) -> Option<IpAddr> {
    literal(text).map(|ip| ip.to_canonical())
}

/// As it is written, mapped or not.
fn literal(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    // A zone (fe80::1%eth0) says by which way, not who.
    let bare = bare.split_once('%').map_or(bare, |(address, _)| address);
    bare.parse().ok()
}

/// An address with its port behind it: `192.0.2.1:768`, `[2001:db8::15]:768`.
pub fn address_of_peer(text: &str) -> Option<IpAddr> {
    address(text).or_else(|| address(text.rsplit_once(':')?.0))
}

/// Compares one client of an entry with the addresses of a node.
pub fn matches(client: &str, node: &[IpAddr]) -> Match {
    let all = |yes: bool| if yes { Match::Yes } else { Match::No };
    if matches!(client, "*" | "<world>" | "0.0.0.0/0" | "::/0") {
        return Match::Yes;
    }
    if let Some(ip) = address(client) {
        return all(node.contains(&ip));
    }
    match client.split_once('/').and_then(|(base, mask)| network(base, mask)) {
        Some((base, mask)) => all(node.iter().any(|ip| bits(*ip) & mask == base & mask)),
        None => Match::Maybe,
    }
}

/// Base and mask, as bits of IPv6: an IPv4 network is one within the mapped addresses.
fn network(base: &str, mask: &str) -> Option<(u128, u128)> {
    let base = literal(base)?;
    let (offset, width) = if base.is_ipv4() { (96, 32) } else { (0, 128) };
    if let Ok(prefix) = mask.parse::<u32>() {
        let length = (prefix <= width).then_some(prefix + offset)?;
        return Some((bits(base), u128::MAX.checked_shl(128 - length).unwrap_or(0)));
    }
    let mask = literal(mask).filter(|mask| mask.is_ipv4() == base.is_ipv4())?;
    // Above the mask of an IPv4 network stands the mark of the mapped addresses, which must be the same too.
    let upper = if base.is_ipv4() { u128::MAX << 32 } else { 0 };
    Some((bits(base), bits(mask) | upper))
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_networks_are_compared_as_values() {
        let node = ["192.0.2.21", "2001:db8:5::21"].map(|a| address(a).unwrap());
        for (client, expected) in [
            ("192.0.2.21", Match::Yes),
            ("192.0.2.2", Match::No),
            ("192.0.2.210", Match::No),
            ("[2001:DB8:5:0:0::21]", Match::Yes),
            ("2001:db8:5::22", Match::No),
            ("::ffff:192.0.2.21", Match::Yes),
            ("[::FFFF:c000:215]", Match::Yes),
            ("192.0.2.0/24", Match::Yes),
            ("192.0.2.21/32", Match::Yes),
            ("192.0.2.22/31", Match::No),
            ("192.0.2.0/255.255.255.0", Match::Yes),
            ("192.0.3.0/255.255.255.0", Match::No),
            ("192.0.2.5/255.255.255.240", Match::No),
            ("2001:db8::/32", Match::Yes),
            ("2001:db8:6::/48", Match::No),
            ("2001:db8:5::/ffff:ffff:ffff::", Match::Yes),
            ("::ffff:0:0/96", Match::Yes),
            ("::ffff:192.0.2.21/128", Match::Yes),
            ("::ffff:192.0.2.22/128", Match::No),
            ("0.0.0.0/0", Match::Yes),
            ("::/0", Match::Yes),
            ("0.0.0.0/0.0.0.0", Match::Yes),
            ("*", Match::Yes),
            ("<world>", Match::Yes),
            ("*.example.com", Match::Maybe),
            ("heron", Match::Maybe),
            ("@storage", Match::Maybe),
            ("gss/krb5", Match::Maybe),
            ("192.0.2.0/33", Match::Maybe),
            ("192.0.2.*", Match::Maybe),
            ("", Match::Maybe),
        ] {
            assert_eq!(matches(client, &node), expected, "{client}");
        }
    }

    #[test]
    fn a_peer_with_its_port_is_its_address() {
        let read = |text| address_of_peer(text).map(|a| a.to_string());
        assert_eq!(read("192.0.2.21:768").as_deref(), Some("192.0.2.21"));
        assert_eq!(read("[2001:DB8::21]:768").as_deref(), Some("2001:db8::21"));
        assert_eq!(read("[::ffff:192.0.2.21]:768").as_deref(), Some("192.0.2.21"));
        assert_eq!(read("192.0.2.21").as_deref(), Some("192.0.2.21"));
        assert_eq!(read("(null)"), None);
    }
}
