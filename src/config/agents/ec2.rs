//! EC2: stop an instance, detach a volume.
//!
//! Both kinds share where EC2 is asked (region, endpoint, trust), as whom (one of three sources of keys) and how often
//! a state is read. Everything that can be seen to be wrong in the text is refused here: a wrong id would otherwise
//! first be noticed as "not found" at a failover.

use reqwest::Url;

use super::super::diagnostics::Finding;
use super::super::secret_source;
use super::super::value::{At, Field, Findings, Least, Section};
use super::tls::{self, Trust};
use super::{Facts, SecretSource};
use crate::core::{Scope, Span};

/// Answers of EC2 are eventually consistent: one may be older than the one before it. Two in a row, apart.
const STABLE_READS: u32 = 2;

/// Between two readings. A stop takes half a minute; asking more often only eats into the account's request rate.
const POLL: Span = Span::from_secs(1);

/// Link-local address of the metadata service, the same on every instance.
const METADATA: &str = "http://169.254.169.254";

/// The part of a shared credentials file that is taken where none is named.
const PROFILE: &str = "default";

/// Where EC2 is asked, as whom, and how a state is read.
#[derive(Debug, Clone)]
pub struct Ec2Access {
    pub region: String,
    /// Scheme, host and port; no path.
    pub endpoint: Url,
    pub trust: Trust,
    pub credentials: Ec2Credentials,
    /// Scheme, host and port of the instance metadata service.
    pub metadata_endpoint: Url,
    /// A state counts when it was read this many times in a row, `poll` apart.
    pub stable_reads: u32,
    pub poll: Span,
}

/// Where the keys come from. Exactly one: nobody should have to guess which won (casebook C16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ec2Credentials {
    /// The AWS tools' credentials file, in INI form, and the section in it.
    File { source: SecretSource, profile: String },
    /// `AWS_ACCESS_KEY_ID=…`, `AWS_SECRET_ACCESS_KEY=…` and, maybe, `AWS_SESSION_TOKEN=…`, one a line.
    Environment(SecretSource),
    /// The role of the instance that asks, from its metadata service, version 2 only.
    Metadata,
}

/// `kind = "ec2-power"`.
#[derive(Debug, Clone)]
pub struct Ec2Power {
    pub access: Ec2Access,
    /// The target.
    pub instance: String,
    /// The instance of the node that shoots.
    pub other_instance: Option<String>,
    /// `Force`: EC2 gives up on the guest after a while.
    pub force: bool,
    /// `SkipOsShutdown`: EC2 does not ask the guest at all.
    pub skip_os_shutdown: bool,
}

/// `kind = "ec2-volume"`.
#[derive(Debug, Clone)]
pub struct Ec2Volume {
    pub access: Ec2Access,
    pub volume: String,
    /// The instance that loses the volume, and gets it by `on`.
    pub instance: String,
    /// The instance of the other node, which may hold it.
    pub other_instance: String,
    /// Under which name the volume is attached.
    pub device: String,
    /// How long a plain detach is given before EC2 is told to force it; `None`: it never is.
    pub force_after: Option<Span>,
}

impl Ec2Access {
    fn reading(&self) -> Span {
        self.poll.times(u64::from(self.stable_reads))
    }

    fn secrets(&self) -> Vec<&SecretSource> {
        match &self.credentials {
            Ec2Credentials::File { source, .. } | Ec2Credentials::Environment(source) => vec![source],
            Ec2Credentials::Metadata => Vec::new(),
        }
    }
}

impl Facts for Ec2Power {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Node)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("ec2-power".to_owned(), format!("{} {}", self.access.region, self.instance))]
    }

    fn own_device(&self) -> Option<String> {
        Some(format!("instance {}", self.instance))
    }

    fn reading(&self) -> Span {
        self.access.reading()
    }

    fn secrets(&self) -> Vec<&SecretSource> {
        self.access.secrets()
    }
}

impl Facts for Ec2Volume {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("ec2-volume".to_owned(), format!("{} {} {}", self.access.region, self.volume, self.instance))]
    }

    /// The volume is for both nodes; the instance that it is taken from is not.
    fn own_device(&self) -> Option<String> {
        Some(format!("instance {}", self.instance))
    }

    fn reading(&self) -> Span {
        self.access.reading()
    }

    fn secrets(&self) -> Vec<&SecretSource> {
        self.access.secrets()
    }
}

pub fn read_power(s: &mut Section<'_>, f: &mut Findings) -> Option<Ec2Power> {
    let instance = required_id(s, "instance", Id::Instance, f);
    let other = id(s, "other_instance", Id::Instance, f);
    let force = s.boolean("force", f);
    let skip_os_shutdown = s.boolean("skip_os_shutdown", f);
    let access = access(s, f);
    let whole = !other.is_bad() && !force.is_bad() && !skip_os_shutdown.is_bad();
    let (instance, access) = (instance?, access?);
    if !whole || !differ(&instance, &other, f) || !has_time(s, &access, f) {
        return None;
    }
    Some(Ec2Power {
        access,
        instance: instance.value,
        other_instance: other.value(),
        force: force.value_or(true),
        skip_os_shutdown: skip_os_shutdown.value_or(true),
    })
}

pub fn read_volume(s: &mut Section<'_>, f: &mut Findings) -> Option<Ec2Volume> {
    let volume = required_id(s, "volume", Id::Volume, f);
    let instance = required_id(s, "instance", Id::Instance, f);
    let other = id(s, "other_instance", Id::Instance, f);
    let device = s.string("device", f);
    let device = s.require(device, "device", "\"/dev/sdf\"", f);
    let force_after = s.duration("force_after", Least::Millisecond, f);
    let access = access(s, f);
    let bad = other.is_bad() || force_after.is_bad();
    let apart = instance.as_ref().is_none_or(|instance| differ(instance, &other, f));
    let other = s.require(other, "other_instance", "\"i-0123456789abcdef0\"", f);
    let access = access?;
    if bad || !apart || !has_time(s, &access, f) || !force_comes_in_time(s, &force_after, f) {
        return None;
    }
    Some(Ec2Volume {
        access,
        volume: volume?.value,
        instance: instance?.value,
        other_instance: other?.value,
        device: device?.value,
        force_after: force_after.value(),
    })
}

fn access(s: &mut Section<'_>, f: &mut Findings) -> Option<Ec2Access> {
    let region = region(s, f);
    let endpoint = bare_url(s, "endpoint", f);
    let trust = tls::trust(s, &endpoint, f);
    let credentials = credentials(s, f);
    let metadata = bare_url(s, "metadata_endpoint", f);
    let stable_reads = s.integer("stable_reads", 1..=20, f);
    let poll = s.duration("poll", Least::Millisecond, f);
    let (region, credentials) = (region?, credentials?);
    let endpoint = match endpoint {
        Field::Given(at) => at.value,
        Field::Absent => public_endpoint(&region, f)?,
        Field::Bad => return None,
    };
    let fixed = Url::parse(METADATA).expect("a URL written by us");
    if metadata.is_bad() || stable_reads.is_bad() || poll.is_bad() {
        return None;
    }
    Some(Ec2Access {
        region: region.value,
        endpoint,
        trust: trust?,
        credentials,
        metadata_endpoint: metadata.value_or(fixed),
        stable_reads: stable_reads.value_or(STABLE_READS),
        poll: poll.value_or(POLL),
    })
}

/// The source of the keys: exactly one of three. The first two lie in a file or in a credential of systemd.
fn credentials(s: &mut Section<'_>, f: &mut Findings) -> Option<Ec2Credentials> {
    let file = secret_source::read(s, "credentials_file", "credentials_credential", f);
    let environment = secret_source::read(s, "environment_file", "environment_credential", f);
    let metadata = s.boolean("metadata", f);
    let profile = s.string("profile", f);
    if file.is_bad() || environment.is_bad() || metadata.is_bad() || profile.is_bad() {
        return None;
    }
    let role = metadata.given().filter(|at| at.value).map(|at| &at.span);
    let keys = [("credentials_file", file.span()), ("environment_file", environment.span()), ("metadata", role)];
    let given: Vec<_> = keys.into_iter().filter_map(|(key, span)| Some((key, span?))).collect();
    if let [(first, at), (second, again), ..] = given[..] {
        let finding = Finding::error(format!("`{first}` and `{second}` exclude one another"));
        let finding = finding.at(again, "a second source of keys").with(at, "the first");
        f.push(finding.help("keep one of them: whose keys were used must never be a guess"));
        return None;
    }
    if let (Some(profile), Field::Absent) = (profile.given(), &file) {
        let finding = Finding::error("`profile` names a part of a file that is not given");
        f.push(finding.at(&profile.span, "of which file?").help("add `credentials_file`, or remove `profile`"));
        return None;
    }
    match (file, environment, role) {
        (Field::Given(at), ..) => {
            let profile = profile.value_or(PROFILE.to_owned());
            Some(Ec2Credentials::File { source: at.value, profile })
        }
        (_, Field::Given(at), _) => Some(Ec2Credentials::Environment(at.value)),
        (_, _, Some(_)) => Some(Ec2Credentials::Metadata),
        (Field::Absent | Field::Bad, Field::Absent | Field::Bad, None) => {
            let finding = Finding::error("the agent has no keys for EC2").at(&s.span, "as whom does it ask?");
            f.push(finding.help(
                "add `metadata = true` (the role of this instance), `credentials_file = \"/etc/leasehold/aws\"` or \
                 `environment_file = \"/etc/leasehold/aws.env\"` (mode 0600)",
            ));
            None
        }
    }
}

fn region(s: &mut Section<'_>, f: &mut Findings) -> Option<At<String>> {
    let region = s.string("region", f);
    let at = s.require(region, "region", "\"eu-central-1\"", f)?;
    let text = at.value.as_str();
    let plain = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let zone = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let (label, help) = match text.chars().last() {
        Some(last) if plain && text.contains('-') && last.is_ascii_digit() => return Some(at),
        Some(_) if plain && zone.ends_with(|c: char| c.is_ascii_digit()) => {
            ("an availability zone", format!("write the region: \"{zone}\""))
        }
        _ => ("no such form", "write it like \"eu-central-1\"".to_owned()),
    };
    let finding = Finding::error(format!("`{}` is not the name of a region", s.path_of("region")));
    f.push(finding.at(&at.span, label).help(help));
    None
}

/// Where AWS itself answers. Other partitions than these two have names that cannot be derived.
fn public_endpoint(region: &At<String>, f: &mut Findings) -> Option<Url> {
    let text = &region.value;
    if text.starts_with("us-iso") || text.starts_with("eusc-") || text.starts_with("eu-iso") {
        let finding = Finding::error(format!("the endpoint of EC2 in {text} is not known here"));
        f.push(finding.at(&region.span, "a partition of its own").help("add `endpoint = \"https://ec2.…\"`"));
        return None;
    }
    let suffix = if text.starts_with("cn-") { ".cn" } else { "" };
    Url::parse(&format!("https://ec2.{text}.amazonaws.com{suffix}")).ok()
}

/// A URL without a path: requests go to its root.
fn bare_url(s: &mut Section<'_>, key: &'static str, f: &mut Findings) -> Field<Url> {
    match tls::url(s, key, f) {
        Field::Given(at) if at.value.path() != "/" => {
            let finding = Finding::error(format!("`{}` has a path", s.path_of(key)));
            f.push(finding.at(&at.span, "requests go to the root").help("end it after the host and its port"));
            Field::Bad
        }
        field => field,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Id {
    Instance,
    Volume,
}

impl Id {
    fn prefix(self) -> &'static str {
        match self {
            Id::Instance => "i-",
            Id::Volume => "vol-",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Id::Instance => "\"i-0123456789abcdef0\"",
            Id::Volume => "\"vol-0123456789abcdef0\"",
        }
    }

    /// 8 hexadecimal digits for what is old, 17 for everything since 2016.
    fn fits(self, text: &str) -> bool {
        let digits = text.strip_prefix(self.prefix()).unwrap_or("");
        matches!(digits.len(), 8 | 17) && digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
    }
}

fn required_id(s: &mut Section<'_>, key: &'static str, what: Id, f: &mut Findings) -> Option<At<String>> {
    let field = id(s, key, what, f);
    s.require(field, key, what.example(), f)
}

fn id(s: &mut Section<'_>, key: &'static str, what: Id, f: &mut Findings) -> Field<String> {
    match s.string(key, f) {
        Field::Given(at) if !what.fits(&at.value) => {
            let finding = Finding::error(format!("`{}` is not an id of EC2", s.path_of(key)));
            let label = format!("`{}` and 17 (or 8) hexadecimal digits expected", what.prefix());
            f.push(finding.at(&at.span, label).help(format!("write it like {}", what.example())));
            Field::Bad
        }
        field => field,
    }
}

fn differ(instance: &At<String>, other: &Field<String>, f: &mut Findings) -> bool {
    let Some(same) = other.given().filter(|other| other.value == instance.value) else { return true };
    let finding = Finding::error("`instance` and `other_instance` are the same machine");
    let finding = finding.at(&same.span, "the instance of the other node").with(&instance.span, "the target");
    f.push(finding.help("`instance` is the one of the target, `other_instance` the one of the node that shoots it"));
    false
}

/// The default limit is made for machines that drop their power at once. EC2 takes longer, and an attempt that cannot
/// even read often enough never proves anything.
fn has_time(s: &mut Section<'_>, access: &Ec2Access, f: &mut Findings) -> bool {
    let needed = access.reading();
    // A limit that is wrong in itself has been reported where all agents' limits are read.
    let timeout = s.fence_limit("timeout", &mut Findings::default());
    match timeout {
        Field::Bad => false,
        Field::Absent => {
            let finding = Finding::error("the agent needs a `timeout` of its own").at(&s.span, "no `timeout`");
            let finding =
                finding.note("EC2 stops an instance in half a minute to several, and detaches in seconds to a minute");
            f.push(
                finding
                    .help("add `timeout = \"120s\"`, or what `leasehold fence test` measured and half as much again"),
            );
            false
        }
        Field::Given(at) if at.value <= needed => {
            let finding = Finding::error("the agent could not finish its readings within its limit");
            let finding = finding.at(&at.span, "too short");
            let reads = format!("{} · {}", access.stable_reads, access.poll);
            let finding = finding.note(format!("stable_reads · poll = {reads} = {needed}, `timeout` is {}", at.value));
            f.push(finding.help("shorten `poll`, or lengthen `timeout`"));
            false
        }
        Field::Given(_) => true,
    }
}

fn force_comes_in_time(s: &mut Section<'_>, force_after: &Field<Span>, f: &mut Findings) -> bool {
    let timeout = s.fence_limit("timeout", &mut Findings::default());
    let (Some(after), Some(timeout)) = (force_after.given(), timeout.given()) else { return true };
    if after.value < timeout.value {
        return true;
    }
    let finding = Finding::error("the forced detach would never come");
    let finding = finding.at(&after.span, "not before the attempt is over").with(&timeout.span, "its limit");
    f.push(finding.help("make `force_after` at most half of `timeout`: the forced detach needs its time too"));
    false
}
