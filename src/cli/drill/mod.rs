//! `leasehold drill`: really fences the standby, brings it back, and holds what was measured against the configuration.
//!
//! The daemon does it and measures it; here is what comes before (may it be done, is it meant) and after (what follows
//! from the figures). When this command is interrupted, the drill goes on.

mod advice;

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use super::args::{self, Global};
use super::check;
use super::exit::Exit;
use super::follow::{Follow, Seen};
use super::page::{Page, Paint, terminal_width};
use super::socket;
use super::status::{Level, findings};
use crate::config::{self, Config};
use crate::control::{Drill, DrillState, Op, Reason, Role, Status};
use crate::core::{FirstShooter, Plan, Span};

pub use advice::{Advice, advice, figures};

/// The decisions that end a drill.
const DONE: &str = "drill-done";
const FAILED: &str = "drill-failed";
/// How much longer than the configuration allows it is watched.
const PATIENCE: u64 = 2;

pub fn run(global: &Global, options: &args::Drill, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let config = match config::load(&global.config) {
        Ok(checked) => checked.config,
        Err(diagnostics) => {
            return Ok(check::refused(&global.config, &diagnostics, out).map(|()| Exit::Error)?);
        }
    };
    let socket = global.socket.as_ref().unwrap_or(&config.control.socket);
    let status = socket::status(&mut socket::connect(socket)?)?;
    let reasons = reasons(&status, &config);
    if !reasons.is_empty() {
        out.write_all(refusal(&status, &reasons, terminal_width()).as_bytes())?;
        return Ok(Exit::Refused);
    }
    let standby = &status.peer.name;
    out.write_all(announcement(&status, &config, terminal_width()).as_bytes())?;
    let named = options.yes_fence.clone().map_or_else(|| ask(standby, out), Ok)?;
    if named != *standby {
        writeln!(out, "`{named}` is not `{standby}`: nothing was done.")?;
        return Ok(Exit::Refused);
    }
    let limit = options.timeout.map_or_else(|| patience(&config), |s| Duration::from_secs(s.into()));
    carry_out(socket, named, &config, limit, out)
}

fn carry_out(
    socket: &Path,
    standby: String,
    config: &Config,
    limit: Duration,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut follow = Follow::begin(socket, out)?;
    socket::accepted(follow.client().ask(Op::Drill { node: standby.clone() })?)?;
    let end = follow.until(limit, |seen| match seen {
        Seen::Decision(decision) => (decision.kind == DONE || decision.kind == FAILED).then_some(()),
        Seen::Status(_) => None,
    })?;
    let drill = socket::status(follow.client())?.last_drill;
    let Some(drill) = drill.filter(|_| end.is_some()) else {
        follow.say(&format!(
            "{standby} is not back after {} s; `leasehold why` shows how far it came.",
            limit.as_secs()
        ))?;
        return Ok(Exit::Error);
    };
    follow.say(&result(&drill, config, terminal_width()))?;
    Ok(if drill.state == DrillState::Ready { Exit::Fine } else { Exit::Error })
}

/// What stands in the way. A drill takes a standby away: everything else has to be well.
pub fn reasons(status: &Status, config: &Config) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut add = |text: String, remedy: Option<String>| {
        if !reasons.iter().any(|known: &Reason| known.text == text) {
            reasons.push(Reason { text, remedy });
        }
    };
    if status.me.role != Role::Primary {
        add(
            format!("{} is not the primary", status.me.name),
            Some("give the command on the primary; `leasehold status` names it".to_owned()),
        );
    }
    if !matches!(config.fence.plan, Plan::Node { .. }) {
        let text = "the fence plan has no agent of node scope: a drill could not switch the standby off and on";
        add(
            text.to_owned(),
            Some("`leasehold check --live` looks at the devices, without changing anything".to_owned()),
        );
    }
    let [needs, has] = lone_primary(config);
    if needs > has {
        add(
            format!("the loss of a standby would stop the service: proving it needs {needs}, the lease lasts {has}"),
            Some(
                "raise lease.term, or lower dead_after or the agents' limits; `leasehold explain` has the arithmetic"
                    .to_owned(),
            ),
        );
    }
    status.can_fail_over.reasons.iter().for_each(|r| add(r.text.clone(), r.remedy.clone()));
    findings(status).into_iter().filter(|f| f.level != Level::Note).for_each(|f| add(f.text, f.remedy));
    reasons
}

/// How long a primary takes to prove that its silent standby is harmless, and how long its lease lasts meanwhile.
fn lone_primary(config: &Config) -> [Span; 2] {
    let t = &config.timing;
    let head_start = match config.fence.first {
        FirstShooter::Primary => Span::ZERO,
        FirstShooter::Standby => t.head_start,
    };
    let needs = t.dead_after.plus(t.interval).plus(t.round_trip).plus(t.fence_bound).plus(head_start);
    [needs, t.term.minus(t.margin)]
}

/// A fence, the silence after it, its settling, a boot, and as much again.
fn patience(config: &Config) -> Duration {
    let t = &config.timing;
    let allowed = t.fence_bound.times(2).plus(t.dead_after).plus(t.settle).plus(t.boot_time).plus(t.join_wait);
    allowed.times(PATIENCE).into()
}

fn refusal(status: &Status, reasons: &[Reason], width: usize) -> String {
    let mut page = Page::new(width, true);
    page.wrapped("", &format!("No drill with {} now:", status.peer.name), Paint::Red);
    for reason in reasons {
        page.wrapped("  - ", &reason.text, Paint::Plain);
        reason.remedy.iter().for_each(|remedy| page.wrapped("    -> ", remedy, Paint::Bold));
    }
    page.into_text()
}

fn announcement(status: &Status, config: &Config, width: usize) -> String {
    let mut page = Page::new(width, true);
    let (me, standby) = (&status.me.name, &status.peer.name);
    let t = &config.timing;
    let settle = if t.settle == Span::ZERO { String::new() } else { format!(" and {} have passed", t.settle) };
    let text = format!(
        "This really switches {standby} off, at once and without a shutdown, by the fence plan (in at most {}), and on \
         again when it is silent{settle}. {me} goes on serving; until {standby} is back (a boot, {} by the \
         configuration) nobody could take over.",
        t.fence_bound, t.boot_time
    );
    page.wrapped("", &text, Paint::Yellow);
    page.into_text()
}

/// The figures, and what follows from them.
pub fn result(drill: &Drill, config: &Config, width: usize) -> String {
    let mut page = Page::new(width, true);
    let (text, paint) = match drill.state {
        DrillState::Ready => (format!("Done: {} was fenced, and is a ready standby again.", drill.node), Paint::Green),
        DrillState::Running | DrillState::Failed => {
            let text =
                format!("FAILED: see that {} is on, and `leasehold why`. It could not be relied upon.", drill.node);
            (text, Paint::Red)
        }
    };
    page.blank();
    page.wrapped("", &text, paint);
    page.list(&figures(drill));
    for Advice { text, remedy } in advice(drill, config) {
        page.wrapped("! ", &text, Paint::Yellow);
        page.wrapped("  -> ", &remedy, Paint::Bold);
    }
    page.into_text()
}

fn ask(standby: &str, out: &mut dyn Write) -> anyhow::Result<String> {
    write!(out, "Type the name of the standby to fence it ({} letters): ", standby.chars().count())?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
