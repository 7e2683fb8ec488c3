//! `leasehold check`: everything that is wrong with a configuration, or what it means.

use std::io::{self, Write};
use std::path::Path;

use crate::config::{self, Checked, Diagnostics, Severity};
use crate::core::Plan;
use crate::daemon;

use super::exit::Exit;

/// Checks the file at `path` and tells the result to `out`. Status 0: the daemon would start with it (warnings
/// included); 1: it would not, or the answer could not be written.
pub fn run(path: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match config::load_with(path, &daemon::metadata_of) {
        Ok(checked) => accepted(path, &checked, out).map(|()| Exit::Fine),
        Err(diagnostics) => refused(path, &diagnostics, out).map(|()| Exit::Error),
    }
    .map_err(anyhow::Error::from)
}

pub(super) fn refused(path: &Path, diagnostics: &Diagnostics, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{diagnostics}")?;
    writeln!(out, "{}: {}; the daemon would not start", path.display(), counts(diagnostics))
}

fn accepted(path: &Path, checked: &Checked, out: &mut dyn Write) -> io::Result<()> {
    if !checked.warnings.is_empty() {
        writeln!(out, "{}", checked.warnings)?;
    }
    write!(out, "{}", render(checked))?;
    writeln!(out, "\n{}: {}", path.display(), counts(&checked.warnings))
}

/// What the configuration means: who, the parameters with their arithmetic, and what happens when. Pure.
pub fn render(checked: &Checked) -> String {
    let config = &checked.config;
    let [first, second] = &config.nodes;
    let mut text = format!("cluster {}: {} and {}\n", config.cluster, first.name, second.name);
    text += &format!("fence plan: {}\n", plan(config.fence.plan));
    text += &format!("digest: {} (must be the same on both nodes)\n", config.digest);
    text += &format!("\nparameters\n{}", checked.arithmetic);
    text += "\nwhat happens when\n";
    for event in &checked.arithmetic.facts {
        text += &format!("  {}\n    {}\n", event.what, event.then);
    }
    text
}

fn plan(plan: Plan) -> &'static str {
    match plan {
        Plan::Node { access: false } => "node scope: a take-over needs the peer's power read off",
        Plan::Node { access: true } => "node scope, with resource agents added",
        Plan::Exclusive => "exclusive: the storage is the arbiter, by `take`",
        Plan::Yielding => "yielding: only an admitted standby shoots, a lone primary stops",
        Plan::ConfirmOnly => "confirm-only: every take-over waits for an operator",
    }
}

fn counts(diagnostics: &Diagnostics) -> String {
    let count = |severity, word| match diagnostics.count(severity) {
        1 => format!("1 {word}"),
        n => format!("{n} {word}s"),
    };
    format!("{}, {}", count(Severity::Error, "error"), count(Severity::Warning, "warning"))
}
