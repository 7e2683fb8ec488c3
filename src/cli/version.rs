//! `leasehold version`: of this program, and of the daemon that runs, which an upgrade may have left behind.

use std::io::Write;
use std::path::Path;

use super::exit::Exit;
use super::socket;
use crate::control::{Answer, ClientError, Op};

pub fn run(socket: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let program = env!("CARGO_PKG_VERSION");
    writeln!(out, "leasehold {program}, control protocol {}", crate::control::VERSION)?;
    match socket::connect(socket).and_then(|mut client| client.ask(Op::Version)) {
        Ok(Answer::Version(daemon)) => {
            writeln!(out, "daemon    {}, control protocol {}, wire {}", daemon.program, daemon.control, daemon.wire)?;
            if daemon.program != program {
                writeln!(out, "The daemon is of another version: restart it (the lease survives that).")?;
            }
        }
        Ok(other) => return Err(socket::unexpected(&other).into()),
        Err(ClientError::NotRunning { .. }) => writeln!(out, "daemon    not running")?,
        Err(error) => return Err(error.into()),
    }
    Ok(Exit::Fine)
}
