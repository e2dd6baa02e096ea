//! What a bundle says of its instances and bindings to everyone who asks: where the dashboard is,
//! and what can be fetched.

use evenkeel_core::bundle::Service;
use evenkeel_core::ids::ServiceId;
use evenkeel_osb::{ErrorBody, InstanceInfo};
use evenkeel_store::seam::InstanceView;

use super::OsbState;
use super::outputs::instance_info;

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
