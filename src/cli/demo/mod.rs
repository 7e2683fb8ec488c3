//! `leasehold demo`: a pair on one machine, killed and watched. Without root, and with nothing left behind.
//!
//! ```text
//!   story ──▶ Pair ──▶ World: a directory, two machines, their network, their BMCs
//!     │         └──── news of everything that happens
//!     ├──▶ show: lines and tables, pure            checker: judges of the history, pure ──▶ exit status
//! ```
//!
//! Daemons, fencing, service and history are real; what a second machine would be is a tree of processes
//! ([`machine`]), and what a network would be is a relay ([`partition`]).

pub mod bmc;
pub mod checker;
pub mod history;
pub mod ipmi;
pub mod machine;
pub mod pair;
pub mod partition;
pub mod procs;
pub mod report;
mod screen;
pub mod service;
pub mod show;
mod story;
pub mod world;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use super::args::Demo;
use super::exit::Exit;
use pair::Pair;
use screen::Screen;
use world::{Fencing, Keeper, Plan, Timing};

/// Runs the demo, or the report, to its end.
pub fn run(options: &Demo, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let fencing = fencing(options)?;
    if let Some(count) = options.report {
        return report::run(count, program()?, out);
    }
    let plan = Plan { keep: options.keep, ..Plan::new(program()?, Timing::DEMO, fencing) };
    let pair = Pair::build(plan)?;
    end_on_signals(pair.world.keeper())?;
    let moving = !options.plain && std::io::stdout().is_terminal();
    story::tell(pair, Screen::new(out, moving, !options.plain), options)
}

fn fencing(options: &Demo) -> anyhow::Result<Fencing> {
    if !options.ipmi {
        return Ok(Fencing::StandIn);
    }
    match ipmi::missing()[..] {
        [] => Ok(Fencing::Ipmi),
        ref missing => bail!(
            "--ipmi needs {}: install the packages ipmitool and openipmi, or leave --ipmi out",
            missing.join(" and ")
        ),
    }
}

/// This program: everything in the demo's world is a subcommand of it.
fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("where this program lies; is /proc mounted?")
}

/// A number that two demos do not share.
pub(crate) fn random() -> anyhow::Result<u64> {
    getrandom::u64().context("the kernel gives no random numbers")
}

/// Ctrl-C, a closed terminal, a polite kill: the world ends first, then this program.
fn end_on_signals(keeper: Keeper) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [mut interrupt, mut terminate, mut hangup] = [signal(kinds[0])?, signal(kinds[1])?, signal(kinds[2])?];
    drop(guard);
    let wait = move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => kinds[0].as_raw_value(),
                _ = terminate.recv() => kinds[1].as_raw_value(),
                _ = hangup.recv() => kinds[2].as_raw_value(),
            }
        });
        let told = match keeper.end() {
            Ok(()) => "interrupted; everything was switched off and removed".to_owned(),
            Err(error) => format!("interrupted; {error:#}"),
        };
        let _ = writeln!(anstream::stderr(), "\nleasehold: {told}");
        // As a shell tells of a program that a signal ended.
        std::process::exit(128 + number)
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("a thread").map(drop)
}
