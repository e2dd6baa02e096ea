//! Claims due jobs and gives each a driver.
//!
//! A suspect runs alone: when its turn has come nothing else is claimed until all runs here
//! have ended, then it is claimed by itself. Waiting for it and its run together take at most half
//! of the time: after they lasted `d`, others have `d` before the next. A suspect for which the
//! others do not end in time gives way, and has its turn again after that.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_core::ids::AttemptId;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{ClaimDue, NextDue};
use tokio::time::Instant;

use crate::attempt::{self, Entrance};
use crate::drivers::Drivers;
use crate::service::Shared;
use crate::{faults, guard};

/// The longest pause between two looks: a lost wake-up costs no more.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a store that did not answer, a start that failed, a disk that is full.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// How long others are kept waiting for a suspect to be alone.
const SOLO_PATIENCE: Duration = Duration::from_secs(60);

/// How the log and the status name this loop.
pub(crate) const NAME: &str = "claims";

/// Why no job can be claimed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the disk of the data folder is nearly full: make room")]
    DiskLow,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// When solo runs may be had.
#[derive(Debug, Default)]
struct SoloClock {
    /// Since when others are kept waiting for a suspect, or for its run.
    since: Option<Instant>,
    not_before: Option<Instant>,
}

impl SoloClock {
    /// Others are kept waiting from now on.
    fn begin(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    /// They are no longer, and have as much time for themselves.
    fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.not_before = Some(Instant::now() + since.elapsed());
        }
    }

    fn allows(&self) -> bool {
        self.not_before.is_none_or(|at| at <= Instant::now())
    }
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
                shared.trouble(NAME, Some(trouble.to_string()));
                PAUSE_AFTER_FAILURE
            }
            Err(panic) => {
                tracing::error!(
                    location = panic.location,
                    said = panic.message,
                    "the claimer panicked"
                );
                PAUSE_AFTER_FAILURE
            }
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
    if shared.drivers.is_solo() {
        clock.begin();
        return Ok(LONGEST_PAUSE);
    }
    // Before the first pass of recovery the runs that are alive are not counted yet.
    if shared.held().is_some() || !shared.recovered.load(Ordering::SeqCst) {
        return Ok(LONGEST_PAUSE);
    }
    if options.executor.disk_low().await {
        return Err(Trouble::DiskLow);
    }
    let now = shared.now();
    let next = options.store.next_due(now).await?;
    let driving = shared.drivers.count();
    let solo = wants_solo(shared, clock, &next, driving);
    let free = if solo {
        u32::from(driving == 0)
    } else {
        options.concurrency.saturating_sub(driving)
    };
    if free == 0 || !(next.due || solo) {
        return Ok(pause_until(&next, now));
    }
    let attempts: Vec<_> = (0..free).map(|_| AttemptId(options.world.id())).collect();
    let expectation = Drivers::expect(shared, &attempts);
    faults::hit("engine.claim");
    let claimed = options
        .store
        .claim_due(ClaimDue {
            boot: options.boot,
            run_root: options.run_root,
            at: now,
            attempts,
            per_service: options.per_service,
            solo,
        })
        .await?;
    let none = claimed.is_empty();
    for job in &claimed {
        faults::hit_about("engine.claimed", &attempt::about(&job.job));
    }
    for job in claimed {
        attempt::spawn(shared, job, Entrance::Fresh);
    }
    drop(expectation);
    // What was due but not claimable (services at their limit) waits for a driver to leave.
    Ok(if none {
        pause_until(&next, now).max(Duration::from_millis(50))
    } else {
        Duration::ZERO
    })
}

/// Whether the next claim is a suspect's, for which all others have to end first.
fn wants_solo(shared: &Shared, clock: &mut SoloClock, next: &NextDue, driving: u32) -> bool {
    // A run that recovery has not dealt with could be company that nobody counts.
    let turn = next.suspect_first && clock.allows() && shared.settled.load(Ordering::SeqCst);
    if !turn || (driving > 0 && clock.begin().elapsed() > SOLO_PATIENCE) {
        clock.end();
        return false;
    }
    true
}

fn pause_until(next: &NextDue, now: evenkeel_core::time::Timestamp) -> Duration {
    next.next_at.map_or(LONGEST_PAUSE, |at| {
        at.since(now).clamp(Duration::from_millis(1), LONGEST_PAUSE)
    })
}

/// A place for the driver of a job's attempt, unless it has one. Recovery takes over whatever runs,
/// also beyond the limit of claims.
pub(crate) fn enter(
    shared: &Arc<Shared>,
    job: &evenkeel_core::job::Job,
) -> Option<crate::drivers::Place> {
    let attempt = job.attempt()?;
    Drivers::enter(shared, attempt.id, job.id, attempt.solo)
}
