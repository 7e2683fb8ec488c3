//! The near end of a gate in front of an iSCSI target.

use crate::config;
use crate::core::{Scope, Token};

use super::super::{Agent, Attempt, FenceError, Outcome, Pending, Reading, Setup};

/// Not built yet: every plan that names it is refused.
#[derive(Debug)]
pub struct IscsiAcl {
    scope: Scope,
}

impl IscsiAcl {
    pub fn new(setup: Setup<'_>, _config: &config::IscsiAcl) -> Result<IscsiAcl, FenceError> {
        Err(FenceError::Unusable { agent: setup.name.to_owned(), why: "this kind is not built yet".to_owned() })
    }
}

impl Agent for IscsiAcl {
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
