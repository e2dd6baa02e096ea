//! What has to happen from time to time, each in a task of its own: deadlines, signs of life, runs
//! that nobody claims, retention.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_core::ids::AttemptId;
use evenkeel_core::recovery::{Action, RunFact, plan_unclaimed};
use evenkeel_executor::Probe;
use evenkeel_store::error::StoreError;
use tokio::time::timeout;

use crate::service::Shared;
use crate::{faults, guard, state_folders, steps};

/// Between two looks at deadlines.
const DEADLINES_EVERY: Duration = Duration::from_secs(1);
/// Between two signs of life of this boot, at most: see [`sign_every`].
const SIGN_EVERY: Duration = Duration::from_secs(10);
/// Between two looks whether recovery has been everywhere.
const RECOVERED_EVERY: Duration = Duration::from_millis(200);
/// Between two looks at run folders.
const RUNS_EVERY: Duration = Duration::from_secs(60);
/// Between two looks at old rows: each walks over all of them.
const RETENTION_EVERY: Duration = Duration::from_secs(600);
/// How long one run that nobody claims may take to be ended.
const ONE_RUN: Duration = Duration::from_secs(30);
/// Jobs whose deadline is dealt with in one round.
const EXPIRE_AT_ONCE: u32 = 1_000;
/// Old jobs that are removed in one transaction.
const PURGE_AT_ONCE: u32 = 500;

pub(crate) async fn deadlines(shared: Arc<Shared>) {
    every(&shared, "deadlines", DEADLINES_EVERY, || expire(&shared)).await;
}

/// Each sign of life is a write to the disk, and tells no more than how long a lost run lived.
pub(crate) async fn signs_of_life(shared: Arc<Shared>) {
    every(&shared, "signs of life", sign_every(&shared), || async {
        let options = &shared.options;
        options.store.boot_seen(options.boot, shared.now()).await
    })
    .await;
}

/// So often that a boot which served for a quiet period is known to have done so, give or take a
/// quarter.
fn sign_every(shared: &Shared) -> Duration {
    let quarter = shared.options.hold_quiet / 4;
    quarter.clamp(Duration::from_millis(100), SIGN_EVERY)
}

pub(crate) async fn runs(shared: Arc<Shared>) {
    // Before the first pass of recovery a run that nobody has taken over is not one that nobody
    // claims. And what brokers died of in a row may have been this.
    while !(shared.recovered.load(Ordering::SeqCst) && shared.holds.is_judged()) {
        tokio::select! {
            () = tokio::time::sleep(RECOVERED_EVERY) => {}
            () = shared.ending.cancelled() => return,
        }
    }
    every(&shared, "unclaimed runs", RUNS_EVERY, || {
        clear_runs(&shared)
    })
    .await;
}

pub(crate) async fn retention(shared: Arc<Shared>) {
    every(&shared, "retention", RETENTION_EVERY, || forget(&shared)).await;
}

/// Does its work, by itself guarded, again and again until the engine ends.
async fn every<F>(shared: &Shared, name: &'static str, pause: Duration, work: impl Fn() -> F)
where
    F: Future<Output = Result<(), StoreError>>,
{
    while !shared.ending.is_cancelled() {
        let round = async {
            faults::hit_about("engine.housekeeping", name);
            work().await
        };
        match guard::catch(AssertUnwindSafe(round)).await {
            Ok(Ok(())) => shared.trouble(name, None),
            Ok(Err(error)) => shared.trouble(name, Some(error.to_string())),
            Err(panic) => return shared.is_broken(name, &panic),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.ending.cancelled() => {}
        }
    }
}

async fn expire(shared: &Shared) -> Result<(), StoreError> {
    let expired = shared.options.store.expire(shared.now(), EXPIRE_AT_ONCE);
    for fence in expired.await? {
        shared.drivers.stop(fence.job);
    }
    Ok(())
}

async fn forget(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let options = &shared.options;
    state_folders::clear(shared).await?;
    let before = shared.now().minus(options.retention);
    while options.store.purge(before, PURGE_AT_ONCE).await? == PURGE_AT_ONCE {}
    if let Err(error) = options.executor.forget_logs(before).await {
        tracing::warn!(%error, "old logs could not be removed");
    }
    Ok(())
}

/// Ends runs that no job's row claims.
///
/// A run folder is made after its attempt is committed, so that a folder which no row claims,
/// looked up *after* the folder was seen, belongs to an attempt that has ended.
async fn clear_runs(shared: &Arc<Shared>) -> Result<(), StoreError> {
    if shared.holds.is_for_deaths() {
        return Ok(());
    }
    let runs = match shared.options.executor.runs().await {
        Ok(runs) => runs,
        Err(error) => {
            tracing::warn!(%error, "the run folders cannot be listed");
            return Ok(());
        }
    };
    for some in runs.chunks(500) {
        let claimed: HashSet<AttemptId> = shared
            .options
            .store
            .claimed_attempts(some)
            .await?
            .into_iter()
            .collect();
        for attempt in some.iter().filter(|attempt| !claimed.contains(attempt)) {
            // Whose clearing kills has no job left to pay: it is named, and panics stay with it.
            let step = steps::of(shared, *attempt, None, clear_run(shared, *attempt));
            let why = match timeout(ONE_RUN, guard::catch(AssertUnwindSafe(step))).await {
                Ok(Ok(Ok(()))) => continue,
                Ok(Ok(Err(why))) => why,
                Ok(Err(panic)) => format!("clearing it panicked at {}", panic.location),
                Err(_) => "it takes too long".to_owned(),
            };
            tracing::warn!(%attempt, why, "a run that no job claims is left");
        }
    }
    Ok(())
}

async fn clear_run(shared: &Arc<Shared>, attempt: AttemptId) -> Result<(), String> {
    let executor = &shared.options.executor;
    let text = |error: evenkeel_executor::ExecutorError| error.to_string();
    let fact = match executor.probe(attempt).await.map_err(text)? {
        Probe::NeverStarted => RunFact::NeverStarted,
        Probe::Alive => RunFact::Alive,
        Probe::Lingering => RunFact::Lingering,
        Probe::Exited(_) => RunFact::Exited,
        Probe::Vanished => RunFact::Vanished,
    };
    for action in plan_unclaimed(fact) {
        if action != Action::Sweep {
            continue;
        }
        match fact {
            RunFact::Alive => {
                executor.stop(attempt, Duration::ZERO).await.map_err(text)?;
                // A silent one does not hear; one that is not silent is not touched by this.
                executor.end_silent(attempt).await.map_err(text)?;
            }
            RunFact::Lingering => drop(executor.sweep(attempt).await.map_err(text)?),
            RunFact::NeverStarted | RunFact::Exited | RunFact::Vanished | RunFact::Elsewhere => {
                executor.conclude(attempt).await.map_err(text)?;
            }
        }
    }
    Ok(())
}
