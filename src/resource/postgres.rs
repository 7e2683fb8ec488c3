//! One half of a PostgreSQL streaming-replication pair.

use std::time::Duration;

use crate::config::{PostgresResource, Resource as Configured};
use crate::core::Token;

use super::{Context, Pending, Resource, ResourceError};

/// Not built yet: it never starts.
#[derive(Debug)]
pub struct Postgres {
    name: String,
    stop_timeout: Duration,
}

impl Postgres {
    /// `instance` tells this node's resources from those of every other daemon on the machine.
    pub fn new(configured: &Configured, _config: &PostgresResource, _instance: &str) -> Postgres {
        Postgres { name: configured.name.clone(), stop_timeout: configured.stop_timeout.into() }
    }

    fn unbuilt(&self) -> ResourceError {
        ResourceError::Other { resource: self.name.clone(), what: "this kind is not built yet".to_owned() }
    }
}

impl Resource for Postgres {
    fn name(&self) -> &str {
        &self.name
    }

    fn stop_budget(&self) -> Duration {
        self.stop_timeout
    }

    fn start<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(async { Err(self.unbuilt()) })
    }

    fn adopt<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<bool, ResourceError>> {
        Box::pin(async { Ok(false) })
    }

    fn stop<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn kill(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn is_stopped(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(async { Ok(true) })
    }

    fn ready(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(async { Err(self.unbuilt()) })
    }

    fn watch(&self) -> Pending<'_, String> {
        Box::pin(std::future::pending())
    }

    fn set_token(&self, _token: Token) {}
}
