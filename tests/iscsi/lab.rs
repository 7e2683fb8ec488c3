//! A tgtd of the test's own, set up by the real tgt-admin from files, and initiators that write.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use leasehold::core::Token;
use leasehold::gate::config::Gates;
use leasehold::gate::protocol::Answer;
use leasehold::gate::store;

pub const TARGET: &str = "iqn.2026-01.test:estuary";
/// Each node writes into a part of the disk of its own.
pub const PART: usize = 4096;
const BLOCK: usize = 512;
/// For everything that is awaited: far longer than it takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn writer() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) =
            (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/iscsi/writer.c"), dir.path().join("writer"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).arg("-liscsi");
        assert!(gcc.status().unwrap().success(), "writer.c does not compile");
        (dir, program)
    });
    path
}

/// One storage server.
pub struct Server {
    dir: tempfile::TempDir,
    port: u16,
    tgtd: Tgtd,
}

impl Server {
    pub fn start() -> Server {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("conf.d")).unwrap();
        fs::write(at("targets.conf"), format!("include {}/*.conf\n", at("conf.d").display())).unwrap();
        let disk = format!("<target {TARGET}>\n    backing-store {}\n</target>\n", at("disk").display());
        fs::write(at("conf.d/disk.conf"), disk).unwrap();
        fs::write(at("disk"), vec![0; 4 * PART * BLOCK]).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let tgtd = Tgtd::start(port);
        let server = Server { dir, port, tgtd };
        server.gate("");
        server.create();
        server.load();
        server
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills tgtd and starts it from its files.
    pub fn restart(&mut self) {
        self.tgtd.kill();
        self.tgtd.child = Tgtd::child(self.tgtd.control, self.port);
        self.load();
    }

    /// As the unit of tgt does.
    fn load(&self) {
        // Until the first take there is no file of the gate, and tgt-admin would let in ALL.
        let control = self.tgtd.control.to_string();
        let mut admin = Command::new("tgt-admin");
        admin.args(["-C", &control, "--conf"]).arg(self.at("targets.conf")).arg("-e");
        let done = admin.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    pub fn tgtadm(&self, words: &str) -> String {
        tgtadm(self.tgtd.control, words).unwrap_or_else(|error| panic!("tgtadm {words}: {error}"))
    }

    /// The gate's configuration, with more keys.
    pub fn gate(&self, more: &str) {
        let text = format!(
            "state = \"{dir}/state\"\n[[gate]]\nname = \"estuary\"\nkind = \"tgt\"\ntarget = \"{TARGET}\"\ncontrol_port = {}\n\
             config = \"{dir}/targets.conf\"\nfile = \"{dir}/conf.d/leasehold-estuary.conf\"\n{more}\n\
             node = [{{ name = \"heron\", initiators = [\"iqn.2026-01.test:heron\"] }}, \
             {{ name = \"plover\", initiators = [\"iqn.2026-01.test:plover\"] }}]\n",
            self.tgtd.control,
            dir = self.dir.path().display(),
        );
        fs::write(self.at("gate.toml"), text).unwrap();
        fs::set_permissions(self.at("gate.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    }

    pub fn gates(&self) -> Gates {
        Gates::load(&self.at("gate.toml")).unwrap()
    }

    fn create(&self) {
        let gates = self.gates();
        store::create(&gates.state, gates.gate("estuary").unwrap(), Token::NONE).unwrap();
    }

    pub async fn ask(&self, op: &str, node: &str, token: u64) -> Answer {
        ask(&self.at("gate.toml"), op, node, token).await
    }

    pub fn initiator(&self, node: &str) -> Initiator {
        let (name, first) = (format!("iqn.2026-01.test:{node}"), if node == "heron" { 0 } else { PART });
        let mut command = Command::new(writer());
        command.args([&format!("127.0.0.1:{}", self.port), TARGET, &name, &first.to_string(), &PART.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Initiator { child, lines }
    }

    /// All that a node has written, as it lies on the disk.
    pub fn part(&self, node: &str) -> Vec<u8> {
        let first = if node == "heron" { 0 } else { PART * BLOCK };
        fs::read(self.at("disk")).unwrap()[first..first + PART * BLOCK].to_vec()
    }
}

/// Asks a gate by its own program: within this process its lock would be inherited by every child of every other test.
pub async fn ask(config: &Path, op: &str, node: &str, token: u64) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["gate", op, "--json", "--gate", "estuary", "--gate-config"]).arg(config);
    if op != "status" {
        command.args(["--node", node, "--token", &token.to_string()]);
    }
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&done.stderr)))
}

/// The process, with the number under which tgtadm finds it.
struct Tgtd {
    child: Child,
    control: u16,
}

impl Tgtd {
    fn start(port: u16) -> Tgtd {
        // Control ports are 15 bits; this test's portal has a port of its own, and so gets a number of its own.
        let control = 1 + port % 32_000;
        Tgtd { child: Tgtd::child(control, port), control }
    }

    fn child(control: u16, port: u16) -> Child {
        let mut command = Command::new("tgtd");
        command.args(["-f", "-C", &control.to_string(), "--iscsi", &format!("portal=127.0.0.1:{port}")]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while tgtadm(control, "--op show --mode sys").is_err() {
            assert!(child.try_wait().unwrap().is_none(), "tgtd ended at once");
            assert!(begun.elapsed() < PATIENCE, "tgtd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// SIGTERM does not end a tgtd that has targets. What is left behind would keep the next one from starting.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for suffix in ["", ".lock"] {
            let _ = fs::remove_file(format!("/var/run/tgtd/socket.{}{suffix}", self.control));
        }
    }
}

impl Drop for Tgtd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn tgtadm(control: u16, words: &str) -> Result<String, String> {
    let mut command = Command::new("tgtadm");
    command.args(["-C", &control.to_string(), "--lld", "iscsi"]).args(words.split(' '));
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() { Ok(text) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

/// A node that writes.
pub struct Initiator {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Initiator {
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits for this many more good writes.
    pub fn writes(&mut self, count: u32) {
        for _ in 0..count {
            let line = self.line();
            assert!(line.starts_with("write ") && line.ends_with(" good"), "{line:?}");
        }
    }

    /// The last good write, the failed one, and how the login afterwards went.
    pub fn end(mut self) -> (u64, String, String) {
        let mut last = 0;
        loop {
            let line = self.line();
            match line.strip_prefix("write ").and_then(|l| l.split_once(' ')) {
                Some((n, "good")) => last = n.parse().unwrap(),
                _ => return (last, line, self.line()),
            }
        }
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
