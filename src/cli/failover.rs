//! `leasehold failover`: planned handover, watched until the other node serves.

use std::io::Write;
use std::path::Path;

use super::args::Failover;
use super::exit::Exit;
use super::follow::{Follow, Seen};
use super::socket;
use crate::control::{Op, Role, Status};

enum End {
    HandedOver,
    /// The peer could not, and this node serves again.
    Back(u64),
}

pub fn run(socket: &Path, options: &Failover, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Some(limit) = options.wait.limit() else {
        socket::command(socket, Op::Failover { force: options.force })?;
        writeln!(out, "Handover accepted; follow it with `leasehold status --watch`.")?;
        return Ok(Exit::Fine);
    };
    let mut follow = Follow::begin(socket, out)?;
    let before = socket::status(follow.client())?;
    socket::accepted(follow.client().ask(Op::Failover { force: options.force })?)?;
    let end = follow.until(limit, |seen| match seen {
        Seen::Status(status) => ended(&before, status),
        Seen::Decision(_) => None,
    })?;
    let (text, exit) = verdict(&before, end, options.wait.timeout);
    follow.say(&text)?;
    Ok(exit)
}

fn ended(before: &Status, now: &Status) -> Option<End> {
    let peer_serves = now.peer.said.as_ref().is_some_and(|said| said.role == Role::Primary);
    match (now.me.role, now.me.token) {
        (Role::Standby, _) if peer_serves => Some(End::HandedOver),
        (Role::Primary, Some(token)) if before.me.token.is_some_and(|old| token > old) => Some(End::Back(token)),
        _ => None,
    }
}

fn verdict(before: &Status, end: Option<End>, seconds: u32) -> (String, Exit) {
    let (me, peer) = (&before.me.name, &before.peer.name);
    match end {
        Some(End::HandedOver) => (format!("Done: {peer} serves, {me} is its standby."), Exit::Fine),
        Some(End::Back(token)) => {
            (format!("{peer} could not take over: {me} serves again, token {token}; see `leasehold why`."), Exit::Error)
        }
        None => (
            format!("Not finished after {seconds} s. It goes on; see `leasehold status` and `leasehold why`."),
            Exit::Error,
        ),
    }
}
