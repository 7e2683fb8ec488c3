//! leasehold.toml(5): the prose of docs/leasehold.toml.md, and after it what each kind of agent and resource adds, as the
//! parser itself tells it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::config::{self, Table};

const PROSE: &str = include_str!("../../../docs/leasehold.toml.md");

/// In the prose, and what goes there: the table, and the beginning of the name of the page of each kind.
const PLACES: [(&str, &str, &str); 2] = [
    ("<!-- the kinds of agents -->", "[[fence.agent]]", "leasehold-fence"),
    ("<!-- the kinds of resources -->", "[[resource]]", "leasehold-resource"),
];

/// The whole page, in Markdown.
pub fn page() -> String {
    let tables = config::keys();
    PLACES.iter().fold(PROSE.to_owned(), |page, (place, table, of)| page.replace(place, &kinds(&tables, table, of)))
}

fn kinds(tables: &[Table], table: &str, of: &str) -> String {
    let kinds: Vec<(&str, &Table)> = tables.iter().filter_map(|t| Some((kind(&t.label, table)?, t))).collect();
    let shared = shared(&kinds);
    let mut text = String::new();
    for (kind, table) in kinds {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "### kind = \"{kind}\"\n");
        let own: Vec<String> = table
            .keys
            .iter()
            .filter(|(key, _)| !shared.contains(key))
            .map(|(key, shape)| format!("`{key}` ({shape})"))
            .collect();
        let own = if own.is_empty() { "nothing".to_owned() } else { own.join(", ") };
        let _ = writeln!(text, "{own}. See {of}-{kind}(7).\n");
    }
    text
}

fn kind<'l>(label: &'l str, table: &str) -> Option<&'l str> {
    label.strip_prefix(table)?.strip_prefix(" of kind \"")?.strip_suffix('"')
}

/// What more than half of the kinds have stands in the prose: the manual agent lacks what all others share.
fn shared(kinds: &[(&str, &Table)]) -> BTreeSet<&'static str> {
    let all: BTreeSet<&'static str> =
        kinds.iter().flat_map(|(_, table)| table.keys.iter().map(|(key, _)| *key)).collect();
    let count = |key: &&str| kinds.iter().filter(|(_, table)| table.keys.iter().any(|(own, _)| own == key)).count();
    all.into_iter().filter(|key| count(key) + 1 >= kinds.len()).collect()
}
