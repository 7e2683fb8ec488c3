//! `leasehold clear-alarms`: the operator has mended what they were about.

use std::io::Write;
use std::path::Path;

use super::exit::Exit;
use super::socket;
use crate::control::Op;

pub fn run(socket: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut client = socket::connect(socket)?;
    let alarms = socket::status(&mut client)?.alarms;
    socket::accepted(client.ask(Op::ClearAlarms)?)?;
    for alarm in &alarms {
        writeln!(out, "cleared: {}", alarm.text)?;
    }
    writeln!(out, "Alarms cleared on this node; those of the peer are cleared there.")?;
    Ok(Exit::Fine)
}
