//! PUT, PATCH and DELETE of an instance.

use std::sync::Arc;

use evenkeel_core::action::Action;
use evenkeel_core::admit::Verdict;
use evenkeel_core::bundle::Plan;
use evenkeel_core::ids::{JobId, PlanId};
use evenkeel_core::request::{InstanceInput, JobBody, Named, Object, PlanInput, PreviousInput};
use evenkeel_store::seam::{CascadeUnbind, InstanceView, Standing};
use serde_json::{Value, json};

use super::canonical::{Ordered, ask, is_same};
use super::live::{
    Live, binding_input, content, is_shown, live, live_to_delete, named_service, offered,
    offered_needs_async, plan_input, plan_of, unknown_plan, unknown_service,
};
use super::{
    Ask, Order, answered, check_maintenance, judge, known_answer, place, stale, until_settled,
};
use crate::ask::{Answer, Caller, Deprovision, Provision, Refusal, Update};
use crate::catalog::Pinned;
use crate::parameters;
use crate::service::Shared;

pub(crate) async fn provision(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Provision,
) -> Result<Answer, Refusal> {
    let standing = shared.options.store.standing(&wish.instance, None).await?;
    if let Some(owner) = &standing.platform
        && !is_shown(shared, &caller.platform, owner)
    {
        return Err(Refusal::Conflict {
            what: format!("instance {:?}", wish.instance.as_str()),
        });
    }
    let pinned = with_plan(shared, &wish, &standing).await?;
    let plan = pinned
        .plan(&wish.plan)
        .ok_or_else(|| unknown_plan(&pinned, &wish.plan))?;
    let ordered = Ordered {
        service: &wish.service,
        plan: &wish.plan,
        organization_guid: Some(&wish.organization_guid),
        space_guid: Some(&wish.space_guid),
        parameters: &wish.parameters,
    };
    let order = Order {
        caller: &caller,
        action: Action::Provision,
        instance: &wish.instance,
        binding: None,
        pinned: &pinned,
        plan: Some(plan),
        plan_id: wish.plan.clone(),
        ask: Ask {
            action: Action::Provision,
            digest: ordered.digest(shared),
        },
        base: None,
        becomes: None,
        body: JobBody {
            action: Action::Provision,
            service: named_service(&pinned),
            plan: plan_input(plan),
            instance: InstanceInput {
                id: wish.instance.to_string(),
                parameters: wish.parameters.clone(),
                context: wish.context.clone(),
                organization_guid: Some(wish.organization_guid.clone()),
                space_guid: Some(wish.space_guid.clone()),
            },
            binding: None,
            previous: None,
            identity: caller.identity.clone(),
        },
    };
    if let Some(known) = answered(&judge(order.ask, &standing), &|| order.name()) {
        return known_answer(shared, &order, known?).await;
    }
    check_maintenance(plan, wish.maintenance_version.as_deref())?;
    order.check_async()?;
    parameters::check(plan, Action::Provision, &wish.parameters)?;
    place(shared, &order, Vec::new()).await?.ok_or_else(stale)
}

/// The content to order by: what is offered now, else (an instance answers for itself although
/// its plan or its offering has gone) what the instance was made with.
async fn with_plan(
    shared: &Arc<Shared>,
    wish: &Provision,
    standing: &Standing,
) -> Result<Pinned, Refusal> {
    let current = offered(shared, &wish.service);
    let has_plan = |pinned: &Pinned| pinned.plan(&wish.plan).is_some();
    if let Some(current) = current.as_ref().filter(|current| has_plan(current)) {
        return Ok(current.clone());
    }
    if let Some(digest) = standing.bundle {
        let own = content(shared, digest).await?;
        if own.bundle.service.id == wish.service && has_plan(&own) {
            return Ok(own);
        }
    }
    Err(current.map_or_else(
        || unknown_service(&wish.service),
        |current| unknown_plan(&current, &wish.plan),
    ))
}

pub(crate) async fn update(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Update,
) -> Result<Answer, Refusal> {
    until_settled(|| update_what_is(shared, &caller, &wish)).await
}

/// Updates the instance as it is read here; `None` if another request has changed it meanwhile.
async fn update_what_is(
    shared: &Arc<Shared>,
    caller: &Caller,
    wish: &Update,
) -> Result<Option<Answer>, Refusal> {
    let live = live(shared, caller, &wish.instance, None).await?;
    let mut live = live
        .ok_or_else(|| Refusal::NoInstance(wish.instance.to_string()))?
        .undamaged()?;
    if live.view.service != wish.service {
        return Err(Refusal::BadRequest {
            message: format!(
                "service_id {:?} is not the instance's",
                wish.service.as_str()
            ),
        });
    }
    let current = offered(shared, &wish.service);
    let target = wish.plan.clone().unwrap_or_else(|| live.view.plan.clone());
    let changeable = is_plan_changeable(current.as_ref(), &live);
    let old_plan = plan_of(&live.pinned, &live.view.plan).name;
    live.pinned = content_for(current, &live, &target)?;
    let (view, pinned) = (&live.view, &live.pinned);
    let plan = pinned
        .plan(&target)
        .ok_or_else(|| unknown_plan(pinned, &target))?;
    let parameters = merged(&view.parameters, &wish.parameters);
    let asked = json!({
        "plan": target,
        "parameters": wish.parameters,
        "maintenance": wish.maintenance_version,
    });
    let ask = ask(shared, Action::Update, &asked);
    let mut order = live.order(caller, &wish.instance, None, ask);
    order.body.previous = Some(PreviousInput {
        plan: Named {
            id: view.plan.clone(),
            name: old_plan.clone(),
        },
        parameters: view.parameters.clone(),
    });
    order.body.plan = updated_plan(plan, wish, view);
    order.body.instance.parameters.clone_from(&parameters);
    if let Some(context) = &wish.context {
        order.body.instance.context.clone_from(context);
    }
    order.plan = Some(plan);
    order.plan_id = target.clone();
    order.becomes = Some(
        Ordered {
            service: &view.service,
            plan: &target,
            organization_guid: view.organization_guid.as_deref(),
            space_guid: view.space_guid.as_deref(),
            parameters: &parameters,
        }
        .digest(shared),
    );

    let verdict = judge(order.ask, &live.standing);
    if let Some(known) = answered(&verdict, &|| order.name()) {
        return known_answer(shared, &order, known?).await.map(Some);
    }
    if let Verdict::Unusable(status) = verdict {
        return Err(Refusal::Unusable(status));
    }
    check_maintenance(plan, wish.maintenance_version.as_deref())?;
    if target != view.plan && !changeable {
        return Err(Refusal::NotUpdatable(format!(
            "plan {old_plan:?} of service {:?} cannot be changed",
            pinned.bundle.service.name
        )));
    }
    let maintains =
        wish.maintenance_version.is_some() && wish.maintenance_version != view.maintenance_version;
    let changes = target != view.plan || maintains || !is_same(&parameters, &view.parameters);
    if !changes && matches!(verdict, Verdict::Accept { .. }) {
        return keep_context(shared, &live, wish).await;
    }
    let busy = match verdict {
        Verdict::Busy(job, action) => Some(Refusal::Busy { job, action }),
        Verdict::Accept { .. }
        | Verdict::Already
        | Verdict::InProgress(_)
        | Verdict::Conflict
        | Verdict::NoInstance
        | Verdict::NoBinding
        | Verdict::Unusable(_) => None,
    };
    if !pinned.bundle.actions.contains_key(&Action::Update) {
        let never = Refusal::NotUpdatable(format!(
            "service {:?} cannot be updated: its bundle has no update action",
            pinned.bundle.service.name
        ));
        return Err(busy.unwrap_or(never));
    }
    order.check_async()?;
    // Cloud Foundry sends `{}` with every update: what is not changed is not judged again.
    if !wish.parameters.is_empty() {
        parameters::check(plan, Action::Update, &wish.parameters)?;
    }
    // What was merged would be merged with parameters that are about to change.
    match busy {
        Some(busy) => Err(busy),
        None => place(shared, &order, Vec::new()).await,
    }
}

/// A PATCH that changes nothing but the context. Without `allow_context_updates` it is taken and
/// not kept: platforms send a context with everything.
async fn keep_context(
    shared: &Arc<Shared>,
    live: &Live,
    wish: &Update,
) -> Result<Option<Answer>, Refusal> {
    let wanted = wish.context.as_ref().filter(|context| {
        live.pinned.bundle.service.allow_context_updates && **context != live.view.context
    });
    let Some(context) = wanted else {
        return Ok(Some(Answer::Already));
    };
    let store = &shared.options.store;
    let kept = store.keep_context(live.view.uid, context.clone(), shared.now());
    Ok(kept.await?.then_some(Answer::Already))
}

/// The content that an update goes by: an update moves the instance to what is offered now; one
/// whose plan is not offered any more stays on what it was made with.
fn content_for(current: Option<Pinned>, live: &Live, target: &PlanId) -> Result<Pinned, Refusal> {
    let own = &live.pinned;
    match current {
        Some(current) if current.plan(target).is_some() => Ok(current),
        Some(current) if *target != live.view.plan => Err(unknown_plan(&current, target)),
        // Its plan, or its whole offering, has gone: its own content is what there is.
        Some(_) | None if own.plan(target).is_some() => Ok(own.clone()),
        Some(_) | None => Err(unknown_plan(own, target)),
    }
}

/// Whether the plan that the instance is on may be left: its own word, else its offering's; as it
/// is offered now, else as the instance was made.
fn is_plan_changeable(current: Option<&Pinned>, live: &Live) -> bool {
    let with_plan = |pinned: &&Pinned| pinned.plan(&live.view.plan).is_some();
    let pinned = current.filter(with_plan).unwrap_or(&live.pinned);
    let own = pinned
        .plan(&live.view.plan)
        .and_then(|plan| plan.plan_updateable);
    own.unwrap_or(pinned.bundle.service.plan_updateable)
}

/// Maintenance happens only where it is asked for, or where the plan changes anyway.
fn updated_plan(plan: &Plan, wish: &Update, view: &InstanceView) -> PlanInput {
    let mut input = plan_input(plan);
    if wish.maintenance_version.is_none() && plan.id == view.plan {
        input
            .maintenance_version
            .clone_from(&view.maintenance_version);
    }
    input
}

/// RFC 7396 over the top: what is sent replaces, `null` removes, the rest stays.
fn merged(applied: &Object, sent: &Object) -> Object {
    let mut merged = applied.clone();
    merge(&mut merged, sent);
    merged
}

fn merge(target: &mut Object, patch: &Object) {
    for (key, value) in patch {
        match (value, target.get_mut(key)) {
            (Value::Null, _) => {
                target.remove(key);
            }
            (Value::Object(patch), Some(Value::Object(inner))) => merge(inner, patch),
            (value, _) => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
}

pub(crate) async fn deprovision(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Deprovision,
) -> Result<Answer, Refusal> {
    until_settled(|| deprovision_what_is(shared, &caller, &wish)).await
}

/// Deletes the instance as it is read here; `None` if it has changed meanwhile.
async fn deprovision_what_is(
    shared: &Arc<Shared>,
    caller: &Caller,
    wish: &Deprovision,
) -> Result<Option<Answer>, Refusal> {
    let Some(live) = live_to_delete(shared, caller, &wish.instance, None).await? else {
        let needs_async = offered_needs_async(shared, wish.service.as_ref(), Action::Deprovision);
        if needs_async && !caller.accepts_incomplete {
            return Err(Refusal::AsyncRequired);
        }
        return Err(Refusal::NoInstance(wish.instance.to_string()));
    };
    let ask = ask(shared, Action::Deprovision, &Value::Null);
    let order = live.order(caller, &wish.instance, None, ask);
    order.check_async()?;
    let cascade = cascade(shared, &order, &live.view).await?;
    place(shared, &order, cascade).await
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
            binding: Some(binding_input(&known)),
            ..order.body.clone()
        },
        retries: action.retries,
    });
    Ok(unbinds.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn parameters_of_an_update_replace_remove_and_leave_the_rest() {
        let applied = object(json!({ "a": 1, "b": { "x": 1, "y": 2 }, "c": [1], "d": true }));
        let sent = object(json!({ "a": 2, "b": { "y": null, "z": 3 }, "c": [2, 3], "e": "new" }));
        let expected =
            json!({ "a": 2, "b": { "x": 1, "z": 3 }, "c": [2, 3], "d": true, "e": "new" });
        assert_eq!(Value::Object(merged(&applied, &sent)), expected);
    }

    #[test]
    fn empty_parameters_change_nothing() {
        let applied = object(json!({ "a": 1 }));
        assert_eq!(merged(&applied, &Object::new()), applied);
    }
}
