//! A real NFS-Ganesha with a bus of its own, a real sshd with a restricted key, and two clients in namespaces.
//!
//! ```text
//!   test ── ssh on loopback ──▶ sshd ── forced command ──▶ leasehold gate serve ── private D-Bus ──▶ ganesha.nfsd
//!   namespace a (heron)  ──┐                                                                        in a namespace
//!   namespace b (plover) ──┴── veth, one for each ── TCP 2049 ────────────────────────────────────────▶
//! ```
//!
//! Everything is this test's own and ends with it: processes by their handles, namespaces by their names.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const GATE: &str = "estuary";
/// Of heron and of plover, and the server's end of each way.
const WAYS: [(&str, &str); 2] = [("10.98.1.2", "10.98.1.1"), ("10.98.2.2", "10.98.2.1")];
/// How long a server may take to start on a machine that does much else.
const START: Duration = Duration::from_secs(60);

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=@DIR@/bus</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
<allow send_requested_reply="true" send_type="method_return"/><allow send_requested_reply="true" send_type="error"/>
<allow receive_type="method_call"/><allow receive_type="method_return"/><allow receive_type="error"/>
<allow receive_type="signal"/></policy></busconfig>
"#;

const GANESHA: &str = r#"NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }
NFSV4 { Graceless = true; Lease_Lifetime = 10; RecoveryRoot = @DIR@/recovery; }
EXPORT_DEFAULTS { Access_Type = None; }
%include "@DIR@/export.conf"
"#;

const SSHD: &str = "ListenAddress 127.0.0.1\nPort @PORT@\nHostKey @DIR@/host-key\nAuthorizedKeysFile @DIR@/authorized\n\
PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
PermitRootLogin forced-commands-only\nAllowUsers root\nLogLevel ERROR\n";

/// Ended when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace of this process, by its number.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

pub struct Lab {
    // In the order of their end.
    _processes: Vec<Process>,
    namespaces: [Namespace; 3],
    pub port: u16,
    dir: tempfile::TempDir,
}

impl Lab {
    pub fn start() -> Lab {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let prefix = format!("lhn{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let namespaces = ["s", "a", "b"].map(|end| Namespace(format!("{prefix}{end}")));
        let mut lab = Lab { _processes: Vec::new(), namespaces, port: free_port(), dir };
        lab.wire();
        lab.write_files();
        let bus =
            lab.spawn(Command::new("dbus-daemon").arg(format!("--config-file={}", lab.at("bus.conf"))).arg("--nofork"));
        until("the bus", || lab.path("bus").exists());
        let ganesha = lab.spawn(
            Command::new("ip")
                .args(["netns", "exec", &lab.namespaces[0].0, "ganesha.nfsd", "-F"])
                .args([
                    "-f",
                    &lab.at("ganesha.conf"),
                    "-L",
                    &lab.at("ganesha.log"),
                    "-N",
                    "NIV_EVENT",
                    "-p",
                    &lab.at("pid"),
                ])
                .env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", lab.at("bus"))),
        );
        let sshd = lab.spawn(Command::new("/usr/sbin/sshd").args(["-D", "-e", "-f", &lab.at("sshd.conf")]));
        lab._processes = vec![sshd, ganesha, bus];
        until("sshd", || TcpStream::connect(("127.0.0.1", lab.port)).is_ok());
        until("ganesha", || lab.read("ganesha.log").contains("NFS SERVER INITIALIZED"));
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a written file");
    }

    /// The keys of an agent that asks this gate over ssh.
    pub fn agent(&self) -> String {
        format!(
            "server = \"127.0.0.1\"\nport = {}\nkey_file = {:?}\nknown_hosts = {:?}\ngate = {GATE:?}\n",
            self.port,
            self.at("key"),
            self.at("known-hosts")
        )
    }

    /// The bytes of an exported file, as the server's disk has them.
    pub fn size(&self, file: &str) -> u64 {
        fs::metadata(self.path("data").join(file)).map_or(0, |meta| meta.len())
    }

    /// A client on the machine of this node (0: heron) that writes without a pause.
    pub fn writer(&self, node: usize, file: &str, blocks: u64) -> Writer {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces[node + 1].0]).arg(self.path("writer"));
        command.args([WAYS[node].1, "/data", &format!("/{file}"), &blocks.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the writer starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Writer { _process: Process(child), lines }
    }

    fn wire(&self) {
        let [server, a, b] = self.namespaces.each_ref().map(|n| n.0.as_str());
        for namespace in [server, a, b] {
            ip(&["netns", "add", namespace]);
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
        }
        for ((client, (theirs, ours)), name) in [a, b].into_iter().zip(WAYS).zip(["wa", "wb"]) {
            ip(&["-n", server, "link", "add", name, "type", "veth", "peer", "name", "up0", "netns", client]);
            ip(&["-n", server, "addr", "add", &format!("{ours}/30"), "dev", name]);
            ip(&["-n", client, "addr", "add", &format!("{theirs}/30"), "dev", "up0"]);
            ip(&["-n", server, "link", "set", name, "up"]);
            ip(&["-n", client, "link", "set", "up0", "up"]);
        }
    }

    fn write_files(&self) {
        for folder in ["data", "recovery"] {
            fs::create_dir(self.path(folder)).expect("a folder");
        }
        let filled = |text: &str| {
            text.replace("@DIR@", &self.at("")).replace("//", "/").replace("@PORT@", &self.port.to_string())
        };
        self.write("bus.conf", &BUS.replace("@DIR@", self.dir.path().to_str().expect("a plain path")));
        self.write("ganesha.conf", &filled(GANESHA));
        self.write("export.conf", "");
        self.write("sshd.conf", &filled(SSHD));
        self.write("gate.toml", &self.gate_config());
        for name in ["host-key", "key", "other-key"] {
            run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &self.at(name)]));
        }
        let leasehold = env!("CARGO_BIN_EXE_leasehold");
        let forced = format!("{leasehold} gate serve --gate-config {}", self.at("gate.toml"));
        self.write("authorized", &format!("restrict,command=\"{forced}\" {}", self.read("key.pub")));
        self.write("known-hosts", &format!("[127.0.0.1]:{} {}", self.port, self.read("host-key.pub")));
        self.write("wrong-hosts", &format!("[127.0.0.1]:{} {}", self.port, self.read("other-key.pub")));
        // Where privilege separation wants to live.
        fs::create_dir_all("/run/sshd").expect("a folder for sshd");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents_nfs/writer.c");
        run(Command::new("gcc").args(["-O1", "-Wall", "-Werror", "-o", &self.at("writer"), source, "-lnfs"]));
        run(Command::new(leasehold).args(["gate", "init", "--gate", GATE, "--gate-config", &self.at("gate.toml")]));
    }

    fn gate_config(&self) -> String {
        format!(
            "state = {:?}\n[[gate]]\nname = {GATE:?}\nkind = \"ganesha\"\nexport_id = 1\nexport = '''\n\
             Path = {}; Pseudo = /data; Squash = No_Root_Squash; SecType = sys; Protocols = 4; Transports = TCP;\n\
             FSAL {{ Name = VFS; }}\n'''\nfile = {:?}\nconfig = {:?}\nbus = \"unix:path={}\"\n\
             node = [{{ name = \"heron\", clients = [{:?}] }}, {{ name = \"plover\", clients = [{:?}] }}]\n",
            self.at("state"),
            self.at("data"),
            self.at("export.conf"),
            self.at("ganesha.conf"),
            self.at("bus"),
            WAYS[0].0,
            WAYS[1].0
        )
    }

    fn spawn(&self, command: &mut Command) -> Process {
        let log = fs::File::create(self.path("processes.log")).expect("a log");
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Process(quiet.spawn().expect("the program is installed"))
    }
}

/// A client that tells each step.
pub struct Writer {
    _process: Process,
    lines: BufReader<ChildStdout>,
}

impl Writer {
    /// The next line; `None` at the end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).expect("readable");
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Reads up to this many acknowledged blocks from here.
    pub fn acknowledged(&mut self, blocks: usize) {
        let mut seen = 0;
        while seen < blocks {
            let line = self.line().expect("the writer goes on");
            assert!(line == "ready" || line.starts_with("ok "), "{line}");
            seen += usize::from(line.starts_with("ok "));
        }
    }

    /// Everything that is not an acknowledgement, and the number of those, until the end.
    pub fn rest(&mut self) -> (u64, Vec<String>) {
        let (mut blocks, mut others) = (0, Vec::new());
        while let Some(line) = self.line() {
            match line.strip_prefix("ok ") {
                Some(_) => blocks += 1,
                None => others.push(line),
            }
        }
        (blocks, others)
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

fn ip(args: &[&str]) {
    run(Command::new("ip").args(args));
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < START, "{what} did not come up");
        std::thread::sleep(Duration::from_millis(20));
    }
}
