//! PUT, PATCH and DELETE of an instance.

use std::sync::Arc;

use evenkeel_core::action::Action;
use evenkeel_core::admit::{Ask, Verdict};
use evenkeel_core::bundle::Plan;
use evenkeel_core::ids::RequestDigest;
use evenkeel_core::request::{InstanceInput, JobBody, Named, Object, PreviousInput};
use evenkeel_store::seam::InstanceView;
use serde_json::{Value, json};

use super::{
    Order, answered, canonical, check_maintenance, instance_input, judge, known_answer,
    named_service, offered, pinned_to, place, plan_input, plan_of, unknown_plan, unknown_service,
};
use crate::ask::{Answer, Caller, Deprovision, Provision, Refusal, Update};
use crate::catalog::Pinned;
use crate::parameters;
use crate::service::Shared;

pub(crate) async fn provision(
    shared: &Arc<Shared>,
    caller: Caller,
    ask: Provision,
) -> Result<Answer, Refusal> {
    let standing = shared.options.store.standing(&ask.instance, None).await?;
    // An instance answers for itself although its offering has gone.
    let pinned = match offered(shared, &ask.service) {
        Some(pinned) => pinned,
        None => pinned_to(shared, &standing)
            .await?
            .filter(|pinned| pinned.bundle.service.id == ask.service)
            .ok_or_else(|| unknown_service(&ask.service))?,
    };
    let plan = pinned
        .plan(&ask.plan)
        .ok_or_else(|| unknown_plan(&pinned, &ask.plan))?;
    let digest = shared.options.store.digest(&canonical(&json!({
        "action": "provision",
        "service": ask.service,
        "plan": ask.plan,
        "organization_guid": ask.organization_guid,
        "space_guid": ask.space_guid,
        "parameters": ask.parameters,
    })));
    let order = Order {
        caller: &caller,
        action: Action::Provision,
        instance: &ask.instance,
        binding: None,
        pinned: &pinned,
        plan: Some(plan),
        plan_id: ask.plan.clone(),
        ask: Ask {
            action: Action::Provision,
            digest,
        },
        body: JobBody {
            action: Action::Provision,
            service: named_service(&pinned),
            plan: plan_input(plan),
            instance: InstanceInput {
                id: ask.instance.to_string(),
                parameters: ask.parameters.clone(),
                context: ask.context.clone(),
                organization_guid: Some(ask.organization_guid.clone()),
                space_guid: Some(ask.space_guid.clone()),
            },
            binding: None,
            previous: None,
            identity: caller.identity.clone(),
        },
    };
    if let Some(known) = answered(&judge(order.ask, &standing), &|| order.name()) {
        return known_answer(shared, &order, known?).await;
    }
    check_maintenance(plan, ask.maintenance_version.as_deref())?;
    order.check_async()?;
    parameters::check(plan, Action::Provision, &ask.parameters)?;
    place(shared, order, None).await
}

pub(crate) async fn update(
    shared: &Arc<Shared>,
    caller: Caller,
    ask: Update,
) -> Result<Answer, Refusal> {
    let store = &shared.options.store;
    let standing = store.standing(&ask.instance, None).await?;
    let no_instance = || Refusal::NoInstance(ask.instance.to_string());
    let view = store
        .instance(&ask.instance)
        .await?
        .filter(|view| view.deleted_at.is_none());
    let view = view.ok_or_else(no_instance)?;
    if view.service != ask.service {
        return Err(Refusal::BadRequest {
            message: format!(
                "service_id {:?} is not the instance's",
                ask.service.as_str()
            ),
        });
    }
    let pinned = match offered(shared, &ask.service) {
        Some(pinned) => pinned,
        None => pinned_to(shared, &standing)
            .await?
            .ok_or_else(no_instance)?,
    };
    let target = ask.plan.clone().unwrap_or_else(|| view.plan.clone());
    let plan = pinned
        .plan(&target)
        .ok_or_else(|| unknown_plan(&pinned, &target))?;
    let parameters = merged(&view.parameters, &ask.parameters);
    let digest = update_digest(shared, &ask, &target);
    let order = Order {
        caller: &caller,
        action: Action::Update,
        instance: &ask.instance,
        binding: None,
        pinned: &pinned,
        plan: Some(plan),
        plan_id: target.clone(),
        ask: Ask {
            action: Action::Update,
            digest,
        },
        body: JobBody {
            action: Action::Update,
            service: named_service(&pinned),
            plan: updated_plan(plan, &ask, &view),
            instance: InstanceInput {
                parameters: parameters.clone(),
                context: ask.context.clone().unwrap_or_else(|| view.context.clone()),
                ..instance_input(&view)
            },
            binding: None,
            previous: Some(PreviousInput {
                plan: Named {
                    id: view.plan.clone(),
                    name: plan_of(&pinned, &view.plan).name,
                },
                parameters: view.parameters.clone(),
            }),
            identity: caller.identity.clone(),
        },
    };
    let verdict = judge(order.ask, &standing);
    if let Some(known) = answered(&verdict, &|| order.name()) {
        return known_answer(shared, &order, known?).await;
    }
    check_maintenance(plan, ask.maintenance_version.as_deref())?;
    check_plan_change(&pinned, &view, plan)?;
    let maintains =
        ask.maintenance_version.is_some() && ask.maintenance_version != view.maintenance_version;
    let changes = target != view.plan || parameters != view.parameters || maintains;
    if !changes && matches!(verdict, Verdict::Accept { .. }) {
        return Ok(Answer::Already);
    }
    if !pinned.bundle.actions.contains_key(&Action::Update) {
        return Err(Refusal::NotUpdatable(format!(
            "service {:?} cannot be updated: its bundle has no update action",
            pinned.bundle.service.name
        )));
    }
    order.check_async()?;
    parameters::check(plan, Action::Update, &ask.parameters)?;
    place(shared, order, None).await
}

fn update_digest(
    shared: &Shared,
    ask: &Update,
    target: &evenkeel_core::ids::PlanId,
) -> RequestDigest {
    shared.options.store.digest(&canonical(&json!({
        "action": "update",
        "plan": target,
        "parameters": ask.parameters,
        "maintenance": ask.maintenance_version,
    })))
}

/// Maintenance happens only where it is asked for, or where the plan changes anyway.
fn updated_plan(
    plan: &Plan,
    ask: &Update,
    view: &InstanceView,
) -> evenkeel_core::request::PlanInput {
    let mut input = plan_input(plan);
    if ask.maintenance_version.is_none() && plan.id == view.plan {
        input
            .maintenance_version
            .clone_from(&view.maintenance_version);
    }
    input
}

fn check_plan_change(pinned: &Pinned, view: &InstanceView, target: &Plan) -> Result<(), Refusal> {
    if target.id == view.plan {
        return Ok(());
    }
    let own = pinned
        .plan(&view.plan)
        .and_then(|plan| plan.plan_updateable);
    if own.unwrap_or(pinned.bundle.service.plan_updateable) {
        return Ok(());
    }
    Err(Refusal::NotUpdatable(format!(
        "plan {:?} of service {:?} cannot be changed",
        plan_of(pinned, &view.plan).name,
        pinned.bundle.service.name
    )))
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
    ask: Deprovision,
) -> Result<Answer, Refusal> {
    let store = &shared.options.store;
    let standing = store.standing(&ask.instance, None).await?;
    let no_instance = || Refusal::NoInstance(ask.instance.to_string());
    let view = store
        .instance(&ask.instance)
        .await?
        .filter(|view| view.deleted_at.is_none());
    let view = view.ok_or_else(no_instance)?;
    let pinned = pinned_to(shared, &standing)
        .await?
        .ok_or_else(no_instance)?;
    let digest = store.digest(&canonical(&json!({ "action": "deprovision" })));
    let order = Order {
        caller: &caller,
        action: Action::Deprovision,
        instance: &ask.instance,
        binding: None,
        pinned: &pinned,
        plan: pinned.plan(&view.plan),
        plan_id: view.plan.clone(),
        ask: Ask {
            action: Action::Deprovision,
            digest,
        },
        body: JobBody {
            action: Action::Deprovision,
            service: named_service(&pinned),
            plan: plan_of(&pinned, &view.plan),
            instance: instance_input(&view),
            binding: None,
            previous: None,
            identity: caller.identity.clone(),
        },
    };
    order.check_async()?;
    place(shared, order, Some(&view)).await
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
