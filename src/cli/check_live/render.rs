//! The table of `check --live`, and its JSON. Pure.

use serde::Serialize;

use super::{Privilege, Row};
use crate::cli::page::{Page, Paint, short};
use crate::config::Config;
use crate::core::{NodeId, Scope};
use crate::fence::Reading;

/// The longest identity in the table, in characters: a UUID is told apart by its beginning, and stands whole in the JSON.
const IDENTITY: usize = 12;

/// The table, what is wrong with what to do about it, and the verdict.
pub fn render(config: &Config, me: NodeId, rows: &[Row], width: usize, privilege: Privilege) -> String {
    let mut page = Page::new(width, true);
    let heading = ["agent", "kind", "target", "level", "state", "identity", "time", "finding"];
    let heading: Vec<String> = heading.map(str::to_owned).into();
    let table: Vec<_> = std::iter::once(heading).chain(rows.iter().map(|row| cells(config, row))).collect();
    page.table(&table);
    page.blank();
    for row in rows {
        told(&mut page, row);
    }
    verdict(&mut page, &config.node(me).name, rows, privilege);
    page.into_text()
}

fn cells(config: &Config, row: &Row) -> Vec<String> {
    let finding = match row.faults.len() {
        0 => "ok".to_owned(),
        1 => "1 FAULT".to_owned(),
        n => format!("{n} FAULTS"),
    };
    vec![
        row.name.clone(),
        row.kind.to_owned(),
        config.node(row.target).name.clone(),
        row.level.to_string(),
        state(row).to_owned(),
        row.identity.as_deref().map_or("-".to_owned(), beginning),
        short(row.took.as_ms()),
        finding,
    ]
}

fn beginning(identity: &str) -> String {
    let short: String = identity.chars().take(IDENTITY).collect();
    if short.len() < identity.len() { format!("{short}…") } else { short }
}

/// Power for an agent of node scope, access for one of resource scope.
fn state(row: &Row) -> &'static str {
    match (row.scope, row.reading) {
        (Scope::Node, Reading::On) => "on",
        (Scope::Node, Reading::Off) => "off",
        (Scope::Resource, Reading::On) => "access",
        (Scope::Resource, Reading::Off) => "no access",
        (Scope::Node | Scope::Resource, Reading::Unknown) => "?",
    }
}

fn told(page: &mut Page, row: &Row) {
    for fault in &row.faults {
        page.wrapped("X ", &format!("{}: {}", row.name, fault.text), Paint::Red);
        page.wrapped("  -> ", &fault.remedy, Paint::Bold);
    }
    for note in &row.notes {
        page.wrapped("- ", &format!("{}: {note}", row.name), Paint::Plain);
    }
}

fn verdict(page: &mut Page, me: &str, rows: &[Row], privilege: Privilege) {
    let agents = match rows.len() {
        1 => "1 agent".to_owned(),
        n => format!("{n} agents"),
    };
    let bad = rows.iter().filter(|row| !row.faults.is_empty()).count();
    if bad == 0 {
        return page.wrapped("", &format!("Seen from {me}: {agents}, none with a fault."), Paint::Green);
    }
    page.wrapped("", &format!("REFUSED, seen from {me}: {bad} of {agents} with a fault."), Paint::Red);
    if privilege == Privilege::User {
        let text = "This was not run as root, to whom the secrets and programs of fence agents belong: run it as root.";
        page.wrapped("  -> ", text, Paint::Bold);
    }
}

#[derive(Serialize)]
struct Document<'a> {
    node: &'a str,
    verdict: &'static str,
    agents: Vec<AgentRow<'a>>,
}

#[derive(Serialize)]
struct AgentRow<'a> {
    name: &'a str,
    kind: &'a str,
    target: &'a str,
    level: u32,
    scope: String,
    state: &'static str,
    identity: Option<&'a str>,
    took_ms: u64,
    faults: Vec<FaultRow<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct FaultRow<'a> {
    text: &'a str,
    remedy: &'a str,
}

/// The same for programs, as docs/agents/README.md describes it.
pub fn json(config: &Config, me: NodeId, rows: &[Row]) -> serde_json::Result<String> {
    let fine = rows.iter().all(|row| row.faults.is_empty());
    let agents = rows.iter().map(|row| agent(config, row)).collect();
    let verdict = if fine { "ok" } else { "refused" };
    let document = Document { node: &config.node(me).name, verdict, agents };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn agent<'a>(config: &'a Config, row: &'a Row) -> AgentRow<'a> {
    AgentRow {
        name: &row.name,
        kind: row.kind,
        target: &config.node(row.target).name,
        level: row.level,
        scope: row.scope.to_string(),
        state: match row.reading {
            Reading::On => "on",
            Reading::Off => "off",
            Reading::Unknown => "unknown",
        },
        identity: row.identity.as_deref(),
        took_ms: row.took.as_ms(),
        faults: row.faults.iter().map(|f| FaultRow { text: &f.text, remedy: &f.remedy }).collect(),
        notes: &row.notes,
    }
}
