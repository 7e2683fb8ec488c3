//! Every key that a configuration may have, as the parser itself knows it: for the manual, and for the test that nothing
//! in it drifts.

use toml::de::DeTable;

use super::raw::{self, KINDS, RESOURCE_KINDS};
use super::value::Findings;

/// One table of the file, or one kind of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// As in messages: `[lease]`, `[[link]]`, `[[resource]] of kind "unit"`, "the top level".
    pub label: String,
    /// Each key, with the shape of its value.
    pub keys: Vec<(&'static str, String)>,
}

/// All of them, by label.
pub fn keys() -> Vec<Table> {
    let text = skeleton();
    let (document, _) = DeTable::parse_recoverable(&text);
    let mut findings = Findings::default();
    raw::read(&document, &mut findings);
    let own = |keys: Vec<(&'static str, &str)>| keys.into_iter().map(|(key, shape)| (key, shape.to_owned())).collect();
    findings.known().map(|(label, keys)| Table { label: of_kind(label), keys: own(keys) }).collect()
}

/// Messages call a resource of the first kind there was just a resource.
fn of_kind(label: &str) -> String {
    if label == "[[resource]]" { format!("{label} of kind \"exec\"") } else { label.to_owned() }
}

/// Of every table that may stand several times one, and one for each kind; all others are known without standing there.
fn skeleton() -> String {
    let agents = KINDS.iter().map(|(kind, _)| format!("[[fence.agent]]\nkind = \"{kind}\"\n"));
    let resources = RESOURCE_KINDS.iter().map(|(kind, _)| format!("[[resource]]\nkind = \"{kind}\"\n"));
    ["[[node]]\n[[link]]\n".to_owned()].into_iter().chain(agents).chain(resources).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_table_and_kind_with_their_shapes() {
        let all = keys();
        let of = |label: &str| &all.iter().find(|table| table.label == label).expect(label).keys;
        assert!(of("[heartbeat]").contains(&("interval", "a duration".to_owned())));
        assert!(of("[fence]").contains(&("power_on", "\"never\" or \"after-promotion\"".to_owned())));
        assert!(of("[[fence.agent]] of kind \"ipmi\"").contains(&("stable_reads", "1 to 20".to_owned())));
        assert!(of("[[resource]] of kind \"exec\"").contains(&("start", "a command".to_owned())));
        assert!(all.iter().all(|table| !table.keys.is_empty()), "{all:?}");
    }
}
