//! One half of a PostgreSQL streaming-replication pair.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::diagnostics::Finding;
use super::super::value::{At, Field, Findings, Least, Section};
use super::Usual;
use crate::core::Span;

/// Promotion replays what is left; an immediate stop is quick.
pub const USUAL: Usual = Usual { start: Span::from_secs(60), stop: Span::from_secs(15) };

/// Where Debian keeps the programs of PostgreSQL 15.
const BIN_DIRECTORY: &str = "/usr/lib/postgresql/15/bin";
/// Where Debian's servers have their sockets.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";
/// A name that PostgreSQL itself uses for its owner, its superuser and its maintenance database.
const POSTGRES: &str = "postgres";
const PORT: u16 = 5432;
/// One WAL segment: what a standby that keeps up may be behind in a burst.
const MAX_LAG_BYTES: u32 = 16 << 20;
/// A standby that keeps up is behind for milliseconds.
const MAX_LAG: Span = Span::from_secs(10);
/// Longer than any fence attempts take before an operator looks: a standby whose primary died must stay fit meanwhile.
const MAX_SILENCE: Span = Span::from_secs(600);
/// Sixteen WAL segments: room for a checkpoint's worth of writes on a small server.
const MIN_FREE_MB: u32 = 256;

const PASSWORD: &str = "password";
/// What else than these a libpq connection string may say is the operator's business.
const OWN_WORDS: [(&str, &str); 6] = [
    (PASSWORD, "keep it in a file: passfile = \"/etc/leasehold/pgpass\", mode 0600, owned by `user`"),
    ("user", "name it with replication_user"),
    ("application_name", "leave it out: it is the name of the node"),
    ("dbname", "name it with database"),
    ("passfile", "name it with the key passfile"),
    ("connect_timeout", "leave it out: every call here has a limit of its own"),
];

/// `kind = "postgres"`.
#[derive(Debug, Clone)]
pub struct PostgresResource {
    pub data_directory: PathBuf,
    /// Where `postgresql.conf` lies outside the data directory.
    pub config_file: Option<PathBuf>,
    pub bin_directory: PathBuf,
    /// The service that runs the server; `None`: this daemon runs it itself.
    pub unit: Option<String>,
    /// Of the machine and of the database: the server runs as the one, and is asked as the other by peer authentication.
    pub user: String,
    /// Where the token is kept.
    pub database: String,
    pub port: u16,
    pub socket_directory: PathBuf,
    /// How each node's server is reached from the other node, by node.
    pub primary_conninfo: BTreeMap<String, String>,
    pub replication_user: String,
    pub passfile: Option<PathBuf>,
    pub slots: bool,
    pub max_lag_bytes: u64,
    pub max_lag: Span,
    /// How long a standby counts as ready although the primary's server does not answer it.
    pub max_silence: Span,
    pub min_free_bytes: u64,
    pub synchronous: Synchronous,
    pub rejoin: Rejoin,
    pub old_copy: OldCopy,
    pub install_token: bool,
}

/// Whether the primary acknowledges a commit only when its standby has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synchronous {
    /// Always: without a standby nothing is acknowledged.
    Required,
    /// While the standby may take over.
    Preferred,
    /// As the server's own configuration says; a failover may lose what the standby had not received.
    Off,
}

/// What is done with the data of a former primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejoin {
    Rewind,
    RewindOrClone,
    Manual,
}

/// What becomes of the directory that a clone replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldCopy {
    Keep,
    Remove,
}

const SYNCHRONOUS: [(&str, Synchronous); 3] =
    [("required", Synchronous::Required), ("preferred", Synchronous::Preferred), ("off", Synchronous::Off)];
const REJOIN: [(&str, Rejoin); 3] =
    [("rewind", Rejoin::Rewind), ("rewind-or-clone", Rejoin::RewindOrClone), ("manual", Rejoin::Manual)];
const OLD_COPY: [(&str, OldCopy); 2] = [("keep", OldCopy::Keep), ("remove", OldCopy::Remove)];

pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<PostgresResource> {
    let data = s.path("data_directory", f);
    let data = s.require(data, "data_directory", "\"/var/lib/postgresql/15/main\"", f);
    let data = data.and_then(|data| parent_writable(data, f));
    let span = s.value_span("primary_conninfo");
    let by_node = s.strings_by_key("primary_conninfo", f);
    let primary_conninfo = conninfo(s, &by_node, span, f);
    let replication_user = s.string("replication_user", f);
    let replication_user = s.require(replication_user, "replication_user", "\"replicator\"", f);
    let (config_file, bin) = (s.path("config_file", f), s.path("bin_directory", f));
    let (user, database) = (s.string("user", f), s.string("database", f));
    let unit = s.string("unit", f);
    let unit_fits = unit.given().is_none_or(|unit| super::unit::is_fit(unit, f));
    let (port, socket) = (s.integer("port", 1..=65535, f), s.path("socket_directory", f));
    let (passfile, slots) = (s.path("passfile", f), s.boolean("slots", f));
    let max_lag_bytes = s.integer("max_lag_bytes", 0..=u32::MAX, f);
    let max_lag = s.duration("max_lag", Least::Millisecond, f);
    let max_silence = s.duration("max_silence", Least::Millisecond, f);
    let min_free = s.integer("min_free_mb", 32..=u32::MAX, f);
    let synchronous = s.word("synchronous", &SYNCHRONOUS, f);
    let rejoin = s.word("rejoin", &REJOIN, f);
    let old_copy = s.word("old_copy", &OLD_COPY, f);
    let install_token = s.boolean("install_token", f);
    refuse_removal_without_clone(&rejoin, &old_copy, f);
    if !unit_fits {
        return None;
    }
    Some(PostgresResource {
        data_directory: data?,
        unit: unit.value(),
        config_file: config_file.value(),
        bin_directory: bin.value_or(BIN_DIRECTORY.into()),
        user: user.value_or(POSTGRES.into()),
        database: database.value_or(POSTGRES.into()),
        port: port.value().and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT),
        socket_directory: socket.value_or(SOCKET_DIRECTORY.into()),
        primary_conninfo: primary_conninfo?,
        replication_user: replication_user?.value,
        passfile: passfile.value(),
        slots: slots.value_or(true),
        max_lag_bytes: max_lag_bytes.value_or(MAX_LAG_BYTES).into(),
        max_lag: max_lag.value_or(MAX_LAG),
        max_silence: max_silence.value_or(MAX_SILENCE),
        min_free_bytes: u64::from(min_free.value_or(MIN_FREE_MB)) << 20,
        synchronous: synchronous.value_or(Synchronous::Preferred),
        rejoin: rejoin.value_or(Rejoin::Rewind),
        old_copy: old_copy.value_or(OldCopy::Keep),
        install_token: install_token.value_or(true),
    })
}

/// The marks and copies of a rejoin stand beside the data directory.
fn parent_writable(data: At<PathBuf>, f: &mut Findings) -> Option<PathBuf> {
    if data.value.file_name().is_some() {
        return Some(data.value);
    }
    let finding =
        Finding::error("`resource.data_directory` has no place beside it").at(&data.span, "no name at its end");
    f.push(finding.help("name the directory itself, such as \"/var/lib/postgresql/15/main\""));
    None
}

fn conninfo(
    s: &Section<'_>,
    by_node: &[(At<String>, At<String>)],
    span: Option<std::ops::Range<usize>>,
    f: &mut Findings,
) -> Option<BTreeMap<String, String>> {
    const EXAMPLE: &str = "{ heron = \"host=192.0.2.1 port=5432\", plover = \"host=192.0.2.2 port=5432\" }";
    let Some(span) = span else {
        s.require::<()>(Field::Absent, "primary_conninfo", EXAMPLE, f);
        return None;
    };
    let refused = by_node.iter().filter(|(_, value)| refuse_own_words(value, f)).count();
    if by_node.len() != 2 {
        let finding = Finding::error("`resource.primary_conninfo` must name both nodes");
        let finding = finding.at(&span, format!("{} of 2", by_node.len()));
        f.push(finding.help(format!("write how each node's server is reached by the other: {EXAMPLE}")));
        return None;
    }
    (refused == 0).then(|| by_node.iter().map(|(node, value)| (node.value.clone(), value.value.clone())).collect())
}

/// Whether the string says something that has a key of its own, which then has been reported.
fn refuse_own_words(value: &At<String>, f: &mut Findings) -> bool {
    // The last word before each sign is a key; what comes after the last sign is a value.
    let before = value.value.rsplit_once('=').map_or("", |(before, _)| before);
    let keys = || before.split('=').filter_map(|part| part.split_whitespace().last());
    let says = |word: &str| keys().any(|key| key == word || word == PASSWORD && key.ends_with(PASSWORD));
    let problem = match OWN_WORDS.iter().find(|(word, _)| says(word)) {
        Some((word, help)) => Some((format!("says `{word}`"), (*help).to_owned())),
        None if value.value.contains("://") || !value.value.contains('=') => {
            Some(("not of the form keyword=value".to_owned(), "write \"host=192.0.2.1 port=5432\"".to_owned()))
        }
        None => None,
    };
    let Some((label, help)) = problem else { return false };
    let finding = Finding::error("a connection string of `resource.primary_conninfo` cannot be used");
    f.push(finding.at(&value.span, label).help(help));
    true
}

fn refuse_removal_without_clone(rejoin: &Field<Rejoin>, old_copy: &Field<OldCopy>, f: &mut Findings) {
    let clones = rejoin.value() == Some(Rejoin::RewindOrClone);
    if let Some(at) = old_copy.given().filter(|_| !clones && !rejoin.is_bad()) {
        let finding = Finding::error("`resource.old_copy` has no effect").at(&at.span, "nothing is ever cloned");
        f.push(finding.help("add rejoin = \"rewind-or-clone\", or leave old_copy out"));
    }
}
