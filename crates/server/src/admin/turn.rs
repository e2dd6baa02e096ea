//! What keeps waiting jobs from being started: a hold, or a suspect's turn to run alone.

use evenkeel_core::explain::Turn;
use evenkeel_core::job::{Job, State};
use evenkeel_core::time::Timestamp;

use super::AdminState;
use super::jobs::second;
use super::types::Isolation;

/// What jobs that wait are kept back by, beside what each waits for by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// Why no new run starts.
    pub(super) held: Option<String>,
    /// Whose turn it is to run alone.
    pub(super) turn: Option<Turn>,
}

impl AdminState {
    pub(super) fn waits(&self) -> Waits {
        let held = self.engine.held();
        let turn = turn(self.engine.alone(), held.is_some(), self.engine.now());
        Waits { held, turn }
    }
}

impl Waits {
    /// What of it keeps this job from being started, in words; nothing of a job that does not wait.
    pub(super) fn lines(&self, job: &Job) -> impl Iterator<Item = String> {
        let held = match &job.state {
            State::Queued | State::Backoff { .. } => self.held.as_ref(),
            State::Running { .. }
            | State::Succeeded
            | State::Failed { .. }
            | State::Cancelled { .. }
            | State::Quarantined { .. } => None,
        };
        let held = held.map(|why| format!("no new run starts: {why}"));
        let turn = self.turn.as_ref();
        held.into_iter()
            .chain(turn.and_then(|turn| turn.line_for(job, &limit(turn))))
    }
}

/// A turn that is to be told. Of one that is over nothing is, though nobody may have noticed yet;
/// nor, while no new run starts, of a suspect that only waits to run.
pub(super) fn turn(alone: Option<Turn>, held: bool, now: Timestamp) -> Option<Turn> {
    alone.filter(|turn| turn.until > now && (turn.runs || !held))
}

/// The same, on the wire.
pub(super) fn isolation(turn: &Turn) -> Isolation {
    Isolation {
        job: turn.job,
        runs: turn.runs,
        until: super::jobs::time(turn.until),
    }
}

/// Until when others wait, in words.
pub(super) fn limit(turn: &Turn) -> String {
    let until = second(turn.until);
    if turn.runs {
        format!("until {until} at the latest")
    } else {
        format!("and gives way at {until} if they have not")
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::ids::JobId;

    use super::*;

    #[test]
    fn a_turn_that_is_over_or_put_off_by_a_hold_is_not_told() {
        let told = |runs, held, now| {
            let job = JobId(uuid::Uuid::from_u128(1));
            let until = Timestamp(2_000);
            turn(Some(Turn { job, runs, until }), held, Timestamp(now)).map(|turn| limit(&turn))
        };
        let limit = Some("until 1970-01-01T00:00:02Z at the latest".to_owned());
        let gives_way = Some("and gives way at 1970-01-01T00:00:02Z if they have not".to_owned());
        assert_eq!(told(true, false, 1_999), limit);
        assert_eq!(told(false, false, 0), gives_way);
        assert_eq!(told(true, true, 0), limit);
        assert_eq!(told(false, true, 0), None);
        assert_eq!(told(true, false, 2_000), None);
        assert_eq!(turn(None, false, Timestamp(0)), None);
    }
}
