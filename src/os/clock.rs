//! The clocks. Protocol time is CLOCK_BOOTTIME (protocol section 2): it counts the suspend of this machine, no
//! administrator sets it, and it means nothing on another machine. Wall time is for journal lines only.
//!
//! No other file reads a clock. tokio's own timers run on CLOCK_MONOTONIC, which stands still in suspend: they may wake
//! somebody up, but whoever decides something reads [`now`] first, and waits with an [`Alarm`].

use std::io;

use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

use super::sys::Watched;
use crate::core::{Instant, Span};

const NS_PER_SECOND: u64 = 1_000_000_000;

/// The present instant on the boot clock.
pub fn now() -> Instant {
    let t = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(t.tv_sec).expect("the boot clock starts at zero");
    let nanoseconds = u64::try_from(t.tv_nsec).expect("the kernel gives 0 to 999 999 999");
    Instant(seconds * NS_PER_SECOND + nanoseconds)
}

/// Wall time: for people who read journals. It jumps; nothing may be decided by it.
pub fn wall() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// Sees the wall clock jump forward against the boot clock. A guest that its hypervisor stopped has no clock of its own that
/// noticed; what sets its wall clock right afterwards gives it away. So does an administrator who sets the time.
#[derive(Debug)]
pub struct WallCheck {
    /// Wall time less boot time, in nanoseconds.
    ahead: i128,
}

impl WallCheck {
    pub fn new() -> WallCheck {
        WallCheck { ahead: wall_ahead() }
    }

    /// How far the wall clock jumped forward since the last look; it may be set back at will.
    pub fn jump(&mut self) -> Span {
        self.jump_to(wall_ahead())
    }

    fn jump_to(&mut self, ahead: i128) -> Span {
        let before = std::mem::replace(&mut self.ahead, ahead);
        Span(u64::try_from((ahead - before).max(0)).unwrap_or(Span::MAX.0))
    }
}

impl Default for WallCheck {
    fn default() -> WallCheck {
        WallCheck::new()
    }
}

/// A process that is held up between two readings takes no step for a jump: they stand so close together, or are read again.
fn wall_ahead() -> i128 {
    const CLOSE: Span = Span::from_ms(1);
    loop {
        let (before, wall, after) = (now(), wall().as_nanosecond(), now());
        if after.since(before) < CLOSE {
            return wall - i128::from(after.0);
        }
    }
}

/// Fires at an instant of the boot clock, also when that passed while the machine slept.
#[derive(Debug)]
pub struct Alarm {
    timer: Watched,
}

impl Alarm {
    /// An alarm that is not set. Needs a tokio runtime with its I/O driver.
    ///
    /// # Errors
    /// No file descriptor is left, or the kernel has no timerfd.
    pub fn new() -> io::Result<Alarm> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Alarm { timer: Watched::readable(fd)? })
    }

    /// Sets, moves or (with `None`) clears the alarm. What it was set to before is forgotten, even if it has passed.
    pub fn set(&self, at: Option<Instant>) {
        let timer = Itimerspec { it_interval: ZERO, it_value: at.map_or(ZERO, timespec) };
        timerfd_settime(self.timer.get().get_ref(), TimerfdTimerFlags::ABSTIME, &timer)
            .expect("a timerfd takes every normalised time");
    }

    /// Waits until the alarm fires. Cancel-safe: an alarm that fired unseen is seen by the next call.
    pub async fn fired(&self) {
        loop {
            let Ok(mut ready) = self.timer.get().readable().await else {
                // The runtime is going down: nobody will be woken any more.
                return std::future::pending().await;
            };
            let read = ready.try_io(|fd| rustix::io::read(fd.get_ref(), &mut [0; 8]).map_err(io::Error::from));
            match read {
                Ok(Ok(_)) => return,
                Ok(Err(e)) => assert!(e.raw_os_error() == Some(Errno::INTR.raw_os_error()), "reading a timerfd: {e}"),
                // Set anew since it became readable: wait for the new time.
                Err(_would_block) => {}
            }
        }
    }
}

const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Zero would disarm the timer, so the first nanosecond of the boot stands for it: passed, and therefore at once.
fn timespec(at: Instant) -> Timespec {
    let ns = at.0.max(1);
    Timespec {
        tv_sec: i64::try_from(ns / NS_PER_SECOND).expect("u64 nanoseconds are at most 585 years"),
        tv_nsec: i64::try_from(ns % NS_PER_SECOND).expect("below a thousand million"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Longer than any scheduler delay of a busy test machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    async fn fires(alarm: &Alarm) -> bool {
        tokio::time::timeout(PATIENCE, alarm.fired()).await.is_ok()
    }

    async fn stays_quiet(alarm: &Alarm) -> bool {
        tokio::time::timeout(Duration::from_millis(60), alarm.fired()).await.is_err()
    }

    #[tokio::test]
    async fn an_alarm_fires_not_before_its_time() {
        let alarm = Alarm::new().unwrap();
        let due = now().after(Span::from_ms(30));
        alarm.set(Some(due));
        assert!(fires(&alarm).await);
        assert!(now() >= due);
        assert!(stays_quiet(&alarm).await, "it fires once");
    }

    #[tokio::test]
    async fn an_alarm_set_to_the_past_or_to_zero_fires_at_once() {
        let alarm = Alarm::new().unwrap();
        for past in [Instant(0), Instant(1), now()] {
            alarm.set(Some(past));
            assert!(fires(&alarm).await);
        }
    }

    #[tokio::test]
    async fn a_cleared_or_moved_alarm_does_not_fire_although_its_old_time_passed() {
        let alarm = Alarm::new().unwrap();
        alarm.set(Some(Instant(0)));
        alarm.set(None);
        assert!(stays_quiet(&alarm).await);
        alarm.set(Some(Instant(0)));
        tokio::task::yield_now().await;
        alarm.set(Some(now().after(Span::from_secs(3600))));
        assert!(stays_quiet(&alarm).await);
        alarm.set(Some(Instant(u64::MAX)));
        assert!(stays_quiet(&alarm).await);
    }

    #[tokio::test]
    async fn an_alarm_that_fired_while_nobody_waited_is_not_lost() {
        let alarm = Alarm::new().unwrap();
        alarm.set(Some(now()));
        assert!(tokio::time::timeout(Duration::ZERO, std::future::pending::<()>()).await.is_err());
        assert!(fires(&alarm).await);
    }

    #[test]
    fn the_boot_clock_never_goes_back() {
        let mut last = now();
        for _ in 0..10_000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn only_a_wall_clock_that_goes_forward_has_jumped_and_each_jump_once() {
        let mut check = WallCheck { ahead: 1_000 };
        assert_eq!(check.jump_to(1_000), Span::ZERO);
        assert_eq!(check.jump_to(5_000_001_000), Span::from_secs(5));
        assert_eq!(check.jump_to(5_000_001_000), Span::ZERO);
        assert_eq!(check.jump_to(-7_000), Span::ZERO, "set back");
        assert_eq!(check.jump_to(-6_000), Span(1_000));
        assert_eq!(WallCheck { ahead: i128::MIN / 4 }.jump_to(i128::MAX / 4), Span::MAX);
    }
}
