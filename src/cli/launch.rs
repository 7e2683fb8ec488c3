//! `leasehold launch`: what systemd starts in the units of agents and resources. Not for people.

use super::exit::Exit;

/// Runs what the daemon at the other end of the standard input asks for.
pub fn run() -> anyhow::Result<Exit> {
    crate::process::unit::launch()?;
    Ok(Exit::Fine)
}
