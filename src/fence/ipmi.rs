//! Power control through a BMC by RMCP+, with `ipmitool` (IPMI v2.0 specification, chapters 13 and 28).
//!
//! `-C` is always given: without it ipmitool asks the BMC for its suites first and may lose ten seconds (casebook C04).
//! The password goes in through stdin, never through argv or the environment (C34). What the device says is told in
//! full, without the password.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::config::IpmiAgent;
use crate::core::{Scope, Span, Token};
use crate::process::{Ending, Finished, Program, check_owner, find_program, run};

use super::drive::{Answer, Switch, drive, settled};
use super::{Agent, Attempt, FenceError, Outcome, Pending, Reading, Secret};

/// IPMI v2.0, 22.30: 20 bytes for a password in RMCP+; ipmitool cuts there without a word.
const MAX_PASSWORD: usize = 20;
/// IPMI v2.0, 22.28: 16 bytes for a user name.
const MAX_USER: usize = 16;
/// HMAC-SHA256 with AES, then the HMAC-SHA1 that older firmware has. Suite 0, no authentication, is never tried.
const SUITES: [u8; 2] = [17, 3];
/// The longest that one call of ipmitool may take: it sends three times, a second apart, in each step.
const LONGEST_CALL: Duration = Duration::from_secs(4);
/// One agent's time must hold more than one call, or a silent suite 17 would use it up before suite 3 is tried.
const CALLS_PER_ATTEMPT: u32 = 3;
/// More than ipmitool ever prints for these commands.
const OUTPUT_BOUND: usize = 16 * 1024;
/// What ipmitool tells on stderr with `-v` that explains nothing.
const NOISE: [&str; 5] =
    ["Loading IANA", "Running Get VSO", "Discovered IPMB", "Get HPM.x", "Invalid completion code received"];

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

    /// The suites to try, in order: the pinned one alone, else what worked last, else the strongest first.
    fn suites(&self) -> Vec<u8> {
        match (self.config.cipher_suite, self.worked.load(Ordering::Relaxed)) {
            (Some(pinned), _) => vec![pinned],
            (None, 0) => SUITES.to_vec(),
            (None, worked) => std::iter::once(worked).chain(SUITES.into_iter().filter(|s| *s != worked)).collect(),
        }
    }

    /// Gives one verb to the BMC, by the first suite that gets a session.
    async fn exchange(&self, verb: Verb, attempt: &Attempt) -> Reply {
        let mut reply = Reply::Failed(String::new());
        for suite in self.suites() {
            reply = self.call(verb, suite).await;
            let sent = format!("chassis power {} to {} (cipher suite {suite})", verb.word(), self.config.address);
            match &reply {
                Reply::Power(reading, text) => attempt.reading(&sent, text, *reading),
                Reply::Refused(text) => attempt.refusal(&sent, text, None),
                Reply::Accepted(text) => attempt.note(&sent, text),
                Reply::Failed(text) if verb == Verb::Status => attempt.reading(&sent, text, Reading::Unknown),
                Reply::Failed(text) => attempt.note(&sent, text),
            }
            if !matches!(reply, Reply::Failed(_)) {
                self.worked.store(suite, Ordering::Relaxed);
                break;
            }
        }
        reply
    }

    async fn call(&self, verb: Verb, suite: u8) -> Reply {
        let program = Program::new(&self.program).args(self.arguments(verb, suite)).env("LC_ALL", "C");
        match run(&program, Some(self.password.to_input()), self.call_limit, OUTPUT_BOUND).await {
            Err(error) => Reply::Failed(error.to_string()),
            Ok(finished) => parse(verb, &self.config.address, &finished, &|text| self.password.scrub(text)),
        }
    }

    fn arguments(&self, verb: Verb, suite: u8) -> Vec<String> {
        let c = &self.config;
        let (port, suite) = (c.port.to_string(), suite.to_string());
        // The descriptor of stdin is a pipe: the password is gone once it has been read.
        let words = ["-I", "lanplus", "-v", "-C", &suite, "-H", &c.address, "-p", &port, "-U", &c.user];
        let more = ["-L", &c.privilege, "-N", "1", "-R", "2", "-f", "/proc/self/fd/0", "chassis", "power", verb.word()];
        words.into_iter().chain(more).map(str::to_owned).collect()
    }
}

impl Switch for Ipmi {
    async fn read(&self, attempt: &Attempt) -> Reading {
        match self.exchange(Verb::Status, attempt).await {
            Reply::Power(reading, _) => reading,
            Reply::Accepted(_) | Reply::Refused(_) | Reply::Failed(_) => Reading::Unknown,
        }
    }

    async fn switch(&self, to: Reading, attempt: &Attempt) -> Answer {
        let verb = if to == Reading::On { Verb::On } else { Verb::Off };
        match self.exchange(verb, attempt).await {
            Reply::Accepted(_) => Answer::Accepted,
            Reply::Refused(_) => Answer::Refused,
            Reply::Power(..) | Reply::Failed(_) => Answer::Failed,
        }
    }

    fn pace(&self) -> (u32, Duration) {
        (self.config.stable_reads, self.config.poll.into())
    }
}

impl Agent for Ipmi {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(drive(self, Reading::Off, attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(settled(self, attempt))
    }

    fn on<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(drive(self, Reading::On, attempt))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Status,
    Off,
    On,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Verb::Status => "status",
            Verb::Off => "off",
            Verb::On => "on",
        }
    }

    /// How ipmitool names the act in its answers.
    fn act(self) -> &'static str {
        match self {
            Verb::Status => "",
            Verb::Off => "Down/Off",
            Verb::On => "Up/On",
        }
    }
}

/// What came back, with its text, secrets removed.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Power(Reading, String),
    Accepted(String),
    /// The BMC itself answered with a completion code other than 0.
    Refused(String),
    /// No session, no answer, or nothing that can be understood.
    Failed(String),
}

/// Finds the one line that counts; lines before and after it do not disturb (casebook C04).
fn parse(verb: Verb, address: &str, finished: &Finished, scrub: &dyn Fn(&str) -> String) -> Reply {
    let (stdout, stderr) = (finished.stdout_text(), finished.stderr_text());
    let says = |line: &str| stdout.lines().any(|l| l.trim() == line);
    let told = |line: &str| scrub(line);
    match (verb, says("Chassis Power is on"), says("Chassis Power is off")) {
        (Verb::Status, true, false) => return Reply::Power(Reading::On, told("Chassis Power is on")),
        (Verb::Status, false, true) => return Reply::Power(Reading::Off, told("Chassis Power is off")),
        (Verb::Status, ..) => {}
        (Verb::Off | Verb::On, ..) => {
            let accepted = format!("Chassis Power Control: {}", verb.act());
            if says(&accepted) {
                return Reply::Accepted(told(&accepted));
            }
            let no = format!("Set Chassis Power Control to {} failed", verb.act());
            if let Some(line) = stderr.lines().find(|l| l.trim().starts_with(&no)) {
                return Reply::Refused(told(line));
            }
        }
    }
    Reply::Failed(scrub(&explain(address, finished, &stderr)))
}

/// Why there was no answer: ipmitool's own words, with what they mean.
fn explain(address: &str, finished: &Finished, stderr: &str) -> String {
    let lines = stderr.lines().map(str::trim).filter(|l| !l.is_empty());
    let words = lines.filter(|l| !NOISE.iter().any(|n| l.starts_with(n))).collect::<Vec<_>>().join("; ");
    let meaning = if stderr.contains("HMAC is invalid") {
        "the BMC refuses the password"
    } else if stderr.contains("unauthorized name") {
        "the BMC does not know this user, or not at this privilege"
    } else if stderr.contains("Set Session Privilege Level") {
        "the BMC does not give this user the privilege"
    } else if stderr.contains("algorithm") || stderr.contains("cipher suite") {
        "the BMC does not take this cipher suite"
    } else if stderr.contains("Get Auth Capabilities error")
        || stderr.contains("Could not open")
        || (finished.ending == Ending::TimedOut && words.is_empty())
    {
        "no answer from this address"
    } else {
        "no usable answer"
    };
    let ending = match finished.ending {
        Ending::Exited(_) => String::new(),
        Ending::Signalled(signal) => format!(" (ipmitool died of signal {signal})"),
        Ending::TimedOut => " (ipmitool ran into its limit)".to_owned(),
        Ending::Stuck => " (ipmitool hangs in the kernel)".to_owned(),
    };
    let quoted = if words.is_empty() { words } else { format!(": {words}") };
    format!("{address}: {meaning}{ending}{quoted}")
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

    fn finished(ending: Ending, stdout: &str, stderr: &str) -> Finished {
        Finished { ending, stdout: stdout.into(), stderr: stderr.into(), dropped: 0 }
    }

    fn reply(verb: Verb, stdout: &str, stderr: &str) -> Reply {
        parse(verb, "bmc", &finished(Ending::Exited(1), stdout, stderr), &str::to_owned)
    }

    #[test]
    fn noise_around_the_status_does_not_disturb_it() {
        let noisy = "Unable to Get Channel Cipher Suites\nChassis Power is off\r\nGet HPM.x failed\n";
        assert!(matches!(reply(Verb::Status, noisy, "anything"), Reply::Power(Reading::Off, _)));
    }

    #[test]
    fn only_the_exact_word_is_off() {
        for said in ["", "Chassis Power is offline", "Chassis Power is soft-off", "xChassis Power is off"] {
            assert!(matches!(reply(Verb::Status, said, ""), Reply::Failed(_)), "{said}");
        }
        let both = "Chassis Power is on\nChassis Power is off\n";
        assert!(matches!(reply(Verb::Status, both, ""), Reply::Failed(_)));
    }

    #[test]
    fn a_completion_code_is_a_refusal_and_a_lost_session_is_not() {
        let no = "Set Chassis Power Control to Down/Off failed: Command not supported in present state";
        assert_eq!(reply(Verb::Off, "", no), Reply::Refused(no.to_owned()));
        let lost = "Error: Unable to establish IPMI v2 / RMCP+ session";
        assert!(matches!(reply(Verb::Off, "", lost), Reply::Failed(_)));
    }

    #[test]
    fn the_reason_of_a_failure_is_named() {
        for (said, meaning) in [
            ("> RAKP 2 HMAC is invalid", "refuses the password"),
            ("RAKP 2 message indicates an error : unauthorized name", "does not know this user"),
            ("Error in open session response message : invalid authentication algorithm", "this cipher suite"),
            ("Get Auth Capabilities error", "no answer from this address"),
        ] {
            let Reply::Failed(text) = reply(Verb::Status, "", said) else { panic!("{said} is no failure") };
            assert!(text.contains(meaning) && text.contains(said), "{text}");
        }
    }

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
