//! What an operator does with a job, and what came of it.

use evenkeel_core::ids::JobId;
use evenkeel_core::job::State;
use evenkeel_store::seam::{Marked, Retried, Stopped};

use super::jobs::no_job;
use super::route::Act;
use super::types::{Acted, ErrorKind, Outcome};
use super::{AdminState, Problem};

impl AdminState {
    /// The status and the answer.
    pub(super) async fn act(&self, act: Act, job: JobId) -> Result<(u16, Acted), Problem> {
        match act {
            Act::Retry => retried(job, self.engine.retry(job).await?),
            Act::Cancel => stopped(job, self.engine.cancel(job).await?),
            Act::Discard => marked(
                job,
                self.engine.discard(job).await?,
                "is discarded",
                "was discarded before",
                "only a job in quarantine can be discarded",
            ),
            Act::Clear => marked(
                job,
                self.engine.clear(job).await?,
                "is no longer a suspect",
                "is not a suspect",
                "there is no suspicion on it that could be lifted",
            ),
        }
    }
}

fn acted(status: u16, job: JobId, outcome: Outcome, description: String) -> (u16, Acted) {
    (
        status,
        Acted {
            job,
            outcome,
            description,
        },
    )
}

fn retried(job: JobId, retried: Retried) -> Result<(u16, Acted), Problem> {
    match retried {
        Retried::Queued(new) => {
            let text = format!(
                "job {} does what job {job} did not, with a clear account",
                new.id
            );
            Ok(acted(201, new.id, Outcome::Queued, text))
        }
        Retried::Busy(other) => Err(Problem::new(
            ErrorKind::Busy,
            format!("job {other} is under way for the same target: wait for it or cancel it"),
        )),
        Retried::NotRetryable(why) => Err(Problem::new(
            ErrorKind::NotApplicable,
            format!("job {job} cannot be retried: {why}"),
        )),
        Retried::TargetGone => Err(Problem::new(
            ErrorKind::TargetGone,
            format!("what job {job} was about is gone, or has begun a new life"),
        )),
        Retried::Unknown => Err(no_job(job)),
    }
}

fn stopped(job: JobId, stopped: Stopped) -> Result<(u16, Acted), Problem> {
    match stopped {
        Stopped::Ended(ended) => {
            let text = match &ended.state {
                State::Cancelled { .. } => format!("job {job} is cancelled"),
                other @ (State::Queued
                | State::Running { .. }
                | State::Backoff { .. }
                | State::Succeeded
                | State::Failed { .. }
                | State::Quarantined { .. }) => format!("job {job} is {}", other.as_str()),
            };
            Ok(acted(200, job, Outcome::Done, text))
        }
        Stopped::Asked(_) => {
            let text = format!("the run of job {job} was asked to stop; the job ends when it has");
            Ok(acted(202, job, Outcome::Asked, text))
        }
        Stopped::Final(found) => Err(Problem::new(
            ErrorKind::NotApplicable,
            format!(
                "job {job} has ended already: it is {}",
                found.state.as_str()
            ),
        )),
        Stopped::Unknown => Err(no_job(job)),
    }
}

fn marked(
    job: JobId,
    marked: Marked,
    done: &str,
    already: &str,
    not_applicable: &str,
) -> Result<(u16, Acted), Problem> {
    match marked {
        Marked::Done => Ok(acted(200, job, Outcome::Done, format!("job {job} {done}"))),
        Marked::Already => Ok(acted(
            200,
            job,
            Outcome::Already,
            format!("job {job} {already}"),
        )),
        Marked::NotApplicable => Err(Problem::new(
            ErrorKind::NotApplicable,
            format!("it does not apply to job {job}: {not_applicable}"),
        )),
        Marked::Unknown => Err(no_job(job)),
    }
}
