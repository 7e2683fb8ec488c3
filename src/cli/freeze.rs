//! `leasehold freeze` and `leasehold thaw`.

use std::io::Write;
use std::path::Path;

use super::exit::Exit;
use super::socket;
use crate::control::Op;

pub fn freeze(socket: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    socket::command(socket, Op::Freeze)?;
    writeln!(out, "Frozen: no role changes, across restarts too, until `leasehold thaw`.")?;
    writeln!(out, "If the primary fails meanwhile, nobody takes over.")?;
    Ok(Exit::Fine)
}

pub fn thaw(socket: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    socket::command(socket, Op::Thaw)?;
    writeln!(out, "Thawing: role changes are allowed again once both nodes are in contact; see `leasehold status`.")?;
    Ok(Exit::Fine)
}
