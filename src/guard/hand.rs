//! The thread that acts: cut, kill, look. Whatever hangs here, the thread that watches the clock goes on to the reset.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use super::plan::Plan;
use super::scan::Scan;
use super::{cgroup, manager};
use crate::core::Instant;
use crate::os::net::cut::Cutter;
use crate::os::net::withdraw::Withdrawer;

const REST: u8 = 0;
const CUT: u8 = 1;
const KILL: u8 = 2;
/// No deadline lies 585 years ahead.
const NEVER: u64 = u64::MAX;
/// The calls below need little; the table of processes lies elsewhere.
const STACK: usize = 128 << 10;
/// A plan with more units than this is never proven to be done.
const UNITS: usize = 64;

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
    /// The plan is another one since the acting thread last made ready.
    renewed: AtomicBool,
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
    cutter: Option<Cutter>,
    route: Option<Withdrawer>,
    /// The episode that has begun, with its cut.
    begun: u64,
    /// Of which units the manager knows in this episode that they are to stop.
    asked: [bool; UNITS],
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
            renewed: AtomicBool::new(false),
        });
        let (scan, route) = (Scan::new()?, Withdrawer::prepare().ok());
        let mut tools = Tools { scan, cutter: None, route, begun: NEVER, asked: [false; UNITS] };
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

    /// The plan was exchanged: [`Hand::is_ready`] when all that it needs has been made.
    pub fn renew(&self) {
        self.orders.renewed.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }

    pub fn is_ready(&self) -> bool {
        !self.orders.renewed.load(Ordering::SeqCst)
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
            if orders.renewed.load(Ordering::SeqCst) {
                self.take_over(&orders.plan.lock().unwrap_or_else(PoisonError::into_inner));
                orders.renewed.store(false, Ordering::SeqCst);
            }
            let step = orders.step.swap(REST, Ordering::SeqCst);
            if step == REST {
                std::thread::park();
                continue;
            }
            let episode = orders.episode.load(Ordering::SeqCst);
            let plan = orders.plan.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::replace(&mut self.begun, episode) != episode {
                self.begin();
            }
            if step == KILL {
                let clean = self.end_everything(&plan, orders.daemon.load(Ordering::SeqCst));
                orders.nothing_left.store(if clean { episode } else { NEVER }, Ordering::SeqCst);
            }
        }
    }

    /// The plan is new: what its cut needs is made now, while there is time.
    fn take_over(&mut self, plan: &Plan) {
        let clients = plan.clients();
        if self.cutter.as_ref().map(Cutter::spec) != clients.as_ref() {
            self.cutter = clients.map(Cutter::attach);
        }
    }

    /// What cannot be cut is killed: there is nobody here to tell.
    fn begin(&mut self) {
        self.asked = [false; UNITS];
        if let Some(cutter) = &mut self.cutter {
            cutter.cut();
        }
    }

    /// Kills, takes the addresses away, and looks twice: `true` when nothing is left and everything could be seen.
    fn end_everything(&mut self, plan: &Plan, daemon: i32) -> bool {
        plan.units().for_each(cgroup::kill_unit);
        plan.cgroups().for_each(cgroup::kill);
        let first = self.look_and_kill(plan, daemon);
        let addresses = self.remove_addresses(plan);
        let units = self.tell_managers(plan);
        let second = self.look_and_kill(plan, daemon);
        let groups = plan.cgroups().all(cgroup::is_empty) && plan.units().all(cgroup::is_unit_empty);
        plan.can_prove() && units && first && second && addresses && groups
    }

    /// Whether the manager starts none of the units again: it is told once, and whenever one is back. After all else, for a
    /// manager that hangs holds this up.
    fn tell_managers(&mut self, plan: &Plan) -> bool {
        for (unit, asked) in plan.units().zip(&mut self.asked) {
            if !*asked || !cgroup::is_unit_empty(unit) {
                *asked = manager::stop(unit);
                cgroup::kill_unit(unit);
            }
        }
        plan.units().enumerate().all(|(place, _)| self.asked.get(place).is_some_and(|asked| *asked))
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

    fn remove_addresses(&mut self, plan: &Plan) -> bool {
        // All of them, whatever becomes of one.
        plan.addresses().fold(true, |gone, address| {
            let answer = self.route.as_mut().map(|route| route.withdraw(address));
            gone & (answer == Some(Ok(true)))
        })
    }

    /// Everything but the effects: an empty plan marks, kills and removes nothing.
    fn rehearse(&mut self, orders: &Orders) {
        let plan = orders.plan.lock().unwrap_or_else(PoisonError::into_inner);
        self.end_everything(&plan, 0);
        cgroup::kill(b"/nonexistent");
        cgroup::is_empty(b"/nonexistent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
