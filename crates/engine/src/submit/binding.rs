//! PUT and DELETE of a binding.

use std::sync::Arc;

use evenkeel_core::action::Action;
use evenkeel_core::admit::Ask;
use evenkeel_core::bundle::{Plan, Requirement};
use evenkeel_core::request::{BindingInput, JobBody};
use evenkeel_store::seam::BindingView;
use serde_json::json;

use super::{
    Order, answered, canonical, instance_input, judge, known_answer, named_service, pinned_to,
    place, plan_of,
};
use crate::ask::{Answer, Bind, Caller, Refusal, Unbind};
use crate::catalog::Pinned;
use crate::parameters;
use crate::service::Shared;

pub(crate) async fn bind(
    shared: &Arc<Shared>,
    caller: Caller,
    ask: Bind,
) -> Result<Answer, Refusal> {
    let store = &shared.options.store;
    let standing = store.standing(&ask.instance, Some(&ask.binding)).await?;
    let no_instance = || Refusal::NoInstance(ask.instance.to_string());
    let view = store
        .instance(&ask.instance)
        .await?
        .filter(|view| view.deleted_at.is_none());
    let view = view.ok_or_else(no_instance)?;
    let pinned = pinned_to(shared, &standing)
        .await?
        .ok_or_else(no_instance)?;
    let digest = store.digest(&canonical(&json!({
        "action": "bind",
        "service": ask.service,
        "plan": ask.plan,
        "parameters": ask.parameters,
        "bind_resource": ask.bind_resource,
    })));
    let order = Order {
        caller: &caller,
        action: Action::Bind,
        instance: &ask.instance,
        binding: Some(&ask.binding),
        pinned: &pinned,
        plan: pinned.plan(&view.plan),
        plan_id: view.plan.clone(),
        ask: Ask {
            action: Action::Bind,
            digest,
        },
        body: JobBody {
            action: Action::Bind,
            service: named_service(&pinned),
            plan: plan_of(&pinned, &view.plan),
            instance: instance_input(&view),
            binding: Some(BindingInput {
                id: ask.binding.to_string(),
                parameters: ask.parameters.clone(),
                bind_resource: ask.bind_resource.clone(),
                context: ask.context.clone(),
            }),
            previous: None,
            identity: caller.identity.clone(),
        },
    };
    if let Some(known) = answered(&judge(order.ask, &standing), &|| order.name()) {
        return known_answer(shared, &order, known?).await;
    }
    if view.service != ask.service || view.plan != ask.plan {
        return Err(Refusal::BadRequest {
            message: "service_id and plan_id have to be those of the instance".to_owned(),
        });
    }
    check_bindable(&pinned, order.plan)?;
    check_app(&pinned, &ask)?;
    order.check_async()?;
    if let Some(plan) = order.plan {
        parameters::check(plan, Action::Bind, &ask.parameters)?;
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
fn check_app(pinned: &Pinned, ask: &Bind) -> Result<(), Refusal> {
    let needs_app = pinned.bundle.service.requires.iter().any(|requirement| {
        matches!(
            requirement,
            Requirement::SyslogDrain | Requirement::VolumeMount
        )
    });
    if needs_app && !ask.bind_resource.contains_key("app_guid") {
        return Err(Refusal::RequiresApp);
    }
    Ok(())
}

pub(crate) async fn unbind(
    shared: &Arc<Shared>,
    caller: Caller,
    ask: Unbind,
) -> Result<Answer, Refusal> {
    let store = &shared.options.store;
    let standing = store.standing(&ask.instance, Some(&ask.binding)).await?;
    let no_binding = || Refusal::NoBinding(ask.binding.to_string());
    let view = store
        .instance(&ask.instance)
        .await?
        .filter(|view| view.deleted_at.is_none());
    let view = view.ok_or_else(no_binding)?;
    let known = store.binding(&ask.instance, &ask.binding).await?;
    let known = known
        .filter(|known| known.deleted_at.is_none())
        .ok_or_else(no_binding)?;
    let pinned = pinned_to(shared, &standing).await?.ok_or_else(no_binding)?;
    let digest = store.digest(&canonical(&json!({ "action": "unbind" })));
    let order = Order {
        caller: &caller,
        action: Action::Unbind,
        instance: &ask.instance,
        binding: Some(&ask.binding),
        pinned: &pinned,
        plan: pinned.plan(&view.plan),
        plan_id: view.plan.clone(),
        ask: Ask {
            action: Action::Unbind,
            digest,
        },
        body: JobBody {
            action: Action::Unbind,
            service: named_service(&pinned),
            plan: plan_of(&pinned, &view.plan),
            instance: instance_input(&view),
            binding: Some(input(&known)),
            previous: None,
            identity: caller.identity.clone(),
        },
    };
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
