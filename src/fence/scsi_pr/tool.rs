//! `sg_persist` of sg3-utils: one command to one path, and what the target said to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fence::Attempt;
use crate::process::{Ending, Finished, Program, run};

/// More than 8 KiB of reservation data ever print.
const OUTPUT_BOUND: usize = 64 * 1024;
/// Exit codes of sg3_utils(8).
const EXIT_GOOD: i32 = 0;
const EXIT_ILLEGAL_REQUEST: i32 = 5;
const EXIT_UNIT_ATTENTION: i32 = 6;
const EXIT_INVALID_OPCODE: i32 = 9;
const EXIT_CONFLICT: i32 = 24;
/// A target has one news at a time to tell (preempted, reset, capacity changed); four commands hear all of them.
const ATTENTIONS: u32 = 4;
/// "Write exclusive, registrants only", SPC-4 table 70: the only type that lets one node write over several paths.
const TYPE: &str = "5";

/// What a target says to a command. Only a later reading proves anything.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Good(String),
    /// RESERVATION CONFLICT: the key that the command names is not, or is no longer, there.
    Conflict,
    /// The target does not know the command, or this form of it.
    Illegal(String),
    /// No answer over this path, or none that can be used.
    Unanswered(String),
}

/// PERSISTENT RESERVE IN and OUT (SPC-4, 6.16 and 6.17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    ReadKeys,
    ReadReservation,
    ReadFullStatus,
    ReportCapabilities,
    /// A compare-and-swap of this path's own key; zero is "not registered".
    Register {
        from: u64,
        to: u64,
        persist: Persist,
    },
    Reserve {
        own: u64,
    },
    Preempt {
        own: u64,
        victim: u64,
        abort: Abort,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persist {
    Yes,
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    Yes,
    No,
}

impl Verb {
    fn arguments(self) -> Vec<String> {
        let hex = |option: &str, key: u64| format!("--{option}={key:x}");
        let typed = || format!("--prout-type={TYPE}");
        match self {
            Verb::ReadKeys => vec!["--in".into(), "--read-keys".into()],
            Verb::ReadReservation => vec!["--in".into(), "--read-reservation".into()],
            Verb::ReadFullStatus => vec!["--in".into(), "--read-full-status".into()],
            Verb::ReportCapabilities => vec!["--in".into(), "--report-capabilities".into()],
            Verb::Register { from, to, persist } => {
                let mut words = vec!["--out".into(), "--register".into()];
                words.extend([hex("param-rk", from), hex("param-sark", to)]);
                words.extend((persist == Persist::Yes).then(|| "--param-aptpl".to_owned()));
                words
            }
            Verb::Reserve { own } => vec!["--out".into(), "--reserve".into(), hex("param-rk", own), typed()],
            Verb::Preempt { own, victim, abort } => {
                let how = if abort == Abort::Yes { "--preempt-abort" } else { "--preempt" };
                vec!["--out".into(), how.into(), hex("param-rk", own), hex("param-sark", victim), typed()]
            }
        }
    }
}

/// The program, with the time that one call may take.
#[derive(Debug)]
pub struct Tool {
    pub program: PathBuf,
    pub limit: Duration,
}

impl Tool {
    /// Gives one command to one path and notes both sides of it.
    pub async fn call(&self, path: &Path, verb: Verb, attempt: &Attempt) -> Said {
        let arguments = verb.arguments();
        let sent = format!("{} to {}", arguments[1..].join(" ").replace("--", ""), path.display());
        let program = Program::new(&self.program)
            .args(["--no-inquiry"])
            .args(arguments)
            .args([path.to_string_lossy()])
            .env("LC_ALL", "C");
        let mut said = Said::Unanswered(String::new());
        for _ in 0..ATTENTIONS {
            let (news, text) = match run(&program, None, self.limit, OUTPUT_BOUND).await {
                Ok(finished) => (finished.ending == Ending::Exited(EXIT_UNIT_ATTENTION), judge(&finished)),
                Err(error) => (false, Said::Unanswered(error.to_string())),
            };
            said = text;
            attempt.note(&sent, &said.told());
            if !news {
                break;
            }
        }
        said
    }
}

impl Said {
    fn told(&self) -> String {
        match self {
            Said::Good(text) if text.trim().is_empty() => "good".to_owned(),
            Said::Good(text) => text.clone(),
            Said::Conflict => "reservation conflict".to_owned(),
            Said::Illegal(text) | Said::Unanswered(text) => text.clone(),
        }
    }
}

fn judge(finished: &Finished) -> Said {
    let words = finished.stderr_text().split_whitespace().collect::<Vec<_>>().join(" ");
    match finished.ending {
        Ending::Exited(EXIT_GOOD) if finished.dropped == 0 => Said::Good(finished.stdout_text()),
        Ending::Exited(EXIT_GOOD) => Said::Unanswered("an answer without end".to_owned()),
        Ending::Exited(EXIT_CONFLICT) => Said::Conflict,
        Ending::Exited(EXIT_ILLEGAL_REQUEST | EXIT_INVALID_OPCODE) => {
            Said::Illegal(format!("the target does not take this command: {words}"))
        }
        Ending::Exited(code) => Said::Unanswered(format!("exit status {code}: {words}")),
        Ending::Signalled(signal) => Said::Unanswered(format!("sg_persist died of signal {signal}: {words}")),
        Ending::TimedOut => Said::Unanswered(format!("no answer within the limit of a call {words}")),
        Ending::Stuck => Said::Unanswered(format!("sg_persist hangs in the kernel {words}")),
    }
}
