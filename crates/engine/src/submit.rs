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
    BindingId, BindingUid, InstanceId, InstanceUid, JobId, PlanId, ServiceId,
};
use evenkeel_core::job::{Job, State, StopReason};
use evenkeel_core::request::{BindingInput, InstanceInput, JobBody, Named, Object, PlanInput};
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{CascadeUnbind, InstanceView, Standing, Submission, Submitted};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::ask::{Answer, Caller, Refusal};
use crate::catalog::Pinned;
use crate::operator;
use crate::service::{Shared, run_blocking};

mod binding;
mod instance;

pub(crate) use binding::{bind, unbind};
pub(crate) use instance::{deprovision, provision, update};

/// How often a delete is judged again because bindings came or went meanwhile.
const MAX_STALE: u32 = 8;
/// A waiter looks a job up itself at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
        Verdict::Accept { .. } => Err(Refusal::Unavailable(
            "the request crossed another one; send it again".to_owned(),
        )),
    }
}

impl Order<'_> {
    fn name(&self) -> String {
        match self.binding {
            Some(binding) => format!("binding {:?}", binding.as_str()),
            None => format!("instance {:?}", self.instance.as_str()),
        }
    }

    fn mode(&self) -> AsyncMode {
        // What has no action has nothing to wait for.
        self.pinned
            .bundle
            .actions
            .get(&self.action)
            .map_or(AsyncMode::Unsupported, |action| action.async_mode)
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

/// Hands the order to the store and answers the caller, now or when the job has ended.
async fn place(
    shared: &Arc<Shared>,
    order: Order<'_>,
    unbind_for: Option<&InstanceView>,
) -> Result<Answer, Refusal> {
    let options = &shared.options;
    for _ in 0..MAX_STALE {
        let now = shared.now();
        let cascade = match unbind_for {
            Some(view) => cascade(shared, &order, view).await?,
            None => Vec::new(),
        };
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
            body: order.body.clone(),
            retries: actions
                .get(&order.action)
                .map_or(0, |action| action.retries),
            at: now,
            deadline_at: now.plus(deadline(shared, &order)),
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
                    return Ok(Answer::InProgress(job.id));
                }
                return wait(shared, &order, job.id, finished, true).await;
            }
            Submitted::Refused(verdict) => {
                let known = refused(verdict, &order)?;
                return known_answer(shared, &order, known).await;
            }
            Submitted::Stale => {}
        }
    }
    Err(Refusal::Unavailable(
        "bindings of the instance keep changing; send it again".to_owned(),
    ))
}

async fn known_answer(
    shared: &Arc<Shared>,
    order: &Order<'_>,
    known: Known,
) -> Result<Answer, Refusal> {
    match known {
        Known::Already => Ok(Answer::Already),
        Known::InProgress(job) if order.caller.accepts_incomplete => Ok(Answer::InProgress(job)),
        // A repeated synchronous request waits with the first one.
        Known::InProgress(job) => {
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
    operator::stop(shared, id, StopReason::SyncLimit, "broker").await?;
    Err(Refusal::TooSlow { job: id })
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

fn deadline(shared: &Shared, order: &Order<'_>) -> Duration {
    let polling = order.plan.and_then(|plan| plan.maximum_polling_duration);
    let polling = polling.map_or(Duration::MAX, |seconds| Duration::from_secs(seconds.into()));
    shared.options.deadline.min(polling)
}

/// An unbind for each binding that is not gone: a delete leaves nothing behind.
async fn cascade(
    shared: &Arc<Shared>,
    order: &Order<'_>,
    view: &InstanceView,
) -> Result<Vec<CascadeUnbind>, Refusal> {
    let Some(action) = order.pinned.bundle.actions.get(&Action::Unbind) else {
        return Ok(Vec::new());
    };
    let bindings = shared.options.store.bindings(&view.id).await?;
    let unbinds = bindings.into_iter().map(|known| CascadeUnbind {
        job: JobId(shared.options.world.id()),
        binding: known.id.clone(),
        body: JobBody {
            action: Action::Unbind,
            binding: Some(binding::input(&known)),
            ..order.body.clone()
        },
        retries: action.retries,
    });
    Ok(unbinds.collect())
}

/// The offering of a request: as it is offered now.
fn offered(shared: &Shared, service: &ServiceId) -> Option<Pinned> {
    shared.catalog.current().service(service).cloned()
}

/// An instance that lives, as a request about it finds it.
struct Live {
    standing: Standing,
    view: InstanceView,
    pinned: Pinned,
}

/// Finds the instance of a request; `None` if it does not live.
async fn live(
    shared: &Arc<Shared>,
    instance: &InstanceId,
    binding: Option<&BindingId>,
) -> Result<Option<Live>, Refusal> {
    let store = &shared.options.store;
    let standing = store.standing(instance, binding).await?;
    let view = store
        .instance(instance)
        .await?
        .filter(|view| view.deleted_at.is_none());
    let pinned = pinned_to(shared, &standing).await?;
    Ok(view.zip(pinned).map(|(view, pinned)| Live {
        standing,
        view,
        pinned,
    }))
}

impl Live {
    /// Only a delete can do without what is damaged.
    fn undamaged(self) -> Result<Self, Refusal> {
        match &self.view.damage {
            None => Ok(self),
            Some(damage) => Err(StoreError::Damaged(damage.clone()).into()),
        }
    }

    /// The order of an action for this instance as it is, on the content that it is pinned to.
    fn order<'a>(
        &'a self,
        caller: &'a Caller,
        instance: &'a InstanceId,
        binding: Option<(&'a BindingId, BindingInput)>,
        ask: Ask,
    ) -> Order<'a> {
        let (binding, input) = binding.unzip();
        Order {
            caller,
            action: ask.action,
            instance,
            binding,
            pinned: &self.pinned,
            plan: self.pinned.plan(&self.view.plan),
            plan_id: self.view.plan.clone(),
            ask,
            body: JobBody {
                action: ask.action,
                service: named_service(&self.pinned),
                plan: plan_of(&self.pinned, &self.view.plan),
                instance: instance_input(&self.view),
                binding: input,
                previous: None,
                identity: caller.identity.clone(),
            },
        }
    }
}

/// What tells requests of an action apart.
fn ask(shared: &Shared, action: Action, what: &Value) -> Ask {
    let canonical = canonical(&json!({ "action": action, "what": what }));
    Ask {
        action,
        digest: shared.options.store.digest(&canonical),
    }
}

/// The content that an instance is pinned to.
async fn pinned_to(shared: &Arc<Shared>, standing: &Standing) -> Result<Option<Pinned>, Refusal> {
    let Some(digest) = standing.bundle else {
        return Ok(None);
    };
    let keeper = Arc::clone(shared);
    let found = run_blocking(move || keeper.catalog.pinned(digest)).await;
    match found {
        Ok(Ok(pinned)) => Ok(Some(pinned)),
        Ok(Err(error)) => Err(Refusal::Unavailable(format!(
            "the copy of bundle {digest} that the instance is pinned to cannot be read: {error}"
        ))),
        Err(error) => Err(Refusal::Unavailable(error)),
    }
}

fn unknown_service(service: &ServiceId) -> Refusal {
    Refusal::BadRequest {
        message: format!("service_id {:?} is not in the catalog", service.as_str()),
    }
}

fn unknown_plan(pinned: &Pinned, plan: &PlanId) -> Refusal {
    let service = &pinned.bundle.service.name;
    Refusal::BadRequest {
        message: format!(
            "plan_id {:?} is not a plan of service {service:?}",
            plan.as_str()
        ),
    }
}

fn named_service(pinned: &Pinned) -> Named<ServiceId> {
    let service = &pinned.bundle.service;
    Named {
        id: service.id.clone(),
        name: service.name.clone(),
    }
}

fn plan_input(plan: &Plan) -> PlanInput {
    PlanInput {
        id: plan.id.clone(),
        name: plan.name.clone(),
        values: plan.values.clone(),
        maintenance_version: plan
            .maintenance_info
            .as_ref()
            .map(|info| info.version.clone()),
    }
}

/// The plan that an instance is on, also where its bundle no longer has it.
fn plan_of(pinned: &Pinned, id: &PlanId) -> PlanInput {
    pinned.plan(id).map_or_else(
        || PlanInput {
            id: id.clone(),
            name: id.to_string(),
            values: Object::new(),
            maintenance_version: None,
        },
        plan_input,
    )
}

fn instance_input(view: &InstanceView) -> InstanceInput {
    InstanceInput {
        id: view.id.to_string(),
        parameters: view.parameters.clone(),
        context: view.context.clone(),
        organization_guid: view.organization_guid.clone(),
        space_guid: view.space_guid.clone(),
    }
}

/// The bytes whose digest tells requests apart: JSON with sorted keys at every level.
fn canonical(value: &Value) -> Vec<u8> {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by(|a, b| a.0.cmp(b.0));
                // As pairs, so that the order is kept whatever a JSON map does with it.
                json!([
                    "{}",
                    entries
                        .into_iter()
                        .map(|(key, value)| json!([key, sorted(value)]))
                        .collect::<Vec<_>>()
                ])
            }
            Value::Array(items) => json!(["[]", items.iter().map(sorted).collect::<Vec<_>>()]),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
    sorted(value).to_string().into_bytes()
}

fn judge(ask: Ask, standing: &Standing) -> Verdict {
    admit(ask, standing.instance.as_ref(), standing.binding.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_form_does_not_depend_on_the_order_of_keys() {
        let one: Value =
            serde_json::from_str(r#"{"a":{"x":1,"y":[{"p":1,"q":2}]},"b":2}"#).unwrap();
        let two: Value =
            serde_json::from_str(r#"{"b":2,"a":{"y":[{"q":2,"p":1}],"x":1}}"#).unwrap();
        assert_eq!(canonical(&one), canonical(&two));
    }

    #[test]
    fn different_documents_have_different_canonical_forms() {
        let documents = [
            json!({}),
            json!([]),
            json!(["{}", []]),
            json!(["[]", []]),
            json!({ "a": 1 }),
            json!([["a", 1]]),
            json!({ "a": "1" }),
            json!({ "a": { "b": 1 } }),
            json!({ "a": [["b", 1]] }),
            json!([1, 2]),
            json!([2, 1]),
            json!(null),
            json!({ "a": null }),
        ];
        let forms: std::collections::BTreeSet<_> = documents.iter().map(canonical).collect();
        assert_eq!(forms.len(), documents.len());
    }
}
