//! `iscsi-acl`: the peer's way to an iSCSI target, taken away by the server that has it.

use crate::config;
use crate::core::{Scope, Seen, Take, TakeResult, Token};

use super::super::{Agent, Attempt, FenceError, Health, Outcome, Pending, Reading, Setup};
use super::Client;

/// One gate in front of an iSCSI target, aimed at one node.
#[derive(Debug)]
pub struct IscsiAcl {
    scope: Scope,
    client: Client,
}

impl IscsiAcl {
    pub fn new(setup: Setup<'_>, config: &config::IscsiAcl) -> Result<IscsiAcl, FenceError> {
        Ok(IscsiAcl { scope: setup.scope, client: Client::new(setup, &config.gate)? })
    }
}

impl Agent for IscsiAcl {
    fn scope(&self) -> Scope {
        self.scope
    }

    /// A gate revokes in one way only: by a take. As part of a plan of node scope the peer is shot whatever is stored.
    fn off<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async move {
            match self.client.take(Take { new: token, seen: Seen::Whatever }, attempt).await {
                TakeResult::Taken => Outcome::Confirmed,
                TakeResult::Refused { highest } => Outcome::Refused { highest: Some(highest) },
                TakeResult::Unknown => Outcome::Unknown,
            }
        })
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(self.client.status(attempt))
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(self.client.prove(attempt))
    }

    fn on<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.client.release(token, attempt))
    }

    fn takes(&self) -> bool {
        true
    }

    fn take<'a>(&'a self, take: Take, attempt: &'a Attempt) -> Pending<'a, TakeResult> {
        Box::pin(self.client.take(take, attempt))
    }

    fn highest<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Option<Token>> {
        Box::pin(self.client.highest(attempt))
    }
}
