//! The instance metadata service, version 2 only: token, role, keys (EC2 User Guide, "Use IMDSv2").
//!
//! Keys are fetched anew long before they end, so that those in hand outlive a whole attempt, and a service that is
//! down meanwhile does no harm (casebook C16). Version 1 is never spoken: nothing is asked without a token.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::{Client, RequestBuilder, StatusCode, Url};
use tokio::sync::{Mutex, OnceCell};

use super::super::Attempt;
use super::super::web::{self, Limits};
use super::credentials::Keys;
use crate::config::Trust;

/// It answers from the host within milliseconds; whoever waits longer is not reached at all.
const LONGEST_CALL: Duration = Duration::from_secs(1);
/// New keys are there at least five minutes before the old ones end (EC2 User Guide, "Retrieve security credentials"):
/// twice that, so that they are in hand in good time.
const AHEAD: Duration = Duration::from_secs(600);
/// When keys near their end are all that it has, it is not asked for others more often than this.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// A token is used for the requests that follow it at once, and thrown away.
const TOKEN_TTL: &str = "60";
/// No answer of it comes near this.
const MAX_BODY: usize = 64 * 1024;

const TOKEN: &str = "latest/api/token";
const ROLE: &str = "latest/meta-data/iam/security-credentials/";
const INSTANCE: &str = "latest/meta-data/instance-id";

/// One metadata service, and what it gave last.
#[derive(Debug)]
pub struct Imds {
    client: Client,
    base: Url,
    /// How long keys have to last: a whole attempt.
    need: Duration,
    held: Mutex<Option<Held>>,
    instance: OnceCell<String>,
}

#[derive(Debug, Clone)]
struct Held {
    keys: Arc<Keys>,
    /// When it was last asked, whatever it said.
    asked: SystemTime,
}

impl Held {
    fn lasts(&self, now: SystemTime, span: Duration) -> bool {
        self.keys.expires.is_none_or(|end| now + span < end)
    }

    /// A clock that was set back has not asked yet.
    fn asked_lately(&self, now: SystemTime) -> bool {
        now.duration_since(self.asked).is_ok_and(|ago| ago < ASK_AGAIN)
    }
}

impl Imds {
    pub fn new(base: &Url, need: Duration) -> Result<Imds, String> {
        let call = LONGEST_CALL.min(need / 4);
        let client = web::client(&Trust::Plaintext, Limits { connect: call, request: call })?;
        Ok(Imds { client, base: base.clone(), need, held: Mutex::default(), instance: OnceCell::new() })
    }

    /// The keys in hand, or new ones where those do not last for a whole attempt and more.
    pub async fn keys(&self, now: SystemTime, attempt: &Attempt) -> Result<Arc<Keys>, String> {
        let mut held = self.held.lock().await;
        if let Some(held) = &*held
            && (held.lasts(now, AHEAD + self.need) || held.lasts(now, Duration::ZERO) && held.asked_lately(now))
        {
            return Ok(Arc::clone(&held.keys));
        }
        match (self.fetch().await, &mut *held) {
            (Ok(keys), _) => {
                let keys = Arc::new(keys);
                *held = Some(Held { keys: Arc::clone(&keys), asked: now });
                Ok(keys)
            }
            (Err(why), Some(held)) if held.lasts(now, Duration::ZERO) => {
                held.asked = now;
                attempt.note("metadata service", &format!("{why}; the keys in hand are still good"));
                Ok(Arc::clone(&held.keys))
            }
            (Err(why), _) => Err(why),
        }
    }

    /// Why the keys in hand are not enough for a whole attempt that begins now.
    pub async fn too_short(&self, now: SystemTime) -> Option<String> {
        let held = self.held.lock().await.clone()?;
        let left = held.keys.expires?.duration_since(now).unwrap_or_default();
        (left < self.need).then(|| {
            let (left, need) = (left.as_secs(), self.need.as_secs());
            format!("the keys of the role end in {left}s, an attempt takes up to {need}s, and there are no newer ones")
        })
    }

    /// The instance that this node is.
    pub async fn instance(&self) -> Result<&str, String> {
        let ask = async {
            let token = self.token().await?;
            let body = self.get(INSTANCE, &token, "the id of this instance").await?;
            Ok(body.trim().to_owned())
        };
        self.instance.get_or_try_init(|| ask).await.map(String::as_str)
    }

    async fn fetch(&self) -> Result<Keys, String> {
        let token = self.token().await?;
        let roles = self.get(ROLE, &token, "the role of this instance").await?;
        let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty());
        let role = role.ok_or("metadata service: this instance has no role; attach an instance profile to it")?;
        let body = self.get(&format!("{ROLE}{role}"), &token, "the keys of the role").await?;
        parse(&body)
    }

    async fn token(&self) -> Result<String, String> {
        let url = self.url(TOKEN)?;
        let request = self.client.put(url).header("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL);
        let (status, body) = self.send(request).await.map_err(|error| self.unreached(&error))?;
        match status {
            StatusCode::OK => Ok(body.trim().to_owned()),
            StatusCode::FORBIDDEN => Err("metadata service: it is switched off for this instance (403 to the token \
                 request); aws ec2 modify-instance-metadata-options --http-endpoint enabled"
                .to_owned()),
            other => Err(format!("metadata service: {other} to the token request of version 2, and no other is used")),
        }
    }

    async fn get(&self, path: &str, token: &str, what: &str) -> Result<String, String> {
        let request = self.client.get(self.url(path)?).header("X-aws-ec2-metadata-token", token);
        let (status, body) = self.send(request).await.map_err(|error| self.unreached(&error))?;
        match status {
            StatusCode::OK => Ok(body),
            StatusCode::NOT_FOUND if path.starts_with(ROLE) => {
                Err("metadata service: this instance has no role (404); attach an instance profile to it".to_owned())
            }
            other => Err(format!("metadata service: {other} for {what}")),
        }
    }

    fn url(&self, path: &str) -> Result<Url, String> {
        self.base.join(path).map_err(|error| format!("metadata service: {path}: {error}"))
    }

    async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, String), Unreached> {
        let response = request.send().await.map_err(Unreached::of)?;
        let status = response.status();
        let body = web::bounded_body(response, MAX_BODY).await.map_err(Unreached::Broken)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn unreached(&self, why: &Unreached) -> String {
        match why {
            Unreached::Silent => "metadata service: connected, but no answer in time; from a container or behind a \
                 bridge the hop limit of 1 keeps it away: aws ec2 modify-instance-metadata-options \
                 --http-put-response-hop-limit 2"
                .to_owned(),
            Unreached::Broken(text) => {
                let host = self.base.host_str().unwrap_or_default();
                format!("metadata service at {host}: {text}")
            }
        }
    }
}

#[derive(Debug)]
enum Unreached {
    /// Connected, and then nothing: what a hop limit looks like from here.
    Silent,
    Broken(String),
}

impl Unreached {
    fn of(error: reqwest::Error) -> Unreached {
        if error.is_timeout() && !error.is_connect() {
            Unreached::Silent
        } else {
            Unreached::Broken(web::explain(&error))
        }
    }
}

fn parse(body: &str) -> Result<Keys, String> {
    let wrong = |what: &str| format!("metadata service: the keys of the role cannot be understood: {what}");
    let value: serde_json::Value = serde_json::from_str(body).map_err(|_| wrong("no JSON"))?;
    let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
    if let Some(code) = text("Code").filter(|code| *code != "Success") {
        return Err(format!("metadata service: it has no keys for the role of this instance: {code}"));
    }
    let needed = |key: &str| text(key).ok_or_else(|| wrong(&format!("no {key}")));
    let end = needed("Expiration")?.parse::<jiff::Timestamp>().ok().and_then(|end| SystemTime::try_from(end).ok());
    let end = end.ok_or_else(|| wrong("Expiration is no time"))?;
    Ok(Keys::new(needed("AccessKeyId")?, needed("SecretAccessKey")?, Some(needed("Token")?), Some(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_what_is_missing_is_named() {
        let body = r#"{"Code":"Success","AccessKeyId":"A","SecretAccessKey":"B","Token":"C","Expiration":"2026-01-01T00:00:00Z"}"#;
        assert!(parse(body).unwrap().expires.is_some());
        assert!(parse(&body.replace("\"C\"", "\"\"")).unwrap_err().contains("no Token"));
        assert!(parse(&body.replace("Success", "AssumeRoleUnauthorizedAccess")).unwrap_err().contains("AssumeRole"));
        assert!(parse("<html>").unwrap_err().contains("no JSON"));
    }
}
