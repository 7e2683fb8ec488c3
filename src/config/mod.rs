//! One TOML file, the same on both nodes: raw, then checked, with all errors at once.
//!
//! ```text
//! text -> toml -> raw (types, places) -> check (names, plan) -> timing (arithmetic, rules) -> Config
//!            \________ findings: each with its place and its remedy ________/
//! ```
//!
//! Nothing is believed half: one error withholds the whole configuration, after all of them have been told.

mod agents;
pub mod arithmetic;
mod check;
pub mod checked;
pub mod diagnostics;
mod digest;
mod field;
mod keys;
mod raw;
mod resources;
mod rules;
mod secret_source;
mod secrets;
mod settings;
mod suggest;
pub mod surroundings;
mod timing;
mod value;

use std::io::Read;
use std::path::Path;

use toml::de::DeTable;

pub use agents::{Facts, fence_agent};
pub use arithmetic::Arithmetic;
pub use checked::*;
pub use diagnostics::{Diagnostics, Finding, Severity};
pub use keys::{Table, keys};
pub use surroundings::Surroundings;

use value::Findings;

/// A configuration is a few KiB; whatever is larger is another file.
const LARGEST: u64 = 1 << 20;

/// A configuration that may be used.
#[derive(Debug, Clone)]
pub struct Checked {
    pub config: Config,
    /// What is allowed but unwise.
    pub warnings: Diagnostics,
    /// All parameters with their origin, and what they mean when something happens.
    pub arithmetic: Arithmetic,
    /// What the file says of the machines themselves.
    pub surroundings: Surroundings,
}

/// Reads and checks the file. Password files that this process may read are looked at as well.
pub fn load(path: &Path) -> Result<Checked, Diagnostics> {
    load_with(path, &|_| None)
}

/// As [`load`], and compares the options of fence agent programs with what the installed programs say of themselves.
pub fn load_with(path: &Path, metadata_of: fence_agent::MetadataOf<'_>) -> Result<Checked, Diagnostics> {
    let name = path.display().to_string();
    let unreadable = |finding: Finding| Diagnostics::new(name.clone(), "", vec![finding]);
    let bytes = read(path).map_err(|error| {
        let finding = Finding::error(format!("the configuration cannot be read: {error}"));
        unreadable(finding.help(match error.kind() {
            std::io::ErrorKind::NotFound => "check the path; for a new pair, `leasehold init` writes a first one",
            _ => "check the path, its permissions, and that it is a file",
        }))
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|b| *b == b'\n').count();
        let finding = Finding::error(format!("the configuration is not UTF-8, from line {line} on"));
        unreadable(finding.help("save it as UTF-8"))
    })?;
    parse_with(&name, &text, |raw, findings| {
        check::check_secret_files(&raw.fence, findings);
        check::check_networkd(&raw.resources, Path::new("/"), findings);
        fence_agent::check(&raw.fence, metadata_of, findings);
    })
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if read as u64 > LARGEST {
        return Err(std::io::Error::other("larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Checks a text that is called `name` in messages. Touches no file.
pub fn parse(name: &str, text: &str) -> Result<Checked, Diagnostics> {
    parse_with(name, text, |_, _| {})
}

fn parse_with(name: &str, text: &str, more: impl FnOnce(&raw::Raw, &mut Findings)) -> Result<Checked, Diagnostics> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(Diagnostics::new(name, text, syntax_errors(text, &errors)));
    }
    let mut findings = Findings::default();
    let raw = raw::read(&document, &mut findings);
    more(&raw, &mut findings);
    let checked = check::check(&raw, &mut findings);
    let diagnostics = Diagnostics::new(name, text, findings.list);
    match checked {
        Some((config, arithmetic)) if !diagnostics.has_errors() => {
            let surroundings = Surroundings::of(&raw, &config);
            Ok(Checked { config, warnings: diagnostics, arithmetic, surroundings })
        }
        _ => Err(diagnostics),
    }
}

/// Conflicts between tables are told only of a text that is sound otherwise: they mostly follow from other errors.
fn syntax_errors(text: &str, errors: &[toml::de::Error]) -> Vec<Finding> {
    let is_conflict =
        |e: &&toml::de::Error| e.message().contains("duplicate key") || e.message().contains("cannot extend");
    let (conflicts, others): (Vec<_>, Vec<_>) = errors.iter().partition(is_conflict);
    if !others.is_empty() {
        return others.into_iter().map(malformed).collect();
    }
    conflicts.into_iter().take(1).map(|e| conflict(text, e)).collect()
}

fn malformed(error: &toml::de::Error) -> Finding {
    let finding = Finding::error(format!("not TOML: {}", error.message()));
    let finding = finding.at_some(error.span().as_ref(), "here");
    finding.help("text stands in quotes, one key a line, tables as [name] and lists of tables as [[name]]")
}

fn conflict(text: &str, error: &toml::de::Error) -> Finding {
    let name = error.span().and_then(|span| text.get(span)).unwrap_or_default();
    if name == "fence" {
        let finding = Finding::error("`fence` is a word and a table at once");
        let finding = finding.at_some(error.span().as_ref(), "a second `fence`");
        return finding
            .help("remove `fence = \"confirm-only\"` to have agents, or remove [fence] and all [[fence.agent]]");
    }
    let finding = Finding::error(format!("`{}` stands here twice", name.escape_debug()));
    finding.at_some(error.span().as_ref(), "the same name again").help("keep one of the two")
}
