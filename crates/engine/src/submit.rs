//! Requests of platforms, judged and handed to the store.
//!
//! The order is that of the API's checklist: what exists already (done, in progress, conflict)
//! before maintenance_info, asynchrony and parameters, and those before concurrency. The store
//! judges again inside its transaction, so that two requests that cross are judged one after
//! the other.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::admit::{Ask, Verdict, admit};
use evenkeel_core::bundle::{AsyncMode, Plan};
use evenkeel_core::explain;
use evenkeel_core::ids::{
    BindingId, BindingUid, InstanceId, InstanceUid, JobId, PlanId, RequestDigest,
};
use evenkeel_core::job::{Job, State, StopReason};
use evenkeel_core::request::JobBody;
use evenkeel_store::seam::{Base, CascadeUnbind, Standing, Stopped, Submission, Submitted};
use tokio::time::{Instant, timeout_at};

use crate::ask::{Answer, Caller, Refusal};
use crate::catalog::Pinned;
use crate::operator;
use crate::service::Shared;

mod binding;
mod canonical;
mod instance;
mod live;

pub(crate) use binding::{bind, unbind};
pub(crate) use instance::{deprovision, provision, update};
pub(crate) use live::is_shown;

/// How often a request is judged again because what it is about changed meanwhile.
const MAX_STALE: u32 = 8;
/// A waiter looks a job up itself at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long before its plan's maximum_polling_duration a job is stopped, besides its grace.
const POLLING_MARGIN: Duration = Duration::from_secs(2);

/// What an accepted request becomes.
struct Order<'a> {
    caller: &'a Caller,
    action: Action,
    instance: &'a InstanceId,
    binding: Option<&'a BindingId>,
    pinned: &'a Pinned,
    /// The plan that the action works towards, if the bundle has it.
    plan: Option<&'a Plan>,
    plan_id: PlanId,
    ask: Ask,
    /// See [`Submission`].
    base: Option<Base>,
    /// See [`Submission`].
    becomes: Option<RequestDigest>,
    body: JobBody,
}

/// What the verdict alone answers, whatever else is wrong with the request.
fn answered(verdict: &Verdict, what: &dyn Fn() -> String) -> Option<Result<Known, Refusal>> {
    match verdict {
        Verdict::Already => Some(Ok(Known::Already)),
        Verdict::InProgress(job) => Some(Ok(Known::InProgress(*job))),
        Verdict::Conflict => Some(Err(Refusal::Conflict { what: what() })),
        Verdict::Accept { .. }
        | Verdict::Busy(..)
        | Verdict::NoInstance
        | Verdict::NoBinding
        | Verdict::Unusable(_) => None,
    }
}

enum Known {
    Already,
    InProgress(JobId),
}

fn refused(verdict: Verdict, order: &Order<'_>) -> Result<Known, Refusal> {
    match verdict {
        Verdict::Already => Ok(Known::Already),
        Verdict::InProgress(job) => Ok(Known::InProgress(job)),
        Verdict::Conflict => Err(Refusal::Conflict { what: order.name() }),
        Verdict::Busy(job, action) => Err(Refusal::Busy { job, action }),
        Verdict::NoInstance => Err(Refusal::NoInstance(order.instance.to_string())),
        Verdict::NoBinding => Err(Refusal::NoBinding(
            order.binding.map_or_else(String::new, ToString::to_string),
        )),
        Verdict::Unusable(status) => Err(Refusal::Unusable(status)),
        Verdict::Accept { .. } => Err(stale()),
    }
}

fn stale() -> Refusal {
    Refusal::Unavailable("what it is about keeps changing; send it again".to_owned())
}

impl Order<'_> {
    fn name(&self) -> String {
        match self.binding {
            Some(binding) => format!("binding {:?}", binding.as_str()),
            None => format!("instance {:?}", self.instance.as_str()),
        }
    }

    fn mode(&self) -> AsyncMode {
        live::mode(self.pinned, self.action)
    }

    fn check_async(&self) -> Result<(), Refusal> {
        if self.mode() == AsyncMode::Required && !self.caller.accepts_incomplete {
            return Err(Refusal::AsyncRequired);
        }
        Ok(())
    }

    fn answers_later(&self) -> bool {
        self.caller.accepts_incomplete && self.mode() != AsyncMode::Unsupported
    }
}

/// `maintenance_info.version` of a request has to be the catalog's, if it is sent at all.
fn check_maintenance(plan: &Plan, sent: Option<&str>) -> Result<(), Refusal> {
    let current = plan
        .maintenance_info
        .as_ref()
        .map(|info| info.version.as_str());
    match sent {
        Some(sent) if Some(sent) != current => Err(Refusal::MaintenanceInfoConflict {
            sent: sent.to_owned(),
            current: current.map(str::to_owned),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Hands the order to the store and answers the caller, now or when the job has ended. `None` if
/// what it is about has changed since the order was made: it is to be made again.
async fn place(
    shared: &Arc<Shared>,
    order: &Order<'_>,
    cascade: Vec<CascadeUnbind>,
) -> Result<Option<Answer>, Refusal> {
    let options = &shared.options;
    let now = shared.now();
    let actions = &order.pinned.bundle.actions;
    let submission = Submission {
        job: JobId(options.world.id()),
        action: order.action,
        platform: order.caller.platform.clone(),
        instance: order.instance.clone(),
        new_instance_uid: InstanceUid(options.world.id()),
        binding: order
            .binding
            .map(|id| (id.clone(), BindingUid(options.world.id()))),
        service: order.pinned.bundle.service.id.clone(),
        plan: order.plan_id.clone(),
        bundle: order.pinned.digest,
        digest: order.ask.digest,
        base: order.base,
        becomes: order.becomes,
        isolated: options.isolate_platforms,
        body: order.body.clone(),
        retries: actions
            .get(&order.action)
            .map_or(0, |action| action.retries),
        at: now,
        deadline_at: now.plus(deadline(shared, order)),
        cascade,
        cascade_without_jobs: !actions.contains_key(&Action::Unbind),
    };
    // Subscribed before the job can end, so that its end is not missed.
    let finished = shared.finished.subscribe();
    match options.store.submit(submission).await? {
        Submitted::Accepted { job, stopped } => {
            for job in stopped {
                shared.drivers.stop(job);
            }
            shared.wake.notify_one();
            tracing::info!(job = %job.id, action = %job.action, instance = %order.instance, "accepted");
            if order.answers_later() {
                return Ok(Some(Answer::InProgress(job.id)));
            }
            wait(shared, order, job.id, finished, true).await.map(Some)
        }
        Submitted::Refused(verdict) => {
            let known = refused(verdict, order)?;
            known_answer(shared, order, known).await.map(Some)
        }
        Submitted::Stale => Ok(None),
    }
}

async fn known_answer(
    shared: &Arc<Shared>,
    order: &Order<'_>,
    known: Known,
) -> Result<Answer, Refusal> {
    match known {
        Known::Already => Ok(Answer::Already),
        Known::InProgress(job) if order.caller.accepts_incomplete => Ok(Answer::InProgress(job)),
        Known::InProgress(job) => {
            order.check_async()?;
            // A repeated synchronous request waits with the first one.
            wait(shared, order, job, shared.finished.subscribe(), false).await
        }
    }
}

/// Waits until the job is final, `sync_limit` at most. The request that ordered it then cancels
/// it; one that merely found it says that it is busy.
async fn wait(
    shared: &Arc<Shared>,
    order: &Order<'_>,
    id: JobId,
    mut finished: tokio::sync::broadcast::Receiver<JobId>,
    owns: bool,
) -> Result<Answer, Refusal> {
    let until = Instant::now() + shared.options.sync_limit;
    loop {
        let found = shared
            .options
            .store
            .operation(order.instance, order.binding, Some(id))
            .await?;
        if let Some(operation) = found.filter(|found| found.job.id == id)
            && operation.job.state.is_final()
        {
            return ended(operation.job);
        }
        if Instant::now() >= until {
            break;
        }
        let look = (Instant::now() + LOOK_EVERY).min(until);
        // Another job's end, a lagging channel and the time-out all lead to another look.
        while let Ok(Ok(other)) = timeout_at(look, finished.recv()).await {
            if other == id {
                break;
            }
        }
    }
    if !owns {
        return Err(Refusal::Busy {
            job: id,
            action: order.action,
        });
    }
    match operator::stop(shared, id, StopReason::SyncLimit, "broker").await? {
        Stopped::Final(job) => ended(*job),
        Stopped::Ended(_) | Stopped::Asked(_) | Stopped::Unknown => {
            Err(Refusal::TooSlow { job: id })
        }
    }
}

fn ended(job: Job) -> Result<Answer, Refusal> {
    if job.state == State::Succeeded {
        return Ok(Answer::Done(Box::new(job)));
    }
    let description = explain::platform_description(&job, None);
    Err(Refusal::Failed {
        job: Box::new(job),
        description,
    })
}

/// When a job is final at the latest. A platform takes an operation that it polls for failed when
/// its plan's maximum_polling_duration has passed: the run has to have ended by then. (Of a
/// duration that has no room for the grace of a run that is stopped, half is left to the run.)
fn deadline(shared: &Shared, order: &Order<'_>) -> Duration {
    let options = &shared.options;
    let polled = order.plan.filter(|_| order.answers_later());
    let polling = polled.and_then(|plan| plan.maximum_polling_duration);
    let polling = polling.map_or(Duration::MAX, |seconds| {
        let whole = Duration::from_secs(seconds.into());
        whole
            .saturating_sub(options.grace + POLLING_MARGIN)
            .max(whole / 2)
    });
    options.deadline.min(polling)
}

/// Tries a request again for as long as what it is about changes between reading and writing.
async fn until_settled<F>(request: impl Fn() -> F) -> Result<Answer, Refusal>
where
    F: Future<Output = Result<Option<Answer>, Refusal>>,
{
    for _ in 0..MAX_STALE {
        if let Some(answer) = request().await? {
            return Ok(answer);
        }
    }
    Err(stale())
}

fn judge(ask: Ask, standing: &Standing) -> Verdict {
    admit(ask, standing.instance.as_ref(), standing.binding.as_ref())
}
