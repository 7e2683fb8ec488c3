//! A network segment of its own: a bridge in one namespace, and one namespace a machine, each with the interface `reef0`.

#![allow(dead_code)] // each test program uses another part

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Far beyond what any step takes; only a hang gets there.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The name of the one interface of each machine.
pub const INTERFACE: &str = "reef0";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Removed with everything on it when it is dropped.
pub struct Segment {
    id: String,
    machines: Vec<String>,
}

impl Segment {
    /// Machines on one bridge, with no addresses yet.
    pub fn new(machines: &[&str]) -> Segment {
        let id = format!("lh{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let segment = Segment { id, machines: machines.iter().map(|m| (*m).to_owned()).collect() };
        run("ip", &["netns", "add", &segment.hub()]);
        let hub = segment.hub();
        run("ip", &["-n", &hub, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"]);
        run("ip", &["-n", &hub, "link", "set", "br0", "up"]);
        for machine in machines {
            run("ip", &["netns", "add", &segment.namespace(machine)]);
            segment.ip(machine, "link set lo up");
            segment.plug_in(machine);
        }
        machines.iter().for_each(|machine| segment.settle(machine));
        segment
    }

    pub fn namespace(&self, machine: &str) -> String {
        format!("{}{machine}", self.id)
    }

    /// `ip ARGS` on a machine.
    pub fn ip(&self, machine: &str, args: &str) -> String {
        let namespace = self.namespace(machine);
        let words = ["-n", &namespace].into_iter().chain(args.split(' ')).collect::<Vec<_>>();
        run("ip", &words)
    }

    /// A program on a machine, to be run.
    pub fn command(&self, machine: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(machine), program]);
        command
    }

    /// Sets a value below /proc/sys/net.
    pub fn set(&self, machine: &str, key: &str, value: &str) {
        let script = format!("echo {value} > /proc/sys/net/{key}");
        done("setting", self.command(machine, "sh").args(["-c", &script]));
    }

    /// Makes the interface of a machine, with its cable.
    pub fn plug_in(&self, machine: &str) {
        let (hub, namespace, port) = (self.hub(), self.namespace(machine), port(machine));
        let pair = ["-n", &hub, "link", "add", &port, "type", "veth", "peer", "name", INTERFACE, "netns", &namespace];
        run("ip", &pair);
        run("ip", &["-n", &hub, "link", "set", &port, "master", "br0", "up"]);
        self.ip(machine, &format!("link set {INTERFACE} up"));
    }

    /// Waits until the kernel uses the interface: its link watch works once a second.
    pub fn settle(&self, machine: &str) {
        eventually("the link is in use", || self.is_in_use(machine));
    }

    pub fn is_in_use(&self, machine: &str) -> bool {
        self.ip(machine, &format!("-o link show {INTERFACE}")).contains("state UP")
    }

    /// Takes the interface of a machine away.
    pub fn unplug(&self, machine: &str) {
        run("ip", &["-n", &self.hub(), "link", "del", &port(machine)]);
    }

    /// Gives a machine's interface its carrier, or takes it.
    pub fn carrier(&self, machine: &str, state: &str) {
        run("ip", &["-n", &self.hub(), "link", "set", &port(machine), state]);
    }

    /// The global addresses of a machine, sorted.
    pub fn addresses(&self, machine: &str) -> Vec<String> {
        let text = self.ip(machine, &format!("-o addr show dev {INTERFACE} scope global"));
        let mut found: Vec<String> =
            text.lines().filter_map(|line| Some(line.split_whitespace().nth(3)?.into())).collect();
        found.sort();
        found
    }

    pub fn has(&self, machine: &str, address: &str) -> bool {
        self.ip(machine, "-o addr show").split_whitespace().any(|word| word.split('/').next() == Some(address))
    }

    pub fn hardware(&self, machine: &str) -> String {
        let text = self.ip(machine, &format!("-o link show {INTERFACE}"));
        let mut words = text.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).expect("a hardware address").to_owned()
    }

    /// Runs a future as a daemon on the machine would.
    pub fn inside<T: Send, F: Future<Output = T>>(&self, machine: &str, work: impl FnOnce() -> F + Send) -> T {
        let path = format!("/run/netns/{}", self.namespace(machine));
        let enter = move || {
            let namespace = File::open(&path).expect("the namespace was made");
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("as root");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(work())
        };
        std::thread::scope(|scope| match scope.spawn(enter).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    fn hub(&self) -> String {
        format!("{}hub", self.id)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let namespaces = self.machines.iter().map(|machine| self.namespace(machine)).chain([self.hub()]);
        for namespace in namespaces {
            // What was never made cannot be removed.
            let _ = Command::new("ip").args(["netns", "del", &namespace]).output();
        }
    }
}

fn port(machine: &str) -> String {
    format!("port-{machine}")
}

fn run(program: &str, args: &[&str]) -> String {
    done(&format!("{program} {}", args.join(" ")), Command::new(program).args(args))
}

fn done(what: &str, command: &mut Command) -> String {
    let output: Output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Asks until it is so; gives how long that took.
pub fn eventually(what: &str, mut ask: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !ask() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    begun.elapsed()
}

/// As [`eventually`], for those who share their thread with what they wait for.
pub async fn until(what: &str, mut ask: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !ask() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}
