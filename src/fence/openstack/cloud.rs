//! One authenticated request to a service of the cloud: bounded, throttling waited out, every text without secrets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use tokio::time::sleep;

use crate::config::OpenstackCloud;
use crate::core::Span;

use super::super::drive::Answer;
use super::super::web::{Limits, bounded_body, client, explain};
use super::super::{Attempt, FenceError, Reading, Secret, Setup};
use super::keystone::{Grant, Keystone, Service};

/// A catalog of a large cloud has some 100 KiB, a server some KiB.
pub const LARGEST_ANSWER: usize = 1 << 20;
/// Login, reading, command and reading again must fit into one attempt even if one of them runs into its limit.
const EXCHANGES_PER_ATTEMPT: u32 = 4;
/// A service of a cloud that has not answered after this time will not.
const LONGEST_EXCHANGE: Duration = Duration::from_secs(10);
/// How often a reading is asked again for while the service says "later".
const MAX_LATER: u32 = 3;
/// The wait where the service does not say how long (API guidelines: 429 and 503 may carry `Retry-After`).
const LATER: Duration = Duration::from_secs(1);
/// Microversion 2.9 (Mitaka) is the first to tell whether a server is locked; the rest is as in 2.1.
const MICROVERSION: &str = "compute 2.9";

/// What a service said.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Vec<u8>,
    /// Status and body in words, without secrets.
    pub told: String,
    later: Option<Duration>,
}

/// The cloud as one agent sees it.
#[derive(Debug)]
pub struct Cloud {
    http: Client,
    keystone: Keystone,
    grant: Mutex<Option<Arc<Grant>>>,
}

impl Cloud {
    /// Reads secret and certificates now.
    pub fn new(setup: Setup<'_>, config: &OpenstackCloud) -> Result<Cloud, FenceError> {
        let agent = || setup.name.to_owned();
        let secret = Secret::read(&config.credential_secret);
        let secret = secret.map_err(|source| FenceError::Secret { agent: agent(), source })?;
        let request = exchange_limit(setup.limit);
        let limits = Limits { connect: request, request };
        let http = client(&config.trust, limits).map_err(|why| FenceError::Unusable { agent: agent(), why })?;
        Ok(Cloud { http, keystone: Keystone::new(config.clone(), secret), grant: Mutex::default() })
    }

    /// Reads something. A token that is not taken is renewed once; "later" is waited out a few times.
    pub async fn get(&self, service: Service, path: &str, attempt: &Attempt) -> Result<Reply, String> {
        let (mut renewed, mut waits) = (false, 0);
        loop {
            let grant = self.grant(attempt).await?;
            let reply = self.exchange(&grant, service, Method::GET, path, None).await?;
            match (reply.status, reply.later) {
                (StatusCode::UNAUTHORIZED, _) if !renewed => {
                    attempt.note(&format!("GET {path}"), &format!("{}; logging in again", reply.told));
                    self.forget(&grant);
                    renewed = true;
                }
                (_, Some(later)) if waits < MAX_LATER => {
                    attempt.note(&format!("GET {path}"), &format!("{}; waiting {later:?}", reply.told));
                    sleep(later).await;
                    waits += 1;
                }
                _ => return Ok(reply),
            }
        }
    }

    /// Gives a command once, noted in the attempt. Whatever it answers, the state is read before the next one.
    pub async fn command(&self, command: Command<'_>, attempt: &Attempt) -> Answer {
        let Command { service, method, path, body, .. } = &command;
        let reply = match self.grant(attempt).await {
            Ok(grant) => {
                let reply = self.exchange(&grant, *service, method.clone(), path, body.as_ref()).await;
                if reply.as_ref().is_ok_and(|r| r.status == StatusCode::UNAUTHORIZED) {
                    self.forget(&grant);
                }
                reply
            }
            Err(error) => Err(error),
        };
        let sent = format!("{} ({method} {path})", command.what);
        let (answer, told, later) = match reply {
            Ok(reply) => (judge(&reply), reply.told, reply.later),
            Err(error) => (Answer::Failed, error, None),
        };
        match answer {
            Answer::Refused => attempt.refusal(&sent, &told, None),
            Answer::Accepted | Answer::Failed => attempt.note(&sent, &told),
        }
        if let Some(later) = later {
            sleep(later).await;
        }
        answer
    }

    /// The roles of the last login.
    pub fn roles(&self) -> Vec<String> {
        self.held().map(|grant| grant.roles.clone()).unwrap_or_default()
    }

    /// A token that will be good for a while. One that is half used up is renewed; if that fails, it is still good.
    async fn grant(&self, attempt: &Attempt) -> Result<Arc<Grant>, String> {
        let held = self.held();
        if let Some(grant) = &held
            && !grant.is_stale().await
        {
            return Ok(Arc::clone(grant));
        }
        match self.keystone.login(&self.http).await {
            Ok(grant) => {
                attempt.note(&self.keystone.request(), &format!("a token, with the roles {}", grant.roles.join(", ")));
                let grant = Arc::new(grant);
                *self.lock() = Some(Arc::clone(&grant));
                Ok(grant)
            }
            Err(error) => {
                let error = self.scrub(&error, held.as_deref());
                attempt.note(&self.keystone.request(), &error);
                held.ok_or_else(|| format!("no login: {error}"))
            }
        }
    }

    async fn exchange(
        &self,
        grant: &Grant,
        service: Service,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, String> {
        let scrub = |text: String| self.scrub(&text, Some(grant));
        let url = format!("{}{path}", grant.endpoint(service)?);
        let mut request = self.http.request(method, url).header("X-Auth-Token", grant.header.clone());
        if service == Service::Compute {
            request = request.header("OpenStack-API-Version", MICROVERSION);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| scrub(explain(&error)))?;
        let (status, later) = (response.status(), later(&response));
        let body = bounded_body(response, LARGEST_ANSWER).await.map_err(scrub)?;
        let told = scrub(told(status, &body));
        Ok(Reply { status, body, told, later })
    }

    fn scrub(&self, text: &str, grant: Option<&Grant>) -> String {
        let text = self.keystone.secret().scrub(text);
        grant.map_or(text.clone(), |grant| grant.token.scrub(&text))
    }

    fn held(&self) -> Option<Arc<Grant>> {
        self.lock().clone()
    }

    /// Only if no other work has renewed it meanwhile.
    fn forget(&self, grant: &Arc<Grant>) {
        let mut held = self.lock();
        if held.as_ref().is_some_and(|h| Arc::ptr_eq(h, grant)) {
            *held = None;
        }
    }

    /// Nothing panics while this is held.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Grant>>> {
        self.grant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be done.
#[derive(Debug)]
pub struct Command<'a> {
    /// In a word, for the evidence.
    pub what: &'a str,
    pub service: Service,
    pub method: Method,
    pub path: String,
    pub body: Option<Value>,
}

/// How long one exchange may take, within an attempt of this length.
fn exchange_limit(limit: Span) -> Duration {
    (Duration::from(limit) / EXCHANGES_PER_ATTEMPT).min(LONGEST_EXCHANGE)
}

/// A 409 while a task of the server runs passes with the task; any other means that the server is in no state for this
/// (stopped already, locked), which the next reading decides. A 401 of a token that has just been used for reading is
/// that of an access rule of the application credential.
fn judge(reply: &Reply) -> Answer {
    match reply.status {
        status if status.is_success() => Answer::Accepted,
        StatusCode::CONFLICT if reply.told.contains("task_state") => Answer::Failed,
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::CONFLICT => {
            Answer::Refused
        }
        _ => Answer::Failed,
    }
}

/// How long the service asks to be left alone.
fn later(response: &reqwest::Response) -> Option<Duration> {
    let throttled = matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    throttled.then(|| seconds.map_or(LATER, Duration::from_secs))
}

/// The status with the message of the body, where it has the form of OpenStack's errors.
fn told(status: StatusCode, body: &[u8]) -> String {
    let inner = serde_json::from_slice::<Value>(body).ok().and_then(|value| {
        let (kind, error) = value.as_object()?.iter().next().map(|(kind, error)| (kind.clone(), error.clone()))?;
        Some(format!("{kind}: {}", error.get("message")?.as_str()?))
    });
    let text = inner.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    format!("{} {text}", status.as_u16()).trim_end().to_owned()
}

/// A reading that could not be made, in the evidence.
pub fn unread(sent: &str, why: &str, attempt: &Attempt) -> Reading {
    attempt.reading(sent, why, Reading::Unknown);
    Reading::Unknown
}
