//! One signed request to the Query API of EC2 and its answer, with patience where EC2 asks for it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use tokio::time::sleep;

use super::super::web::{self, Limits};
use super::super::{Attempt, FenceError, Setup};
use super::credentials::{Keys, Source};
use super::imds::Imds;
use super::words::{Failure, Skew, explain, is_later, short};
use super::xml::Element;
use crate::config::Ec2Access;

/// The version of the API; it has been the same since 2016.
const VERSION: &str = "2016-11-15";
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// A describe of one thing has a few kilobytes, of a much tagged one some dozens.
const MAX_BODY: usize = 512 * 1024;
/// An attempt makes at least so many calls: one that hangs must leave time for the others.
const CALLS_PER_ATTEMPT: u32 = 4;
/// EC2 answers within a second or two; on a bad day within this.
const LONGEST_CALL: Duration = Duration::from_secs(10);
const LONGEST_CONNECT: Duration = Duration::from_secs(3);
/// First pause after "later"; it doubles from time to time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// EC2's buckets fill by the second (EC2 Developer Guide, "Request throttling"): longer pauses gain nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One action with its parameters.
#[derive(Debug, Clone)]
pub struct Request {
    action: &'static str,
    /// What it is about, for people.
    about: String,
    parameters: Vec<(&'static str, String)>,
}

impl Request {
    pub fn new(action: &'static str, about: &str) -> Request {
        Request { action, about: about.to_owned(), parameters: Vec::new() }
    }

    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Request {
        self.parameters.push((key, value.into()));
        self
    }

    /// With a parameter that is left out where it is not wanted.
    pub fn with_flag(self, key: &'static str, wanted: bool) -> Request {
        if wanted { self.with(key, "true") } else { self }
    }

    /// The same, only tried: EC2 checks the permission and changes nothing.
    pub fn dry(self) -> Request {
        self.with("DryRun", "true")
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.about)?;
        let shown = self.parameters.iter().filter(|(_, value)| value == "true");
        shown.into_iter().try_for_each(|(key, _)| write!(f, " {key}"))
    }
}

/// EC2 in one region, as one agent asks it.
#[derive(Debug)]
pub struct Api {
    client: Client,
    endpoint: Url,
    pub region: String,
    pub source: Source,
}

impl Api {
    /// Reads the keys and the certificates now.
    pub fn new(setup: Setup<'_>, access: &Ec2Access) -> Result<Api, FenceError> {
        let unusable = |why| FenceError::Unusable { agent: setup.name.to_owned(), why };
        let limit = Duration::from(setup.limit);
        let request = (limit / CALLS_PER_ATTEMPT).min(LONGEST_CALL);
        let limits = Limits { connect: (request / 2).min(LONGEST_CONNECT), request };
        let imds = Imds::new(&access.metadata_endpoint, limit).map_err(unusable)?;
        Ok(Api {
            client: web::client(&access.trust, limits).map_err(unusable)?,
            endpoint: access.endpoint.clone(),
            region: access.region.clone(),
            source: Source::new(&access.credentials, imds).map_err(unusable)?,
        })
    }

    /// Asks until there is an answer that is not "later". Whoever is out of time drops this.
    pub async fn call(&self, request: &Request, attempt: &Attempt) -> Result<Element, Failure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let answer = self.once(request, attempt).await;
            let Err(Failure::Busy(why)) = &answer else { return answer };
            attempt.note(&request.to_string(), why);
            sleep(jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn once(&self, request: &Request, attempt: &Attempt) -> Result<Element, Failure> {
        let no_clock = || Failure::NoAnswer("the time of day is not known, and no request can be signed".to_owned());
        let now = attempt.now().ok_or_else(no_clock)?;
        let keys = self.source.keys(now, attempt).await.map_err(Failure::NoAnswer)?;
        let told = |text: String| Failure::NoAnswer(keys.scrub(&text));
        let body = self.form(request);
        let headers = self.headers(&keys, &body, now).map_err(told)?;
        let sent = self.client.post(self.endpoint.clone()).headers(headers).body(body).send().await;
        let response = sent.map_err(|error| told(web::explain(&error)))?;
        let (status, skew) = (response.status().as_u16(), skew(response.headers(), now));
        let body = web::bounded_body(response, MAX_BODY).await.map_err(told)?;
        self.interpret(request, status, &body, skew, &keys)
    }

    fn form(&self, request: &Request) -> String {
        let mut url = self.endpoint.clone();
        let fixed = [("Action", request.action), ("Version", VERSION)];
        let own = request.parameters.iter().map(|(key, value)| (*key, value.as_str()));
        url.query_pairs_mut().extend_pairs(fixed.into_iter().chain(own));
        url.query().unwrap_or_default().to_owned()
    }

    fn headers(&self, keys: &Arc<Keys>, body: &str, now: SystemTime) -> Result<HeaderMap, String> {
        let form = (CONTENT_TYPE.as_str(), FORM);
        let signed = keys.sign(self.endpoint.as_str(), &self.region, form, body.as_bytes(), now)?;
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(FORM))]);
        for (name, value) in signed {
            let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
            // The error would quote the value, which may be a session token.
            let mut value = HeaderValue::try_from(value).map_err(|_| "the keys hold what no header can carry")?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    fn interpret(
        &self,
        request: &Request,
        status: u16,
        body: &[u8],
        skew: Skew,
        keys: &Keys,
    ) -> Result<Element, Failure> {
        let root = Element::parse(body);
        if let Some(root) = root.as_ref().filter(|_| status == 200) {
            let wanted = format!("{}Response", request.action);
            return if root.name == wanted {
                Ok(root.clone())
            } else {
                Err(strange(status, &short(&keys.scrub(&root.name))))
            };
        }
        let error = root.as_ref().and_then(|root| root.child("Errors")?.child("Error"));
        let (code, message) = error.map_or(("", ""), |e| (e.at(&["Code"]), e.at(&["Message"])));
        let (code, message) = (short(&keys.scrub(code)), short(&keys.scrub(message)));
        if is_later(status, &code) {
            return Err(Failure::Busy(format!("EC2 asks to wait ({status} {code}): {message}")));
        }
        if code.is_empty() {
            return Err(strange(status, &short(&keys.scrub(&String::from_utf8_lossy(body)))));
        }
        let text = explain(request.action, &self.region, &code, &message, skew);
        Err(Failure::Said { code, text })
    }
}

fn strange(status: u16, body: &str) -> Failure {
    Failure::NoAnswer(format!("an answer that EC2 does not give: {status} {body}"))
}

/// How far this clock is ahead of the one that dated the answer, in seconds.
fn skew(headers: &HeaderMap, now: SystemTime) -> Skew {
    let date = headers.get(DATE)?.to_str().ok()?;
    let there = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    let here = jiff::Timestamp::try_from(now).ok()?;
    Some(here.as_second() - there.as_second())
}

/// Half of it to all of it: the two nodes must not come back at the same instant.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0; 1];
    // Without randomness the pause is whole, which is only less polite.
    let share = getrandom::fill(&mut byte).map_or(255, |()| u32::from(byte[0]));
    pause / 2 + pause / 2 * share / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_half_of_it_to_all_of_it() {
        let pause = Duration::from_millis(1000);
        assert!((0..100).map(|_| jittered(pause)).all(|p| p >= pause / 2 && p <= pause));
    }

    #[test]
    fn the_clock_of_the_answer_is_compared() {
        let date = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
        let headers = HeaderMap::from_iter([(DATE, date)]);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 + 90);
        assert_eq!(skew(&headers, now), Some(90));
        assert_eq!(skew(&HeaderMap::new(), now), None);
    }

    #[test]
    fn a_request_tells_what_it_does() {
        let request = Request::new("StopInstances", "i-1").with("InstanceId.1", "i-1").with_flag("Force", true).dry();
        assert_eq!(request.to_string(), "StopInstances i-1 Force DryRun");
    }
}
