//! The near end of `leasehold gate`: one question over ssh, one answer, and what it proves.
//!
//! ```text
//!   agent ── ssh -i KEY user@server (stdin: a line of JSON) ──▶ leasehold gate serve
//!         ◀─ a line of JSON ──
//! ```
//!
//! The key's forced command decides what runs on the other side; nothing that is sent can be anything but a question. The
//! answer counts only if it is one whole line that names this question, this gate and the very states that the verdict
//! stands for: `taken` without the target out and the caller in, in so many words, is [`Reading::Unknown`].

mod agent;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::config::GateClient;
use crate::core::{Seen, Take, TakeResult, Token};
use crate::gate::protocol::{Answer, LONGEST_ANSWER, Op, Request, State, VERSION, Verdict};
use crate::process::{Ending, Program, check_owner, find_program, run};

use super::{Attempt, FenceError, Health, Outcome, Reading, Setup};

pub use agent::GateAgent;

/// Between two tries of a take that was stored but not proven: the gate has work left that takes time (an expiring
/// client), and each try is a login of its own.
const AGAIN: Duration = Duration::from_millis(300);
/// ssh counts in seconds; a shorter wait than one cannot be asked for.
const LEAST_CONNECT: Duration = Duration::from_secs(1);
/// The part of an attempt's limit that is kept back from a call, so that what became of it can still be told.
const WORDS_SHARE: u32 = 8;
/// The part of an attempt's limit within which the server must at least have answered the telephone.
const CONNECT_SHARE: u32 = 3;

/// One gate, as one node asks it about one target.
#[derive(Debug)]
pub struct Client {
    program: Program,
    gate: String,
    target: String,
    caller: String,
    limit: Duration,
    /// Of the questions of this process, so that no answer is taken for that of another.
    asked: AtomicU64,
}

impl Client {
    pub fn new(setup: Setup<'_>, config: &GateClient) -> Result<Client, FenceError> {
        let limit = Duration::from(setup.limit);
        let limit = limit - limit / WORDS_SHARE;
        let program = match config.command.split_first() {
            Some((program, args)) => Program::new(program).args(args.iter().cloned()),
            None => ssh(setup.name, config, limit)?,
        };
        let untrusted = |source| FenceError::Program { agent: setup.name.to_owned(), source };
        check_owner(&program.path).map_err(untrusted)?;
        Ok(Client {
            program,
            gate: config.gate.clone(),
            target: setup.target.to_owned(),
            caller: setup.caller.to_owned(),
            limit,
            asked: AtomicU64::new(0),
        })
    }

    /// The compare-and-swap, again and again while it is stored but not proven; the caller drops it at its limit.
    pub async fn take(&self, take: Take, attempt: &Attempt) -> TakeResult {
        let sent = format!("take {}", take.new);
        let seen = match take.seen {
            Seen::AtMost(seen) => Some(seen.0),
            Seen::Whatever => None,
        };
        loop {
            let request = Request { token: Some(take.new.0), seen, ..self.question(Op::Take) };
            let answer = match self.ask(&request).await {
                Ok(answer) => answer,
                Err(why) => {
                    attempt.reading(&sent, &why, Reading::Unknown);
                    return TakeResult::Unknown;
                }
            };
            let told = told(&answer);
            match (answer.result, answer.highest.map(Token)) {
                (Verdict::Taken, Some(highest)) if highest == take.new && self.proves(&answer) => {
                    attempt.reading(&sent, &told, Reading::Off);
                    return TakeResult::Taken;
                }
                (Verdict::Refused, Some(highest)) if highest >= take.new || highest.minter() != take.new.minter() => {
                    attempt.refusal(&sent, &told, Some(highest));
                    return TakeResult::Refused { highest };
                }
                (Verdict::Unverified, _) => attempt.reading(&sent, &told, self.reading(&answer)),
                (..) => {
                    attempt.reading(&sent, &told, Reading::Unknown);
                    return TakeResult::Unknown;
                }
            }
            sleep(AGAIN).await;
        }
    }

    /// Whether the server lets the target in.
    pub async fn status(&self, attempt: &Attempt) -> Reading {
        match self.ask(&self.question(Op::Status)).await {
            Ok(answer) if answer.result == Verdict::Status => {
                let reading = self.reading(&answer);
                attempt.reading("status", &told(&answer), reading);
                reading
            }
            Ok(answer) => unreadable(attempt, &told(&answer)),
            Err(why) => unreadable(attempt, &why),
        }
    }

    pub async fn highest(&self, attempt: &Attempt) -> Option<Token> {
        match self.ask(&self.question(Op::Highest)).await {
            Ok(answer) => {
                attempt.note("highest", &told(&answer));
                answer.highest.filter(|_| answer.result == Verdict::Status).map(Token)
            }
            Err(why) => {
                attempt.note("highest", &why);
                None
            }
        }
    }

    /// Lets the target in beside the caller, which must own the stored token.
    pub async fn release(&self, token: Token, attempt: &Attempt) -> Outcome {
        let request = Request { token: Some(token.0), ..self.question(Op::Release) };
        let sent = format!("release with {token}");
        match self.ask(&request).await {
            Ok(answer) if answer.result == Verdict::Released && self.reading(&answer) == Reading::On => {
                attempt.reading(&sent, &told(&answer), Reading::On);
                Outcome::Confirmed
            }
            Ok(answer) if answer.result == Verdict::Refused => {
                let highest = answer.highest.map(Token);
                attempt.refusal(&sent, &told(&answer), highest);
                Outcome::Refused { highest }
            }
            Ok(answer) => {
                attempt.reading(&sent, &told(&answer), Reading::Unknown);
                Outcome::Unknown
            }
            Err(why) => {
                attempt.note(&sent, &why);
                Outcome::Unknown
            }
        }
    }

    /// Login, version, record, both nodes' names and the server's own view: all that a take will need.
    pub async fn prove(&self, attempt: &Attempt) -> Health {
        let answer = match self.ask(&self.question(Op::Status)).await {
            Ok(answer) => answer,
            Err(why) => {
                unreadable(attempt, &why);
                return Health { faults: vec![why], ..Health::of(Reading::Unknown) };
            }
        };
        let reading = self.reading(&answer);
        attempt.reading("status", &told(&answer), reading);
        let mut faults = Vec::new();
        if answer.result != Verdict::Status {
            faults.push(answer.text.clone());
        }
        for node in [&self.caller, &self.target] {
            match answer.of(node).map(|access| (access.state, &access.why)) {
                Some((State::Unknown, why)) => faults.push(format!("the server's view of {node} is not clear: {why}")),
                Some((State::Admitted | State::Excluded, _)) => {}
                None if answer.result == Verdict::Status => {
                    faults.push(format!("the gate {} does not know a node {node}", self.gate));
                }
                None => {}
            }
        }
        let owner = answer.owner.as_deref().unwrap_or("nobody");
        let notes = vec![
            format!("gate {}: token {}, owner {owner}", self.gate, answer.highest.unwrap_or_default()),
            format!("the gate runs leasehold {}", answer.program),
        ];
        Health { reading, faults, notes }
    }

    async fn ask(&self, request: &Request) -> Result<Answer, String> {
        let input = Zeroizing::new(request.to_line().into_bytes());
        let done = run(&self.program, Some(input), self.limit, LONGEST_ANSWER).await.map_err(|e| e.to_string())?;
        let said = done.stderr_text();
        let line = done.stdout.strip_suffix(b"\n").filter(|line| !line.contains(&b'\n') && done.dropped == 0);
        let answer = line.and_then(|line| serde_json::from_slice::<Answer>(line).ok());
        match (answer, done.ending) {
            (Some(answer), _) if answer.version != VERSION => Err(format!(
                "the gate speaks version {}, this node {VERSION}: install the same leasehold",
                answer.version
            )),
            // An answer to no question at all: the line did not arrive as it was sent.
            (Some(answer), _) if answer.result == Verdict::Error && answer.id.is_empty() => Err(answer.text),
            (Some(answer), _) if answer.id != request.id || answer.gate != request.gate => {
                Err("the gate answered another question".to_owned())
            }
            (Some(answer), Ending::Exited(_)) => Ok(answer),
            (_, ending) => Err(explain(ending, &said, &done.stdout_text())),
        }
    }

    fn question(&self, op: Op) -> Request {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        Request {
            version: VERSION,
            id: format!("{}-{}-{number}", self.caller, std::process::id()),
            gate: self.gate.clone(),
            op,
            node: Some(self.caller.clone()),
            token: None,
            seen: None,
            limit_ms: Some(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    fn reading(&self, answer: &Answer) -> Reading {
        match answer.of(&self.target).map(|access| access.state) {
            Some(State::Excluded) => Reading::Off,
            Some(State::Admitted) => Reading::On,
            Some(State::Unknown) | None => Reading::Unknown,
        }
    }

    /// The other node out and the caller in, both in the server's own view, and the caller its owner. The other node
    /// is the target, but for an agent by which a node lets itself in.
    fn proves(&self, answer: &Answer) -> bool {
        let is = |name: &str, state| answer.of(name).is_some_and(|access| access.state == state);
        let mut others = answer.access.iter().filter(|access| access.node != self.caller).peekable();
        let out = others.peek().is_some() && others.all(|access| access.state == State::Excluded);
        let target_out = self.target == self.caller || is(&self.target, State::Excluded);
        out && target_out && is(&self.caller, State::Admitted) && answer.owner.as_ref() == Some(&self.caller)
    }
}

fn unreadable(attempt: &Attempt, why: &str) -> Reading {
    attempt.reading("status", why, Reading::Unknown);
    Reading::Unknown
}

/// One key, one host key, no question to anybody, and an end to every wait.
fn ssh(agent: &str, config: &GateClient, limit: Duration) -> Result<Program, FenceError> {
    let unusable = |why: String| FenceError::Unusable { agent: agent.to_owned(), why };
    let program = find_program("ssh").map_err(|source| FenceError::Program { agent: agent.to_owned(), source })?;
    check_key(&config.key_file).map_err(unusable)?;
    let connect = (limit / CONNECT_SHARE).max(LEAST_CONNECT).as_secs();
    let options = [
        "BatchMode=yes".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        format!("UserKnownHostsFile={}", config.known_hosts.display()),
        "GlobalKnownHostsFile=/dev/null".to_owned(),
        format!("ConnectTimeout={connect}"),
        // A server that dies in the middle is noticed, and not first by TCP.
        format!("ServerAliveInterval={connect}"),
        "ServerAliveCountMax=1".to_owned(),
        "ControlPath=none".to_owned(),
        "ClearAllForwardings=yes".to_owned(),
    ];
    let program = Program::new(program).args(["-T", "-F", "/dev/null"]);
    let program = program.args(["-i", &config.key_file.display().to_string(), "-p", &config.port.to_string()]);
    let program = program.args(options.into_iter().flat_map(|option| ["-o".to_owned(), option]));
    Ok(program.args(["-l", &config.user, "--", &config.server, "leasehold gate serve"]))
}

/// ssh itself refuses a key that others can read, but first at the failover.
fn check_key(path: &Path) -> Result<(), String> {
    let meta = std::fs::metadata(path).map_err(|error| format!("key file {}: {error}", path.display()))?;
    match meta.mode() & 0o077 {
        0 => Ok(()),
        _ => Err(format!("key file {}: others can read it; chmod 0600 it", path.display())),
    }
}

/// What an answer says, for the evidence.
fn told(answer: &Answer) -> String {
    let verdict = format!("{:?}", answer.result).to_lowercase();
    let highest = answer.highest.map_or("token not known".to_owned(), |token| format!("token {token}"));
    let nodes = answer.access.iter().map(|access| {
        let state = format!("{:?}", access.state).to_lowercase();
        let why = if access.why.is_empty() { String::new() } else { format!(" ({})", access.why) };
        format!("; {} {state}{why}", access.node)
    });
    let text = if answer.text.is_empty() { String::new() } else { format!(": {}", answer.text) };
    format!("{verdict}, {highest}{}{text}", nodes.collect::<String>())
}

/// Why there was no answer: ssh's own words, with what they mean.
fn explain(ending: Ending, stderr: &str, stdout: &str) -> String {
    let end = match ending {
        Ending::Exited(status) => format!("exit status {status}"),
        Ending::Signalled(signal) => format!("died of signal {signal}"),
        Ending::TimedOut => "no answer within the agent's limit".to_owned(),
        Ending::Stuck => "hangs in the kernel".to_owned(),
    };
    let meaning = if stderr.contains("Host key verification failed") {
        "the server's host key is not the one in `known_hosts`"
    } else if stderr.contains("Permission denied") {
        "the server does not take the key"
    } else if stderr.contains("Could not resolve") {
        "the server's name cannot be resolved"
    } else if stderr.contains("refused") || stderr.contains("timed out") || stderr.contains("No route") {
        "the server cannot be reached"
    } else if ending == Ending::TimedOut {
        "the server is silent"
    } else if stdout.is_empty() {
        "the server said nothing; does the key run `leasehold gate serve`?"
    } else {
        "what came back is no answer of a gate"
    };
    let said = [stderr.trim(), stdout.trim()].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("; ");
    let said: String = said.chars().take(300).collect();
    if said.is_empty() { format!("{meaning} ({end})") } else { format!("{meaning} ({end}): {said}") }
}
