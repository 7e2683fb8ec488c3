//! One laboratory, as its scenarios turn it: power, cables, commands on the hosts, and what their daemons say.
//!
//! The scripts beside this file make it; here is what needs to wait. Everything is done from outside, by the names of
//! its namespaces and through its BMCs, and by commands that an operator would type.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold::cli::demo::history::Line;
use leasehold::control::{Answer, Client, Decision, Op, ResourceState, Role, Status, Verdict};
use leasehold::core::Span;
use leasehold::os::clock;

use super::clients::Clients;
use super::ledger::Ledger;

pub const HOSTS: [&str; 2] = ["heron", "plover"];
/// Far beyond what any step takes, also on a machine that does much else.
pub const PATIENCE: Span = Span::from_secs(90);
/// How often a condition is looked at while nothing is written.
const LOOK: Duration = Duration::from_millis(100);
/// A daemon that does not answer within this is stopped, or as good as.
const STATUS_LIMIT: Duration = Duration::from_secs(1);

/// Where the service answers: of config/leasehold.toml.
const PORT: u16 = 8080;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// It is taken down when dropped; what a killed test leaves, the next one takes down.
pub struct Lab {
    name: String,
    state: PathBuf,
    pub ledger: Ledger,
}

pub fn peer_of(host: &str) -> &'static str {
    if host == HOSTS[0] { HOSTS[1] } else { HOSTS[0] }
}

impl Lab {
    /// Two hosts that have booted and know nothing of leasehold yet.
    pub fn up() -> anyhow::Result<Lab> {
        let name = format!("t{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let owner = std::process::id().to_string();
        script("up", &["--lab", &name, "--owner", &owner, "--bare"])?;
        let state = project().join("target/lab/run").join(&name);
        let ledger = Ledger::follow(&state.join("shared/history"));
        Ok(Lab { name, state, ledger })
    }

    /// From the package to a pair that was told to start.
    pub fn install(&self, package: &Path) -> anyhow::Result<()> {
        script("install", &[&self.name, &package.to_string_lossy()]).map(drop)
    }

    /// Copies a file to a host.
    pub fn put(&self, file: &Path, host: &str, to: &str) -> anyhow::Result<()> {
        let target = format!("{}{to}", self.state.join(host).join("root").display());
        std::fs::copy(file, &target).with_context(|| target).map(drop)
    }

    /// Runs a command on a host, as its operator; gives what it prints.
    pub fn on(&self, host: &str, command: &[&str]) -> anyhow::Result<String> {
        script("shell", &[&["--lab", &self.name, host], command].concat())
    }

    /// The plug of a host: "off" ends all of it at once.
    pub fn power(&self, host: &str, what: &str) -> anyhow::Result<String> {
        script("power", &[&self.name, host, what])
    }

    pub fn is_on(&self, host: &str) -> anyhow::Result<bool> {
        Ok(self.power(host, "get")?.trim() == "power:1")
    }

    /// As an operator does who switches a host on from afar: through its BMC.
    pub fn power_on(&self, host: &str) -> anyhow::Result<()> {
        let number = if host == HOSTS[0] { 1 } else { 2 };
        let password = self.state.join(format!("bmc-{host}/password"));
        let address = format!("203.0.113.1{number}");
        let client = ["ipmitool", "-I", "lanplus", "-C", "3", "-H", &address, "-U", "fence", "-f"];
        self.on("net", &[&client[..], &[&password.to_string_lossy(), "chassis", "power", "on"]].concat()).map(drop)
    }

    /// All processes of a host stand still, the kernel's own way; nothing of them sees it.
    pub fn freeze(&self, host: &str) -> anyhow::Result<()> {
        let tree = if Path::new("/sys/fs/cgroup/unified").exists() { "unified/" } else { "" };
        let file = format!("/sys/fs/cgroup/{tree}leasehold-{}-{host}/cgroup.freeze", self.name);
        std::fs::write(&file, "1").context(file)
    }

    /// Clients of the service on this host, at its network.
    pub fn clients(&self, host: &str) -> Clients {
        let number = if host == HOSTS[0] { 1 } else { 2 };
        let namespace = format!("/run/netns/leasehold-{}-client", self.name);
        Clients::start(([192, 0, 2, number], PORT).into(), Some(Path::new(&namespace)))
    }

    /// Pulls or plugs the cable of an interface.
    pub fn cable(&self, host: &str, interface: &str, state: &str) -> anyhow::Result<()> {
        self.on("net", &["ip", "link", "set", &format!("{host}-{interface}"), state]).map(drop)
    }

    /// The host hears nothing on its links any more, and is heard all the same.
    pub fn deafen(&self, host: &str) -> anyhow::Result<()> {
        let rules = "add table netdev deaf
            add chain netdev deaf eth0 { type filter hook ingress device eth0 priority 0; policy drop; }
            add chain netdev deaf eth1 { type filter hook ingress device eth1 priority 0; policy drop; }";
        self.in_network_of(host, &["nft", rules]).map(drop)
    }

    fn in_network_of(&self, host: &str, command: &[&str]) -> anyhow::Result<String> {
        let space = format!("--net=/run/netns/leasehold-{}-{host}", self.name);
        output(Command::new("nsenter").arg(space).arg("--").args(command))
    }

    /// All cables are in, all hosts are on, and the pair is whole: gives the primary.
    pub fn mend(&mut self) -> anyhow::Result<&'static str> {
        for host in HOSTS {
            ["eth0", "eth1", "eth2"].into_iter().try_for_each(|interface| self.cable(host, interface, "up"))?;
            // Where there is no such table, there is nothing to take away.
            let _ = self.in_network_of(host, &["nft", "delete table netdev deaf"]);
        }
        self.until("the pair is whole again", |lab| {
            // An attempt that was under way when its BMC came back may have switched off what had just been switched on.
            let off = HOSTS.into_iter().filter(|host| matches!(lab.is_on(host), Ok(false)));
            off.for_each(|host| drop(lab.power_on(host)));
            lab.whole()
        })
    }

    /// What the daemon of a host says of itself; `None` where none answers.
    pub fn status(&self, host: &str) -> Option<Status> {
        match self.ask(host, Op::Status)? {
            Answer::Status(status) => Some(*status),
            _ => None,
        }
    }

    /// Its decisions since it started.
    pub fn decisions(&self, host: &str) -> Vec<Decision> {
        match self.ask(host, Op::Why { last: None }) {
            Some(Answer::Decisions(decisions)) => decisions,
            _ => Vec::new(),
        }
    }

    fn ask(&self, host: &str, op: Op) -> Option<Answer> {
        let socket = format!("/proc/{}/root/run/leasehold/control.sock", self.leader(host)?);
        Client::connect(Path::new(&socket), STATUS_LIMIT).ok()?.ask(op).ok()
    }

    /// The first process of a host that runs, by its number here.
    pub fn leader(&self, host: &str) -> Option<u32> {
        let supervisor: u32 = self.read(host, "supervisor")?.trim().parse().ok()?;
        let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    fn read(&self, host: &str, file: &str) -> Option<String> {
        std::fs::read_to_string(self.state.join(host).join(file)).ok()
    }

    /// The running daemon of a host, as its service manager knows it.
    pub fn daemon(&self, host: &str) -> anyhow::Result<String> {
        self.on(host, &["systemctl", "show", "--property=MainPID", "--value", "leasehold"])
    }

    /// A primary that serves and could hand over, and its admitted standby: gives the primary.
    pub fn whole(&self) -> Option<&'static str> {
        HOSTS.into_iter().find(|host| {
            let serves = |s: Status| {
                let up = s.resources.iter().all(|r| r.state == ResourceState::Up);
                s.me.role == Role::Primary && s.can_fail_over.answer == Verdict::Yes && up
            };
            let stands_by = |s: Status| s.me.role == Role::Standby && s.me.admitted;
            self.status(host).is_some_and(serves) && self.status(peer_of(host)).is_some_and(stands_by)
        })
    }

    pub fn until_whole(&mut self) -> anyhow::Result<&'static str> {
        self.until("the pair is whole", |lab| lab.whole())
    }

    /// Until the service writes on this host under a token above `token`: the first line of it.
    pub fn until_serves(&mut self, host: &str, token: u64) -> anyhow::Result<Line> {
        let what = format!("{host} serves above token {token}");
        self.until(&what, |lab| lab.ledger.first_above(host, token).cloned())
    }

    /// Looks again with everything that is written.
    pub fn until<T>(&mut self, what: &str, mut end: impl FnMut(&mut Lab) -> Option<T>) -> anyhow::Result<T> {
        let begun = clock::now();
        loop {
            if let Some(found) = end(self) {
                return Ok(found);
            }
            if clock::now().since(begun) > PATIENCE {
                bail!("not within {PATIENCE}: {what}\n{}", self.described());
            }
            self.ledger.take(LOOK);
        }
    }

    /// For whoever has to find out what went wrong.
    pub fn described(&self) -> String {
        let one = |host: &str| {
            let status = self.on(host, &["leasehold", "status"]).unwrap_or_else(|error| format!("{error:#}"));
            let log = self.on(host, &["journalctl", "-u", "leasehold", "--no-pager", "-n", "30", "-o", "cat"]);
            format!("--- {host} ---\n{status}\n{}", log.unwrap_or_default())
        };
        HOSTS.map(one).concat()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = script("down", &[&self.name]) {
            eprintln!("the laboratory {} is left over: {error:#}", self.name);
        }
    }
}

/// The package made of the binary that was built for this test; `--next` as well: under a higher version.
pub fn package(options: &[&str]) -> anyhow::Result<PathBuf> {
    let binary = ["--binary", env!("CARGO_BIN_EXE_leasehold")];
    let told = script("package.sh", &[&binary[..], options].concat())?;
    Ok(told.trim().into())
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn script(name: &str, args: &[&str]) -> anyhow::Result<String> {
    output(Command::new(project().join("tests/lab").join(name)).args(args))
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?}: {}: {}{said}", done.status, String::from_utf8_lossy(&done.stdout));
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
