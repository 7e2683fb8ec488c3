//! Looks at the lease of a primary from outside, a thousand times a second, in the page that its guard reads.
//!
//! A lease ends T − M after the *sending* of the heartbeat whose grant renewed it. So each new deadline says when that
//! was, and the age of a renewal is the oldest that the right to act ever was: nobody has to be asked.
//!
//! ```text
//!   sent ─────────── granted: deadline = sent + (T − M) ──── the next deadline is seen
//!     └──────────────────────── age ─────────────────────────────────┘
//! ```

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::core::{Instant, Span};
use leasehold::os::clock;
use leasehold::os::shared::{Content, Shared};
use leasehold::os::stall::StallMeter;

const LOOK: Duration = Duration::from_millis(1);

/// What was seen.
#[derive(Default)]
pub struct Seen {
    /// How old the right was each time that it was renewed.
    pub ages: Vec<Span>,
    /// How late the watch itself was.
    pub late: StallMeter,
}

impl Seen {
    pub fn oldest(&self) -> Span {
        self.ages.iter().copied().max().unwrap_or_default()
    }

    pub fn median(&self) -> Span {
        let mut ages = self.ages.clone();
        ages.sort_unstable();
        ages.get(ages.len() / 2).copied().unwrap_or_default()
    }
}

pub struct Watch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Watch {
    pub fn start(page: Shared) -> Watch {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            // Before daemon and guard: it must not take its own lateness for theirs.
            crate::schedule(rustix::thread::gettid(), "--fifo", 30);
            let mut seen = Seen::default();
            let mut last = None;
            while !told.load(Ordering::SeqCst) {
                let due = clock::now().after(LOOK.into());
                std::thread::sleep(LOOK);
                seen.late.note(due, clock::now());
                look(&page, &mut last, &mut seen);
            }
            seen
        });
        Watch { ends, thread }
    }

    pub fn end(self) -> Seen {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().expect("the watch does not panic")
    }
}

/// Caught in the middle of a write, the page is read again at the next look.
fn look(page: &Shared, last: &mut Option<Instant>, seen: &mut Seen) {
    let Content::Told(told) = page.told() else { return };
    let sent = Instant(told.deadline.0.saturating_sub(told.right.0));
    match last.replace(sent) {
        Some(before) if before != sent => seen.ages.push(clock::now().since(before)),
        Some(_) | None => {}
    }
}

/// The policy of a unit, for one thread.
pub fn set_policy(thread: rustix::process::Pid, policy: &str, priority: u32) -> bool {
    let id = thread.as_raw_nonzero().to_string();
    let mut command = Command::new("chrt");
    command.args(["--reset-on-fork", policy, "--pid", &priority.to_string(), &id]);
    command.status().is_ok_and(|status| status.success())
}
