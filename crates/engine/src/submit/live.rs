//! What a request finds: the instance that it is about, and the bundles that can carry it out.
//!
//! An instance is pinned to the content that it was made with. What has left the catalog since
//! can still be polled, fetched, bound, deleted, and updated where its own content allows.

use std::io::ErrorKind;
use std::sync::Arc;

use evenkeel_core::action::Action;
use evenkeel_core::admit::Ask;
use evenkeel_core::bundle::{AsyncMode, Plan};
use evenkeel_core::ids::{BindingId, BundleDigest, InstanceId, PlanId, Platform, ServiceId};
use evenkeel_core::request::{BindingInput, InstanceInput, JobBody, Named, Object, PlanInput};
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Base, BindingView, InstanceView, Standing};

use super::{MAX_STALE, Order, stale};
use crate::ask::{Caller, Refusal};
use crate::catalog::Pinned;
use crate::service::{Shared, run_blocking};

/// An instance that lives, as a request about it finds it.
pub(super) struct Live {
    pub(super) standing: Standing,
    pub(super) view: InstanceView,
    pub(super) pinned: Pinned,
}

/// Whether a platform may know of what another one, or itself, has ordered.
pub(crate) fn is_shown(shared: &Shared, to: &Platform, of: &Platform) -> bool {
    !shared.options.isolate_platforms || to == of
}

/// Finds the instance of a request; `None` if it does not live, or not for this caller.
pub(super) async fn live(
    shared: &Arc<Shared>,
    caller: &Caller,
    instance: &InstanceId,
    binding: Option<&BindingId>,
) -> Result<Option<Live>, Refusal> {
    find(shared, caller, instance, binding, false).await
}

/// As [`live`], for a delete: one whose content has gone can be deleted by another version of its
/// offering.
pub(super) async fn live_to_delete(
    shared: &Arc<Shared>,
    caller: &Caller,
    instance: &InstanceId,
    binding: Option<&BindingId>,
) -> Result<Option<Live>, Refusal> {
    find(shared, caller, instance, binding, true).await
}

async fn find(
    shared: &Arc<Shared>,
    caller: &Caller,
    instance: &InstanceId,
    binding: Option<&BindingId>,
    deletes: bool,
) -> Result<Option<Live>, Refusal> {
    let store = &shared.options.store;
    for _ in 0..MAX_STALE {
        let standing = store.standing(instance, binding).await?;
        let view = store.instance(instance).await?.filter(|view| {
            view.deleted_at.is_none() && is_shown(shared, &caller.platform, &view.platform)
        });
        let Some(view) = view else { return Ok(None) };
        // Two reads: of two lives of the name, say.
        if standing.instance.as_ref().map(|known| known.uid) != Some(view.uid) {
            continue;
        }
        let pinned = match pinned(shared, view.bundle).await? {
            Ok(pinned) => pinned,
            Err(error) => {
                let lost = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData);
                let other = offered(shared, &view.service).filter(|_| deletes && lost);
                other.ok_or_else(|| lost_content(view.bundle, &error))?
            }
        };
        return Ok(Some(Live {
            standing,
            view,
            pinned,
        }));
    }
    Err(stale())
}

fn lost_content(digest: BundleDigest, error: &std::io::Error) -> Refusal {
    Refusal::Unavailable(format!(
        "the copy of bundle {digest} that the instance is pinned to cannot be read: {error}"
    ))
}

impl Live {
    /// Only a delete can do without what is damaged.
    pub(super) fn undamaged(self) -> Result<Self, Refusal> {
        match &self.view.damage {
            None => Ok(self),
            Some(damage) => Err(StoreError::Damaged(damage.clone()).into()),
        }
    }

    /// Whether what it is pinned to carries an action out only asynchronously.
    pub(super) fn needs_async(&self, action: Action) -> bool {
        mode(&self.pinned, action) == AsyncMode::Required
    }

    /// The order of an action for this instance as it is, on the content that it is pinned to.
    pub(super) fn order<'a>(
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
            base: Some(Base {
                uid: self.view.uid,
                revision: self.view.revision,
            }),
            becomes: None,
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

/// The offering of a request: as it is offered now.
pub(super) fn offered(shared: &Shared, service: &ServiceId) -> Option<Pinned> {
    shared.catalog.current().service(service).cloned()
}

/// Whether the offering of that name, as it is offered now, carries an action out only
/// asynchronously.
pub(super) fn offered_needs_async(
    shared: &Shared,
    service: Option<&ServiceId>,
    action: Action,
) -> bool {
    service
        .and_then(|service| offered(shared, service))
        .is_some_and(|pinned| mode(&pinned, action) == AsyncMode::Required)
}

pub(super) fn mode(pinned: &Pinned, action: Action) -> AsyncMode {
    // What has no action has nothing to wait for.
    pinned
        .bundle
        .actions
        .get(&action)
        .map_or(AsyncMode::Unsupported, |action| action.async_mode)
}

/// The content that an instance is pinned to, or why it cannot be read.
async fn pinned(
    shared: &Arc<Shared>,
    digest: BundleDigest,
) -> Result<Result<Pinned, std::io::Error>, Refusal> {
    let keeper = Arc::clone(shared);
    run_blocking(move || keeper.catalog.pinned(digest))
        .await
        .map_err(Refusal::Unavailable)
}

/// The content that an instance is pinned to.
pub(super) async fn content(shared: &Arc<Shared>, digest: BundleDigest) -> Result<Pinned, Refusal> {
    pinned(shared, digest)
        .await?
        .map_err(|error| lost_content(digest, &error))
}

pub(super) fn unknown_service(service: &ServiceId) -> Refusal {
    Refusal::BadRequest {
        message: format!("service_id {:?} is not in the catalog", service.as_str()),
    }
}

pub(super) fn unknown_plan(pinned: &Pinned, plan: &PlanId) -> Refusal {
    let service = &pinned.bundle.service.name;
    Refusal::BadRequest {
        message: format!(
            "plan_id {:?} is not a plan of service {service:?}",
            plan.as_str()
        ),
    }
}

pub(super) fn named_service(pinned: &Pinned) -> Named<ServiceId> {
    let service = &pinned.bundle.service;
    Named {
        id: service.id.clone(),
        name: service.name.clone(),
    }
}

pub(super) fn plan_input(plan: &Plan) -> PlanInput {
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
pub(super) fn plan_of(pinned: &Pinned, id: &PlanId) -> PlanInput {
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

/// A binding as its actions see it.
pub(super) fn binding_input(known: &BindingView) -> BindingInput {
    BindingInput {
        id: known.id.to_string(),
        parameters: known.parameters.clone(),
        bind_resource: known.bind_resource.clone(),
        context: known.context.clone(),
        predecessor: None,
    }
}
