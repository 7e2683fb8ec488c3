//! Boot-clock instants and spans in nanoseconds. The core never reads a clock: `now` is an argument.

use std::fmt;

/// A point on CLOCK_BOOTTIME of one machine, in nanoseconds since its boot (protocol section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// Beyond the life of every machine (292 years after its boot), and far enough from the end of the numbers to add to.
    pub const NEVER: Instant = Instant(u64::MAX / 2);
}

/// A length of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub u64);

impl Span {
    pub const ZERO: Span = Span(0);
    /// About 292 years: "no bound", still safe to add to any instant by saturation.
    pub const MAX: Span = Span(u64::MAX / 2);

    pub const fn from_ms(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000))
    }

    pub const fn from_secs(s: u64) -> Span {
        Span(s.saturating_mul(1_000_000_000))
    }

    pub const fn as_ms(self) -> u64 {
        self.0 / 1_000_000
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    pub const fn plus(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// Zero when `other` is longer.
    pub const fn minus(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }

    pub const fn times(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }

    pub const fn half(self) -> Span {
        Span(self.0 / 2)
    }
}

impl Instant {
    pub const fn after(self, span: Span) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }

    /// Zero before boot.
    pub const fn before(self, span: Span) -> Instant {
        Instant(self.0.saturating_sub(span.0))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub const fn since(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl From<std::time::Duration> for Span {
    fn from(d: std::time::Duration) -> Span {
        Span(u64::try_from(d.as_nanos()).unwrap_or(Span::MAX.0))
    }
}

impl From<Span> for std::time::Duration {
    fn from(s: Span) -> std::time::Duration {
        std::time::Duration::from_nanos(s.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.div_ceil(1_000_000);
        match ms {
            0..1000 => write!(f, "{ms}ms"),
            _ if ms.is_multiple_of(1000) => write!(f, "{}s", ms / 1000),
            _ => write!(f, "{}.{:03}s", ms / 1000, ms % 1000),
        }
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1000)
    }
}

/// Everything that the core may wait for. One table, one slot each: what is not here cannot be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// The next heartbeat is due.
    Heartbeat,
    /// The peer becomes doubtful (silence D/2).
    Doubt,
    /// The peer is lost, or this node's turn to shoot has come (silence D, or D + L).
    Lost,
    /// The holder's right ends (protocol section 2, "the right").
    LeaseEnd,
    /// The promise to the peer ends (protocol section 2, "the promise").
    PromiseEnd,
    /// A joiner's patience ends.
    JoinWait,
    /// The next attempt of a take-over is due.
    Retry,
    /// A releaser has waited long enough for the peer to start.
    ReleaseWait,
    /// No `off` of an attempt can still land.
    Settle,
    /// A leaving standby goes without acknowledgement.
    LeaveTimeout,
    /// A node that failed to start its resources may try again.
    StartBackoff,
}

impl Timer {
    pub const ALL: [Timer; 11] = [
        Timer::Heartbeat,
        Timer::Doubt,
        Timer::Lost,
        Timer::LeaseEnd,
        Timer::PromiseEnd,
        Timer::JoinWait,
        Timer::Retry,
        Timer::ReleaseWait,
        Timer::Settle,
        Timer::LeaveTimeout,
        Timer::StartBackoff,
    ];
}

/// The one timer table.
#[derive(Debug, Clone, Hash, Default)]
pub struct Timers {
    due: [Option<Instant>; Timer::ALL.len()],
}

impl Timers {
    /// Sets or moves a timer.
    pub fn set(&mut self, timer: Timer, at: Instant) {
        self.due[timer as usize] = Some(at);
    }

    /// A new step sets its own timers; heartbeats go on.
    pub fn clear_all_but_heartbeat(&mut self) {
        let heartbeat = self.get(Timer::Heartbeat);
        *self = Timers::default();
        self.due[Timer::Heartbeat as usize] = heartbeat;
    }

    pub fn clear(&mut self, timer: Timer) {
        self.due[timer as usize] = None;
    }

    pub fn get(&self, timer: Timer) -> Option<Instant> {
        self.due[timer as usize]
    }

    /// The earliest instant at which anything is due.
    pub fn next(&self) -> Option<Instant> {
        self.due.iter().flatten().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_timer_is_the_next_one() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.set(Timer::Lost, Instant(9));
        timers.set(Timer::Doubt, Instant(4));
        assert_eq!(timers.next(), Some(Instant(4)));
        timers.clear(Timer::Doubt);
        assert_eq!(timers.next(), Some(Instant(9)));
    }

    #[test]
    fn every_timer_has_its_own_slot() {
        for (i, timer) in Timer::ALL.iter().enumerate() {
            assert_eq!(*timer as usize, i);
        }
    }

    #[test]
    fn spans_read_as_people_write_them() {
        assert_eq!(Span::from_ms(250).to_string(), "250ms");
        assert_eq!(Span::from_ms(1500).to_string(), "1.500s");
        assert_eq!(Span::from_secs(12).to_string(), "12s");
        assert_eq!(Span(1).to_string(), "1ms");
    }
}
