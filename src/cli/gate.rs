//! `leasehold gate`: the storage server's arbiter, by hand or as the forced command of a key.

use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};

use crate::core::Token;
use crate::gate::config::{self, Gates};
use crate::gate::protocol::{self, Answer, Op, Request, State, Verdict};
use crate::gate::{arbiter, backend, store};

/// Done, or read.
const DONE: u8 = 0;
/// Usage, configuration, record, or a lock that never came free: nothing was stored.
const FAILED: u8 = 1;
/// The rule says no; nothing was changed.
const REFUSED: u8 = 3;
/// Stored, but not all of it could be read back.
const UNVERIFIED: u8 = 4;

const AFTER_HELP: &str = "\
Exit status:
  0  taken, released or read, and verified
  1  an error: nothing was stored
  3  refused by the rule: the answer names the highest token
  4  stored, but not verified: ask again, with the same token";

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub struct Gate {
    /// What this server guards
    #[arg(long, global = true, value_name = "PATH", default_value = config::PATH, display_order = 90)]
    pub gate_config: PathBuf,

    #[command(subcommand)]
    pub command: GateCommand,
}

#[derive(Debug, Subcommand)]
pub enum GateCommand {
    /// Take the resource for a node: compare and swap the token, lock its peer out, let it in, read both back
    Take(GateTake),
    /// Let the peer of the owner in as well, with the owner's stored token
    Release(GateRelease),
    /// Show the record and whom the server lets in; changes nothing
    Status(GateStatus),
    /// Answer one question from standard input, a line of JSON: the forced command of a node's key
    Serve,
    /// Make the record of a new gate; nobody is let in by it
    Init(GateInit),
}

#[derive(Debug, ClapArgs)]
pub struct GateTake {
    #[command(flatten)]
    pub by: By,

    /// The highest token that the caller knows of its peer [default: whatever is stored]
    #[arg(long, value_name = "TOKEN")]
    pub seen: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub struct GateRelease {
    #[command(flatten)]
    pub by: By,
}

#[derive(Debug, ClapArgs)]
pub struct By {
    /// The gate
    #[arg(long, value_name = "NAME")]
    pub gate: String,

    /// The node that asks
    #[arg(long, value_name = "NAME")]
    pub node: String,

    /// Its token
    #[arg(long, value_name = "TOKEN")]
    pub token: u64,

    /// Print the answer as JSON, as docs/gate.md describes it
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct GateStatus {
    /// The gate
    #[arg(long, value_name = "NAME")]
    pub gate: String,

    /// Print the answer as JSON, as docs/gate.md describes it
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct GateInit {
    /// The gate
    #[arg(long, value_name = "NAME")]
    pub gate: String,

    /// Where a record was lost: at least the highest token that either node has seen
    #[arg(long, value_name = "TOKEN", default_value_t = 0)]
    pub highest: u64,
}

pub fn run(options: &Gate, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let path = &options.gate_config;
    let (request, json) = match &options.command {
        GateCommand::Init(init) => return make(path, init, out),
        GateCommand::Serve => return serve(path, out),
        GateCommand::Take(take) => (by(Op::Take, &take.by, take.seen), take.by.json),
        GateCommand::Release(release) => (by(Op::Release, &release.by, None), release.by.json),
        GateCommand::Status(status) => (question(Op::Status, &status.gate), status.json),
    };
    let answer = ask(path, &request);
    let text = if json { answer.to_line() } else { render(&answer) };
    out.write_all(text.as_bytes())?;
    Ok(exit(answer.result))
}

fn make(path: &Path, init: &GateInit, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let gates = Gates::load(path)?;
    let gate =
        gates.gate(&init.gate).ok_or_else(|| anyhow::anyhow!("no gate {:?} in {}", init.gate, path.display()))?;
    let made = store::create(&gates.state, gate, Token(init.highest))?;
    writeln!(out, "Made {}, with token {}. The first take lets its node in.", made.display(), init.highest)?;
    Ok(ExitCode::from(DONE))
}

/// One question, one answer. What is no question gets an answer too, so that the other side can say why.
fn serve(path: &Path, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut line = Vec::new();
    // One byte more than allowed shows that it is too long.
    let limit = protocol::LONGEST_REQUEST as u64 + 1;
    std::io::stdin().lock().take(limit).read_until(b'\n', &mut line)?;
    let answer = match Request::parse(&line) {
        Ok(request) => ask(path, &request),
        Err(error) => Answer::new(Verdict::Error, error.to_string()),
    };
    out.write_all(answer.to_line().as_bytes())?;
    Ok(exit(answer.result))
}

fn ask(path: &Path, request: &Request) -> Answer {
    let failed = |text: String| Answer::to(request, Verdict::Error, text);
    let gates = match Gates::load(path) {
        Ok(gates) => gates,
        Err(error) => return failed(error.to_string()),
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let answer = runtime.block_on(arbiter::answer(&gates, request, backend));
            // A step that hangs in the kernel keeps the lock; nobody waits for it here.
            runtime.shutdown_background();
            answer
        }
        Err(error) => failed(format!("cannot start: {error}")),
    }
}

fn by(op: Op, by: &By, seen: Option<u64>) -> Request {
    Request { node: Some(by.node.clone()), token: Some(by.token), seen, ..question(op, &by.gate) }
}

fn question(op: Op, gate: &str) -> Request {
    let version = protocol::VERSION;
    Request {
        version,
        id: String::new(),
        gate: gate.to_owned(),
        op,
        node: None,
        token: None,
        seen: None,
        limit_ms: None,
    }
}

fn exit(verdict: Verdict) -> ExitCode {
    ExitCode::from(match verdict {
        Verdict::Taken | Verdict::Released | Verdict::Status => DONE,
        Verdict::Refused => REFUSED,
        Verdict::Unverified => UNVERIFIED,
        Verdict::Error => FAILED,
    })
}

fn render(answer: &Answer) -> String {
    let mut text = String::new();
    if !answer.text.is_empty() {
        text += &format!("{}\n", answer.text);
    }
    if let Some(highest) = answer.highest {
        let owner = answer.owner.as_deref().unwrap_or("nobody");
        text += &format!("highest token {highest}, owner {owner}, {}\n", answer.phase.as_deref().unwrap_or("?"));
    }
    for access in &answer.access {
        let state = match access.state {
            State::Admitted => "in",
            State::Excluded => "out",
            State::Unknown => "not known",
        };
        let why = if access.why.is_empty() { String::new() } else { format!(": {}", access.why) };
        text += &format!("{}: {state}{why}\n", access.node);
    }
    text
}
