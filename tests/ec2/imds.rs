//! An instance metadata service: version 2, with what goes wrong with it.

use std::sync::{Arc, Mutex};

use super::fake::OTHER;
use super::http::{Asked, Http, Reply};

pub const SECRET: &str = "M4RK-imds-secret/77";
pub const SESSION: &str = "M4RK-imds-session+77";

/// How it is at the moment.
#[derive(Debug, Clone)]
pub struct State {
    /// Instead of an answer to the token request.
    pub token: Option<Reply>,
    /// `None`: the instance has no role.
    pub role: Option<&'static str>,
    /// The key id that it gives, and for how many seconds.
    pub key: (&'static str, i64),
    /// Instead of any answer at all.
    pub down: bool,
}

impl Default for State {
    fn default() -> State {
        State { token: None, role: Some("fence-role"), key: ("ASIAFIRST", 6 * 3600), down: false }
    }
}

pub struct Imds {
    pub http: Http,
    state: Arc<Mutex<State>>,
}

impl Imds {
    pub fn start(state: State) -> Imds {
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        Imds { http: Http::start(move |asked| answer(&shared.lock().unwrap(), asked)), state }
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Requests for anything but a token that came without one.
    pub fn without_token(&self) -> usize {
        let asked = self.http.asked();
        asked.iter().filter(|a| a.method == "GET" && a.header("x-aws-ec2-metadata-token") != Some("the-token")).count()
    }

    /// How often keys were asked for.
    pub fn fetches(&self) -> usize {
        self.http.asked().iter().filter(|a| a.path.ends_with("/fence-role")).count()
    }
}

fn answer(state: &State, asked: &Asked) -> Reply {
    if state.down {
        return Reply::Closed;
    }
    match (asked.method.as_str(), asked.path.as_str()) {
        ("PUT", "/latest/api/token") if asked.header("x-aws-ec2-metadata-token-ttl-seconds").is_none() => {
            Reply::of(400, "no ttl")
        }
        ("PUT", "/latest/api/token") => state.token.clone().unwrap_or(Reply::of(200, "the-token")),
        ("GET", _) if asked.header("x-aws-ec2-metadata-token") != Some("the-token") => Reply::of(401, "Unauthorized"),
        ("GET", "/latest/meta-data/instance-id") => Reply::of(200, OTHER),
        ("GET", "/latest/meta-data/iam/security-credentials/") => match state.role {
            Some(role) => Reply::of(200, role),
            None => Reply::of(404, "<html>Not Found</html>"),
        },
        ("GET", "/latest/meta-data/iam/security-credentials/fence-role") => Reply::of(200, keys(state.key)),
        _ => Reply::of(404, "no such thing"),
    }
}

fn keys((id, seconds): (&str, i64)) -> String {
    let end = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + seconds).unwrap();
    format!(
        r#"{{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"{id}","SecretAccessKey":"{SECRET}","Token":"{SESSION}","Expiration":"{end}"}}"#
    )
}
