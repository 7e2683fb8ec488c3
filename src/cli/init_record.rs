//! `leasehold init-record`: a node without a record may promote.

use std::io::Write;
use std::path::Path;

use super::exit::Exit;
use super::socket;
use crate::control::Op;

pub fn run(socket: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    socket::command(socket, Op::InitRecord)?;
    writeln!(out, "This node may promote without having heard its peer; see `leasehold status`.")?;
    Ok(Exit::Fine)
}
