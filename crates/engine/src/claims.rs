//! Claims due jobs and gives each a driver.
//!
//! A suspect runs alone: when its turn has come nothing else is claimed until all runs here
//! have ended, then it is claimed by itself. Solo runs take at most half of the time: after
//! one that lasted `d`, others have `d` before the next.

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
    began: Option<Instant>,
    not_before: Option<Instant>,
}

impl SoloClock {
    /// Notes whether a solo run is under way.
    fn observe(&mut self, solo: bool) {
        if solo {
            self.began.get_or_insert_with(Instant::now);
        } else if let Some(began) = self.began.take() {
            self.not_before = Some(Instant::now() + began.elapsed());
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
    let solo_now = shared.drivers.is_solo();
    clock.observe(solo_now);
    // Before the first pass of recovery the runs that are alive are not counted yet.
    if solo_now || shared.held().is_some() || !shared.recovered.load(Ordering::SeqCst) {
        return Ok(LONGEST_PAUSE);
    }
    if options.executor.disk_low().await {
        return Err(Trouble::DiskLow);
    }
    let now = shared.now();
    let next = options.store.next_due(now).await?;
    let driving = shared.drivers.count();
    let solo = next.suspect_first && clock.allows();
    let free = if solo {
        u32::from(driving == 0)
    } else {
        options.concurrency.saturating_sub(driving)
    };
    if free == 0 || !(next.due || solo) {
        return Ok(pause_until(&next, now));
    }
    let attempts = (0..free).map(|_| AttemptId(options.world.id())).collect();
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
    // What was due but not claimable (services at their limit) waits for a driver to leave.
    Ok(if none {
        pause_until(&next, now).max(Duration::from_millis(50))
    } else {
        Duration::ZERO
    })
}

fn pause_until(next: &NextDue, now: evenkeel_core::time::Timestamp) -> Duration {
    next.next_at.map_or(LONGEST_PAUSE, |at| {
        at.since(now).clamp(Duration::from_millis(1), LONGEST_PAUSE)
    })
}

/// Whether a place is free for one more driver of recovery: recovery takes over whatever runs,
/// also beyond the limit.
pub(crate) fn enter(
    shared: &Arc<Shared>,
    job: &evenkeel_core::job::Job,
) -> Option<crate::drivers::Place> {
    let attempt = job.attempt()?;
    Drivers::enter(shared, attempt.id, job.id, attempt.solo)
}
