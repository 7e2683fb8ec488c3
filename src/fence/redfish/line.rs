//! The line to one Redfish service: requests, and the one session that they share (DSP0266, "Session management").
//!
//! ```text
//!   Slot: Empty ──login──▶ Open ──401──▶ Empty          Open ──logout──▶ Empty
//!           └─ the answer to a login was lost ──▶ Lost ──swept, or 30 min──▶ Empty
//! ```
//!
//! A BMC has few session slots, and one that nobody deletes is taken for half an hour (casebook C11). So a login runs
//! to its end even when whoever wanted it is gone, its token is kept from one probe to the next, and after a login
//! whose answer was lost no second one is made while the first may hold a slot: Basic takes its place, and the lost
//! session is looked for and deleted meanwhile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, LOCATION};
use reqwest::{Client, Method, StatusCode, Url};
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::model::{self, Root};
use crate::fence::{Secret, web};

const ROOT: &str = "/redfish/v1/";
/// Where things are if the root does not tell (DSP0266, "Redfish-defined URIs").
const SYSTEMS: &str = "/redfish/v1/Systems";
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
/// A system with all its extensions has some tens of KiB; what is longer is no answer.
const LONGEST_BODY: usize = 512 * 1024;
/// After this time an unused session is gone: the default of most services (SessionService.SessionTimeout, 1800 s).
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);
/// For deleting a session that is of no use any more, while something urgent waits for a new one.
const FAREWELL: Duration = Duration::from_secs(1);

/// As whom a request is made.
#[derive(Debug, Clone)]
pub enum Credential {
    Basic,
    Token { value: HeaderValue, number: u64 },
}

/// Why there is no session.
#[derive(Debug)]
pub enum NoSession {
    /// The service has none, none left, or did not answer; Basic may do.
    Unavailable(String),
    /// It does not take user and password.
    Refused(String),
    /// Nothing could be sent.
    Silent(String),
}

/// One request.
#[derive(Debug)]
pub struct Ask<'a> {
    pub method: Method,
    pub path: &'a str,
    pub body: Option<Value>,
    pub if_match: Option<HeaderValue>,
}

impl<'a> Ask<'a> {
    pub fn get(path: &'a str) -> Ask<'a> {
        Ask { method: Method::GET, path, body: None, if_match: None }
    }
}

/// One answer. Its head may be whole when its body is not.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub location: Option<String>,
    pub etag: Option<HeaderValue>,
    token: Option<HeaderValue>,
    pub body: Result<Vec<u8>, String>,
}

impl Reply {
    fn head(status: StatusCode, headers: &HeaderMap) -> Reply {
        let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let token = headers.get(TOKEN).filter(|v| !v.is_empty()).cloned();
        Reply { status, location: text(LOCATION), etag: headers.get(ETAG).cloned(), token, body: Ok(Vec::new()) }
    }

    pub fn bytes(&self) -> &[u8] {
        self.body.as_deref().unwrap_or_default()
    }

    /// "503 Service Unavailable: what it says"
    pub fn told(&self) -> String {
        let said = match &self.body {
            Ok(body) => model::said(body),
            Err(cut) => cut.clone(),
        };
        format!("{}: {said}", self.status)
    }
}

/// No answer.
#[derive(Debug)]
pub struct Silence {
    pub why: String,
    /// Whether the request may have arrived all the same.
    sent: bool,
}

#[derive(Debug)]
enum Slot {
    Empty,
    Open(Session),
    Lost,
}

#[derive(Debug)]
struct Session {
    token: HeaderValue,
    number: u64,
    path: Option<String>,
    roles: Vec<String>,
}

/// One service with its login.
pub struct Line {
    client: Client,
    url: Url,
    user: String,
    password: String,
    basic: HeaderValue,
    /// Everything that must not be seen in a text, but for the token.
    secrets: Vec<Secret>,
    token: Mutex<Option<Secret>>,
    slot: Arc<AsyncMutex<Slot>>,
    root: Mutex<Option<Root>>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line({} as {:?})", self.url, self.user)
    }
}

impl Line {
    /// `Err`: the password cannot be carried.
    pub fn new(client: Client, url: &Url, user: &str, password: &Secret) -> Result<Line, String> {
        let Ok(text) = String::from_utf8(password.bytes().to_vec()) else {
            return Err("the password is not UTF-8, which both logins of Redfish are bound to; set another".to_owned());
        };
        // RFC 7617 with the charset UTF-8: what is not ASCII goes as its UTF-8 bytes.
        let pair = Secret::new(format!("{user}:{text}").into_bytes());
        let encoded = pair.base64();
        let mut basic = HeaderValue::from_str(&format!("Basic {}", encoded.as_str())).map_err(|e| e.to_string())?;
        basic.set_sensitive(true);
        let quoted = Value::String(text.clone()).to_string();
        let escaped = Secret::new(quoted.as_bytes()[1..quoted.len() - 1].to_vec());
        Ok(Line {
            client,
            url: url.clone(),
            user: user.to_owned(),
            password: text,
            basic,
            secrets: vec![pair, escaped, password.clone()],
            token: Mutex::new(None),
            slot: Arc::new(AsyncMutex::new(Slot::Empty)),
            root: Mutex::new(None),
        })
    }

    /// Host and port, for people.
    pub fn place(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// `text` from outside without password, login or token.
    pub fn scrub(&self, text: &str) -> String {
        let text = self.secrets.iter().fold(text.to_owned(), |text, secret| secret.scrub(&text));
        match &*self.token.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(token) => token.scrub(&text),
            None => text,
        }
    }

    /// One request, one answer. A link of the service always leads to this service, whatever host it names: no
    /// password goes anywhere else.
    pub async fn send(&self, ask: Ask<'_>, credential: Option<&Credential>) -> Result<Reply, Silence> {
        let nowhere = |_| Silence { why: format!("the path {:?} leads nowhere", ask.path), sent: false };
        let there = self.url.join(ask.path).map_err(nowhere)?;
        let mut url = self.url.clone();
        url.set_path(there.path());
        url.set_query(there.query());
        let request = self.client.request(ask.method, url).header("OData-Version", "4.0");
        let request = match credential {
            Some(Credential::Basic) => request.header(AUTHORIZATION, self.basic.clone()),
            Some(Credential::Token { value, .. }) => request.header(TOKEN, value.clone()),
            None => request,
        };
        let request = match ask.if_match {
            Some(etag) => request.header(IF_MATCH, etag),
            None => request,
        };
        let request = match &ask.body {
            Some(body) => request.json(body),
            None => request,
        };
        let response = request.send().await;
        let response =
            response.map_err(|error| Silence { why: self.scrub(&web::explain(&error)), sent: !error.is_connect() })?;
        let reply = Reply::head(response.status(), response.headers());
        Ok(Reply { body: web::bounded_body(response, LONGEST_BODY).await, ..reply })
    }

    /// The token of the session, which is opened if there is none.
    pub async fn session(self: &Arc<Self>) -> Result<Credential, NoSession> {
        let slot = Arc::clone(&self.slot).lock_owned().await;
        match &*slot {
            Slot::Open(session) => {
                return Ok(Credential::Token { value: session.token.clone(), number: session.number });
            }
            Slot::Lost => {
                let why = "the answer to a login was lost, and its session may still hold a slot";
                return Err(NoSession::Unavailable(why.to_owned()));
            }
            Slot::Empty => {}
        }
        let line = Arc::clone(self);
        // A task of its own: a login that is dropped in the middle would leave a session that nobody knows.
        let login = tokio::spawn(async move { line.login(slot).await });
        login.await.unwrap_or_else(|error| Err(NoSession::Silent(format!("the login broke off: {error}"))))
    }

    async fn login(self: &Arc<Self>, mut slot: OwnedMutexGuard<Slot>) -> Result<Credential, NoSession> {
        let root = self.root().await.map_err(|silence| NoSession::Silent(silence.why))?;
        if root.sessionless {
            // Some answer 401 to a login at a place that they do not have.
            return Err(NoSession::Unavailable("the service has no sessions (says its root)".to_owned()));
        }
        let path = root.sessions.as_deref().unwrap_or(SESSIONS);
        let body = Some(json!({ "UserName": self.user, "Password": self.password }));
        let reply = match self.send(Ask { method: Method::POST, path, body, if_match: None }, None).await {
            Ok(reply) => reply,
            Err(silence) if silence.sent => {
                *slot = Slot::Lost;
                self.sweep_later();
                return Err(NoSession::Unavailable(format!("a login got no answer ({})", silence.why)));
            }
            Err(silence) => return Err(NoSession::Silent(silence.why)),
        };
        self.opened(reply, &mut slot)
    }

    fn opened(self: &Arc<Self>, reply: Reply, slot: &mut Slot) -> Result<Credential, NoSession> {
        let told = self.scrub(&reply.told());
        let full = model::speaks_of_full_sessions(reply.bytes());
        match (reply.status.as_u16(), reply.token.clone()) {
            (200..=299, Some(mut value)) => {
                value.set_sensitive(true);
                let (path, roles) =
                    (reply.location.clone().or(model::own_path(reply.bytes())), model::roles(reply.bytes()));
                let number = self.remember(&value);
                *slot = Slot::Open(Session { token: value.clone(), number, path, roles });
                Ok(Credential::Token { value, number })
            }
            (200..=299, None) => {
                *slot = Slot::Lost;
                self.sweep_later();
                Err(NoSession::Unavailable("a session was opened without a token".to_owned()))
            }
            (400 | 401 | 403, _) if !full => Err(NoSession::Refused(told)),
            (404 | 405 | 501, _) => Err(NoSession::Unavailable(format!("the service has no sessions ({told})"))),
            _ => Err(NoSession::Unavailable(format!("no session slot ({told})"))),
        }
    }

    /// Keeps the token out of all texts from now on, and numbers the session.
    fn remember(&self, token: &HeaderValue) -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static SESSIONS_OPENED: AtomicU64 = AtomicU64::new(0);
        let secret = Secret::new(token.as_bytes().to_vec());
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(secret);
        SESSIONS_OPENED.fetch_add(1, Ordering::Relaxed)
    }

    /// Looks for the session whose token was lost, and deletes it; if that fails, it ends by itself.
    fn sweep_later(self: &Arc<Self>) {
        let line = Arc::downgrade(self);
        tokio::spawn(async move {
            let swept = match line.upgrade() {
                Some(line) => line.sweep().await.is_some(),
                None => return,
            };
            if !swept {
                tokio::time::sleep(SESSION_IDLE).await;
            }
            if let Some(line) = line.upgrade() {
                line.try_sessions_again().await;
            }
        });
    }

    /// Deletes all sessions of this user: it has none that it knows. `None`: they cannot be listed.
    async fn sweep(&self) -> Option<()> {
        let root = self.known_root().unwrap_or_default();
        let list =
            self.send(Ask::get(root.sessions.as_deref().unwrap_or(SESSIONS)), Some(&Credential::Basic)).await.ok()?;
        for path in model::members(list.bytes()).ok()? {
            let session = self.send(Ask::get(&path), Some(&Credential::Basic)).await.ok()?;
            if model::user_name(session.bytes()).as_ref() == Some(&self.user) {
                self.delete(Some(path), Credential::Basic).await;
            }
        }
        Some(())
    }

    /// The service does not take Basic either: being able to fence is worth a slot. `false`: there was nothing lost.
    pub async fn try_sessions_again(&self) -> bool {
        let mut slot = self.slot.lock().await;
        let lost = matches!(*slot, Slot::Lost);
        if lost {
            *slot = Slot::Empty;
        }
        lost
    }

    /// The service does not know the token of this session any more. Whatever is left of it is deleted, so that a new
    /// one does not take a second slot.
    pub async fn forget(&self, turned_away: u64) {
        let mut slot = self.slot.lock().await;
        if matches!(&*slot, Slot::Open(session) if session.number == turned_away) {
            let path = match std::mem::replace(&mut *slot, Slot::Empty) {
                Slot::Open(session) => session.path,
                Slot::Empty | Slot::Lost => None,
            };
            let _ = tokio::time::timeout(FAREWELL, self.delete(path, Credential::Basic)).await;
        }
    }

    /// Deletes the session, if there is one.
    pub async fn logout(&self) {
        let mut slot = self.slot.lock().await;
        if let Slot::Open(session) = std::mem::replace(&mut *slot, Slot::Empty) {
            let credential = Credential::Token { value: session.token, number: session.number };
            self.delete(session.path, credential).await;
        }
    }

    /// Best effort: a session that cannot be deleted ends by itself.
    async fn delete(&self, path: Option<String>, credential: Credential) {
        if let Some(path) = path {
            let ask = Ask { method: Method::DELETE, path: &path, body: None, if_match: None };
            if let Err(silence) = self.send(ask, Some(&credential)).await {
                tracing::debug!(service = self.place(), reason = silence.why, "a session was not deleted");
            }
        }
    }

    /// The roles of the session, where the service told them.
    pub async fn roles(&self) -> Vec<String> {
        match &*self.slot.lock().await {
            Slot::Open(session) => session.roles.clone(),
            Slot::Empty | Slot::Lost => Vec::new(),
        }
    }

    /// The root of the service, asked for once: nobody has to log in for it.
    pub async fn root(&self) -> Result<Root, Silence> {
        if let Some(root) = self.known_root() {
            return Ok(root);
        }
        let reply = self.send(Ask::get(ROOT), None).await?;
        let root = model::root(reply.bytes());
        if root.systems.is_some() {
            *self.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(root.clone());
        }
        Ok(root)
    }

    pub fn known_root(&self) -> Option<Root> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub async fn systems(&self) -> Result<String, Silence> {
        let path = self.root().await?.systems.unwrap_or_else(|| SYSTEMS.to_owned());
        Ok(path.trim_end_matches('/').to_owned())
    }
}
