//! Any ClusterLabs fence agent program: which one, with which options.
//!
//! ```text
//!   file ──▶ FenceAgent ──┐
//!                         ├──▶ examine ──▶ findings with their places, and the names that the agent knows
//!   program ──▶ Metadata ─┘
//! ```
//!
//! Those agents ignore an option that they do not know and go on with a default, which may be another machine; so the
//! options are compared with what the program says of itself, by `leasehold check` and again when the daemon starts.

mod examine;
mod line;
mod metadata;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::super::checked::{AgentKind, SecretSource};
use super::super::diagnostics::Finding;
use super::super::raw::Fence;
use super::super::secrets;
use super::super::value::{At, Findings, Least, Section};
use super::Facts;
use crate::core::{Scope, Span};

pub use examine::{Examined, examine};
pub use line::unfit;
pub use metadata::{Metadata, parse};

/// Where Debian and every other distribution install them.
const DIRECTORY: &str = "/usr/sbin";
/// Reading off once may be a flicker, or the start of a reset.
const STABLE_READS: u32 = 2;
/// Between two readings. The program needs some tenths of a second in itself.
const POLL: Span = Span::from_ms(200);
/// The largest secret file that is looked at; no password comes near it.
const LARGEST_SECRET: u64 = 4096;

/// What the file must not say to an agent, and why.
const REFUSED: [(&str, &str); 12] = [
    ("action", "the action is given by this program: `off`, `on`, `status` and `monitor`"),
    ("option", "it is the old name of `action`, which this program gives"),
    ("help", "the agent would print its help and do nothing"),
    ("version", "the agent would print its version and do nothing"),
    ("delay", "it would delay every reading too; `fence.head_start` decides who shoots first"),
    ("verbose", "the agent would log what it sends, secrets included"),
    ("verbose_level", "the agent would log what it sends, secrets included"),
    ("debug", "the agent would write what it sends into a file, secrets included"),
    ("debug_file", "the agent would write what it sends into a file, secrets included"),
    ("password_script", "the agent would run it through a shell; name a file in `secret_options`"),
    ("passwd_script", "the agent would run it through a shell; name a file in `secret_options`"),
    ("snmp_priv_passwd_script", "the agent would run it through a shell; name a file in `secret_options`"),
];

/// Former names of the options that say which device is meant.
const FORMER: [(&str, &str); 3] = [("ipaddr", "ip"), ("port", "plug"), ("systems-uri", "systems_uri")];

/// `kind = "fence-agent"`.
#[derive(Debug, Clone)]
pub struct FenceAgent {
    pub program: PathBuf,
    /// In the order of the file.
    pub options: Vec<Given>,
    pub stable_reads: u32,
    pub poll: Span,
    pub independent_power: bool,
    /// Where the program is named.
    pub place: Range<usize>,
}

/// One option for the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub name: String,
    pub value: Value,
    /// Where its name stands.
    pub place: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Plain(String),
    Secret(SecretSource),
}

impl FenceAgent {
    /// The value of a plain option, also under its former name.
    fn plain(&self, name: &str) -> Option<&str> {
        let former = FORMER.iter().find(|(_, now)| *now == name).map(|(former, _)| *former);
        let given = self.options.iter().find(|o| o.name == name || Some(o.name.as_str()) == former)?;
        match &given.value {
            Value::Plain(text) => Some(text),
            Value::Secret(_) => None,
        }
    }

    /// `fence_apc`
    pub fn word(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Why the readings do not fit into one attempt; the program's own time comes on top.
    pub fn too_slow(&self, timeout: Span) -> Option<String> {
        let needed = self.poll.times(u64::from(self.stable_reads));
        let (reads, poll) = (self.stable_reads, self.poll);
        (needed >= timeout)
            .then(|| format!("stable_reads · poll = {reads} · {poll} = {needed}, `timeout` is {timeout}"))
    }

    /// The words that tell one device from another: address, port, plug, system.
    pub fn meant(&self) -> Option<String> {
        let parts = [("", "ip"), (" port ", "ipport"), (" plug ", "plug"), (" system ", "systems_uri")];
        let named = self.plain("ip").is_some() || self.plain("plug").is_some();
        let text: String = parts.iter().filter_map(|(w, n)| Some(format!("{w}{}", self.plain(n)?))).collect();
        named.then(|| text.trim().to_owned())
    }
}

impl Facts for FenceAgent {
    /// Power switches and storage agents share one protocol: the file says which it is.
    fn scope(&self) -> Option<Scope> {
        None
    }

    fn device(&self) -> Vec<(String, String)> {
        let shown = self.options.iter().filter_map(|option| match &option.value {
            Value::Plain(text) if !is_local(&option.name) => Some((format!("option {}", option.name), text.clone())),
            Value::Plain(_) | Value::Secret(_) => None,
        });
        std::iter::once(("fence-agent".to_owned(), self.word())).chain(shown).collect()
    }

    fn own_device(&self) -> Option<String> {
        Some(format!("{} of {}", self.meant()?.to_lowercase(), self.word()))
    }

    fn address(&self) -> Option<&str> {
        self.plain("ip")
    }

    fn reading(&self) -> Span {
        self.poll.times(u64::from(self.stable_reads))
    }

    fn on_host_power(&self) -> bool {
        !self.independent_power
    }

    fn secrets(&self) -> Vec<&SecretSource> {
        let secret = |option| match option {
            &Given { value: Value::Secret(ref source), .. } => Some(source),
            Given { value: Value::Plain(_), .. } => None,
        };
        self.options.iter().filter_map(secret).collect()
    }
}

/// Paths may differ between the nodes.
fn is_local(name: &str) -> bool {
    ["_path", "_file", "-path", "-file"].iter().any(|end| name.ends_with(end))
}

pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<FenceAgent> {
    let program = program(s, f);
    let options = options(s, f);
    let stable_reads = s.integer("stable_reads", 1..=20, f).value_or(STABLE_READS);
    let poll = s.duration("poll", Least::Millisecond, f).value_or(POLL);
    let power = s.word("power", &[("host", false), ("independent", true)], f);
    refuse_unfit(&options, f);
    refuse_twice(&options, f);
    let (program, place) = program?;
    Some(FenceAgent { program, options, stable_reads, poll, independent_power: power.value_or(false), place })
}

/// A bare name is looked for where the distributions put it, never on a `PATH`.
fn program(s: &mut Section<'_>, f: &mut Findings) -> Option<(PathBuf, Range<usize>)> {
    let given = s.string("program", f);
    let At { value, span } = s.require(given, "program", "\"fence_apc\"", f)?;
    if value.starts_with('/') {
        return Some((PathBuf::from(value), span));
    }
    if value.contains('/') || value.contains(char::is_whitespace) {
        let finding = Finding::error("`program` is neither the name of an agent nor an absolute path");
        f.push(finding.at(&span, "neither").help("write \"fence_apc\", or the whole path; options go into `options`"));
        return None;
    }
    Some((Path::new(DIRECTORY).join(value), span))
}

fn options(s: &mut Section<'_>, f: &mut Findings) -> Vec<Given> {
    let plain = s.strings_by_key("options", f).into_iter().filter_map(|(name, value)| plain(name, value, f));
    let mut all: Vec<Given> = plain.collect();
    let files = s.strings_by_key("secret_options", f);
    all.extend(files.into_iter().filter_map(|(name, file)| secret_file(name, file, f)));
    let credentials = s.strings_by_key("secret_credentials", f).into_iter().map(|(name, credential)| {
        let value = Value::Secret(SecretSource::Credential(credential.value));
        Given { name: name.value, value, place: name.span }
    });
    all.extend(credentials);
    all.sort_by_key(|given| given.place.start);
    all
}

fn plain(name: At<String>, value: At<String>, f: &mut Findings) -> Option<Given> {
    let given = Given { name: name.value, value: Value::Plain(value.value), place: name.span };
    let script = REFUSED.iter().any(|(refused, _)| *refused == given.name);
    if script || !secrets::is_secret(&given.name) {
        return Some(given);
    }
    let finding = Finding::error("a secret stands in the configuration");
    let finding = finding.at(&given.place, "its value is not read and not shown");
    f.push(finding.help(format!(
        "put it into a file of mode 0600 and write `secret_options = {{ {} = \"/etc/leasehold/FILE\" }}`; then change \
         the secret",
        given.name
    )));
    None
}

fn secret_file(name: At<String>, file: At<String>, f: &mut Findings) -> Option<Given> {
    if !file.value.starts_with('/') || file.value.contains('\0') {
        let finding = Finding::error(format!("the secret option `{}` does not name a file", name.value));
        let finding = finding.at(&name.span, "its value is no absolute path, and is not shown");
        f.push(
            finding.help("write the whole path of a file of mode 0600 that holds the secret, never the secret itself"),
        );
        return None;
    }
    let value = Value::Secret(SecretSource::File(PathBuf::from(file.value)));
    Some(Given { name: name.value, value, place: name.span })
}

fn refuse_unfit(options: &[Given], f: &mut Findings) {
    for option in options {
        if let Some((_, why)) = REFUSED.iter().find(|(name, _)| option.name.replace('-', "_") == *name) {
            let finding = Finding::error(format!("the option `{}` is not for this file", option.name));
            f.push(finding.at(&option.place, "refused").note(*why).help("remove it"));
        }
        let Value::Plain(text) = &option.value else { continue };
        if let Some(what) = unfit(text.as_bytes()) {
            let finding = Finding::error(format!("the value of the option `{}` cannot reach the agent", option.name));
            f.push(finding.at(&option.place, what).note(line::WHY).help("write another value"));
        }
    }
}

fn refuse_twice(options: &[Given], f: &mut Findings) {
    let mut seen: BTreeMap<&str, &Given> = BTreeMap::new();
    for option in options {
        if let Some(first) = seen.insert(&option.name, option) {
            let finding = Finding::error(format!("the option `{}` is given twice", option.name));
            f.push(finding.at(&option.place, "again").with(&first.place, "first here").help("keep one of them"));
        }
    }
}

/// Gives the metadata of a program as its text; `None` where it is not installed.
pub type MetadataOf<'a> = &'a dyn Fn(&Path) -> Option<Result<String, String>>;

/// Compares every agent with what its program says, where that is installed here, and looks at the secrets that this
/// process may read.
pub fn check(fence: &Fence, metadata_of: MetadataOf<'_>, f: &mut Findings) {
    for raw in &fence.agents {
        let Some(AgentKind::FenceAgent(agent)) = &raw.other else { continue };
        check_secrets(agent, f);
        if let Some(why) = raw.timeout.value().and_then(|timeout| agent.too_slow(timeout)) {
            let finding = Finding::error("the agent could not finish its readings within its limit").note(why);
            f.push(finding.at_some(raw.timeout.span(), "too short").help("shorten `poll`, or lengthen `timeout`"));
        }
        match metadata_of(&agent.program).map(|text| text.and_then(|text| parse(&text))) {
            None => {}
            Some(Ok(metadata)) => {
                let scope = raw.scope.value().unwrap_or(Scope::Node);
                examine(agent, scope, &metadata).findings.into_iter().for_each(|finding| f.push(finding));
            }
            Some(Err(why)) => {
                let finding = Finding::error(format!("{} does not describe itself", agent.program.display()));
                let finding = finding.at(&agent.place, "its options cannot be checked").note(why);
                f.push(
                    finding.help("name a ClusterLabs fence agent; for any other program there is `kind = \"exec\"`"),
                );
            }
        }
    }
}

fn check_secrets(agent: &FenceAgent, f: &mut Findings) {
    for option in &agent.options {
        let Value::Secret(SecretSource::File(path)) = &option.value else { continue };
        let Some(what) = read_secret(path).and_then(|secret| unfit(&secret)) else { continue };
        let title = format!("the secret in {} cannot reach the agent", path.display());
        f.push(Finding::error(title).at(&option.place, what).note(line::WHY).help("set another secret in the device"));
    }
}

fn read_secret(path: &Path) -> Option<Zeroizing<Vec<u8>>> {
    use std::io::Read;
    let file = std::fs::File::open(path).ok().filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))?;
    let mut secret = Zeroizing::new(Vec::with_capacity(LARGEST_SECRET as usize));
    file.take(LARGEST_SECRET).read_to_end(&mut secret).ok()?;
    if secret.last() == Some(&b'\n') {
        secret.pop();
    }
    Some(secret)
}
