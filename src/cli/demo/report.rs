//! `leasehold demo --report COUNT`: what leasehold itself adds to a failover, and what an idle daemon costs.
//!
//! ```text
//!   last contact          D + L           attempt  agent's first call    agent's last call     first write
//!        |------- silence allowed -----------|-- overhead --|== agent's time ==|-- overhead ------|
//! ```
//!
//! Overhead is everything that is neither the silence allowed nor the agent's time: lateness of timers, start of
//! processes, the write of the record, and also the start of the service up to its first write.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::process::Signal;

use super::bmc;
use super::pair::{News, Pair, What};
use super::procs::Process;
use super::world::{BOTH, Fencing, Plan, Timing, name};
use crate::cli::exit::Exit;
use crate::config::{self, Checked};
use crate::control::Role;
use crate::core::{Instant, NodeId, Span};
use crate::os::clock;

/// 100 ms heartbeats on two links, as the aims say.
const TIMING: Timing = Timing { dead_after_ms: 600, head_start_ms: 500, ..Timing::DEMO };
const PATIENCE: Span = Span::from_secs(20);
/// How long an idle daemon is looked at.
const IDLE: Span = Span::from_secs(10);
const AIM_OVERHEAD: Span = Span::from_ms(15);
/// In thousandths of a percent of one core.
const AIM_CPU_MILLIPERCENT: u64 = 300;
const AIM_RSS_KIB: u64 = 12 * 1024;

/// One failover, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failover {
    killed: Instant,
    last_contact: Instant,
    attempt: Instant,
    agent: [Instant; 2],
    proof: Instant,
    promoted: Instant,
    written: Instant,
}

impl Failover {
    fn total(&self) -> Span {
        self.written.since(self.last_contact)
    }

    /// From the death of the primary until the other node's service wrote: what its clients missed.
    pub fn outage(&self) -> Span {
        self.written.since(self.killed)
    }

    /// The whole fence attempt, as the daemon saw it.
    pub fn fence_latency(&self) -> Span {
        self.proof.since(self.attempt)
    }

    /// From the end of the record's write until the service wrote.
    pub fn start_time(&self) -> Span {
        self.written.since(self.promoted)
    }

    fn agent_time(&self) -> Span {
        self.agent[1].since(self.agent[0])
    }

    fn overhead(&self, allowed: Span) -> Span {
        self.total().minus(allowed).minus(self.agent_time())
    }
}

/// Measures and prints.
pub fn run(count: u32, program: PathBuf, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut pair = Pair::build(Plan::new(program, TIMING, Fencing::StandIn))?;
    super::end_on_signals(pair.world.keeper())?;
    let failovers = fail_over_often(&mut pair, count, out)?;
    write!(out, "{}", distribution(&failovers))?;
    pair.until("the pair is whole", PATIENCE, |pair, _| Ok(pair.whole()))?;
    idle(&pair, out)?;
    Ok(Exit::Fine)
}

/// What `simulate` is held against: real failovers, and what they were measured on.
#[derive(Debug)]
pub struct Measured {
    pub config: Checked,
    pub failovers: Vec<Failover>,
    /// On the links of the last pair that was whole.
    pub round_trip: Span,
}

/// Measures failovers of real daemons, in a world of their own.
///
/// # Errors
/// The world cannot be made, or a failover does not come to its end.
pub fn measure(count: u32, program: PathBuf) -> anyhow::Result<Measured> {
    let mut pair = Pair::build(Plan::new(program, TIMING, Fencing::StandIn))?;
    let failovers = fail_over_often(&mut pair, count, &mut std::io::sink())?;
    let primary = pair.until("the pair is whole", PATIENCE, |pair, _| Ok(pair.whole()))?;
    let file = pair.world.home(primary).join("leasehold.toml");
    let config = config::load(&file).map_err(|diagnostics| anyhow!("{diagnostics}"))?;
    let links = pair.status(primary).context("the primary does not answer")?.links;
    let trips = links.iter().filter_map(|link| link.round_trip_us).max();
    let round_trip = Span(trips.context("no link has a round trip")? * 1000);
    Ok(Measured { config, failovers, round_trip })
}

fn fail_over_often(pair: &mut Pair, count: u32, out: &mut dyn Write) -> anyhow::Result<Vec<Failover>> {
    BOTH.into_iter().try_for_each(|node| pair.switch_on(node))?;
    let mut failovers = Vec::new();
    for number in 1..=count {
        let primary = pair.until("the pair is whole", PATIENCE, |pair, _| Ok(pair.whole()))?;
        let failover = fail_over(pair, primary)?;
        writeln!(out, "{}", told(number, &failover))?;
        out.flush()?;
        failovers.push(failover);
        pair.switch_on(primary)?;
    }
    Ok(failovers)
}

fn fail_over(pair: &mut Pair, primary: NodeId) -> anyhow::Result<Failover> {
    let standby = primary.peer();
    // A death has no favourite moment between two heartbeats.
    std::thread::sleep(Duration::from_millis(super::random()? % (2 * TIMING.interval_ms)));
    pair.skip_news();
    let killed = clock::now();
    pair.signal_all(primary, Signal::KILL)?;
    let mut heard: Vec<News> = Vec::new();
    let written = pair.until("the standby serves", PATIENCE, |_, news| {
        let Some(news) = news.filter(|news| news.node == standby) else { return Ok(None) };
        heard.push(news.clone());
        Ok(matches!(news.what, What::Wrote(_)).then_some(news.at))
    })?;
    let lost = decided(&heard, "peer-lost")?;
    let silence = silence(&lost.1).with_context(|| format!("no silence in {:?}", lost.1))?;
    let attempt = decided(&heard, "attempt-started")?.0;
    Ok(Failover {
        killed,
        last_contact: Instant(lost.0.0.saturating_sub(silence.0)),
        attempt,
        agent: bmc::calls_since(pair.world.directory(), name(primary), attempt)?,
        proof: decided(&heard, "proof-obtained")?.0,
        promoted: decided(&heard, "promoted")?.0,
        written,
    })
}

/// When a decision of this kind was made, and its text.
fn decided(heard: &[News], kind: &str) -> anyhow::Result<(Instant, String)> {
    let found = heard.iter().rev().find_map(|news| match &news.what {
        What::Decided(decision) if decision.kind == kind => Some((news.at, decision.text.clone())),
        _ => None,
    });
    found.with_context(|| format!("the standby took over without the decision {kind}"))
}

/// The figure in "silent for 1.501s" or "silent for 751ms".
fn silence(text: &str) -> Option<Span> {
    let word = text.split("silent for ").nth(1)?.split_whitespace().next()?;
    let ms = match (word.strip_suffix("ms"), word.strip_suffix('s')) {
        (Some(ms), _) => ms.parse().ok()?,
        (None, Some(seconds)) => (seconds.parse::<f64>().ok()? * 1000.0).round() as u64,
        (None, None) => return None,
    };
    Some(Span::from_ms(ms))
}

fn allowed() -> Span {
    Span::from_ms(TIMING.dead_after_ms + TIMING.head_start_ms)
}

fn told(number: u32, failover: &Failover) -> String {
    format!(
        "{number:>4}  kill to write {:>9}  agent {:>9}  overhead {:>8}",
        us(failover.outage()),
        us(failover.agent_time()),
        us(failover.overhead(allowed()))
    )
}

fn us(span: Span) -> String {
    format!("{:.2} ms", span.0 as f64 / 1e6)
}

/// How long one part of a failover took.
type Part = Box<dyn Fn(&Failover) -> Span>;

/// The quantiles of each part.
fn distribution(failovers: &[Failover]) -> String {
    let allowed = allowed();
    let parts: [(&str, Part); 9] = [
        ("from the kill to the first write", Box::new(Failover::outage)),
        ("total: from the last contact", Box::new(Failover::total)),
        ("fence agent", Box::new(Failover::agent_time)),
        ("OVERHEAD", Box::new(move |f| f.overhead(allowed))),
        ("  attempt started late by", Box::new(move |f| f.attempt.since(f.last_contact).minus(allowed))),
        ("  until the agent's first call", Box::new(|f| f.agent[0].since(f.attempt))),
        ("  from its last call to the proof", Box::new(|f| f.proof.since(f.agent[1]))),
        ("  the record's write", Box::new(|f| f.promoted.since(f.proof))),
        ("  start of the service, first write", Box::new(Failover::start_time)),
    ];
    let mut text = format!("\n{} failovers, silence allowed D + L = {allowed}\n", failovers.len());
    text += &format!("{:<37}{:>11}{:>11}{:>11}{:>11}\n", "", "least", "median", "9 of 10", "most");
    for (title, part) in &parts {
        let mut spans: Vec<Span> = failovers.iter().map(part).collect();
        let at = [0.0, 0.5, 0.9, 1.0].map(|part| us(quantile(&mut spans, part)));
        text += &format!("{title:<37}{:>11}{:>11}{:>11}{:>11}\n", at[0], at[1], at[2], at[3]);
    }
    let mut overheads: Vec<Span> = failovers.iter().map(|f| f.overhead(allowed)).collect();
    let median = quantile(&mut overheads, 0.5);
    text + &format!(
        "median overhead {}, aim below {}: {}\n",
        us(median),
        us(AIM_OVERHEAD),
        reached(median < AIM_OVERHEAD)
    )
}

fn quantile(spans: &mut [Span], part: f64) -> Span {
    spans.sort();
    spans[((spans.len() - 1) as f64 * part) as usize]
}

fn reached(so: bool) -> &'static str {
    if so { "reached" } else { "MISSED" }
}

/// CPU and memory of both daemons while nothing happens.
fn idle(pair: &Pair, out: &mut dyn Write) -> anyhow::Result<()> {
    let daemons = [pair.daemon(NodeId::First)?, pair.daemon(NodeId::Second)?];
    let roles = BOTH.map(|node| pair.status(node).map(|status| status.me.role));
    let before = [cpu(&daemons[0])?, cpu(&daemons[1])?];
    let begun = clock::now();
    std::thread::sleep(IDLE.into());
    let took = clock::now().since(begun);
    writeln!(out, "\nidle for {took}, heartbeats every {} ms on two links", TIMING.interval_ms)?;
    for node in BOTH {
        let daemon = &daemons[node.index()];
        let used = cpu(daemon)?.minus(before[node.index()]);
        let millipercent = u64::try_from(u128::from(used.0) * 100_000 / u128::from(took.0.max(1)))?;
        let (rss, own) = memory(daemon)?;
        writeln!(
            out,
            "{} ({}): {}.{:03} % of a core (aim {}), {} KiB resident, of it {} KiB its own (aim {})",
            name(node),
            roles[node.index()].map_or("silent".to_owned(), |role: Role| role.to_string()),
            millipercent / 1000,
            millipercent % 1000,
            reached(millipercent < AIM_CPU_MILLIPERCENT),
            rss,
            own,
            reached(rss < AIM_RSS_KIB)
        )?;
    }
    Ok(())
}

/// Time that all threads have spent on a processor, in nanoseconds: the clock ticks of `stat` are too coarse.
fn cpu(process: &Process) -> anyhow::Result<Span> {
    let mut total = 0;
    for thread in fs::read_dir(home(process).join("task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        total += first.context("schedstat has no figure; is CONFIG_SCHED_INFO missing in this kernel?")?;
    }
    Ok(Span(total))
}

/// Resident memory, and the part of it that no file backs, in KiB.
fn memory(process: &Process) -> anyhow::Result<(u64, u64)> {
    let text = fs::read_to_string(home(process).join("status"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    match (field("VmRSS:"), field("RssAnon:")) {
        (Some(rss), Some(own)) => Ok((rss, own)),
        _ => bail!("/proc/PID/status shows no VmRSS"),
    }
}

fn home(process: &Process) -> PathBuf {
    Path::new("/proc").join(process.pid.as_raw_nonzero().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silence_is_read_from_what_the_daemon_says() {
        use crate::core::Event;
        for ms in [751, 1501, 2000] {
            let text = Event::PeerLost { silence: Span::from_ms(ms), incident: 2 }.to_string();
            assert_eq!(silence(&text), Some(Span::from_ms(ms)), "{text}");
        }
        assert_eq!(silence("the peer was heard"), None);
    }

    #[test]
    fn overhead_is_what_neither_silence_nor_agent_explain() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let failover = Failover {
            killed: at(1050),
            last_contact: at(1000),
            attempt: at(2101),
            agent: [at(2103), at(2320)],
            proof: at(2321),
            promoted: at(2325),
            written: at(2331),
        };
        assert_eq!(failover.total(), Span::from_ms(1331));
        assert_eq!(failover.overhead(allowed()), Span::from_ms(14));
        let text = distribution(&[failover]);
        assert!(text.contains("OVERHEAD") && text.contains("reached"), "{text}");
    }
}
