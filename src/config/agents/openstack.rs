//! OpenStack: stop a server, detach a volume.

use reqwest::Url;

use super::super::checked::SecretSource;
use super::super::diagnostics::Finding;
use super::super::secret_source;
use super::super::value::{At, Field, Findings, Least, Section};
use super::Facts;
use super::tls::{self, Trust};
use crate::core::{Scope, Span};

/// Between two readings: a cloud counts requests, and no server stops faster.
const POLL: Span = Span::from_secs(1);

/// How long Nova lets a guest shut down by itself before it cuts the power (`[DEFAULT] shutdown_timeout` of nova.conf,
/// or `os_shutdown_timeout` of the image). A guest that hangs uses up all of it.
const GUEST_SHUTDOWN: Span = Span::from_secs(60);

/// How often `off` must be read in a row.
pub const STABLE_READS: u32 = 2;

/// A login, a reading, the command: one exchange with a cloud rarely takes longer than a second.
const EXCHANGES: Span = Span::from_secs(3);

/// The cloud, and the credential that it knows the agent by.
#[derive(Debug, Clone)]
pub struct OpenstackCloud {
    /// Of Keystone, ends in `/v3`.
    pub auth_url: Url,
    pub credential_id: String,
    pub credential_secret: SecretSource,
    /// `None`: the only one of the catalog.
    pub region: Option<String>,
    /// `public`, `internal` or `admin`.
    pub interface: &'static str,
    /// Instead of the catalog's.
    pub compute_endpoint: Option<Url>,
    pub volume_endpoint: Option<Url>,
    pub trust: Trust,
    pub poll: Span,
}

/// `kind = "openstack-power"`.
#[derive(Debug, Clone)]
pub struct OpenstackPower {
    pub cloud: OpenstackCloud,
    /// UUID of the server, in lower case.
    pub server: String,
}

/// `kind = "openstack-volume"`.
#[derive(Debug, Clone)]
pub struct OpenstackVolume {
    pub cloud: OpenstackCloud,
    /// UUID of the server that must not have the volume, in lower case.
    pub server: String,
    /// UUID of the volume, in lower case.
    pub volume: String,
    /// Name that is asked for when it is attached, such as `/dev/vdb`.
    pub device: Option<String>,
}

impl OpenstackCloud {
    fn device(&self) -> Vec<(String, String)> {
        let given = |url: &Option<Url>| url.as_ref().map_or(String::new(), Url::to_string);
        [
            ("auth_url", self.auth_url.to_string()),
            ("region", self.region.clone().unwrap_or_default()),
            ("interface", self.interface.to_owned()),
            ("compute_endpoint", given(&self.compute_endpoint)),
            ("volume_endpoint", given(&self.volume_endpoint)),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec()
    }

    fn reading(&self) -> Span {
        self.poll.times(u64::from(STABLE_READS))
    }
}

impl Facts for OpenstackPower {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Node)
    }

    fn device(&self) -> Vec<(String, String)> {
        [vec![("openstack-power".to_owned(), self.server.clone())], self.cloud.device()].concat()
    }

    fn own_device(&self) -> Option<String> {
        Some(format!("server {}", self.server))
    }

    fn address(&self) -> Option<&str> {
        self.cloud.auth_url.host_str()
    }

    fn reading(&self) -> Span {
        self.cloud.reading()
    }

    fn secrets(&self) -> Vec<&SecretSource> {
        vec![&self.cloud.credential_secret]
    }
}

impl Facts for OpenstackVolume {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn device(&self) -> Vec<(String, String)> {
        let own = [("openstack-volume", &self.server), ("volume", &self.volume)];
        let own = own.map(|(key, value)| (key.to_owned(), value.clone())).to_vec();
        [own, self.cloud.device()].concat()
    }

    fn own_device(&self) -> Option<String> {
        Some(format!("server {}", self.server))
    }

    fn address(&self) -> Option<&str> {
        self.cloud.auth_url.host_str()
    }

    fn reading(&self) -> Span {
        self.cloud.reading()
    }

    fn secrets(&self) -> Vec<&SecretSource> {
        vec![&self.cloud.credential_secret]
    }
}

pub fn read_power(s: &mut Section<'_>, f: &mut Findings) -> Option<OpenstackPower> {
    let cloud = cloud(s, f);
    let server = uuid(s, "server", f);
    let patient = outlasts_the_guest(s, f);
    Some(OpenstackPower { cloud: cloud?, server: server? }).filter(|_| patient)
}

pub fn read_volume(s: &mut Section<'_>, f: &mut Findings) -> Option<OpenstackVolume> {
    let cloud = cloud(s, f);
    let (server, volume) = (uuid(s, "server", f), uuid(s, "volume", f));
    let device = s.string("device", f);
    if device.is_bad() {
        return None;
    }
    Some(OpenstackVolume { cloud: cloud?, server: server?, volume: volume?, device: device.value() })
}

fn cloud(s: &mut Section<'_>, f: &mut Findings) -> Option<OpenstackCloud> {
    let auth_url = tls::url(s, "auth_url", f);
    let trust = tls::trust(s, &auth_url, f);
    let auth_url = s.require(auth_url, "auth_url", "\"https://cloud.example.net:5000/v3\"", f);
    let id = s.string("application_credential_id", f);
    let id = s.require(id, "application_credential_id", "\"21dced0fd20347869b93710d2b98aae0\"", f);
    let secret = secret(s, f);
    let region = s.string("region", f);
    let interfaces = [("public", "public"), ("internal", "internal"), ("admin", "admin")];
    let interface = s.word("interface", &interfaces, f);
    let compute = endpoint(s, "compute_endpoint", trust.as_ref(), f);
    let volume = endpoint(s, "volume_endpoint", trust.as_ref(), f);
    let poll = s.duration("poll", Least::Millisecond, f);
    let bad = [region.is_bad(), interface.is_bad(), compute.is_bad(), volume.is_bad(), poll.is_bad()];
    if bad.contains(&true) {
        return None;
    }
    Some(OpenstackCloud {
        auth_url: versioned(auth_url?.value),
        credential_id: id?.value,
        credential_secret: secret?,
        region: region.value(),
        interface: interface.value_or("public"),
        compute_endpoint: compute.value(),
        volume_endpoint: volume.value(),
        trust: trust?,
        poll: poll.value_or(POLL),
    })
}

/// An endpoint besides Keystone gets the token, so it is spoken to in the same manner.
fn endpoint(s: &mut Section<'_>, key: &'static str, trust: Option<&Trust>, f: &mut Findings) -> Field<Url> {
    let url = tls::url(s, key, f);
    let plain = url.given().filter(|at| at.value.scheme() == "http" && trust.is_some_and(|t| *t != Trust::Plaintext));
    let Some(at) = plain else { return url };
    let finding = Finding::error("the token would cross the network readable").at(&at.span, "without TLS");
    f.push(finding.help("write https://; `auth_url` is spoken to over TLS as well"));
    Field::Bad
}

/// Identity API version 3 lies below `/v3`; many clouds give their address without it.
fn versioned(mut url: Url) -> Url {
    let path = url.path().trim_end_matches('/').to_owned();
    let path = if path.ends_with("/v3") { path } else { format!("{path}/v3") };
    url.set_path(&path);
    url
}

const SECRET: &str = "application_credential_secret";
const SECRET_FILE: &str = "application_credential_secret_file";
const SECRET_CREDENTIAL: &str = "application_credential_secret_credential";

fn secret(s: &mut Section<'_>, f: &mut Findings) -> Option<SecretSource> {
    let literal = refuse_literal(s, f);
    match secret_source::read(s, SECRET_FILE, SECRET_CREDENTIAL, f) {
        Field::Bad => None,
        _ if literal => None,
        Field::Given(source) => Some(source.value),
        Field::Absent => {
            let finding = Finding::error("the application credential has no secret").at(&s.span, "where is it?");
            f.push(finding.help(format!(
                "add `{SECRET_FILE} = \"/etc/leasehold/openstack\"` (mode 0600) or `{SECRET_CREDENTIAL} = \"openstack\"`"
            )));
            None
        }
    }
}

fn refuse_literal(s: &mut Section<'_>, f: &mut Findings) -> bool {
    let Some(span) = s.key_span(SECRET) else { return false };
    s.know(SECRET);
    let finding = Finding::error("a secret stands in the configuration");
    let finding = finding.at(&span, "its value is not read and not shown");
    let finding = finding.note("this file is copied, compared and pasted into tickets; a secret is not");
    f.push(finding.help(format!(
        "put it into a file of mode 0600 and write `{SECRET_FILE} = \"/etc/leasehold/openstack\"`; then make a new \
         application credential"
    )));
    true
}

fn uuid(s: &mut Section<'_>, key: &'static str, f: &mut Findings) -> Option<String> {
    let text = s.string(key, f);
    let At { value, span } = s.require(text, key, "\"8f9f1d5a-4a2c-4b53-9d3c-0d1a2b3c4d5e\"", f)?;
    let groups: Vec<usize> = value.split('-').map(str::len).collect();
    let hex = value.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    if hex && groups == [8, 4, 4, 4, 12] {
        return Some(value.to_lowercase());
    }
    let finding = Finding::error(format!("`{}` is not the UUID of a {key}", s.path_of(key))).at(&span, "not a UUID");
    f.push(
        finding
            .note("a name can be given to another one; a UUID cannot")
            .help(format!("write the id that `openstack {key} show NAME -f value -c id` prints")),
    );
    None
}

/// An attempt that ends before Nova cuts the power never proves anything of a guest that hangs.
fn outlasts_the_guest(s: &mut Section<'_>, f: &mut Findings) -> bool {
    let shutdown = s.duration("guest_shutdown", Least::Zero, f);
    // Reported by whoever reads it for all kinds.
    let timeout = s.fence_limit("timeout", &mut Findings::default());
    if shutdown.is_bad() || timeout.is_bad() {
        return !shutdown.is_bad();
    }
    let (wait, limit) = (shutdown.value_or(GUEST_SHUTDOWN), timeout.value_or(super::super::check::AGENT_TIMEOUT));
    let needed = wait.plus(EXCHANGES);
    if limit >= needed {
        return true;
    }
    let finding = Finding::error("the attempt would end before Nova cuts the power of a guest that hangs");
    let at = timeout.span().or(shutdown.span()).unwrap_or(&s.span);
    let finding = finding.at(at, format!("one attempt may take {limit}"));
    let finding =
        finding.note(format!("guest_shutdown + login, reading and command = {wait} + {EXCHANGES} = {needed}"));
    f.push(finding.help(
        "set `os_shutdown_timeout` of the image to a few seconds and write the same as `guest_shutdown`, or lengthen \
         `timeout`",
    ));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_added_where_it_is_missing() {
        for (given, used) in [
            ("https://cloud:5000", "https://cloud:5000/v3"),
            ("https://cloud:5000/", "https://cloud:5000/v3"),
            ("https://cloud/identity", "https://cloud/identity/v3"),
            ("https://cloud/identity/v3/", "https://cloud/identity/v3"),
        ] {
            assert_eq!(versioned(Url::parse(given).unwrap()).as_str(), used);
        }
    }
}
