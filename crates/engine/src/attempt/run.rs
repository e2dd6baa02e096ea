//! The run of an attempt: started once, watched to its end, and ended for certain.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::attempt::{DisruptionCause, End, FailReason, RunReport};
use evenkeel_core::ids::AttemptId;
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::never_started;
use evenkeel_executor::{ExecutorError, Handle, RunSpec, Standing, StartError, WatchEnd};
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Claimed, Owned};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::{Outcome, Step, drained, until_done};
use crate::drivers::Place;
use crate::faults;
use crate::service::Shared;

/// Progress lines that may wait for the store; older ones are overtaken.
const PROGRESS_BACKLOG: usize = 16;
/// Between two progress lines that are written down.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// How long a start may take; then a probe decides.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Between two tries of an executor that failed.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Starts the run and watches it to its end.
pub(super) async fn start_and_watch(
    shared: &Arc<Shared>,
    claimed: &Claimed,
    place: &Place,
    spec: RunSpec,
    about: &str,
) -> Step<Outcome> {
    let starts = shared.holds.starts.read().await;
    if shared.holds.line().is_some() {
        return Step::On(Outcome::of(never_started(), Duration::ZERO));
    }
    let start = timeout(START_LIMIT, shared.options.executor.start(spec)).await;
    drop(starts);
    let started = match start {
        Ok(Ok(handle)) => {
            faults::hit_about("engine.started", about);
            if let Step::Leave = note_start(shared, claimed, &handle).await {
                return Step::Leave;
            }
            handle.containment.is_some()
        }
        Ok(Err(StartError::Refused(message))) => {
            let reason = FailReason::NotRunnable { message };
            return Step::On(Outcome::of(
                End::Failed {
                    reason,
                    message: None,
                },
                Duration::ZERO,
            ));
        }
        // It may have started after all: the watch begins with a probe, which is a fence.
        Ok(Err(error)) => {
            tracing::warn!(job = %claimed.job.id, %error, "the run could not be started");
            false
        }
        Err(_) => {
            tracing::warn!(job = %claimed.job.id, "the start of the run takes too long");
            false
        }
    };
    watch(shared, claimed, place, started, about).await
}

async fn note_start(shared: &Arc<Shared>, claimed: &Claimed, handle: &Handle) -> Step<()> {
    let at = shared.now();
    let noted = until_done(shared, "started", || {
        shared
            .options
            .store
            .started(claimed.fence, handle.containment, at)
    });
    match noted.await {
        Some(Owned::Mine(())) => Step::On(()),
        Some(Owned::Lost) | None => Step::Leave,
    }
}

/// Watches a run to its end, passes on progress, and stops it when it is to stop. `started` says
/// that its action is known to have been let go.
pub(super) async fn watch(
    shared: &Arc<Shared>,
    claimed: &Claimed,
    place: &Place,
    started: bool,
    about: &str,
) -> Step<Outcome> {
    let attempt = claimed.fence.attempt;
    let executor = &shared.options.executor;
    let (lines, mut progress) = mpsc::channel(PROGRESS_BACKLOG);
    let mut stopping = Stopping::No;
    let mut written = Instant::now().checked_sub(PROGRESS_EVERY);
    let mut pending: Option<String> = None;
    // When the wish to stop, which could not be passed on, is passed on again.
    let mut ask_again: Option<Instant> = None;
    let mut silenced = None;
    faults::hit_about("engine.watch", about);
    let mut watched = executor.watch(attempt, lines.clone());
    loop {
        tokio::select! {
            end = &mut watched => {
                match settle(shared, claimed, end, started, stopping, &mut silenced).await {
                    Step::On(Some(outcome)) => {
                        faults::hit_about("engine.ended", about);
                        return Step::On(outcome);
                    }
                    Step::On(None) => watched = executor.watch(attempt, lines.clone()),
                    Step::Leave => return Step::Leave,
                }
            }
            Some(line) = progress.recv() => pending = Some(line),
            () = at(written.map(|at| at + PROGRESS_EVERY)), if pending.is_some() => {
                written = Some(Instant::now());
                if let Some(line) = pending.take() {
                    pending = note_progress(shared, claimed, line).await;
                }
            }
            () = place.stop.cancelled(), if stopping == Stopping::No => {
                stopping = Stopping::Job;
                ask_again = ask_to_stop(shared, claimed).await;
            }
            () = shared.stopping_runs.cancelled(), if stopping == Stopping::No => {
                stopping = Stopping::Drain;
                ask_again = ask_to_stop(shared, claimed).await;
            }
            () = at(ask_again), if ask_again.is_some() => {
                ask_again = ask_to_stop(shared, claimed).await;
            }
            () = shared.letting_go.cancelled() => return Step::Leave,
        }
    }
}

/// Whether this process asked the run to stop, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopping {
    No,
    Job,
    Drain,
}

/// Waits for an instant; there is nothing to wait for without one.
async fn at(instant: Option<Instant>) {
    if let Some(instant) = instant {
        tokio::time::sleep_until(instant).await;
    }
}

/// Gives the line back if it could not be kept: it is tried again, unless a newer one comes.
async fn note_progress(shared: &Arc<Shared>, claimed: &Claimed, line: String) -> Option<String> {
    match shared
        .options
        .store
        .progress(claimed.fence, &line, shared.now())
        .await
    {
        Ok(Owned::Mine(()) | Owned::Lost) => None,
        Err(error @ (StoreError::Damaged(_) | StoreError::Unreadable(_))) => {
            tracing::debug!(%error, "a progress line cannot be kept");
            None
        }
        Err(error) => {
            tracing::debug!(%error, "a progress line was not kept; trying again");
            Some(line)
        }
    }
}

/// Passes on the wish to stop; says when to try again if that failed.
async fn ask_to_stop(shared: &Arc<Shared>, claimed: &Claimed) -> Option<Instant> {
    let options = &shared.options;
    let asked = options
        .executor
        .stop(claimed.fence.attempt, options.grace)
        .await;
    let error = asked.err()?;
    tracing::warn!(job = %claimed.job.id, %error, "the run could not be asked to stop yet");
    Some(Instant::now() + RETRY_EVERY)
}

/// What the end of a watch means; `None` if the run has to be watched again. `silenced`: how long its
/// shim had been silent when it was ended here for that.
async fn settle(
    shared: &Arc<Shared>,
    claimed: &Claimed,
    end: Result<WatchEnd, ExecutorError>,
    started: bool,
    stopping: Stopping,
    silenced: &mut Option<Duration>,
) -> Step<Option<Outcome>> {
    let attempt = claimed.fence.attempt;
    let executor = &shared.options.executor;
    match end {
        Ok(WatchEnd::Exited(report)) => Step::On(Some(reported(*report, stopping))),
        // Its folder was taken away under it: what it was told of must not be believed.
        Ok(WatchEnd::NeverStarted) if started => match executor.sweep(attempt).await {
            Ok(true) => {
                let ran = lived(shared, claimed);
                let end = End::Crashed { evidence: None };
                Step::On(Some(Outcome::gathered(shared, attempt, end, ran).await))
            }
            Ok(false) | Err(_) => pause(shared).await,
        },
        Ok(WatchEnd::NeverStarted) => Step::On(Some(Outcome::of(never_started(), Duration::ZERO))),
        Ok(WatchEnd::Vanished) => {
            let ran = lived(shared, claimed);
            let end = End::Crashed { evidence: None };
            let outcome = Outcome::gathered(shared, attempt, end, ran).await;
            Step::On(Some(outcome.silenced(*silenced)))
        }
        Ok(WatchEnd::Lingering) => {
            match executor.sweep(attempt).await {
                Ok(true) => {}
                Ok(false) => return pause(shared).await,
                Err(error) => {
                    tracing::warn!(job = %claimed.job.id, %error, "what is left of the run could not be ended");
                    return pause(shared).await;
                }
            }
            Step::On(None)
        }
        Ok(WatchEnd::Silent) => {
            tracing::warn!(job = %claimed.job.id, "the shim is silent and is ended");
            let silence = executor.silence(attempt).await.ok().flatten();
            match executor.end_silent(attempt).await {
                Ok(true) => *silenced = silence,
                // It came back, or was gone by itself.
                Ok(false) => {}
                Err(error) => {
                    if let ExecutorError::StillThere { .. } = error {
                        // It was sent what no process outlives.
                        *silenced = silence;
                    }
                    tracing::warn!(job = %claimed.job.id, %error, "the silent shim could not be ended");
                    return pause(shared).await;
                }
            }
            Step::On(None)
        }
        Err(error) => {
            tracing::warn!(job = %claimed.job.id, %error, "the run could not be watched");
            pause(shared).await
        }
    }
}

async fn pause(shared: &Arc<Shared>) -> Step<Option<Outcome>> {
    tokio::select! {
        () = tokio::time::sleep(RETRY_EVERY) => Step::On(None),
        () = shared.letting_go.cancelled() => Step::Leave,
    }
}

fn reported(report: RunReport, stopping: Stopping) -> Outcome {
    let mut outcome = Outcome::report(report, stopping == Stopping::Job);
    let stopped = outcome.end
        == End::Disrupted {
            cause: DisruptionCause::Stopped,
        };
    if stopped && stopping == Stopping::Drain {
        outcome.end = drained();
    }
    outcome
}

/// How long a run that left no record can have lived: since its claim.
fn lived(shared: &Shared, claimed: &Claimed) -> Duration {
    shared.now().since(claimed_at(claimed))
}

pub(super) fn claimed_at(claimed: &Claimed) -> Timestamp {
    let attempt = claimed.job.attempt();
    attempt.map_or(Timestamp(i64::MAX), |attempt| attempt.claimed_at)
}

/// Ends the run of an attempt, whatever state it is in, and comes back when none of its
/// processes is left and none will start; says how long it can have lived. What it left is not
/// understood: that may be what kills.
pub(crate) async fn end_and_prove_gone(
    shared: &Shared,
    attempt: AttemptId,
    claimed_at: Timestamp,
) -> Step<Duration> {
    let executor = &shared.options.executor;
    loop {
        let done = match executor.standing(attempt).await {
            Ok(Standing::Over) => return Step::On(shared.now().since(claimed_at)),
            // A silent shim does not hear; one that is not silent is not touched by the second.
            Ok(Standing::Alive) => match executor.stop(attempt, Duration::ZERO).await {
                Ok(()) => executor.end_silent(attempt).await.map(drop),
                failed => failed,
            },
            Ok(Standing::Lingering) => executor.sweep(attempt).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::warn!(%attempt, %error, "the run could not be ended yet");
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
            () = shared.letting_go.cancelled() => return Step::Leave,
        }
    }
}
