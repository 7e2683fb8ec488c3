//! One machine of the demo: a process under which everything of a node lives, so that its end is the end of all of it.
//!
//! ```text
//!   demo ── stdin ──▶ demo-machine ──▶ daemon ──▶ service, fence agents …
//!   BMC  ── SIGTERM ─▶    │  every orphan below becomes its child, none can leave
//!                         └─ off: SIGKILL to all, until the kernel says that there is no child; then it ends itself
//! ```
//!
//! When the demo dies, whatever way, its end of stdin closes, and the machine goes off.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, wait};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::bmc::Power;
use super::procs::{Process, descendants};
use super::world::Guarding;
use crate::cli::args::DemoMachine;
use crate::cli::exit::Exit;

/// What the demo writes to have the daemon started (again).
const START_DAEMON: &str = "daemon";
/// The same for the guard.
const START_GUARD: &str = "guard";
/// A machine has no work of its own: killing what it has takes milliseconds.
const OFF_LIMIT: Duration = Duration::from_secs(10);

/// The machine itself, from power on to power off.
pub fn run(options: &DemoMachine) -> anyhow::Result<Exit> {
    set_child_subreaper(Some(getpid())).context("adopting orphans")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(live(options));
    off()?;
    result.map(|()| Exit::Fine)
}

async fn live(options: &DemoMachine) -> anyhow::Result<()> {
    let mut told_off = signal(SignalKind::terminate())?;
    let mut child_ended = signal(SignalKind::child())?;
    let mut orders = orders();
    // From here on the power reads on, and whoever reads the process id may send the signal.
    std::mem::forget(Power::of(&options.directory, &options.node).switch_on()?);
    loop {
        tokio::select! {
            order = orders.recv() => match order.as_deref() {
                Some(START_DAEMON) => start_daemon(options)?,
                Some(START_GUARD) => start_guard(options)?,
                Some(other) => bail!("an order that is none: {other}"),
                None => return Ok(()),
            },
            _ = told_off.recv() => return Ok(()),
            _ = child_ended.recv() => while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {},
        }
    }
}

/// Lines of stdin; the end of it ends the channel.
fn orders() -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines().map_while(Result::ok);
        lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
    });
    receiver
}

fn start_daemon(options: &DemoMachine) -> anyhow::Result<()> {
    let home = options.directory.join(&options.node);
    let log = log(&home)?;
    let mut daemon = Command::new(std::env::current_exe()?);
    daemon.args([
        "daemon",
        "--test-hooks",
        "--node",
        &options.node,
        "--boot-id",
        &options.boot_id,
        "--log",
        &options.log,
    ]);
    daemon.arg("--config").arg(home.join("leasehold.toml"));
    daemon.env("NOTIFY_SOCKET", home.join("notify")).env_remove("LEASEHOLD_SOCKET");
    daemon.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    daemon.spawn().context("starting the daemon").map(drop)
}

fn start_guard(options: &DemoMachine) -> anyhow::Result<()> {
    let home = options.directory.join(&options.node);
    let log = log(&home)?;
    let mut guard = Command::new(std::env::current_exe()?);
    guard.args(["guard", "--boot-id", &options.boot_id, "--runtime"]).arg(home.join("run"));
    guard.arg("--on-reset").arg(home.join("reset"));
    guard.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    guard.spawn().context("starting the guard").map(drop)
}

fn log(home: &Path) -> anyhow::Result<File> {
    let path = home.join("daemon.log");
    OpenOptions::new().create(true).append(true).open(&path).with_context(|| path.display().to_string())
}

/// Kills until there is no child. What a killed process leaves behind becomes a child of this one.
fn off() -> anyhow::Result<()> {
    loop {
        descendants(getpid())?.iter().for_each(|process| process.signal(Signal::KILL));
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error).context("waiting for the end of a process"),
        }
    }
}

/// A machine as the demo holds it.
#[derive(Debug)]
pub struct Machine {
    pid: Pid,
    orders: ChildStdin,
    ended: Receiver<()>,
}

/// What it takes to switch a machine on.
#[derive(Debug, Clone)]
pub struct Case {
    pub program: PathBuf,
    pub directory: PathBuf,
    pub node: String,
    pub log: String,
    pub guarding: Guarding,
}

impl Machine {
    /// Switches it on; `off` is called once when it is off again, by whatever hand.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn switch_on(case: &Case, boot_id: &str, off: impl FnOnce() + Send + 'static) -> anyhow::Result<Machine> {
        let mut command = Command::new(&case.program);
        command.args(["demo-machine", "--node", &case.node, "--boot-id", boot_id, "--log", &case.log, "--directory"]);
        command.arg(&case.directory).stdin(Stdio::piped()).stdout(Stdio::null());
        // A group of its own: Ctrl-C at the terminal is for the demo, which then ends the machines in good order.
        command.stderr(log(&case.directory.join(&case.node))?).process_group(0);
        let mut child = command.spawn().with_context(|| format!("starting {}", case.program.display()))?;
        let orders = child.stdin.take().expect("stdin is piped");
        let pid = Pid::from_child(&child);
        let ended = watch_end(child, off);
        let mut machine = Machine { pid, orders, ended };
        if case.guarding == Guarding::Process {
            machine.start_guard()?;
        }
        machine.start_daemon()?;
        Ok(machine)
    }

    /// Starts the daemon, after a crash that the machine survived.
    ///
    /// # Errors
    /// The machine is off.
    pub fn start_daemon(&mut self) -> anyhow::Result<()> {
        writeln!(self.orders, "{START_DAEMON}").context("the machine is off")
    }

    /// Starts the guard, as a service manager does after it has ended.
    ///
    /// # Errors
    /// The machine is off.
    pub fn start_guard(&mut self) -> anyhow::Result<()> {
        writeln!(self.orders, "{START_GUARD}").context("the machine is off")
    }

    /// Everything that runs on it.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn processes(&self) -> anyhow::Result<Vec<Process>> {
        Ok(descendants(self.pid)?.into_iter().filter(|process| !process.zombie).collect())
    }

    /// Pulls the plug, and returns when everything is gone.
    ///
    /// # Errors
    /// It does not go off: something hangs in the kernel.
    pub fn switch_off(self) -> anyhow::Result<()> {
        drop(self.orders);
        match self.ended.recv_timeout(OFF_LIMIT) {
            Ok(()) => Ok(()),
            Err(_) => bail!("a machine of the demo (process {}) does not end; see `ps`", self.pid.as_raw_nonzero()),
        }
    }
}

fn watch_end(mut child: Child, off: impl FnOnce() + Send + 'static) -> Receiver<()> {
    let (sender, ended) = sync_channel(1);
    std::thread::spawn(move || {
        let _ = child.wait();
        // Whoever holds the machine may be gone.
        let _ = sender.try_send(());
        off();
    });
    ended
}
