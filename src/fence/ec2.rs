//! EC2.

use crate::config;
use crate::core::{Scope, Token};

use super::{Agent, Attempt, FenceError, Outcome, Pending, Reading, Setup};

/// Not built yet: every plan that names it is refused.
#[derive(Debug)]
pub struct Ec2Power {
    scope: Scope,
}

impl Ec2Power {
    pub fn new(setup: Setup<'_>, _config: &config::Ec2Power) -> Result<Ec2Power, FenceError> {
        Err(FenceError::Unusable { agent: setup.name.to_owned(), why: "this kind is not built yet".to_owned() })
    }
}

impl Agent for Ec2Power {
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

/// Not built yet: every plan that names it is refused.
#[derive(Debug)]
pub struct Ec2Volume {
    scope: Scope,
}

impl Ec2Volume {
    pub fn new(setup: Setup<'_>, _config: &config::Ec2Volume) -> Result<Ec2Volume, FenceError> {
        Err(FenceError::Unusable { agent: setup.name.to_owned(), why: "this kind is not built yet".to_owned() })
    }
}

impl Agent for Ec2Volume {
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
