//! Finds jobs that are recorded as running but have no driver, and does about each what the
//! planner says: at the start, and ever after.
//!
//! Every job is looked at by itself, with its own guard and its own time limit: one that cannot
//! be dealt with delays nobody. A dead boot is known by the data folder's lock: this process
//! holds it, so that every other boot of this store is dead. What is done is idempotent: each
//! step changes the job's owner or its state, and a pass that was cut short finds the rest.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_core::attempt::{Attempt, End, Exposure, ExposureCause, RunReport};
use evenkeel_core::ids::BootId;
use evenkeel_core::job::Job;
use evenkeel_core::recovery::{
    Action, DeathFact, Facts, OwnerFact, RunFact, plan, plan_unreadable,
};
use evenkeel_core::time::Timestamp;
use evenkeel_executor::Probe;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Adoption, Boot, Claimed, Fence, Owned, RunningRow};
use tokio::time::timeout;

use crate::attempt::{self, Entrance, Outcome, Step};
use crate::faults;
use crate::guard::{self, Caught};
use crate::service::Shared;

/// Rows that are read at once.
const PAGE: u32 = 500;
/// Jobs that are looked at side by side.
const SIDE_BY_SIDE: usize = 16;
/// How long one job may keep its place.
const ONE_JOB: Duration = Duration::from_secs(30);

/// How the log and the status name this loop.
pub(crate) const NAME: &str = "recovery";

/// How long after its deadline and its grace a run that cannot be looked at counts as over.
const ROOT_MARGIN: Duration = Duration::from_secs(60);

/// What is known about boots, read once a pass.
type Boots = HashMap<BootId, Boot>;

pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.ending.is_cancelled() {
        match guard::catch(AssertUnwindSafe(pass(&shared))).await {
            Ok(Ok(())) => {
                shared.trouble(NAME, None);
                if !shared.recovered.swap(true, Ordering::SeqCst) {
                    tracing::info!("the first pass of recovery is over");
                    shared.wake.notify_one();
                }
            }
            Ok(Err(error)) => shared.trouble(NAME, Some(error.to_string())),
            Err(panic) => {
                tracing::error!(
                    location = panic.location,
                    said = panic.message,
                    "recovery panicked"
                );
            }
        }
        let pause = if shared.recovered.load(Ordering::SeqCst) {
            shared.options.reconcile_every
        } else {
            Duration::from_millis(200)
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.ending.cancelled() => {}
        }
    }
}

/// Looks at every job that is recorded as running, then gives the verdict on dead boots.
async fn pass(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let store = &shared.options.store;
    let open = store.open_boots().await?;
    let boots: Arc<Boots> = Arc::new(open.into_iter().map(|boot| (boot.id, boot)).collect());
    let mut after = None;
    let mut left = 0_usize;
    loop {
        let rows = store.running(after, PAGE).await?;
        let Some(last) = rows.last() else { break };
        let full = rows.len() == PAGE as usize;
        after = next_page(last, after);
        left += page(shared, &boots, rows).await;
        if !full || after.is_none() {
            break;
        }
    }
    shared.settled.store(left == 0, Ordering::SeqCst);
    if left == 0 {
        close_boots(shared, &boots).await?;
    }
    for fence in store.stopping(shared.options.boot).await? {
        shared.drivers.stop(fence.job);
    }
    Ok(())
}

fn next_page(
    last: &RunningRow,
    before: Option<evenkeel_core::ids::JobId>,
) -> Option<evenkeel_core::ids::JobId> {
    match last {
        RunningRow::Sound(job) => Some(job.id),
        RunningRow::Unreadable { job, .. } => job.parse().ok().or(before),
    }
}

/// Deals with a page of rows, some side by side; says how many are left undone.
async fn page(shared: &Arc<Shared>, boots: &Arc<Boots>, rows: Vec<RunningRow>) -> usize {
    let mut left = 0;
    let mut tasks = tokio::task::JoinSet::new();
    for row in rows {
        if let RunningRow::Sound(job) = &row
            && job
                .attempt()
                .is_some_and(|attempt| shared.drivers.has(attempt.id))
        {
            continue;
        }
        if tasks.len() >= SIDE_BY_SIDE {
            left += undone(tasks.join_next().await);
        }
        let shared = Arc::clone(shared);
        let boots = Arc::clone(boots);
        tasks.spawn(async move {
            let name = match &row {
                RunningRow::Sound(job) => job.id.to_string(),
                RunningRow::Unreadable { job, .. } => job.clone(),
            };
            let work = AssertUnwindSafe(one(&shared, &boots, &row));
            match timeout(ONE_JOB, guard::catch(work)).await {
                Ok(Ok(Ok(()))) => true,
                Ok(Ok(Err(message))) => {
                    tracing::warn!(job = name, why = message, "recovery comes back to this job");
                    false
                }
                Ok(Err(panic)) => {
                    if let RunningRow::Sound(job) = &row {
                        panicked(&shared, &boots, job, panic).await
                    } else {
                        tracing::error!(job = name, location = panic.location, "recovery panicked");
                        false
                    }
                }
                Err(_) => {
                    tracing::warn!(job = name, "recovery of this job takes too long");
                    false
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        left += undone(Some(done));
    }
    left
}

fn undone(done: Option<Result<bool, tokio::task::JoinError>>) -> usize {
    usize::from(!matches!(done, Some(Ok(true)) | None))
}

/// A step of recovery panicked over this job, which pays as for one of its driver: else it would
/// be looked at for ever. Where it is our bug its run goes on, for a boot that can deal with it.
async fn panicked(shared: &Arc<Shared>, boots: &Boots, job: &Job, panic: Caught) -> bool {
    let end = attempt::blame(shared, job, panic);
    if matches!(end, End::OurBug { .. }) {
        return false;
    }
    let Some(attempt) = job.attempt() else {
        return true;
    };
    let taken = take_over(shared, job, None, lived(shared, boots, attempt, None));
    match timeout(ONE_JOB, taken).await {
        Ok(Ok(claimed)) => {
            if let Some(claimed) = claimed {
                attempt::spawn_close(shared, claimed, end);
            }
            true
        }
        Ok(Err(message)) => {
            tracing::warn!(job = %job.id, why = message, "recovery comes back to this job");
            false
        }
        Err(_) => false,
    }
}

async fn one(shared: &Arc<Shared>, boots: &Boots, row: &RunningRow) -> Result<(), String> {
    let job = match row {
        RunningRow::Sound(job) => job,
        RunningRow::Unreadable {
            job,
            attempt,
            message,
        } => {
            if let Some(attempt) = attempt {
                // A driver that still has it gives up when it cannot write its end.
                if shared.drivers.has(*attempt) {
                    return Ok(());
                }
                // Whoever waits for the job may start when it is final: its run has to be over.
                let gone = attempt::run::end_and_prove_gone(shared, *attempt, shared.now());
                if let Step::Leave = gone.await {
                    return Ok(());
                }
            }
            for action in plan_unreadable() {
                if action == Action::SetAside {
                    set_aside(shared, job, message).await?;
                }
            }
            return Ok(());
        }
    };
    let Some(attempt) = job.attempt().cloned() else {
        return Ok(());
    };
    if attempt.run_root != shared.options.run_root {
        return lost_root(shared, job, &attempt).await;
    }
    let probe = shared.options.executor.probe(attempt.id).await;
    let (run, report) = fact(probe.map_err(|error| error.to_string())?);
    let silence = shared.options.executor.silence(attempt.id).await;
    let silence = silence.map_err(|error| error.to_string())?;
    let last_sign = silence.map(|silence| shared.now().minus(silence));
    let ran = match &report {
        Some(report) => report.ran(),
        None => lived(shared, boots, &attempt, last_sign),
    };
    let facts = Facts {
        attempt: attempt.id,
        owner: owner(shared, boots, &attempt, last_sign),
        run,
        ran,
    };
    for action in plan(&facts) {
        faults::hit_about("recovery.action", &format!("{} {action:?}", job.action));
        carry_out(shared, job, action, ran, report.clone()).await?;
    }
    Ok(())
}

async fn set_aside(shared: &Shared, job: &str, message: &str) -> Result<(), String> {
    let set = shared.options.store.set_aside(job, message, shared.now());
    set.await.map_err(|error| error.to_string())
}

/// The run is in a root that this broker does not have: deleted, moved, or on the host that a
/// restored store came from. Nobody here can say that it is gone until its own deadline, which
/// its shim keeps, has passed; then the job ends.
async fn lost_root(shared: &Arc<Shared>, job: &Job, attempt: &Attempt) -> Result<(), String> {
    let over = job.deadline_at.plus(shared.options.grace).plus(ROOT_MARGIN);
    if shared.now() < over {
        return Err(format!(
            "its run is in run root {}, this broker's is {}; it ends at its deadline",
            attempt.run_root, shared.options.run_root
        ));
    }
    if let Some(fence) = fence_of(job) {
        let end = End::Exposed(Exposure {
            cause: ExposureCause::HostLost,
            exclusive: false,
        });
        attempt::conclude(shared, fence, Outcome::of(end, Duration::ZERO)).await;
    }
    Ok(())
}

fn fact(probe: Probe) -> (RunFact, Option<Box<RunReport>>) {
    match probe {
        Probe::NeverStarted => (RunFact::NeverStarted, None),
        Probe::Alive => (RunFact::Alive, None),
        Probe::Lingering => (RunFact::Lingering, None),
        Probe::Exited(report) => (RunFact::Exited, Some(report)),
        Probe::Vanished => (RunFact::Vanished, None),
    }
}

fn owner(
    shared: &Shared,
    boots: &Boots,
    attempt: &Attempt,
    last_sign: Option<Timestamp>,
) -> OwnerFact {
    if attempt.boot == shared.options.boot {
        return if shared.drivers.has(attempt.id) {
            OwnerFact::Driven
        } else {
            OwnerFact::Undriven
        };
    }
    // A boot whose verdict was given, or that the store no longer knows, died uncleanly as far
    // as anybody can say.
    let known = boots.get(&attempt.boot);
    OwnerFact::Dead(DeathFact {
        drained: known.is_some_and(|boot| drained(boots, boot, last_sign)),
        host_restarted: known.is_some_and(|boot| boot.host_boot != shared.options.host_boot),
        named: false,
        exclusive: false,
    })
}

/// Whether a boot's orderly end explains that a run of it is gone: not if the run lived on until
/// the next boot had begun, since then it may have taken that one with it.
fn drained(boots: &Boots, boot: &Boot, last_sign: Option<Timestamp>) -> bool {
    let Some(drained_at) = boot.drained_at else {
        return false;
    };
    let next = boots
        .values()
        .map(|boot| boot.started_at)
        .filter(|at| *at > drained_at)
        .min();
    match (last_sign, next) {
        (Some(sign), Some(next)) => sign < next,
        (None, _) | (_, None) => true,
    }
}

/// How long a run without a record is known to have lived: from its claim to its last sign of
/// life, or else until its owner was last seen.
fn lived(
    shared: &Shared,
    boots: &Boots,
    attempt: &Attempt,
    last_sign: Option<Timestamp>,
) -> Duration {
    let seen = last_sign.unwrap_or_else(|| {
        if attempt.boot == shared.options.boot {
            shared.now()
        } else {
            boots
                .get(&attempt.boot)
                .map_or(attempt.claimed_at, |boot| boot.seen_at)
        }
    });
    seen.since(attempt.claimed_at)
}

async fn carry_out(
    shared: &Arc<Shared>,
    job: &Job,
    action: Action,
    ran: Duration,
    report: Option<Box<RunReport>>,
) -> Result<(), String> {
    let (exposed, entrance) = match action {
        Action::Leave => return Ok(()),
        Action::Adopt(exposed) => (exposed, Entrance::Adopted),
        Action::Conclude(exposed) => {
            let report = report.ok_or("an exit record was found and then was not")?;
            (exposed, Entrance::Exited(report))
        }
        // Under the dead owner's fence: taken over first and then cut off, the next look would
        // take this boot's death for the one that is charged.
        Action::Requeue(end) | Action::Charge(end) => {
            if let Some(fence) = fence_of(job) {
                tracing::info!(job = %job.id, action = %job.action, ?end, "ended without a run");
                attempt::conclude(shared, fence, Outcome::of(end, ran)).await;
            }
            return Ok(());
        }
        Action::SetAside => {
            return set_aside(shared, &job.id.to_string(), "unreadable").await;
        }
        Action::Sweep => {
            let Some(attempt) = job.attempt() else {
                return Ok(());
            };
            let swept = shared.options.executor.sweep(attempt.id).await;
            return match swept {
                Ok(true) => Err("what was left of its run was ended; looking again".to_owned()),
                Ok(false) => Err("what is left of its run does not end".to_owned()),
                Err(error) => Err(error.to_string()),
            };
        }
    };
    if let Some(claimed) = take_over(shared, job, exposed, ran).await? {
        tracing::info!(job = %job.id, action = %job.action, how = entrance.name(), "taken over");
        attempt::spawn(shared, claimed, entrance);
    }
    Ok(())
}

/// Makes this boot the owner. A boot that lost its driver takes over from itself: the token
/// grows, and whatever the lost driver may still have in flight is void.
async fn take_over(
    shared: &Arc<Shared>,
    job: &Job,
    exposed: Option<Exposure>,
    ran: Duration,
) -> Result<Option<Claimed>, String> {
    let Some(from) = fence_of(job) else {
        return Ok(None);
    };
    let adoption = Adoption {
        from,
        boot: shared.options.boot,
        exposed,
        ran,
        at: shared.now(),
    };
    match shared.options.store.adopt(adoption).await {
        Ok(Owned::Mine(claimed)) => Ok(Some(claimed)),
        Ok(Owned::Lost) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The right of the attempt's present owner.
fn fence_of(job: &Job) -> Option<Fence> {
    job.attempt().map(|attempt| Fence {
        job: job.id,
        attempt: attempt.id,
        boot: attempt.boot,
        token: job.token,
    })
}

impl Entrance {
    fn name(&self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Adopted => "its run goes on",
            Self::Exited(_) => "its run has ended",
        }
    }
}

/// The verdict on each dead boot, once nothing is recorded as running under it.
async fn close_boots(shared: &Shared, boots: &Boots) -> Result<(), StoreError> {
    for boot in boots.values().filter(|boot| boot.id != shared.options.boot) {
        let verdict = match (
            boot.drained_at.is_some(),
            boot.host_boot != shared.options.host_boot,
        ) {
            (true, false) => "ended in order",
            (true, true) => "ended in order; the host was restarted",
            (false, false) => "died",
            (false, true) => "died with its host",
        };
        if shared
            .options
            .store
            .close_boot(boot.id, verdict, shared.now())
            .await?
        {
            tracing::info!(boot = %boot.id, verdict, "an earlier boot");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use evenkeel_core::ids::RunRootId;

    use super::*;

    fn boot(id: u128, started_at: i64, drained_at: Option<i64>) -> (BootId, Boot) {
        let id = BootId(uuid::Uuid::from_u128(id));
        let boot = Boot {
            id,
            run_root: RunRootId(uuid::Uuid::from_u128(9)),
            started_at: Timestamp(started_at),
            host_boot: "host".to_owned(),
            drained_at: drained_at.map(Timestamp),
            seen_at: Timestamp(started_at),
            closed_at: None,
        };
        (id, boot)
    }

    #[test]
    fn a_drain_explains_a_lost_run_unless_the_run_outlived_the_start_of_the_next_boot() {
        let boots: Boots = [
            boot(1, 0, Some(100)),
            boot(2, 200, None),
            boot(3, 300, None),
        ]
        .into();
        let first = &boots[&BootId(uuid::Uuid::from_u128(1))];
        let second = &boots[&BootId(uuid::Uuid::from_u128(2))];
        assert!(drained(&boots, first, Some(Timestamp(150))));
        assert!(!drained(&boots, first, Some(Timestamp(250))));
        assert!(drained(&boots, first, None));
        assert!(!drained(&boots, second, Some(Timestamp(250))));
    }
}
