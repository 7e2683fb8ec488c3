//! Redfish: power control through a BMC by HTTPS.

use reqwest::Url;

use super::super::checked::{IdentityCheck, SecretSource};
use super::super::diagnostics::Finding;
use super::super::value::{At, Field, Findings, Least, Section};
use super::tls::{self, Trust};
use super::{Facts, password};
use crate::core::{Scope, Span};

/// Reading off once may be a flicker of the sensor, or the start of a reset.
const STABLE_READS: u32 = 2;

/// Between two readings. A BMC takes 50 ms to 3 s for one; asking faster only loads it.
const POLL: Span = Span::from_ms(500);

/// `kind = "redfish"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedfishAgent {
    /// Scheme, host and port; the service itself is at `/redfish/v1/` there.
    pub url: Url,
    /// Which of the service's systems is the target. `None`: the only one that it has.
    pub system: Option<SystemName>,
    pub user: String,
    pub password: SecretSource,
    pub login: Login,
    pub trust: Trust,
    pub stable_reads: u32,
    pub poll: Span,
    /// `power = "independent"`: the BMC stays alive when its host has lost all power.
    pub independent_power: bool,
    pub identity: IdentityCheck,
}

/// How a system is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemName {
    /// Its `Id`, the last part of its path.
    Id(String),
    /// Its whole path, for services that keep theirs elsewhere.
    Path(String),
}

impl SystemName {
    fn as_str(&self) -> &str {
        match self {
            SystemName::Id(text) | SystemName::Path(text) => text,
        }
    }
}

/// How the agent identifies itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// One session, kept over all requests; Basic where the service has none, or none left.
    Session,
    /// User and password with every request.
    Basic,
}

impl Facts for RedfishAgent {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Node)
    }

    fn device(&self) -> Vec<(String, String)> {
        let system = self.system.as_ref().map_or("", SystemName::as_str);
        vec![("redfish".to_owned(), self.host_and_port()), ("system".to_owned(), system.to_owned())]
    }

    /// One BMC may serve several machines: the named system is the device.
    fn own_device(&self) -> Option<String> {
        let system = self.system.as_ref().map(|s| format!(" system {}", s.as_str()));
        Some(format!("{}{}", self.host_and_port(), system.unwrap_or_default()))
    }

    fn address(&self) -> Option<&str> {
        Some(self.url.host_str()?.trim_matches(['[', ']']))
    }

    fn reading(&self) -> Span {
        self.poll.times(u64::from(self.stable_reads))
    }

    fn on_host_power(&self) -> bool {
        !self.independent_power
    }

    fn secrets(&self) -> Vec<&SecretSource> {
        vec![&self.password]
    }
}

impl RedfishAgent {
    fn host_and_port(&self) -> String {
        let port = self.url.port_or_known_default().unwrap_or_default();
        format!("{} port {port}", self.url.host_str().unwrap_or_default())
    }
}

pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<RedfishAgent> {
    let url = tls::url(s, "url", f);
    let trust = tls::trust(s, &url, f);
    let url = s.require(url, "url", "\"https://bmc-heron.example.net\"", f);
    let url = url.filter(|url| is_bare(s, url, f));
    let system = named(s.string("system", f), f);
    let user = s.string("user", f);
    let user = s.require(user, "user", "\"fence\"", f).filter(|user| is_carried(user, f));
    let password = password::read(s, f);
    let login = s.word("login", &[("session", Login::Session), ("basic", Login::Basic)], f);
    let stable_reads = s.integer("stable_reads", 1..=20, f);
    let poll = s.duration("poll", Least::Millisecond, f);
    let power = s.word("power", &[("host", false), ("independent", true)], f);
    let identity = s.word("identity", &[("uuid", IdentityCheck::Uuid), ("none", IdentityCheck::None)], f);
    let bad = [login.is_bad(), stable_reads.is_bad(), poll.is_bad(), power.is_bad(), identity.is_bad()];
    if bad.contains(&true) {
        return None;
    }
    Some(RedfishAgent {
        url: url?.value,
        system: system?,
        user: user?.value,
        password: password?,
        login: login.value_or(Login::Session),
        trust: trust?,
        stable_reads: stable_reads.value_or(STABLE_READS),
        poll: poll.value_or(POLL),
        independent_power: power.value_or(false),
        identity: identity.value_or(IdentityCheck::Uuid),
    })
}

/// The path of a Redfish service is fixed (DSP0266, "Protocol version"): one in the URL would be a system's, misplaced.
fn is_bare(s: &Section<'_>, url: &At<Url>, f: &mut Findings) -> bool {
    let path = url.value.path().trim_end_matches('/');
    if matches!(path, "" | "/redfish" | "/redfish/v1") {
        return true;
    }
    let finding = Finding::error(format!("`{}` goes beyond the service", s.path_of("url")));
    let finding = finding.at(&url.span, "has a path");
    f.push(finding.help("end it after the host or port; a system's path belongs in `system`"));
    false
}

/// Basic login ends the user at the first colon (RFC 7617, section 2).
fn is_carried(user: &At<String>, f: &mut Findings) -> bool {
    let carried = !user.value.contains(':') && !user.value.chars().any(char::is_control);
    if !carried {
        let finding = Finding::error("HTTP cannot carry this user name").at(&user.span, "a colon or control character");
        f.push(finding.help("use a user without one"));
    }
    carried
}

/// `Some(None)`: not named, which only a look at the service can judge.
fn named(system: Field<String>, f: &mut Findings) -> Option<Option<SystemName>> {
    let Field::Given(at) = system else { return (!system.is_bad()).then_some(None) };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    match at.value.strip_prefix('/') {
        Some(path) if path.split('/').all(|part| !matches!(part, "" | "." | "..") && part.chars().all(plain)) => {
            Some(Some(SystemName::Path(at.value)))
        }
        None if at.value.chars().all(plain) && !matches!(at.value.as_str(), "." | "..") => {
            Some(Some(SystemName::Id(at.value)))
        }
        Some(_) | None => {
            let finding = Finding::error("`system` is neither an Id nor a path").at(&at.span, "has other characters");
            f.push(finding.help(
                "write the system's Id, such as \"1\" or \"System.Embedded.1\", or its path \"/redfish/v1/Systems/1\"",
            ));
            None
        }
    }
}
