//! PUT, PATCH and DELETE of an instance.

use std::sync::Arc;

use evenkeel_core::action::Action;
use evenkeel_core::admit::Verdict;
use evenkeel_core::bundle::Plan;
use evenkeel_core::request::{InstanceInput, JobBody, Named, Object, PlanInput, PreviousInput};
use evenkeel_store::seam::InstanceView;
use serde_json::{Value, json};

use super::{
    Order, answered, ask, check_maintenance, judge, known_answer, live, named_service, offered,
    pinned_to, place, plan_input, plan_of, unknown_plan, unknown_service,
};
use crate::ask::{Answer, Caller, Deprovision, Provision, Refusal, Update};
use crate::catalog::Pinned;
use crate::parameters::{self, with_defaults};
use crate::service::Shared;

pub(crate) async fn provision(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Provision,
) -> Result<Answer, Refusal> {
    let standing = shared.options.store.standing(&wish.instance, None).await?;
    // An instance answers for itself although its offering has gone.
    let pinned = match offered(shared, &wish.service) {
        Some(pinned) => pinned,
        None => pinned_to(shared, &standing)
            .await?
            .filter(|pinned| pinned.bundle.service.id == wish.service)
            .ok_or_else(|| unknown_service(&wish.service))?,
    };
    let plan = pinned
        .plan(&wish.plan)
        .ok_or_else(|| unknown_plan(&pinned, &wish.plan))?;
    let asked = json!({
        "service": wish.service,
        "plan": wish.plan,
        "organization_guid": wish.organization_guid,
        "space_guid": wish.space_guid,
        "parameters": wish.parameters,
    });
    let order = Order {
        caller: &caller,
        action: Action::Provision,
        instance: &wish.instance,
        binding: None,
        pinned: &pinned,
        plan: Some(plan),
        plan_id: wish.plan.clone(),
        ask: ask(shared, Action::Provision, &asked),
        body: JobBody {
            action: Action::Provision,
            service: named_service(&pinned),
            plan: plan_input(plan),
            instance: InstanceInput {
                id: wish.instance.to_string(),
                parameters: with_defaults(plan, Action::Provision, wish.parameters.clone()),
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
    place(shared, order, None).await
}

pub(crate) async fn update(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Update,
) -> Result<Answer, Refusal> {
    let live = live(shared, &wish.instance, None).await?;
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
    // An update moves the instance to what is offered now, if it still is.
    live.pinned = offered(shared, &wish.service).unwrap_or(live.pinned);
    let (view, pinned) = (&live.view, &live.pinned);
    let target = wish.plan.clone().unwrap_or_else(|| view.plan.clone());
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
    let mut order = live.order(&caller, &wish.instance, None, ask);
    order.body.previous = Some(PreviousInput {
        plan: Named {
            id: view.plan.clone(),
            name: order.body.plan.name.clone(),
        },
        parameters: view.parameters.clone(),
    });
    order.body.plan = updated_plan(plan, &wish, view);
    if let Some(context) = &wish.context {
        order.body.instance.context.clone_from(context);
    }
    order.plan = Some(plan);
    order.plan_id = target.clone();

    let verdict = judge(order.ask, &live.standing);
    if let Some(known) = answered(&verdict, &|| order.name()) {
        return known_answer(shared, &order, known?).await;
    }
    check_maintenance(plan, wish.maintenance_version.as_deref())?;
    check_plan_change(pinned, view, plan)?;
    let maintains =
        wish.maintenance_version.is_some() && wish.maintenance_version != view.maintenance_version;
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
    parameters::check(plan, Action::Update, &wish.parameters)?;
    // What was merged would be merged with parameters that are about to change.
    if let Verdict::Busy(job, action) = verdict {
        return Err(Refusal::Busy { job, action });
    }
    order.body.instance.parameters = with_defaults(plan, Action::Update, parameters);
    place(shared, order, None).await
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
    wish: Deprovision,
) -> Result<Answer, Refusal> {
    let live = live(shared, &wish.instance, None).await?;
    let live = live.ok_or_else(|| Refusal::NoInstance(wish.instance.to_string()))?;
    let ask = ask(shared, Action::Deprovision, &Value::Null);
    let order = live.order(&caller, &wish.instance, None, ask);
    order.check_async()?;
    place(shared, order, Some(&live.view)).await
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
