//! `leasehold daemon`: hands over to the daemon itself.

use super::args::{Daemon, Global};
use super::exit::Exit;
use crate::daemon::{DaemonOptions, End};

/// Runs until the daemon ends. Its errors are for the journal: `main` prints them once.
pub fn run(global: Global, options: Daemon) -> anyhow::Result<Exit> {
    let Daemon { node, log, boot_id, units, test_hooks } = options;
    let (config, socket) = (global.config, global.socket);
    Ok(match crate::daemon::run(DaemonOptions { config, node, socket, log, boot_id, units, test_hooks })? {
        End::InOrder => Exit::Fine,
        End::Kept => Exit::Kept,
    })
}
