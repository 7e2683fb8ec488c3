//! One attempt at one system: where it is, whose machine it is, what was read last, what may be posted.
//!
//! A post uses up the reading before it: there is never a second one without a reading in between (casebook C11).

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::sync::Notify;

use super::Redfish;
use super::line::{Ask, Credential, NoSession, Reply};
use super::model::{self, Ending, Power, Reset, System, listed};
use crate::config::{IdentityCheck, Login, SystemName};
use crate::core::SystemUuid;
use crate::fence::drive::{Answer, Switch};
use crate::fence::{Attempt, Identity, Outcome, Reading};

/// A BMC locks a user after five or so refused logins; some attempts must be left for people.
const MOST_REFUSED_LOGINS: u32 = 3;
/// The longest part of a list of paths, types or names that evidence has room for.
const SEPARATOR: &str = ", ";

/// Why a system could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// No answer, or none that can be understood.
    Silent(String),
    /// No way in.
    Login(String),
    /// The service said something else.
    Answer(StatusCode, String),
    /// The configuration names no system, and the service has none or several.
    NotOne(Vec<String>),
    /// Another machine than the one that is meant.
    Foreign { expected: SystemUuid, seen: SystemUuid },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Silent(why) | Trouble::Login(why) => f.write_str(why),
            Trouble::Answer(status, said) if *status == StatusCode::FORBIDDEN => {
                write!(f, "{status}: the user has not the privilege for this: {said}")
            }
            Trouble::Answer(status, said) if *status == StatusCode::NOT_FOUND => {
                write!(f, "{status}: the service has no such system: {said}")
            }
            Trouble::Answer(status, said) => write!(f, "{status}: {said}"),
            Trouble::NotOne(paths) if paths.is_empty() => f.write_str("the service has no system at all"),
            Trouble::NotOne(paths) => {
                let paths = listed(paths, SEPARATOR);
                write!(f, "the service has several systems ({paths}) and the configuration names none: nothing is sent")
            }
            Trouble::Foreign { expected, seen } => {
                write!(f, "another machine: this system has UUID {seen}, the target told {expected}: nothing is sent")
            }
        }
    }
}

/// One attempt.
#[derive(Debug)]
pub struct Aim<'a> {
    device: &'a Redfish,
    expected: Option<SystemUuid>,
    attempt: &'a Attempt,
    want: Reading,
    state: Mutex<State>,
    over: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Why Basic is used in this attempt although sessions are configured.
    basic: Option<String>,
    /// Basic was refused; sessions are all that is left.
    basic_refused: bool,
    refused_logins: u32,
    /// The post was turned away once for its token.
    post_renewed: bool,
    /// The service did not take the ETag that it gave.
    etag_refused: bool,
    path: Option<String>,
    /// What was read last, until it is used up by a post.
    seen: Option<Seen>,
    trouble: Option<Trouble>,
    task: Option<String>,
    end: Option<Outcome>,
}

/// A system as it was read.
#[derive(Debug, Clone)]
pub struct Seen {
    pub path: String,
    pub system: System,
    etag: Option<HeaderValue>,
}

impl<'a> Aim<'a> {
    pub fn new(device: &'a Redfish, attempt: &'a Attempt, want: Reading) -> Aim<'a> {
        let expected = match device.config.identity {
            IdentityCheck::Uuid => attempt.expected(),
            IdentityCheck::None => None,
        };
        Aim { device, expected, attempt, want, state: Mutex::default(), over: Notify::new() }
    }

    /// Waits until there is nothing to wait for: another machine, no single system, a login refused for good.
    pub async fn ended(&self) -> Outcome {
        loop {
            if let Some(outcome) = self.state().end {
                return outcome;
            }
            self.over.notified().await;
        }
    }

    pub fn seen(&self) -> Option<Seen> {
        self.state().seen.clone()
    }

    pub fn trouble(&self) -> Option<Trouble> {
        self.state().trouble.clone()
    }

    /// Why Basic was used although sessions are configured.
    pub fn fallback(&self) -> Option<String> {
        self.state().basic.clone()
    }

    pub fn identity(&self, system: &System) -> Identity {
        match self.device.config.identity {
            IdentityCheck::Uuid => self.attempt.identify(system.uuid),
            IdentityCheck::None => Identity::Unknown,
        }
    }

    fn end(&self, outcome: Outcome) {
        self.state().end = Some(outcome);
        self.over.notify_one();
    }

    /// Reads the system, and whose machine it is.
    async fn look(&self) -> Result<Seen, Trouble> {
        let path = self.path().await?;
        let reply = self.get(&path).await?;
        let system = self.understood(&reply, |body| model::system(&path, body))?;
        match (self.identity(&system), self.expected, system.uuid) {
            (Identity::Foreign, Some(expected), Some(seen)) => Err(Trouble::Foreign { expected, seen }),
            (Identity::Foreign | Identity::Proven | Identity::Unknown, ..) => {
                Ok(Seen { path, system, etag: reply.etag })
            }
        }
    }

    /// Where the system is.
    async fn path(&self) -> Result<String, Trouble> {
        if let Some(path) = self.state().path.clone() {
            return Ok(path);
        }
        let path = match &self.device.config.system {
            Some(SystemName::Path(path)) => path.clone(),
            Some(SystemName::Id(id)) => format!("{}/{id}", self.systems().await?),
            None => match <[String; 1]>::try_from(self.members().await?) {
                Ok([only]) => only,
                Err(paths) => return Err(Trouble::NotOne(paths)),
            },
        };
        self.state().path = Some(path.clone());
        Ok(path)
    }

    async fn systems(&self) -> Result<String, Trouble> {
        self.device.line.systems().await.map_err(|silence| Trouble::Silent(silence.why))
    }

    /// The paths of all systems of the service.
    pub async fn members(&self) -> Result<Vec<String>, Trouble> {
        let reply = self.get(&self.systems().await?).await?;
        self.understood(&reply, model::members)
    }

    /// Any system of the service, for a listing.
    pub async fn other(&self, path: &str) -> Result<System, Trouble> {
        let reply = self.get(path).await?;
        self.understood(&reply, |body| model::system(path, body))
    }

    fn understood<T>(&self, reply: &Reply, read: impl Fn(&[u8]) -> Result<T, String>) -> Result<T, Trouble> {
        let scrub = |text: &str| self.device.line.scrub(text);
        match (&reply.body, reply.status.as_u16()) {
            (Err(cut), _) => Err(Trouble::Silent(scrub(&format!("{}: {cut}", reply.status)))),
            (Ok(body), 200) => read(body).map_err(|why| Trouble::Silent(scrub(&format!("{}: {why}", reply.status)))),
            (Ok(body), _) => Err(Trouble::Answer(reply.status, scrub(&model::said(body)))),
        }
    }

    /// Reads one resource; a token that is not taken any more is renewed once.
    async fn get(&self, path: &str) -> Result<Reply, Trouble> {
        for _ in 0..2 {
            let credential = self.credential().await?;
            let reply = self.device.line.send(Ask::get(path), Some(&credential)).await;
            let reply = reply.map_err(|silence| Trouble::Silent(silence.why))?;
            if reply.status != StatusCode::UNAUTHORIZED {
                return Ok(reply);
            }
            self.turned_away(&credential, &reply).await?;
        }
        Err(Trouble::Login("a new session is turned away as well (401)".to_owned()))
    }

    async fn credential(&self) -> Result<Credential, Trouble> {
        let basic = self.device.config.login == Login::Basic || self.state().basic.is_some();
        if self.state().refused_logins >= MOST_REFUSED_LOGINS {
            self.end(Outcome::Unknown);
            let why =
                format!("user and password were refused {MOST_REFUSED_LOGINS} times, more could lock the user out");
            return Err(Trouble::Login(why));
        }
        if basic {
            return Ok(Credential::Basic);
        }
        match self.device.line.session().await {
            Ok(token) => Ok(token),
            Err(NoSession::Silent(why)) => Err(Trouble::Silent(why)),
            Err(NoSession::Refused(said)) => Err(self.refused(&said)),
            Err(NoSession::Unavailable(why)) if self.state().basic_refused => {
                Err(Trouble::Login(format!("{why}, and Basic login is refused")))
            }
            Err(NoSession::Unavailable(why)) => {
                self.attempt.note("login", &format!("{why}; Basic login is used for this attempt"));
                self.state().basic = Some(why);
                Ok(Credential::Basic)
            }
        }
    }

    fn refused(&self, said: &str) -> Trouble {
        self.state().refused_logins += 1;
        Trouble::Login(format!("the service refuses user and password: {said}"))
    }

    /// Whether no session could come to help: then a refusal of Basic is one of user and password.
    fn basic_alone(&self) -> bool {
        let sessionless = self.device.line.known_root().is_some_and(|root| root.sessionless);
        sessionless || self.device.config.login == Login::Basic
    }

    /// After a 401: `Ok` when it is worth asking again at once.
    async fn turned_away(&self, credential: &Credential, reply: &Reply) -> Result<(), Trouble> {
        let said = self.device.line.scrub(&reply.told());
        match credential {
            Credential::Token { number, .. } => {
                self.device.line.forget(*number).await;
                Ok(())
            }
            Credential::Basic if self.basic_alone() => Err(self.refused(&said)),
            Credential::Basic => {
                let why = self.state().basic.take().unwrap_or_default();
                self.state().basic_refused = true;
                match self.device.line.try_sessions_again().await {
                    true => Ok(()),
                    false => Err(Trouble::Login(format!("{why}, and Basic login is refused: {said}"))),
                }
            }
        }
    }

    /// Notes what was read; what cannot change any more ends the attempt.
    fn judge(&self, looked: Result<Seen, Trouble>) -> Reading {
        let sent = format!("GET {}{}", self.device.line.place(), self.state().path.clone().unwrap_or_default());
        let (text, reading) = match &looked {
            Ok(seen) => (told(&seen.system.power), seen.system.power.reading(self.want)),
            Err(trouble) => (trouble.to_string(), Reading::Unknown),
        };
        self.attempt.reading(&sent, &self.device.line.scrub(&text), reading);
        if let Err(Trouble::Foreign { .. }) = &looked {
            self.attempt.refusal("(nothing)", &text, None);
            self.end(Outcome::Refused { highest: None });
        }
        if let Err(Trouble::NotOne(paths)) = &looked
            && !paths.is_empty()
        {
            self.end(Outcome::Unknown);
        }
        let mut state = self.state();
        (state.seen, state.trouble) = match looked {
            Ok(seen) => (Some(seen), None),
            Err(trouble) => (None, Some(trouble)),
        };
        reading
    }

    /// The task of an accepted command, for its words only: no task has ever switched anything off.
    async fn ask_task(&self) {
        let Some(path) = self.state().task.clone() else { return };
        let reply = self.get(&path).await;
        let task = reply.as_ref().ok().and_then(|reply| model::task(reply.bytes()));
        let running = reply.as_ref().is_ok_and(|reply| reply.status == StatusCode::ACCEPTED);
        let text = task.as_ref().map(|task| self.device.line.scrub(&task.text));
        let sent = format!("GET {}{path}", self.device.line.place());
        match (task.map(|t| t.ending), text) {
            (Some(Ending::Failed), Some(text)) => self.attempt.refusal(&sent, &text, None),
            (Some(Ending::Done), Some(text)) => self.attempt.note(&sent, &text),
            (Some(Ending::Running), Some(text)) => return self.attempt.note(&sent, &text),
            (None, _) | (_, None) if running => return,
            (None, _) | (_, None) => {}
        }
        self.state().task = None;
    }

    /// The reset type for `to`, if the system takes one.
    pub async fn reset_type(&self, reset: &Reset, to: Reading) -> Result<&'static str, String> {
        let wanted: &[&'static str] = if to == Reading::On { &["On", "ForceOn"] } else { &["ForceOff"] };
        let allowed = match (&reset.allowed, &reset.info) {
            (Some(allowed), _) => Some(allowed.clone()),
            (None, Some(info)) => self.get(info).await.ok().and_then(|reply| model::action_info(reply.bytes())),
            (None, None) => None,
        };
        // A service that lists nothing is asked; it will say no by itself.
        let Some(allowed) = allowed else { return Ok(wanted[0]) };
        wanted.iter().copied().find(|w| allowed.iter().any(|a| a == w)).ok_or_else(|| {
            format!("the system takes no {} (but {}): nothing is sent", wanted[0], listed(&allowed, SEPARATOR))
        })
    }

    async fn post(&self, seen: Seen, to: Reading) -> Answer {
        let line = &self.device.line;
        let target = target(&seen);
        let kind = match (self.reset_type(&seen.system.reset, to).await, target) {
            (Ok(kind), Ok(_)) => kind,
            (Err(why), _) | (_, Err(why)) => {
                self.attempt.refusal("(nothing)", &line.scrub(&why), None);
                return Answer::Refused;
            }
        };
        let path = target_or_default(&seen);
        let sent = format!("POST {}{path} {{\"ResetType\": \"{kind}\"}}", line.place());
        let credential = match self.credential().await {
            Ok(credential) => credential,
            Err(trouble) => {
                self.attempt.note(&sent, &trouble.to_string());
                return Answer::Failed;
            }
        };
        let if_match = seen.etag.filter(|_| !self.state().etag_refused);
        let ask = Ask { method: Method::POST, path: &path, body: Some(json!({ "ResetType": kind })), if_match };
        match line.send(ask, Some(&credential)).await {
            Ok(reply) => self.answered(&sent, &credential, reply).await,
            Err(silence) => {
                self.attempt.note(&sent, &silence.why);
                Answer::Failed
            }
        }
    }

    async fn answered(&self, sent: &str, credential: &Credential, reply: Reply) -> Answer {
        let told = self.device.line.scrub(&reply.told());
        match reply.status.as_u16() {
            200..=299 => {
                let task = reply.location.clone().or_else(|| model::own_path(reply.bytes()));
                self.state().task = task.filter(|_| reply.status == StatusCode::ACCEPTED);
                self.attempt.note(sent, &told);
                return Answer::Accepted;
            }
            // The ETag was of an older state, or is not for actions: it is left out next time.
            412 if !self.state().etag_refused => self.state().etag_refused = true,
            401 if !self.state().post_renewed => {
                self.state().post_renewed = true;
                if let Err(trouble) = self.turned_away(credential, &reply).await {
                    self.attempt.note(sent, &trouble.to_string());
                    return Answer::Failed;
                }
            }
            // Busy, overloaded, broken inside: it may do better in a moment.
            408 | 429 | 500 | 502..=504 => {}
            _ => {
                self.attempt.refusal(sent, &told, None);
                return Answer::Refused;
            }
        }
        self.attempt.note(sent, &told);
        Answer::Failed
    }

    /// A panic while the lock was held leaves whole values behind.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Switch for Aim<'_> {
    async fn read(&self, _attempt: &Attempt) -> Reading {
        let looked = self.look().await;
        let reading = self.judge(looked);
        if reading != self.want {
            self.ask_task().await;
        }
        reading
    }

    async fn switch(&self, to: Reading, _attempt: &Attempt) -> Answer {
        // Taken out before anything waits, and so never used twice.
        let seen = self.state().seen.take();
        match seen {
            Some(seen) => self.post(seen, to).await,
            None => Answer::Failed,
        }
    }

    fn pace(&self) -> (u32, Duration) {
        (self.device.config.stable_reads, self.device.config.poll.into())
    }
}

fn told(power: &Power) -> String {
    format!("PowerState {}", power.word())
}

fn target_or_default(seen: &Seen) -> String {
    let own = || format!("{}/Actions/ComputerSystem.Reset", seen.path.trim_end_matches('/'));
    seen.system.reset.target.clone().unwrap_or_else(own)
}

/// An action that is not the system's own would act on another one.
fn target(seen: &Seen) -> Result<(), String> {
    let target = target_or_default(seen);
    let own = format!("{}/", seen.path.trim_end_matches('/')).to_ascii_lowercase();
    let inside = target.to_ascii_lowercase().starts_with(&own) && !target.contains("..");
    inside.then_some(()).ok_or_else(|| format!("the reset of this system is told to be at {target}: nothing is sent"))
}
