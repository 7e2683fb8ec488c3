//! Two real daemons with their guards, at `lease.term = 2s`, on a machine that is driven to its limits: processes that
//! compute, memory that is filled, disks that are synced all the time, a fork bomb; the state directory on a disk whose
//! syncs take half a minute, and a journal that nobody reads. No node is presumed lost, and each renewal comes in time.
//!
//! ```text
//! cargo test --test load -- --nocapture                 a few seconds of it
//! LONG=1 cargo test --test load -- --nocapture          ten minutes; LOAD_SECONDS=N chooses
//! tests/load/peers.sh                                   the same load on keepalived and corosync
//! ```

#[path = "load/disk.rs"]
mod disk;
#[path = "load/journal.rs"]
mod journal;
#[path = "common/need.rs"]
mod need;
#[path = "common/pair.rs"]
mod pairs;
#[path = "common/page.rs"]
mod shared_page;
#[path = "load/watch.rs"]
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::cli::demo::pair::{Pair, What};
use leasehold::cli::demo::world::{BOTH, Fencing, Guarding, Plan, Timing, name};
use leasehold::control::Op;
use leasehold::core::{NodeId, Span};
use leasehold::os::clock;
use rustix::process::Pid;

use disk::Disk;
use journal::Journal;
use shared_page::{page_in, said};
use watch::{Seen, Watch};

/// With a term of 2 s: D = 600 ms, P = 300 ms, and the margin that follows from them.
const TIMING: Timing = Timing {
    interval_ms: 50,
    dead_after_ms: 600,
    head_start_ms: 200,
    pause_ms: 300,
    stop_ms: 200,
    fence_ms: 400,
    typical_ms: 100,
};
const TERM: Duration = Duration::from_secs(2);
const SECONDS: u64 = 12;
const LONG_SECONDS: u64 = 600;
/// How long disk and journal stand still at a time, and go on again.
const STALL: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(5);
/// What a pair decides that takes its peer for lost; and the last, that takes itself for no longer in the right.
const LOST: [&str; 4] = ["peer-lost", "attempt-started", "probe-started", "demoting"];

/// A pair whose run-time directories lie in memory, as /run does, and whose logs and disks are ours to stop.
struct Rig {
    pair: Option<Pair>,
    disks: Vec<Disk>,
    journals: Vec<Journal>,
    memory: Vec<PathBuf>,
    directory: PathBuf,
}

impl Rig {
    fn build() -> Rig {
        let plan = Plan { guarding: Guarding::Process, keep: true, ..pairs::plan(TIMING, Fencing::StandIn) };
        let pair = pairs::build(plan);
        let directory = pair.world.directory().to_owned();
        let mut rig = Rig { pair: None, disks: Vec::new(), journals: Vec::new(), memory: Vec::new(), directory };
        for home in BOTH.map(|node| pair.world.home(node)) {
            configure(&home.join("leasehold.toml"));
            let run = home.join("run");
            let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&run).status();
            assert!(mounted.is_ok_and(|status| status.success()), "a tmpfs can be mounted");
            rig.memory.push(run);
            rig.disks.push(Disk::mount(&home.join("state")));
            rig.journals.push(Journal::instead_of(&home.join("daemon.log")));
        }
        rig.pair = Some(pair);
        rig
    }

    fn pair(&mut self) -> &mut Pair {
        self.pair.as_mut().expect("it is there until the rig is dropped")
    }

    fn stall(&self) {
        self.disks.iter().for_each(|disk| disk.stall(true));
        self.journals.iter().for_each(Journal::stop);
    }

    fn go_on(&self) {
        self.disks.iter().for_each(|disk| disk.stall(false));
        self.journals.iter().for_each(Journal::go_on);
    }

    fn logs(&self) -> String {
        self.journals.iter().map(Journal::text).collect::<Vec<_>>().join("\n---\n")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.go_on();
        // Whoever uses the mounts goes before them.
        drop(self.pair.take());
        self.disks.clear();
        for run in &self.memory {
            let _ = Command::new("umount").arg("--lazy").arg(run).status();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn configure(path: &Path) {
    let text = fs::read_to_string(path).expect("the world has written it");
    let text = text.replace("[lease]\n", "[lease]\nterm = \"2s\"\n");
    // Each look at an agent starts a process, of which a machine under load has few to give.
    let text = text.replace("[fence]\n", "[fence]\nprobe_interval = \"5s\"\n");
    fs::write(path, text).expect("it can be written");
}

/// The processes of `hogs.sh`; dropping it ends them all, and removes what they wrote.
struct Hogs {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Hogs {
    fn let_loose(seconds: u64) -> Hogs {
        // Beside the build: a disk, and not the memory where /tmp may lie.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/load/hogs.sh");
        let mut command = Command::new(script);
        command.arg(seconds.to_string()).arg(folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a shell runs");
        Hogs { child, _folder: folder }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = clock::now();
    while !holds() {
        assert!(clock::now().since(begun) < pairs::PATIENCE, "not within {}: {what}", pairs::PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn schedule(thread: Pid, policy: &str, priority: u32) {
    assert!(watch::set_policy(thread, policy, priority), "chrt {policy} {priority}");
}

/// As the units have it.
fn schedule_all(pair: &Pair) {
    for node in BOTH {
        schedule(pair.daemon(node).expect("a daemon").pid, "--rr", 10);
        schedule(pair.guard(node).expect("a guard").pid, "--fifo", 20);
    }
}

/// Drives the machine to its limits, and gives what was seen meanwhile.
fn load(rig: &mut Rig, primary: NodeId, seconds: u64) -> Seen {
    let home = rig.pair().world.home(primary);
    let hogs = Hogs::let_loose(seconds + 60);
    let watch = Watch::start(page_in(&home.join("run")));
    let ends = clock::now().after(Span::from_secs(seconds));
    while clock::now() < ends {
        let left = Duration::from(ends.since(clock::now()));
        rig.stall();
        std::thread::sleep(left.min(STALL));
        rig.go_on();
        std::thread::sleep(PAUSE.min(left / 4));
    }
    let seen = watch.end();
    drop(hogs);
    seen
}

/// A handover while the disks stand still: it waits for them, for longer than a lease lasts, and the nodes go on hearing each
/// other.
fn hand_over_on_stalled_disks(rig: &mut Rig, primary: NodeId) {
    rig.stall();
    rig.pair().command(primary, Op::Failover { force: false }).expect("the primary hands over");
    until("a write waits for its disk", || rig.disks.iter().any(Disk::was_felt));
    std::thread::sleep(TERM * 2);
    let lost = losses(rig, &LOST[..3]);
    assert_eq!(lost, Vec::<String>::new(), "{}", rig.logs());
    assert_eq!(rig.pair().primary(), None, "no promotion before its record is written");
    rig.go_on();
    assert_eq!(pairs::until_whole(rig.pair()), primary.peer());
}

/// What became of the pair: nothing.
fn judge(rig: &mut Rig, primary: NodeId) -> Vec<String> {
    let mut lost = losses(rig, &LOST);
    if rig.pair().primary() != Some(primary) {
        lost.push(format!("{} is no longer the primary", name(primary)));
    }
    lost
}

fn losses(rig: &mut Rig, kinds: &[&str]) -> Vec<String> {
    let mut lost = Vec::new();
    while let Some(news) = rig.pair().next(Duration::ZERO) {
        match news.what {
            What::Decided(decision) if kinds.contains(&decision.kind.as_str()) => {
                lost.push(format!("{}: {}", name(news.node), decision.text));
            }
            What::Gone | What::Off => lost.push(format!("{} ended", name(news.node))),
            _ => {}
        }
    }
    lost
}

fn print(rig: &mut Rig, primary: NodeId, seconds: u64, seen: &Seen, lost: usize) {
    let half = Span::from_ms(TIMING.dead_after_ms).half();
    let (oldest, watch) = (seen.oldest(), seen.late.summary());
    println!(
        "\n{seconds} s of load, lease.term 2 s, D {} ms, heartbeat {} ms",
        TIMING.dead_after_ms, TIMING.interval_ms
    );
    println!("  renewals {}, their age at the next one: p50 {}, max {oldest}", seen.ages.len(), seen.median());
    println!("  the latest is {} % of D/2; failovers, losses and attempts: {lost}", oldest.0 * 100 / half.0);
    println!("  the watch itself was late by p50 {}, p99.9 {}, max {}", watch.p50, watch.p99_9, watch.longest);
    for node in BOTH {
        let stalls = rig.pair().status(node).map(|s| serde_json::to_string(&s.stalls).expect("JSON"));
        let said = said(&page_in(&rig.pair().world.home(node).join("run")));
        println!(
            "  {} ({}): loop {}; guard woken late by p50 {}, p99.9 {}, max {}",
            name(node),
            if node == primary { "primary" } else { "standby" },
            stalls.unwrap_or_default(),
            said.late.p50,
            said.late.p99_9,
            said.late.longest
        );
    }
}

fn seconds() -> u64 {
    let chosen = std::env::var("LOAD_SECONDS").ok().map(|text| text.parse().expect("a number of seconds"));
    chosen.unwrap_or(if std::env::var_os("LONG").is_some() { LONG_SECONDS } else { SECONDS })
}

#[test]
fn a_machine_at_its_limits_loses_no_node_and_misses_no_renewal() {
    let mut needs: Vec<_> = ["stress-ng", "chrt", "unshare", "setpriv", "prlimit", "mount"].map(need::program).into();
    needs.extend(disk::needs());
    if !need::all("a_machine_at_its_limits_loses_no_node_and_misses_no_renewal", &needs) {
        return;
    }
    let mut rig = Rig::build();
    let primary = pairs::start(rig.pair());
    schedule_all(rig.pair());
    rig.pair().skip_news();
    let service = rig.pair().service(primary).expect("it serves").pid;
    let seen = load(&mut rig, primary, seconds());
    let lost = judge(&mut rig, primary);
    print(&mut rig, primary, seconds(), &seen, lost.len());
    assert_eq!(lost, Vec::<String>::new(), "{}", rig.logs());
    assert_eq!(rig.pair().service(primary).map(|now| now.pid).ok(), Some(service), "the same process serves");
    let half = Span::from_ms(TIMING.dead_after_ms).half();
    assert!(seen.oldest() < half, "a renewal came {} after the one before\n{}", seen.oldest(), rig.logs());
    assert_eq!(pairs::until_whole(rig.pair()), primary);
    hand_over_on_stalled_disks(&mut rig, primary);
    pairs::judged(rig.pair()).expect("one writer, rising tokens");
}
