//! `GET …/last_operation` of instances and bindings.

use axum::http::header::RETRY_AFTER;
use axum::response::Response;
use evenkeel_core::action::Action;
use evenkeel_core::explain::platform_description;
use evenkeel_core::ids::{BindingId, InstanceId, JobId};
use evenkeel_core::job::{Job, State};
use evenkeel_osb::{ErrorBody, InstanceLastOperation, LastOperation, OperationState};
use evenkeel_store::seam::Operation;

use super::refusal::{repeatable, store_error};
use super::{Ask, DeletedAs, OsbState};
use crate::exchange::{json, with_header};

impl OsbState {
    pub(super) async fn poll_instance(
        &self,
        ask: &Ask<'_>,
        instance: &InstanceId,
    ) -> Result<Response, ErrorBody> {
        let found = self.operation(ask, instance, None).await?;
        let found = found.ok_or_else(|| {
            ErrorBody::not_found(format!(
                "There is no service instance {:?}.",
                instance.as_str()
            ))
        })?;
        self.told(&found)
    }

    pub(super) async fn poll_binding(
        &self,
        ask: &Ask<'_>,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<Response, ErrorBody> {
        let found = self.operation(ask, instance, Some(binding)).await?;
        let found = found.ok_or_else(|| {
            ErrorBody::not_found(format!(
                "There is no service binding {:?}.",
                binding.as_str()
            ))
        })?;
        self.told(&found)
    }

    async fn operation(
        &self,
        ask: &Ask<'_>,
        instance: &InstanceId,
        binding: Option<&BindingId>,
    ) -> Result<Option<Operation>, ErrorBody> {
        // A name that is not ours means the latest operation: a 400 would be final for Cloud Foundry.
        let named = ask
            .query
            .operation
            .as_ref()
            .and_then(|name| name.as_str().parse::<JobId>().ok());
        let found = self.engine.read().operation(instance, binding, named).await;
        let found = found.map_err(|error| store_error(&error))?;
        Ok(found.filter(|found| {
            // What went without an operation of its own (a binding, with its instance) is not
            // there, unless the operation is asked for by its name.
            let there = !found.target_deleted
                || named == Some(found.job.id)
                || matches!(found.job.action, Action::Deprovision | Action::Unbind);
            there && self.engine.is_shown(&ask.platform, &found.owner)
        }))
    }

    fn told(&self, operation: &Operation) -> Result<Response, ErrorBody> {
        let job = &operation.job;
        let deleted = job.state == State::Succeeded
            && matches!(job.action, Action::Deprovision | Action::Unbind);
        if deleted && self.settings.deleted_as == DeletedAs::Gone {
            return Err(ErrorBody::gone("It is deleted."));
        }
        let told = last_operation(job, operation.progress.as_deref());
        let response = json(200, &told);
        if told.state() == OperationState::InProgress {
            let retry_after = self.settings.retry_after.to_string();
            return Ok(with_header(response, RETRY_AFTER, &retry_after));
        }
        Ok(response)
    }
}

/// What a poll is told about a job (DESIGN §10).
fn last_operation(job: &Job, progress: Option<&str>) -> InstanceLastOperation {
    let description = platform_description(job, progress);
    let state = match &job.state {
        State::Queued | State::Running { .. } | State::Backoff { .. } => OperationState::InProgress,
        State::Succeeded => OperationState::Succeeded,
        State::Failed { .. } | State::Cancelled { .. } | State::Quarantined { .. } => {
            OperationState::Failed
        }
    };
    match (state, job.action) {
        // The old plan and parameters stay in force.
        (OperationState::Failed, Action::Update) => {
            InstanceLastOperation::failed_update(description, Some(true), Some(repeatable(job)))
        }
        // It may be half gone.
        (OperationState::Failed, Action::Deprovision) => {
            InstanceLastOperation::failed_deprovision(description, Some(false))
        }
        (OperationState::InProgress | OperationState::Succeeded, _)
        | (OperationState::Failed, Action::Provision | Action::Bind | Action::Unbind) => {
            LastOperation::new(state).describe(description).into()
        }
    }
}
