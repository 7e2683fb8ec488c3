//! Pairs of PostgreSQL servers: that each is named as its node.

use super::super::checked::{Resource, ResourceKind};
use super::super::diagnostics::Finding;
use super::super::raw;
use super::super::value::{At, Findings};
use super::node_of;

/// Reports names that are no node's, and nodes that have no name there.
pub fn check(raw: &[raw::Resource], checked: &[Resource], names: Option<&[String; 2]>, f: &mut Findings) {
    let Some(names) = names else { return };
    for (raw, resource) in raw.iter().zip(checked) {
        let ResourceKind::Postgres(postgres) = &resource.kind else { continue };
        for node in postgres.primary_conninfo.keys() {
            node_of(&At { value: node.clone(), span: raw.span.clone() }, names, f);
        }
        for node in names.iter().filter(|node| !postgres.primary_conninfo.contains_key(*node)) {
            let title = format!("`primary_conninfo` of resource \"{}\" does not name node \"{node}\"", resource.name);
            let finding = Finding::error(title).at(&raw.span, "both nodes are needed");
            f.push(finding.help(format!("add `{node} = \"host=192.0.2.1 port=5432\"` to its `primary_conninfo`")));
        }
    }
}
