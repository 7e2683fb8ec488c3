//! leasehold.toml(5) tells every key that the parser knows, with the shape that the parser takes, and nothing else; its
//! defaults are those of the arithmetic, and every time says what it must exceed.

#[path = "common/need.rs"]
mod need;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use leasehold::config::{self, Table};

const PAGE: &str = "docs/leasehold.toml.md";

/// What the page says of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    shape: String,
    default: String,
    text: String,
}

/// By table and key.
fn told(page: &str) -> BTreeMap<(String, String), Told> {
    let mut all = BTreeMap::new();
    let (mut table, mut key) = (String::new(), None);
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            (table, key) = (heading.to_owned(), None);
        } else if let Some(entry) = term(line) {
            let place = (table.clone(), entry.0);
            assert!(all.insert(place.clone(), entry.1).is_none(), "{place:?} stands there twice");
            key = Some(place);
        } else if let Some(told) = key.as_ref().and_then(|key| all.get_mut(key)) {
            told.text.push_str(line.trim_start_matches(':').trim());
            told.text.push(' ');
        }
    }
    all
}

/// `` `key` (shape; required) ``
fn term(line: &str) -> Option<(String, Told)> {
    let (key, rest) = line.strip_prefix('`')?.split_once("` (")?;
    let (shape, default) = rest.strip_suffix(')')?.rsplit_once("; ")?;
    let told = Told { shape: shape.to_owned(), default: default.to_owned(), text: String::new() };
    Some((key.to_owned(), told))
}

fn page() -> BTreeMap<(String, String), Told> {
    told(&fs::read_to_string(PAGE).unwrap())
}

/// The plain tables, and of the kinds what they share: those keys that the page tells for all of them.
fn known() -> BTreeMap<(String, String), String> {
    let mut known = BTreeMap::new();
    for Table { label, keys } in config::keys() {
        let (table, kind) = label.split_once(" of kind ").map_or((label.as_str(), false), |(table, _)| (table, true));
        let table = if table == "the top level" { "THE TOP LEVEL" } else { table };
        for (key, shape) in keys {
            // Every table is a key of the top level, and has a heading instead.
            if kind && !shared(table, key) || table == "THE TOP LEVEL" && key != "fence" {
                continue;
            }
            known.insert((table.to_owned(), key.to_owned()), if key == "kind" { "a word".into() } else { shape });
        }
    }
    known
}

/// Whether all kinds of a table have this key, but for the one that does nothing by itself.
fn shared(table: &str, key: &str) -> bool {
    let of: Vec<Table> =
        config::keys().into_iter().filter(|t| t.label.starts_with(&format!("{table} of kind "))).collect();
    of.iter().filter(|table| table.keys.iter().any(|(own, _)| *own == key)).count() + 1 >= of.len()
}

#[test]
fn the_page_has_every_key_that_the_parser_knows_and_no_other() {
    let (page, known) = (page(), known());
    let missing: Vec<_> = known.keys().filter(|place| !page.contains_key(*place)).collect();
    let unknown: Vec<_> = page.keys().filter(|place| !known.contains_key(*place)).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "the page lacks {missing:?}; no parser knows {unknown:?}");
    assert!(known.len() > 60, "only {} keys", known.len());
}

#[test]
fn the_page_has_the_shape_that_the_parser_takes() {
    let page = page();
    // Tables of tables are read on their own.
    let plain = known().into_iter().filter(|((_, key), _)| !matches!(key.as_str(), "agent" | "fence"));
    for (place, shape) in plain {
        assert_eq!(page.get(&place).map(|told| &told.shape), Some(&shape), "{place:?}");
    }
}

#[test]
fn the_defaults_of_the_page_are_those_of_the_arithmetic() {
    let sample = "[cluster]\nname = \"x\"\nkey = \"/k\"\ndata = \"shared\"\n[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n\
                  [[link]]\nname = \"l\"\naddresses = { a = \"192.0.2.1\", b = \"192.0.2.2\" }\n";
    let checked = config::parse("sample", &format!("fence = \"confirm-only\"\n{sample}")).expect("a small pair");
    let page = page();
    let mut compared = 0;
    for line in &checked.arithmetic.lines {
        let Some((table, key)) = line.name.split_once('.') else { continue };
        let Some(told) = page.get(&(format!("[{table}]"), key.to_owned())) else { continue };
        let Some(default) = told.default.strip_prefix("default ").filter(|d| *d != "computed") else { continue };
        assert_eq!(default.trim_matches('"'), short(&line.value), "{}", line.name);
        compared += 1;
    }
    assert!(compared >= 10, "only {compared} defaults were compared");
}

/// `1.5s`, where the arithmetic has `1.500s`.
fn short(value: &str) -> String {
    match value.strip_suffix('s').filter(|number| number.contains('.')) {
        Some(number) => format!("{}s", number.trim_end_matches('0')),
        None => value.trim_end_matches(" ppm").to_owned(),
    }
}

#[test]
fn every_time_says_what_it_must_exceed_or_why_it_is_as_it_is() {
    let words = ["must", "should", "Must", "Should", "since", "part of", "how often", "how long", "how much"];
    for ((table, key), told) in page() {
        if told.shape.contains("duration") {
            assert!(words.iter().any(|word| told.text.contains(word)), "{table} {key}: {}", told.text);
        }
    }
}

/// What a kind adds stands in the page of that kind.
#[test]
fn every_key_of_a_kind_stands_in_its_own_page() {
    let mut missing = Vec::new();
    for Table { label, keys } in config::keys() {
        let Some((table, kind)) = label.split_once(" of kind ") else { continue };
        let folder = if table == "[[resource]]" { "docs/resources" } else { "docs/agents" };
        let page = fs::read_to_string(format!("{folder}/{}.md", kind.trim_matches('"'))).unwrap();
        let own = keys.iter().map(|(key, _)| *key).filter(|key| !shared(table, key));
        missing.extend(own.filter(|key| !page.contains(key)).map(|key| format!("{label}: {key}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn it_renders_without_warnings_and_has_the_kinds() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_leasehold")).arg("man").arg(directory.path()).status().unwrap();
    assert!(made.success());
    let path = directory.path().join("leasehold.toml.5");
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.starts_with(".TH \"LEASEHOLD.TOML\" 5 "), "{page}");
    for told in ["kind = \\(dqipmi\\(dq", "\\fBstable_reads\\fR (1 to 20)", "leasehold\\-resource\\-unit(7)"] {
        assert!(page.contains(told), "{told}");
    }
    if need::all("it_renders_without_warnings_and_has_the_kinds", &[need::program("man")]) {
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]).arg(&path);
        let output = man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

// --- the rules above can fail --------------------------------------------------------------------------------------

#[test]
fn a_term_is_read_with_its_shape_and_default() {
    let page = "## [lease]\n\n`term` (a duration; default computed)\n:   T: one\n    two.\n\n`no` term\n## [x]\nword\n";
    let all = told(page);
    let term = &all[&("[lease]".to_owned(), "term".to_owned())];
    assert_eq!((term.shape.as_str(), term.default.as_str()), ("a duration", "default computed"));
    assert!(term.text.starts_with("T: one two. ") && all.len() == 1, "{all:?}");
}
