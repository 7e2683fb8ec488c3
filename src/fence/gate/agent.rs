//! `nfs-export` and `iscsi-acl`: the peer's way to its data, taken away by the server that has it.
//!
//! With `take` the gate is the arbiter of the pair, and its tokens are the pair's. Without, it adds to a plan of node
//! scope, which decides; the gate's numbers are then its own and only put its takes in order: each is the next one
//! that this node mints above what is stored.

use crate::config;
use crate::core::{NodeId, Scope, Seen, Take, TakeResult, Token};

use super::super::{Agent, Attempt, FenceError, Health, Outcome, Pending, Reading, Setup};
use super::Client;

/// One gate, aimed at one node.
#[derive(Debug)]
pub struct GateAgent {
    scope: Scope,
    takes: bool,
    me: NodeId,
    aims_at_me: bool,
    client: Client,
}

impl GateAgent {
    pub fn new(setup: Setup<'_>, config: &config::GateAgent) -> Result<GateAgent, FenceError> {
        let aims_at_me = setup.caller == setup.target;
        let client = Client::new(setup, &config.gate)?;
        Ok(GateAgent { scope: setup.scope, takes: config.takes, me: setup.me, aims_at_me, client })
    }

    async fn shut_out(&self, token: Token, attempt: &Attempt) -> Outcome {
        match self.takes {
            true => ended(self.client.take(Take { new: token, seen: Seen::Whatever }, attempt).await),
            false if self.client.status(attempt).await == Reading::Off => Outcome::Confirmed,
            false => ended(self.claim(attempt).await),
        }
    }

    async fn let_in(&self, token: Token, attempt: &Attempt) -> Outcome {
        match (self.takes, self.aims_at_me) {
            (true, _) => self.client.release(token, attempt).await,
            (false, true) if self.client.status(attempt).await == Reading::On => Outcome::Confirmed,
            // The one way in that the gate knows puts the peer out, which then lets itself in before it starts.
            (false, true) => ended(self.claim(attempt).await),
            (false, false) => match self.client.highest(attempt).await {
                Some(stored) => self.client.release(stored, attempt).await,
                None => Outcome::Unknown,
            },
        }
    }

    /// A take above whatever is stored.
    async fn claim(&self, attempt: &Attempt) -> TakeResult {
        let stored = self.client.highest(attempt).await;
        match stored.and_then(|stored| Token::mint_above(self.me, stored)) {
            Some(new) => self.client.take(Take { new, seen: Seen::Whatever }, attempt).await,
            None => TakeResult::Unknown,
        }
    }
}

fn ended(take: TakeResult) -> Outcome {
    match take {
        TakeResult::Taken => Outcome::Confirmed,
        TakeResult::Refused { highest } => Outcome::Refused { highest: Some(highest) },
        TakeResult::Unknown => Outcome::Unknown,
    }
}

impl Agent for GateAgent {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.shut_out(token, attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(self.client.status(attempt))
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(self.client.prove(attempt))
    }

    fn on<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.let_in(token, attempt))
    }

    fn takes(&self) -> bool {
        self.takes
    }

    fn take<'a>(&'a self, take: Take, attempt: &'a Attempt) -> Pending<'a, TakeResult> {
        Box::pin(self.client.take(take, attempt))
    }

    fn highest<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Option<Token>> {
        Box::pin(self.client.highest(attempt))
    }
}
