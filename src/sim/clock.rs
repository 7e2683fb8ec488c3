//! The clock of one guest: CLOCK_BOOTTIME as the daemon reads it, against the true time of the world.
//!
//! It drifts, it counts a suspend, and it does not count the time for which a hypervisor stops the guest.

use crate::core::Instant;

/// What the boot clock shows when the kernel has come up: booting itself took some of it.
const AT_BOOT: u64 = 5_000_000_000;

/// BOOTTIME of one life of a machine.
#[derive(Debug, Clone)]
pub struct Clock {
    /// True time at which the clock showed `AT_BOOT`, moved on by every hypervisor pause.
    origin: u64,
    /// Parts per million that this clock runs fast (or, below zero, slow).
    ppm: i64,
    /// True time at which the hypervisor stopped the guest.
    stopped: Option<u64>,
}

impl Clock {
    pub fn booted(at: u64, ppm: i64) -> Clock {
        Clock { origin: at, ppm, stopped: None }
    }

    /// What the guest reads at this true time.
    pub fn read(&self, now: u64) -> Instant {
        let passed = self.stopped.unwrap_or(now).saturating_sub(self.origin);
        Instant(AT_BOOT + scaled(passed, self.ppm))
    }

    /// The earliest true time at which the guest reads at least `instant`, if nothing stops it meanwhile.
    pub fn true_time_of(&self, instant: Instant) -> u64 {
        let wanted = instant.0.saturating_sub(AT_BOOT);
        let rate = (1_000_000 + self.ppm).max(1) as u128;
        let exact = (u128::from(wanted) * 1_000_000 / rate) as u64;
        // The division and the scaling each round: the earliest moment lies within a few nanoseconds.
        let mut passed = exact.saturating_sub(3);
        while scaled(passed, self.ppm) < wanted {
            passed += 1;
        }
        self.origin.saturating_add(passed)
    }

    /// The hypervisor stops the guest: the clock stands still and nobody inside notices.
    pub fn stop(&mut self, now: u64) {
        self.stopped.get_or_insert(now);
    }

    /// The hypervisor lets the guest go on.
    pub fn go_on(&mut self, now: u64) {
        if let Some(since) = self.stopped.take() {
            self.origin += now - since;
        }
    }
}

/// `passed` made longer by `ppm` parts per million, without overflow for some thousand years.
fn scaled(passed: u64, ppm: i64) -> u64 {
    let (whole, part) = ((passed / 1_000_000) as i64, (passed % 1_000_000) as i64);
    passed.saturating_add_signed(whole * ppm + part * ppm / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_time_is_the_earliest_at_which_the_guest_has_reached_the_instant() {
        for ppm in [-5000, -200, -1, 0, 1, 200, 5000] {
            let clock = Clock::booted(17, ppm);
            for wanted in [AT_BOOT, AT_BOOT + 1, AT_BOOT + 999_999, AT_BOOT + 77_123_456_789] {
                let at = clock.true_time_of(Instant(wanted));
                assert!(clock.read(at).0 >= wanted, "{ppm} {wanted}");
                assert!(at < 21 || clock.read(at - 4).0 < wanted, "{ppm} {wanted}");
            }
        }
    }

    #[test]
    fn a_hypervisor_pause_is_invisible_to_the_guest() {
        let mut clock = Clock::booted(0, 0);
        clock.stop(1_000);
        assert_eq!(clock.read(9_000), clock.read(1_000));
        clock.go_on(9_000);
        assert_eq!(clock.read(9_500), Instant(AT_BOOT + 1_500));
    }
}
