//! An address under real daemons, one a network namespace.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::segment::{Segment, eventually};
use super::{VIP, possible, table};

/// Where a node's daemon lives.
struct Node<'a> {
    lab: &'a Segment,
    name: &'static str,
    machine: &'static str,
    home: tempfile::TempDir,
}

impl<'a> Node<'a> {
    fn new(lab: &'a Segment, name: &'static str, machine: &'static str, key: &str, more: &str) -> Node<'a> {
        let node = Node { lab, name, machine, home: tempfile::tempdir().expect("a directory") };
        let file = |name: &str| node.home.path().join(name).display().to_string();
        std::fs::write(file("key"), key).expect("a key");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(file("key"), mode).expect("its mode");
        ["state", "run"].iter().for_each(|name| std::fs::create_dir(file(name)).expect("a directory"));
        let text = format!(
            "fence = \"confirm-only\"\n[cluster]\nname = \"estuary\"\nkey = \"{}\"\ndata = \"shared\"\n\
             [[node]]\nname = \"heron\"\n[[node]]\nname = \"plover\"\n[[link]]\nname = \"lan\"\n\
             addresses = {{ heron = \"198.51.100.1\", plover = \"198.51.100.2\" }}\n[guard]\nprocess = \"none\"\nwatchdog = \"none\"\n\
             [join]\nwait = \"2s\"\n{}[control]\nsocket = \"{}\"\n[paths]\nstate = \"{}\"\nruntime = \"{}\"\n",
            file("key"),
            table("reef", "192.0.2.50/24", more),
            file("control.sock"),
            file("state"),
            file("run"),
        );
        std::fs::write(file("leasehold.toml"), text).expect("a configuration");
        node
    }

    fn start(&self, boot: u32) -> Running {
        self.start_with_log(boot, &self.home.path().join("log").display().to_string())
    }

    fn start_with_log(&self, boot: u32, log: &str) -> Running {
        let mut command = self.lab.command(self.machine, env!("CARGO_BIN_EXE_leasehold"));
        command.args(["daemon", "--node", self.name, "--boot-id", &format!("{boot:08x}-0000-4000-8000-000000000000")]);
        command.arg("--config").arg(self.home.path().join("leasehold.toml"));
        let log = std::fs::File::options().create(true).append(true).open(log);
        let log = log.expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("the same file")).stderr(log);
        Running(command.spawn().expect("the daemon starts"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    fn status(&self) -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["status", "--json", "--socket"]).arg(self.home.path().join("control.sock"));
        let output = command.env_remove("LEASEHOLD_SOCKET").output().expect("leasehold runs");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn has_address(&self) -> bool {
        self.lab.has(self.machine, VIP)
    }
}

/// A daemon that dies as by SIGKILL when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two machines with their daemons' homes, heartbeats over a cable of their own.
fn pair<'a>(lab: &'a Segment, more: &str) -> [Node<'a>; 2] {
    let [a, b] = ["a", "b"].map(|machine| lab.namespace(machine));
    let made = Command::new("ip")
        .args(["-n", &a, "link", "add", "hb0", "type", "veth", "peer", "name", "hb0", "netns", &b])
        .status();
    assert!(made.expect("ip runs").success());
    for (machine, last) in [("a", 1), ("b", 2)] {
        lab.ip(machine, &format!("addr add 198.51.100.{last}/24 dev hb0"));
        lab.ip(machine, "link set hb0 up");
        lab.ip(machine, &format!("addr add 192.0.2.1{last}/24 dev reef0"));
    }
    let key = leasehold::wire::Keyring::generate().expect("randomness");
    let key = std::str::from_utf8(key.as_bytes()).expect("text");
    [("heron", "a"), ("plover", "b")].map(|(name, machine)| Node::new(lab, name, machine, key, more))
}

#[test]
fn a_left_over_address_is_removed_at_the_start_of_the_daemon_before_anything_else() {
    if !possible("a_left_over_address_is_removed_at_the_start_of_the_daemon_before_anything_else") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    let nodes = pair(&lab, "");
    let holder = {
        let _daemons = [nodes[0].start(1), nodes[1].start(2)];
        eventually("one of them has the address", || lab.has("a", VIP) || lab.has("b", VIP));
        if lab.has("a", VIP) { &nodes[0] } else { &nodes[1] }
    };
    assert!(lab.has(holder.machine, VIP), "nobody was left to remove it");
    let before = holder.log().len();
    let _daemon = holder.start(3);
    let took = eventually("the left-over is removed", || !lab.has(holder.machine, VIP));
    println!("a left-over was removed {took:?} after the daemon was started");
    let log = || holder.log().split_off(before);
    // Lines are written by a thread of their own.
    eventually("it is told", || log().contains("removed 192.0.2.50/32"));
    // Its peer is silent, so that it never comes further than this.
    eventually("it answers", || holder.status()["me"]["role"] == "joining");
    assert!(!lab.has(holder.machine, VIP) && !log().contains("standby"), "{}", log());
}

/// Who serves, and who could take over.
fn whole<'a>(nodes: &'a [Node<'a>; 2]) -> Option<(&'a Node<'a>, &'a Node<'a>)> {
    let [first, second] = nodes;
    [(first, second), (second, first)].into_iter().find(|(primary, _)| {
        let status = primary.status();
        status["me"]["role"] == "primary" && status["can_fail_over"]["answer"] == "yes"
    })
}

fn until_whole<'a>(nodes: &'a [Node<'a>; 2]) -> (&'a Node<'a>, &'a Node<'a>) {
    eventually("the pair is whole", || whole(nodes).is_some());
    let (primary, standby) = whole(nodes).expect("it was a moment ago");
    eventually("the address is up", || primary.has_address());
    (primary, standby)
}

/// C26 A: heartbeats are fine, so nobody is shot: the plan of this pair has nobody to shoot with.
#[test]
fn a_lost_carrier_hands_over_once_and_all_is_quiet_then() {
    if !possible("a_lost_carrier_hands_over_once_and_all_is_quiet_then") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    let nodes = pair(&lab, "hold = \"500ms\"");
    let _daemons = [nodes[0].start(1), nodes[1].start(2)];
    let (primary, standby) = until_whole(&nodes);
    lab.carrier(primary.machine, "down");
    let took = eventually("the other one has the address", || standby.has_address());
    println!("handed over {took:?} after the carrier was lost (hold = 500ms)");
    assert!(!primary.has_address(), "one holder");
    eventually("it says why", || primary.log().contains("reef0 has no carrier"));
    lab.carrier(primary.machine, "up");
    let token = || standby.status()["me"]["token"].clone();
    eventually("the other one serves", || token().is_u64());
    let before = token();
    std::thread::sleep(Duration::from_secs(2));
    let moved = !standby.has_address() || primary.has_address() || token() != before;
    assert!(!moved, "it stays where it is");
}

/// The first finding of the screen, which is its third line.
fn first_finding(node: &Node<'_>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["status", "--socket"]).arg(node.home.path().join("control.sock"));
    let output = command.env("COLUMNS", "500").env_remove("LEASEHOLD_SOCKET").output().expect("leasehold runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find(|line| line.starts_with("X ")).unwrap_or(&text).to_owned()
}

/// It serves under the same token, and has never let go of its address.
fn stays(node: &Node<'_>, token: &serde_json::Value) {
    let status = node.status();
    assert_eq!((&status["me"]["role"], &status["me"]["token"]), (&"primary".into(), token), "{}", node.log());
    assert!(node.has_address() && !node.log().contains("removed 192.0.2.50"), "{}", node.log());
}

/// C26 B: the other one is no better off. When it is, the service goes there.
#[test]
fn where_the_standby_has_no_carrier_either_the_primary_stays_and_says_why() {
    if !possible("where_the_standby_has_no_carrier_either_the_primary_stays_and_says_why") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    let nodes = pair(&lab, "hold = \"500ms\"");
    let _daemons = [nodes[0].start(1), nodes[1].start(2)];
    let (primary, standby) = until_whole(&nodes);
    let token = primary.status()["me"]["token"].clone();
    lab.carrier(standby.machine, "down");
    eventually("the primary knows", || primary.status()["peer"]["said"]["ready"] == false);
    let why = standby.status()["me"]["not_ready"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("reef0 has no carrier")), "{why}");
    lab.carrier(primary.machine, "down");
    eventually("it says why it stays", || first_finding(primary).contains("it stays here"));
    let told = first_finding(primary);
    println!("{told}");
    assert!(told.contains("reef0 has no carrier") && told.contains("the other node could not serve either"), "{told}");
    std::thread::sleep(Duration::from_secs(3));
    stays(primary, &token);
    assert_eq!(primary.log().matches("it stays here").count(), 1, "told once:\n{}", primary.log());

    lab.carrier(primary.machine, "up");
    eventually("it is well again", || primary.status()["resources"][0]["state"] == "up");
    stays(primary, &token);
    lab.carrier(primary.machine, "down");
    eventually("it stays once more", || first_finding(primary).contains("it stays here"));
    lab.carrier(standby.machine, "up");
    eventually("the other one has the address as soon as it could serve", || standby.has_address());
    assert!(!primary.has_address(), "one holder");
}

/// C26 B as it is in life: both hang on one switch.
#[test]
fn a_switch_that_dies_under_both_nodes_moves_nothing() {
    if !possible("a_switch_that_dies_under_both_nodes_moves_nothing") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    // Half of it is there for the other node's word, also on a machine that does much else.
    let nodes = pair(&lab, "hold = \"5s\"");
    let _daemons = [nodes[0].start(1), nodes[1].start(2)];
    let (primary, standby) = until_whole(&nodes);
    let token = primary.status()["me"]["token"].clone();
    ["a", "b"].iter().for_each(|machine| lab.carrier(machine, "down"));
    eventually("it says why it stays", || first_finding(primary).contains("it stays here"));
    assert!(!standby.has_address());
    ["a", "b"].iter().for_each(|machine| lab.carrier(machine, "up"));
    eventually("it is well again", || primary.status()["resources"][0]["state"] == "up");
    stays(primary, &token);
    assert!(!standby.log().contains("starting"), "nothing was tried there:\n{}", standby.log());
}

/// C31 D: a log that nobody can write any more, as on a full disk, is no reason for anything.
#[test]
fn a_daemon_whose_log_is_full_goes_on() {
    if !possible("a_daemon_whose_log_is_full_goes_on") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    let nodes = pair(&lab, "");
    let full = [nodes[0].start_with_log(1, "/dev/full"), nodes[1].start_with_log(2, "/dev/full")];
    let (primary, _) = until_whole(&nodes);
    let token = primary.status()["me"]["token"].clone();
    // Each makes it say something.
    for _ in 0..3 {
        lab.ip(primary.machine, "addr del 192.0.2.50/32 dev reef0");
        eventually("it is put back", || primary.has_address());
    }
    stays(primary, &token);
    drop(full);
}

/// C32 C: a bond that comes long after the daemon. Its address stands for it.
#[test]
fn a_link_that_comes_late_is_used_as_soon_as_it_is_there() {
    if !possible("a_link_that_comes_late_is_used_as_soon_as_it_is_there") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    let nodes = pair(&lab, "");
    lab.ip("a", "addr del 198.51.100.1/24 dev hb0");
    let _daemons = [nodes[0].start(1), nodes[1].start(2)];
    eventually("it says what its link lacks", || nodes[0].status()["links"][0]["send_error"].is_string());
    assert_eq!(nodes[0].status()["me"]["role"], "joining");
    lab.ip("a", "addr add 198.51.100.1/24 dev hb0");
    until_whole(&nodes);
    assert!(nodes[0].status()["links"][0]["send_error"].is_null());
}

/// C32 E: the directory of the record goes away in the middle of the stop.
#[test]
fn a_stop_ends_although_the_state_directory_is_gone() {
    if !possible("a_stop_ends_although_the_state_directory_is_gone") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    let nodes = pair(&lab, "");
    let mut daemons = [nodes[0].start(1), nodes[1].start(2)];
    let (primary, standby) = until_whole(&nodes);
    let daemon = if primary.machine == "a" { &mut daemons[0].0 } else { &mut daemons[1].0 };
    let state = primary.home.path().join("state");
    // As a file system that is taken away: nothing can be read or written there any more.
    let pid = daemon.id().to_string();
    let cover = Command::new("nsenter")
        .args(["-t", &pid, "-m", "mount", "-t", "tmpfs", "-o", "ro", "tmpfs"])
        .arg(&state)
        .status();
    assert!(cover.expect("nsenter runs").success());
    let id = rustix::process::Pid::from_child(daemon);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
    eventually("it ends", || daemon.try_wait().expect("a child").is_some());
    assert!(!primary.has_address(), "its address is gone");
    eventually("the other one serves", || standby.has_address());
}
