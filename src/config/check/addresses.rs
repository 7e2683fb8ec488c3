//! Resources of kind `address` among all that is configured: whose they are, and that they are nobody else's.

use std::collections::BTreeMap;

use super::super::checked::{AddressResource, Link, Resource, ResourceKind};
use super::super::diagnostics::Finding;
use super::super::raw;
use super::super::resources::Interfaces;
use super::super::value::{At, Findings};
use super::node_of;
use crate::core::Span;

/// Three probes, and a machine that is busy with a take-over.
const START_V4: Span = Span::from_secs(1);
/// The kernel's duplicate detection: up to a second until it asks, another until nobody has answered (RFC 4862), and half
/// of one to spare.
const START_V6: Span = Span::from_ms(2500);

/// Reports what is wrong with the addresses.
pub fn check(
    raw: &[raw::Resource],
    checked: &[Resource],
    links: &[Link],
    names: Option<&[String; 2]>,
    f: &mut Findings,
) {
    let mut seen = BTreeMap::new();
    for (raw, resource) in raw.iter().zip(checked) {
        let ResourceKind::Address(address) = &resource.kind else { continue };
        refuse_link_address(raw, address, links, f);
        refuse_short_start(raw, resource, address, f);
        names.into_iter().for_each(|names| check_nodes(raw, address, names, f));
        if let Some(first) = seen.insert(address.address, raw) {
            let finding = Finding::error(format!("two resources have the address {}", address.address));
            let finding = finding.at(&raw.span, "the same address again").with(&first.span, "first here");
            f.push(finding.help("keep one of them"));
        }
    }
}

/// It would be removed from its node at the next start of the daemon, and the heartbeats with it.
fn refuse_link_address(raw: &raw::Resource, address: &AddressResource, links: &[Link], f: &mut Findings) {
    let own = |link: &&Link| link.addresses.iter().any(|a| a.ip() == address.address);
    if let Some(link) = links.iter().find(own) {
        let title =
            format!("the address {} belongs to a node: it is an end of link \"{}\"", address.address, link.name);
        let finding = Finding::error(title).at(&raw.span, "this address would move away");
        let finding = finding.note("wherever the service does not run, its address is removed");
        f.push(finding.help("give the service an address of its own"));
    }
}

fn refuse_short_start(raw: &raw::Resource, resource: &Resource, address: &AddressResource, f: &mut Findings) {
    let needed = match (address.probe, address.address.is_ipv4()) {
        (false, _) => return,
        (true, true) => START_V4,
        (true, false) => START_V6,
    };
    if resource.start_timeout < needed {
        let title = format!("`start_timeout` of resource \"{}\" is too short", resource.name);
        let finding = Finding::error(title).at_some(raw.start_timeout.span(), "shorter than asking the segment takes");
        let finding = finding.note(format!("looking for a duplicate of {} may take {needed}", address.address));
        f.push(finding.help(format!("write at least \"{needed}\", or `probe = false`")));
    }
}

fn check_nodes(raw: &raw::Resource, address: &AddressResource, names: &[String; 2], f: &mut Findings) {
    let Interfaces::ByNode(by_node) = &address.interfaces else { return };
    for node in by_node.keys() {
        node_of(&At { value: node.clone(), span: raw.span.clone() }, names, f);
    }
    for node in names.iter().filter(|node| !by_node.contains_key(*node)) {
        let finding = Finding::error(format!("the address {} has no interface on node \"{node}\"", address.address));
        let finding = finding.at(&raw.span, "both nodes are needed");
        f.push(finding.help(format!("add `{node} = \"eth1\"` to its `interface`")));
    }
}
