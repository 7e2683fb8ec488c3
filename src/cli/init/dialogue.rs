//! One question at a time, each with its reason and mostly with a default. Wrong answers are asked again; at the end of
//! the input nothing has been written.

use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::{bail, ensure};

use super::kinds::{AGENTS, Key, Kind, NO_AGENT, RESOURCES, Usual};
use super::pair::{self, Link, Pair, Part, Value};
use super::text;
use crate::os::machine;

/// What nobody sensible exceeds; the configuration takes at most eight.
const MOST_LINKS: usize = 8;

struct Dialogue<'a> {
    input: &'a mut dyn BufRead,
    out: &'a mut dyn Write,
}

pub fn ask(input: &mut dyn BufRead, out: &mut dyn Write, watchdog: bool, etc: &Path) -> anyhow::Result<Pair> {
    let mut dialogue = Dialogue { input, out };
    dialogue.say("A new pair. Enter takes what stands in [brackets]; nothing is written before the last answer.")?;
    let nodes = dialogue.nodes()?;
    let links = dialogue.links(&nodes)?;
    let mut pair = Pair {
        cluster: None,
        data: None,
        nodes,
        links,
        agents: Vec::new(),
        resources: Vec::new(),
        lone_primary_stops: false,
        watchdog,
    };
    dialogue.agents(&mut pair, etc)?;
    dialogue.resources(&mut pair, etc)?;
    dialogue.lone_primary(&mut pair)?;
    dialogue.say("")?;
    Ok(pair)
}

impl Dialogue<'_> {
    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        Ok(writeln!(self.out, "{text}")?)
    }

    fn nodes(&mut self) -> anyhow::Result<[String; 2]> {
        self.say("\nThe names of both nodes, best their host names. Their order must never change.")?;
        let host = machine::host_name();
        let short = host.split('.').next().filter(|name| pair::node_name(name).is_ok()).map(str::to_owned);
        let first = self.question("first node", short.as_deref(), pair::node_name)?;
        let second = self.question("second node", None, |name| {
            ensure!(name != first, "both nodes are called '{name}': give each a name of its own");
            pair::node_name(name)
        })?;
        Ok([first, second])
    }

    fn links(&mut self, nodes: &[String; 2]) -> anyhow::Result<Vec<Link>> {
        self.say("\nThe networks over which they hear each other. Any one suffices; two that share no cable or switch are better.")?;
        let mut links = Vec::new();
        while links.len() < MOST_LINKS {
            let number = links.len() + 1;
            let ends = if links.is_empty() { "" } else { ", or Enter for no further link" };
            let default = if links.is_empty() { None } else { Some("") };
            let asked = format!("link {number}: address of {}{ends}", nodes[0]);
            let first = self.question(&asked, default, |text| match text {
                "" => Ok(()),
                text => pair::address(text),
            })?;
            if first.is_empty() {
                break;
            }
            let second = self.question(&format!("link {number}: address of {}", nodes[1]), None, pair::address)?;
            links.push(Link { name: format!("link{number}"), addresses: [first, second] });
        }
        Ok(links)
    }

    fn agents(&mut self, pair: &mut Pair, etc: &Path) -> anyhow::Result<()> {
        self.say("\nHow a node is made harmless before the other one takes over: the power of the machine, if anything can switch it.")?;
        self.list(&AGENTS)?;
        self.say(&format!("  {NO_AGENT:<18}nothing can: every take-over waits for an operator"))?;
        let wanted = |text: &str| match text {
            NO_AGENT => Ok(()),
            text => pair::kind_of(text, &AGENTS).map(drop),
        };
        let mut word = self.question("kind of fence agent", Some("ipmi"), wanted)?;
        while word != NO_AGENT {
            let part = self.part(pair, pair::kind_of(&word, &AGENTS)?, etc)?;
            pair.agents.push(part);
            word = self.question("another kind beside it", Some(NO_AGENT), wanted)?;
        }
        Ok(())
    }

    fn resources(&mut self, pair: &mut Pair, etc: &Path) -> anyhow::Result<()> {
        self.say("\nWhat fails over, in the order of starting.")?;
        self.list(&RESOURCES)?;
        let wanted = |text: &str| match text {
            "" => Ok(()),
            text => pair::kind_of(text, &RESOURCES).map(drop),
        };
        loop {
            let word = self.question("kind of resource, or Enter for no further one", Some(""), wanted)?;
            if word.is_empty() {
                return Ok(());
            }
            let part = self.part(pair, pair::kind_of(&word, &RESOURCES)?, etc)?;
            pair.resources.push(part);
        }
    }

    /// Volumes alone do not hold a node that still runs: that has a price, which is told and not guessed.
    fn lone_primary(&mut self, pair: &mut Pair) -> anyhow::Result<()> {
        let yielding = |part: &Part| matches!(part.kind.word, "ec2-volume" | "openstack-volume");
        if pair.agents.is_empty() || !pair.agents.iter().all(yielding) {
            return Ok(());
        }
        self.say("\nOnly volumes are fenced: without its standby the primary then stops the service, too.")?;
        self.question(
            "write \"stop\" to accept that, or end here (Ctrl-C) and add an agent for the power",
            None,
            |text| {
                ensure!(text == "stop", "the one answer is \"stop\"");
                Ok(())
            },
        )?;
        pair.lone_primary_stops = true;
        Ok(())
    }

    fn list(&mut self, kinds: &[Kind]) -> anyhow::Result<()> {
        kinds.iter().try_for_each(|kind| self.say(&format!("  {:<18}{}", kind.word, kind.what)))
    }

    fn part(&mut self, pair: &Pair, kind: &'static Kind, etc: &Path) -> anyhow::Result<Part> {
        let mut part = Part::of(kind);
        for key in kind.keys {
            if matches!(key.usual, Usual::Missing | Usual::Offered(_)) {
                self.say(&format!("  {}", key.about))?;
                let value = self.value(pair, &part, key, etc)?;
                part.values.push((key.name.to_owned(), value));
            }
        }
        Ok(part)
    }

    fn value(&mut self, pair: &Pair, part: &Part, key: &Key, etc: &Path) -> anyhow::Result<Value> {
        let usual = text::value(pair, part, key, etc);
        let some = |text: &str| {
            ensure!(!text.is_empty(), "an answer is needed here");
            ensure!(pair::words(text).is_ok(), "a quote has no end");
            Ok(())
        };
        if !key.each {
            let default = match &usual {
                Some(Value::Both(text)) => Some(text.as_str()),
                Some(Value::Each(_)) | None => None,
            };
            return Ok(Value::Both(self.question(&format!("  {}", key.name), default, some)?));
        }
        let default = |node: usize| match &usual {
            Some(Value::Each(each)) => Some(each[node].as_str()),
            Some(Value::Both(_)) | None => None,
        };
        let mut of =
            |node: usize| self.question(&format!("  {} of {}", key.name, pair.nodes[node]), default(node), some);
        Ok(Value::Each([of(0)?, of(1)?]))
    }

    /// Until an answer is right.
    fn question(
        &mut self,
        what: &str,
        default: Option<&str>,
        check: impl Fn(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        loop {
            let shown = default.filter(|text| !text.is_empty()).map_or(String::new(), |text| format!(" [{text}]"));
            write!(self.out, "{what}{shown}: ")?;
            self.out.flush()?;
            let mut line = String::new();
            if self.input.read_line(&mut line)? == 0 {
                self.say("")?;
                bail!(
                    "the answers ended before \"{}\"; nothing was written. `leasehold init --help` has the options that \
                       answer without a question",
                    what.trim()
                );
            }
            let answer = line.trim();
            let answer = if answer.is_empty() { default.unwrap_or_default() } else { answer };
            match check(answer) {
                Ok(()) => return Ok(answer.to_owned()),
                Err(error) => self.say(&format!("  {error:#}"))?,
            }
        }
    }
}
