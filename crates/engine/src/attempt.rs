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
use evenkeel_core::attempt::{
    Containment, DisruptionCause, End, Evidence, FailReason, RunReport, classify,
};
use evenkeel_core::forensics::Forensics;
use evenkeel_core::job::{Job, State};
use evenkeel_core::panics::PanicVerdict;
use evenkeel_core::request::Outputs;
use evenkeel_core::time::Timestamp;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Claimed, Fence, Finish, Owned};

use crate::drivers::Place;
use crate::guard::{self, Caught};
use crate::service::{Shared, step_blocking};
use crate::{claims, faults, hold, state_folders, steps};

mod prepare;
mod remains;
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
    /// Its run is to be ended, and what it left not to be looked at: that may be what kills.
    Unread,
}

/// How an attempt ended, and what it left.
#[derive(Debug)]
pub(crate) struct Outcome {
    end: End,
    ran: Duration,
    outputs: Option<Outputs>,
    progress: Option<String>,
    usage: (Option<u64>, Option<u64>),
    started: (Option<Timestamp>, Option<Containment>),
    forensics: Forensics,
}

impl Outcome {
    pub(crate) fn of(end: End, ran: Duration) -> Self {
        Self {
            end,
            ran,
            outputs: None,
            progress: None,
            usage: (None, None),
            started: (None, None),
            forensics: Forensics::default(),
        }
    }

    pub(crate) fn report(report: RunReport, asked_to_stop: bool) -> Self {
        let end = classify(&report, asked_to_stop);
        Self {
            ran: report.ran(),
            usage: (report.peak_memory, report.cpu_millis),
            started: (report.started_at, report.containment),
            forensics: report.forensics,
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
        let pinned = match step_blocking(move || keeper.catalog.pinned(digest)).await {
            Ok(pinned) => pinned,
            Err(error) => {
                tracing::warn!(job = %job.id, %error, "what its bundle requires cannot be read");
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
        if let Err(panic) = guard::catch(AssertUnwindSafe(named(&shared, &claimed, drive))).await {
            named(&shared, &claimed, after_panic(&shared, &claimed, panic)).await;
        }
        drop(place);
    });
}

/// A step for a claimed job, under its name.
async fn named<T>(shared: &Shared, claimed: &Claimed, step: impl Future<Output = T>) -> T {
    let apart = steps::apart(&claimed.job, &shared.options.store.policy());
    steps::of(shared, claimed.fence.attempt, apart, step).await
}

async fn drive(shared: &Arc<Shared>, claimed: &Claimed, place: &Place, entrance: Entrance) {
    let fence = claimed.fence;
    let about = about(&claimed.job);
    let outcome = match entrance {
        Entrance::Unread => {
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
        Entrance::Exited(report) => {
            faults::hit_about("engine.exited", &about);
            Step::On(Outcome::report(*report, place.stop.is_cancelled()))
        }
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
    let bad = outcome.end != End::Succeeded && !outcome.forensics.is_empty();
    let finish = Finish {
        by: shared.options.boot,
        forensics: bad.then_some(outcome.forensics),
        started: outcome.started,
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
        Some(Owned::Lost) => not_ours(shared, fence).await,
        None => {}
    }
}

/// Another boot wrote the end, or an earlier try of ours did whose answer was lost: then what
/// follows from it is still to be done.
async fn not_ours(shared: &Arc<Shared>, fence: Fence) {
    tracing::info!(job = %fence.job, "the attempt is no longer ours");
    match shared.options.store.job(fence.job).await {
        Ok(Some(found))
            if found
                .job
                .attempt()
                .is_none_or(|now| now.id != fence.attempt) =>
        {
            concluded(shared, fence, &found.job).await;
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(job = %fence.job, %error, "what became of it is not known"),
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
    let end = blame(shared, &claimed.job, &panic);
    close(shared, claimed, end, &panic).await;
}

/// Notes that a step for `job` panicked and says who pays. Where it is our bug no new run starts.
pub(crate) fn blame(shared: &Shared, job: &Job, panic: &Caught) -> End {
    let location = panic.location.clone();
    tracing::error!(job = %job.id, location, said = panic.words(), "a driving step panicked");
    let mut ledger = shared.panics.lock().unwrap_or_else(PoisonError::into_inner);
    // Places that were not noted may be many, and are not one.
    let verdict = if panic.is_placed() {
        ledger.observe(&location, job.id, shared.now())
    } else {
        PanicVerdict::Charge
    };
    drop(ledger);
    match verdict {
        PanicVerdict::Charge => End::Crashed {
            evidence: Some(Evidence::Panic { location }),
        },
        PanicVerdict::OurBug => {
            let why = format!("panics at {location} in several jobs: the broker's own fault");
            hold::for_panics(shared, &why);
            End::OurBug { location }
        }
    }
}

/// Closes an attempt whose driving went wrong. Its run, if there is one, is ended and proven gone
/// first.
async fn close(shared: &Arc<Shared>, claimed: &Claimed, end: End, panic: &Caught) {
    let attempt = claimed.fence.attempt;
    let gone = run::end_and_prove_gone(shared, attempt, run::claimed_at(claimed));
    if let Step::On(ran) = gone.await {
        let outcome = Outcome::gathered(shared, attempt, end, ran).await;
        conclude(shared, claimed.fence, outcome.after(panic)).await;
    }
}

/// Like [`close`], by a driver of its own.
pub(crate) fn spawn_close(shared: &Arc<Shared>, claimed: Claimed, end: End, panic: Caught) {
    let Some(place) = claims::enter(shared, &claimed.job) else {
        return;
    };
    let shared_too = Arc::clone(shared);
    shared.spawn("attempt", async move {
        named(
            &shared_too,
            &claimed,
            close(&shared_too, &claimed, end, &panic),
        )
        .await;
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

/// What fault points are told of a job. Its action and its offering come first, so that a rule can
/// be about all jobs of a kind before any of them is there.
pub(crate) fn about(job: &Job) -> String {
    let Job {
        action,
        service,
        id,
        attempts,
        ..
    } = job;
    format!("{action} {service} {id} attempt={attempts}")
}

pub(crate) fn drained() -> End {
    End::Disrupted {
        cause: DisruptionCause::Drain,
    }
}
