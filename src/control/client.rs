//! The asking side: blocking, bounded, with errors that say what to do.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::reply::{Answer, ErrorCode, Event, Failure, Reply};
use super::request::{Op, Request};

/// Longest reply line that is read. A full `why` is below 1 MiB.
const MAX_REPLY: u64 = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "no daemon answers on {}; start it with `systemctl start leasehold`, or name its socket with --socket",
        socket.display()
    )]
    NotRunning { socket: PathBuf },
    #[error("no permission for {}; {remedy}", socket.display())]
    Denied { socket: PathBuf, remedy: String },
    #[error("the daemon on {} did not answer within {limit:?}; see `journalctl -u leasehold`", socket.display())]
    Silent { socket: PathBuf, limit: Duration },
    #[error("the daemon closed the connection; see `journalctl -u leasehold`")]
    Closed,
    #[error("the control socket {}: {source}", socket.display())]
    Io { socket: PathBuf, source: io::Error },
    #[error("the daemon's answer makes no sense to this program ({what}); are both of the same version?")]
    Nonsense { what: String },
    #[error("{}", failure_text(.0))]
    Failed(Failure),
}

impl ClientError {
    /// Nobody is there to ask, or nobody answers.
    pub fn is_unreachable(&self) -> bool {
        match self {
            ClientError::NotRunning { .. } | ClientError::Silent { .. } | ClientError::Closed => true,
            ClientError::Io { .. } => true,
            ClientError::Failed(failure) => failure.code == ErrorCode::Unavailable,
            ClientError::Denied { .. } | ClientError::Nonsense { .. } => false,
        }
    }

    /// The daemon, or its guard at the door, said no.
    pub fn is_refusal(&self) -> bool {
        match self {
            ClientError::Denied { .. } => true,
            ClientError::Failed(failure) => {
                matches!(failure.code, ErrorCode::Refused | ErrorCode::Denied | ErrorCode::Busy)
            }
            ClientError::NotRunning { .. }
            | ClientError::Silent { .. }
            | ClientError::Closed
            | ClientError::Io { .. }
            | ClientError::Nonsense { .. } => false,
        }
    }
}

fn failure_text(failure: &Failure) -> String {
    match &failure.remedy {
        Some(remedy) => format!("{}; {remedy}", failure.message),
        None => failure.message.clone(),
    }
}

/// One connection to the daemon of this machine.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
    limit: Duration,
    last_id: u64,
}

impl Client {
    /// Connects; each further step, this one included, takes at most `limit`.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Client, ClientError> {
        let stream = connect(socket, limit).map_err(|error| explain(socket, limit, error))?;
        Ok(Client { socket: socket.into(), stream: BufReader::new(stream), limit, last_id: 0 })
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, op: Op) -> Result<Answer, ClientError> {
        self.last_id += 1;
        let request = Request::new(self.last_id, op);
        let mut line = serde_json::to_vec(&request).expect("a request has only string keys");
        line.push(b'\n');
        // A daemon that turns this client away says why and closes: that answer is worth more than a broken pipe.
        let sent = self.stream.get_mut().write_all(&line);
        match (self.reply(), sent) {
            (Err(ClientError::Closed), Err(error)) => Err(explain(&self.socket, self.limit, error)),
            (reply, _) => reply.and_then(|reply| answer(reply, self.last_id)),
        }
    }

    /// Begins a watch. The connection is used up by it.
    pub fn watch(mut self) -> Result<Watch, ClientError> {
        match self.ask(Op::Watch)? {
            Answer::Watching => Ok(Watch { client: self }),
            other => Err(ClientError::Nonsense { what: format!("{other:?} in answer to watch") }),
        }
    }

    fn reply(&mut self) -> Result<Reply, ClientError> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(MAX_REPLY).read_until(b'\n', &mut line);
        read.map_err(|error| explain(&self.socket, self.limit, error))?;
        if line.last() != Some(&b'\n') {
            return Err(ClientError::Closed);
        }
        serde_json::from_slice(&line).map_err(|error| ClientError::Nonsense { what: error.to_string() })
    }
}

/// Decisions of the daemon as they are made.
#[derive(Debug)]
pub struct Watch {
    client: Client,
}

impl Watch {
    /// The next event, or `None` when there was none for `limit`.
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<Event>, ClientError> {
        // A zero time limit means "for ever" to the kernel.
        let limit = limit.max(Duration::from_millis(1));
        // A line is written whole, so that only the wait for its first byte may end early.
        let stream = self.client.stream.get_ref();
        stream.set_read_timeout(Some(limit)).map_err(|source| self.io(source))?;
        match self.client.stream.fill_buf() {
            Err(error) if is_timeout(&error) => return Ok(None),
            Err(error) => return Err(explain(&self.client.socket, limit, error)),
            Ok([]) => return Err(ClientError::Closed),
            Ok(_) => {}
        }
        let stream = self.client.stream.get_ref();
        stream.set_read_timeout(Some(self.client.limit)).map_err(|source| self.io(source))?;
        match self.client.reply()? {
            Reply { event: Some(event), .. } => Ok(Some(event)),
            Reply { error: Some(failure), .. } => Err(ClientError::Failed(failure)),
            _ => Err(ClientError::Nonsense { what: "a line of a watch without an event".into() }),
        }
    }

    fn io(&self, source: io::Error) -> ClientError {
        ClientError::Io { socket: self.client.socket.clone(), source }
    }
}

fn answer(reply: Reply, id: u64) -> Result<Answer, ClientError> {
    match reply {
        Reply { error: Some(failure), .. } => Err(ClientError::Failed(failure)),
        Reply { ok: Some(answer), id: Some(answered), .. } if answered == id => Ok(answer),
        _ => Err(ClientError::Nonsense { what: "it answers something else".into() }),
    }
}

/// Connects within the limit: a full backlog must not hold the caller for ever.
fn connect(socket: &Path, limit: Duration) -> io::Result<UnixStream> {
    let stream = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    stream.set_write_timeout(Some(limit))?;
    stream.set_read_timeout(Some(limit))?;
    stream.connect(&SockAddr::unix(socket)?)?;
    Ok(stream.into())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn explain(socket: &Path, limit: Duration, error: io::Error) -> ClientError {
    let socket = socket.to_path_buf();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NotRunning { socket },
        ErrorKind::PermissionDenied => ClientError::Denied { remedy: permission_remedy(&socket), socket },
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Silent { socket, limit },
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ClientError::Closed,
        _ => ClientError::Io { socket, source: error },
    }
}

/// Names the group that the socket, or the first directory on the way that keeps us out, belongs to.
fn permission_remedy(socket: &Path) -> String {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let owner = socket.ancestors().find_map(|path| path.metadata().ok()).map(|found| (found.gid(), found.mode()));
    match owner.filter(|(gid, mode)| *gid != 0 && mode & 0o070 != 0).and_then(|(gid, _)| group_name(&groups, gid)) {
        Some(group) => format!("use root, or join the group {group}"),
        None => "use root, or a group that `control.read_group` or `control.command_group` names".into(),
    }
}

fn group_name(groups: &str, gid: u32) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    })
}
