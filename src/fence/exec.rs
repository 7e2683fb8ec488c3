//! Any program as a fence agent.
//!
//! The program is called as `PROGRAM ARGS… ACTION`, without a shell, with stdin closed, a clean environment (`PATH`,
//! `LC_ALL=C`) and one variable, `LEASEHOLD_FENCE`, that holds a JSON object ([`Context`]):
//!
//! ```json
//! {"version":1,"agent":"pdu","action":"take","target":"heron","caller":"plover","scope":"resource","token":7,
//!  "take":{"new":7,"seen":4,"own_parity":1},"settings":{"outlet":"4"}}
//! ```
//!
//! | action | exit 0 | exit 2 | exit 3 | any other end |
//! | --- | --- | --- | --- | --- |
//! | `status` | on | off, if a line of stdout is `off` | - | unknown |
//! | `off`, `on` | will be done; the proof is a later `status` | - | the device says no | unknown |
//! | `take` | stored; read back by `highest` and `status` | - | refused; stdout `{"highest":N}` | unknown |
//! | `highest` | stdout `{"highest":N}`, 0 for none | - | - | unknown |
//!
//! `status` must say `off` in words too, because shells and argument parsers exit with 2 on errors of their own.
//! `take` must compare and store atomically: it succeeds if and only if `new` is above the stored token, and the stored
//! one is at most `seen` (null: any), or has the parity `own_parity` (it was minted by the caller). Then it revokes the
//! target and restores the caller. A repeat with the very token that is stored finishes what the first left undone.
//! At most 64 KiB of stdout and of stderr are read. When the program ends, or its time is over, its process group is
//! killed. No secret is handed over: the program keeps its own.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::ExecAgent;
use crate::core::{Scope, Seen, Span, Take, TakeResult, Token};
use crate::process::{Ending, Finished, Program, check_owner, check_owner_aside, run};

use super::drive::{Answer, Switch, drive, settled};
use super::{Agent, Attempt, FenceError, Outcome, Pending, Reading};

/// The bound on each stream of the program.
const OUTPUT_BOUND: usize = 64 * 1024;
/// Off must be read twice in a row, this far apart: one reading in the middle of a power cycle proves nothing.
const STABLE_READS: u32 = 2;
const POLL: Duration = Duration::from_millis(100);

const EXIT_DONE: i32 = 0;
const EXIT_OFF: i32 = 2;
const EXIT_REFUSED: i32 = 3;

/// One program, aimed at one node.
#[derive(Debug)]
pub struct Exec {
    name: String,
    target: String,
    caller: String,
    scope: Scope,
    limit: Duration,
    config: ExecAgent,
}

/// What `LEASEHOLD_FENCE` holds.
#[derive(Debug, Serialize)]
struct Context<'a> {
    version: u32,
    agent: &'a str,
    action: &'a str,
    /// The node to be made harmless, or for `on` to be let in again.
    target: &'a str,
    caller: &'a str,
    scope: String,
    /// The caller's token for this attempt; 0 where an action needs none.
    token: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    take: Option<TakeContext>,
    settings: &'a BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct TakeContext {
    new: u64,
    seen: Option<u64>,
    own_parity: u64,
}

#[derive(Debug, Deserialize)]
struct Stored {
    highest: u64,
}

impl Exec {
    /// `target` and `caller` are names of nodes; `limit` bounds each call of the program.
    pub fn new(
        name: &str,
        scope: Scope,
        limit: Span,
        config: &ExecAgent,
        target: &str,
        caller: &str,
    ) -> Result<Exec, FenceError> {
        check_owner(&config.program).map_err(|source| FenceError::Program { agent: name.to_owned(), source })?;
        Ok(Exec {
            name: name.to_owned(),
            target: target.to_owned(),
            caller: caller.to_owned(),
            scope,
            limit: limit.into(),
            config: config.clone(),
        })
    }

    /// Runs one action; an error of the start is told like any other useless answer.
    async fn call(&self, action: &'static str, token: Token, take: Option<Take>) -> Result<Finished, String> {
        // Whoever could exchange the program since the start could fence at will.
        check_owner_aside(&self.config.program).await.map_err(|e| e.to_string())?;
        let context = serde_json::to_string(&self.context(action, token, take)).map_err(|e| e.to_string())?;
        let program = Program::new(&self.config.program)
            .args(self.config.args.iter().cloned())
            .args([action])
            .env("LC_ALL", "C")
            .env("LEASEHOLD_FENCE", context);
        run(&program, None, self.limit, OUTPUT_BOUND).await.map_err(|e| e.to_string())
    }

    fn context(&self, action: &'static str, token: Token, take: Option<Take>) -> Context<'_> {
        let take = take.map(|take| TakeContext {
            new: take.new.0,
            seen: match take.seen {
                Seen::AtMost(token) => Some(token.0),
                Seen::Whatever => None,
            },
            own_parity: take.new.0 % 2,
        });
        Context {
            version: 1,
            agent: &self.name,
            action,
            target: &self.target,
            caller: &self.caller,
            scope: self.scope.to_string(),
            token: token.0,
            take,
            settings: &self.config.settings,
        }
    }

    async fn command(&self, action: &'static str, token: Token, attempt: &Attempt) -> Answer {
        match self.call(action, token, None).await {
            Err(error) => {
                attempt.note(action, &error);
                Answer::Failed
            }
            Ok(finished) => match finished.ending {
                Ending::Exited(EXIT_DONE) => {
                    attempt.note(action, &told(&finished));
                    Answer::Accepted
                }
                Ending::Exited(EXIT_REFUSED) => {
                    attempt.refusal(action, &told(&finished), stored(&finished));
                    Answer::Refused
                }
                Ending::Exited(_) | Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck => {
                    attempt.note(action, &told(&finished));
                    Answer::Failed
                }
            },
        }
    }

    async fn take_verified(&self, take: Take, attempt: &Attempt) -> TakeResult {
        let finished = match self.call("take", take.new, Some(take)).await {
            Ok(finished) => finished,
            Err(error) => {
                attempt.note("take", &error);
                return TakeResult::Unknown;
            }
        };
        let sent = format!("take {}", take.new);
        match (finished.ending, stored(&finished)) {
            // Tokens are never minted twice: the stored one is this very take, made before and answered too late.
            (Ending::Exited(EXIT_REFUSED), Some(highest)) if highest == take.new => {
                attempt.note(&sent, &told(&finished));
            }
            (Ending::Exited(EXIT_REFUSED), Some(highest)) => {
                attempt.refusal(&sent, &told(&finished), Some(highest));
                return TakeResult::Refused { highest };
            }
            (Ending::Exited(EXIT_DONE), _) => attempt.note(&sent, &told(&finished)),
            (..) => {
                attempt.note(&sent, &told(&finished));
                return TakeResult::Unknown;
            }
        }
        self.read_back(take, attempt).await
    }

    /// A take counts when the store shows the new token and the peer reads locked out.
    async fn read_back(&self, take: Take, attempt: &Attempt) -> TakeResult {
        match self.stored_token(attempt).await {
            Some(token) if token == take.new => {}
            Some(highest) if highest > take.new => return TakeResult::Refused { highest },
            Some(_) | None => return TakeResult::Unknown,
        }
        let device = self.under(take.new);
        loop {
            if settled(&device, attempt).await == Reading::Off {
                return TakeResult::Taken;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn stored_token(&self, attempt: &Attempt) -> Option<Token> {
        match self.call("highest", Token::NONE, None).await {
            Ok(finished) => {
                attempt.note("highest", &told(&finished));
                stored(&finished).filter(|_| finished.ending == Ending::Exited(EXIT_DONE))
            }
            Err(error) => {
                attempt.note("highest", &error);
                None
            }
        }
    }

    fn under(&self, token: Token) -> UnderToken<'_> {
        UnderToken { exec: self, token }
    }
}

/// The program, told one token.
struct UnderToken<'a> {
    exec: &'a Exec,
    token: Token,
}

impl Switch for UnderToken<'_> {
    async fn read(&self, attempt: &Attempt) -> Reading {
        match self.exec.call("status", self.token, None).await {
            Ok(finished) => {
                let reading = reading_of(&finished);
                attempt.reading("status", &told(&finished), reading);
                reading
            }
            Err(error) => {
                attempt.reading("status", &error, Reading::Unknown);
                Reading::Unknown
            }
        }
    }

    async fn switch(&self, to: Reading, attempt: &Attempt) -> Answer {
        let action = if to == Reading::On { "on" } else { "off" };
        self.exec.command(action, self.token, attempt).await
    }

    fn pace(&self) -> (u32, Duration) {
        (STABLE_READS, POLL)
    }
}

impl Agent for Exec {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async move { drive(&self.under(token), Reading::Off, attempt).await })
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async move { settled(&self.under(Token::NONE), attempt).await })
    }

    fn on<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async move { drive(&self.under(token), Reading::On, attempt).await })
    }

    fn takes(&self) -> bool {
        self.config.takes
    }

    fn take<'a>(&'a self, take: Take, attempt: &'a Attempt) -> Pending<'a, TakeResult> {
        Box::pin(self.take_verified(take, attempt))
    }

    fn highest<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Option<Token>> {
        Box::pin(self.stored_token(attempt))
    }
}

fn reading_of(finished: &Finished) -> Reading {
    let says_off = finished.stdout_text().lines().any(|line| line.trim() == "off");
    match (finished.ending, says_off) {
        (Ending::Exited(EXIT_DONE), false) => Reading::On,
        (Ending::Exited(EXIT_OFF), true) => Reading::Off,
        (Ending::Exited(_) | Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck, _) => Reading::Unknown,
    }
}

fn stored(finished: &Finished) -> Option<Token> {
    serde_json::from_slice::<Stored>(&finished.stdout).ok().map(|s| Token(s.highest))
}

fn told(finished: &Finished) -> String {
    let end = match finished.ending {
        Ending::Exited(code) => format!("exit status {code}"),
        Ending::Signalled(signal) => format!("died of signal {signal}"),
        Ending::TimedOut => "ran into its limit and was killed".to_owned(),
        Ending::Stuck => "hangs in the kernel and cannot be killed".to_owned(),
    };
    let said = [finished.stdout_text(), finished.stderr_text()].join(" ");
    if said.trim().is_empty() { end } else { format!("{end}: {}", said.trim()) }
}
