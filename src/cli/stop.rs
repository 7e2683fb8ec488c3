//! `leasehold stop`: a clean end of the daemon.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::args::Stop;
use super::exit::Exit;
use super::follow::Follow;
use super::socket;
use crate::control::{ClientError, Op};

/// How often it is tried whether the daemon still answers, once it said that it ends.
const PERIOD: Duration = Duration::from_millis(100);

/// Tries before a daemon that ends, and does not, is told of: 10 s.
const TRIES: u32 = 100;

pub fn run(socket: &Path, options: &Stop, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if !options.wait {
        socket::command(socket, Op::Stop)?;
        writeln!(out, "Stop accepted; under systemd use `systemctl stop leasehold`, which also waits.")?;
        return Ok(Exit::Fine);
    }
    let mut follow = Follow::begin(socket, out)?;
    let limit = Duration::from_secs(options.timeout.into());
    let ending = match ordered(&mut follow).and_then(|()| follow.until(limit, |_| None::<()>)) {
        Ok(_) => false,
        Err(error) if is_ending(&error) => true,
        Err(error) => return Err(error),
    };
    if ending && is_gone(socket) {
        follow.say("Stopped.")?;
        return Ok(Exit::Fine);
    }
    follow.say(&format!("Still stopping after {} s; see `journalctl -u leasehold`.", options.timeout))?;
    Ok(Exit::Error)
}

fn ordered(follow: &mut Follow<'_>) -> anyhow::Result<()> {
    socket::accepted(follow.client().ask(Op::Stop)?)
}

/// The connection closed, or the daemon said that it is ending.
fn is_ending(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(ClientError::is_unreachable)
}

fn is_gone(socket: &Path) -> bool {
    (0..TRIES).any(|_| match socket::connect(socket) {
        Err(ClientError::NotRunning { .. }) => true,
        _ => {
            std::thread::sleep(PERIOD);
            false
        }
    })
}
