//! Claims due jobs and gives each a driver.
//!
//! A suspect runs alone: when its turn has come nothing else is claimed until all runs here
//! have ended, then it is claimed by itself. Whose turn it is, and when: [`solo`]. Before anybody
//! keeps it company, because it has outlived its window, that is on record: its broker's later
//! death is none in its solo run.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_core::explain;
use evenkeel_core::ids::{AttemptId, JobId};
use evenkeel_core::time::Timestamp;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{ClaimDue, NextDue};
use tokio::time::Instant;

use crate::attempt::{self, Entrance};
use crate::drivers::Drivers;
use crate::service::Shared;
use crate::{faults, guard, hold, steps};

mod solo;

use solo::{SoloClock, Turn};

/// The longest pause between two looks: a lost wake-up costs no more.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a store that did not answer, a start that failed, a disk that is full.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// The shortest pause between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// The pause after a look that found something due, but nothing to claim.
const PAUSE_AFTER_NOTHING: Duration = Duration::from_millis(50);

/// How the log and the status name this loop.
pub(crate) const NAME: &str = "claims";

/// Why no job can be claimed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the disk of the run root is nearly full: make room")]
    DiskLow,
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut clock = SoloClock::default();
    while !shared.ending.is_cancelled() {
        let round = guard::catch(AssertUnwindSafe(round(&shared, &mut clock))).await;
        let pause = match round {
            Ok(Ok(pause)) => {
                shared.trouble(NAME, None);
                pause
            }
            Ok(Err(trouble)) => {
                suspend(&shared, &mut clock);
                shared.trouble(NAME, Some(trouble.to_string()));
                PAUSE_AFTER_FAILURE
            }
            Err(panic) => return shared.is_broken(NAME, &panic),
        };
        tokio::select! {
            () = shared.wake.notified() => {}
            () = tokio::time::sleep(pause) => {}
            () = shared.ending.cancelled() => {}
        }
    }
}

/// Claims what fits now, and says how long to wait at most before the next look.
async fn round(shared: &Arc<Shared>, clock: &mut SoloClock) -> Result<Duration, Trouble> {
    let options = &shared.options;
    // Before the first pass of recovery the runs that are alive are not counted yet.
    if !shared.recovered.load(Ordering::SeqCst) {
        return Ok(LONGEST_PAUSE);
    }
    let _starts = shared.holds.starts.read().await;
    let running = shared.drivers.solo();
    if let Some((job, left)) = running {
        clock.runs(Instant::now());
        tell(shared, Some((job, true, left)));
    }
    if let Some(pause) = hold::settle(shared, LONGEST_PAUSE).await? {
        suspend(shared, clock);
        return Ok(pause);
    }
    if let Some((_, left)) = running {
        return Ok(left.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
    let (now, driving) = (shared.now(), shared.drivers.count());
    if clock.ran() {
        if driving > 0 {
            options.store.boot_seen(options.boot, now).await?;
        }
        clock.rest(Instant::now());
    }
    if options.executor.disk_low().await {
        return Err(Trouble::DiskLow);
    }
    let next = options.store.next_due(now).await?;
    // A run that recovery has not dealt with could be company that nobody counts.
    let due = next.suspect_first && shared.settled.load(Ordering::SeqCst);
    match clock.turn(due, driving, Instant::now()) {
        Turn::Waits(left) => {
            tell(shared, next.suspect.map(|job| (job, false, left)));
            Ok(pause_until(&next, now).min(left))
        }
        Turn::Suspect => {
            let claimed = claim(shared, now, 1, true).await?;
            // It may have been cancelled meanwhile, and somebody else had the slot.
            if shared.drivers.solo().is_some() {
                clock.claimed(Instant::now());
            }
            Ok(after(claimed, &next, now))
        }
        Turn::Others(rest) => {
            tell(shared, None);
            let free = options.concurrency.saturating_sub(driving);
            let pause = if free == 0 || !next.due {
                pause_until(&next, now)
            } else {
                let claimed = claim(shared, now, free, false).await?;
                after(claimed, &next, now)
            };
            // Nothing else wakes the loop when a suspect may have its turn.
            Ok(rest.map_or(pause, |rest| pause.min(rest)))
        }
    }
}

/// Claims at most so many jobs and gives each a driver; says how many there were.
async fn claim(
    shared: &Arc<Shared>,
    at: Timestamp,
    free: u32,
    solo: bool,
) -> Result<usize, StoreError> {
    let options = &shared.options;
    let attempts: Vec<_> = (0..free).map(|_| AttemptId(options.world.id())).collect();
    let _expectation = Drivers::expect(shared, &attempts);
    faults::hit("engine.claim");
    let claimed = options
        .store
        .claim_due(ClaimDue {
            boot: options.boot,
            run_root: options.run_root,
            at,
            attempts,
            per_service: options.per_service,
            solo,
        })
        .await?;
    for job in &claimed {
        faults::hit_about("engine.claimed", &attempt::about(&job.job));
    }
    let count = claimed.len();
    for job in claimed {
        attempt::spawn(shared, job, Entrance::Fresh);
    }
    Ok(count)
}

/// How long to wait after a claim. What was due but not claimable (services at their limit) waits
/// for a driver to leave.
fn after(claimed: usize, next: &NextDue, now: Timestamp) -> Duration {
    if claimed == 0 {
        pause_until(next, now).max(PAUSE_AFTER_NOTHING)
    } else {
        Duration::ZERO
    }
}

/// Nobody is claimed just now, for another reason: no suspect is waited for.
fn suspend(shared: &Shared, clock: &mut SoloClock) {
    clock.suspend(Instant::now());
    if !clock.ran() {
        shared.tell_alone(None);
    }
}

/// Has everybody be told whose turn to run alone it is, whether its run has begun, and how long
/// others are kept waiting at most.
fn tell(shared: &Shared, turn: Option<(JobId, bool, Duration)>) {
    let alone = turn.map(|(job, runs, left)| explain::Turn {
        job,
        runs,
        until: shared.now().plus(left),
    });
    let before = shared.tell_alone(alone);
    let of = |alone: &explain::Turn| (alone.job, alone.runs);
    if before.as_ref().map(of) == alone.as_ref().map(of) {
        return;
    }
    match alone {
        Some(explain::Turn {
            job, runs: true, ..
        }) => {
            tracing::info!(%job, "a suspect runs alone: nothing else is started meanwhile");
        }
        Some(explain::Turn { job, .. }) => {
            tracing::info!(%job, "it is a suspect's turn to run alone: the runs beside it are waited for");
        }
        None => tracing::info!("other jobs are started again"),
    }
}

fn pause_until(next: &NextDue, now: Timestamp) -> Duration {
    next.next_at.map_or(LONGEST_PAUSE, |at| {
        at.since(now).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    })
}

/// A place for the driver of a job's attempt, unless it has one. Recovery takes over whatever runs,
/// also beyond the limit of claims.
pub(crate) fn enter(
    shared: &Arc<Shared>,
    job: &evenkeel_core::job::Job,
) -> Option<crate::drivers::Place> {
    let attempt = job.attempt()?;
    // One that became a suspect under way, near the loss of its host, gets no new company either:
    // each run that is started beside it would vanish with the next host, and excuse it.
    let lost_its_host = steps::lost_its_host(attempt);
    let solo = attempt
        .solo
        .or_else(|| job.budget.solo_window().filter(|_| lost_its_host));
    Drivers::enter(shared, attempt.id, job.id, solo)
}
