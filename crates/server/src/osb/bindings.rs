//! Service bindings: bind, unbind, fetch.

use axum::response::Response;
use evenkeel_core::action::Action;
use evenkeel_core::ids::{BindingId, InstanceId, ServiceId};
use evenkeel_core::instance::Status;
use evenkeel_engine::ask::{Answer, Bind, Unbind};
use evenkeel_osb::{
    BindAnswer, BindRequest, BindingDetails, ErrorBody, FromObject as _, InProgress, Requires,
};
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::BindingView;
use serde_json::Value;

use super::catalog::requires;
use super::instances::{deleted, field, operation};
use super::refusal::store_error;
use super::{Ask, OsbState, outputs};
use crate::exchange::json;

impl OsbState {
    pub(super) async fn bind(
        &self,
        mut ask: Ask<'_>,
        instance: InstanceId,
        binding: BindingId,
    ) -> Result<Response, ErrorBody> {
        let request = match BindRequest::from_object(&ask.body().await?)? {
            BindRequest::New(request) => request,
            // No plan is offered as rotatable, so this is the answer that the specification asks for.
            BindRequest::Rotate(_) => {
                return Err(ErrorBody::bad_request(
                    "Bindings of this plan cannot be rotated (predecessor_binding_id): make a new \
                     one and delete the old one.",
                ));
            }
        };
        let details = request.details;
        let mut bind_resource = details.bind_resource.as_object().clone();
        if let Some(app) = details.app_guid() {
            bind_resource.insert("app_guid".to_owned(), Value::from(app));
        }
        let service: ServiceId = field("service_id", request.service_id)?;
        let bind = Bind {
            instance: instance.clone(),
            binding: binding.clone(),
            service: service.clone(),
            plan: field("plan_id", request.plan_id)?,
            parameters: details.parameters.into_exposed(),
            bind_resource,
            context: details.context.as_object().clone(),
        };
        let answer = match self.engine.bind(ask.caller(), bind).await {
            Ok(Answer::InProgress(job)) => {
                let answer = BindAnswer::InProgress(InProgress {
                    operation: operation(job),
                });
                return Ok(json(answer.status(), &answer));
            }
            Ok(answer) => answer,
            Err(refusal) => return Ok(self.refused(Action::Bind, refusal)),
        };
        let view = self
            .binding_view(&instance, &binding)
            .await?
            .ok_or_else(|| {
                ErrorBody::concurrency(
                    "The service binding was deleted by another request meanwhile.",
                )
            })?;
        let made = outputs::binding(&view.outputs, self.requires_of(&service).as_deref())?;
        let answer = match answer {
            Answer::Done(_) => BindAnswer::Created(made),
            Answer::Already | Answer::InProgress(_) => BindAnswer::Exists(made),
        };
        Ok(json(answer.status(), &answer))
    }

    pub(super) async fn unbind(
        &self,
        ask: Ask<'_>,
        instance: InstanceId,
        binding: BindingId,
    ) -> Result<Response, ErrorBody> {
        let standing = self
            .engine
            .read()
            .standing(&instance, Some(&binding))
            .await
            .map_err(|error| store_error(&error))?;
        let service = standing.instance.map(|instance| instance.service);
        if self.needs_async(&ask, Action::Unbind, service) {
            return Err(ErrorBody::async_required());
        }
        // Of a binding that nobody knows the ids are not asked for: 410 comes before 400.
        if standing.binding.is_some() {
            ask.query.required_service_id()?;
            ask.query.required_plan_id()?;
        }
        let unbind = Unbind { instance, binding };
        match self.engine.unbind(ask.caller(), unbind).await {
            Ok(answer) => Ok(deleted(answer)),
            Err(refusal) => Ok(self.refused(Action::Unbind, refusal)),
        }
    }

    pub(super) async fn binding(
        &self,
        instance: &InstanceId,
        id: &BindingId,
    ) -> Result<Response, ErrorBody> {
        let missing =
            || ErrorBody::not_found(format!("There is no service binding {:?}.", id.as_str()));
        let view = self.binding_view(instance, id).await?.ok_or_else(missing)?;
        match view.status {
            Status::Ready | Status::DeleteFailed => {}
            Status::Deleted => return Err(missing()),
            Status::Creating | Status::CreateFailed => {
                return Err(ErrorBody::not_found("The service binding is not made."));
            }
            Status::Deleting => {
                return Err(ErrorBody::not_found(
                    "The service binding is being deleted.",
                ));
            }
        }
        let parent = self.engine.read().instance(instance).await;
        let parent = parent
            .map_err(|error| store_error(&error))?
            .ok_or_else(missing)?;
        self.check_bindings_retrievable(&parent.service)?;
        let details = BindingDetails {
            binding: outputs::binding(&view.outputs, self.requires_of(&parent.service).as_deref())?,
            parameters: view.parameters.into(),
        };
        Ok(json(200, &details))
    }

    async fn binding_view(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<Option<BindingView>, ErrorBody> {
        let view = self.engine.read().binding(instance, binding).await;
        let view = view.map_err(|error| store_error(&error))?;
        match view.as_ref().and_then(|view| view.damage.clone()) {
            Some(damage) => Err(store_error(&StoreError::Damaged(damage))),
            None => Ok(view),
        }
    }

    /// What the platform has to grant to bindings of a service; `None` where the catalog no
    /// longer has it, and nobody can say.
    fn requires_of(&self, service: &ServiceId) -> Option<Vec<Requires>> {
        let catalog = self.engine.catalog();
        let pinned = catalog.service(service)?;
        Some(requires(&pinned.bundle.service.requires))
    }
}
