//! The deaths of brokers are counted against the jobs near them before anybody looks at a run.
//!
//! A broker can die of looking at a run: so each death is on disk before the next look, else each
//! boot would look, and die, and none would have counted. And whether another run vanished with a
//! boot that died in an exclusive step is found out before any of that boot's jobs is dealt with:
//! afterwards there would be nothing to see.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::ids::{AttemptId, BootId};
use evenkeel_core::job::Job;
use evenkeel_core::recovery::{exposures, is_to_end_unread};
use evenkeel_core::time::Timestamp;
use evenkeel_executor::Probe;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Boot, Exposing, Owned, RunningRow};
use tokio::time::timeout;

use super::pages::Pages;
use super::past::Past;
use super::{ONE_JOB, fence_of, lived};
use crate::attempt::about;
use crate::service::{Shared, run_blocking};
use crate::{faults, guard, steps};

/// More than a run that lives is ever silent for.
const BETWEEN_SIGNS: Duration = Duration::from_secs(2);

/// Counts what the deaths of boots cost a job, each for itself; the job as it is then. `None` if
/// it has changed hands.
pub(super) async fn count(
    shared: &Shared,
    past: &Past,
    job: &Job,
) -> Result<Option<Job>, StoreError> {
    let mut job = job.clone();
    let Some(attempt) = job.attempt().cloned() else {
        return Ok(None);
    };
    let dead = past.bearing_on(&attempt, &shared.options.host_boot);
    for exposure in exposures(&attempt, &dead) {
        let Some(fence) = fence_of(&job) else {
            return Ok(None);
        };
        tracing::warn!(job = %job.id, boot = %exposure.boot, cause = ?exposure.cause,
            alone = exposure.exclusive, "a broker died near this job");
        let near = Exposing {
            exposure,
            ran: lived(shared, past, &attempt, None),
            at: shared.now(),
        };
        match shared.options.store.expose(fence, near).await? {
            Owned::Mine(counted) => job = counted,
            Owned::Lost => return Ok(None),
        }
    }
    Ok(Some(job))
}

/// Finds out, of each boot that died in an exclusive step, whether another run vanished with it,
/// and writes it into its box. Newest first: whoever is looked at for an older boot may have been
/// in the step that a newer one died in.
pub(super) async fn judge(shared: &Arc<Shared>, past: &mut Past) -> Result<(), StoreError> {
    let open: Vec<_> = past
        .dead()
        .iter()
        .rev()
        .filter(|dead| !shared.judged().contains_key(&dead.boot.id))
        .filter_map(|dead| Some((dead.boot.clone(), dead.alone()?)))
        .collect();
    for (boot, alone) in open {
        let spoilt = others_vanished(shared, past, &boot, alone).await?;
        if spoilt {
            tracing::info!(boot = %boot.id, "it died in an exclusive step, but other runs may have vanished with it");
            past.spoil(boot.id);
            spoil(shared, boot.id).await;
        }
        shared.judged().insert(boot.id, spoilt);
    }
    Ok(())
}

/// For whoever comes next; this process remembers it anyway.
async fn spoil(shared: &Shared, boot: BootId) {
    let Some(boxes) = shared.options.black_boxes.clone() else {
        return;
    };
    let spoilt = run_blocking(move || boxes.spoil(boot)).await;
    let error = match spoilt {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error,
    };
    tracing::error!(%boot, error, "the black box of a dead boot cannot be written");
}

/// Whether another run than that of `alone` vanished with a boot, or may have: one that it owned,
/// or that it had not come to take over yet. Nobody is condemned on what cannot be told.
async fn others_vanished(
    shared: &Shared,
    past: &Past,
    boot: &Boot,
    alone: AttemptId,
) -> Result<bool, StoreError> {
    let mut seen: HashSet<AttemptId> = HashSet::from([alone]);
    let mut pages = Pages::default();
    while let Some(rows) = pages.next(shared).await? {
        for row in &rows {
            let vanished = match row {
                RunningRow::Sound(job) => match job.attempt() {
                    Some(attempt) if seen.insert(attempt.id) => {
                        let asked = AssertUnwindSafe(job_vanished(shared, past, boot, job));
                        // A panic or a hang says nothing, which is told apart nowhere.
                        match timeout(ONE_JOB, guard::catch(asked)).await {
                            Ok(Ok(vanished)) => vanished,
                            Ok(Err(_)) | Err(_) => true,
                        }
                    }
                    Some(_) | None => false,
                },
                // Whose it was cannot be read, and nothing can be counted against it.
                RunningRow::Unreadable { attempt, .. } => match attempt {
                    Some(attempt) => lost_under(shared, past, boot, *attempt, None).await,
                    None => false,
                },
            };
            if vanished {
                return Ok(true);
            }
        }
    }
    // Of those behind a page that could not be gone on from nothing is known.
    Ok(pages.is_cut())
}

async fn job_vanished(shared: &Shared, past: &Past, boot: &Boot, job: &Job) -> bool {
    let Some(attempt) = job.attempt() else {
        return false;
    };
    if attempt.boot != boot.id {
        // About to be taken over: not looked at for this, since two that kill whoever looks at
        // them would keep each other from ever being convicted.
        let owner = past.get(attempt.boot);
        let earlier = owner.is_none_or(|owner| owner.nth < boot.nth);
        return earlier && lost_under(shared, past, boot, attempt.id, owner).await;
    }
    let Ok(counted) = count(shared, past, job).await else {
        return true;
    };
    let Some(job) = counted else { return false };
    let policy = shared.options.store.policy();
    // Looking at its run may be what ends brokers. Its last sign of life tells, too.
    let hands = past.hands(attempt, job.deadline_at);
    if is_to_end_unread(&job, hands, shared.now(), &policy) {
        return lost_under(shared, past, boot, attempt.id, Some(boot)).await;
    }
    let look = vanished(shared, past, boot, &job, attempt.id);
    steps::of(shared, attempt.id, steps::apart(&job, &policy), look).await
}

/// Whether a run that the boot owned vanished with it.
async fn vanished(
    shared: &Shared,
    past: &Past,
    boot: &Boot,
    job: &Job,
    attempt: AttemptId,
) -> bool {
    faults::hit_about("recovery.look", &about(job));
    match shared.options.executor.probe(attempt).await {
        Ok(Probe::Vanished | Probe::Lingering) => {
            let sign = last_sign(shared, attempt).await;
            let next = past.next_began(boot);
            // One that was lost after that boot had died did not take it along.
            sign.zip(next).is_none_or(|(sign, next)| sign <= next)
        }
        // A run folder is not sure to survive the loss of its host.
        Ok(Probe::NeverStarted) => boot.host_boot != shared.options.host_boot,
        Ok(Probe::Alive | Probe::Exited(_)) => false,
        Err(error) => {
            tracing::warn!(%attempt, %error, "a run cannot be looked at: it may have vanished");
            true
        }
    }
}

/// Whether a run that the boot had not taken over was lost while that boot lived.
async fn lost_under(
    shared: &Shared,
    past: &Past,
    boot: &Boot,
    attempt: AttemptId,
    owner: Option<&Boot>,
) -> bool {
    match shared.options.executor.is_lost(attempt).await {
        Ok(false) => return false,
        Ok(true) => {}
        Err(error) => {
            tracing::warn!(%attempt, %error, "a run cannot be asked about: it may have vanished");
            return true;
        }
    }
    let Some(sign) = last_sign(shared, attempt).await else {
        // With its owner's host it went before that boot began.
        return owner.is_none_or(|owner| owner.host_boot == boot.host_boot);
    };
    let next = past.next_began(boot);
    sign >= boot.started_at.minus(BETWEEN_SIGNS) && next.is_none_or(|next| sign <= next)
}

async fn last_sign(shared: &Shared, attempt: AttemptId) -> Option<Timestamp> {
    let silence = shared.options.executor.silence(attempt).await.ok()??;
    Some(shared.now().minus(silence))
}
