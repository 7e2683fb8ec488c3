//! Two real daemons, each in a namespace of its own, with a service that hangs in its stop.

use std::fs::{self, File};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use leasehold::control::{Answer, Client, Decision, Op, Role, Status, Verdict};
use leasehold::core::NodeId;

use crate::net::{HERON, Net, PATIENCE, PLOVER, answers};
use crate::{OTHER, PORT};

/// Between two looks at something that tells nothing by itself.
const PACE: Duration = Duration::from_millis(20);
const ADDRESSES: [(&str, &str); 2] = [(HERON, "10.77.0.1"), (PLOVER, "10.77.0.2")];

/// How a daemon is started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    All,
    NoNetAdmin,
}

/// The pair; its end ends all that it started.
pub struct Daemons {
    pub net: Net,
    dir: tempfile::TempDir,
    running: [Option<Child>; 2],
}

#[allow(dead_code)] // guard_net.rs uses what cut.rs does not
impl Daemons {
    /// Nothing runs yet. The service takes the whole of `stop` to be stopped, or nearly.
    pub fn new(stop: Duration) -> Daemons {
        Daemons::edited(stop, |text| text)
    }

    /// As [`Daemons::new`], with another configuration.
    pub fn edited(stop: Duration, edit: impl Fn(String) -> String) -> Daemons {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let daemons = Daemons { net: Net::new(), dir, running: [None, None] };
        let key = leasehold::wire::Keyring::generate().expect("randomness");
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(daemons.path("key"));
        std::io::Write::write_all(&mut file.expect("a new file"), key.as_bytes()).expect("written");
        fs::write(daemons.path("service.py"), include_str!("service.py")).expect("written");
        // The machines read on, and nothing switches them off: what happens here, happens by the lease.
        fs::write(daemons.path("bmc"), "#!/bin/sh\n[ \"$1\" = status ]\n").expect("written");
        fs::set_permissions(daemons.path("bmc"), fs::Permissions::from_mode(0o700)).expect("its mode");
        for (node, _) in ADDRESSES {
            let home = daemons.path(node);
            [home.clone(), home.join("state"), home.join("run")]
                .iter()
                .for_each(|d| fs::create_dir(d).expect("a folder"));
            fs::write(home.join("leasehold.toml"), edit(daemons.configuration(node, stop))).expect("written");
        }
        daemons
    }

    /// Both run, and one of them serves: that one.
    pub fn started(stop: Duration) -> (Daemons, NodeId) {
        let mut daemons = Daemons::new(stop);
        [NodeId::First, NodeId::Second].into_iter().for_each(|node| daemons.start(node, Rights::All));
        let primary = daemons.until_whole();
        (daemons, primary)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn configuration(&self, node: &str, stop: Duration) -> String {
        let dir = self.dir.path().display();
        let nodes: String = ADDRESSES.map(|(name, _)| format!("[[node]]\nname = \"{name}\"\n\n")).concat();
        let agent = |target| {
            format!(
                "[[fence.agent]]\nname = \"bmc-{target}\"\ntarget = \"{target}\"\nkind = \"exec\"\nscope = \"node\"\n\
                 program = \"{dir}/bmc\"\ntimeout = \"1s\"\ntypical = \"200ms\"\nsettle = \"0s\"\n\n"
            )
        };
        let [(first, first_at), (second, second_at)] = ADDRESSES;
        format!(
            "[cluster]\nname = \"cut\"\nkey = \"{dir}/key\"\ndata = \"shared\"\n\n{nodes}\
             [[link]]\nname = \"lan\"\naddresses = {{ {first} = \"{first_at}\", {second} = \"{second_at}\" }}\n\n\
             [heartbeat]\ninterval = \"100ms\"\ndead_after = \"1s\"\n\n[lease]\npause = \"500ms\"\n\n\
             [guard]\nprocess = \"none\"\nwatchdog = \"none\"\nreset = \"200ms\"\n\n{}{}\
             [promote]\nstart_backoff = \"1s\"\n\n[join]\nwait = \"2s\"\n\n[leave]\ntimeout = \"2s\"\n\n\
             [[resource]]\nname = \"server\"\nkind = \"exec\"\nstop_timeout = \"{}ms\"\n\
             start = [\"/usr/bin/python3\", \"{dir}/service.py\", \"{PORT}\", \"{OTHER}\"]\n\n\
             [service]\ncut_ports = [{PORT}]\n\n[control]\nsocket = \"{dir}/{node}/control.sock\"\n\n\
             [paths]\nstate = \"{dir}/{node}/state\"\nruntime = \"{dir}/{node}/run\"\n",
            agent(first),
            agent(second),
            stop.as_millis(),
        )
    }

    /// Starts a daemon, of the same boot each time.
    pub fn start(&mut self, node: NodeId, rights: Rights) {
        let (name, home) = (name(node), self.path(name(node)));
        let log = File::options().create(true).append(true).open(home.join("daemon.log")).expect("a log");
        let program = env!("CARGO_BIN_EXE_leasehold");
        let mut command = match rights {
            Rights::All => Command::new(program),
            Rights::NoNetAdmin => {
                let mut command = Command::new("setpriv");
                command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", program]);
                command
            }
        };
        let boot = format!("{:08x}-0000-4000-8000-000000000001", node.index() + 1);
        command.args(["daemon", "--node", name, "--boot-id", &boot, "--log", "info", "--config"]);
        command.arg(home.join("leasehold.toml")).env_remove("LEASEHOLD_SOCKET").env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let child = self.net.within(name, move || command.spawn().expect("a daemon"));
        self.running[node.index()] = Some(child);
    }

    /// The process of a running daemon.
    pub fn pid(&self, node: NodeId) -> rustix::process::Pid {
        rustix::process::Pid::from_child(self.running[node.index()].as_ref().expect("it runs"))
    }

    /// SIGKILL to the daemon alone: the service does not notice.
    pub fn kill(&mut self, node: NodeId) {
        let mut child = self.running[node.index()].take().expect("it runs");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }

    /// The clean stop, to its end.
    pub fn stop(&mut self, node: NodeId) {
        self.command(node, Op::Stop { keep_resources: false });
        let mut child = self.running[node.index()].take().expect("it runs");
        until("the daemon has ended", || child.try_wait().expect("a child"));
    }

    /// How the daemon ended, once it has.
    pub fn ended(&mut self, node: NodeId) -> std::process::ExitStatus {
        let mut child = self.running[node.index()].take().expect("it runs");
        until("the daemon has ended", || child.try_wait().expect("a child"))
    }

    pub fn status(&self, node: NodeId) -> Option<Status> {
        match self.client(node)?.ask(Op::Status) {
            Ok(Answer::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// The newest decision of this kind.
    pub fn decided(&self, node: NodeId, kind: &str) -> Option<Decision> {
        match self.client(node)?.ask(Op::Why { last: None }) {
            Ok(Answer::Decisions(all)) => all.into_iter().rev().find(|decision| decision.kind == kind),
            _ => None,
        }
    }

    pub fn command(&self, node: NodeId, op: Op) {
        let answer = self.client(node).expect("the daemon runs").ask(op);
        assert!(matches!(answer, Ok(Answer::Accepted)), "{answer:?}");
    }

    fn client(&self, node: NodeId) -> Option<Client> {
        Client::connect(&self.path(name(node)).join("control.sock"), PATIENCE).ok()
    }

    /// Waits for a primary that could hand over, and whose service answers.
    pub fn until_whole(&self) -> NodeId {
        let serves = |node: &NodeId| {
            let status = self.status(*node)?;
            let can = status.me.role == Role::Primary && status.can_fail_over.answer == Verdict::Yes;
            let mut stream = self.net.try_connect(crate::CLIENT, &at(*node, PORT)).ok().filter(|_| can)?;
            answers(&mut stream).then_some(())
        };
        let found = || [NodeId::First, NodeId::Second].into_iter().find(|node| serves(node).is_some());
        let begun = Instant::now();
        loop {
            if let Some(node) = found() {
                return node;
            }
            assert!(begun.elapsed() < PATIENCE, "the pair does not become whole:\n{}", self.logs());
            std::thread::sleep(PACE);
        }
    }

    pub fn logs(&self) -> String {
        let log = |node| fs::read_to_string(self.path(node).join("daemon.log")).unwrap_or_default();
        ADDRESSES.map(|(node, _)| format!("--- {node}\n{}", log(node))).concat()
    }

    /// Nothing passes between the nodes; each is still there for clients.
    pub fn isolate(&self, node: NodeId) {
        let peer = ADDRESSES[node.peer().index()].1;
        let rules = format!(
            "table ip island {{ chain in {{ type filter hook input priority 0; ip saddr {peer} drop; }}; \
             chain out {{ type filter hook output priority 0; ip daddr {peer} drop; }}; }}"
        );
        self.net.run(name(node), &["nft", &rules]);
    }

    pub fn heal(&self, node: NodeId) {
        self.net.run(name(node), &["nft", "delete table ip island"]);
    }

    /// The tables of this program that a person sees on a node.
    pub fn tables(&self, node: NodeId) -> String {
        let all = self.net.run(name(node), &["nft", "list", "ruleset"]);
        all.split_inclusive("\n}\n").filter(|table| table.contains(" leasehold-")).collect()
    }

    /// How many processes of the service, or of whatever else was started from the directory, run.
    fn kill_all(&self) {
        let dir = self.dir.path().display().to_string();
        for entry in fs::read_dir("/proc").expect("it is mounted").flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let ours = String::from_utf8_lossy(&line).contains(&dir);
            let pid =
                entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(rustix::process::Pid::from_raw);
            if let (true, Some(pid)) = (ours, pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill().and_then(|()| child.wait());
        }
        self.kill_all();
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

pub fn name(node: NodeId) -> &'static str {
    ADDRESSES[node.index()].0
}

/// Where clients reach the service on a node.
pub fn at(node: NodeId, port: u16) -> String {
    format!("{}:{port}", ADDRESSES[node.index()].1)
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(PACE);
    }
}

/// From a decision to now, by the clock that both are told in.
pub fn since(decision: &Decision, now: SystemTime) -> Duration {
    let now = Timestamp::try_from(now).expect("a time of this age");
    now.duration_since(decision.at).try_into().expect("the decision came first")
}
