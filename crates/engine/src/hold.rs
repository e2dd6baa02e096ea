//! Held: no new run starts, and everything else is served.
//!
//! [`evenkeel_core::hold`] has the rule; here it is asked and obeyed. What is held stands in memory,
//! and, where it outlives a process, first in the store: only this process writes there. All runs
//! start by a claim, also those of a job that recovery queues again, and of a suspect: claims look
//! here, and once more the start of a run, for what was claimed and prepared before the hold. Runs
//! that live are adopted, watched, stopped and concluded as ever.
//!
//! The rule is asked once, after the first pass of recovery and before the first claim: by then
//! whom the black boxes of dead boots name is on record.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_core::hold::{self, Cause, Hold};
use evenkeel_core::time::Timestamp;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::Release;
use tokio::time::Instant;

use crate::operator;
use crate::options::Options;
use crate::service::Shared;

/// How long a hold by hand waits for starts that are under way; less than its caller does.
const LAST_STARTS: Duration = Duration::from_secs(20);

/// Who holds when nobody asked.
const BROKER: &str = "broker";

/// A reason for which no new run starts, and when it ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The reason.
    pub hold: Hold,
    /// When it ends by itself, if nothing more goes wrong; never, if held by hand.
    pub ends_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Standing {
    hold: Hold,
    ends: Option<(Instant, Timestamp)>,
}

impl Standing {
    fn new(hold: Hold, now: Timestamp, lasts: Option<Duration>) -> Self {
        let ends = lasts.map(|lasts| (Instant::now() + lasts, now.plus(lasts)));
        Self { hold, ends }
    }

    fn left(&self) -> Option<Duration> {
        let (ends, _) = self.ends?;
        Some(ends.saturating_duration_since(Instant::now()))
    }

    fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

/// All reasons for which no new run starts.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Shared by whoever claims jobs or starts a run, and looks here then; a hold by hand waits for
    /// them: when it is answered nothing more is claimed or started.
    pub(crate) starts: tokio::sync::RwLock<()>,
    /// Taken for every change that is put on record; never while `starts` is waited for.
    changes: tokio::sync::Mutex<()>,
    standing: Mutex<BTreeMap<Cause, Standing>>,
    /// The rule was asked.
    judged: AtomicBool,
}

impl Holds {
    /// What earlier processes have left on record.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn load(options: &Options, now: Timestamp) -> Result<Self, StoreError> {
        let holds = Self::default();
        for hold in options.store.holds().await? {
            let lasts = match hold.cause {
                Cause::Hand => None,
                Cause::Deaths | Cause::Panics => {
                    Some(hold::remaining(hold.since, now, options.hold_quiet))
                }
            };
            tracing::warn!(
                cause = hold.cause.as_str(),
                "no new run starts: {}",
                hold.line()
            );
            holds.put(Standing::new(hold, now, lasts));
        }
        Ok(holds)
    }

    fn standing(&self) -> MutexGuard<'_, BTreeMap<Cause, Standing>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, standing: Standing) {
        self.standing().insert(standing.hold.cause, standing);
    }

    /// All of them; none where new runs start.
    pub(crate) fn all(&self) -> Vec<Held> {
        let standing = self.standing();
        let held = standing.values().map(|Standing { hold, ends }| Held {
            hold: hold.clone(),
            ends_at: ends.map(|(_, at)| at),
        });
        held.collect()
    }

    /// Why no new run starts.
    pub(crate) fn line(&self) -> Option<String> {
        let standing = self.standing();
        let lines: Vec<_> = standing.values().map(|one| one.hold.line()).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// Whether the rule was asked.
    pub(crate) fn is_judged(&self) -> bool {
        self.judged.load(Ordering::SeqCst)
    }

    /// Whether it is because brokers died in a row, and nobody knows why.
    pub(crate) fn is_for_deaths(&self) -> bool {
        self.standing().contains_key(&Cause::Deaths)
    }

    /// Until the next of them ends by itself.
    fn next_end(&self) -> Option<Duration> {
        self.standing().values().filter_map(Standing::left).min()
    }
}

/// Asks the rule, if that was not done, and ends what is over. While new runs are held: how long at
/// most until that may be different.
///
/// # Errors
/// The store's; what is held then stays held.
pub(crate) async fn settle(
    shared: &Shared,
    at_most: Duration,
) -> Result<Option<Duration>, StoreError> {
    let holds = &shared.holds;
    let _changes = holds.changes.lock().await;
    if !holds.judged.load(Ordering::SeqCst) {
        judge(shared).await?;
        holds.judged.store(true, Ordering::SeqCst);
    }
    if holds
        .standing()
        .get(&Cause::Deaths)
        .is_some_and(Standing::is_over)
    {
        let why = "no broker died for a while, or it was held for long enough";
        let release = release_of(shared, &[Cause::Deaths], BROKER, why);
        shared.options.store.release(release).await?;
        holds.standing().remove(&Cause::Deaths);
        tracing::warn!("held no longer: {why}");
    }
    holds.standing().retain(|cause, standing| {
        let over = *cause == Cause::Panics && standing.is_over();
        if over {
            tracing::warn!("held no longer: nothing panicked for a while");
        }
        !over
    });
    if holds.standing().is_empty() {
        return Ok(None);
    }
    Ok(Some(
        holds.next_end().map_or(at_most, |end| end.min(at_most)),
    ))
}

async fn judge(shared: &Shared) -> Result<(), StoreError> {
    let Options {
        store,
        boot,
        hold_after,
        hold_quiet,
        ..
    } = &shared.options;
    if shared.holds.standing().contains_key(&Cause::Deaths) {
        return Ok(());
    }
    // No older end matters.
    let ends = store.boot_ends(*boot, (*hold_after).max(1)).await?;
    if !hold::is_due(&ends, *hold_after, *hold_quiet) {
        return Ok(());
    }
    let deaths = hold::deaths_in_a_row(&ends, *hold_quiet);
    let (line, now) = (hold::deaths_line(deaths, *hold_quiet), shared.now());
    let hold = Hold::new(Cause::Deaths, &line, BROKER, now);
    store.hold(&hold).await?;
    tracing::error!("held: no new run starts: {line}");
    shared
        .holds
        .put(Standing::new(hold, now, Some(*hold_quiet)));
    Ok(())
}

/// The broker's own fault was found: no new run until nothing panicked for a quiet period.
pub(crate) fn for_panics(shared: &Shared, reason: &str) {
    tracing::error!("held: no new run starts: {reason}");
    let now = shared.now();
    let hold = Hold::new(Cause::Panics, reason, BROKER, now);
    let lasts = Some(shared.options.hold_quiet);
    shared.holds.put(Standing::new(hold, now, lasts));
}

/// An operator's hold: over restarts, until an operator's release. `false`: it was so before.
pub(crate) async fn by_hand(shared: &Shared, reason: &str) -> Result<bool, StoreError> {
    let holds = &shared.holds;
    let changes = holds.changes.lock().await;
    let now = shared.now();
    let known = holds
        .standing()
        .get(&Cause::Hand)
        .map(|known| known.hold.clone());
    let since = known.as_ref().map_or(now, |known| known.since);
    let hold = Hold::new(Cause::Hand, reason, operator::ACTOR, since);
    if known.as_ref() == Some(&hold) {
        return Ok(false);
    }
    let on_record = Hold {
        since: now,
        ..hold.clone()
    };
    shared.options.store.hold(&on_record).await?;
    tracing::warn!("no new run starts: {}", hold.line());
    holds.put(Standing::new(hold, now, None));
    drop(changes);
    let under_way = tokio::time::timeout(LAST_STARTS, holds.starts.write());
    if under_way.await.is_err() {
        tracing::warn!("a start that was under way before the hold takes its time");
    }
    Ok(true)
}

/// An operator's end of all holds. What was counted does not count again; what panicked at one place
/// for several jobs is remembered, so that the next panic there holds again and charges nobody.
/// `false`: nothing was held.
pub(crate) async fn release(shared: &Shared) -> Result<bool, StoreError> {
    let holds = &shared.holds;
    let _changes = holds.changes.lock().await;
    let Some(line) = holds.line() else {
        return Ok(false);
    };
    let why = format!("no longer: {line}");
    let release = release_of(shared, &Cause::ALL, operator::ACTOR, &why);
    shared.options.store.release(release).await?;
    tracing::warn!("held no longer, as an operator wants it");
    holds.standing().clear();
    shared.wake.notify_one();
    Ok(true)
}

fn release_of(shared: &Shared, causes: &[Cause], actor: &str, why: &str) -> Release {
    Release {
        causes: causes.to_vec(),
        boot: shared.options.boot,
        actor: actor.to_owned(),
        why: why.to_owned(),
        at: shared.now(),
    }
}
