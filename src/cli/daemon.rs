//! `leasehold daemon`: hands over to the daemon itself.

use super::args::{Daemon, Global};
use super::exit::Exit;
use crate::daemon::DaemonOptions;

/// Runs until the daemon ends. Its errors are for the journal: `main` prints them once.
pub fn run(global: Global, options: Daemon) -> anyhow::Result<Exit> {
    let Daemon { node, log, boot_id } = options;
    crate::daemon::run(DaemonOptions { config: global.config, node, socket: global.socket, log, boot_id })?;
    Ok(Exit::Fine)
}
