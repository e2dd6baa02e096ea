//! One attempt, driven from its claim to its end.
//!
//! Steps: *prepare* (inputs, bundle, secrets) → *start* (the run's first instruction may run) →
//! *watch* → *conclude* (end, job, instance and outputs in one transaction). Each can be cut by a
//! kill of this process at any instant: what is on disk tells the next boot where it was. Each
//! can panic: then the run is ended and proven gone before the attempt is closed and charged,
//! since nothing may run for a job that has no attempt under way.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{DisruptionCause, End, Evidence, FailReason, RunReport, classify};
use evenkeel_core::job::{Job, State};
use evenkeel_core::panics::PanicVerdict;
use evenkeel_core::request::Outputs;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Claimed, Fence, Finish, Owned};

use crate::drivers::Place;
use crate::guard::{self, Caught};
use crate::service::{Shared, run_blocking};
use crate::{claims, faults, state_folders};

mod prepare;
pub(crate) mod run;

/// Tries of a write that meets damage before its driver gives up.
const HOPELESS_TRIES: u32 = 8;

/// How a driver comes by its attempt.
#[derive(Clone, Debug)]
pub(crate) enum Entrance {
    /// Claimed just now: nothing has run.
    Fresh,
    /// Its run goes on.
    Adopted,
    /// Its run has ended.
    Exited(Box<RunReport>),
}

/// How an attempt ended, and what it left.
#[derive(Debug)]
pub(crate) struct Outcome {
    end: End,
    ran: Duration,
    outputs: Option<Outputs>,
    progress: Option<String>,
    usage: (Option<u64>, Option<u64>),
}

impl Outcome {
    pub(crate) fn of(end: End, ran: Duration) -> Self {
        Self {
            end,
            ran,
            outputs: None,
            progress: None,
            usage: (None, None),
        }
    }

    pub(crate) fn report(report: RunReport, asked_to_stop: bool) -> Self {
        let end = classify(&report, asked_to_stop);
        Self {
            ran: report.ran(),
            usage: (report.peak_memory, report.cpu_millis),
            outputs: report.outputs.ok(),
            progress: report.progress,
            end,
        }
    }
}

impl Outcome {
    /// A bind that hands out what no platform would take has failed: told here, once, and not by
    /// every fetch. What is private is kept, so that an unbind can clean up.
    async fn check_granted(&mut self, shared: &Arc<Shared>, job: &Job) {
        let Some(outputs) = self.outputs.as_mut() else {
            return;
        };
        if self.end != End::Succeeded || job.action != Action::Bind {
            return;
        }
        let (keeper, digest) = (Arc::clone(shared), job.bundle);
        let pinned = match run_blocking(move || keeper.catalog.pinned(digest)).await {
            Ok(Ok(pinned)) => pinned,
            Ok(Err(error)) => {
                tracing::warn!(job = %job.id, %error, "what its bundle requires cannot be read");
                return;
            }
            Err(error) => {
                tracing::warn!(job = %job.id, error, "what its bundle requires cannot be read");
                return;
            }
        };
        if let Err(message) = outputs.check_granted(&pinned.bundle.service.requires) {
            *outputs = Outputs {
                data: outputs.data.take(),
                ..Outputs::default()
            };
            self.end = End::Failed {
                reason: FailReason::BadOutput { message },
                message: None,
            };
        }
    }
}

/// Why a driver has nothing more to do.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// Go on with this.
    On(T),
    /// Another boot owns the attempt now, or this one lets go of it.
    Leave,
}

/// Gives the attempt a driver, unless it has one.
pub(crate) fn spawn(shared: &Arc<Shared>, claimed: Claimed, entrance: Entrance) {
    let Some(place) = claims::enter(shared, &claimed.job) else {
        return;
    };
    if claimed.job.stop().is_some() {
        place.stop.cancel();
    }
    let shared_too = Arc::clone(shared);
    shared.spawn("attempt", async move {
        let shared = shared_too;
        let drive = drive(&shared, &claimed, &place, entrance);
        if let Err(panic) = guard::catch(AssertUnwindSafe(drive)).await {
            after_panic(&shared, &claimed, panic).await;
        }
        drop(place);
    });
}

async fn drive(shared: &Arc<Shared>, claimed: &Claimed, place: &Place, entrance: Entrance) {
    let fence = claimed.fence;
    let about = about(&claimed.job);
    let spent = claimed.job.budget.is_spent(&shared.options.store.policy());
    let outcome = match entrance {
        // Condemned by what it did to its last owner: its record may be what kills its reader,
        // so it is not read.
        Entrance::Adopted | Entrance::Exited(_) if spent => {
            match run::end_and_prove_gone(shared, fence.attempt, run::claimed_at(claimed)).await {
                Step::On(ran) => Step::On(Outcome::of(End::Stopped, ran)),
                Step::Leave => Step::Leave,
            }
        }
        Entrance::Fresh => {
            faults::hit_about("engine.prepare", &about);
            let prepared = match prepare::prepare(shared, claimed, place).await {
                Step::On(prepared) => prepared,
                Step::Leave => return,
            };
            match prepared {
                prepare::Prepared::Run(spec) => {
                    faults::hit_about("engine.start", &about);
                    run::start_and_watch(shared, claimed, place, *spec, &about).await
                }
                prepare::Prepared::Ended(outcome) => Step::On(*outcome),
            }
        }
        Entrance::Adopted => run::watch(shared, claimed, place, false, &about).await,
        Entrance::Exited(report) => Step::On(Outcome::report(*report, place.stop.is_cancelled())),
    };
    let Step::On(mut outcome) = outcome else {
        return;
    };
    outcome.check_granted(shared, &claimed.job).await;
    faults::hit_about("engine.conclude", &about);
    conclude(shared, fence, outcome).await;
    faults::hit_about("engine.concluded", &about);
}

/// Writes an attempt's end, for as long as it takes the store to take it.
pub(crate) async fn conclude(shared: &Arc<Shared>, fence: Fence, outcome: Outcome) {
    let finish = Finish {
        end: outcome.end,
        ran: outcome.ran,
        outputs: outcome.outputs,
        progress: outcome.progress,
        usage: outcome.usage,
        at: shared.now(),
        chance: shared.options.world.chance(),
    };
    let finish = Mutex::new(finish);
    let written = until_done(shared, "finish", || async {
        let now = finish
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let written = shared.options.store.finish_attempt(fence, now).await;
        if let Err(StoreError::Damaged(_) | StoreError::Unreadable(_)) = &written {
            // What the run wrote cannot be put beside what is damaged: the end counts more.
            finish
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .outputs = None;
        }
        written
    });
    match written.await {
        Some(Owned::Mine(job)) => concluded(shared, fence, &job).await,
        // Another boot wrote the end, or an earlier try of ours did whose answer was lost.
        Some(Owned::Lost) => tracing::info!(job = %fence.job, "the attempt is no longer ours"),
        None => {}
    }
}

async fn concluded(shared: &Arc<Shared>, fence: Fence, job: &Job) {
    tracing::info!(
        job = %job.id, action = %job.action, state = job.state.as_str(), attempt = job.attempts,
        "attempt ended"
    );
    faults::hit_about("engine.written", &about(job));
    if let Err(error) = shared.options.executor.conclude(fence.attempt).await {
        // Housekeeping comes by again.
        tracing::warn!(job = %job.id, %error, "the run folder could not be cleared");
    }
    if job.state == State::Succeeded && job.action == Action::Deprovision {
        state_folders::remove(shared, job.target.instance).await;
    }
    if job.state.is_final() {
        shared.job_finished(job.id);
    } else {
        shared.wake.notify_one();
    }
}

/// Repeats a write until the store takes it, this process lets go, or trying is pointless: then
/// the job has no driver any more, and recovery comes by.
pub(crate) async fn until_done<T, F>(
    shared: &Arc<Shared>,
    what: &str,
    write: impl Fn() -> F,
) -> Option<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = Duration::from_millis(50);
    let mut hopeless = 0;
    loop {
        match write().await {
            Ok(done) => return Some(done),
            Err(error @ StoreError::Illegal(_)) => {
                tracing::error!(%error, "{what}: the store refuses it for good");
                return None;
            }
            Err(error) => {
                tracing::warn!(%error, "{what}: trying again");
                hopeless += u32::from(matches!(
                    error,
                    StoreError::Damaged(_) | StoreError::Unreadable(_) | StoreError::Panicked(_)
                ));
                if hopeless > HOPELESS_TRIES {
                    tracing::error!(%error, "{what}: given up for now");
                    return None;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.letting_go.cancelled() => return None,
        }
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// A driving step panicked.
async fn after_panic(shared: &Arc<Shared>, claimed: &Claimed, panic: Caught) {
    let end = blame(shared, &claimed.job, panic);
    close(shared, claimed, end).await;
}

/// Notes that a step for `job` panicked and says who pays. Where it is our bug no new run starts.
pub(crate) fn blame(shared: &Shared, job: &Job, panic: Caught) -> End {
    let Caught { location, message } = panic;
    tracing::error!(job = %job.id, location, said = message, "a driving step panicked");
    let verdict = shared
        .panics
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .observe(&location, job.id, shared.now());
    match verdict {
        PanicVerdict::Charge => End::Crashed {
            evidence: Some(Evidence::Panic { location }),
        },
        PanicVerdict::OurBug => {
            shared.hold(format!(
                "panics at {location} in several jobs: the broker's own fault"
            ));
            End::OurBug { location }
        }
    }
}

/// Closes an attempt whose driving went wrong. Its run, if there is one, is ended and proven gone
/// first.
async fn close(shared: &Arc<Shared>, claimed: &Claimed, end: End) {
    let gone = run::end_and_prove_gone(shared, claimed.fence.attempt, run::claimed_at(claimed));
    if let Step::On(ran) = gone.await {
        conclude(shared, claimed.fence, Outcome::of(end, ran)).await;
    }
}

/// Like [`close`], by a driver of its own.
pub(crate) fn spawn_close(shared: &Arc<Shared>, claimed: Claimed, end: End) {
    let Some(place) = claims::enter(shared, &claimed.job) else {
        return;
    };
    let shared_too = Arc::clone(shared);
    shared.spawn("attempt", async move {
        close(&shared_too, &claimed, end).await;
        drop(place);
    });
}

/// Waits until no driver is left, or for `limit`.
pub(crate) async fn wait_for_drivers(shared: &Arc<Shared>, limit: Duration) {
    let gone = async {
        loop {
            let left = shared.drivers.left.notified();
            if shared.drivers.count() == 0 {
                return;
            }
            left.await;
        }
    };
    if tokio::time::timeout(limit, gone).await.is_err() {
        tracing::warn!(driving = shared.drivers.count(), "runs are still under way");
    }
}

/// What fault points are told of a job.
pub(crate) fn about(job: &Job) -> String {
    format!("{} {} attempt={}", job.action, job.id, job.attempts)
}

pub(crate) fn drained() -> End {
    End::Disrupted {
        cause: DisruptionCause::Drain,
    }
}
