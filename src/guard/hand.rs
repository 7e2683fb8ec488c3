//! The thread that acts: cut, kill, look. Whatever hangs here, the thread that watches the clock goes on to the reset.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::plan::Plan;
use super::scan::{Name, Scan};
use crate::core::Instant;
use crate::os::netlink::{Family, Netlink, is_gone};

const REST: u8 = 0;
const CUT: u8 = 1;
const KILL: u8 = 2;
/// No deadline lies 585 years ahead.
const NEVER: u64 = u64::MAX;
/// The calls below need little; the table of processes lies elsewhere.
const STACK: usize = 128 << 10;

/// What both threads share.
#[derive(Debug)]
struct Orders {
    step: AtomicU8,
    /// The deadline for which `step` was ordered.
    episode: AtomicU64,
    /// The deadline since which nothing was left at the last look; [`NEVER`]: something was, or nobody has looked.
    nothing_left: AtomicU64,
    daemon: AtomicI32,
    plan: Mutex<Plan>,
}

/// The watching thread's hold on the acting one.
#[derive(Debug)]
pub struct Hand {
    orders: Arc<Orders>,
    thread: Thread,
}

/// The acting thread's own.
#[derive(Debug)]
struct Tools {
    scan: Scan,
    netfilter: Option<Netlink>,
    route: Option<Netlink>,
    /// The episode whose cut was sent.
    cut: u64,
}

impl Hand {
    /// Starts the thread, and has it go through its motions once: the pages that it needs are in memory from then on.
    ///
    /// # Errors
    /// `/proc` is missing, or no thread can be started.
    pub fn start() -> std::io::Result<Hand> {
        let orders = Arc::new(Orders {
            step: AtomicU8::new(REST),
            episode: AtomicU64::new(NEVER),
            nothing_left: AtomicU64::new(NEVER),
            daemon: AtomicI32::new(0),
            plan: Mutex::new(Plan::none()),
        });
        let netlink = |family| Netlink::open(family).ok();
        let (netfilter, route) = (netlink(Family::Netfilter), netlink(Family::Route));
        let mut tools = Tools { scan: Scan::new()?, netfilter, route, cut: NEVER };
        tools.rehearse(&orders);
        let theirs = Arc::clone(&orders);
        let builder = std::thread::Builder::new().name("hand".to_owned()).stack_size(STACK);
        let thread = builder.spawn(move || tools.work(&theirs))?.thread().clone();
        Ok(Hand { orders, thread })
    }

    /// Refuse and reset the clients.
    pub fn cut(&self, deadline: Instant) {
        self.order(CUT, deadline);
    }

    /// End everything, then look. Also orders the cut, if that was not done.
    pub fn kill(&self, deadline: Instant) {
        self.order(KILL, deadline);
    }

    pub fn rest(&self) {
        self.orders.step.store(REST, Ordering::SeqCst);
    }

    /// Whether nothing was left at the last look that was ordered for this deadline.
    pub fn saw_nothing_left(&self, deadline: Instant) -> bool {
        self.orders.nothing_left.load(Ordering::SeqCst) == deadline.0
    }

    pub fn spare(&self, daemon: u32) {
        self.orders.daemon.store(daemon.cast_signed(), Ordering::SeqCst);
    }

    /// The plan, unless the hand is using it just now.
    pub fn plan(&self) -> Option<MutexGuard<'_, Plan>> {
        self.orders.plan.try_lock().ok()
    }

    fn order(&self, step: u8, deadline: Instant) {
        self.orders.episode.store(deadline.0, Ordering::SeqCst);
        self.orders.step.store(step, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Tools {
    fn work(&mut self, orders: &Orders) {
        loop {
            let step = orders.step.swap(REST, Ordering::SeqCst);
            if step == REST {
                std::thread::park();
                continue;
            }
            let episode = orders.episode.load(Ordering::SeqCst);
            let plan = orders.plan.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::replace(&mut self.cut, episode) != episode {
                self.send_cuts(&plan);
            }
            if step == KILL {
                let clean = self.end_everything(&plan, orders.daemon.load(Ordering::SeqCst));
                orders.nothing_left.store(if clean { episode } else { NEVER }, Ordering::SeqCst);
            }
        }
    }

    fn send_cuts(&self, plan: &Plan) {
        let Some(netfilter) = &self.netfilter else { return };
        // What cannot be cut is killed: there is nobody here to tell.
        for batch in plan.cuts() {
            let _ = netfilter.ask(batch);
        }
    }

    /// Kills, takes the addresses away, and looks twice: `true` when nothing is left and everything could be seen.
    fn end_everything(&mut self, plan: &Plan, daemon: i32) -> bool {
        plan.cgroups().for_each(kill_cgroup);
        let first = self.look_and_kill(plan, daemon);
        let addresses = self.remove_addresses(plan);
        let second = self.look_and_kill(plan, daemon);
        let cgroups = plan.cgroups().all(is_empty);
        plan.can_prove() && first && second && addresses && cgroups
    }

    fn look_and_kill(&mut self, plan: &Plan, daemon: i32) -> bool {
        match self.scan.look(plan, daemon) {
            Ok(0) => true,
            Ok(_) => {
                self.scan.kill();
                false
            }
            Err(_) => false,
        }
    }

    fn remove_addresses(&self, plan: &Plan) -> bool {
        // All of them, whatever becomes of one.
        plan.addresses().fold(true, |gone, message| {
            let answer = self.route.as_ref().map(|route| route.ask(message));
            gone & answer.is_some_and(is_gone)
        })
    }

    /// Everything but the effects: an empty plan marks, kills and removes nothing.
    fn rehearse(&mut self, orders: &Orders) {
        let plan = orders.plan.lock().unwrap_or_else(PoisonError::into_inner);
        self.end_everything(&plan, 0);
        kill_cgroup(b"/nonexistent");
        is_empty(b"/nonexistent");
    }
}

fn kill_cgroup(path: &[u8]) {
    if let Some(file) = open(path, b"/cgroup.kill", OFlags::WRONLY) {
        let _ = rustix::io::write(&file, b"1");
    }
}

/// A cgroup that does not exist has no processes.
fn is_empty(path: &[u8]) -> bool {
    let Some(file) = open(path, b"/cgroup.events", OFlags::RDONLY) else {
        return rustix::fs::accessat(
            CWD,
            Name::new().with(path),
            rustix::fs::Access::EXISTS,
            rustix::fs::AtFlags::empty(),
        ) == Err(rustix::io::Errno::NOENT);
    };
    let mut text = [0; 256];
    let Ok(length) = rustix::io::read(&file, &mut text) else { return false };
    text[..length].split(|byte| *byte == b'\n').any(|line| line == b"populated 0")
}

fn open(path: &[u8], file: &[u8], flags: OFlags) -> Option<OwnedFd> {
    openat(CWD, Name::new().push(path).with(file), flags | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_empty_by_the_kernels_word_or_because_it_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str().as_encoded_bytes();
        assert!(!is_empty(path), "a directory that says nothing proves nothing");
        std::fs::write(dir.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert!(!is_empty(path));
        std::fs::write(dir.path().join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert!(is_empty(path));
        assert!(is_empty(b"/nonexistent/cgroup"));
        std::fs::write(dir.path().join("cgroup.kill"), "").unwrap();
        kill_cgroup(path);
        assert_eq!(std::fs::read(dir.path().join("cgroup.kill")).unwrap(), b"1");
    }

    #[test]
    fn without_a_plan_nothing_is_proven_by_looking() {
        let hand = Hand::start().unwrap();
        hand.kill(Instant(7));
        while hand.orders.step.load(Ordering::SeqCst) != REST {
            std::thread::yield_now();
        }
        drop(hand.orders.plan.lock().unwrap());
        assert!(!hand.saw_nothing_left(Instant(7)));
    }
}
