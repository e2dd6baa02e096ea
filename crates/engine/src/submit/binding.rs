//! PUT and DELETE of a binding.

use std::sync::Arc;

use evenkeel_core::action::Action;
use evenkeel_core::bundle::{Plan, Requirement};
use evenkeel_core::request::BindingInput;
use evenkeel_store::seam::BindingView;
use serde_json::{Value, json};

use super::{answered, ask, judge, known_answer, live, place};
use crate::ask::{Answer, Bind, Caller, Refusal, Unbind};
use crate::catalog::Pinned;
use crate::parameters;
use crate::service::Shared;

pub(crate) async fn bind(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Bind,
) -> Result<Answer, Refusal> {
    let live = live(shared, &wish.instance, Some(&wish.binding)).await?;
    let live = live
        .ok_or_else(|| Refusal::NoInstance(wish.instance.to_string()))?
        .undamaged()?;
    let asked = json!({
        "service": wish.service,
        "plan": wish.plan,
        "parameters": wish.parameters,
        "bind_resource": wish.bind_resource,
    });
    let input = BindingInput {
        id: wish.binding.to_string(),
        parameters: wish.parameters.clone(),
        bind_resource: wish.bind_resource.clone(),
        context: wish.context.clone(),
    };
    let ask = ask(shared, Action::Bind, &asked);
    let mut order = live.order(&caller, &wish.instance, Some((&wish.binding, input)), ask);
    if let Some(known) = answered(&judge(order.ask, &live.standing), &|| order.name()) {
        return known_answer(shared, &order, known?).await;
    }
    if live.view.service != wish.service || live.view.plan != wish.plan {
        return Err(Refusal::BadRequest {
            message: "service_id and plan_id have to be those of the instance".to_owned(),
        });
    }
    check_bindable(&live.pinned, order.plan)?;
    check_app(&live.pinned, &wish)?;
    order.check_async()?;
    if let (Some(plan), Some(binding)) = (order.plan, &mut order.body.binding) {
        parameters::check(plan, Action::Bind, &wish.parameters)?;
        binding.parameters = parameters::with_defaults(plan, Action::Bind, wish.parameters);
    }
    place(shared, order, None).await
}

fn check_bindable(pinned: &Pinned, plan: Option<&Plan>) -> Result<(), Refusal> {
    let own = plan.and_then(|plan| plan.bindable);
    if own.unwrap_or(pinned.bundle.service.bindable) {
        return Ok(());
    }
    Err(Refusal::BadRequest {
        message: format!(
            "service {:?} is not bindable on this plan",
            pinned.bundle.service.name
        ),
    })
}

/// Logs can only be drained, and volumes only be mounted, for an application.
fn check_app(pinned: &Pinned, wish: &Bind) -> Result<(), Refusal> {
    let needs_app = pinned.bundle.service.requires.iter().any(|requirement| {
        matches!(
            requirement,
            Requirement::SyslogDrain | Requirement::VolumeMount
        )
    });
    if needs_app && !wish.bind_resource.contains_key("app_guid") {
        return Err(Refusal::RequiresApp);
    }
    Ok(())
}

pub(crate) async fn unbind(
    shared: &Arc<Shared>,
    caller: Caller,
    wish: Unbind,
) -> Result<Answer, Refusal> {
    let no_binding = || Refusal::NoBinding(wish.binding.to_string());
    let live = live(shared, &wish.instance, Some(&wish.binding))
        .await?
        .ok_or_else(no_binding)?;
    let known = shared
        .options
        .store
        .binding(&wish.instance, &wish.binding)
        .await?;
    let known = known
        .filter(|known| known.deleted_at.is_none())
        .ok_or_else(no_binding)?;
    let ask = ask(shared, Action::Unbind, &Value::Null);
    let binding = Some((&wish.binding, input(&known)));
    let order = live.order(&caller, &wish.instance, binding, ask);
    order.check_async()?;
    place(shared, order, None).await
}

/// A binding as its actions see it.
pub(super) fn input(known: &BindingView) -> BindingInput {
    BindingInput {
        id: known.id.to_string(),
        parameters: known.parameters.clone(),
        bind_resource: known.bind_resource.clone(),
        context: known.context.clone(),
    }
}
