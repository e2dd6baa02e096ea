//! Finds jobs that are recorded as running but have no driver, and does about each what the
//! planner says: at the start, and ever after.
//!
//! Every job is looked at by itself, with its own guard and its own time limit: one that cannot
//! be dealt with delays nobody. A dead boot is known by the data folder's lock: this process
//! holds it, so that every other boot of this store is dead. What is done is idempotent: each
//! step changes the job's owner or its state, and a pass that was cut short finds the rest.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_core::attempt::{Attempt, End, ExposureCause, RunReport};
use evenkeel_core::ids::AttemptId;
use evenkeel_core::job::Job;
use evenkeel_core::recovery::{
    Action, DeathFact, Facts, OwnerFact, RunFact, cannot_be_ended, is_to_end_unread, plan,
    plan_unreadable,
};
use evenkeel_core::time::Timestamp;
use evenkeel_executor::Probe;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Adoption, Claimed, Fence, Owned, RunningRow};
use tokio::time::timeout;

use crate::attempt::{self, Entrance, Outcome, Step};
use crate::guard::{self, Caught};
use crate::service::{Shared, run_blocking};
use crate::{deaths, faults, steps};

mod expose;
mod pages;
mod past;

use pages::Pages;
use past::Past;

/// Jobs that are looked at side by side.
const SIDE_BY_SIDE: usize = 16;
/// How long one job may keep its place.
const ONE_JOB: Duration = Duration::from_secs(30);

/// How the log and the status name this loop.
pub(crate) const NAME: &str = "recovery";

/// How long after its deadline and its grace a run that cannot be looked at counts as over.
const ROOT_MARGIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.ending.is_cancelled() {
        match guard::catch(AssertUnwindSafe(pass(&shared))).await {
            Ok(Ok(())) => {
                shared.trouble(NAME, None);
                note_last_death(&shared).await;
                if !shared.recovered.swap(true, Ordering::SeqCst) {
                    tracing::info!("the first pass of recovery is over");
                    shared.wake.notify_one();
                }
            }
            Ok(Err(error)) => shared.trouble(NAME, Some(error.to_string())),
            Err(panic) => return shared.is_broken(NAME, &panic),
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

/// Once, when all earlier boots have been looked at.
async fn note_last_death(shared: &Shared) {
    if shared.last_death.get().is_none() {
        match deaths::last_unclean(shared).await {
            Ok(last) => drop(shared.last_death.set(last)),
            Err(error) => tracing::warn!(%error, "how earlier boots ended cannot be told yet"),
        }
    }
}

/// Looks at every job that is recorded as running, then gives the verdict on dead boots.
async fn pass(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let store = &shared.options.store;
    let open = deaths::take_over(shared, store.open_boots().await?).await?;
    let mut past = Past::read(shared, open).await;
    expose::judge(shared, &mut past).await?;
    let past = Arc::new(past);
    if !past.dead().is_empty() {
        // All deaths are counted, and who is condemned by them is being ended, before anybody is
        // looked at.
        rows(shared, &past, Round::Count).await?;
    }
    let left = rows(shared, &past, Round::Look).await?;
    shared.settled.store(left == 0, Ordering::SeqCst);
    if left == 0 {
        close_boots(shared, &past).await?;
    }
    for fence in store.stopping(shared.options.boot).await? {
        shared.drivers.stop(fence.job);
    }
    Ok(())
}

/// What is done about each row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    Count,
    Look,
}

/// Deals with all rows, page by page; says how many are left undone.
async fn rows(shared: &Arc<Shared>, past: &Arc<Past>, round: Round) -> Result<usize, StoreError> {
    let mut pages = Pages::default();
    let mut left = 0_usize;
    while let Some(rows) = pages.next(shared).await? {
        left += page(shared, past, rows, round).await;
    }
    Ok(left)
}

/// Deals with a page of rows, some side by side; says how many are left undone.
async fn page(
    shared: &Arc<Shared>,
    past: &Arc<Past>,
    rows: Vec<RunningRow>,
    round: Round,
) -> usize {
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
        let past = Arc::clone(past);
        tasks.spawn(async move {
            let name = match &row {
                RunningRow::Sound(job) => job.id.to_string(),
                RunningRow::Unreadable { job, .. } => job.clone(),
            };
            let work = AssertUnwindSafe(one(&shared, &past, &row, round));
            match timeout(ONE_JOB, guard::catch(work)).await {
                Ok(Ok(Ok(()))) => true,
                Ok(Ok(Err(message))) => {
                    tracing::warn!(job = name, why = message, "recovery comes back to this job");
                    false
                }
                Ok(Err(panic)) => {
                    if let RunningRow::Sound(job) = &row {
                        panicked(&shared, job, panic).await
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
async fn panicked(shared: &Arc<Shared>, job: &Job, panic: Caught) -> bool {
    let end = attempt::blame(shared, job, &panic);
    if matches!(end, End::OurBug { .. }) {
        return false;
    }
    match timeout(ONE_JOB, take_over(shared, job)).await {
        Ok(Ok(claimed)) => {
            if let Some(claimed) = claimed {
                attempt::spawn_close(shared, claimed, end, panic);
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

async fn one(
    shared: &Arc<Shared>,
    past: &Past,
    row: &RunningRow,
    round: Round,
) -> Result<(), String> {
    let job = match row {
        RunningRow::Sound(job) => job,
        RunningRow::Unreadable { .. } if round == Round::Count => return Ok(()),
        RunningRow::Unreadable {
            job,
            attempt,
            message,
        } => return by_row_alone(shared, job, *attempt, message).await,
    };
    let Some(attempt) = job.attempt() else {
        return Ok(());
    };
    if attempt.run_root != shared.options.run_root {
        return match round {
            Round::Count => Ok(()),
            Round::Look => lost_root(shared, job, attempt).await,
        };
    }
    let counted = expose::count(shared, past, job).await;
    let Some(job) = counted.map_err(|error| error.to_string())? else {
        return Ok(());
    };
    let policy = shared.options.store.policy();
    let (hands, now) = (past.hands(attempt, job.deadline_at), shared.now());
    if cannot_be_ended(&job, hands, now, &policy) {
        let why = "the broker ended whenever its end was written";
        return by_row_alone(shared, &job.id.to_string(), Some(attempt.id), why).await;
    }
    if is_to_end_unread(&job, hands, now, &policy) {
        return adopt(shared, &job, Entrance::Unread).await;
    }
    if round == Round::Count {
        return Ok(());
    }
    let look = look(shared, past, &job, attempt);
    steps::of(shared, attempt.id, steps::apart(&job, &policy), look).await
}

/// Looks at the run of a job and does what the planner says.
async fn look(
    shared: &Arc<Shared>,
    past: &Past,
    job: &Job,
    attempt: &Attempt,
) -> Result<(), String> {
    faults::hit_about("recovery.look", &attempt::about(job));
    let probe = shared.options.executor.probe(attempt.id).await;
    let (run, report) = fact(probe.map_err(|error| error.to_string())?);
    let silence = shared.options.executor.silence(attempt.id).await;
    let silence = silence.map_err(|error| error.to_string())?;
    let last_sign = silence.map(|silence| shared.now().minus(silence));
    let ran = match &report {
        Some(report) => report.ran(),
        None => lived(shared, past, attempt, last_sign),
    };
    let facts = Facts {
        attempt: attempt.id,
        owner: owner(shared, past, attempt, last_sign),
        run,
        ran,
    };
    for action in plan(&facts) {
        faults::hit_about("recovery.action", &format!("{} {action:?}", job.action));
        carry_out(shared, job, action, ran, report.clone()).await?;
    }
    Ok(())
}

/// For what nothing else can be done about: its run is ended, its row marked.
async fn by_row_alone(
    shared: &Arc<Shared>,
    job: &str,
    attempt: Option<AttemptId>,
    message: &str,
) -> Result<(), String> {
    if let Some(attempt) = attempt {
        // A driver that still has it gives up when it cannot write its end.
        if shared.drivers.has(attempt) {
            return Ok(());
        }
        // Whoever waits for the job may start when it is final: its run has to be over.
        let gone = attempt::run::end_and_prove_gone(shared, attempt, shared.now());
        if let Step::Leave = steps::of(shared, attempt, None, gone).await {
            return Ok(());
        }
    }
    for action in plan_unreadable() {
        if action == Action::SetAside {
            set_aside(shared, job, message).await?;
        }
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
        let cause = ExposureCause::HostLost;
        let end = End::Exposed { cause };
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
    past: &Past,
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
    let known = past.get(attempt.boot);
    OwnerFact::Dead(DeathFact {
        drained: known.is_some_and(|boot| past.drained(boot, last_sign)),
        host_restarted: known.is_some_and(|boot| boot.host_boot != shared.options.host_boot),
        counted: attempt.death_of(attempt.boot).map(|death| death.cause),
    })
}

/// How long a run without a record is known to have lived: from its claim to its last sign of
/// life, or else until its owner was last seen.
fn lived(
    shared: &Shared,
    past: &Past,
    attempt: &Attempt,
    last_sign: Option<Timestamp>,
) -> Duration {
    let seen = last_sign.unwrap_or_else(|| {
        if attempt.boot == shared.options.boot {
            shared.now()
        } else {
            past.get(attempt.boot)
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
    match action {
        Action::Leave => Ok(()),
        Action::Adopt => adopt(shared, job, Entrance::Adopted).await,
        Action::Conclude => {
            let report = report.ok_or("an exit record was found and then was not")?;
            adopt(shared, job, Entrance::Exited(report)).await
        }
        // Under the dead owner's fence: taken over first and then cut off, the next look would
        // take this boot's death for the one that is charged.
        Action::Requeue(end) | Action::Charge(end) => {
            if let Some(fence) = fence_of(job) {
                tracing::info!(job = %job.id, action = %job.action, ?end, "ended without a run");
                let outcome = Outcome::gathered(shared, fence.attempt, end, ran).await;
                attempt::conclude(shared, fence, outcome).await;
            }
            Ok(())
        }
        Action::SetAside => set_aside(shared, &job.id.to_string(), "unreadable").await,
        Action::Sweep => {
            let Some(attempt) = job.attempt() else {
                return Ok(());
            };
            match shared.options.executor.sweep(attempt.id).await {
                Ok(true) => Err("what was left of its run was ended; looking again".to_owned()),
                Ok(false) => Err("what is left of its run does not end".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        }
    }
}

/// Takes a job over and gives it a driver.
async fn adopt(shared: &Arc<Shared>, job: &Job, entrance: Entrance) -> Result<(), String> {
    if let Some(claimed) = take_over(shared, job).await? {
        tracing::info!(job = %job.id, action = %job.action, how = entrance.name(), "taken over");
        attempt::spawn(shared, claimed, entrance);
    }
    Ok(())
}

/// Makes this boot the owner. A boot that lost its driver takes over from itself: the token
/// grows, and whatever the lost driver may still have in flight is void.
async fn take_over(shared: &Arc<Shared>, job: &Job) -> Result<Option<Claimed>, String> {
    let Some(from) = fence_of(job) else {
        return Ok(None);
    };
    let adoption = Adoption {
        from,
        boot: shared.options.boot,
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
            Self::Unread => "its run is ended",
            Self::Exited(_) => "its run has ended",
        }
    }
}

/// The verdict on each dead boot, once nothing is recorded as running under it.
async fn close_boots(shared: &Shared, past: &Past) -> Result<(), StoreError> {
    for dead in past.dead() {
        let boot = &dead.boot;
        let verdict = &deaths::verdict(boot, &shared.options.host_boot);
        if shared
            .options
            .store
            .close_boot(boot.id, verdict, shared.now())
            .await?
        {
            tracing::info!(boot = %boot.id, verdict, "an earlier boot");
        }
    }
    // A boot that ends here leaves the files to the first pass of the next one.
    let first = !shared.recovered.load(Ordering::SeqCst);
    if let Some(boxes) = shared.options.black_boxes.clone()
        && (first || !past.dead().is_empty())
    {
        let own = shared.options.boot;
        run_blocking(move || boxes.forget_all_but(own)).await.ok();
    }
    Ok(())
}
