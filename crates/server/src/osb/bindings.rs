//! Service bindings: bind, unbind, fetch.

use axum::response::Response;
use evenkeel_core::action::Action;
use evenkeel_core::ids::{BindingId, BindingUid, InstanceId};
use evenkeel_core::instance::Status;
use evenkeel_engine::ask::{Answer, Bind, Unbind};
use evenkeel_osb::{
    BindAnswer, BindRequest, BindingDetails, ErrorBody, FromObject as _, InProgress,
};
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::BindingView;
use serde_json::Value;

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
        let request = BindRequest::from_object(&ask.body().await?)?;
        let (service, plan, predecessor, details) = match request {
            BindRequest::New(new) => (Some(new.service_id), Some(new.plan_id), None, new.details),
            BindRequest::Rotate(rotation) => (
                rotation.service_id,
                rotation.plan_id,
                Some(rotation.predecessor_binding_id),
                rotation.details,
            ),
        };
        ask.note_identity(&details.context);
        let mut bind_resource = details.bind_resource.as_object().clone();
        if let Some(app) = details.app_guid() {
            bind_resource.insert("app_guid".to_owned(), Value::from(app));
        }
        let bind = Bind {
            instance: instance.clone(),
            binding: binding.clone(),
            service: service.map(|id| field("service_id", id)).transpose()?,
            plan: plan.map(|id| field("plan_id", id)).transpose()?,
            predecessor: predecessor
                .map(|id| field("predecessor_binding_id", id))
                .transpose()?,
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
        // What was made, or found, may be gone again, or another life of the name.
        let view = self.binding_view(&ask, &instance, &binding).await?;
        let made = answered_for(&answer);
        let view = view
            .filter(|view| view.status == Status::Ready && made.is_none_or(|uid| uid == view.uid));
        let view = view.ok_or_else(|| {
            ErrorBody::concurrency("The service binding was deleted by another request meanwhile.")
        })?;
        let made = outputs::binding(&view.outputs)?;
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
        let ids = ask.query.required_service_id();
        let ids = ids.and_then(|_| ask.query.required_plan_id());
        let unbind = Unbind {
            instance,
            binding,
            service: ask.service(),
            missing: ids.err().map(|error| error.to_string()),
        };
        match self.engine.unbind(ask.caller(), unbind).await {
            Ok(answer) => Ok(deleted(answer)),
            Err(refusal) => Ok(self.refused(Action::Unbind, refusal)),
        }
    }

    pub(super) async fn binding(
        &self,
        ask: &Ask<'_>,
        instance: &InstanceId,
        id: &BindingId,
    ) -> Result<Response, ErrorBody> {
        let missing =
            || ErrorBody::not_found(format!("There is no service binding {:?}.", id.as_str()));
        let owner = self.instance_view(ask, instance).await?;
        if let Some(owner) = owner {
            self.check_bindings_retrievable(&owner.service)?;
        }
        let view = self.binding_view(ask, instance, id).await?;
        let view = view.ok_or_else(missing)?;
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
        let details = BindingDetails {
            binding: outputs::binding(&view.outputs)?,
            parameters: view.parameters.into(),
        };
        Ok(json(200, &details))
    }

    /// A binding of an instance that this platform may know of.
    async fn binding_view(
        &self,
        ask: &Ask<'_>,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<Option<BindingView>, ErrorBody> {
        let Some(owner) = self.instance_view(ask, instance).await? else {
            return Ok(None);
        };
        let view = self.engine.read().binding(instance, binding).await;
        let view = view.map_err(|error| store_error(&error))?;
        // Read after its owner: it may be of another life, and another platform's, by now.
        let view = view.filter(|view| view.instance == owner.uid);
        match view.as_ref().and_then(|view| view.damage.clone()) {
            Some(damage) => Err(store_error(&StoreError::Damaged(damage))),
            None => Ok(view),
        }
    }
}

/// The life of the binding that an answer is about, where the answer knows.
fn answered_for(answer: &Answer) -> Option<BindingUid> {
    match answer {
        Answer::Done(job) => job.target.binding.as_ref().map(|binding| binding.uid),
        Answer::Already | Answer::InProgress(_) => None,
    }
}
