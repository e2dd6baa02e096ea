//! What an operator may do to a job, on record.

use std::sync::Arc;

use evenkeel_core::ids::{AttemptId, JobId};
use evenkeel_core::job::StopReason;
use evenkeel_executor::LogTail;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Marked, Retried, Stopped};

use crate::service::Shared;

/// How the audit table names whoever comes by the admin API.
pub(crate) const ACTOR: &str = "operator";

/// The most that is read of one log at once.
const MAX_LOG_BYTES: usize = 1 << 20;

pub(crate) async fn retry(shared: &Arc<Shared>, job: JobId) -> Result<Retried, StoreError> {
    let now = shared.now();
    let new = JobId(shared.options.world.id());
    let deadline = now.plus(shared.options.deadline);
    let retried = shared
        .options
        .store
        .retry(job, new, ACTOR, now, deadline)
        .await?;
    shared.wake.notify_one();
    Ok(retried)
}

pub(crate) async fn discard(shared: &Arc<Shared>, job: JobId) -> Result<Marked, StoreError> {
    shared.options.store.discard(job, ACTOR, shared.now()).await
}

pub(crate) async fn clear(shared: &Arc<Shared>, job: JobId) -> Result<Marked, StoreError> {
    let marked = shared
        .options
        .store
        .clear_suspicion(job, ACTOR, shared.now())
        .await?;
    // By now its attempt's death is none of a solo run, on record.
    if matches!(marked, Marked::Done | Marked::Already) {
        shared.drivers.end_solo(job);
    }
    shared.wake.notify_one();
    Ok(marked)
}

/// Stops a job: a waiting one is final at once, a running one is told.
pub(crate) async fn stop(
    shared: &Arc<Shared>,
    job: JobId,
    reason: StopReason,
    actor: &str,
) -> Result<Stopped, StoreError> {
    let stopped = shared
        .options
        .store
        .stop_job(job, reason, actor, shared.now())
        .await?;
    match &stopped {
        Stopped::Ended(_) => shared.job_finished(job),
        Stopped::Asked(_) => shared.drivers.stop(job),
        Stopped::Final(_) | Stopped::Unknown => {}
    }
    Ok(stopped)
}

pub(crate) async fn log(
    shared: &Arc<Shared>,
    attempt: AttemptId,
    max_bytes: usize,
) -> Result<Option<LogTail>, String> {
    let bytes = max_bytes.min(MAX_LOG_BYTES);
    shared
        .options
        .executor
        .log(attempt, bytes)
        .await
        .map_err(|error| error.to_string())
}
