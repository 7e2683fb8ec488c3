//! One connection: lines in, lines out, each within its time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::groups::Rights;
use super::line::{Line, Lines};
use super::reply::{Answer, Decision, ErrorCode, Event, Failure, Reply};
use super::request::{BadRequest, Op, Request, printable, too_long};
use super::server::{Ask, Call, Caller, Seat, Shared};
use crate::core::Command;

/// A client that says nothing for so long is dropped, but while it watches.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// A client that does not read is dropped after this. The kernel's buffer has taken some 200 kB by then.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Longest wait for the daemon's answer. It answers in microseconds, or it is ending.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Serves one client to its end. Nothing that a client does is an error of ours.
pub(super) async fn serve(stream: UnixStream, caller: Caller, seat: Seat) {
    let rights = seat.shared.rights(caller).await;
    let (reader, writer) = stream.into_split();
    let mut connection = Connection { writer, caller, rights, shared: seat.shared.clone(), watch: None };
    if let Err(error) = connection.run(Lines::new(reader)).await {
        if error.kind() == io::ErrorKind::TimedOut {
            count(&connection.shared.counters.dropped);
        }
        tracing::debug!(uid = caller.uid, %error, "control connection ended");
    }
    // The seat is given back only here, when the socket is closed with it.
    drop(seat);
}

struct Connection {
    writer: OwnedWriteHalf,
    caller: Caller,
    rights: Rights,
    shared: Arc<Shared>,
    /// The request that began the watch, and its source.
    watch: Option<(u64, broadcast::Receiver<Arc<Decision>>)>,
}

enum Step {
    Line(Line),
    Event(u64, Event),
}

impl Connection {
    async fn run(&mut self, mut lines: Lines<OwnedReadHalf>) -> io::Result<()> {
        if self.rights < Rights::Read {
            return self.write(&Reply::error(None, self.denied(Rights::Read, "status"))).await;
        }
        loop {
            match self.step(&mut lines).await? {
                Step::Line(Line::Closed) => return Ok(()),
                Step::Line(Line::TooLong) => {
                    count(&self.shared.counters.bad_requests);
                    return self.write(&Reply::error(None, too_long())).await;
                }
                Step::Line(Line::Whole(line)) => {
                    let reply = self.answer(&line).await;
                    self.write(&reply).await?;
                }
                Step::Event(id, event) => self.write(&Reply::event(id, event)).await?,
            }
        }
    }

    async fn step(&mut self, lines: &mut Lines<OwnedReadHalf>) -> io::Result<Step> {
        let Some((id, events)) = &mut self.watch else {
            return Ok(Step::Line(timeout(IDLE_LIMIT, lines.next()).await.map_err(io::Error::from)??));
        };
        tokio::select! {
            line = lines.next() => Ok(Step::Line(line?)),
            event = events.recv() => match event {
                Ok(decision) => Ok(Step::Event(*id, Event::Decision(Decision::clone(&decision)))),
                Err(RecvError::Lagged(missed)) => Ok(Step::Event(*id, Event::Missed(missed))),
                Err(RecvError::Closed) => Ok(Step::Line(Line::Closed)),
            },
        }
    }

    async fn answer(&mut self, line: &[u8]) -> Reply {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(BadRequest { id, failure }) => {
                count(&self.shared.counters.bad_requests);
                return Reply::error(id, failure);
            }
        };
        count(&self.shared.counters.requests);
        match self.carry_out(request.id, &request.op).await {
            Ok(answer) => Reply::ok(request.id, answer),
            Err(failure) => Reply::error(Some(request.id), failure),
        }
    }

    async fn carry_out(&mut self, id: u64, op: &Op) -> Result<Answer, Failure> {
        match op {
            Op::Status => self.status().await,
            Op::Watch => {
                self.watch = Some((id, self.shared.journal.subscribe()));
                Ok(Answer::Watching)
            }
            Op::Why { last } => Ok(Answer::Decisions(self.shared.journal.last(*last))),
            Op::Version => Ok(Answer::Version(self.shared.options.version.clone())),
            Op::Failover { force } => self.command(op, Command::Failover { force: *force }).await,
            Op::Fence => self.command(op, Command::Fence).await,
            Op::Drill { node } => {
                self.check_name(node, "give the command on the primary, and name its standby")?;
                self.command(op, Command::Drill).await
            }
            Op::ConfirmFenced { incident, node } => {
                self.check_name(
                    node,
                    "look at the machine again, and give the command on the node that is to take over",
                )?;
                self.command(op, Command::ConfirmFenced { incident: *incident, uid: self.caller.uid }).await
            }
            Op::Freeze => self.command(op, Command::Freeze).await,
            Op::Thaw => self.command(op, Command::Thaw).await,
            Op::InitRecord => self.command(op, Command::Init).await,
            Op::ClearAlarms => self.command(op, Command::ClearAlarms).await,
            Op::Stop { keep_resources: false } => self.command(op, Command::Stop).await,
            Op::Stop { keep_resources: true } => self.command(op, Command::StopKeeping).await,
        }
    }

    async fn status(&self) -> Result<Answer, Failure> {
        let mut answer = self.ask(Ask::Status).await?;
        if let Answer::Status(status) = &mut answer {
            status.control = self.shared.counters.figures();
        }
        Ok(answer)
    }

    /// Every command leaves a line in the log, with who gave it and what came of it.
    async fn command(&self, op: &Op, command: Command) -> Result<Answer, Failure> {
        let Caller { uid, pid, .. } = self.caller;
        if self.rights < Rights::Command {
            tracing::warn!(uid, pid, op = op.name(), "command denied");
            return Err(self.denied(Rights::Command, op.name()));
        }
        let result = self.ask(Ask::Command(command)).await;
        match &result {
            Ok(_) => tracing::info!(uid, pid, ?op, "command accepted"),
            Err(failure) => tracing::info!(uid, pid, ?op, reason = failure.message, "command refused"),
        }
        result
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, Failure> {
        let (reply, outcome) = oneshot::channel();
        let call = Call { ask, caller: self.caller, reply };
        let asked = async {
            self.shared.calls.send(call).await.ok()?;
            outcome.await.ok()
        };
        match timeout(ANSWER_LIMIT, asked).await {
            Ok(Some(outcome)) => outcome.into(),
            Ok(None) => Err(Failure::new(ErrorCode::Unavailable, "the daemon is ending")),
            Err(_) => Err(Failure::new(ErrorCode::Unavailable, "the daemon did not answer in time")
                .remedy("see its journal: `journalctl -u leasehold`")),
        }
    }

    fn check_name(&self, named: &str, remedy: &str) -> Result<(), Failure> {
        let peer = &self.shared.options.peer_name;
        if named == peer {
            return Ok(());
        }
        Err(Failure::new(ErrorCode::Refused, format!("the peer of this node is `{peer}`, not `{}`", printable(named)))
            .remedy(remedy))
    }

    fn denied(&self, wanted: Rights, what: &str) -> Failure {
        count(&self.shared.counters.denied);
        Failure::new(ErrorCode::Denied, format!("uid {} may not ask for `{what}`", self.caller.uid))
            .remedy(&self.shared.options.access.remedy(wanted))
    }

    async fn write(&mut self, reply: &Reply) -> io::Result<()> {
        timeout(WRITE_LIMIT, self.writer.write_all(&reply.line())).await?
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
