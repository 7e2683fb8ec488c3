//! Stand-in for the protocol machine until it lands: heartbeats and nothing else.

use std::collections::VecDeque;

use super::*;

/// What the run-time record of this boot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTime {
    pub had_contact: bool,
    pub lease: Option<RunTimeLease>,
}

/// A lease that was armed in this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTimeLease {
    pub token: Token,
    pub deadline: Instant,
    pub sole: bool,
}

/// Stand-in.
#[derive(Debug)]
pub struct Status;

/// Stand-in.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    identity: Identity,
    record: Record,
    seq: u64,
    due: Instant,
    outputs: VecDeque<Output>,
}

impl Node {
    pub fn new(
        settings: Settings,
        identity: Identity,
        record: Option<Record>,
        _: Option<RunTime>,
        now: Instant,
    ) -> Node {
        let outputs = VecDeque::from([Output::Report(Event::Started { record_found: record.is_some() })]);
        Node { settings, identity, record: record.unwrap_or(Record::missing()), seq: 0, due: now, outputs }
    }

    pub fn handle_input(&mut self, _: Input, _: Instant) {}

    pub fn handle_timeout(&mut self, now: Instant) {
        if now >= self.due {
            self.due = now.after(self.settings.interval);
            self.seq += 1;
            self.outputs.push_back(Output::Send(Datagram {
                sender: self.settings.me,
                incarnation: self.identity.incarnation,
                boot: self.identity.boot,
                seq: Seq(self.seq),
                role: Role::Joining,
                claim: None,
                highest_token: Token::NONE,
                held_token: Token::NONE,
                holding: false,
                resources_up: false,
                standing: self.record.standing,
                admitted: None,
                wish: false,
                ready: false,
                activity: Activity::Idle,
                echo: None,
                grant: None,
                release: None,
                notices: Notices::default(),
                digest: self.settings.digest,
                uuid: self.identity.uuid,
            }));
        }
    }

    pub fn command(&mut self, _: Command, _: Instant) -> Result<(), Refusal> {
        Err(Refusal::NotPrimary)
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        Some(self.due)
    }

    pub fn status(&self, _: Instant) -> Status {
        Status
    }
}
