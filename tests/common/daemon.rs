//! A real control server with a stand-in for the daemon behind it.

#![allow(dead_code)] // each test binary uses its own part of this

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::control::{
    Access, Answer, Ask, Call, Client, Decision, Failure, Journal, Op, Outcome, Role, Server, ServerOptions, Severity,
    Status, VERSION, Version,
};
use leasehold::core::{Command, Hindrance, Refusal};
use tempfile::TempDir;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::fixture;

/// Far beyond what any step takes: only a hang gets there.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Remembers every command, accepts all but `Thaw`, and changes its picture as a daemon would.
pub struct Daemon {
    directory: TempDir,
    pub journal: Journal,
    pub state: Arc<State>,
    tasks: [JoinHandle<()>; 2],
}

pub struct State {
    journal: Journal,
    pub status: Mutex<Status>,
    commands: Mutex<Vec<(Command, u32)>>,
    /// The token with which this node serves again after a handover that its peer could not take.
    pub back_with: Mutex<Option<u64>>,
}

impl Daemon {
    /// Must be called within a runtime.
    pub fn start() -> Daemon {
        Daemon::start_for(Access::new(None, None))
    }

    pub fn start_for(access: Access) -> Daemon {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let options = options(directory.path().join("control.sock"), access);
        let journal = Journal::default();
        let (calls, asked) = mpsc::channel(16);
        let server = Server::bind(options, journal.clone(), calls).unwrap();
        let status = Mutex::new(fixture::healthy());
        let state = Arc::new(State {
            journal: journal.clone(),
            status,
            commands: Mutex::default(),
            back_with: Mutex::default(),
        });
        let tasks = [tokio::spawn(server.run()), tokio::spawn(answer(asked, Arc::clone(&state)))];
        Daemon { directory, journal, state, tasks }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    pub async fn connect(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.socket()).await.unwrap())
    }

    pub async fn blocking<T: Send + 'static>(&self, ask: impl FnOnce(&Path) -> T + Send + 'static) -> T {
        let socket = self.socket();
        tokio::task::spawn_blocking(move || ask(&socket)).await.unwrap()
    }

    pub async fn status(&self) -> Status {
        match self.blocking(|socket| Client::connect(socket, LIMIT).unwrap().ask(Op::Status)).await {
            Ok(Answer::Status(status)) => *status,
            other => panic!("no status: {other:?}"),
        }
    }

    pub fn set(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.state.status.lock().unwrap());
    }

    pub fn commands(&self) -> Vec<(Command, u32)> {
        self.state.commands.lock().unwrap().clone()
    }

    /// As when the process ends.
    pub fn end(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl State {
    fn answer(&self, call: &Call) -> Outcome {
        match call.ask {
            Ask::Status => Outcome::Status(Box::new(self.status.lock().unwrap().clone())),
            Ask::Command(Command::Thaw) => Outcome::Failed(Failure::from(Refusal::NotNow(Hindrance::Stopping))),
            Ask::Command(command) => {
                self.commands.lock().unwrap().push((command, call.caller.uid));
                self.carry_out(command);
                Outcome::Accepted
            }
        }
    }

    fn carry_out(&self, command: Command) {
        match command {
            Command::Failover { .. } => {
                let mut status = self.status.lock().unwrap();
                if let Some(token) = *self.back_with.lock().unwrap() {
                    status.me.token = Some(token);
                    return;
                }
                status.me.role = Role::Standby;
                status.me.token = None;
                let said = status.peer.said.as_mut().expect("the fixture's peer was heard");
                said.role = Role::Primary;
                said.token = Some(7);
                self.journal.publish(decision("stops acting under token 6: planned handover to the peer".into()));
            }
            Command::Fence => {
                let text = "the ordered fence ended: fence unknown".into();
                let kind = "operator-fence-done".into();
                self.journal.publish(Decision { severity: Severity::Alarm, kind, ..decision(text) });
            }
            _ => {}
        }
    }
}

pub fn options(socket: PathBuf, access: Access) -> ServerOptions {
    let version = Version { program: "0.1.0".into(), control: VERSION, wire: 1 };
    ServerOptions { socket, access, peer_name: "plover".into(), version }
}

async fn answer(mut asked: mpsc::Receiver<Call>, state: Arc<State>) {
    while let Some(call) = asked.recv().await {
        let outcome = state.answer(&call);
        let stopped = matches!(call.ask, Ask::Command(Command::Stop));
        let _ = call.reply.send(outcome);
        if stopped {
            return;
        }
    }
}

pub fn decision(text: String) -> Decision {
    let at = fixture::at("03:00:00");
    Decision { number: 0, at, severity: Severity::Notice, role: Role::Standby, kind: "demoting".into(), text }
}
