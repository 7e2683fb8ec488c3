//! `leasehold fence`: shoot the peer by the plan, watched until the plan has ended.

use std::io::Write;
use std::path::Path;

use super::args::Fence;
use super::exit::Exit;
use super::follow::{Follow, Seen};
use super::socket;
use crate::control::{Op, Severity};

/// The decision that ends an ordered fence; it is loud when the fence failed.
const DONE: &str = "operator-fence-done";

pub fn run(socket: &Path, options: &Fence, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Some(limit) = options.wait.limit() else {
        socket::command(socket, Op::Fence)?;
        writeln!(out, "Fence ordered; follow it with `leasehold status --watch`.")?;
        return Ok(Exit::Fine);
    };
    let mut follow = Follow::begin(socket, out)?;
    socket::accepted(follow.client().ask(Op::Fence)?)?;
    let end = follow.until(limit, |seen| match seen {
        Seen::Decision(decision) if decision.kind == DONE => Some(decision.severity),
        Seen::Decision(_) | Seen::Status(_) => None,
    })?;
    let (text, exit) = match end {
        Some(Severity::Info | Severity::Notice) => ("Done: the fence is verified.".to_owned(), Exit::Fine),
        Some(Severity::Warning | Severity::Alarm) => {
            ("Not fenced: nothing may be assumed of the peer; see `leasehold status`.".to_owned(), Exit::Error)
        }
        None => (format!("Not finished after {} s; see `leasehold why`.", options.wait.timeout), Exit::Error),
    };
    follow.say(&text)?;
    Ok(exit)
}
