//! IPMI power control through `ipmitool` over RMCP+ (lanplus).
//!
//! ipmitool is run without a shell; the cipher suite is always named, because without one a call can lose ten seconds
//! to a BMC that ignores the question (casebook C04); the password comes over a pipe on stdin, byte for byte, and is in
//! no argument, environment or file of ours (C05, C34). Which machine the BMC controls is asked before anything is
//! believed or sent, if the machine that is meant has ever told its UUID.
//!
//! ```text
//!   off, on ──▶ status, and along with it Get System GUID ──▶ right or unknown ── command, status … until it holds
//!                                                       └──▶ another machine: nothing is sent
//! ```

mod aim;
mod answer;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::config::{IdentityCheck, IpmiAgent};
use crate::core::{Scope, Span, Token};
use crate::process::{Program, check_owner, find_program, run};

use super::drive::{drive, settled};
use super::{Agent, Attempt, FenceError, Health, Identity, Outcome, Pending, Reading, Secret};

use aim::Aimed;
use answer::{Reply, Verb, forms, level_name, parse};

/// IPMI v2.0, 22.30: 20 bytes for a password in RMCP+; ipmitool cuts there without a word.
const MAX_PASSWORD: usize = 20;
/// IPMI v2.0, 22.28: 16 bytes for a user name.
const MAX_USER: usize = 16;
/// HMAC-SHA256 with AES, and the HMAC-SHA1 that older firmware has. Suite 0, no authentication, is never tried.
const STRONG: u8 = 17;
const OLD: u8 = 3;
/// How long a BMC may take to say whether it knows suite 17, when nothing is known of it. Some stay silent; a slow one
/// that does know it is asked again with more time.
const QUESTION: Duration = Duration::from_secs(1);
/// The longest that one call of ipmitool may take: it sends three times, a second apart, in each step.
const LONGEST_CALL: Duration = Duration::from_secs(4);
/// One agent's time must hold more than one call, or a silent BMC would use it up with the first.
const CALLS_PER_ATTEMPT: u32 = 3;
/// More than ipmitool ever prints for these commands.
const OUTPUT_BOUND: usize = 16 * 1024;
/// Chassis Control needs the privilege of an operator (IPMI v2.0, appendix G).
const LEAST_PRIVILEGE: u8 = 3;

/// One BMC.
#[derive(Debug)]
pub struct Ipmi {
    scope: Scope,
    program: PathBuf,
    config: IpmiAgent,
    password: Secret,
    call_limit: Duration,
    /// The cipher suite that worked last; 0 while none has.
    worked: AtomicU8,
}

impl Ipmi {
    /// Checks everything that can be checked before the BMC is needed. `limit` is the time of one whole attempt.
    pub fn new(name: &str, scope: Scope, limit: Span, config: &IpmiAgent) -> Result<Ipmi, FenceError> {
        let agent = || name.to_owned();
        let untrusted = |source| FenceError::Program { agent: agent(), source };
        let program = find_program("ipmitool").map_err(untrusted)?;
        let password =
            Secret::read(&config.password).map_err(|source| FenceError::Secret { agent: agent(), source })?;
        Ipmi::with_program(name, scope, limit, config, password, program)
    }

    /// As [`Ipmi::new`], with a given program in place of `ipmitool` and a password already read.
    pub fn with_program(
        name: &str,
        scope: Scope,
        limit: Span,
        config: &IpmiAgent,
        password: Secret,
        program: PathBuf,
    ) -> Result<Ipmi, FenceError> {
        let agent = name.to_owned();
        check_password(name, &password)?;
        if config.user.len() > MAX_USER {
            return Err(FenceError::UserTooLong { agent, length: config.user.len(), limit: MAX_USER });
        }
        if config.cipher_suite == Some(0) {
            return Err(FenceError::NoCipher { agent });
        }
        check_owner(&program).map_err(|source| FenceError::Program { agent, source })?;
        let call_limit = (Duration::from(limit) / CALLS_PER_ATTEMPT).min(LONGEST_CALL);
        Ok(Ipmi { scope, program, config: config.clone(), password, call_limit, worked: AtomicU8::new(0) })
    }

    /// The cipher suite in use, as far as one has worked.
    pub fn cipher_suite(&self) -> Option<u8> {
        self.config.cipher_suite.or(match self.worked.load(Ordering::Relaxed) {
            0 => None,
            suite => Some(suite),
        })
    }

    /// What to try, in order: the pinned suite alone, else what worked last, else the strongest first, but briefly.
    fn trials(&self) -> VecDeque<Trial> {
        let trial = |suite, limit| Trial { suite, limit };
        let (full, brief) = (self.call_limit, self.call_limit.min(QUESTION));
        let trials = match (self.config.cipher_suite, self.worked.load(Ordering::Relaxed)) {
            (Some(pinned), _) => vec![trial(pinned, full)],
            (None, OLD) => vec![trial(OLD, full), trial(STRONG, full)],
            (None, STRONG) => vec![trial(STRONG, full), trial(OLD, full)],
            (None, _) => vec![trial(STRONG, brief), trial(OLD, full), trial(STRONG, full)],
        };
        trials.into()
    }

    /// Gives one verb to the BMC, by the first suite that gets a session.
    async fn exchange(&self, verb: Verb, attempt: &Attempt) -> Reply {
        let mut reply = Reply::Silent(String::new());
        let mut trials = self.trials();
        while let Some(Trial { suite, limit }) = trials.pop_front() {
            reply = self.call(verb, suite, limit).await;
            self.note(verb, suite, &reply, attempt);
            if reply.is_answer() {
                self.worked.store(suite, Ordering::Relaxed);
                break;
            }
            let silent = matches!(reply, Reply::Silent(_));
            // A BMC that has spoken this suite and is silent now will be so with another.
            if silent && self.worked.load(Ordering::Relaxed) == suite {
                break;
            }
            // It said no to this one; more time does not change that.
            if !silent {
                trials.retain(|t| t.suite != suite);
            }
        }
        reply
    }

    fn note(&self, verb: Verb, suite: u8, reply: &Reply, attempt: &Attempt) {
        let sent = format!("{} to {} (cipher suite {suite})", verb.told(), self.config.address);
        match reply {
            Reply::Power(reading, text) => attempt.reading(&sent, text, *reading),
            Reply::Refused(text) if matches!(verb, Verb::Off | Verb::On) => attempt.refusal(&sent, text, None),
            Reply::Failed(text) | Reply::Silent(text) if verb == Verb::Status => {
                attempt.reading(&sent, text, Reading::Unknown);
            }
            _ => attempt.note(&sent, reply.text()),
        }
    }

    async fn call(&self, verb: Verb, suite: u8, limit: Duration) -> Reply {
        let program = Program::new(&self.program).args(self.arguments(verb, suite)).env("LC_ALL", "C");
        match run(&program, Some(self.password.to_input()), limit, OUTPUT_BOUND).await {
            Err(error) => Reply::Failed(error.to_string()),
            Ok(finished) => parse(verb, &self.config.address, &finished, &|text| self.password.scrub(text)),
        }
    }

    fn arguments(&self, verb: Verb, suite: u8) -> Vec<String> {
        let c = &self.config;
        let (port, suite) = (c.port.to_string(), suite.to_string());
        // The descriptor of stdin is a pipe: the password is gone once it has been read.
        let words = ["-I", "lanplus", "-v", "-C", &suite, "-H", &c.address, "-p", &port, "-U", &c.user];
        let more = ["-L", &c.privilege, "-N", "1", "-R", "2", "-f", "/proc/self/fd/0"];
        words.into_iter().chain(more).chain(verb.words().iter().copied()).map(str::to_owned).collect()
    }

    async fn power(&self, attempt: &Attempt) -> Reading {
        match self.exchange(Verb::Status, attempt).await {
            Reply::Power(reading, _) => reading,
            Reply::Accepted(_) | Reply::Refused(_) | Reply::Guid(..) | Reply::Privilege(..) => Reading::Unknown,
            Reply::Failed(_) | Reply::Silent(_) => Reading::Unknown,
        }
    }

    async fn bring(&self, to: Reading, attempt: &Attempt) -> Outcome {
        let aimed = Aimed::new(self);
        tokio::select! {
            outcome = drive(&aimed, to, attempt) => outcome,
            why = aimed.wrong() => {
                attempt.refusal("(nothing)", &why, None);
                Outcome::Refused { highest: None }
            }
        }
    }

    async fn look(&self, attempt: &Attempt) -> Reading {
        let aimed = Aimed::new(self);
        tokio::select! {
            reading = settled(&aimed, attempt) => reading,
            why = aimed.wrong() => {
                attempt.reading("(nothing)", &why, Reading::Unknown);
                Reading::Unknown
            }
        }
    }

    /// Login and state, then privilege, then identity; each costs one session.
    async fn examine(&self, attempt: &Attempt) -> Health {
        let health = |reading| Health { reading, faults: Vec::new(), notes: Vec::new() };
        let reading = match self.exchange(Verb::Status, attempt).await {
            Reply::Power(reading, _) => reading,
            Reply::Silent(text) => return health(Reading::Unknown).fault(self.silence(&text)),
            reply => return health(Reading::Unknown).fault(reply.text()),
        };
        let suite = self.cipher_suite().map_or(String::new(), |suite| format!("cipher suite {suite}"));
        let health = self.with_privilege(health(reading).note(suite), attempt).await;
        self.with_identity(health, attempt).await
    }

    /// What the silence of this BMC may mean (casebook C08).
    fn silence(&self, text: &str) -> String {
        match self.config.independent_power {
            true => format!("{text}; the BMC or the network to it is down"),
            false => format!(
                "{text}; the BMC or the network to it is down, or its host has lost all power and the BMC with it"
            ),
        }
    }

    async fn with_privilege(&self, health: Health, attempt: &Attempt) -> Health {
        match self.exchange(Verb::Privilege, attempt).await {
            Reply::Privilege(level, text) if level < LEAST_PRIVILEGE => health.fault(format!(
                "{}: {text}, switching the power off needs {}; raise the privilege of the user {:?} in the BMC",
                self.config.address,
                level_name(LEAST_PRIVILEGE),
                self.config.user
            )),
            Reply::Privilege(level, _) => health.note(format!("privilege {}", level_name(level))),
            reply => health.note(format!("its privilege cannot be read: {}", reply.text())),
        }
    }

    async fn with_identity(&self, health: Health, attempt: &Attempt) -> Health {
        if self.config.identity == IdentityCheck::None {
            return health.note("identity is not compared (identity = \"none\")");
        }
        let seen = match self.exchange(Verb::Guid, attempt).await {
            Reply::Guid(seen, _) => seen,
            reply => return health.note(format!("the BMC names no system UUID: {}", reply.text())),
        };
        match (attempt.identify_among(&forms(seen)), attempt.expected()) {
            (Identity::Foreign, Some(expected)) => health.fault(self.foreign(expected, seen)),
            (Identity::Proven, _) => health.note(format!("system UUID {seen}, which is that of the node")),
            (Identity::Foreign | Identity::Unknown, _) => {
                health.note(format!("system UUID {seen}, not compared: the node has not told its own"))
            }
        }
    }
}

/// One suite and the time that it is given.
#[derive(Debug, Clone, Copy)]
struct Trial {
    suite: u8,
    limit: Duration,
}

impl Agent for Ipmi {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.bring(Reading::Off, attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(self.look(attempt))
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(self.examine(attempt))
    }

    fn on<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.bring(Reading::On, attempt))
    }
}

fn check_password(name: &str, password: &Secret) -> Result<(), FenceError> {
    let (agent, bytes) = (name.to_owned(), password.bytes());
    if bytes.len() > MAX_PASSWORD {
        return Err(FenceError::PasswordTooLong { agent, length: bytes.len(), limit: MAX_PASSWORD });
    }
    // ipmitool ends the password at the first of these without a word (lib/ipmi_main.c, password file).
    let unusable = [(b'\n', "a line break"), (b'\r', "a carriage return"), (b'\t', "a tab"), (0, "a zero byte")];
    match unusable.into_iter().find(|(byte, _)| bytes.contains(byte)) {
        Some((_, what)) => Err(FenceError::PasswordUnusable { agent, what }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_ipmi_or_ipmitool_would_change_is_refused() {
        let check = |bytes: &[u8]| check_password("bmc", &Secret::new(bytes.to_vec()));
        assert!(matches!(check(&[b'x'; 21]), Err(FenceError::PasswordTooLong { length: 21, limit: 20, .. })));
        for bytes in [&b"a\nb"[..], b"a\rb", b"a\tb", b"a\0b"] {
            assert!(matches!(check(bytes), Err(FenceError::PasswordUnusable { .. })));
        }
        for bytes in [&[b'x'; 20][..], b" edge ", b"\"barnacle\"", "größe".as_bytes()] {
            check(bytes).unwrap();
        }
    }
}
