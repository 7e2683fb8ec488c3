//! SCSI persistent reservations.

use crate::config;
use crate::core::{Scope, Token};

use super::{Agent, Attempt, FenceError, Outcome, Pending, Reading, Setup};

/// Not built yet: every plan that names it is refused.
#[derive(Debug)]
pub struct ScsiPr {
    scope: Scope,
}

impl ScsiPr {
    pub fn new(setup: Setup<'_>, _config: &config::ScsiPr) -> Result<ScsiPr, FenceError> {
        Err(FenceError::Unusable { agent: setup.name.to_owned(), why: "this kind is not built yet".to_owned() })
    }
}

impl Agent for ScsiPr {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, _attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async { Outcome::Unknown })
    }

    fn status<'a>(&'a self, _attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async { Reading::Unknown })
    }

    fn on<'a>(&'a self, _token: Token, _attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async { Outcome::Unknown })
    }
}
