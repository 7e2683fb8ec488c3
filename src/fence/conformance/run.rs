//! One run through the clauses: each step within the limit, everything that is said kept for the last ones.

use std::collections::BTreeSet;

use tokio::time::timeout;

use crate::core::{Seen, Span, Take, TakeResult, Token};

use super::super::{Agent, Attempt, Evidence, Health, Outcome, Pending, Reading};
use super::{Clause, Kept, Kit, Line, Touch};

/// The longest sentence about an agent's health that still helps an operator, in characters.
const LONGEST_SENTENCE: usize = 1000;
/// How much of an answer stands in a line of the report, in characters.
const QUOTED: usize = 160;
/// No token below this can be refused for its age: 0 means none, and the first that is minted is 1.
const LOWEST_STALE: u64 = 2;

/// What is known so far.
pub struct Run<'a> {
    kit: &'a Kit<'a>,
    lines: Vec<Line>,
    /// What did not end within the limit.
    overrun: Vec<&'static str>,
    /// Every text of the agent.
    said: Vec<String>,
    tell: &'a mut dyn FnMut(&Line),
}

impl<'a> Run<'a> {
    pub fn new(kit: &'a Kit<'a>, tell: &'a mut dyn FnMut(&Line)) -> Run<'a> {
        Run { kit, lines: Vec::new(), overrun: Vec::new(), said: Vec::new(), tell }
    }

    /// Tries every clause; what was said meanwhile is judged in the end.
    pub async fn through(mut self) -> Vec<Line> {
        self.prove().await;
        self.status().await;
        self.takes().await;
        self.really().await;
        self.limit();
        self.bounded();
        self.no_secret();
        self.lines
    }

    async fn prove(&mut self) {
        let (health, attempt) = self.within("proof", |agent, attempt| agent.prove(attempt)).await;
        let Some(Health { faults, notes, .. }) = health else {
            return self.line(Clause::Prove, Kept::Wrong, unanswered(&attempt));
        };
        self.said.extend(faults.iter().chain(&notes).cloned());
        match faults.is_empty() {
            true => self.line(Clause::Prove, Kept::Right, notes.join("; ")),
            false => self.line(Clause::Prove, Kept::Wrong, faults.join("; ")),
        }
    }

    async fn status(&mut self) {
        let (first, _) = self.within("status", |agent, attempt| agent.status(attempt)).await;
        let (second, attempt) = self.within("status", |agent, attempt| agent.status(attempt)).await;
        let (kept, why) = match (first, second) {
            (Some(Reading::On), Some(Reading::On)) => (Kept::Right, "on, twice".to_owned()),
            (Some(Reading::Off), Some(Reading::Off)) => (Kept::Right, "off, twice".to_owned()),
            (Some(first), Some(second)) if first != second => {
                (Kept::Wrong, format!("{} at first, then {}: {}", word(first), word(second), last(&attempt)))
            }
            (Some(_), Some(_)) => (Kept::Wrong, format!("it cannot be read: {}", last(&attempt))),
            (None, _) | (_, None) => (Kept::Wrong, unanswered(&attempt)),
        };
        self.line(Clause::Status, kept, why);
    }

    async fn takes(&mut self) {
        if !self.kit.agent.takes() {
            for clause in [Clause::Highest, Clause::StaleTake] {
                self.line(clause, Kept::LeftOut, "the agent takes nothing");
            }
            return;
        }
        let (highest, attempt) = self.within("highest", |agent, attempt| agent.highest(attempt)).await;
        match highest.flatten() {
            Some(highest) => {
                self.line(Clause::Highest, Kept::Right, format!("the store holds {highest}"));
                self.stale_take(highest).await;
            }
            None => {
                self.line(Clause::Highest, Kept::Wrong, format!("it cannot be read: {}", last(&attempt)));
                self.line(Clause::StaleTake, Kept::LeftOut, "nobody knows what would be stale");
            }
        }
    }

    async fn stale_take(&mut self, highest: Token) {
        if highest.0 < LOWEST_STALE {
            return self.line(Clause::StaleTake, Kept::LeftOut, "nothing is stale before the second take");
        }
        let take = Take { new: Token(highest.0 - 1), seen: Seen::AtMost(highest) };
        let before = self.within("status", |agent, attempt| agent.status(attempt)).await.0;
        let (answer, attempt) = self.within("take", |agent, attempt| agent.take(take, attempt)).await;
        let after = self.within("status", |agent, attempt| agent.status(attempt)).await.0;
        let left = self.within("highest", |agent, attempt| agent.highest(attempt)).await.0.flatten();
        let (kept, why) = match answer {
            Some(TakeResult::Refused { highest: named }) if named != highest => {
                (Kept::Wrong, format!("the refusal names {named}, the store holds {highest}"))
            }
            _ if left != Some(highest) => {
                let left = left.map_or("nothing that can be read".to_owned(), |left| left.to_string());
                (Kept::Wrong, format!("a take with {} left {left} in the store, not {highest}", take.new))
            }
            _ if before != after => (Kept::Wrong, format!("a take with {} changed who has access", take.new)),
            Some(TakeResult::Refused { .. }) => (Kept::Right, format!("{} is refused, naming {highest}", take.new)),
            Some(TakeResult::Taken) => (Kept::Wrong, format!("{} was taken, the store held {highest}", take.new)),
            Some(TakeResult::Unknown) => (Kept::Wrong, format!("neither taken nor refused: {}", last(&attempt))),
            None => (Kept::Wrong, unanswered(&attempt)),
        };
        self.line(Clause::StaleTake, kept, why);
    }

    async fn really(&mut self) {
        const STEPS: [Clause; 4] = [Clause::Off, Clause::StaysOff, Clause::OffAgain, Clause::On];
        let left_out = match (self.kit.touch, self.kit.agent.takes()) {
            (Touch::OnlyLook, _) => Some("only with --really"),
            (Touch::Really, true) => Some("it fences by a take, which would mint a token of the pair"),
            // Whatever cannot be read, or fails its own proof, may be another machine.
            (Touch::Really, false) if self.lines.iter().any(|line| line.kept == Kept::Wrong) => {
                Some("nothing is switched before the clauses above are right")
            }
            (Touch::Really, false) => None,
        };
        if let Some(why) = left_out {
            STEPS.into_iter().for_each(|clause| self.line(clause, Kept::LeftOut, why));
            return;
        }
        let looks = self.looks().await;
        let commands = self.off(&looks).await;
        self.off_again(&looks, commands.as_ref()).await;
        self.on().await;
    }

    /// What the agent sends to look and not to act.
    async fn looks(&mut self) -> BTreeSet<String> {
        let status = self.within("status", |agent, attempt| agent.status(attempt)).await.1;
        let proof = self.within("proof", |agent, attempt| agent.prove(attempt)).await.1;
        sent(&status.evidence()).chain(sent(&proof.evidence())).collect()
    }

    /// `None`: it is not off. Else what was sent beyond looking.
    async fn off(&mut self, looks: &BTreeSet<String>) -> Option<BTreeSet<String>> {
        let token = self.kit.token;
        let (outcome, attempt) = self.within("off", |agent, attempt| agent.off(token, attempt)).await;
        if outcome != Some(Outcome::Confirmed) {
            self.line(Clause::Off, Kept::Wrong, unconfirmed(outcome, &attempt));
            self.line(Clause::StaysOff, Kept::LeftOut, "it was not confirmed off");
            return None;
        }
        let commands: BTreeSet<String> = sent(&attempt.evidence()).filter(|s| !looks.contains(s)).collect();
        let how = if commands.is_empty() { "confirmed; it was off already" } else { "confirmed" };
        self.line(Clause::Off, Kept::Right, how);
        let (reading, attempt) = self.within("status", |agent, attempt| agent.status(attempt)).await;
        match reading {
            Some(Reading::Off) => self.line(Clause::StaysOff, Kept::Right, "status reads off"),
            Some(reading) => {
                let why = format!("confirmed off, then status reads {}: {}", word(reading), last(&attempt));
                self.line(Clause::StaysOff, Kept::Wrong, why);
            }
            None => self.line(Clause::StaysOff, Kept::Wrong, unanswered(&attempt)),
        }
        Some(commands)
    }

    async fn off_again(&mut self, looks: &BTreeSet<String>, commands: Option<&BTreeSet<String>>) {
        let Some(commands) = commands else {
            return self.line(Clause::OffAgain, Kept::LeftOut, "it was not confirmed off");
        };
        let token = self.kit.token;
        let (outcome, attempt) = self.within("off", |agent, attempt| agent.off(token, attempt)).await;
        // A login may come again; a command that made it off must not.
        let needless = |sent: &String| commands.contains(sent) || (commands.is_empty() && !looks.contains(sent));
        let needless = sent(&attempt.evidence()).find(needless);
        match (outcome, needless) {
            (Some(Outcome::Confirmed), None) => {
                self.line(Clause::OffAgain, Kept::Right, "confirmed without a command");
            }
            (Some(Outcome::Confirmed), Some(command)) => {
                self.line(Clause::OffAgain, Kept::Wrong, format!("sent again although it was off: {}", cut(&command)));
            }
            (outcome, _) => self.line(Clause::OffAgain, Kept::Wrong, unconfirmed(outcome, &attempt)),
        }
    }

    /// In any case: the target must not stay off for a test.
    async fn on(&mut self) {
        let token = self.kit.token;
        let (outcome, attempt) = self.within("on", |agent, attempt| agent.on(token, attempt)).await;
        if outcome != Some(Outcome::Confirmed) {
            return self.line(Clause::On, Kept::Wrong, unconfirmed(outcome, &attempt));
        }
        let (reading, attempt) = self.within("status", |agent, attempt| agent.status(attempt)).await;
        match reading {
            Some(Reading::On) => self.line(Clause::On, Kept::Right, "confirmed, and status reads on"),
            Some(reading) => {
                let why = format!("confirmed on, then status reads {}: {}", word(reading), last(&attempt));
                self.line(Clause::On, Kept::Wrong, why);
            }
            None => self.line(Clause::On, Kept::Wrong, unanswered(&attempt)),
        }
    }

    fn limit(&mut self) {
        let limit = Span::from(self.kit.limit);
        match self.overrun.is_empty() {
            true => self.line(Clause::Limit, Kept::Right, format!("every step ended within {limit}")),
            false => {
                let steps = self.overrun.join(", ");
                self.line(Clause::Limit, Kept::Wrong, format!("given up and killed after {limit}: {steps}"));
            }
        }
    }

    fn bounded(&mut self) {
        let longest = self.said.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let kept = if longest <= LONGEST_SENTENCE { Kept::Right } else { Kept::Wrong };
        self.line(Clause::Bounded, kept, format!("its longest text has {longest} characters"));
    }

    fn no_secret(&mut self) {
        if self.kit.secrets.is_empty() {
            return self.line(Clause::NoSecret, Kept::LeftOut, "the configuration names no secret of it");
        }
        let leaks = |text: &&String| self.kit.secrets.iter().any(|secret| secret.scrub(text) != **text);
        let leaking = self.said.iter().filter(leaks).count();
        match leaking {
            0 => self.line(Clause::NoSecret, Kept::Right, format!("none in {} texts", self.said.len())),
            n => {
                let why = format!("a secret stands in {n} of its texts; change it, they may have been logged");
                self.line(Clause::NoSecret, Kept::Wrong, why);
            }
        }
    }

    /// One step within the limit. Dropped, the step ends and kills its children.
    async fn within<T>(
        &mut self,
        step: &'static str,
        work: impl for<'b> FnOnce(&'b dyn Agent, &'b Attempt) -> Pending<'b, T>,
    ) -> (Option<T>, Attempt) {
        let attempt = Attempt::new(self.kit.name, String::new).expecting(self.kit.expected);
        let answer = timeout(self.kit.limit, work(self.kit.agent, &attempt)).await.ok();
        if answer.is_none() && !self.overrun.contains(&step) {
            self.overrun.push(step);
        }
        self.said.extend(attempt.evidence().into_iter().flat_map(|e| [e.sent, e.read]));
        (answer, attempt)
    }

    fn line(&mut self, clause: Clause, kept: Kept, why: impl Into<String>) {
        let why = self.kit.secrets.iter().fold(why.into(), |why, secret| secret.scrub(&why));
        let line = Line { clause, kept, why };
        (self.tell)(&line);
        self.lines.push(line);
    }
}

fn word(reading: Reading) -> &'static str {
    match reading {
        Reading::Off => "off",
        Reading::On => "on",
        Reading::Unknown => "neither on nor off",
    }
}

fn sent(evidence: &[Evidence]) -> impl Iterator<Item = String> {
    evidence.iter().map(|e| e.sent.clone()).collect::<Vec<_>>().into_iter()
}

fn unanswered(attempt: &Attempt) -> String {
    format!("no answer within its limit; last: {}", last(attempt))
}

fn unconfirmed(outcome: Option<Outcome>, attempt: &Attempt) -> String {
    match outcome {
        Some(Outcome::Confirmed) => "confirmed".to_owned(),
        Some(Outcome::Refused { .. }) => format!("refused; last: {}", last(attempt)),
        Some(Outcome::Unknown) => format!("unknown; last: {}", last(attempt)),
        None => match attempt.verdict() {
            Outcome::Refused { .. } => format!("refused, until its limit; last: {}", last(attempt)),
            Outcome::Confirmed | Outcome::Unknown => {
                format!("not confirmed within its limit; last: {}", last(attempt))
            }
        },
    }
}

/// The last thing that was sent and read.
fn last(attempt: &Attempt) -> String {
    let evidence = attempt.evidence();
    evidence.last().map_or("nothing was said".to_owned(), |e| format!("{} -> {}", cut(&e.sent), cut(&e.read)))
}

fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED).collect();
    if text.chars().count() > QUOTED {
        short.push('…');
    }
    short
}
