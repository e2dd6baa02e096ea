//! PUT and DELETE of a binding, and rotation: a PUT that names a predecessor.

use std::sync::Arc;

use evenkeel_core::action::Action;
use evenkeel_core::admit::Verdict;
use evenkeel_core::bundle::{Plan, Requirement};
use evenkeel_core::ids::BindingId;
use evenkeel_core::instance::Status;
use evenkeel_core::request::{BindingInput, Object, PredecessorInput};
use evenkeel_core::time::Timestamp;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::BindingView;
use serde_json::{Value, json};

use super::canonical::ask;
use super::live::{Live, binding_input, live, live_to_delete, offered, offered_needs_async};
use super::{answered, judge, known_answer, place, until_settled};
use crate::ask::{Answer, Bind, Caller, Refusal, Unbind};
use crate::catalog::Pinned;
use crate::parameters;
use crate::service::Shared;

pub(crate) async fn bind(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Bind,
) -> Result<Answer, Refusal> {
    until_settled(|| bind_to_what_is(shared, &caller, &wish)).await
}

/// Binds the instance as it is read here; `None` if another request has changed it meanwhile.
async fn bind_to_what_is(
    shared: &Arc<Shared>,
    caller: &Caller,
    wish: &Bind,
) -> Result<Option<Answer>, Refusal> {
    let live = live(shared, caller, &wish.instance, Some(&wish.binding)).await?;
    let live = live
        .ok_or_else(|| Refusal::NoInstance(wish.instance.to_string()))?
        .undamaged()?;
    let mut input = BindingInput {
        id: wish.binding.to_string(),
        parameters: wish.parameters.clone(),
        bind_resource: wish.bind_resource.clone(),
        context: wish.context.clone(),
        predecessor: None,
    };
    // Not the plan: the instance's may change while the binding stays as it is.
    let asked = json!({
        "parameters": wish.parameters,
        "bind_resource": without_annotations(&wish.bind_resource),
        "predecessor": wish.predecessor,
    });
    let ask = ask(shared, Action::Bind, &asked);
    let verdict = judge(ask, &live.standing);
    let name = || format!("binding {:?}", wish.binding.as_str());
    let fits = fits(&live, wish);
    if let Some(known) = answered(&verdict, &name) {
        let known = known?;
        if !fits {
            return Err(Refusal::Conflict { what: name() });
        }
        let order = live.order(caller, &wish.instance, Some((&wish.binding, input)), ask);
        return known_answer(shared, &order, known).await.map(Some);
    }
    if !fits {
        return Err(Refusal::BadRequest {
            message: "service_id and plan_id have to be those of the instance".to_owned(),
        });
    }
    let plan = live.pinned.plan(&live.view.plan);
    check_bindable(&live.pinned, plan)?;
    if let Some(predecessor) = &wish.predecessor {
        let known = predecessor_of(shared, &live, wish, predecessor).await?;
        inherit(&mut input, known);
    }
    check_app(&live.pinned, &input)?;
    let order = live.order(caller, &wish.instance, Some((&wish.binding, input)), ask);
    order.check_async()?;
    // What a rotation takes over was judged when it was sent.
    let inherits = wish.predecessor.is_some() && wish.parameters.is_empty();
    if let Some(plan) = plan.filter(|_| !inherits) {
        parameters::check(plan, Action::Bind, &wish.parameters)?;
    }
    if let Verdict::Unusable(status) = verdict {
        return Err(unusable(&live, status, &wish.binding));
    }
    place(shared, &order, Vec::new()).await
}

/// Whether the offering and the plan that a request names (a rotation may name none) are those
/// of the instance.
fn fits(live: &Live, wish: &Bind) -> bool {
    let service = wish.service.as_ref();
    let plan = wish.plan.as_ref();
    service.is_none_or(|named| *named == live.view.service)
        && plan.is_none_or(|named| *named == live.view.plan)
}

/// Cloud Foundry's annotations of the application: they change, and mean nothing to a binding.
fn without_annotations(bind_resource: &Object) -> Object {
    let mut without = bind_resource.clone();
    without.remove("app_annotations");
    without
}

fn unusable(live: &Live, status: Status, binding: &BindingId) -> Refusal {
    if live.view.status == Status::Ready {
        Refusal::UnusableBinding {
            binding: binding.to_string(),
            status,
        }
    } else {
        Refusal::Unusable(status)
    }
}

fn bad_request(message: String) -> Refusal {
    Refusal::BadRequest { message }
}

/// The binding that a rotation takes over from: a usable one of the same instance. (What is wrong
/// with it is a 400, since Cloud Foundry cleans up after a 422 that it does not know.)
async fn predecessor_of(
    shared: &Arc<Shared>,
    live: &Live,
    wish: &Bind,
    predecessor: &BindingId,
) -> Result<BindingView, Refusal> {
    let told = |what: &str| {
        bad_request(format!(
            "predecessor_binding_id: binding {:?} {what}",
            predecessor.as_str()
        ))
    };
    // As platforms are told now, or were when it was made.
    let current = offered(shared, &live.view.service);
    let rotatable = |pinned: &Pinned| {
        let plan = pinned.plan(&live.view.plan);
        plan.is_some_and(|plan| plan.binding_rotatable)
    };
    if !rotatable(&live.pinned) && !current.as_ref().is_some_and(rotatable) {
        return Err(bad_request(
            "bindings of this plan cannot be rotated (predecessor_binding_id): make a new one and \
             delete the old one"
                .to_owned(),
        ));
    }
    if *predecessor == wish.binding {
        return Err(told("cannot take over from itself"));
    }
    let store = &shared.options.store;
    let known = store.binding(&wish.instance, predecessor).await?;
    let known = known.filter(|known| known.deleted_at.is_none() && known.instance == live.view.uid);
    let known = known.ok_or_else(|| told("is not a binding of this instance"))?;
    if let Some(damage) = known.damage {
        return Err(StoreError::Damaged(damage).into());
    }
    match known.status {
        Status::Ready if known.active.is_empty() => {}
        Status::Creating | Status::CreateFailed => return Err(told("is not made")),
        Status::Ready | Status::Deleting | Status::DeleteFailed | Status::Deleted => {
            return Err(told("is being deleted"));
        }
    }
    let expires_at = known.outputs.expires_at.as_deref();
    if has_passed(expires_at, shared.now()) {
        return Err(told("has expired"));
    }
    Ok(known)
}

fn has_passed(expires_at: Option<&str>, now: Timestamp) -> bool {
    expires_at
        .and_then(|text| text.parse::<jiff::Timestamp>().ok())
        .is_some_and(|at| at.as_millisecond() <= now.as_millis())
}

/// What a rotation does not say is its predecessor's.
fn inherit(input: &mut BindingInput, predecessor: BindingView) {
    input.predecessor = Some(PredecessorInput {
        id: predecessor.id.to_string(),
        uid: predecessor.uid,
    });
    for (own, old) in [
        (&mut input.parameters, predecessor.parameters),
        (&mut input.bind_resource, predecessor.bind_resource),
        (&mut input.context, predecessor.context),
    ] {
        if own.is_empty() {
            *own = old;
        }
    }
}

fn check_bindable(pinned: &Pinned, plan: Option<&Plan>) -> Result<(), Refusal> {
    let own = plan.and_then(|plan| plan.bindable);
    if own.unwrap_or(pinned.bundle.service.bindable) {
        return Ok(());
    }
    Err(bad_request(format!(
        "service {:?} is not bindable on this plan",
        pinned.bundle.service.name
    )))
}

/// Logs can only be drained, and volumes only be mounted, for an application. (A route is bound
/// by itself.)
fn check_app(pinned: &Pinned, input: &BindingInput) -> Result<(), Refusal> {
    let needs_app = pinned.bundle.service.requires.iter().any(|requirement| {
        matches!(
            requirement,
            Requirement::SyslogDrain | Requirement::VolumeMount
        )
    });
    let is_for = |name: &str| input.bind_resource.contains_key(name);
    if needs_app && !is_for("app_guid") && !is_for("route") {
        return Err(Refusal::RequiresApp);
    }
    Ok(())
}

pub(crate) async fn unbind(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Unbind,
) -> Result<Answer, Refusal> {
    until_settled(|| unbind_from_what_is(shared, &caller, &wish)).await
}

/// Unbinds from the instance as it is read here; `None` if it has changed meanwhile.
async fn unbind_from_what_is(
    shared: &Arc<Shared>,
    caller: &Caller,
    wish: &Unbind,
) -> Result<Option<Answer>, Refusal> {
    let live = live_to_delete(shared, caller, &wish.instance, Some(&wish.binding)).await?;
    let store = &shared.options.store;
    let known = match &live {
        Some(_) => store.binding(&wish.instance, &wish.binding).await?,
        None => None,
    };
    let known = known.filter(|known| known.deleted_at.is_none());
    // Before 410, and also of what nobody knows; what is known asks its own content.
    let needs_async = match &live {
        Some(live) => live.needs_async(Action::Unbind),
        None => offered_needs_async(shared, wish.service.as_ref(), Action::Unbind),
    };
    if needs_async && !caller.accepts_incomplete {
        return Err(Refusal::AsyncRequired);
    }
    let (Some(live), Some(known)) = (live, known) else {
        return Err(Refusal::NoBinding(wish.binding.to_string()));
    };
    // After 410: of a binding that nobody knows the ids are not asked for.
    if let Some(missing) = &wish.missing {
        return Err(bad_request(missing.clone()));
    }
    let ask = ask(shared, Action::Unbind, &Value::Null);
    let binding = Some((&wish.binding, binding_input(&known)));
    let order = live.order(caller, &wish.instance, binding, ask);
    place(shared, &order, Vec::new()).await
}
