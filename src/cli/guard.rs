//! `leasehold guard`: hands over to the guard itself.

use super::args::Guard;
use super::exit::Exit;
use crate::guard::GuardOptions;

/// Runs until it is told to end.
pub fn run(options: Guard) -> anyhow::Result<Exit> {
    let Guard { runtime, boot_id, on_reset } = options;
    crate::guard::run(&GuardOptions { runtime, boot_id, on_reset })?;
    Ok(Exit::Fine)
}
