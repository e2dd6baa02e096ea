//! A suspect's turn to run alone, for those who wait meanwhile.

use crate::ids::JobId;
use crate::job::{Job, State};
use crate::time::Timestamp;

/// A suspect's turn: no other job is started meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Whose it is.
    pub job: JobId,
    /// Whether its run has begun; else the runs under way are waited for.
    pub runs: bool,
    /// When others are started again at the latest; of one whose run has not begun, when it gives
    /// way if it is not alone by then.
    pub until: Timestamp,
}

impl Turn {
    /// Whose turn it is, what is waited for, and who has more to say, for operators. `limit` is
    /// `until` in words, as `until 12:00 at the latest`, or `and gives way at 12:00`.
    pub fn line(&self, limit: &str) -> String {
        let job = self.job;
        format!(
            "no other run starts: {}, {limit}; `evenkeel jobs explain {job}` tells why it is a \
             suspect, `evenkeel jobs clear {job}` lifts suspicion",
            self.why()
        )
    }

    /// What the turn has to do with a job that waits, for operators; `None` if nothing. `limit` as
    /// in [`Self::line`].
    pub fn line_for(&self, job: &Job, limit: &str) -> Option<String> {
        if self.holds_up(job) {
            Some(format!("no other run starts: {}, {limit}", self.why()))
        } else if job.id == self.job && !self.runs {
            Some(format!(
                "its turn has come, and it waits for the runs under way to end, {limit}"
            ))
        } else {
            None
        }
    }

    /// Whether the job could be started but for the turn, or may become so before it is over.
    pub fn holds_up(&self, job: &Job) -> bool {
        let waits = match &job.state {
            State::Queued => true,
            State::Backoff { next_at } => *next_at < self.until,
            State::Running { .. }
            | State::Succeeded
            | State::Failed { .. }
            | State::Cancelled { .. }
            | State::Quarantined { .. } => false,
        };
        waits && job.id != self.job
    }

    fn why(&self) -> String {
        let job = self.job;
        if self.runs {
            format!("job {job} is a suspect and runs alone")
        } else {
            format!(
                "job {job} is a suspect that is to run alone, and waits for the runs under way to end"
            )
        }
    }
}
