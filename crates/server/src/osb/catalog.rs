//! `GET /v2/catalog`: rendered once for each reading of the bundles.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::response::Response;
use evenkeel_core::bundle::{self, Bundle, ParameterSchema, Requirement, Service};
use evenkeel_core::ids::ServiceId;
use evenkeel_core::request::Object;
use evenkeel_core::time::Timestamp;
use evenkeel_osb::{self as wire, ErrorBody, InstanceInfo};
use evenkeel_store::seam::InstanceView;
use sha2::{Digest as _, Sha256};

use super::outputs::instance_info;
use super::{Ask, OsbState};
use crate::exchange::{json_bytes, with_header};

/// The catalog as it was last rendered.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Option<Arc<Rendered>>>);

#[derive(Debug)]
struct Rendered {
    loaded_at: Timestamp,
    bytes: Bytes,
    /// A strong one, over the bytes.
    etag: String,
}

impl OsbState {
    pub(super) fn catalog(&self, ask: &Ask<'_>) -> Response {
        let rendered = self.rendered();
        let known = ask.request.headers.get_all(IF_NONE_MATCH).iter();
        let is_known = known
            .into_iter()
            .any(|header| names(header.as_bytes(), &rendered.etag));
        let response = if is_known {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            json_bytes(200, rendered.bytes.clone())
        };
        with_header(response, ETAG, &rendered.etag)
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
            .filter(|cached| cached.loaded_at == catalog.loaded_at);
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
        let digest = Sha256::digest(&bytes);
        let mut etag = String::from("\"");
        for byte in &digest[..16] {
            write!(etag, "{byte:02x}").expect("a string takes any text");
        }
        etag.push('"');
        let rendered = Rendered {
            loaded_at: catalog.loaded_at,
            bytes: bytes.into(),
            etag,
        };
        Arc::clone(cached.insert(Arc::new(rendered)))
    }
}

impl OsbState {
    /// What a service that is offered says of its instances and bindings. Of one that has left
    /// the catalog nobody knows, and platforms keep what they were told.
    fn of_service<T>(&self, service: &ServiceId, read: impl FnOnce(&Service) -> T) -> Option<T> {
        let catalog = self.engine.catalog();
        let pinned = catalog.service(service)?;
        Some(read(&pinned.bundle.service))
    }

    /// Dashboard and metadata of an instance: what its action wrote, else what its bundle says
    /// beforehand.
    pub(super) fn info_of(&self, view: &InstanceView) -> InstanceInfo {
        let mut info = instance_info(&view.outputs);
        let beforehand =
            || self.of_service(&view.service, |service| service.dashboard_of(&view.id))?;
        info.dashboard_url = info.dashboard_url.or_else(beforehand);
        info
    }

    /// # Errors
    /// 404: platforms were told that instances cannot be fetched.
    pub(super) fn check_instances_retrievable(&self, service: &ServiceId) -> Result<(), ErrorBody> {
        retrievable(
            self.of_service(service, |service| service.instances_retrievable),
            "instances",
        )
    }

    /// # Errors
    /// 404: platforms were told that bindings cannot be fetched.
    pub(super) fn check_bindings_retrievable(&self, service: &ServiceId) -> Result<(), ErrorBody> {
        retrievable(
            self.of_service(service, |service| service.bindings_retrievable),
            "bindings",
        )
    }
}

fn retrievable(flag: Option<bool>, what: &str) -> Result<(), ErrorBody> {
    if flag == Some(false) {
        return Err(ErrorBody::not_found(format!(
            "Service {what} of this offering cannot be fetched ({what}_retrievable is false)."
        )));
    }
    Ok(())
}

// Weak comparison (RFC 9110, 13.1.2): `W/` does not count. Tags of ours hold no comma.
fn names(header: &[u8], etag: &str) -> bool {
    let header = String::from_utf8_lossy(header);
    header
        .split(',')
        .map(str::trim)
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_tag_is_found_in_lists_weak_or_not() {
        for header in [
            "\"abc\"",
            "W/\"abc\"",
            "\"x\", \"abc\"",
            "*",
            " \"x\" ,W/\"abc\" ",
        ] {
            assert!(names(header.as_bytes(), "\"abc\""), "{header}");
        }
        for header in ["", "abc", "\"ab\"", "w/\"abc\""] {
            assert!(!names(header.as_bytes(), "\"abc\""), "{header}");
        }
    }
}
