//! One node: a network namespace, a control group with all that runs on it, and a BMC that really takes its power.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::control::{Answer, Client, Decision, Op, Status};
use rustix::process::Signal;

use crate::ipmi::Bmc;
use crate::pg;
use crate::segment::{Segment, eventually};

/// Of one question to a daemon: it may stand still.
const LIMIT: Duration = Duration::from_secs(2);

/// On until its power is cut. Its BMC hangs on the other node's loopback: no cut between the nodes reaches it.
pub struct Machine {
    pub node: &'static str,
    pub space: &'static str,
    pub bmc: Bmc,
    beside: &'static str,
    home: tempfile::TempDir,
    group: PathBuf,
    daemon: Option<Child>,
    boots: u32,
}

impl Machine {
    pub fn new(segment: &Segment, node: &'static str, [space, beside]: [&'static str; 2], key: &[u8]) -> Machine {
        let home = tempfile::tempdir().unwrap();
        ["state", "run"].iter().for_each(|name| fs::create_dir(home.path().join(name)).unwrap());
        let secret = home.path().join("key");
        fs::write(&secret, key).unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let group = tree().join(segment.namespace(space));
        fs::create_dir(&group).unwrap();
        let dead = "{ ip -n $m link set reef0 down; ip -n $m link set hb0 down; }";
        let off = format!(
            "m={1}; echo 1 > {0}/cgroup.kill; while grep -q 'populated 1' {0}/cgroup.events; do sleep 0.01; done; \
             {dead} >/dev/null 2>&1; echo 0 > power",
            group.display(),
            segment.namespace(space)
        );
        let bmc = segment.inside(beside, || async { Bmc::start_with(&off, "echo 1 > power") });
        bmc.set_power(false);
        Machine { node, space, bmc, beside, home, group, daemon: None, boots: 0 }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The power comes, and with it the daemon, in a new boot.
    pub fn switch_on(&mut self, segment: &Segment) {
        self.end_daemon();
        self.boots += 1;
        // A kernel that has just begun knows no addresses but its own.
        let number = if self.space == "a" { 1 } else { 2 };
        segment.ip(self.space, "addr flush dev reef0");
        segment.ip(self.space, &format!("addr add 192.0.2.1{number}/24 dev reef0"));
        ["reef0", "hb0"].iter().for_each(|name| drop(segment.ip(self.space, &format!("link set {name} up"))));
        segment.settle(self.space);
        let boot = format!("{:08x}-0000-4000-8000-000000000000", number << 16 | self.boots);
        let log = fs::File::options().create(true).append(true).open(self.file("log")).unwrap();
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.group.display());
        let mut command = Command::new("sh");
        command.args(["-c", &enter, "sh", "ip", "netns", "exec", &segment.namespace(self.space)]);
        command.args([env!("CARGO_BIN_EXE_leasehold"), "daemon", "--node", self.node, "--boot-id", &boot, "--config"]);
        command.arg(self.file("leasehold.toml")).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.bmc.set_power(true);
        self.daemon = Some(command.spawn().unwrap());
    }

    /// Of everything that runs on it.
    pub fn signal(&self, signal: Signal) {
        if signal == Signal::KILL {
            return fs::write(self.group.join("cgroup.kill"), "1").unwrap();
        }
        // What is forked meanwhile is there at the next look.
        let mut before = Vec::new();
        eventually("all of it has the signal", || {
            let now = self.processes();
            now.iter().for_each(|pid| pg::signal(*pid, signal));
            let settled = now == before;
            before = now;
            settled
        });
    }

    pub fn unplug_bmc(&mut self) {
        self.bmc.unplug();
    }

    pub fn plug_bmc(&mut self, segment: &Segment) {
        let bmc = &mut self.bmc;
        segment.inside(self.beside, || async { bmc.plug() });
    }

    /// Whether its BMC has taken the power since it was switched on.
    pub fn is_off(&self) -> bool {
        !self.bmc.is_on()
    }

    pub fn status(&self) -> Option<Status> {
        match self.ask(Op::Status)? {
            Answer::Status(status) => Some(*status),
            _ => None,
        }
    }

    /// What a person sees first that is wrong.
    pub fn first_finding(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["status", "--socket"]).arg(self.file("control.sock")).env("COLUMNS", "800");
        let text = String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
        text.lines().find(|line| line.starts_with("X ")).unwrap_or(&text).to_owned()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// All that it has decided in this life of its daemon.
    pub fn decisions(&self) -> Vec<Decision> {
        match self.ask(Op::Why { last: None }) {
            Some(Answer::Decisions(decisions)) => decisions,
            _ => Vec::new(),
        }
    }

    /// `None`: there is no daemon that answers, or it refuses.
    pub fn ask(&self, op: Op) -> Option<Answer> {
        Client::connect(&self.file("control.sock"), LIMIT).ok()?.ask(op).ok()
    }

    pub fn last_lines(&self) -> String {
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    fn processes(&self) -> Vec<i32> {
        let listed = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        listed.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn end_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::write(self.group.join("cgroup.kill"), "1");
        self.end_daemon();
        eventually("nothing of the machine is left", || fs::remove_dir(&self.group).is_ok());
    }
}

/// Where control groups of version 2 are.
fn tree() -> PathBuf {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(" - cgroup2 ")).expect("control groups of version 2");
    Path::new(line.split(' ').nth(4).expect("a mount point")).to_owned()
}
