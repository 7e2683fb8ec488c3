//! `leasehold explain`: the written safety case of a configuration.
//!
//! ```text
//! config::Checked ──▶ model (what holds, and why) ──▶ render: text for people, or JSON
//! ```
//! Pure but for reading the file, and for asking a daemon that runs here how late it was woken. The times come from the
//! checker's own arithmetic.

mod advice;
pub mod assumptions;
mod limits;
mod model;
mod protection;
mod render;

use std::io::Write;
use std::path::Path;

use crate::config::{self, Checked};

use super::args::Explain;
use super::exit::Exit;
use super::page::terminal_width;
use super::socket;
use crate::control::Stalls;

pub use model::{Assumed, Bound, Case, Held, ResourceCase};
pub use protection::{Carrier, Protection};

/// Explains the file at `path`. Status 0: explained; 1: the daemon would not start with it, and why.
pub fn run(path: &Path, socket: &Path, options: &Explain, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match config::load(path) {
        Ok(checked) => {
            let case = Case { lateness: lateness_here(socket), ..Case::of(&checked) };
            let text = if options.json { json_of(&case)? } else { render::text(&case, terminal_width()) };
            out.write_all(text.as_bytes())?;
            Ok(Exit::Fine)
        }
        Err(diagnostics) => {
            writeln!(out, "{diagnostics}")?;
            writeln!(out, "{}: nothing to explain; the daemon would not start", path.display())?;
            Ok(Exit::Error)
        }
    }
}

/// Of a daemon that runs here and answers whoever asks; a case can be written without one.
fn lateness_here(socket: &Path) -> Option<Stalls> {
    let status = socket::status(&mut socket::connect(socket).ok()?).ok()?;
    Some(status.stalls)
}

/// For people, wrapped at `width` columns.
pub fn text(checked: &Checked, width: usize) -> String {
    render::text(&Case::of(checked), width)
}

/// For programs; one object with the fields of [`Case`].
pub fn json(checked: &Checked) -> serde_json::Result<String> {
    json_of(&Case::of(checked))
}

fn json_of(case: &Case) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(case)? + "\n")
}
