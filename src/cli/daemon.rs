//! `leasehold daemon`: hands over to the daemon itself.

use std::path::PathBuf;

use super::args::{Daemon, Global};
use super::exit::Exit;

/// What the command line tells the daemon.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    pub config: PathBuf,
    /// Which node of the configuration this is; `None`: the one named like this machine.
    pub node: Option<String>,
    /// Overrides `control.socket` of the configuration.
    pub socket: Option<PathBuf>,
    /// Filter of the log, as `tracing_subscriber::EnvFilter` reads it.
    pub log: String,
}

/// Runs until the daemon ends. Its errors are for the journal: `main` prints them once.
pub fn run(global: Global, options: Daemon) -> anyhow::Result<Exit> {
    let Daemon { node, log } = options;
    crate::daemon::run(DaemonOptions { config: global.config, node, socket: global.socket, log })?;
    Ok(Exit::Fine)
}
