//! What is known of a pair before its file is written: read from options, or gathered by questions.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, bail, ensure};

use super::kinds::{AGENTS, Kind, NO_AGENT, RESOURCES};
use crate::cli::args::{Data, Init};

#[derive(Debug)]
pub struct Pair {
    pub cluster: Option<String>,
    pub data: Option<Data>,
    pub nodes: [String; 2],
    pub links: Vec<Link>,
    /// Empty: an operator confirms every take-over.
    pub agents: Vec<Part>,
    pub resources: Vec<Part>,
    pub lone_primary_stops: bool,
    pub watchdog: bool,
}

#[derive(Debug)]
pub struct Link {
    pub name: String,
    pub addresses: [String; 2],
}

/// An agent, of which each node gets one, or a resource.
#[derive(Debug)]
pub struct Part {
    pub kind: &'static Kind,
    pub values: Vec<(String, Value)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Both(String),
    Each([String; 2]),
}

impl Part {
    pub fn of(kind: &'static Kind) -> Part {
        Part { kind, values: Vec::new() }
    }

    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// What the options say, and nothing else: whoever gives one is asked nothing.
pub fn from_options(options: &Init, has_watchdog: bool) -> anyhow::Result<Pair> {
    let nodes = options.nodes.as_deref().context("--nodes FIRST,SECOND is missing: the names of both nodes")?;
    ensure!(
        !options.link.is_empty(),
        "--link FIRST,SECOND is missing: the addresses of both nodes on a network; give it twice, for two networks"
    );
    ensure!(
        !options.fence.is_empty(),
        "--fence is missing: how each node is made harmless, such as --fence 'ipmi address=203.0.113.11,203.0.113.12'; \
         `--fence none` leaves every take-over to an operator"
    );
    let links = options.link.iter().enumerate().map(|(index, text)| link(index, text));
    let agents = options.fence.iter().filter(|text| *text != NO_AGENT);
    let agents: Vec<Part> = agents.map(|text| part("--fence", text, &AGENTS)).collect::<anyhow::Result<_>>()?;
    ensure!(
        agents.is_empty() || options.fence.iter().all(|text| text != NO_AGENT),
        "--fence none excludes every other --fence"
    );
    Ok(Pair {
        cluster: options.cluster.clone(),
        data: options.data,
        nodes: node_names(nodes)?,
        links: links.collect::<anyhow::Result<_>>()?,
        agents,
        resources: options
            .resource
            .iter()
            .map(|text| part("--resource", text, &RESOURCES))
            .collect::<anyhow::Result<_>>()?,
        lone_primary_stops: options.lone_primary.is_some(),
        watchdog: has_watchdog,
    })
}

fn node_names(text: &str) -> anyhow::Result<[String; 2]> {
    let names = two(text).with_context(|| format!("--nodes takes two names with a comma, not '{text}'"))?;
    names.iter().try_for_each(|name| node_name(name))?;
    ensure!(names[0] != names[1], "both nodes are called '{}': give each a name of its own", names[0]);
    Ok(names)
}

/// A name that a host may have.
pub fn node_name(name: &str) -> anyhow::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = !name.is_empty() && name.len() <= 63 && name.chars().all(plain);
    ensure!(fits, "'{name}' is no name of a node: use up to 63 letters, digits, '-', '_' and '.'");
    Ok(())
}

/// `[NAME=]FIRST,SECOND`
fn link(index: usize, text: &str) -> anyhow::Result<Link> {
    let (name, rest) = text.split_once('=').unwrap_or(("", text));
    let name = if name.is_empty() { format!("link{}", index + 1) } else { name.to_owned() };
    let addresses = two(rest).with_context(|| format!("--link takes two addresses with a comma, not '{rest}'"))?;
    addresses.iter().try_for_each(|text| address(text)).with_context(|| format!("--link {text}"))?;
    Ok(Link { name, addresses })
}

/// Names are not looked up: a heartbeat must not depend on DNS.
pub fn address(text: &str) -> anyhow::Result<()> {
    let valid = text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok();
    ensure!(valid, "'{text}' is no IP address: write one such as 192.0.2.1 or 2001:db8::1, no name and no prefix");
    Ok(())
}

pub fn two(text: &str) -> Option<[String; 2]> {
    let (first, second) = text.split_once(',')?;
    let (first, second) = (first.trim(), second.trim());
    (!first.is_empty() && !second.is_empty() && !second.contains(',')).then(|| [first.to_owned(), second.to_owned()])
}

/// `KIND KEY=VALUE…`
fn part(option: &str, text: &str, kinds: &'static [Kind]) -> anyhow::Result<Part> {
    let told = || format!("{option} '{text}'");
    let words = words(text).with_context(told)?;
    let mut words = words.iter();
    let word = words.next().with_context(|| format!("{} is empty: {}", told(), choice(kinds)))?;
    let kind = kind_of(word, kinds).with_context(told)?;
    let mut part = Part::of(kind);
    for word in words {
        let (key, value) = word.split_once('=').with_context(|| format!("{}: '{word}' is not KEY=VALUE", told()))?;
        ensure!(!value.is_empty(), "{}: `{key}` has no value", told());
        ensure!(part.value(key).is_none(), "{}: `{key}` stands there twice", told());
        part.values.push((key.to_owned(), value_of(kind, key, value)));
    }
    let missing =
        kind.keys.iter().filter(|key| key.usual == super::kinds::Usual::Missing && part.value(key.name).is_none());
    let missing: Vec<String> = missing.map(|key| format!("\n  {}: {}", key.name, key.about)).collect();
    ensure!(missing.is_empty(), "{} lacks{}", told(), missing.concat());
    Ok(part)
}

pub fn kind_of(word: &str, kinds: &'static [Kind]) -> anyhow::Result<&'static Kind> {
    let found = kinds.iter().find(|kind| kind.word == word);
    found.with_context(|| format!("there is no kind '{word}': {}", choice(kinds)))
}

fn choice(kinds: &[Kind]) -> String {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.word).collect();
    format!("write one of {}", words.join(", "))
}

/// A comma parts the nodes' own values; where a key is the same for both, or a list of words, it is one like any other.
pub fn value_of(kind: &Kind, key: &str, value: &str) -> Value {
    let known = kind.keys.iter().find(|known| known.name == key);
    let resource = RESOURCES.iter().any(|resource| std::ptr::eq(resource, kind));
    let parts = known.map_or(!resource, |known| known.each);
    match two(value).filter(|_| parts) {
        Some(each) => Value::Each(each),
        None => Value::Both(value.to_owned()),
    }
}

/// Takes a text apart at blanks; what stands in quotes stays together, and the quotes go.
pub fn words(text: &str) -> anyhow::Result<Vec<String>> {
    let (mut words, mut word, mut quote): (Vec<String>, Option<String>, Option<char>) = (Vec::new(), None, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        bail!("a quote {open} has no end");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_words_together() {
        let words = words("exec start='/bin/x --data \"/srv\"' user=kim").unwrap();
        assert_eq!(words, ["exec", "start=/bin/x --data \"/srv\"", "user=kim"]);
        assert!(super::words("exec start='/bin/x").is_err());
    }

    #[test]
    fn a_comma_parts_the_values_of_the_nodes_and_nothing_else() {
        let agent =
            part("--fence", "ipmi address=192.0.2.11,192.0.2.12 user=a,b power=host,independent", &AGENTS).unwrap();
        assert_eq!(agent.value("address"), Some(&Value::Each(["192.0.2.11".into(), "192.0.2.12".into()])));
        assert_eq!(agent.value("user"), Some(&Value::Both("a,b".into())));
        assert_eq!(agent.value("power"), Some(&Value::Each(["host".into(), "independent".into()])));
        let mount = part("--resource", "mount what=a:/b where=/srv options=hard,noatime", &RESOURCES).unwrap();
        assert_eq!(mount.value("options"), Some(&Value::Both("hard,noatime".into())));
    }
}
