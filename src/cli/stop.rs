//! `leasehold stop`: a clean end of the daemon, or with `--keep-resources` of the daemon alone.
//!
//! ```text
//!   keep:  freeze ─▶ durable on both nodes (the daemon refuses before that) ─▶ stop, resources stay
//! ```

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::args::Stop;
use super::exit::Exit;
use super::follow::{Follow, Seen};
use super::socket;
use crate::control::{ClientError, LeaseKind, Op, Role, Status};

/// How often it is tried whether the daemon still answers, once it said that it ends.
const PERIOD: Duration = Duration::from_millis(100);

/// Tries before a daemon that ends, and does not, is told of: 10 s.
const TRIES: u32 = 100;

pub fn run(socket: &Path, options: &Stop, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let limit = Duration::from_secs(options.timeout.into());
    if options.keep_resources {
        return keep(socket, limit, out);
    }
    if !options.wait {
        socket::command(socket, Op::Stop { keep_resources: false })?;
        writeln!(out, "Stop accepted; under systemd use `systemctl stop leasehold`, which also waits.")?;
        return Ok(Exit::Fine);
    }
    let mut follow = Follow::begin(socket, out)?;
    if has_ended(socket, &mut follow, false, limit)? {
        follow.say("Stopped.")?;
        return Ok(Exit::Fine);
    }
    follow.say(&format!("Still stopping after {} s; see `journalctl -u leasehold`.", options.timeout))?;
    Ok(Exit::Error)
}

/// Freezes first, where that was not done, and takes nothing back: a frozen pair is safe, and `thaw` ends it.
fn keep(socket: &Path, limit: Duration, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut follow = Follow::begin(socket, out)?;
    let status = socket::status(follow.client())?;
    if status.me.role == Role::Primary && !status.frozen {
        socket::accepted(follow.client().ask(Op::Freeze)?)?;
        follow.until(limit, |seen| match seen {
            Seen::Status(status) => is_frozen(status).then_some(()),
            Seen::Decision(_) => None,
        })?;
    }
    // Whether all of it is durable on both nodes the daemon knows, and refuses otherwise, with what to do.
    if has_ended(socket, &mut follow, true, limit)? {
        tell_kept(&mut follow, &status)?;
        return Ok(Exit::Fine);
    }
    follow.say("The daemon does not end; its resources are as they were. See `journalctl -u leasehold`.")?;
    Ok(Exit::Error)
}

fn is_frozen(status: &Status) -> bool {
    status.frozen && status.lease.kind == LeaseKind::Sole && status.record.writing_ms.is_none()
}

fn tell_kept(follow: &mut Follow<'_>, status: &Status) -> anyhow::Result<()> {
    let (me, peer) = (&status.me.name, &status.peer.name);
    follow.say(&format!(
        "The daemon of {me} has ended. Its resources are UP, watched by nobody, and nothing fails over."
    ))?;
    follow.say("To go on:   systemctl start leasehold   and then   leasehold thaw")?;
    follow.say(&format!(
        "Until then, on {peer}: no `leasehold confirm-fenced` unless you saw that {me} has no power, for {peer} would start \
         beside it; and `leasehold fence` switches {me} off with all that runs there."
    ))
}

/// Orders the stop and waits until nobody answers any more.
fn has_ended(socket: &Path, follow: &mut Follow<'_>, keep_resources: bool, limit: Duration) -> anyhow::Result<bool> {
    let ending = match ordered(follow, keep_resources).and_then(|()| follow.until(limit, |_| None::<()>)) {
        Ok(_) => false,
        Err(error) if is_ending(&error) => true,
        Err(error) => return Err(error),
    };
    Ok(ending && is_gone(socket))
}

fn ordered(follow: &mut Follow<'_>, keep_resources: bool) -> anyhow::Result<()> {
    socket::accepted(follow.client().ask(Op::Stop { keep_resources })?)
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
