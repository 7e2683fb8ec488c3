//! Any ClusterLabs fence agent (`fence_apc`, `fence_redfish`, …), believed only where a separate `status` says so.
//!
//! ```text
//!   new:  metadata ── examine the options ── secrets fit the lines? ──▶ an agent that can be used, or the reason
//!   off:  status ── off ── status … until it reads off twice     each call: name=value lines on stdin, its own limit
//! ```
//!
//! The agents agree on little: an exit status of 1 means anything that went wrong, some have no limit on a device that
//! accepts a connection and never answers, `validate-all` asks no device. So every call has a limit of its own after
//! which its whole process group is killed, and of all their answers two count: `status` with exit 2 *and* the words
//! `Status: OFF`, or with exit 0 and `Status: ON`. Nothing is on the command line, and the environment is clean; what
//! the agent then does with a password is its own affair (`fence_ipmilan` hands it to ipmitool as an argument).

mod answer;
mod metadata;

use std::time::Duration;

use zeroize::Zeroizing;

use crate::config;
use crate::config::Severity;
use crate::config::fence_agent::{Examined, Metadata, Value, examine, parse, unfit};
use crate::core::{Scope, Token};
use crate::process::{Ending, Finished, check_owner, run};

use super::attempt::tidy;
use super::drive::{Answer, Switch, drive, settled};
use super::{Agent, Attempt, FenceError, Health, Outcome, Pending, Reading, Secret, Setup};

use answer::{reading_of, told};

pub use metadata::metadata_of;

/// A command may take half of the attempt: most agents wait until the device reads as wanted before they return.
const COMMANDS_PER_ATTEMPT: u32 = 2;
/// A reading may take a quarter: after a command that hung, two must still fit.
const READINGS_PER_ATTEMPT: u32 = 4;
/// More than an agent ever says; the rest is thrown away.
const OUTPUT_BOUND: usize = 64 * 1024;

/// One program with its options, aimed at one node.
#[derive(Debug)]
pub struct FenceAgent {
    scope: Scope,
    config: config::FenceAgent,
    /// Names as the agent knows them, in the order of the file.
    options: Vec<(String, Carried)>,
    /// Whether it has the action `monitor`, which looks at the device without asking for one outlet.
    monitors: bool,
    limit: Duration,
}

/// A value that the line protocol can carry.
#[derive(Debug)]
enum Carried {
    Plain(String),
    Secret(Secret),
}

impl Carried {
    fn bytes(&self) -> &[u8] {
        match self {
            Carried::Plain(text) => text.as_bytes(),
            Carried::Secret(secret) => secret.bytes(),
        }
    }
}

impl FenceAgent {
    /// Asks the program to describe itself, and refuses options that it would ignore, misread or not do without.
    pub fn new(setup: Setup<'_>, config: &config::FenceAgent) -> Result<FenceAgent, FenceError> {
        let agent = || setup.name.to_owned();
        check_owner(&config.program).map_err(|source| FenceError::Program { agent: agent(), source })?;
        let unusable = |why| FenceError::Unusable { agent: agent(), why };
        if let Some(why) = config.too_slow(setup.limit) {
            return Err(unusable(format!("{why}; shorten `poll`, or lengthen `timeout`")));
        }
        let text = metadata::ask(&config.program).map_err(unusable)?;
        let metadata: Metadata =
            parse(&text).map_err(|why| unusable(format!("{}: {why}", config.program.display())))?;
        let examined = examine(config, setup.scope, &metadata);
        refuse_errors(&examined).map_err(unusable)?;
        let mut options = Vec::new();
        for (given, name) in config.options.iter().zip(&examined.names) {
            options.push((name.clone(), carried(setup.name, &given.name, &given.value)?));
        }
        options.extend(
            examined.also.iter().map(|(name, value)| ((*name).to_owned(), Carried::Plain((*value).to_owned()))),
        );
        let (monitors, limit) = (metadata.offers("monitor"), setup.limit.into());
        Ok(FenceAgent { scope: setup.scope, config: config.clone(), options, monitors, limit })
    }

    /// Runs one action. The program is looked at again: whoever could exchange it since the start could fence at will.
    async fn call(&self, action: Action) -> Result<Finished, String> {
        check_owner(&self.config.program).map_err(|error| error.to_string())?;
        let program = metadata::bare(&self.config.program);
        let finished = run(&program, Some(self.input(action)), action.share_of(self.limit), OUTPUT_BOUND).await;
        finished.map_err(|error| error.to_string())
    }

    /// The lines for the program's stdin.
    fn input(&self, action: Action) -> Zeroizing<Vec<u8>> {
        let length = self.options.iter().map(|(name, value)| name.len() + value.bytes().len() + 2).sum::<usize>();
        // Room for all of it at once: growing would leave copies of secrets behind in freed memory.
        let mut lines = Zeroizing::new(Vec::with_capacity(length + 32));
        lines.extend_from_slice(format!("action={}\n", action.word()).as_bytes());
        for (name, value) in &self.options {
            for part in [name.as_bytes(), b"=", value.bytes(), b"\n"] {
                lines.extend_from_slice(part);
            }
        }
        lines
    }

    /// The action with the device, for the evidence.
    fn sent(&self, action: Action) -> String {
        let device = self.config.meant().map_or(String::new(), |meant| format!(" ({meant})"));
        format!("{} by {}{device}", action.word(), self.config.word())
    }

    /// What the program said and how it ended, without any secret.
    fn told(&self, finished: &Result<Finished, String>) -> String {
        let text = match finished {
            Ok(finished) => told(finished),
            Err(error) => error.clone(),
        };
        let scrubbed = self.options.iter().fold(text, |text, (_, value)| match value {
            Carried::Secret(secret) => secret.scrub(&text),
            Carried::Plain(_) => text,
        });
        tidy(&scrubbed)
    }

    async fn command(&self, action: Action, attempt: &Attempt) -> Answer {
        let finished = self.call(action).await;
        attempt.note(&self.sent(action), &self.told(&finished));
        match finished.map(|f| f.ending) {
            Ok(Ending::Exited(0)) => Answer::Accepted,
            // Exit 1 may be a no, a broken network or a device that is slow: none of these is a refusal for certain.
            Ok(Ending::Exited(_) | Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck) | Err(_) => Answer::Failed,
        }
    }

    /// The device's own answer to `monitor`, then the state of the target.
    async fn examine(&self, attempt: &Attempt) -> Health {
        let mut faults = Vec::new();
        if self.monitors {
            let finished = self.call(Action::Monitor).await;
            let text = self.told(&finished);
            attempt.note(&self.sent(Action::Monitor), &text);
            if !matches!(finished, Ok(Finished { ending: Ending::Exited(0), .. })) {
                faults.push(format!("{}: {text}", self.sent(Action::Monitor)));
            }
        }
        let finished = self.call(Action::Status).await;
        let (reading, text) = (reading(&finished), self.told(&finished));
        attempt.reading(&self.sent(Action::Status), &text, reading);
        if reading == Reading::Unknown {
            faults.push(format!("{}: {text}", self.sent(Action::Status)));
        }
        let notes =
            vec![format!("{} tells no identity: see that its options name the right device", self.config.word())];
        Health { reading, faults, notes }
    }
}

impl Switch for FenceAgent {
    async fn read(&self, attempt: &Attempt) -> Reading {
        let finished = self.call(Action::Status).await;
        let reading = reading(&finished);
        attempt.reading(&self.sent(Action::Status), &self.told(&finished), reading);
        reading
    }

    async fn switch(&self, to: Reading, attempt: &Attempt) -> Answer {
        self.command(if to == Reading::On { Action::On } else { Action::Off }, attempt).await
    }

    fn pace(&self) -> (u32, Duration) {
        (self.config.stable_reads, self.config.poll.into())
    }
}

impl Agent for FenceAgent {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(drive(self, Reading::Off, attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(settled(self, attempt))
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(self.examine(attempt))
    }

    fn on<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(drive(self, Reading::On, attempt))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Status,
    Monitor,
    Off,
    On,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Action::Status => "status",
            Action::Monitor => "monitor",
            Action::Off => "off",
            Action::On => "on",
        }
    }

    fn share_of(self, limit: Duration) -> Duration {
        match self {
            Action::Status | Action::Monitor => limit / READINGS_PER_ATTEMPT,
            Action::Off | Action::On => limit / COMMANDS_PER_ATTEMPT,
        }
    }
}

fn reading(finished: &Result<Finished, String>) -> Reading {
    finished.as_ref().map_or(Reading::Unknown, reading_of)
}

/// Every error at once, each with its remedy.
fn refuse_errors(examined: &Examined) -> Result<(), String> {
    let errors = examined.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let told: Vec<String> = errors.map(|f| format!("{}; {}", f.title, f.helps.join("; "))).collect();
    if told.is_empty() { Ok(()) } else { Err(told.join(". ")) }
}

fn carried(agent: &str, option: &str, value: &Value) -> Result<Carried, FenceError> {
    let agent = || agent.to_owned();
    let carried = match value {
        Value::Plain(text) => Carried::Plain(text.clone()),
        Value::Secret(source) => {
            let secret = Secret::read(source).map_err(|source| FenceError::Secret { agent: agent(), source })?;
            Carried::Secret(secret)
        }
    };
    match unfit(carried.bytes()) {
        None => Ok(carried),
        Some(what) => {
            let why = format!(
                "the value of `{option}` cannot reach the program: {what}, which its `name=value` lines cannot carry; set \
                 another in the device"
            );
            Err(FenceError::Unusable { agent: agent(), why })
        }
    }
}
