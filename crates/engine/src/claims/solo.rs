//! When suspects have their turn to run alone.
//!
//! Others are kept waiting while the runs beside a suspect are waited for, and while it runs. What
//! holds:
//! - After others were kept waiting for `d` they have at least `d` for themselves, also between two
//!   suspects: solo runs take at most half of a replica's time.
//! - A suspect for which the runs beside it do not end in time gives way, and is more patient the
//!   next time. Nothing new is started while it waits: once its patience exceeds what the longest
//!   run still takes, it is alone. So each suspect has its run.
//! - Time in which nobody may be claimed anyway (held, no room, no store) is no suspect's.

use std::time::Duration;

use tokio::time::Instant;

/// How long others are kept waiting at first for a suspect to be alone.
const PATIENCE: Duration = Duration::from_secs(60);
/// No action's timeout is longer.
const MAX_PATIENCE: Duration = Duration::from_hours(7 * 24);

/// Since when, and for what, others are kept waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// For the runs beside a suspect to end.
    Waiting(Instant),
    /// For a suspect that runs; since it was waited for.
    Running(Instant),
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Anybody's but a suspect's; one that is due may have its turn after so long.
    Others(Option<Duration>),
    /// A suspect's, and nothing runs.
    Suspect,
    /// A suspect's, who is not alone yet; others are kept waiting for so long at most.
    Waits(Duration),
}

/// See the module.
#[derive(Debug)]
pub(super) struct SoloClock {
    phase: Option<Phase>,
    not_before: Option<Instant>,
    patience: Duration,
}

impl Default for SoloClock {
    fn default() -> Self {
        Self {
            phase: None,
            not_before: None,
            patience: PATIENCE,
        }
    }
}

impl SoloClock {
    /// A suspect runs alone now.
    pub(super) fn runs(&mut self, now: Instant) {
        let since = match self.phase {
            Some(Phase::Waiting(since) | Phase::Running(since)) => since,
            None => now,
        };
        self.phase = Some(Phase::Running(since));
    }

    /// Whether one did when it was last looked.
    pub(super) fn ran(&self) -> bool {
        matches!(self.phase, Some(Phase::Running(_)))
    }

    /// A suspect was claimed.
    pub(super) fn claimed(&mut self, now: Instant) {
        self.patience = PATIENCE;
        self.runs(now);
    }

    /// Others are kept waiting no longer, and have as much time for themselves.
    pub(super) fn rest(&mut self, now: Instant) {
        if let Some(Phase::Waiting(since) | Phase::Running(since)) = self.phase.take() {
            let until = now + now.duration_since(since);
            self.not_before = self.not_before.max(Some(until));
        }
    }

    /// Nobody may be claimed just now, for another reason.
    pub(super) fn suspend(&mut self, now: Instant) {
        let ran = self.ran();
        self.rest(now);
        if ran {
            self.runs(now);
        }
    }

    /// Whose turn it is where nobody runs alone. `due`: a suspect has been due for longest.
    pub(super) fn turn(&mut self, due: bool, driving: u32, now: Instant) -> Turn {
        if !due || self.rests(now).is_some() {
            return self.others(due, now);
        }
        let since = match self.phase {
            Some(Phase::Waiting(since) | Phase::Running(since)) => since,
            None => now,
        };
        if driving == 0 {
            return Turn::Suspect;
        }
        self.phase = Some(Phase::Waiting(since));
        let left = self.patience.saturating_sub(now.duration_since(since));
        if !left.is_zero() {
            return Turn::Waits(left);
        }
        self.patience = self.patience.saturating_mul(2).min(MAX_PATIENCE);
        self.others(due, now)
    }

    fn others(&mut self, due: bool, now: Instant) -> Turn {
        self.rest(now);
        Turn::Others(self.rests(now).filter(|_| due))
    }

    /// For how long no suspect may have its turn yet.
    fn rests(&self, now: Instant) -> Option<Duration> {
        let left = self.not_before?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A clock that is turned by hand.
    struct Time(Instant);

    impl Time {
        fn after(&mut self, seconds: u32) -> Instant {
            self.0 += SECOND * seconds;
            self.0
        }
    }

    #[test]
    fn a_suspect_that_is_alone_has_its_turn_at_once() {
        let mut clock = SoloClock::default();
        assert_eq!(clock.turn(true, 0, Instant::now()), Turn::Suspect);
        assert_eq!(clock.turn(false, 0, Instant::now()), Turn::Others(None));
    }

    #[test]
    fn others_have_as_much_time_as_they_were_kept_waiting_also_between_two_suspects() {
        let mut time = Time(Instant::now());
        let mut clock = SoloClock::default();
        assert_eq!(clock.turn(true, 1, time.after(0)), Turn::Waits(PATIENCE));
        assert_eq!(clock.turn(true, 0, time.after(10)), Turn::Suspect);
        clock.claimed(time.after(0));
        clock.runs(time.after(20));
        // The next suspect is due already.
        assert!(clock.ran());
        clock.rest(time.after(0));
        let others = |left| Turn::Others(Some(SECOND * left));
        assert_eq!(clock.turn(true, 0, time.after(0)), others(30));
        assert_eq!(clock.turn(true, 0, time.after(29)), others(1));
        assert_eq!(clock.turn(false, 0, time.after(0)), Turn::Others(None));
        assert_eq!(clock.turn(true, 0, time.after(1)), Turn::Suspect);
    }

    #[test]
    fn a_suspect_gives_way_and_waits_for_longer_each_time_until_it_is_alone() {
        let mut time = Time(Instant::now());
        let mut clock = SoloClock::default();
        // Runs of ten minutes, and there is always somebody who is due.
        let mut given_way = 0;
        let longest = loop {
            let Turn::Waits(patience) = clock.turn(true, 3, time.after(0)) else {
                panic!("it is its turn")
            };
            if patience > SECOND * 600 {
                break patience;
            }
            given_way += 1;
            let given_up = time.after(patience.as_secs() as u32);
            let turn = clock.turn(true, 3, given_up);
            assert_eq!(turn, Turn::Others(Some(patience)), "then it tries again");
            let almost = time.after(patience.as_secs() as u32 - 1);
            let turn = clock.turn(true, 3, almost);
            assert_eq!(turn, Turn::Others(Some(SECOND)));
            time.after(1);
        };
        assert_eq!((given_way, longest), (4, PATIENCE * 16));
        // No run that is not over by then, since none was started meanwhile.
        assert_eq!(clock.turn(true, 0, time.after(600)), Turn::Suspect);
        clock.claimed(time.after(0));
        clock.rest(time.after(5));
        assert_eq!(
            clock.turn(true, 1, time.after(2_000)),
            Turn::Waits(PATIENCE)
        );
    }

    #[test]
    fn time_in_which_nobody_may_be_claimed_is_no_suspects() {
        for runs in [false, true] {
            let mut time = Time(Instant::now());
            let mut clock = SoloClock::default();
            assert_eq!(clock.turn(true, 1, time.after(0)), Turn::Waits(PATIENCE));
            if runs {
                clock.claimed(time.after(0));
            }
            // Held for an hour, looked at every five seconds.
            for _ in 0..720 {
                clock.suspend(time.after(5));
                assert_eq!(clock.ran(), runs);
            }
            clock.rest(time.after(0));
            assert_eq!(clock.turn(true, 0, time.after(5)), Turn::Suspect);
        }
    }
}
