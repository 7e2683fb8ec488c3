//! Child processes under control: used by fence agents and by resources, which may not know each other.
//!
//! ```text
//!   Program ── spawn ──▶ Running (own process group) ── exited / kill_group / reap
//!      └────── run ────▶ Finished (bounded output, deadline, nothing left in the group)
//! ```
//!
//! Four things are always true. The environment is clean: what a child gets was written down for it. The child leads
//! its own process group, so that one signal reaches its children too. No wait is without limit: a child that even
//! SIGKILL does not end (it hangs in the kernel on a sick disk) is reported as [`Ending::Stuck`] and left to the
//! runtime to reap. And starting a program never holds up the caller's thread: the kernel makes the parent wait
//! until the program is loaded, which takes as long as the disk does, so it happens on a thread of its own.
//!
//! Under systemd the programs are children of units of their own ([`mod@unit`]), and everything above is true all the same.

mod pidfd;
mod places;
mod run;
mod trust;
pub mod unit;

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

pub use pidfd::PidWatch;
pub use run::{Ending, Finished, run};
pub use trust::{Untrusted, check_owner, find_program};
pub use unit::Class;

use places::Place;
use unit::{Door, Lent};

/// Where bare program names are looked for, and the `PATH` of every child that is given no other.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long a killed child may take to disappear before it counts as stuck in the kernel.
pub const REAP_GRACE: Duration = Duration::from_secs(1);

/// What can go wrong before a child runs.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error(
        "cannot start {program}: {source}; see that it is there, executable and, for a script, names its interpreter"
    )]
    Spawn { program: PathBuf, source: std::io::Error },
    #[error(
        "{program} is not started: no unit for it at {}: {source}; see `systemctl status leasehold-resource.socket`",
        socket.display()
    )]
    NoUnit { program: PathBuf, socket: PathBuf, source: std::io::Error },
    #[error("no pipe to {program}: {source}")]
    Pipe { program: PathBuf, source: std::io::Error },
    #[error("cannot watch {program} after its start: {source}")]
    Watch { program: PathBuf, source: std::io::Error },
    #[error("starting {program} was given up: the program that runs it is shutting down")]
    ShuttingDown { program: PathBuf },
    #[error(
        "{program} is not started again: {count} runs of it hang in the kernel and cannot be killed; \
         see what it waits for, such as a file server or disk that does not answer"
    )]
    Hanging { program: PathBuf, count: usize },
    #[error("{0}")]
    Untrusted(#[from] Untrusted),
}

/// The user that a child runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
}

/// One program with everything that it gets: no shell, no inherited environment.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<String>,
    /// The whole environment; `PATH` is added when it is missing.
    pub environment: Vec<(String, String)>,
    pub directory: Option<PathBuf>,
    pub identity: Option<Identity>,
    pub class: Class,
}

/// The streams of a child; one that is absent is `/dev/null`.
#[derive(Debug, Default)]
pub struct Streams {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

impl Program {
    pub fn new(path: impl Into<PathBuf>) -> Program {
        let (args, environment) = (Vec::new(), Vec::new());
        Program { path: path.into(), args, environment, directory: None, identity: None, class: Class::Agent }
    }

    /// As [`Program::new`], of a resource.
    pub fn of_resource(path: impl Into<PathBuf>) -> Program {
        Program { class: Class::Resource, ..Program::new(path) }
    }

    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Program {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Program {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The command as the standard library knows it.
    fn command(&self, streams: Streams) -> std::process::Command {
        let mut command = std::process::Command::new(&self.path);
        command.args(&self.args).env_clear().env("PATH", DEFAULT_PATH).process_group(0);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let stream = |given: Option<OwnedFd>| given.map_or_else(Stdio::null, Stdio::from);
        command.stdin(stream(streams.stdin)).stdout(stream(streams.stdout)).stderr(stream(streams.stderr));
        command.current_dir(self.directory.as_deref().unwrap_or(Path::new("/")));
        if let Some(identity) = self.identity {
            command.uid(identity.uid).gid(identity.gid);
        }
        command
    }
}

/// What happens to the process group when its [`Running`] is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDrop {
    /// The whole group is killed: a cancelled fence attempt leaves nothing behind.
    KillGroup,
    /// It lives on: a service outlives the daemon that started it.
    Leave,
}

/// A started program that leads its own process group and has not been reaped.
#[derive(Debug)]
pub struct Running {
    parent: Parent,
    watch: Arc<PidWatch>,
    on_drop: OnDrop,
    reaped: bool,
    /// Of a program that is killed at its end; a service has none.
    place: Option<Place>,
}

/// Who started it, and collects it.
#[derive(Debug)]
enum Parent {
    Me(Child),
    Unit(Lent),
}

impl Running {
    /// The process id of the leader, which is the id of its group.
    pub fn pid(&self) -> Pid {
        self.watch.pid()
    }

    /// The leader, to be watched apart from the child.
    pub fn watch(&self) -> Arc<PidWatch> {
        self.watch.clone()
    }

    /// Completes when the leader has ended. It stays a zombie until [`Running::reap`], so that the number of
    /// its group cannot be given to strangers meanwhile.
    pub async fn exited(&self) {
        self.watch.exited().await;
    }

    /// Sends a signal to every process of the group; that none is left is no error.
    pub fn signal_group(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill_process_group(self.pid(), signal);
        }
    }

    /// SIGKILL to the group, and to all that has left the group but not the unit of an agent.
    pub fn kill(&self) {
        self.signal_group(Signal::KILL);
        if let Parent::Unit(lent) = &self.parent {
            lent.kill_unit();
        }
    }

    /// Waits for the leader for at most `grace`; `None` when it hangs in the kernel.
    pub async fn reap(&mut self, grace: Duration) -> Option<ExitStatus> {
        let status = async {
            match &mut self.parent {
                Parent::Me(child) => child.wait().await.ok(),
                Parent::Unit(lent) => Some(lent.status(&self.watch).await),
            }
        };
        let status = tokio::time::timeout(grace, status).await.ok()?;
        self.reaped = true;
        status
    }

    fn start(
        command: std::process::Command,
        program: PathBuf,
        on_drop: OnDrop,
        place: Option<Place>,
    ) -> Result<Running, ProcessError> {
        let spawned = Command::from(command).spawn();
        let child = spawned.map_err(|source| ProcessError::Spawn { program: program.clone(), source })?;
        let raw = child.id().expect("a child that was never waited for has an id");
        let pid = Pid::from_raw(raw.cast_signed()).expect("no child has the process id zero");
        match PidWatch::of(pid) {
            Ok(watch) => {
                Ok(Running { parent: Parent::Me(child), watch: Arc::new(watch), on_drop, reaped: false, place })
            }
            Err(source) => {
                let _ = kill_process_group(pid, Signal::KILL);
                Err(ProcessError::Watch { program, source })
            }
        }
    }

    async fn start_in_unit(
        door: Door,
        program: Program,
        streams: Streams,
        on_drop: OnDrop,
        place: Option<Place>,
    ) -> Result<Running, ProcessError> {
        let started = door.start(&program, streams, on_drop).await;
        let (watch, lent) = started.map_err(|source| ProcessError::Spawn { program: program.path, source })?;
        Ok(Running { parent: Parent::Unit(lent), watch: Arc::new(watch), on_drop, reaped: false, place })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After the leader was collected, the unit of an agent ends what is left in it.
        if self.on_drop == OnDrop::KillGroup && !self.reaped {
            self.kill();
        }
        let Some(place) = self.place.take().filter(|_| !self.reaped) else { return };
        // One that hangs in the kernel keeps its place until it has ended.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let watch = self.watch.clone();
            runtime.spawn(async move {
                watch.exited().await;
                drop(place);
            });
        }
    }
}

/// Starts the program aside, in a unit or on a thread of its own, and hands it to `then` there, so that it is in good
/// hands even if the caller goes away meanwhile. `then` is let go of, called or not, when no start is under way any more.
pub async fn spawn<T: Send + 'static>(
    program: Program,
    streams: Streams,
    on_drop: OnDrop,
    then: impl FnOnce(Running) -> T + Send + 'static,
) -> Result<T, ProcessError> {
    let shutting_down = ProcessError::ShuttingDown { program: program.path.clone() };
    let place = match on_drop {
        OnDrop::KillGroup => Some(Place::take(&program.path)?),
        OnDrop::Leave => None,
    };
    let starting = match unit::open(&program).await? {
        Some(door) => tokio::spawn(async move {
            let running = Running::start_in_unit(door, program, streams, on_drop, place).await;
            running.map(then)
        }),
        None => {
            let command = program.command(streams);
            tokio::task::spawn_blocking(move || Running::start(command, program.path, on_drop, place).map(then))
        }
    };
    starting.await.unwrap_or(Err(shutting_down))
}

/// [`check_owner`] for a running daemon: a file system that does not answer holds up a thread of its own, and no other
/// agent.
///
/// # Errors
/// The program is not to be trusted, or earlier looks at it still hang.
pub async fn check_owner_aside(program: &Path) -> Result<(), ProcessError> {
    let (path, place) = (program.to_owned(), Place::take(program)?);
    let look = tokio::task::spawn_blocking(move || {
        let result = check_owner(&path);
        drop(place);
        result
    });
    let shutting_down = ProcessError::ShuttingDown { program: program.to_owned() };
    Ok(look.await.map_err(|_| shutting_down)??)
}
