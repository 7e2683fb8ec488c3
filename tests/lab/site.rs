//! One laboratory, as its scenarios turn it: power, cables, commands on the hosts, and what their daemons say.
//!
//! The scripts beside this file make it; here is what needs to wait. Everything is done from outside, by the names of
//! its namespaces and through its BMCs, and by commands that an operator would type.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold::cli::demo::history::Line;
use leasehold::control::{Answer, Client, Decision, LeaseKind, Op, ResourceState, Role, Status, Verdict};
use leasehold::core::Span;
use leasehold::os::clock;

use super::clients::{self, Clients};
use super::ledger::{Clocks, Ledger};
use super::promise::Promise;
use super::witness::Witness;

/// Where the clients find the service.
pub const SERVICE_ADDRESS: &str = "192.0.2.50";
pub const HOSTS: [&str; 2] = ["heron", "plover"];
/// Far beyond what any step takes, also on a machine that does much else.
const PATIENCE: Span = Span::from_secs(90);
/// The same where a kernel boots, and may be emulated.
const PATIENCE_WITH_MACHINES: Span = Span::from_secs(300);
/// How often a condition is looked at while nothing is written.
const LOOK: Duration = Duration::from_millis(100);
/// A daemon that does not answer within this is stopped, or as good as.
const STATUS_LIMIT: Duration = Duration::from_secs(1);

/// How often each client asks an emulated machine, which a thousand requests a second would occupy.
const EVERY_OF_MACHINES: Duration = Duration::from_millis(250);

/// Where the service answers.
const PORT: u16 = 8080;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// It is taken down when dropped; what a killed test leaves, the next one takes down.
pub struct Lab {
    name: String,
    state: PathBuf,
    pub site: &'static str,
    hosts: Hosts,
    pub ledger: Ledger,
    pub witness: Witness,
    /// By the configuration's own arithmetic; zero before it is installed.
    pub promise: Promise,
}

/// What the hosts of a laboratory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// On this machine's kernel, by its clock.
    Containers,
    /// Each with a kernel and a clock of its own.
    Machines,
}

impl Hosts {
    /// Containers, unless the environment asks for machines.
    pub fn wanted() -> Hosts {
        if std::env::var_os("LEASEHOLD_LAB_MACHINES").is_some() { Hosts::Machines } else { Hosts::Containers }
    }
}

pub fn peer_of(host: &str) -> &'static str {
    if host == HOSTS[0] { HOSTS[1] } else { HOSTS[0] }
}

impl Lab {
    /// Two hosts that have booted and know nothing of leasehold yet.
    pub fn up(site: &'static str) -> anyhow::Result<Lab> {
        let name = format!("t{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let owner = std::process::id().to_string();
        let hosts = Hosts::wanted();
        let mut options = vec!["--lab", &name, "--site", site, "--owner", &owner, "--bare"];
        options.extend((hosts == Hosts::Machines).then_some("--machines"));
        script("up", &options)?;
        let state = project().join("target/lab/run").join(&name);
        let history = state.join("shared/history");
        let clocks = if hosts == Hosts::Machines { Clocks::OfEachWriter } else { Clocks::Ours };
        let ledger =
            if site == "iscsi" { Ledger::follow_disk(&history, clocks) } else { Ledger::follow(&history, clocks) };
        let witness = Witness::start(&format!("leasehold-{name}-client"), state.join("witness"))?;
        Ok(Lab { name, state, site, hosts, ledger, witness, promise: Promise::default() })
    }

    /// From the package to a pair that was told to start.
    pub fn install(&mut self, package: &Path) -> anyhow::Result<()> {
        script("install", &[&self.name, &package.to_string_lossy()])?;
        let explained = self.on(HOSTS[0], &["leasehold", "explain", "--json", "/etc/leasehold/leasehold.toml"])?;
        self.promise = Promise::read(&explained)?;
        Ok(())
    }

    /// Copies a file to a host, with the folder that it lies in.
    pub fn put(&self, file: &Path, host: &str, to: &str) -> anyhow::Result<()> {
        script("put", &[&self.name, host, &file.to_string_lossy(), to]).map(drop)
    }

    /// Writes a file on a host, with the folder that it lies in.
    pub fn write(&self, host: &str, file: &str, text: &str) -> anyhow::Result<()> {
        let ours = self.state.join("written");
        std::fs::write(&ours, text)?;
        self.put(&ours, host, file)
    }

    /// What becomes of the disk under a host's state directory.
    pub fn disk(&self, host: &str, what: &str) -> anyhow::Result<()> {
        script("disk", &[&self.name, host, what]).map(drop)
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

    /// All of a host stands still, and nothing of it sees that.
    pub fn freeze(&self, host: &str, frozen: bool) -> anyhow::Result<()> {
        self.power(host, if frozen { "freeze" } else { "thaw" }).map(drop)
    }

    /// Both hosts reach the clients and the fence network, and neither reaches the other.
    pub fn part(&self, parted: bool) -> anyhow::Result<()> {
        let state = if parted { "on" } else { "off" };
        let ports = HOSTS.into_iter().flat_map(|host| [format!("{host}-eth0"), format!("{host}-eth1")]);
        let mut commands = ports.map(|port| format!("link set {port} type bridge_slave isolated {state}"));
        commands.try_for_each(|command| {
            let words: Vec<&str> = ["ip"].into_iter().chain(command.split(' ')).collect();
            self.on("net", &words).map(drop)
        })
    }

    /// Lets time pass while it takes what is written.
    pub fn pause(&mut self, time: Duration) {
        let (begun, time) = (clock::now(), Span(time.as_nanos() as u64));
        while clock::now().since(begun) < time {
            let left = time.minus(clock::now().since(begun));
            self.ledger.take(Duration::from_nanos(left.0).min(LOOK));
        }
    }

    /// Clients of the service, at its address.
    pub fn clients(&self) -> Clients {
        let address = SERVICE_ADDRESS.parse().expect("an address");
        let namespace = PathBuf::from("/run/netns").join(self.client());
        let every = if self.hosts == Hosts::Machines { EVERY_OF_MACHINES } else { clients::EVERY };
        Clients::start(SocketAddr::new(address, PORT), Some(&namespace), every)
    }

    /// Pulls or plugs the cable of an interface.
    pub fn cable(&self, host: &str, interface: &str, state: &str) -> anyhow::Result<()> {
        script("cable", &[&self.name, host, interface, state]).map(drop)
    }

    /// The host hears nothing on its links any more, and is heard all the same.
    pub fn deafen(&self, host: &str) -> anyhow::Result<()> {
        let rules = "add table netdev deaf
            add chain netdev deaf eth0 { type filter hook ingress device eth0 priority 0; policy drop; }
            add chain netdev deaf eth1 { type filter hook ingress device eth1 priority 0; policy drop; }";
        self.on(host, &["nft", rules]).map(drop)
    }

    /// The network namespace of the client.
    pub fn client(&self) -> String {
        format!("leasehold-{}-client", self.name)
    }

    /// All cables are in, all hosts are on, and the pair is whole: gives the primary.
    pub fn mend(&mut self) -> anyhow::Result<&'static str> {
        self.part(false)?;
        for host in HOSTS {
            if self.is_on(host)? {
                self.plug_in(host)?;
                // Where there is no such table, there is nothing to take away.
                let _ = self.on(host, &["nft", "delete table netdev deaf"]);
            }
        }
        self.until("the pair is whole again", |lab| {
            // An attempt that was under way when its BMC came back may have switched off what had just been switched on.
            let off = HOSTS.into_iter().filter(|host| matches!(lab.is_on(host), Ok(false)));
            off.for_each(|host| drop(lab.power_on(host).and_then(|()| lab.plug_in(host))));
            lab.whole()
        })
    }

    fn plug_in(&self, host: &str) -> anyhow::Result<()> {
        ["eth0", "eth1", "eth2"].into_iter().try_for_each(|interface| self.cable(host, interface, "up"))
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
        Client::connect(&self.control(host)?, STATUS_LIMIT).ok()?.ask(op).ok()
    }

    /// Where the control socket of a host's daemon is found here.
    fn control(&self, host: &str) -> Option<PathBuf> {
        match self.hosts {
            Hosts::Containers => Some(format!("/proc/{}/root/run/leasehold/control.sock", self.leader(host)?).into()),
            Hosts::Machines => {
                let socket = self.state.join(host).join("control.sock");
                // The way in carries it; after another boot that has to be made anew.
                if UnixStream::connect(&socket).is_err() {
                    self.on(host, &["true"]).ok()?;
                }
                Some(socket)
            }
        }
    }

    /// Another one with each boot; `None` while there is none to be asked.
    pub fn boot(&self, host: &str) -> Option<String> {
        match self.hosts {
            Hosts::Containers => self.leader(host).map(|leader| leader.to_string()),
            Hosts::Machines => self.on(host, &["cat", "/proc/sys/kernel/random/boot_id"]).ok(),
        }
    }

    /// The clocks of both hosts show what ours does. An emulated machine starts by one of whole seconds.
    pub fn set_clocks(&self) -> anyhow::Result<()> {
        if self.hosts == Hosts::Machines {
            for host in HOSTS {
                let now = format!("@{}", clock::wall().as_nanosecond() as f64 / 1e9);
                self.on(host, &["date", "--set", &now])?;
            }
        }
        Ok(())
    }

    fn patience(&self) -> Span {
        match self.hosts {
            Hosts::Containers => PATIENCE,
            Hosts::Machines => PATIENCE_WITH_MACHINES,
        }
    }

    /// The first process of a container that runs, by its number here.
    fn leader(&self, host: &str) -> Option<u32> {
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

    /// Until the service writes on.
    pub fn until_written(&mut self) -> anyhow::Result<()> {
        let written = self.ledger.lines.len();
        self.until("the service writes", |lab| (lab.ledger.lines.len() > written + 10).then_some(()))
    }

    /// Until this node is a primary that acts without a lease.
    pub fn until_sole(&mut self, host: &str) -> anyhow::Result<()> {
        self.until(&format!("{host} acts alone"), |lab| {
            lab.status(host).filter(|status| status.lease.kind == LeaseKind::Sole).map(drop)
        })
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
            if clock::now().since(begun) > self.patience() {
                bail!("not within {}: {what}\n{}", self.patience(), self.described());
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
        self.witness.end();
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

/// Runs a program of this machine in a network namespace.
pub fn in_network(namespace: &str, command: &[&str]) -> anyhow::Result<String> {
    output(Command::new("nsenter").arg(format!("--net=/run/netns/{namespace}")).arg("--").args(command))
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
