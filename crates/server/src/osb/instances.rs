//! Service instances: provision, update, deprovision, fetch.

use axum::response::Response;
use evenkeel_core::action::Action;
use evenkeel_core::ids::{IdError, InstanceId, JobId};
use evenkeel_core::instance::Status;
use evenkeel_engine::ask::{Answer, Deprovision, Provision, Update};
use evenkeel_osb::{
    BadRequest, DeleteAnswer, ErrorBody, FromObject as _, InProgress, InstanceDetails,
    InstanceInProgress, InstanceInfo, MaintenanceInfo, Operation, ProvisionAnswer,
    ProvisionRequest, UpdateAnswer, UpdateRequest,
};
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::InstanceView;

use super::refusal::store_error;
use super::{Ask, OsbState};
use crate::exchange::json;

impl OsbState {
    pub(super) async fn provision(
        &self,
        mut ask: Ask<'_>,
        instance: InstanceId,
    ) -> Result<Response, ErrorBody> {
        let request = ProvisionRequest::from_object(&ask.body().await?)?;
        ask.note_identity(&request.context);
        let provision = Provision {
            instance: instance.clone(),
            service: field("service_id", request.service_id)?,
            plan: field("plan_id", request.plan_id)?,
            organization_guid: request.organization_guid,
            space_guid: request.space_guid,
            parameters: request.parameters.into_exposed(),
            context: request.context.as_object().clone(),
            maintenance_version: request.maintenance_info.map(|info| info.version),
        };
        let answer = match self.engine.provision(ask.caller(), provision).await {
            Ok(answer) => answer,
            Err(refusal) => return Ok(self.refused(Action::Provision, refusal)),
        };
        let info = self.info(&ask, &instance).await;
        let answer = match answer {
            Answer::Done(_) => ProvisionAnswer::Created(info),
            Answer::Already => ProvisionAnswer::Exists(info),
            Answer::InProgress(job) => ProvisionAnswer::InProgress(InstanceInProgress {
                info,
                operation: operation(job),
            }),
        };
        Ok(json(answer.status(), &answer))
    }

    pub(super) async fn update(
        &self,
        mut ask: Ask<'_>,
        instance: InstanceId,
    ) -> Result<Response, ErrorBody> {
        let request = UpdateRequest::from_object(&ask.body().await?)?;
        let context = request.context;
        ask.note_identity(&context);
        let update = Update {
            instance: instance.clone(),
            service: field("service_id", request.service_id)?,
            plan: request
                .plan_id
                .map(|plan| field("plan_id", plan))
                .transpose()?,
            parameters: request.parameters.into_exposed(),
            context: (!context.is_empty()).then(|| context.as_object().clone()),
            maintenance_version: request.maintenance_info.map(|info| info.version),
        };
        let answer = match self.engine.update(ask.caller(), update).await {
            Ok(answer) => answer,
            Err(refusal) => return Ok(self.refused(Action::Update, refusal)),
        };
        let info = self.info(&ask, &instance).await;
        let answer = match answer {
            Answer::Done(_) | Answer::Already => UpdateAnswer::Updated(info),
            Answer::InProgress(job) => UpdateAnswer::InProgress(InstanceInProgress {
                info,
                operation: operation(job),
            }),
        };
        Ok(json(answer.status(), &answer))
    }

    pub(super) async fn deprovision(
        &self,
        ask: Ask<'_>,
        instance: InstanceId,
    ) -> Result<Response, ErrorBody> {
        // Also of an instance that nobody knows: 400 comes before 410.
        ask.query.required_service_id()?;
        ask.query.required_plan_id()?;
        let deprovision = Deprovision {
            instance,
            service: ask.service(),
        };
        match self.engine.deprovision(ask.caller(), deprovision).await {
            Ok(answer) => Ok(deleted(answer)),
            Err(refusal) => Ok(self.refused(Action::Deprovision, refusal)),
        }
    }

    pub(super) async fn instance(
        &self,
        ask: &Ask<'_>,
        id: &InstanceId,
    ) -> Result<Response, ErrorBody> {
        let missing =
            || ErrorBody::not_found(format!("There is no service instance {:?}.", id.as_str()));
        let view = self.instance_view(ask, id).await?.ok_or_else(missing)?;
        self.check_instances_retrievable(&view.service)?;
        match view.status {
            Status::Deleted => return Err(missing()),
            Status::Creating | Status::CreateFailed => {
                return Err(ErrorBody::not_found(
                    "The service instance is not provisioned.",
                ));
            }
            Status::Deleting | Status::Ready | Status::DeleteFailed => {}
        }
        if let Some(damage) = view.damage {
            return Err(store_error(&StoreError::Damaged(damage)));
        }
        let busy = view.active.iter().find(|job| !job.superseded);
        if let Some(job) = busy {
            let (action, id) = (job.action, job.id);
            return Err(ErrorBody::concurrency(format!(
                "{action} {id} is under way for it."
            )));
        }
        let details = InstanceDetails {
            info: self.info_of(&view),
            service_id: Some(view.service.into()),
            plan_id: Some(view.plan.into()),
            parameters: view.parameters.into(),
            maintenance_info: view.maintenance_version.map(|version| MaintenanceInfo {
                version,
                description: None,
            }),
        };
        Ok(json(200, &details))
    }

    /// An instance, if this platform may know of it.
    pub(super) async fn instance_view(
        &self,
        ask: &Ask<'_>,
        id: &InstanceId,
    ) -> Result<Option<InstanceView>, ErrorBody> {
        let view = self.engine.read().instance(id).await;
        let view = view.map_err(|error| store_error(&error))?;
        Ok(view.filter(|view| self.engine.is_shown(&ask.platform, &view.platform)))
    }

    /// What is known of an instance with an answer that stands: if it cannot be read, the
    /// platform gets the answer without.
    async fn info(&self, ask: &Ask<'_>, id: &InstanceId) -> InstanceInfo {
        match self.instance_view(ask, id).await {
            Ok(view) => view.map(|view| self.info_of(&view)).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(
                    why = error.description(),
                    "an answer goes without the instance's dashboard"
                );
                InstanceInfo::default()
            }
        }
    }
}

/// The answer to a delete.
pub(super) fn deleted(answer: Answer) -> Response {
    let answer = match answer {
        Answer::Done(_) | Answer::Already => DeleteAnswer::Deleted {},
        Answer::InProgress(job) => DeleteAnswer::InProgress(InProgress {
            operation: operation(job),
        }),
    };
    json(answer.status(), &answer)
}

/// The name under which a job is polled.
pub(super) fn operation(job: JobId) -> Option<Operation> {
    // A UUID has unreserved characters only.
    Operation::new(job.to_string()).ok()
}

/// An id that a body names.
pub(super) fn field<T>(name: &str, text: String) -> Result<T, ErrorBody>
where
    T: TryFrom<String, Error = IdError>,
{
    T::try_from(text).map_err(|error| BadRequest::new(format!("/{name}"), error.to_string()).into())
}
