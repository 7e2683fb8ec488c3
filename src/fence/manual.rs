//! The agent of last resort: a person. It never confirms anything by itself.

use crate::core::{Scope, Token};

use super::{Agent, Attempt, Health, Outcome, Pending, Reading};

/// Asks for an operator, in the evidence that `status` and the journal show.
#[derive(Debug)]
pub struct Manual {
    scope: Scope,
    node: String,
}

impl Manual {
    pub fn new(scope: Scope, node: impl Into<String>) -> Manual {
        Manual { scope, node: node.into() }
    }

    fn ask(&self, attempt: &Attempt) {
        let node = &self.node;
        attempt.note(
            "(a person is asked)",
            &format!("see with your own eyes that {node} is off, then give: leasehold confirm-fenced {node}"),
        );
    }
}

impl Agent for Manual {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        self.ask(attempt);
        Box::pin(async { Outcome::Unknown })
    }

    fn status<'a>(&'a self, _attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async { Reading::Unknown })
    }

    /// Nothing can be looked at, and that is no fault of it: it is there to ask.
    fn prove<'a>(&'a self, _attempt: &'a Attempt) -> Pending<'a, Health> {
        let notes = vec!["asks an operator: there is no device to look at".to_owned()];
        Box::pin(async { Health { reading: Reading::Unknown, faults: Vec::new(), notes } })
    }

    fn on<'a>(&'a self, _token: Token, _attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async { Outcome::Unknown })
    }
}
