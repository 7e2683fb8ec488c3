//! PostgreSQL's own programs, run as its user: no shell, a clean environment, a limit for each, and no password anywhere.

use std::path::PathBuf;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;

use crate::config::PostgresResource;
use crate::process::{Ending, Finished, OnDrop, Program, REAP_GRACE, Streams, check_owner, find_program, run, spawn};

use super::super::ResourceError;
use super::super::account::{self, Account};
use super::super::exec::told;

/// What is kept of a program's output.
const OUTPUT: usize = 16 * 1024;
/// The last lines of a long program, to be told when it fails.
const LAST_LINES: usize = 3;
/// A server on a dead machine must not hold up a long copy for ever: about 15 seconds of silence end it (libpq, section
/// "Parameter Key Words").
const KEEPALIVE: &str =
    "keepalives=1 keepalives_idle=5 keepalives_interval=2 keepalives_count=5 tcp_user_timeout=15000";

/// One resource's programs and how they reach the two servers.
#[derive(Debug, Clone)]
pub struct Tools {
    pub resource: String,
    /// Name and instance: what the resource's processes are found by.
    pub id: String,
    pub node: String,
    pub config: PostgresResource,
}

/// Which server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Here,
    Peer,
}

/// Why a server gave no answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// No session: it does not run, does not accept yet, or is out of reach.
    Unreachable(String),
    /// It took the question and said no.
    Refused(String),
    /// Nothing within the limit.
    Silent,
    /// The client program could not be run.
    NoClient(String),
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoAnswer::Unreachable(what) | NoAnswer::Refused(what) | NoAnswer::NoClient(what) => f.write_str(what),
            NoAnswer::Silent => f.write_str("no answer in time"),
        }
    }
}

impl Tools {
    /// The other node's name: the pair's configuration names exactly two.
    pub fn peer(&self) -> Result<&str, ResourceError> {
        let nodes = &self.config.primary_conninfo;
        let peer = nodes.keys().find(|name| **name != self.node).filter(|_| nodes.contains_key(&self.node));
        let named = nodes.keys().cloned().collect::<Vec<_>>().join(" and ");
        peer.map(String::as_str).ok_or_else(|| {
            self.error(format!(
                "primary_conninfo names {named}, not {}; use the names of the [[node]] tables",
                self.node
            ))
        })
    }

    /// One of PostgreSQL's programs, as its user.
    pub fn program(&self, tool: &str) -> Result<Program, ResourceError> {
        self.owned(self.config.bin_directory.join(tool))
    }

    /// One of the system's programs, as the server's user: what it may not do, this daemon does not do for it.
    pub fn as_user(&self, name: &str) -> Result<Program, ResourceError> {
        let untrusted = |source| ResourceError::Untrusted { resource: self.resource.clone(), source };
        self.owned(find_program(name).map_err(untrusted)?)
    }

    fn owned(&self, path: PathBuf) -> Result<Program, ResourceError> {
        check_owner(&path).map_err(|source| ResourceError::Untrusted { resource: self.resource.clone(), source })?;
        let account = self.account()?;
        let mut program = Program::of_resource(path).env("LC_ALL", "C").env("PGAPPNAME", "leasehold");
        program = program.env("USER", &account.name).env("LOGNAME", &account.name).env("HOME", &account.home);
        program.identity = geteuid().is_root().then_some(account.identity);
        Ok(program)
    }

    pub fn account(&self) -> Result<Account, ResourceError> {
        let user = self.config.user.clone();
        account::find(&user).ok_or_else(|| ResourceError::NoUser { resource: self.resource.clone(), user })
    }

    /// Asks a server; each statement is a transaction of its own. The rows of all answers, in fields.
    pub async fn ask(&self, at: At, statements: &[&str], limit: Duration) -> Result<Vec<Vec<String>>, NoAnswer> {
        let asked = async {
            let target = self.target(at)?;
            let program = self.program("psql")?.env("PGCONNECT_TIMEOUT", limit.as_secs().max(2).to_string());
            let program =
                program.args(["-X", "-w", "-q", "-A", "-t", "-F", "|", "-v", "ON_ERROR_STOP=1", "-d", &target]);
            let program = program.args(statements.iter().flat_map(|s| ["-c", s]));
            self.run(&program, limit).await
        };
        let finished = asked.await.map_err(|error| NoAnswer::NoClient(error.to_string()))?;
        match finished.ending {
            Ending::Exited(0) => Ok(rows(&finished.stdout_text())),
            // psql(1), "Exit Status": 2 when the connection went bad.
            Ending::Exited(2) => Err(NoAnswer::Unreachable(said(&finished))),
            Ending::Exited(_) => Err(NoAnswer::Refused(said(&finished))),
            Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck => Err(NoAnswer::Silent),
        }
    }

    /// The first field of the answer.
    pub async fn ask_one(&self, at: At, statement: &str, limit: Duration) -> Result<String, NoAnswer> {
        let rows = self.ask(at, &[statement], limit).await?;
        Ok(rows.into_iter().flatten().next().unwrap_or_default())
    }

    pub async fn run(&self, program: &Program, limit: Duration) -> Result<Finished, ResourceError> {
        self.feed(program, None, limit).await
    }

    /// As [`Tools::run`], with this on its standard input.
    pub async fn feed(
        &self,
        program: &Program,
        input: Option<String>,
        limit: Duration,
    ) -> Result<Finished, ResourceError> {
        let failed = |source| ResourceError::Process { resource: self.resource.clone(), source };
        run(program, input.map(|text| text.into_bytes().into()), limit, OUTPUT).await.map_err(failed)
    }

    /// Runs a program that may take hours, and hands on each line that it says. `Err`: how it failed, in words.
    pub async fn run_long(&self, program: Program, mut line: impl FnMut(&str)) -> Result<(), String> {
        let program = program.env("LEASEHOLD_COMMAND", &self.id);
        let (stderr, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.to_string())?;
        let stderr = Receiver::from_owned_fd(stderr).map_err(|error| error.to_string())?;
        let streams = Streams { stderr: Some(writer), ..Streams::default() };
        let running = spawn(program, streams, OnDrop::KillGroup, |running| running).await;
        let mut running = running.map_err(|error| error.to_string())?;
        let mut last = Vec::new();
        let mut lines = BufReader::new(stderr).split(b'\n');
        while let Ok(Some(bytes)) = lines.next_segment().await {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            line(&text);
            last.push(text);
            last.drain(..last.len().saturating_sub(LAST_LINES));
        }
        running.exited().await;
        match running.reap(REAP_GRACE).await {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{status}: {}", last.join(" "))),
            None => Err("it hangs in the kernel".to_owned()),
        }
    }

    /// The connection string for `pg_rewind` and `pg_basebackup`.
    pub fn source(&self) -> Result<String, ResourceError> {
        Ok(format!("{} {KEEPALIVE}", self.target(At::Peer)?))
    }

    /// What the standby's server connects with.
    pub fn primary_conninfo(&self) -> Result<String, ResourceError> {
        let peer = self.peer()?;
        let name = ("application_name", self.node.as_str());
        Ok(self.words(&self.config.primary_conninfo[peer], &[("user", &self.config.replication_user), name]))
    }

    pub fn error(&self, what: impl Into<String>) -> ResourceError {
        ResourceError::Other { resource: self.resource.clone(), what: what.into() }
    }

    pub fn not_ready(&self, what: impl Into<String>) -> ResourceError {
        ResourceError::NotReady { resource: self.resource.clone(), what: what.into() }
    }

    /// A path beside the data directory.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.config.data_directory.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    fn target(&self, at: At) -> Result<String, ResourceError> {
        let database = ("dbname", self.config.database.as_str());
        Ok(match at {
            At::Here => {
                let socket = self.config.socket_directory.to_string_lossy();
                let port = self.config.port.to_string();
                self.words("", &[("host", &socket), ("port", &port), ("user", &self.config.user), database])
            }
            At::Peer => {
                let user = ("user", self.config.replication_user.as_str());
                self.words(&self.config.primary_conninfo[self.peer()?], &[user, database])
            }
        })
    }

    fn words(&self, base: &str, more: &[(&str, &str)]) -> String {
        let mut words = vec![base.to_owned()];
        words.extend(more.iter().map(|(key, value)| format!("{key}={}", quoted(value))));
        if let Some(passfile) = &self.config.passfile {
            words.push(format!("passfile={}", quoted(&passfile.to_string_lossy())));
        }
        words.join(" ").trim_start().to_owned()
    }
}

/// A value of a connection string.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A string in SQL, whatever `standard_conforming_strings` says: no backslash may be in it.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "").replace('\'', "''"))
}

fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

fn said(finished: &Finished) -> String {
    told(finished)
        .trim_start_matches("exit status ")
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim_start_matches(": ")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_so_that_none_ends_early() {
        assert_eq!(quoted("it's \\ here"), "'it\\'s \\\\ here'");
        assert_eq!(literal("o'clock\\"), "'o''clock'");
    }

    #[test]
    fn rows_and_fields_are_told_apart() {
        assert_eq!(rows("a|b\n\nc|\n"), [vec!["a", "b"], vec![""], vec!["c", ""]]);
    }
}
