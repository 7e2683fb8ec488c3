//! A program as a resource: a foreground service, or a pair of commands that start and stop something.
//!
//! Every program gets a clean environment: `PATH`, what the configuration gives, and the `LEASEHOLD_*` variables of
//! [`Context`]. What `start` runs carries `LEASEHOLD_RESOURCE=NAME:INSTANCE` besides, by which its processes are found,
//! and prints into the journal. Commands run one at a time, each with a deadline, and take their process group with them.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::net::unix::pipe::Receiver;
use tokio::time::{sleep, timeout};

use crate::config::{ExecResource, Resource as Configured};
use crate::core::Token;
use crate::process::{
    Ending, Finished, OnDrop, PidWatch, Program, REAP_GRACE, Running, Streams, check_owner, find_program, run, spawn,
};

use super::cgroup::{self, Cgroup};
use super::output::{Pipe, pump, reopen};
use super::search::{Found, find};
use super::strikes::Strikes;
use super::{Context, Pending, Remains, Resource, ResourceError, account};

/// What is kept of a command's output, to be told when it fails.
const COMMAND_OUTPUT: usize = 4096;
/// A sandbox makes a program fail with a text that has nothing to do with it (casebook C35). As shipped its unit has none.
const SANDBOX: &str = " (either that file system is mounted read-only, or a drop-in closes the unit of all programs: then \
    add the path to its ReadWritePaths= with \"systemctl edit leasehold-resource@.service\")";
/// How often a starting service is asked whether it is up. It is asked at once first.
const START_POLL: Duration = Duration::from_millis(50);

/// One resource of kind `exec`.
#[derive(Debug)]
pub struct Exec {
    pub(super) name: String,
    instance: String,
    pub(super) config: ExecResource,
    start_timeout: Duration,
    pub(super) stop_timeout: Duration,
    pub(super) cgroup: Option<Cgroup>,
    state: Arc<Mutex<State>>,
    /// Held while a start is under way in the kernel, also when nobody waits for it any more: a stop that did not wait
    /// for that could find nothing and be overtaken by it.
    pub(super) starting: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct State {
    context: Context,
    /// The foreground service, or the start command while it runs.
    leader: Option<Arc<PidWatch>>,
    /// The same as a child; `None` when it was adopted.
    running: Option<Running>,
}

impl Exec {
    /// `instance` tells this node's resources from those of every other daemon on the machine, and must be the same
    /// after a restart.
    pub fn new(configured: &Configured, config: &ExecResource, instance: &str) -> Exec {
        let state = State { context: Context::idle("not started yet"), leader: None, running: None };
        Exec {
            name: configured.name.clone(),
            instance: instance.to_owned(),
            config: config.clone(),
            start_timeout: configured.start_timeout.into(),
            stop_timeout: configured.stop_timeout.into(),
            cgroup: cgroup::delegated().map(|base| Cgroup::below(&base, &configured.name, instance)),
            state: Arc::new(Mutex::new(state)),
            starting: Arc::default(),
        }
    }

    /// As [`Exec::new`], with its cgroup below `base` instead of where the service manager says.
    pub fn in_cgroup(mut self, base: &Path) -> Exec {
        self.cgroup = Some(Cgroup::below(base, &self.name, &self.instance));
        self
    }

    /// All living processes of this resource: of its service, and of a stop command that is not over.
    pub(super) async fn processes(&self) -> Result<Vec<Found>, ResourceError> {
        let marks = vec![self.mark("LEASEHOLD_RESOURCE"), self.mark("LEASEHOLD_COMMAND")];
        let cgroup = self.cgroup.clone();
        let look = move || find(&marks, &cgroup.map(|c| c.processes()).unwrap_or_default());
        let looked = tokio::task::spawn_blocking(look).await;
        let failed = |source| ResourceError::Search { resource: self.name.clone(), source };
        looked.map_err(|e| failed(std::io::Error::other(e)))?.map_err(failed)
    }

    /// Runs one of the configured commands. `marked`: what it starts counts as a left-over until it is gone.
    pub(super) async fn command(
        &self,
        words: &[String],
        limit: Duration,
        marked: bool,
    ) -> Result<Finished, ResourceError> {
        let mut program = self.program(words)?;
        if marked {
            program = program.env("LEASEHOLD_COMMAND", self.id());
        }
        run(&program, None, limit, COMMAND_OUTPUT).await.map_err(|source| self.process(source))
    }

    /// The processes that the last start led to, as far as this daemon knows them.
    pub(super) fn leader(&self) -> Option<Arc<PidWatch>> {
        self.state().leader.clone()
    }

    /// Collects the leader when it has ended; how it ended, if that can be known.
    pub(super) async fn collect(&self) -> Option<String> {
        self.reap().await.map(|status| status.to_string())
    }

    /// A stop command never runs beside the start command: one that was cut off is over, with its group, before.
    pub(super) async fn end_start_command(&self) {
        let Some(leader) = self.leader() else { return };
        if let Some(running) = &self.state().running {
            running.signal_group(Signal::KILL);
        }
        leader.exited().await;
        self.reap().await;
        self.forget();
    }

    async fn reap(&self) -> Option<ExitStatus> {
        let running = self.state().running.take();
        match running {
            Some(mut running) => running.reap(REAP_GRACE).await,
            None => None,
        }
    }

    pub(super) fn forget(&self) {
        self.state().leader = None;
    }

    pub(super) fn set_context(&self, context: &Context) {
        self.state().context = context.clone();
    }

    fn id(&self) -> String {
        format!("{}:{}", self.name, self.instance)
    }

    fn mark(&self, variable: &str) -> String {
        format!("{variable}={}", self.id())
    }

    fn program(&self, words: &[String]) -> Result<Program, ResourceError> {
        let name = || self.name.clone();
        let (first, args) = words.split_first().ok_or_else(|| ResourceError::NoCommand { resource: name() })?;
        let untrusted = |source| ResourceError::Untrusted { resource: name(), source };
        let path = find_program(first).map_err(untrusted)?;
        check_owner(&path).map_err(untrusted)?;
        let mut program = Program::of_resource(path).args(args.iter().cloned());
        program.directory = self.config.directory.clone();
        if let Some(user) = &self.config.user {
            let missing = || ResourceError::NoUser { resource: name(), user: user.clone() };
            let account = account::find(user).ok_or_else(missing)?;
            program.identity = Some(account.identity);
            program = program.env("USER", &account.name).env("LOGNAME", &account.name).env("HOME", &account.home);
        }
        program.environment.extend(self.config.environment.clone());
        program.environment.extend(self.state().context.environment());
        Ok(program.env("LEASEHOLD_NAME", &self.name))
    }

    async fn bring_up(&self, context: &Context) -> Result<(), ResourceError> {
        self.set_context(context);
        let gate = self.starting.clone().lock_owned().await;
        let left = self.processes().await?;
        if !left.is_empty() {
            return Err(ResourceError::Leftovers { resource: self.name.clone(), left: listed(&left) });
        }
        let (program, streams, reader) = self.service()?;
        let (state, cgroup) = (self.state.clone(), self.cgroup.clone());
        let remember = move |running: Running| {
            if let Some(Err(error)) = cgroup.map(|c| c.adopt(running.pid())) {
                tracing::warn!(%error, "a service runs outside its own cgroup; its processes are found by their marks");
            }
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.leader = Some(running.watch());
            state.running = Some(running);
            drop(gate);
        };
        spawn(program, streams, OnDrop::Leave, remember).await.map_err(|source| self.process(source))?;
        self.journal(reader);
        let up =
            async { if self.config.foreground { self.until_serving().await } else { self.until_returned().await } };
        let late = || ResourceError::StartTimeout { resource: self.name.clone(), limit: self.start_timeout };
        timeout(self.start_timeout, up).await.unwrap_or_else(|_| Err(late()))
    }

    /// The service with its mark and its pipe, which it shares with nobody but the journal.
    fn service(&self) -> Result<(Program, Streams, Receiver), ResourceError> {
        let broken = |source| ResourceError::Output { resource: self.name.clone(), source };
        let Pipe { reader, writer, inode } = Pipe::new().map_err(broken)?;
        let program = self.program(&self.config.start)?;
        let program = program.env("LEASEHOLD_RESOURCE", self.id()).env("LEASEHOLD_OUTPUT", inode.to_string());
        let stdout = writer.try_clone().map_err(broken)?;
        let streams = Streams { stdin: None, stdout: Some(stdout.into()), stderr: Some(writer.into()) };
        Ok((program, streams, Receiver::from_owned_fd(reader).map_err(broken)?))
    }

    /// A foreground service is up when its status command says so; without one, when it runs.
    async fn until_serving(&self) -> Result<(), ResourceError> {
        let (Some(status), Some(leader)) = (&self.config.status, self.leader()) else { return Ok(()) };
        let serving = async {
            loop {
                let finished = self.command(status, self.start_timeout, false).await?;
                if finished.ending == Ending::Exited(0) {
                    return Ok(());
                }
                sleep(START_POLL).await;
            }
        };
        tokio::select! {
            up = serving => up,
            () = leader.exited() => Err(self.ended_while_starting().await),
        }
    }

    /// A start command has done its work when it ends with 0.
    async fn until_returned(&self) -> Result<(), ResourceError> {
        if let Some(leader) = self.leader() {
            leader.exited().await;
        }
        let status = self.reap().await;
        self.forget();
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.start_error(format!("the start command ended with {status}"))),
            None => Err(self.start_error("the start command ended in an unknown way".to_owned())),
        }
    }

    async fn ended_while_starting(&self) -> ResourceError {
        let how = self.collect().await.unwrap_or_else(|| "unknown status".to_owned());
        self.start_error(format!("it ended ({how})"))
    }

    fn start_error(&self, what: String) -> ResourceError {
        ResourceError::Start { resource: self.name.clone(), what }
    }

    /// Finds a running service of a former daemon, watches it and reads its output on.
    async fn take_over(&self, context: &Context) -> Result<bool, ResourceError> {
        self.set_context(context);
        let found = self.processes().await?;
        if !self.config.foreground {
            return self.serves(!found.is_empty()).await;
        }
        // The first of its processes that leads a group is what a former daemon started.
        let Some(service) = found.iter().find(|p| p.pid == p.group) else { return Ok(false) };
        let watch = Pid::from_raw(service.pid).and_then(|pid| PidWatch::of(pid).ok());
        let Some(watch) = watch.filter(|_| service.is_still_there()) else { return Ok(false) };
        let inode = service.variable("LEASEHOLD_OUTPUT").and_then(|v| v.parse().ok());
        if let Some(reader) = inode.and_then(|inode| reopen(service.pid, inode)) {
            self.journal(reader);
        }
        self.state().leader = Some(Arc::new(watch));
        Ok(true)
    }

    /// What the status command says; without one, what was found.
    async fn serves(&self, found: bool) -> Result<bool, ResourceError> {
        let Some(status) = &self.config.status else { return Ok(found) };
        let finished = self.command(status, self.start_timeout, false).await?;
        Ok(finished.ending == Ending::Exited(0))
    }

    fn journal(&self, reader: Receiver) {
        let resource = self.name.clone();
        tokio::spawn(pump(reader, move |line| tracing::info!(target: "leasehold::service", resource, "{line}")));
    }

    async fn until_failed(&self) -> String {
        tokio::select! {
            what = self.until_ended() => what,
            what = self.until_status_fails() => what,
        }
    }

    async fn until_ended(&self) -> String {
        let Some(leader) = self.leader() else { return std::future::pending().await };
        leader.exited().await;
        match self.collect().await {
            Some(how) => format!("the service ended ({how})"),
            None => "the service ended".to_owned(),
        }
    }

    async fn until_status_fails(&self) -> String {
        let Some(status) = &self.config.status else { return std::future::pending().await };
        let mut strikes = Strikes::default();
        loop {
            sleep(self.config.interval.into()).await;
            if let Some(said) = strikes.count(self.command(status, self.start_timeout, false).await) {
                return format!("the status command says that it does not serve: {said}");
            }
        }
    }

    async fn could_run(&self) -> Result<(), ResourceError> {
        self.program(&self.config.start)?;
        let Some(ready) = &self.config.ready else { return Ok(()) };
        let finished = self.command(ready, self.start_timeout, false).await?;
        match finished.ending {
            Ending::Exited(0) => Ok(()),
            Ending::Exited(_) | Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck => {
                Err(ResourceError::NotReady { resource: self.name.clone(), what: told(&finished) })
            }
        }
    }

    fn process(&self, source: crate::process::ProcessError) -> ResourceError {
        ResourceError::Process { resource: self.name.clone(), source }
    }

    /// A panic while the lock was held leaves whole values behind.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resource for Exec {
    fn name(&self) -> &str {
        &self.name
    }

    fn stop_budget(&self) -> Duration {
        self.stop_timeout
    }

    fn start<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.bring_up(context))
    }

    fn adopt<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<bool, ResourceError>> {
        Box::pin(self.take_over(context))
    }

    fn stop<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.bring_down(context))
    }

    fn kill(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.kill_all())
    }

    fn is_stopped(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(self.nothing_left())
    }

    fn ready(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.could_run())
    }

    fn watch(&self) -> Pending<'_, String> {
        Box::pin(self.until_failed())
    }

    fn set_token(&self, token: Token) {
        self.state().context.token = token;
    }

    /// What commands bring about need not be a process: only the status command tells, and the guard runs no commands.
    fn remains(&self) -> Remains {
        let hidden = if self.config.foreground { Vec::new() } else { vec![self.name.clone()] };
        Remains {
            marks: vec![self.mark("LEASEHOLD_RESOURCE"), self.mark("LEASEHOLD_COMMAND")],
            cgroups: self.cgroup.iter().map(|cgroup| cgroup.path().to_owned()).collect(),
            hidden,
            ..Remains::default()
        }
    }
}

/// How a command ended and what it said, in one line.
pub(super) fn told(finished: &Finished) -> String {
    let end = match finished.ending {
        Ending::Exited(code) => format!("exit status {code}"),
        Ending::Signalled(signal) => format!("died of signal {signal}"),
        Ending::TimedOut => "no answer within its limit".to_owned(),
        Ending::Stuck => "it hangs in the kernel".to_owned(),
    };
    let said = [finished.stdout_text(), finished.stderr_text()].join(" ");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = if said.contains("Read-only file system") { SANDBOX } else { "" };
    if said.is_empty() { end } else { format!("{end}: {}{hint}", said.chars().take(200).collect::<String>()) }
}

/// The processes, for a person.
pub(super) fn listed(left: &[Found]) -> String {
    let one = |p: &Found| format!("{} {} (state {})", p.pid, p.command, p.state);
    left.iter().take(5).map(one).collect::<Vec<_>>().join(", ")
}

/// Starts a service whose child leaves its group, its session, its parent and its environment, and stops it.
#[cfg(test)]
pub(super) async fn hidden_process_is_stopped(base: &Path) -> String {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let file = dir.path().join("pid");
    let script = format!(
        "sleep 0.2; (setsid env -i sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 432' >/dev/null 2>&1 &) & exec sleep 432",
        file.display()
    );
    let exec = ExecResource {
        start: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
        stop: None,
        status: None,
        interval: crate::core::Span::from_secs(1),
        ready: None,
        foreground: true,
        environment: Default::default(),
        user: None,
        directory: None,
    };
    let (start_timeout, stop_timeout) = (crate::core::Span::from_secs(9), crate::core::Span::from_secs(9));
    let configured = Configured {
        name: "kelp".to_owned(),
        start_timeout,
        stop_timeout,
        checks_token: false,
        beside: false,
        restarts: 0,
        restart_window: start_timeout,
        kind: crate::config::ResourceKind::Exec(exec.clone()),
    };
    let exec = Exec::new(&configured, &exec, &dir.path().display().to_string()).in_cgroup(base);
    exec.start(&Context::idle("test")).await.expect("a start");
    while !file.exists() {
        sleep(Duration::from_millis(5)).await;
    }
    let pid = std::fs::read_to_string(&file).expect("a pid").trim().to_owned();
    exec.stop(&Context::idle("test")).await.expect("a stop");
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    assert!(state.is_err() || state.is_ok_and(|s| s.contains(") Z ")), "process {pid} hides");
    pid
}
