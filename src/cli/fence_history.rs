//! `leasehold fence --history`: what every fence attempt of this node sent and read. Needs no daemon: the journal is a
//! file, and its chain is verified here.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use super::args::History as Options;
use super::exit::Exit;
use super::page::{Page, Paint, terminal_width};
use crate::fence::journal::{self, Action, Entry, Exchange, History, Verdict};

/// Where the packages put the state directory.
const STATE: &str = "/var/lib/leasehold";

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    path: &'a Path,
    /// Every line names the hash of the one before.
    verified: bool,
    /// Why not.
    trouble: Option<String>,
    /// Entries that were dropped to keep the file within its bound.
    dropped: u64,
    /// SHA-256 of the newest entry, which the system journal has too.
    head: &'a str,
    entries: &'a [Entry],
}

pub fn run(config: &Path, options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let directory = state(config);
    let path = directory.join(journal::FILE);
    let history = journal::history(&directory).context("run it as root, on the node whose history you want")?;
    let history = history.unwrap_or_default();
    let skipped = options.last.map_or(0, |last| history.entries.len().saturating_sub(last as usize));
    let entries = &history.entries[skipped..];
    if options.json {
        let trouble = history.trouble.as_ref().map(ToString::to_string);
        let (verified, dropped, head) = (trouble.is_none(), history.anchor.dropped, history.head.as_str());
        let shown = Shown { path: &path, verified, trouble, dropped, head, entries };
        writeln!(out, "{}", serde_json::to_string_pretty(&shown)?)?;
    } else {
        out.write_all(render(&path, &history, entries, terminal_width(), true).as_bytes())?;
    }
    Ok(if history.trouble.is_none() { Exit::Fine } else { Exit::Error })
}

/// As the configuration says, read leniently: the history is wanted most when something else is broken.
fn state(config: &Path) -> PathBuf {
    let table = std::fs::read_to_string(config).ok().and_then(|text| text.parse::<toml::Table>().ok());
    let given = table.and_then(|t| Some(t.get("paths")?.get("state")?.as_str()?.to_owned()));
    given.map_or_else(|| PathBuf::from(STATE), PathBuf::from)
}

/// Oldest first, the newest beside the prompt; what the chain says comes last.
pub fn render(path: &Path, history: &History, entries: &[Entry], width: usize, colour: bool) -> String {
    let mut page = Page::new(width, colour);
    for entry in entries {
        attempt(&mut page, entry);
        page.blank();
    }
    if entries.is_empty() {
        page.wrapped("", "No fence attempt is recorded on this node.", Paint::Plain);
    }
    let (all, dropped) = (history.entries.len(), history.anchor.dropped);
    match &history.trouble {
        None => {
            let older = if dropped == 0 { String::new() } else { format!("; {dropped} older ones were dropped") };
            page.wrapped("", &format!("{all} entries, the chain is whole{older}. {}", path.display()), Paint::Green);
        }
        Some(trouble) => {
            let text = format!("THE CHAIN IS BROKEN after {all} whole entries: {trouble}. {}", path.display());
            page.wrapped("", &text, Paint::Red);
            let remedy =
                "copy the file before the daemon starts again, which sets it aside and goes on with the whole entries";
            page.wrapped("  -> ", remedy, Paint::Bold);
        }
    }
    page.into_text()
}

fn attempt(page: &mut Page, entry: &Entry) {
    let case = &entry.case;
    let (word, paint) = verdict(case.action, case.verdict);
    let token = case.token.map_or(String::new(), |token| format!(" (token {token})"));
    let heading = format!("#{} {} {}{token}: {word}", entry.number, case.at, what(case.action, &case.target));
    page.wrapped("", &heading, paint);
    page.wrapped("   ", &case.result, Paint::Plain);
    if case.over_limit {
        page.wrapped("   ", "the plan's own deadline ended it", Paint::Plain);
    }
    for part in &case.agents {
        let named = part.named.as_ref().map_or(String::new(), |named| format!(", its device controls {named}"));
        let limit = if part.over_limit { ", ran into its limit" } else { "" };
        page.wrapped("   ", &format!("{}: identity {}{named}{limit}", part.agent, part.identity), Paint::Dim);
    }
    if let Some(first) = entry.same_as {
        page.wrapped("   ", &format!("sent and read the same as #{first}"), Paint::Dim);
    }
    for (place, exchange) in case.evidence.iter().enumerate() {
        if case.left_out > 0 && place == journal::FIRST_KEPT {
            page.wrapped("     ", &format!("… {} exchanges are not kept …", case.left_out), Paint::Dim);
        }
        page.wrapped("     ", &told(exchange), Paint::Plain);
    }
    if entry.missed > 0 {
        page.wrapped("   ", &format!("{} attempts before this one could not be written", entry.missed), Paint::Yellow);
    }
}

fn told(exchange: &Exchange) -> String {
    let times = if exchange.times > 1 { format!(" ({} times)", exchange.times) } else { String::new() };
    format!("{} {}: {} → {}{times}", exchange.at, exchange.agent, exchange.sent, exchange.read)
}

fn what(action: Action, target: &str) -> String {
    match action {
        Action::Off => format!("fence {target}"),
        Action::Drill => format!("drill: fence {target}"),
        Action::Probe => format!("read the power of {target}"),
        Action::Take => format!("take the storage from {target}"),
        Action::On => format!("switch {target} on"),
        Action::Access => format!("let {target} in again"),
        Action::Damage => "journal".to_owned(),
    }
}

fn verdict(action: Action, verdict: Verdict) -> (&'static str, Paint) {
    match (action, verdict) {
        (Action::Damage, _) => ("DAMAGED", Paint::Red),
        (_, Verdict::Confirmed) => ("confirmed", Paint::Green),
        (_, Verdict::Refused) => ("REFUSED", Paint::Red),
        (_, Verdict::Unknown) => ("UNKNOWN", Paint::Red),
        (_, Verdict::CutOff) => ("cut off", Paint::Yellow),
    }
}
