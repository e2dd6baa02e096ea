//! Ends a broker that no longer turns.
//!
//! The broker's runtime sends a beat each second. The warden counts its own rounds without one,
//! not time: while the machine is suspended, or the warden itself is stopped, no rounds pass.

use std::time::Duration;

use rustix::process::Signal;

/// Between two looks, when nothing happens.
pub(super) const ROUND: Duration = Duration::from_secs(1);

/// Rounds that a broker has to die of SIGABRT, which may write a core file.
const ABORT_ROUNDS: u32 = 5;

#[derive(Debug)]
pub(super) struct Watchdog {
    /// None: no watchdog.
    limit: Option<u32>,
    silent: u32,
    bit: bool,
}

impl Watchdog {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self {
            limit: limit.map(|limit| u32::try_from(limit.as_secs()).unwrap_or(u32::MAX).max(1)),
            silent: 0,
            bit: false,
        }
    }

    /// The broker turns. One that has been sent its end gets no second life.
    pub(super) fn beat(&mut self) {
        if !self.bit {
            self.silent = 0;
        }
    }

    /// A round has passed; what to send.
    pub(super) fn round(&mut self) -> Option<Signal> {
        let limit = self.limit?;
        self.silent = self.silent.saturating_add(1);
        if self.silent < limit {
            None
        } else if !self.bit {
            self.bit = true;
            Some(Signal::ABORT)
        } else {
            (self.silent >= limit.saturating_add(ABORT_ROUNDS)).then_some(Signal::KILL)
        }
    }

    /// Whether it has ended the broker.
    pub(super) fn bit(&self) -> bool {
        self.bit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(dog: &mut Watchdog, count: u32) -> Vec<Option<Signal>> {
        (0..count).map(|_| dog.round()).collect()
    }

    #[test]
    fn a_broker_that_beats_is_left_alone_and_one_that_does_not_is_aborted_then_killed() {
        let mut dog = Watchdog::new(Some(Duration::from_secs(3)));
        for _ in 0..10 {
            assert_eq!(rounds(&mut dog, 2), [None, None]);
            dog.beat();
        }
        assert_eq!(rounds(&mut dog, 3), [None, None, Some(Signal::ABORT)]);
        dog.beat();
        assert_eq!(rounds(&mut dog, 4), [None; 4]);
        assert_eq!(rounds(&mut dog, 2), [Some(Signal::KILL); 2]);
        assert!(dog.bit());
    }

    #[test]
    fn without_a_limit_nothing_is_sent() {
        let mut dog = Watchdog::new(None);
        assert_eq!(rounds(&mut dog, 1000), vec![None; 1000]);
        assert!(!dog.bit());
    }
}
