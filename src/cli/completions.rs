//! `leasehold completions SHELL`: for the packages.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Args;
use super::exit::Exit;

pub fn run(shell: Shell, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "leasehold", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Fine)
}
