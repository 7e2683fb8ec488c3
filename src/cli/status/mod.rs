//! `leasehold status`: one screen, what is wrong first.

mod findings;
mod render;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

pub use findings::{Finding, Level, findings};
pub use render::{render, woken_late};

use super::args;
use super::exit::Exit;
use super::page::terminal_width;
use super::socket;
use crate::control::Status;

/// How often `--watch` shows it again.
const PERIOD: Duration = Duration::from_secs(1);

/// Clears the screen and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(socket: &Path, options: &args::Status, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if options.watch {
        return watch(socket, options, out);
    }
    let status = socket::status(&mut socket::connect(socket)?)?;
    show(&status, options, out)?;
    Ok(if options.exit_code { health(&status) } else { Exit::Fine })
}

/// Goes on while the daemon is away: its restart is just what people watch.
fn watch(socket: &Path, options: &args::Status, out: &mut dyn Write) -> anyhow::Result<Exit> {
    loop {
        let picture = socket::connect(socket).map_err(Into::into).and_then(|mut client| socket::status(&mut client));
        if !options.json {
            out.write_all(CLEAR.as_bytes())?;
        }
        match picture {
            Ok(status) => show(&status, options, out)?,
            Err(error) if Exit::of(&error) == Exit::Unreachable => {
                writeln!(anstream::stderr(), "leasehold: {error:#}")?
            }
            Err(error) => return Err(error),
        }
        out.flush()?;
        std::thread::sleep(PERIOD);
    }
}

fn show(status: &Status, options: &args::Status, out: &mut dyn Write) -> anyhow::Result<()> {
    match (options.json, options.watch) {
        (true, true) => writeln!(out, "{}", serde_json::to_string(status)?)?,
        (true, false) => writeln!(out, "{}", serde_json::to_string_pretty(status)?)?,
        (false, _) => out.write_all(render(status, terminal_width(), true).as_bytes())?,
    }
    Ok(())
}

/// The exit status for monitoring: anything that wants a person.
fn health(status: &Status) -> Exit {
    let wrong = findings(status).iter().any(|finding| finding.level != Level::Note);
    if wrong { Exit::Degraded } else { Exit::Fine }
}
