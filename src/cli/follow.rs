//! Watching a command to its end: decisions as they are made, and every change of roles.
//!
//! The command line reads no clock. Time is the daemon's uptime, which every status carries, so that a daemon that was
//! stopped for a while does not use up the operator's patience.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::socket;
use crate::control::{Client, Decision, Event, Role, Status, Watch};

/// How often the status is read while nothing is decided.
const POLL: Duration = Duration::from_millis(500);

/// What a command is watched with.
pub struct Follow<'a> {
    client: Client,
    watch: Watch,
    out: &'a mut dyn Write,
    shown: Option<Roles>,
}

/// What happened, for whoever waits for the end.
pub enum Seen<'a> {
    Decision(&'a Decision),
    Status(&'a Status),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Roles {
    mine: Role,
    token: Option<u64>,
    peer: Option<Role>,
}

impl<'a> Follow<'a> {
    /// Begins to watch, before the command is given: nothing that it causes is missed.
    pub fn begin(socket: &Path, out: &'a mut dyn Write) -> anyhow::Result<Follow<'a>> {
        let client = socket::connect(socket)?;
        let watch = socket::connect(socket)?.watch()?;
        Ok(Follow { client, watch, out, shown: None })
    }

    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub fn say(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// Shows what happens until `end` finds the end in it, or until `limit` has passed (`None`).
    pub fn until<T>(
        &mut self,
        limit: Duration,
        mut end: impl FnMut(Seen<'_>) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        let first = socket::status(&mut self.client)?;
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let last_ms = first.uptime_ms.saturating_add(limit_ms);
        self.show_roles(&first)?;
        loop {
            if let Some(event) = self.watch.next_within(POLL)? {
                self.show(&event)?;
                if let Event::Decision(decision) = &event
                    && let Some(done) = end(Seen::Decision(decision))
                {
                    return Ok(Some(done));
                }
            }
            let status = socket::status(&mut self.client)?;
            self.show_roles(&status)?;
            if let Some(done) = end(Seen::Status(&status)) {
                return Ok(Some(done));
            }
            if status.uptime_ms >= last_ms {
                return Ok(None);
            }
        }
    }

    fn show(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Decision(decision) => self.say(&format!("  {}  {}", clock(decision), decision.text)),
            Event::Missed(count) => self.say(&format!("  ({count} decisions not shown; `leasehold why` has them)")),
        }
    }

    fn show_roles(&mut self, status: &Status) -> anyhow::Result<()> {
        let peer = status.peer.said.as_ref().map(|said| said.role);
        let roles = Roles { mine: status.me.role, token: status.me.token, peer };
        if self.shown.as_ref() == Some(&roles) {
            return Ok(());
        }
        let peer = roles.peer.map_or("not heard".to_owned(), |role| role.to_string());
        let token = roles.token.map_or(String::new(), |token| format!(" (token {token})"));
        let text = format!("{} is {}{token}, {} is {peer}", status.me.name, roles.mine, status.peer.name);
        self.shown = Some(roles);
        self.say(&text)
    }
}

fn clock(decision: &Decision) -> String {
    decision.at.strftime("%H:%M:%S%.3f").to_string()
}
