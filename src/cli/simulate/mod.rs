//! `leasehold simulate`: thousands of made-up worlds of the operator's own pair, and what they say about it.
//!
//! ```text
//!   config::Checked ┐
//!   figures ────────┴▶ worlds (the shipped core, in sim) ──▶ measure ──▶ render: text · JSON · html with plots
//!   faults ──────────▶   by two threads
//! ```
//! The same configuration, figures and number of worlds always give the same report: a world is its fault and seed.

pub mod faults;
pub mod figures;
mod html;
pub mod measure;
mod plot;
pub mod pool;
mod render;
mod worlds;

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};

use super::args::Simulate;
use super::exit::Exit;
use super::page::terminal_width;
use crate::config::{self, Checked};

use faults::Fault;
use figures::Figures;
use measure::{Assumed, Report, Worst};
use pool::Progress;
use worlds::{End, Job, Sample};

/// The shape of the JSON.
const VERSION: u32 = 1;
/// Worlds of each fault. With these the sample configuration takes some seconds, and its 99th percentile rests on 20.
const WORLDS: u32 = 2000;

/// Simulates the file at `path`. Status 0: simulated; 1: the daemon would not start with it, and why.
pub fn run(path: &Path, options: &Simulate, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let checked = match config::load(path) {
        Ok(checked) => checked,
        Err(diagnostics) => {
            writeln!(out, "{diagnostics}")?;
            writeln!(out, "{}: nothing to simulate; the daemon would not start", path.display())?;
            return Ok(Exit::Error);
        }
    };
    if let Some(seed) = options.seed {
        return replay(&checked, options, seed, out);
    }
    let report = simulate(&checked, options, Progress::on_a_terminal());
    if let Some(file) = &options.html {
        fs::write(file, html::page(&report)?).with_context(|| format!("writing {}", file.display()))?;
    }
    let text = if options.json { json(&report)? } else { render::text(&report, terminal_width()) };
    out.write_all(text.as_bytes())?;
    Ok(Exit::Fine)
}

fn json(report: &Report) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// Runs all worlds and measures them.
pub fn simulate(checked: &Checked, options: &Simulate, progress: Progress) -> Report {
    let figures = Figures::of(checked, options);
    let faults = asked_for(options);
    let jobs = jobs(&faults, options.worlds.unwrap_or(WORLDS));
    let (samples, simulated_hours) = pool::run(checked, &figures, &jobs, progress);
    let config = &checked.config;
    Report {
        version: VERSION,
        cluster: config.cluster.clone(),
        nodes: [config.nodes[0].name.clone(), config.nodes[1].name.clone()],
        assumed: Assumed::of(&figures),
        worlds: jobs.len() as u64,
        simulated_hours,
        faults: faults.iter().map(|fault| measure::row(&samples, *fault)).collect(),
        false_failovers: measure::false_failovers(&samples, &figures),
        both_acted: samples.iter().filter(|s| matches!(s.end, End::Ran(r) if r.both_acted)).count() as u64,
        broken: measure::broken(&samples),
        worst: measure::worst(&samples).map(|sample| worst(checked, &figures, sample)),
    }
}

fn asked_for(options: &Simulate) -> Vec<Fault> {
    if options.fault.is_empty() {
        return faults::USUAL.to_vec();
    }
    let mut faults: Vec<Fault> = Vec::new();
    for fault in &options.fault {
        if !faults.contains(fault) {
            faults.push(*fault);
        }
    }
    faults
}

/// Each fault in worlds of the same seeds, so that faults are compared in the same pairs; stalls in any case.
fn jobs(faults: &[Fault], worlds: u32) -> Vec<Job> {
    let stalls = [Fault::Stall].into_iter().filter(|stall| !faults.contains(stall));
    let all = faults.iter().copied().chain(stalls);
    all.flat_map(|fault| (1..=u64::from(worlds)).map(move |seed| Job { fault, seed })).collect()
}

fn worst(checked: &Checked, figures: &Figures, sample: &Sample) -> Worst {
    let lines = crate::sim::surviving(|| worlds::script(&worlds::play(checked, figures, sample.job, false)));
    Worst {
        fault: sample.job.fault.to_string(),
        seed: sample.job.seed,
        outage_ms: match sample.end {
            End::Ran(ran) => measure::lasting_ms(&ran),
            End::NeverWhole | End::FailedInCalm => None,
        },
        broken: measure::names(sample),
        script: lines.unwrap_or_default().iter().map(|line| named(line, checked)).collect(),
        job: Some(sample.job),
    }
}

/// One world again, with everything that happens in it.
fn replay(checked: &Checked, options: &Simulate, seed: u64, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let fault = match options.fault[..] {
        [] => Fault::PrimaryCrash,
        [fault] => fault,
        _ => bail!("a world has one fault: say with one --fault which one is to be replayed"),
    };
    let played = worlds::play(checked, &Figures::of(checked, options), Job { fault, seed }, true);
    writeln!(out, "fault {fault}, seed {seed}; times in seconds since both daemons started\n")?;
    out.write_all(named(&played.world.trace.text(0), checked).as_bytes())?;
    writeln!(out, "\n{}", render::end(&played.end))?;
    Ok(Exit::Fine)
}

/// The simulator has names of its own for the two nodes.
fn named(text: &str, checked: &Checked) -> String {
    let names = crate::sim::text::NAMES;
    let name_of = |word: &str| {
        let index = names.iter().position(|name| *name == word)?;
        Some(checked.config.nodes[index].name.as_str())
    };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut renamed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(is_letter) {
        let (before, from) = rest.split_at(begin);
        let (word, after) = from.split_at(from.find(|c| !is_letter(c)).unwrap_or(from.len()));
        renamed.extend([before, name_of(word).unwrap_or(word)]);
        rest = after;
    }
    renamed + rest
}
