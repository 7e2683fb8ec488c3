//! Waits for an instant of the boot clock, a bell or the word to end, in a thread without a runtime. No call of it
//! allocates once it is made.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::bell::Bell;
use crate::core::Instant;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Woken {
    /// The instant has come.
    pub due: bool,
    /// SIGTERM or SIGINT has come, now or before.
    pub told_to_end: bool,
}

/// A timer, a bell and the signals that end a process.
#[derive(Debug)]
pub struct Sleeper {
    timer: OwnedFd,
    bell: Bell,
    signals: OwnedFd,
    told_to_end: bool,
}

impl Sleeper {
    /// From here on SIGTERM and SIGINT end this process no more: the waits tell of them. Call it before any thread starts.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(bell: Bell) -> io::Result<Sleeper> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Sleeper { timer, bell, signals: ending_signals()?, told_to_end: false })
    }

    /// Returns at `until`, at once if that has passed, or earlier for a reason. A failing wait returns as well.
    pub fn wait(&mut self, until: Instant) -> Woken {
        let ns = until.0.max(1);
        let at = Timespec {
            tv_sec: i64::try_from(ns / NS_PER_SECOND).expect("u64 nanoseconds are at most 585 years"),
            tv_nsec: i64::try_from(ns % NS_PER_SECOND).expect("below a thousand million"),
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer)
            .expect("a timerfd takes every normalised time");
        let due = self.poll();
        let mut ticks = [0; 8];
        let due = due && rustix::io::read(&self.timer, &mut ticks).is_ok();
        Woken { due, ..self.heard() }
    }

    fn poll(&self) -> bool {
        let mut all = [
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
            PollFd::new(&self.signals, if self.told_to_end { PollFlags::empty() } else { PollFlags::IN }),
        ];
        let _ = poll(&mut all, None);
        all[0].revents().contains(PollFlags::IN)
    }

    fn heard(&mut self) -> Woken {
        self.bell.hush();
        // One record of signalfd_siginfo has 128 bytes.
        let mut record = [0; 128];
        self.told_to_end |= rustix::io::read(&self.signals, &mut record).is_ok();
        Woken { due: false, told_to_end: self.told_to_end }
    }
}

fn ending_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is filled by sigemptyset before it is used, and every call is given valid pointers only.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::other("signals cannot be blocked"));
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Span;
    use crate::os::clock;

    #[test]
    fn a_wait_ends_at_its_instant_at_once_for_a_passed_one_and_early_for_the_bell() {
        let dir = tempfile::tempdir().unwrap();
        let mut sleeper = Sleeper::new(Bell::open(dir.path()).unwrap()).unwrap();
        let due = clock::now().after(Span::from_ms(30));
        while !sleeper.wait(due).due {}
        assert!(clock::now() >= due);
        assert!(sleeper.wait(Instant(0)).due);
        Bell::open(dir.path()).unwrap().ring();
        assert!(!sleeper.wait(clock::now().after(Span::from_secs(3600))).due);
    }
}
