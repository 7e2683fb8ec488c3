//! Power control through a BMC by Redfish (DSP0266, DSP0268).
//!
//! ```text
//!   Redfish ── Aim (one attempt: which system, whose machine, what was read, what was posted)
//!      └─ Line (the service: HTTPS, one session or Basic) ── model (what the answers say)
//! ```
//!
//! The *named* system only, and never one whose UUID is not the peer's (casebook C07). Acceptance, task and power state
//! are three things, and only `PowerState` exactly `Off`, read as often as configured, is off (C10).

mod aim;
mod line;
mod model;
mod prove;

use std::sync::Arc;
use std::time::Duration;

use crate::config::RedfishAgent;
use crate::core::{Scope, Span, Token};

use self::aim::Aim;
use self::line::Line;
use super::drive::{drive, settled};
use super::web::{self, Limits};
use super::{Agent, Attempt, FenceError, Health, Outcome, Pending, Reading, Secret, Setup};

/// A BMC that has not connected after this is not there; three seconds hold two lost packets and a slow TLS.
const LONGEST_CONNECT: Duration = Duration::from_secs(3);
/// The slowest answers seen to a GET of a system take some seconds.
const LONGEST_REQUEST: Duration = Duration::from_secs(10);
/// One hanging connection must leave time for reading, posting and reading again.
const CONNECTS_PER_ATTEMPT: u32 = 4;
const REQUESTS_PER_ATTEMPT: u32 = 3;

/// One system of one service.
#[derive(Debug)]
pub struct Redfish {
    scope: Scope,
    config: RedfishAgent,
    line: Arc<Line>,
}

impl Redfish {
    /// Reads password and certificates now, and builds the client with them.
    pub fn new(setup: Setup<'_>, config: &RedfishAgent) -> Result<Redfish, FenceError> {
        let agent = || setup.name.to_owned();
        let password = Secret::read(&config.password);
        let password = password.map_err(|source| FenceError::Secret { agent: agent(), source })?;
        let unusable = |why| FenceError::Unusable { agent: agent(), why };
        let client = web::client(&config.trust, limits(setup.limit)).map_err(unusable)?;
        let line = Line::new(client, &config.url, &config.user, &password).map_err(unusable)?;
        Ok(Redfish { scope: setup.scope, config: config.clone(), line: Arc::new(line) })
    }

    async fn bring(&self, want: Reading, attempt: &Attempt) -> Outcome {
        let aim = Aim::new(self, attempt, want);
        tokio::select! {
            biased;
            outcome = aim.ended() => outcome,
            outcome = drive(&aim, want, attempt) => outcome,
        }
    }
}

fn limits(limit: Span) -> Limits {
    let limit = Duration::from(limit);
    Limits {
        connect: (limit / CONNECTS_PER_ATTEMPT).min(LONGEST_CONNECT),
        request: (limit / REQUESTS_PER_ATTEMPT).min(LONGEST_REQUEST),
    }
}

impl Agent for Redfish {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.bring(Reading::Off, attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async move { settled(&Aim::new(self, attempt, Reading::Unknown), attempt).await })
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(prove::prove(self, attempt))
    }

    fn on<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.bring(Reading::On, attempt))
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(self.line.logout())
    }
}

/// The session is deleted where a runtime is still there to do it; otherwise it ends by itself, half an hour later.
impl Drop for Redfish {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let line = Arc::clone(&self.line);
            runtime.spawn(async move { line.logout().await });
        }
    }
}
