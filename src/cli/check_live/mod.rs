//! `leasehold check --live`: looks through every fence agent of the configuration once, and refuses what could not
//! fence, or would fence the wrong machine. It changes nothing and needs no daemon.

mod judge;
mod render;

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;

use super::args::{Check, Global};
use super::check;
use super::exit::Exit;
use super::page::terminal_width;
use super::socket;
use crate::config::{self, Agent, Checked, Config};
use crate::control::{Contact, Status};
use crate::core::{NodeId, Scope, Span, SystemUuid};
use crate::daemon;
use crate::fence::{Probed, Proving, Reading};
use crate::os::{clock, machine};

pub use judge::{Known, judge};
pub use render::{json, render};

/// The first word about those that are waited for; each further one comes after twice the time.
const FIRST_WORD: Span = Span::from_secs(1);

/// What was found through one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub kind: &'static str,
    pub target: NodeId,
    pub level: u32,
    pub scope: Scope,
    pub reading: Reading,
    /// What the device says it controls.
    pub identity: Option<String>,
    pub took: Span,
    pub faults: Vec<Fault>,
    pub notes: Vec<String>,
}

/// Why an agent could not fence, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub text: String,
    pub remedy: String,
}

pub fn run(global: &Global, options: &Check, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = options.path.as_ref().unwrap_or(&global.config);
    let Checked { config, .. } = match config::load(path) {
        Ok(checked) => checked,
        Err(diagnostics) => return Ok(check::refused(path, &diagnostics, out).map(|()| Exit::Error)?),
    };
    // The daemon gives up for good on the same error; here it is one like any other.
    let me = daemon::who_am_i(&config, options.node.as_deref()).map_err(|error| anyhow!("{error}"))?;
    let status = status(global.socket.as_deref().unwrap_or(&config.control.socket), &config, me);
    let known = Known::new(me, machine::system_uuid(), status.as_ref());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rows = runtime.block_on(look(&config, me, known.uuids))?;
    // What has overrun its limit may hang in the kernel, and is not waited for.
    runtime.shutdown_background();
    judge(&config, &known, &mut rows);
    let text = if options.json {
        json(&config, me, &rows)?
    } else {
        render(&config, me, &rows, terminal_width(), privilege())
    };
    out.write_all(text.as_bytes())?;
    Ok(if rows.iter().all(|row| row.faults.is_empty()) { Exit::Fine } else { Exit::Error })
}

/// Whether whoever asks may read what the agents need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    Root,
    User,
}

fn privilege() -> Privilege {
    if rustix::process::geteuid().is_root() { Privilege::Root } else { Privilege::User }
}

/// Of the daemon of this node, if one runs: it knows what its peer says of itself.
fn status(socket: &Path, config: &Config, me: NodeId) -> Option<Status> {
    let status = socket::status(&mut socket::connect(socket).ok()?).ok()?;
    (status.cluster == config.cluster && status.me.name == config.node(me).name).then_some(status)
}

async fn look(config: &Config, me: NodeId, known: [Option<SystemUuid>; 2]) -> anyhow::Result<Vec<Row>> {
    let agents = &config.fence.agents;
    let mut proving = Proving::of(config, me, known);
    let begun = clock::now();
    let mut word = FIRST_WORD;
    let mut rows = Vec::new();
    loop {
        let left = Duration::from(begun.after(word).since(clock::now()));
        match tokio::time::timeout(left, proving.next()).await {
            Ok(Some(probed)) => {
                let index = probed.index;
                rows.push((index, row(&agents[index], probed, clock::now().since(begun))));
            }
            Ok(None) => break,
            Err(_) => {
                writeln!(anstream::stderr(), "{}", waiting(agents, &proving.waiting(), word))?;
                word = word.times(2);
            }
        }
    }
    rows.sort_by_key(|(index, _)| *index);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn waiting(agents: &[Agent], indices: &[usize], since: Span) -> String {
    let mut text = format!("{since}: waits for");
    for (separator, index) in std::iter::once(" ").chain(std::iter::repeat(", ")).zip(indices) {
        // Writing into a string cannot fail.
        let _ = write!(text, "{separator}{} (at most {})", agents[*index].name, agents[*index].timeout);
    }
    text
}

fn row(agent: &Agent, probed: Probed, took: Span) -> Row {
    let kind = agent.kind.word();
    let remedy = format!("leasehold-fence-{kind}(7), ERRORS, says what each answer means and what to do");
    let fault = |text: String| Fault { text, remedy: remedy.clone() };
    Row {
        name: agent.name.clone(),
        kind,
        target: agent.target,
        level: agent.level,
        scope: agent.scope,
        reading: probed.health.reading,
        identity: probed.named,
        took,
        faults: probed.health.faults.into_iter().map(fault).collect(),
        notes: probed.health.notes,
    }
}

impl Known {
    fn new(me: NodeId, mine: SystemUuid, status: Option<&Status>) -> Known {
        let told = |uuid: SystemUuid| (uuid.0 != [0; 16]).then_some(uuid);
        let peer = status.map(|s| &s.peer);
        let mut uuids = [told(mine); 2];
        uuids[me.peer().index()] = peer.and_then(|p| p.uuid.as_deref()).and_then(machine::uuid_given).and_then(told);
        let peer_runs = peer.is_some_and(|p| p.contact == Contact::Present);
        Known { me, uuids, peer_runs }
    }
}
