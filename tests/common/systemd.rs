//! A machine of its own with a real systemd: Debian in a container, whose bus and control groups are seen from here.
//!
//! The root is built once (`mmdebstrap`, half a minute) and kept below target/; each container writes into a layer in memory,
//! in mount and control groups of its own, and all of it goes with it.
#![allow(dead_code)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::resource::Host;

use crate::need::{self, Need};

/// A container is up within four seconds; a loaded machine takes longer.
const LOOKS: u32 = 1200;
const GAP: Duration = Duration::from_millis(100);

static NUMBER: AtomicU32 = AtomicU32::new(0);
static SHARED: Mutex<Weak<Machine>> = Mutex::new(Weak::new());

pub fn needs() -> Vec<Need> {
    let programs = ["mmdebstrap", "systemd-nspawn", "unshare", "nsenter"].map(need::program);
    [need::root()].into_iter().chain(programs).collect()
}

/// Running; dropping it is a power cut.
pub struct Machine {
    nspawn: Child,
    leader: i32,
    groups: Vec<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Machine {
    /// The one for all tests that run at this time and leave it as it is.
    pub fn shared() -> Arc<Machine> {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(machine) = shared.upgrade() {
            return machine;
        }
        let machine = Arc::new(Machine::boot(None));
        *shared = Arc::downgrade(&machine);
        machine
    }

    /// With a folder of this host under `/shared`, if given.
    pub fn boot(shared: Option<&Path>) -> Machine {
        let bind = shared.map(|path| format!("--bind={}:/shared", path.display()));
        Machine::boot_with(&Vec::from_iter(bind))
    }

    /// With these folders of this host: words for systemd-nspawn(1).
    pub fn boot_with(binds: &[String]) -> Machine {
        let root = root();
        let dir = tempfile::tempdir().unwrap();
        let name = format!("leasehold-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let groups = groups(&name);
        let enter: String = groups.iter().map(|g| format!("echo $$ > {}/cgroup.procs\n", g.display())).collect();
        let bind = binds.join(" ");
        // The copies of what other tests have mounted would keep their devices in use.
        let forget = "awk '/ \\/dev\\/loop/ { print $5 }' /proc/self/mountinfo | xargs -r -n 1 umount -l\n";
        // The layer must not lie on an overlay, which the host's own root may be.
        let script = format!(
            "set -e\n{enter}{forget}cd {dir}\nmount -t tmpfs tmpfs .\ncd {dir}\nmkdir upper work root\n\
             mount -t overlay overlay -o lowerdir={root},upperdir=upper,workdir=work root\n\
             exec systemd-nspawn --quiet --register=no --keep-unit --private-network --console=pipe {bind} -D root -M {name} -b\n",
            dir = dir.path().display(),
            root = root.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let nspawn = command.spawn().unwrap();
        let mut machine = Machine { nspawn, leader: 0, groups, _dir: dir };
        machine.leader = machine.wait_for_leader();
        machine.wait_for_boot();
        machine
    }

    pub fn host(&self) -> Host {
        let bus = format!("unix:path={}", self.path("/run/dbus/system_bus_socket").display());
        Host { bus: Some(bus), pid: self.leader }
    }

    /// A file of it, as seen from here.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.leader))
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// What a program in it prints; whether it succeeds is not asked.
    pub fn run(&self, words: &[&str]) -> String {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.leader.to_string(), "-a"]).args(words);
        let output = command.stdin(Stdio::null()).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
            .trim()
            .to_owned()
    }

    pub fn systemctl(&self, words: &[&str]) -> String {
        self.run(&[&["systemctl"], words].concat())
    }

    /// Gives it a unit of this text; `install` stands in `[Install]`.
    pub fn unit(&self, name: &str, service: &str, install: &str) {
        let text = format!(
            "[Service]\n{service}\n{}",
            if install.is_empty() { String::new() } else { format!("[Install]\n{install}\n") }
        );
        self.file(name, &text);
    }

    pub fn file(&self, name: &str, text: &str) {
        fs::write(self.path(&format!("/etc/systemd/system/{name}")), text).unwrap();
        self.systemctl(&["daemon-reload"]);
    }

    fn wait_for_leader(&mut self) -> i32 {
        let pid = self.nspawn.id();
        self.until("has a first process", |machine| {
            if let Some(status) = machine.nspawn.try_wait().unwrap() {
                panic!("the container ended at once: {status}");
            }
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let leader = children.split_whitespace().next()?.parse().ok()?;
            let name = fs::read_to_string(format!("/proc/{leader}/comm")).unwrap_or_default();
            (name.trim() == "systemd").then_some(leader)
        })
    }

    fn wait_for_boot(&mut self) {
        self.until("is up", |machine| {
            let said = machine.systemctl(&["is-system-running", "--wait"]);
            matches!(said.as_str(), "running" | "degraded").then_some(())
        });
    }

    fn until<T>(&mut self, what: &str, look: impl Fn(&mut Machine) -> Option<T>) -> T {
        for _ in 0..LOOKS {
            if let Some(seen) = look(self) {
                return seen;
            }
            std::thread::sleep(GAP);
        }
        panic!("the container never {what}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(leader) = rustix::process::Pid::from_raw(self.leader) {
            let _ = rustix::process::kill_process(leader, rustix::process::Signal::KILL);
        } else {
            let _ = self.nspawn.kill();
        }
        let _ = self.nspawn.wait();
        for group in &self.groups {
            let _ = Command::new("find")
                .arg(group)
                .args(["-depth", "-type", "d", "-delete"])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// A group of its own in each tree that systemd uses: two containers must not share theirs.
fn groups(name: &str) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let trees = table.lines().filter(|line| {
        let kind = line.split_once(" - ").map_or("", |(_, kind)| kind);
        kind.starts_with("cgroup2 ") || kind.starts_with("cgroup ") && kind.contains("name=systemd")
    });
    let groups: Vec<PathBuf> = trees.map(|line| Path::new(line.split(' ').nth(4).unwrap()).join(name)).collect();
    groups.iter().for_each(|group| fs::create_dir(group).unwrap());
    groups
}

/// Built by the first who needs it, also among several test programs.
fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (root, new) = (folder.join("systemd-root"), folder.join("systemd-root.new"));
    let lock = File::create(folder.join("systemd-root.lock")).unwrap();
    lock.lock().unwrap();
    if !root.exists() {
        let _ = fs::remove_dir_all(&new);
        let mut command = Command::new("mmdebstrap");
        command.args(["--quiet", "--variant=minbase", "--include=systemd,systemd-sysv,dbus", "bookworm"]).arg(&new);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "mmdebstrap: {}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&new, &root).unwrap();
    }
    root
}
