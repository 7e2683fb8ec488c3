//! The server's processes: started in the foreground below this daemon, found by looking, stopped with evidence.
//!
//! ```text
//!   SIGINT to the postmaster ("fast") ─▶ SIGQUIT ("immediate") ─▶ SIGKILL to all of it ─▶ nothing left, twice in a row
//! ```
//!
//! A process belongs to the server if it is a `postgres` whose working directory is the data directory: PostgreSQL makes
//! that so for each of its processes. Their environment is no use, since they write their titles over it; nor is the
//! postmaster's life, which its children outlive for a second after SIGKILL; nor the control file, which says "in
//! production" when a full disk has ended everything (casebook C31).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::process::{OnDrop, PidWatch, Program, REAP_GRACE, Running, Streams, find_program, spawn};

use super::super::cgroup::{self, Cgroup};
use super::super::exec::listed;
use super::super::output::{Pipe, pump, reopen};
use super::super::search::{Found, find};
use super::super::{Pending, Remains, ResourceError, ServerRemains};
use super::tools::Tools;

/// The part of a stop kept for each of "immediate" and SIGKILL, at most; a quarter of the whole where that is less.
const LONGEST_RESERVE: Duration = Duration::from_secs(3);
/// How soon after a signal one looks again: first at once, then at growing gaps.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(100);
/// How long the last lines of an ended server may take to be read.
const LAST_LINES: Duration = Duration::from_millis(300);

/// What the server's program is called, on some systems with a version behind it.
const PROGRAM: &str = "postgres";

/// One setting on the server's command line, where it outranks every file.
pub type Setting = (&'static str, String);

/// How the server's processes come and go: below this daemon ([`Direct`]), or as a unit of the service manager
/// ([`super::by_unit::ByUnit`]).
pub trait Server: Send + Sync + std::fmt::Debug {
    /// Returns when the process runs, long before it accepts connections. What a dropped call leaves, `stop` finds.
    fn start<'a>(&'a self, settings: &'a [Setting]) -> Pending<'a, Result<(), ResourceError>>;

    /// Ends it in order, then by force, and verifies that nothing is left of it nor of a copy or rewind under way.
    fn stop(&self, limit: Duration) -> Pending<'_, Result<(), ResourceError>>;

    /// SIGKILL to all of it, verified.
    fn kill(&self, limit: Duration) -> Pending<'_, Result<(), ResourceError>>;

    /// Whether any process of the server is left, by looking.
    fn is_running(&self) -> Pending<'_, Result<bool, ResourceError>>;

    /// Takes one over that a former daemon started. `false`: none runs.
    fn adopt(&self) -> Pending<'_, Result<bool, ResourceError>>;

    /// Completes when the main process of a started or adopted server has ended, with how.
    fn ended(&self) -> Pending<'_, String>;

    /// How the guard finds and ends it.
    fn remains(&self) -> Remains;

    /// Whether it could be run from here, and by nobody else.
    fn fitness(&self) -> Pending<'_, Result<(), ResourceError>>;
}

/// In a process group, and where there is one a control group, of its own.
#[derive(Debug)]
pub struct Direct {
    tools: Tools,
    cgroup: Option<Cgroup>,
    state: Arc<Mutex<State>>,
    /// Held while a start is under way in the kernel, also when nobody waits for it any more.
    starting: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    leader: Option<Arc<PidWatch>>,
    /// The same as a child; `None` when it was adopted.
    running: Option<Running>,
    /// Reads what it says until its last process has ended.
    output: Option<JoinHandle<()>>,
    /// The last line in which it gave up, with what it added to that.
    last_words: Option<String>,
}

impl State {
    fn note(&mut self, line: &str) {
        let said = |mark: &str| line.split_once(mark).map(|(_, text)| text.trim().to_owned());
        if let Some(words) = said("FATAL:").or_else(|| said("PANIC:")) {
            self.last_words = Some(words);
        } else if let (Some(words), Some(more)) = (&mut self.last_words, said("DETAIL:").or_else(|| said("HINT:"))) {
            words.push_str(&format!("; {more}"));
        }
    }
}

impl Direct {
    pub fn new(tools: Tools, instance: &str) -> Direct {
        let cgroup = cgroup::delegated().map(|base| Cgroup::below(&base, &tools.resource, instance));
        Direct { tools, cgroup, state: Arc::default(), starting: Arc::default() }
    }

    /// All that is left: the server's processes, and of a rewind or copy that nobody waits for any more.
    async fn processes(&self) -> Result<Vec<Found>, ResourceError> {
        self.look(self.marks()).await
    }

    fn marks(&self) -> Vec<String> {
        ["LEASEHOLD_RESOURCE", "LEASEHOLD_COMMAND"].map(|name| format!("{name}={}", self.tools.id)).to_vec()
    }

    async fn look(&self, marks: Vec<String>) -> Result<Vec<Found>, ResourceError> {
        let (cgroup, data) = (self.cgroup.clone(), self.tools.config.data_directory.clone());
        let look = move || {
            let mut known = in_directory(&data)?;
            known.extend(cgroup.map(|c| c.processes()).unwrap_or_default());
            find(&marks, &known)
        };
        let failed = |source| ResourceError::Search { resource: self.tools.resource.clone(), source };
        let looked = tokio::task::spawn_blocking(look).await;
        looked.map_err(|e| failed(io::Error::other(e)))?.map_err(failed)
    }

    async fn launch(&self, settings: &[Setting]) -> Result<(), ResourceError> {
        let gate = self.starting.clone().lock_owned().await;
        let left = self.processes().await?;
        if !left.is_empty() {
            return Err(ResourceError::Leftovers { resource: self.tools.resource.clone(), left: listed(&left) });
        }
        let broken = |source| ResourceError::Output { resource: self.tools.resource.clone(), source };
        let Pipe { reader, writer, inode } = Pipe::new().map_err(broken)?;
        let program = self.program(settings)?.env("LEASEHOLD_RESOURCE", &self.tools.id);
        let program = program.env("LEASEHOLD_OUTPUT", inode.to_string());
        let stdout = writer.try_clone().map_err(broken)?;
        let streams = Streams { stdin: None, stdout: Some(stdout.into()), stderr: Some(writer.into()) };
        let reader = Receiver::from_owned_fd(reader).map_err(broken)?;
        let (state, cgroup) = (self.state.clone(), self.cgroup.clone());
        let remember = move |running: Running| {
            if let Some(Err(error)) = cgroup.map(|c| c.adopt(running.pid())) {
                tracing::warn!(%error, "the server runs outside its own cgroup; its processes are found by their directory");
            }
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            *state = State { leader: Some(running.watch()), running: Some(running), ..State::default() };
            drop(gate);
        };
        let spawned = spawn(program, streams, OnDrop::Leave, remember).await;
        spawned.map_err(|source| ResourceError::Process { resource: self.tools.resource.clone(), source })?;
        self.journal(reader);
        Ok(())
    }

    /// The server itself. Root's child gets all groups of the server's user: keys of TLS often belong to one of them.
    fn program(&self, settings: &[Setting]) -> Result<Program, ResourceError> {
        let mut program = self.tools.program("postgres")?;
        let config = &self.tools.config;
        let mut args = vec!["-D".to_owned(), config.data_directory.display().to_string()];
        let file = config.config_file.iter().map(|file| ("config_file", file.display().to_string()));
        for (name, value) in file.chain(settings.iter().cloned()) {
            args.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        if geteuid().is_root() {
            let untrusted = |source| ResourceError::Untrusted { resource: self.tools.resource.clone(), source };
            let account = self.tools.account()?;
            let (uid, gid) = (account.identity.uid, account.identity.gid);
            let postgres = program.path.display().to_string();
            let words =
                [format!("--reuid={uid}"), format!("--regid={gid}"), "--init-groups".into(), "--".into(), postgres];
            program.path = find_program("setpriv").map_err(untrusted)?;
            program.identity = None;
            program.args = words.to_vec();
        }
        Ok(program.args(args))
    }

    async fn take_over(&self) -> Result<bool, ResourceError> {
        let found = self.processes().await?;
        // All others descend from the postmaster.
        let Some(main) = roots(&found).into_iter().next().cloned() else { return Ok(false) };
        let watch = Pid::from_raw(main.pid).and_then(|pid| PidWatch::of(pid).ok()).filter(|_| main.is_still_there());
        let Some(watch) = watch else { return Ok(false) };
        if self.state().leader.as_ref().is_none_or(|leader| leader.pid() != watch.pid()) {
            *self.state() = State::default();
            let inode = main.variable("LEASEHOLD_OUTPUT").and_then(|v| v.parse().ok());
            if let Some(reader) = inode.and_then(|inode| reopen(main.pid, inode)) {
                self.journal(reader);
            }
            self.state().leader = Some(Arc::new(watch));
        }
        Ok(true)
    }

    fn journal(&self, reader: Receiver) {
        let (resource, state) = (self.tools.resource.clone(), self.state.clone());
        let output = tokio::spawn(pump(reader, move |line| {
            tracing::info!(target: "leasehold::service", resource, "{line}");
            state.lock().unwrap_or_else(PoisonError::into_inner).note(line);
        }));
        self.state().output = Some(output);
    }

    async fn bring_down(&self, limit: Duration) -> Result<(), ResourceError> {
        let reserve = (limit / 4).min(LONGEST_RESERVE);
        let in_order = async {
            drop(self.starting.lock().await);
            self.until_gone(Blow::Fast).await
        };
        if let Ok(stopped) = timeout(limit.saturating_sub(reserve * 2), in_order).await {
            return stopped;
        }
        tracing::warn!(resource = self.tools.resource, "the server does not stop in order; an immediate stop follows");
        match timeout(reserve, self.until_gone(Blow::Immediate)).await {
            Ok(stopped) => stopped,
            Err(_) => self.kill_within(reserve).await,
        }
    }

    async fn kill_within(&self, limit: Duration) -> Result<(), ResourceError> {
        let killing = async {
            let started = self.starting.lock();
            tokio::pin!(started);
            loop {
                self.until_gone(Blow::Kill).await?;
                if timeout(LAST_LOOK, &mut started).await.is_ok() {
                    return self.until_gone(Blow::Kill).await;
                }
            }
        };
        match timeout(limit, killing).await {
            Ok(killed) => killed,
            Err(_) => {
                let left = timeout(LAST_LOOK * 10, self.processes()).await;
                let left = match left {
                    Ok(Ok(left)) => listed(&left),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "looking for its processes hangs".to_owned(),
                };
                Err(ResourceError::Stuck { resource: self.tools.resource.clone(), limit, left })
            }
        }
    }

    /// Looks until nothing is left, twice in a row. Ends only then: the caller has the limit.
    async fn until_gone(&self, blow: Blow) -> Result<(), ResourceError> {
        let (mut gap, mut clean, mut struck) = (FIRST_LOOK, 0, false);
        loop {
            let left = self.processes().await?;
            clean = if left.is_empty() { clean + 1 } else { 0 };
            if clean >= 2 {
                self.collect().await;
                return Ok(());
            }
            if !left.is_empty() {
                // A second SIGINT or SIGQUIT says nothing new; SIGKILL must hit what was forked meanwhile.
                if !struck || blow == Blow::Kill {
                    self.strike(blow, &left);
                    struck = true;
                }
                self.pause(gap, &left).await;
                gap = (gap * 2).min(LAST_LOOK);
            }
        }
    }

    fn strike(&self, blow: Blow, left: &[Found]) {
        match blow {
            Blow::Fast => roots(left).iter().for_each(|p| p.signal(Signal::INT)),
            Blow::Immediate => roots(left).iter().for_each(|p| p.signal(Signal::QUIT)),
            Blow::Kill => {
                self.cgroup.iter().for_each(Cgroup::kill);
                left.iter().for_each(|p| p.signal(Signal::KILL));
            }
        }
        // A stopped process takes no notice until it goes on.
        left.iter().for_each(|p| p.signal(Signal::CONT));
    }

    /// Waits for `gap`, or until the postmaster has ended if it was still there.
    async fn pause(&self, gap: Duration, left: &[Found]) {
        let leader = self.state().leader.clone();
        match leader.filter(|leader| left.iter().any(|p| p.pid == leader.pid().as_raw_nonzero().get())) {
            Some(leader) => drop(timeout(gap, leader.exited()).await),
            None => sleep(gap).await,
        }
    }

    async fn until_ended(&self) -> String {
        let Some(leader) = self.state().leader.clone() else { return std::future::pending().await };
        leader.exited().await;
        let output = self.state().output.take();
        if let Some(output) = output {
            // The rest of what it said; a process that lives on must not hold this up.
            let _ = timeout(LAST_LINES, output).await;
        }
        let words = self.state().last_words.take().map(|words| format!(": {words}")).unwrap_or_default();
        match self.collect().await {
            Some(how) => format!("the server ended ({how}){words}"),
            None => format!("the server ended{words}"),
        }
    }

    async fn collect(&self) -> Option<String> {
        let State { running, .. } = std::mem::take(&mut *self.state());
        running?.reap(REAP_GRACE).await.map(|status| status.to_string())
    }

    /// A panic while the lock was held leaves whole values behind.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server for Direct {
    fn start<'a>(&'a self, settings: &'a [Setting]) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.launch(settings))
    }

    fn stop(&self, limit: Duration) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.bring_down(limit))
    }

    fn kill(&self, limit: Duration) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.kill_within(limit))
    }

    fn is_running(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(async {
            // Of a start that nobody waits for any more, nothing may be there to see yet.
            drop(self.starting.lock().await);
            Ok(!self.look(vec![format!("LEASEHOLD_RESOURCE={}", self.tools.id)]).await?.is_empty())
        })
    }

    fn adopt(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(self.take_over())
    }

    fn ended(&self) -> Pending<'_, String> {
        Box::pin(self.until_ended())
    }

    /// The guard reads names alone, for a directory on a dead storage answers nobody. One that is not there yet may turn
    /// out to have another name.
    fn remains(&self) -> Remains {
        let data = &self.tools.config.data_directory;
        let known = data.canonicalize().ok();
        let hidden = if known.is_none() { vec![self.tools.resource.clone()] } else { Vec::new() };
        let directories = [Some(data.clone()), known.filter(|path| path != data)].into_iter().flatten();
        let server = |directory| ServerRemains { program: PROGRAM.to_owned(), directory };
        Remains {
            marks: self.marks(),
            servers: directories.map(server).collect(),
            cgroups: self.cgroup.iter().map(|cgroup| cgroup.path().to_owned()).collect(),
            hidden,
            ..Remains::default()
        }
    }

    fn fitness(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(async { Ok(()) })
    }
}

/// How hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    /// Sessions are ended, a checkpoint is written, standbys get the rest (PostgreSQL, "Shutting Down the Server").
    Fast,
    /// All end at once; the next start recovers.
    Immediate,
    Kill,
}

/// Those whose parent is not among them: the postmaster; without it, each of its orphans.
fn roots(found: &[Found]) -> Vec<&Found> {
    found.iter().filter(|p| !found.iter().any(|other| other.pid == p.parent)).collect()
}

/// Processes that run a `postgres` in this directory, zombies left out. A person's shell there is none.
fn in_directory(data: &Path) -> io::Result<Vec<i32>> {
    let place = Place::of(data);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(pid) = pid.filter(|_| place.holds(&entry.path())) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// A directory, known by its number as well as by its name: either may be all that is left.
struct Place {
    paths: Vec<PathBuf>,
    inode: Option<(u64, u64)>,
}

impl Place {
    fn of(data: &Path) -> Place {
        let paths = [Some(data.to_owned()), data.canonicalize().ok()].into_iter().flatten().collect();
        Place { paths, inode: fs::metadata(data).ok().map(|m| (m.dev(), m.ino())) }
    }

    /// What may not be read belongs to another user, and so not to our server.
    fn holds(&self, process: &Path) -> bool {
        let runs_postgres = fs::read_link(process.join("exe"))
            .is_ok_and(|exe| exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PROGRAM)));
        if !runs_postgres {
            return false;
        }
        let directory = process.join("cwd");
        let by_name = fs::read_link(&directory).is_ok_and(|path| self.paths.contains(&path));
        let number = || fs::metadata(&directory).ok().map(|m| (m.dev(), m.ino()));
        by_name || (self.inode.is_some() && self.inode == number())
    }
}
