//! A guard whose daemon is the test: what it does at the deadline, step by step.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use leasehold::core::{Incarnation, NodeId, Span, Token};
use leasehold::guard::farewell::Farewell;
use leasehold::guard::plan;
use leasehold::os::bell::Bell;
use leasehold::os::shared::{Content, DogState, Fired, Said, Shared, Standing, Told};
use leasehold::os::{clock, machine};
use leasehold::resource::Remains;
use leasehold::wire::{self, Keyring};

use super::{LOOK, need, pairs, until};

/// A run-time directory, and this test in the place of the daemon.
pub struct Alone {
    directory: tempfile::TempDir,
    page: Shared,
    bell: Bell,
}

/// A process with this test's mark.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running guard.
pub struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Alone {
    pub fn new() -> Alone {
        let directory = tempfile::tempdir().unwrap();
        let page = Shared::open(directory.path(), machine::boot_id().unwrap()).unwrap();
        let bell = Bell::open(directory.path()).unwrap();
        Alone { directory, page, bell }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn mark(&self) -> String {
        format!("LEASEHOLD_RESOURCE=alone:{}", self.directory.path().display())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.arg("guard").arg("--runtime").arg(self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// As [`Alone::guard`], among the processes of a container: its manager lets in nobody whom it cannot name. It ends
    /// with the container.
    pub fn guard_within(&self, manager: i32) -> Guard {
        let mut command = Command::new("nsenter");
        command.args(["-t", &manager.to_string(), "--pid"]).arg(env!("CARGO_BIN_EXE_leasehold"));
        command.arg("guard").arg("--runtime").arg(self.directory.path()).arg("--on-reset").arg(self.path("reset"));
        let log = fs::File::create(self.path("guard.log")).unwrap();
        Guard(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Starts a guard that resets nothing.
    pub fn guard(&self) -> Guard {
        Guard(self.command().arg("--on-reset").arg(self.path("reset")).spawn().unwrap())
    }

    fn service(&self) -> Service {
        let mark = self.mark();
        let (name, value) = mark.split_once('=').unwrap();
        Service(Command::new("sleep").arg("600").env(name, value).spawn().unwrap())
    }

    fn remains(&self) -> Remains {
        Remains { marks: vec![self.mark()], ..Remains::default() }
    }

    /// A lease that ends in `ms`, of a daemon that is dead; its guard is given the plan first.
    pub fn lease(&self, ms: u64, remains: &Remains) -> Told {
        self.lease_of(plan::save(self.directory.path(), remains, None, &[]).unwrap(), ms)
    }

    fn lease_of(&self, plan: u64, ms: u64) -> Told {
        let told = Told {
            standing: Standing::Idle,
            deadline: clock::now(),
            token: Token(42),
            right: Span::from_secs(60),
            kill_after: Span::from_ms(500),
            reset_after: Span::from_secs(2),
            beat_within: Span::ZERO,
            plan,
            daemon: 0,
        };
        self.tell(&told);
        until("the guard holds the plan", || self.said().is_some_and(|said| said.plan == plan));
        let armed = Told { standing: Standing::Armed, deadline: clock::now().after(Span::from_ms(ms)), ..told };
        self.tell(&armed);
        armed
    }

    fn tell(&self, told: &Told) {
        self.page.tell(told);
        self.bell.ring();
    }

    pub fn said(&self) -> Option<Said> {
        match self.page.said() {
            Content::Told(said) => Some(said),
            Content::Never | Content::Unreadable => None,
        }
    }

    pub fn until_fired(&self, wanted: Fired) {
        let begun = clock::now();
        while self.said().is_none_or(|said| said.fired != wanted) {
            let patient = clock::now().since(begun) < pairs::PATIENCE;
            assert!(patient, "not {wanted:?} within {}: {:?}\n{}", pairs::PATIENCE, self.said(), self.log());
            std::thread::sleep(LOOK);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("guard.log")).unwrap_or_default()
    }

    pub fn reset(&self) -> String {
        fs::read_to_string(self.path("reset")).unwrap_or_default()
    }
}

impl Service {
    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Guard {
    fn ended(&mut self) -> (ExitStatus, String) {
        let status = self.0.wait().unwrap();
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status, text)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }
}

#[test]
fn at_the_deadline_the_service_is_killed_seen_to_be_gone_and_nothing_is_reset() {
    let alone = Alone::new();
    let guard = alone.guard();
    let mut service = alone.service();
    let told = alone.lease(300, &alone.remains());
    until("the service is gone", || !service.lives());
    assert!(clock::now() >= told.deadline, "not before its lease ended");
    alone.until_fired(Fired::Proven);
    let said = alone.said().unwrap();
    assert_eq!((said.fired_token, said.fired_deadline, said.dog), (Token(42), told.deadline, DogState::NotAsked));
    until("it looked beyond the reset point", || {
        alone.said().unwrap().alive_at > told.deadline.after(told.reset_after)
    });
    assert_eq!(alone.reset(), "");
    drop(guard);
}

#[test]
fn a_lease_that_is_renewed_is_never_enforced_and_one_whose_deadline_comes_nearer_is_enforced_then() {
    let alone = Alone::new();
    let _guard = alone.guard();
    let mut service = alone.service();
    let mut told = alone.lease(400, &alone.remains());
    let begun = clock::now();
    while clock::now().since(begun) < Span::from_secs(2) {
        told.deadline = clock::now().after(Span::from_ms(400));
        alone.page.tell(&told);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(service.lives());
    assert_eq!(alone.said().unwrap().fired, Fired::No);
    told.deadline = clock::now().after(Span::from_secs(50));
    alone.tell(&told);
    told.deadline = clock::now();
    alone.tell(&told);
    until("the service is gone", || !service.lives());
}

#[test]
fn a_resource_that_the_guard_cannot_see_stopped_is_ended_by_a_reset_that_says_why() {
    let alone = Alone::new();
    let _guard = alone.guard();
    let told = alone.lease(100, &Remains { hidden: vec!["share".into()], ..alone.remains() });
    until("a reset was ordered", || !alone.reset().is_empty());
    assert!(clock::now() >= told.deadline.after(told.reset_after), "not before there was time for less");
    let why = alone.reset();
    assert!(why.starts_with("leasehold-guard: resetting: lease of token 42 ran out 2"), "{why}");
    assert_eq!(alone.said().unwrap().fired, Fired::Reset);
}

#[test]
fn the_last_words_reach_the_peer_over_each_link_before_the_reset_and_only_it_can_open_them() {
    let alone = Alone::new();
    let _guard = alone.guard();
    let keyring = Keyring::parse(&Keyring::generate().unwrap()).unwrap();
    let incarnation = Incarnation(77);
    let peers = ["127.0.0.1:0", "[::1]:0"].map(|address| UdpSocket::bind(address).unwrap());
    let farewell = |(number, peer): (usize, &UdpSocket)| Farewell {
        from: peer.local_addr().unwrap().ip(),
        to: peer.local_addr().unwrap(),
        sealed: wire::seal_last_words(&keyring, number as u8, NodeId::First, incarnation),
    };
    let farewells: Vec<Farewell> = peers.iter().enumerate().map(farewell).collect();
    let remains = Remains { hidden: vec!["share".into()], ..alone.remains() };
    let plan = plan::save(alone.directory.path(), &remains, None, &farewells).unwrap();
    alone.lease_of(plan, 100);
    for (number, peer) in peers.iter().enumerate() {
        let mut heard = [0; 2048];
        peer.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let (length, from) = peer.recv_from(&mut heard).unwrap();
        let (heard, link) = (&heard[..length], number as u8);
        assert_eq!(from.ip(), peer.local_addr().unwrap().ip(), "a peer listens to no other address");
        assert_eq!(wire::open_last_words(&keyring, NodeId::Second, link, heard), Some(incarnation));
        assert_eq!(wire::open_last_words(&keyring, NodeId::First, link, heard), None, "they came back to their sender");
        assert_eq!(wire::open_last_words(&keyring, NodeId::Second, link ^ 1, heard), None, "another link");
        assert!(wire::open(&keyring, NodeId::Second, link, heard).is_err(), "they are never a sign of life");
    }
    alone.until_fired(Fired::Reset);
}

#[test]
fn a_daemon_that_says_in_time_that_nothing_runs_prevents_the_reset() {
    let alone = Alone::new();
    let _guard = alone.guard();
    let told = alone.lease(100, &Remains { hidden: vec!["share".into()], ..alone.remains() });
    alone.until_fired(Fired::Killing);
    alone.tell(&Told { standing: Standing::Idle, ..told });
    until("it looked beyond the reset point", || {
        alone.said().unwrap().alive_at > told.deadline.after(told.reset_after)
    });
    assert_eq!(alone.reset(), "");
}

#[test]
fn a_stop_in_good_order_of_a_daemon_that_lives_is_not_disturbed_within_its_budget() {
    let alone = Alone::new();
    let _guard = alone.guard();
    let mut service = alone.service();
    let armed = alone.lease(200, &alone.remains());
    let kill_after = Span::from_ms(1200);
    let told = Told { standing: Standing::Stopping, kill_after, beat_within: Span::from_secs(60), ..armed };
    alone.page.beat(clock::now());
    alone.tell(&told);
    alone.until_fired(Fired::Cut);
    assert!(service.lives());
    until("the service is gone", || !service.lives());
    assert!(clock::now() >= told.deadline.after(kill_after), "killed before its budget was over");
}

#[test]
fn a_page_that_is_torn_keeps_the_deadline_that_was_known() {
    let alone = Alone::new();
    let _guard = alone.guard();
    let mut service = alone.service();
    let told = alone.lease(600, &alone.remains());
    let armed_at = clock::now();
    alone.bell.ring();
    until("it has read the lease", || alone.said().is_some_and(|said| said.alive_at > armed_at));
    // A daemon that dies in the middle of a write leaves an odd number.
    let mut page = fs::read(alone.path("guard")).unwrap();
    page[16] |= 1;
    page[48] ^= 0xff;
    let file = fs::File::options().write(true).open(alone.path("guard")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &page[..64], 0).unwrap();
    assert_eq!(alone.page.told(), Content::Unreadable);
    until("the service is gone", || !service.lives());
    assert!(clock::now() >= told.deadline);
    alone.until_fired(Fired::Proven);
}

#[test]
fn a_guard_that_finds_only_garbage_takes_the_lease_for_ended() {
    let alone = Alone::new();
    plan::save(alone.directory.path(), &alone.remains(), None, &[]).unwrap();
    let garbage = [0x5a; 512];
    let file = fs::File::options().write(true).open(alone.path("guard")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &garbage, 0).unwrap();
    let _guard = alone.guard();
    let mut service = alone.service();
    until("the service is gone", || !service.lives());
    alone.until_fired(Fired::Proven);
    assert_eq!(alone.reset(), "");
}

#[test]
fn a_guard_that_was_stopped_across_the_deadline_acts_first_when_it_goes_on() {
    let alone = Alone::new();
    let guard = alone.guard();
    let mut service = alone.service();
    let told = alone.lease(2_000, &alone.remains());
    guard.signal(rustix::process::Signal::STOP);
    until("the reset point has passed", || clock::now() > told.deadline.after(told.reset_after));
    assert!(service.lives());
    guard.signal(rustix::process::Signal::CONT);
    until("the service is gone", || !service.lives());
    alone.until_fired(Fired::Proven);
    assert_eq!(alone.reset(), "", "what takes milliseconds is tried before a reset");
}

#[test]
fn a_guard_that_is_told_to_end_ends_at_once_unless_it_is_enforcing() {
    let alone = Alone::new();
    let mut guard = alone.guard();
    alone.lease(60_000, &alone.remains());
    guard.signal(rustix::process::Signal::TERM);
    let (status, text) = guard.ended();
    assert!(status.success() && text.ends_with("ends\n"), "{text}");

    let mut guard = alone.guard();
    let told = alone.lease(50, &Remains { hidden: vec!["share".into()], ..alone.remains() });
    alone.until_fired(Fired::Killing);
    guard.signal(rustix::process::Signal::TERM);
    until("a reset was ordered all the same", || !alone.reset().is_empty());
    assert!(clock::now() >= told.deadline.after(told.reset_after));
    assert!(guard.0.try_wait().unwrap().is_none());
}

#[test]
fn a_watchdog_that_is_missing_is_told_and_the_daemon_can_read_it() {
    let alone = Alone::new();
    let guard = alone.guard();
    let device = alone.path("watchdog0");
    let dog = plan::Dog { device: device.clone(), most: Span::from_secs(5), least: Span::from_secs(2) };
    let plan = plan::save(alone.directory.path(), &alone.remains(), Some(&dog), &[]).unwrap();
    let told = alone.told_idle(plan);
    alone.tell(&told);
    until("it says that it was refused", || alone.said().is_some_and(|said| said.dog == DogState::Refused));
    let mut guard = guard;
    let stderr = BufReader::new(guard.0.stderr.take().unwrap());
    let line = stderr.lines().map_while(Result::ok).find(|line| line.contains("watchdog device"));
    assert!(line.is_some_and(|line| line.contains(&device.display().to_string())));
}

impl Alone {
    fn told_idle(&self, plan: u64) -> Told {
        Told {
            standing: Standing::Idle,
            deadline: clock::now(),
            token: Token(42),
            right: Span::from_secs(60),
            kill_after: Span::ZERO,
            reset_after: Span::from_secs(2),
            beat_within: Span::ZERO,
            plan,
            daemon: 0,
        }
    }
}

#[test]
fn two_guards_of_one_node_are_refused() {
    let alone = Alone::new();
    let _first = alone.guard();
    until("it runs", || alone.said().is_some());
    let (status, text) = alone.guard().ended();
    assert!(!status.success() && text.contains("another guard runs with"), "{text}");
}

/// The real call, where it ends a process namespace and not this machine.
#[test]
fn the_reset_is_a_real_one_seen_from_within_a_process_namespace() {
    let test = "the_reset_is_a_real_one_seen_from_within_a_process_namespace";
    if !need::all(test, &[need::root(), need::program("unshare")]) {
        return;
    }
    let alone = Alone::new();
    let mut command = Command::new("unshare");
    // The guard is not the first process of the namespace; that one would wait for an hour.
    let script = "\"$0\" guard --runtime \"$1\" & sleep 3600";
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]);
    command.arg(env!("CARGO_BIN_EXE_leasehold")).arg(alone.directory.path());
    let mut namespace = Guard(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    until("the guard runs", || alone.said().is_some());
    alone.lease(100, &Remains { hidden: vec!["share".into()], ..alone.remains() });
    let (status, text) = namespace.ended();
    assert!(!status.success(), "the namespace was ended from within: {status}");
    assert!(text.contains("to reset: reboot(2) alone"), "the magic key of the host is out of reach: {text}");
    assert!(text.contains("resetting: lease of token 42 ran out"), "{text}");
}
