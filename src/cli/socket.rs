//! Which socket to ask, and the few steps that all asking subcommands share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;

use super::args::Global;
use crate::control::{Answer, Client, ClientError, Op, Status};

/// Where the daemon listens when the configuration names nothing else.
const RUNTIME: &str = "/run/leasehold";
const SOCKET: &str = "control.sock";

/// Longest wait for each answer. The daemon itself gives up on a request after 5 s and says so.
pub const LIMIT: Duration = Duration::from_secs(10);

/// `--socket`, else what the configuration says, else the default.
///
/// The configuration is read leniently here: `status` must work although the file on the disk has an error by now, or
/// may not be read by whoever asks.
pub fn of(global: &Global) -> PathBuf {
    let given = global.socket.clone();
    given.or_else(|| configured(&global.config)).unwrap_or_else(|| Path::new(RUNTIME).join(SOCKET))
}

fn configured(config: &Path) -> Option<PathBuf> {
    let table: toml::Table = std::fs::read_to_string(config).ok()?.parse().ok()?;
    let text = |section: &str, key: &str| Some(table.get(section)?.get(key)?.as_str()?.to_owned());
    let socket = text("control", "socket").map(PathBuf::from);
    socket.or_else(|| text("paths", "runtime").map(|runtime| Path::new(&runtime).join(SOCKET)))
}

pub fn connect(socket: &Path) -> Result<Client, ClientError> {
    Client::connect(socket, LIMIT)
}

pub fn status(client: &mut Client) -> anyhow::Result<Status> {
    match client.ask(Op::Status)? {
        Answer::Status(status) => Ok(*status),
        other => bail!(unexpected(&other)),
    }
}

/// Gives a command that is carried out at once.
pub fn command(socket: &Path, op: Op) -> anyhow::Result<()> {
    accepted(connect(socket)?.ask(op)?)
}

pub fn accepted(answer: Answer) -> anyhow::Result<()> {
    match answer {
        Answer::Accepted => Ok(()),
        other => bail!(unexpected(&other)),
    }
}

pub fn unexpected(answer: &Answer) -> ClientError {
    ClientError::Nonsense { what: format!("{answer:?}").chars().take(60).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global(config: &str) -> (tempfile::NamedTempFile, Global) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        let global = Global { socket: None, config: file.path().into() };
        (file, global)
    }

    #[test]
    fn the_socket_is_found_through_the_configuration_even_if_that_has_errors() {
        let (_file, global) = global("nonsense = 1\n[control]\nsocket = \"/tmp/c.sock\"\n");
        assert_eq!(of(&global), Path::new("/tmp/c.sock"));
    }

    #[test]
    fn the_socket_lies_in_the_run_time_directory_unless_named() {
        let (_file, global) = global("[paths]\nruntime = \"/tmp/run\"\n");
        assert_eq!(of(&global), Path::new("/tmp/run/control.sock"));
        let absent = Global { socket: None, config: "/nonexistent".into() };
        assert_eq!(of(&absent), Path::new("/run/leasehold/control.sock"));
    }
}
