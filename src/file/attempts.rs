//! When a request of a server is sent again: one policy for reads, objects and commits.

use std::time::{Duration, Instant};

/// Pause after the first attempt that failed; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Attempts to connect before the first answer: a wrong host name is reported soon.
pub const FIRST_CONNECTS_MAX: u32 = 3;

/// Why an attempt failed.
#[derive(Debug, Clone, Copy)]
pub struct Failed {
    /// Another attempt may succeed.
    pub is_transient: bool,
    /// The server could not be connected to.
    pub is_connect: bool,
    /// It has answered before.
    pub was_connected: bool,
}

/// Attempts of one request that failed.
#[derive(Debug, Default)]
pub struct Attempts {
    failed: u32,
    connects: u32,
}

impl Attempts {
    /// Notes that the last attempt got a part of the answer.
    pub fn restart(&mut self) {
        self.failed = 0;
    }

    /// The pause before the next attempt, after one more failed: doubled each time, with a random
    /// half.
    pub fn pause(&mut self) -> Duration {
        let full = PAUSE_MIN.saturating_mul(1 << self.failed.min(10)).min(PAUSE_MAX);
        self.failed = self.failed.saturating_add(1);
        let mut random = [0u8; 1];
        // Without randomness, the pause is half.
        let _ = getrandom::fill(&mut random);
        full / 2 + (full / 2).saturating_mul(u32::from(random[0])) / 256
    }

    /// The pause before the next attempt, which begins before `deadline`; `None`: there is none.
    pub fn pause_before(&mut self, deadline: Instant, failed: Failed) -> Option<Duration> {
        self.connects = self.connects.saturating_add(u32::from(failed.is_connect));
        let is_hopeless = !failed.was_connected && self.connects >= FIRST_CONNECTS_MAX;
        let pause = self.pause();
        let begins = Instant::now().checked_add(pause);
        (failed.is_transient && !is_hopeless && begins.is_some_and(|at| at <= deadline)).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut attempts = Attempts::default();
        for full in [PAUSE_MIN, PAUSE_MIN * 2, PAUSE_MIN * 4] {
            let pause = attempts.pause();
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        }
        let last = (0..100).map(|_| attempts.pause()).last().unwrap();
        assert!(last >= PAUSE_MAX / 2 && last <= PAUSE_MAX);
        attempts.restart();
        assert!(attempts.pause() <= PAUSE_MIN);
    }

    #[test]
    fn attempts_end_at_the_deadline_by_hopeless_connections_and_by_final_failures() {
        let later = Instant::now() + Duration::from_secs(60);
        let transient = Failed { is_transient: true, is_connect: false, was_connected: false };
        assert!(Attempts::default().pause_before(later, transient).is_some());
        assert!(Attempts::default().pause_before(Instant::now(), transient).is_none());
        assert!(Attempts::default().pause_before(later, Failed { is_transient: false, ..transient }).is_none());
        for was_connected in [false, true] {
            let (mut attempts, connect) = (Attempts::default(), Failed { is_connect: true, was_connected, ..transient });
            let most = (0..10).take_while(|_| attempts.pause_before(later, connect).is_some()).count();
            assert!(if was_connected { most >= 4 } else { most == 2 }, "{most}");
        }
    }
}
