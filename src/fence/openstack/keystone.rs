//! Keystone: an application credential becomes a token and the addresses of the services (Identity API v3).
//!
//! A token is renewed when half of its life has passed, which the proofs between fences do long before one is needed.
//! If Keystone is away just then, the old one goes on being used: half of its life is left.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::task::Poll;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderValue;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Sleep, sleep};

use crate::config::{OpenstackCloud, Trust};

use super::super::Secret;
use super::super::web::{bounded_body, explain};
use super::cloud::LARGEST_ANSWER;

/// How long a token is used whose life cannot be read: Keystone's shortest sensible `expiration` is some minutes.
const UNKNOWN_LIFE: Duration = Duration::from_secs(120);
/// No timer for longer than this: a clock of the cloud that is wrong by years must not overflow one.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The service that a request is for, by the types of the catalog; the first is today's name (service-types authority).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Compute,
    Volume,
}

impl Service {
    fn types(self) -> &'static [&'static str] {
        match self {
            Service::Compute => &["compute"],
            Service::Volume => &["block-storage", "volumev3", "block-store", "volume"],
        }
    }
}

/// What a login gave.
#[derive(Debug)]
pub struct Grant {
    pub token: Secret,
    pub header: HeaderValue,
    compute: Result<String, String>,
    volume: Result<String, String>,
    pub roles: Vec<String>,
    stale: Mutex<Pin<Box<Sleep>>>,
}

impl Grant {
    /// The address below which the service's paths lie, without a slash at its end.
    pub fn endpoint(&self, service: Service) -> Result<&str, String> {
        let endpoint = match service {
            Service::Compute => &self.compute,
            Service::Volume => &self.volume,
        };
        endpoint.as_deref().map_err(Clone::clone)
    }

    /// Half of its life has passed.
    pub async fn is_stale(&self) -> bool {
        poll_fn(|context| {
            let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
            Poll::Ready(stale.as_mut().poll(context).is_ready())
        })
        .await
    }
}

/// Who logs in, and where.
#[derive(Debug)]
pub struct Keystone {
    cloud: OpenstackCloud,
    secret: Secret,
}

impl Keystone {
    pub fn new(cloud: OpenstackCloud, secret: Secret) -> Keystone {
        Keystone { cloud, secret }
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// What is asked, for the evidence.
    pub fn request(&self) -> String {
        format!("POST {}/auth/tokens", self.cloud.auth_url)
    }

    /// One login. The error says what came instead; it may hold what the server said.
    pub async fn login(&self, http: &Client) -> Result<Grant, String> {
        let secret = std::str::from_utf8(self.secret.bytes()).map_err(|_| "the secret is not UTF-8".to_owned())?;
        let body = json!({"auth": {"identity": {
            "methods": ["application_credential"],
            "application_credential": {"id": self.cloud.credential_id, "secret": secret},
        }}});
        let request = http.post(format!("{}/auth/tokens", self.cloud.auth_url)).json(&body);
        let response = request.send().await.map_err(|error| explain(&error))?;
        let (status, token) = (response.status(), response.headers().get("X-Subject-Token").cloned());
        let body = bounded_body(response, LARGEST_ANSWER).await?;
        match (status, token) {
            (StatusCode::CREATED, Some(token)) => self.grant(token, &body),
            (StatusCode::CREATED, None) => Err("201, but no token in it: is this Keystone?".to_owned()),
            (status, _) => Err(refused(status, &body)),
        }
    }

    fn grant(&self, mut header: HeaderValue, body: &[u8]) -> Result<Grant, String> {
        header.set_sensitive(true);
        let answer: Answer = serde_json::from_slice(body).map_err(|e| format!("201, but no token can be read: {e}"))?;
        let Answer { token } = answer;
        let endpoint = |service, given: &Option<Url>| match given {
            Some(url) => Ok(url.as_str().trim_end_matches('/').to_owned()),
            None => self.look_up(service, &token.catalog),
        };
        Ok(Grant {
            token: Secret::new(header.as_bytes().to_vec()),
            compute: endpoint(Service::Compute, &self.cloud.compute_endpoint),
            volume: endpoint(Service::Volume, &self.cloud.volume_endpoint),
            roles: token.roles.iter().map(|role| role.name.clone()).collect(),
            stale: Mutex::new(Box::pin(sleep(token.life() / 2))),
            header,
        })
    }

    fn look_up(&self, service: Service, catalog: &[Listed]) -> Result<String, String> {
        let types = service.types();
        let of_type = types.iter().find_map(|t| catalog.iter().find(|listed| listed.kind == *t));
        let Some(listed) = of_type else {
            return Err(format!("the catalog has no service of type {}", types.join(" or ")));
        };
        let interface = self.cloud.interface;
        let usable: Vec<&Endpoint> = listed.endpoints.iter().filter(|e| e.interface == interface).collect();
        let of_region = |e: &&&Endpoint| self.cloud.region.is_none() || self.cloud.region == e.region();
        let regions = || usable.iter().filter_map(|e| e.region()).collect::<Vec<_>>().join(", ");
        match usable.iter().filter(of_region).collect::<Vec<_>>()[..] {
            [endpoint] => self.trusted(&endpoint.url),
            [] => Err(format!(
                "the catalog has no {interface} endpoint of {} in {}; it has those of: {}",
                listed.kind,
                self.cloud.region.as_deref().unwrap_or("any region"),
                regions()
            )),
            _ => Err(format!(
                "the catalog has several {interface} endpoints of {}: set `region` to one of {}",
                listed.kind,
                regions()
            )),
        }
    }

    fn trusted(&self, url: &str) -> Result<String, String> {
        if url.starts_with("https://") || self.cloud.trust == Trust::Plaintext {
            return Ok(url.trim_end_matches('/').to_owned());
        }
        Err(format!("the catalog names {url}, where the token would cross the network readable; give the endpoint"))
    }
}

fn refused(status: StatusCode, body: &[u8]) -> String {
    let meaning = match status {
        StatusCode::UNAUTHORIZED => ": Keystone refuses the application credential (wrong, expired or deleted)",
        StatusCode::NOT_FOUND => ": no Keystone at `auth_url`",
        _ => "",
    };
    format!("{}{meaning}: {}", status.as_u16(), String::from_utf8_lossy(body))
}

#[derive(Debug, Deserialize)]
struct Answer {
    token: Token,
}

#[derive(Debug, Deserialize)]
struct Token {
    issued_at: Option<String>,
    expires_at: Option<String>,
    #[serde(default)]
    catalog: Vec<Listed>,
    #[serde(default)]
    roles: Vec<Role>,
}

impl Token {
    /// By Keystone's own clock at both ends, so that its difference from ours does not matter.
    fn life(&self) -> Duration {
        let time = |text: &Option<String>| text.as_ref()?.parse::<Timestamp>().ok();
        let (Some(from), Some(to)) = (time(&self.issued_at), time(&self.expires_at)) else { return UNKNOWN_LIFE };
        Duration::try_from(to.duration_since(from)).unwrap_or_default().min(LONGEST_LIFE)
    }
}

#[derive(Debug, Deserialize)]
struct Role {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    interface: String,
    region_id: Option<String>,
    region: Option<String>,
    url: String,
}

impl Endpoint {
    /// `region` is the old name of `region_id`.
    fn region(&self) -> Option<String> {
        self.region_id.clone().or_else(|| self.region.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(issued_at: &str, expires_at: &str) -> Duration {
        let body = json!({"token": {"issued_at": issued_at, "expires_at": expires_at}});
        serde_json::from_value::<Answer>(body).unwrap().token.life()
    }

    #[test]
    fn the_life_of_a_token_is_read_from_keystones_own_clock() {
        let hour = life("2015-11-07T01:58:43.578929Z", "2015-11-07T02:58:43.578929Z");
        assert_eq!(hour, Duration::from_secs(3600));
        assert_eq!(life("2015-11-07T01:58:43.5Z", "2015-11-07T01:00:00.5Z"), Duration::ZERO);
        assert_eq!(life("2015-11-07T01:58:43.5Z", "9999-11-07T01:00:00.5Z"), LONGEST_LIFE);
        assert_eq!(life("yesterday", "2015-11-07T01:00:00.5Z"), UNKNOWN_LIFE);
    }
}
