//! What has to happen from time to time: deadlines, signs of life, runs that nobody claims,
//! retention.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_core::ids::AttemptId;
use evenkeel_core::recovery::{Action, RunFact, plan_unclaimed};
use evenkeel_core::time::Timestamp;
use evenkeel_executor::Probe;
use evenkeel_store::error::StoreError;
use tokio::time::Instant;

use crate::guard;
use crate::service::Shared;

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at run folders and old rows.
const SLOW_EVERY: Duration = Duration::from_secs(60);
/// Jobs whose deadline is dealt with in one round.
const EXPIRE_AT_ONCE: u32 = 1_000;
/// Old jobs that are removed in one transaction.
const PURGE_AT_ONCE: u32 = 500;

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut slow_at = Instant::now();
    while !shared.ending.is_cancelled() {
        let slow = slow_at <= Instant::now() && shared.recovered.load(Ordering::SeqCst);
        if slow {
            slow_at = Instant::now() + SLOW_EVERY;
        }
        match guard::catch(AssertUnwindSafe(round(&shared, slow))).await {
            Ok(Ok(())) => shared.trouble("housekeeping", None),
            Ok(Err(error)) => shared.trouble("housekeeping", Some(error.to_string())),
            Err(panic) => {
                tracing::error!(
                    location = panic.location,
                    said = panic.message,
                    "housekeeping panicked"
                );
            }
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shared.ending.cancelled() => {}
        }
    }
}

async fn round(shared: &Arc<Shared>, slow: bool) -> Result<(), StoreError> {
    let options = &shared.options;
    let now = shared.now();
    options.store.boot_seen(options.boot, now).await?;
    for fence in options.store.expire(now, EXPIRE_AT_ONCE).await? {
        shared.drivers.stop(fence.job);
    }
    if slow {
        clear_runs(shared).await;
        let before = Timestamp(now.0.saturating_sub(millis(options.retention)));
        while options.store.purge(before, PURGE_AT_ONCE).await? == PURGE_AT_ONCE {}
        if let Err(error) = options.executor.forget_logs(before).await {
            tracing::warn!(%error, "old logs could not be removed");
        }
    }
    Ok(())
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// Ends runs that no job's row claims.
///
/// A run folder is made after its attempt is committed, so that a folder which no row claims,
/// looked up *after* the folder was seen, belongs to an attempt that has ended.
async fn clear_runs(shared: &Arc<Shared>) {
    let executor = &shared.options.executor;
    let runs = match executor.runs().await {
        Ok(runs) => runs,
        Err(error) => {
            tracing::warn!(%error, "the run folders cannot be listed");
            return;
        }
    };
    for some in runs.chunks(500) {
        let claimed: HashSet<AttemptId> = match shared.options.store.claimed_attempts(some).await {
            Ok(claimed) => claimed.into_iter().collect(),
            Err(error) => {
                tracing::warn!(%error, "run folders are looked at later");
                return;
            }
        };
        for attempt in some.iter().filter(|attempt| !claimed.contains(attempt)) {
            if let Err(message) = clear_run(shared, *attempt).await {
                tracing::warn!(%attempt, why = message, "a run that no job claims is left");
            }
        }
    }
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
            RunFact::Alive => executor.stop(attempt, Duration::ZERO).await.map_err(text)?,
            RunFact::Lingering => drop(executor.sweep(attempt).await.map_err(text)?),
            RunFact::NeverStarted | RunFact::Exited | RunFact::Vanished | RunFact::Elsewhere => {
                executor.conclude(attempt).await.map_err(text)?;
            }
        }
    }
    Ok(())
}
