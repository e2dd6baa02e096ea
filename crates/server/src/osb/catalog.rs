//! `GET /v2/catalog`: rendered once for each reading of the bundles.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use evenkeel_core::bundle::{self, Bundle, ParameterSchema, Requirement};
use evenkeel_core::request::Object;
use evenkeel_engine::catalog::Catalog;
use evenkeel_osb as wire;

use super::conditional::Validators;
use super::{Ask, OsbState};
use crate::exchange::json_bytes;

/// The catalog as it was last rendered.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Option<Arc<Rendered>>>);

#[derive(Debug)]
struct Rendered {
    /// What it was rendered from.
    catalog: Arc<Catalog>,
    bytes: Bytes,
    validators: Validators,
}

impl OsbState {
    pub(super) fn catalog(&self, ask: &Ask<'_>) -> Response {
        let rendered = self.rendered();
        let response = if rendered.validators.are_known(&ask.request.headers) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            json_bytes(200, rendered.bytes.clone())
        };
        rendered.validators.tell(response)
    }

    fn rendered(&self) -> Arc<Rendered> {
        let catalog = self.engine.catalog();
        let mut cached = self
            .catalog
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fresh = cached
            .as_ref()
            .filter(|cached| Arc::ptr_eq(&cached.catalog, &catalog));
        if let Some(fresh) = fresh {
            return Arc::clone(fresh);
        }
        let services = catalog
            .services
            .values()
            .map(|pinned| offering(&pinned.bundle))
            .collect();
        let bytes = serde_json::to_vec(&wire::Catalog { services })
            .expect("a catalog holds nothing that JSON has not");
        let before = cached.as_ref().map(|cached| &cached.validators);
        let rendered = Rendered {
            validators: Validators::of(&bytes, catalog.loaded_at, before),
            bytes: bytes.into(),
            catalog,
        };
        Arc::clone(cached.insert(Arc::new(rendered)))
    }
}

fn offering(bundle: &Bundle) -> wire::ServiceOffering {
    let service = &bundle.service;
    wire::ServiceOffering {
        name: service.name.clone(),
        id: service.id.to_string(),
        description: service.description.clone(),
        tags: service.tags.clone(),
        requires: requires(&service.requires),
        bindable: service.bindable,
        instances_retrievable: service.instances_retrievable,
        bindings_retrievable: service.bindings_retrievable,
        allow_context_updates: service.allow_context_updates,
        plan_updateable: service.plan_updateable,
        metadata: service.metadata.clone().unwrap_or_default(),
        dashboard_client: service
            .dashboard_client
            .as_ref()
            .map(|client| wire::DashboardClient {
                id: client.id.clone(),
                secret: client.secret.clone(),
                redirect_uri: client.redirect_uri.clone(),
            }),
        plans: bundle.plans.iter().map(plan).collect(),
    }
}

/// What a platform has to grant to the bindings of a service.
pub(super) fn requires(requirements: &[Requirement]) -> Vec<wire::Requires> {
    let wire = |requirement: &Requirement| match requirement {
        Requirement::SyslogDrain => wire::Requires::SyslogDrain,
        Requirement::RouteForwarding => wire::Requires::RouteForwarding,
        Requirement::VolumeMount => wire::Requires::VolumeMount,
    };
    requirements.iter().map(wire).collect()
}

fn plan(plan: &bundle::Plan) -> wire::Plan {
    wire::Plan {
        id: plan.id.to_string(),
        name: plan.name.clone(),
        description: plan.description.clone(),
        metadata: plan.metadata.clone().unwrap_or_default(),
        free: plan.free,
        bindable: plan.bindable,
        binding_rotatable: plan.binding_rotatable,
        plan_updateable: plan.plan_updateable,
        schemas: wire::Schemas {
            provision: schema(plan.schemas.provision.as_ref()),
            update: schema(plan.schemas.update.as_ref()),
            bind: schema(plan.schemas.bind.as_ref()),
        },
        maximum_polling_duration_secs: plan.maximum_polling_duration.map(u64::from),
        maintenance_info: plan
            .maintenance_info
            .as_ref()
            .map(|info| wire::MaintenanceInfo {
                version: info.version.clone(),
                description: info.description.clone(),
            }),
    }
}

fn schema(schema: Option<&ParameterSchema>) -> Option<Object> {
    schema?.json().as_object().cloned()
}
