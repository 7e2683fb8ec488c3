//! The story of one attempt: what each agent sent and read, there also when the attempt is cut off in the middle.

use std::sync::Arc;

use crate::core::{FenceResult, SystemUuid, Token};

use super::journal::{Action, Case, Journal, Part, Verdict};
use super::{Attempt, Entry, Evidence, Outcome, Stamp};

/// The attempts of all agents so far. An attempt that is no longer wanted is dropped with its trail, and what it sent
/// may still land: the trail then goes into the journal by itself.
#[derive(Debug)]
pub struct Trail {
    case: Case,
    stamp: Stamp,
    journal: Option<Journal>,
    attempts: Vec<Arc<Attempt>>,
}

impl Trail {
    pub fn new(action: Action, target: &str, token: Option<Token>, stamp: Stamp, journal: Option<Journal>) -> Trail {
        let case = Case {
            at: stamp(),
            until: String::new(),
            action,
            target: target.to_owned(),
            token: token.map(|token| token.0),
            verdict: Verdict::CutOff,
            result: "cut off: no longer wanted; what was sent may have landed".to_owned(),
            over_limit: false,
            agents: Vec::new(),
            evidence: Vec::new(),
            left_out: 0,
        };
        Trail { case, stamp, journal, attempts: Vec::new() }
    }

    pub fn begin(&mut self, entry: &Entry, expected: Option<SystemUuid>) -> Arc<Attempt> {
        let attempt = Arc::new(Attempt::new(&entry.name, self.stamp).expecting(expected));
        self.attempts.push(attempt.clone());
        attempt
    }

    pub fn skip(&mut self, entry: &Entry) {
        let text = "skipped with its level: it once confirmed what was not so; an operator must clear it";
        self.begin(entry, None).note("(nothing)", text);
    }

    /// The result when nothing was confirmed.
    pub fn failure(&self) -> FenceResult {
        let refusals = self.attempts.iter().filter_map(|attempt| match attempt.verdict() {
            Outcome::Refused { highest } => Some(highest),
            Outcome::Confirmed | Outcome::Unknown => None,
        });
        refusals.max().map_or(FenceResult::Unknown, |highest| FenceResult::Refused { highest })
    }

    /// The attempt is over: gives the evidence, and hands it to the journal.
    pub fn close(mut self, verdict: Verdict, result: &str, over_limit: bool) -> Vec<Evidence> {
        self.case = Case { verdict, result: result.to_owned(), over_limit, ..self.case.clone() };
        self.record();
        self.forget()
    }

    /// Gives the evidence of what the journal need not know.
    pub fn forget(mut self) -> Vec<Evidence> {
        let evidence = self.evidence();
        self.journal = None;
        evidence
    }

    fn evidence(&self) -> Vec<Evidence> {
        self.attempts.iter().flat_map(|attempt| attempt.evidence()).collect()
    }

    fn record(&self) {
        let Some(journal) = self.journal.as_ref().filter(|_| !self.attempts.is_empty()) else { return };
        let agents = self.attempts.iter().map(|attempt| Part::of(attempt)).collect();
        let case = Case { until: (self.stamp)(), agents, ..self.case.clone() };
        journal.record(case.with_evidence(&self.evidence()));
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        // Of a probe that is dropped nobody asks: it changes nothing.
        if self.case.verdict == Verdict::CutOff && self.case.action != Action::Probe {
            self.record();
        }
    }
}
