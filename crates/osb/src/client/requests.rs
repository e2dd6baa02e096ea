//! One function for each request that the API has.

use reqwest::Method;
use serde::Serialize;

use super::call::{self, Answer};
use super::{Client, ClientError, Mode};
use crate::answer::{DeleteAnswer, InstanceDetails, ProvisionAnswer, UpdateAnswer};
use crate::bind_request::BindRequest;
use crate::binding::{BindAnswer, BindingDetails};
use crate::body::BadRequest;
use crate::catalog::Catalog;
use crate::fields::{Fields, FromObject};
use crate::headers::RetryAfter;
use crate::operation::{InstanceLastOperation, LastOperation};
use crate::request::{ProvisionRequest, UpdateRequest};
use crate::uri::{Query, encode_segment};

/// The answer to a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled<T> {
    /// How far the operation is.
    pub operation: T,
    /// When the broker would like to be asked again.
    pub retry_after: Option<RetryAfter>,
}

impl Client {
    /// `GET /v2/catalog`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn catalog(&self) -> Result<Catalog, ClientError> {
        self.get("/v2/catalog", &Query::default())
            .await?
            .expect_only(200)
    }

    /// Provisions an instance.
    ///
    /// # Errors
    /// See [`ClientError`]; [`orphan_mitigation`](crate::orphan_mitigation) tells whether the instance may exist all
    /// the same.
    pub async fn provision(
        &self,
        instance_id: &str,
        request: &ProvisionRequest,
        mode: Mode,
    ) -> Result<ProvisionAnswer, ClientError> {
        let answer = self
            .send(
                Method::PUT,
                &instance(instance_id)?,
                &mode.query(),
                Some(request),
            )
            .await?;
        match answer.status {
            201 => answer.read().map(ProvisionAnswer::Created),
            200 => answer.read().map(ProvisionAnswer::Exists),
            202 if mode == Mode::AcceptsIncomplete => {
                answer.read().map(ProvisionAnswer::InProgress)
            }
            _ => Err(answer.unexpected()),
        }
    }

    /// Updates an instance.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn update(
        &self,
        instance_id: &str,
        request: &UpdateRequest,
        mode: Mode,
    ) -> Result<UpdateAnswer, ClientError> {
        let answer = self
            .send(
                Method::PATCH,
                &instance(instance_id)?,
                &mode.query(),
                Some(request),
            )
            .await?;
        match answer.status {
            200 => answer.read().map(UpdateAnswer::Updated),
            202 if mode == Mode::AcceptsIncomplete => answer.read().map(UpdateAnswer::InProgress),
            _ => Err(answer.unexpected()),
        }
    }

    /// Deprovisions an instance.
    ///
    /// # Errors
    /// See [`ClientError`]; one that does not exist is [`ClientError::is_gone`].
    pub async fn deprovision(
        &self,
        instance_id: &str,
        service_id: &str,
        plan_id: &str,
        mode: Mode,
    ) -> Result<DeleteAnswer, ClientError> {
        self.delete(&instance(instance_id)?, service_id, plan_id, mode)
            .await
    }

    /// Makes a binding, or rotates one.
    ///
    /// # Errors
    /// See [`ClientError`]; [`orphan_mitigation`](crate::orphan_mitigation) tells whether the binding may exist all
    /// the same.
    pub async fn bind(
        &self,
        instance_id: &str,
        binding_id: &str,
        request: &BindRequest,
        mode: Mode,
    ) -> Result<BindAnswer, ClientError> {
        let path = binding(instance_id, binding_id)?;
        let answer = self
            .send(Method::PUT, &path, &mode.query(), Some(request))
            .await?;
        match answer.status {
            201 => answer.read().map(BindAnswer::Created),
            200 => answer.read().map(BindAnswer::Exists),
            202 if mode == Mode::AcceptsIncomplete => answer.read().map(BindAnswer::InProgress),
            _ => Err(answer.unexpected()),
        }
    }

    /// Removes a binding.
    ///
    /// # Errors
    /// See [`ClientError`]; one that does not exist is [`ClientError::is_gone`].
    pub async fn unbind(
        &self,
        instance_id: &str,
        binding_id: &str,
        service_id: &str,
        plan_id: &str,
        mode: Mode,
    ) -> Result<DeleteAnswer, ClientError> {
        self.delete(
            &binding(instance_id, binding_id)?,
            service_id,
            plan_id,
            mode,
        )
        .await
    }

    /// Fetches an instance. `hints` may name service and plan.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get_instance(
        &self,
        instance_id: &str,
        hints: &Query,
    ) -> Result<InstanceDetails, ClientError> {
        self.get(&instance(instance_id)?, hints)
            .await?
            .expect_only(200)
    }

    /// Fetches a binding. `hints` may name service and plan.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get_binding(
        &self,
        instance_id: &str,
        binding_id: &str,
        hints: &Query,
    ) -> Result<BindingDetails, ClientError> {
        self.get(&binding(instance_id, binding_id)?, hints)
            .await?
            .expect_only(200)
    }

    /// Asks how far an instance's operation is. `hints` names the operation and may name service and plan.
    ///
    /// # Errors
    /// See [`ClientError`]; after a delete [`ClientError::is_gone`] means success.
    pub async fn poll_instance(
        &self,
        instance_id: &str,
        hints: &Query,
    ) -> Result<Polled<InstanceLastOperation>, ClientError> {
        let answer = self
            .get(&format!("{}/last_operation", instance(instance_id)?), hints)
            .await?;
        Ok(Polled {
            retry_after: answer.retry_after,
            operation: answer.expect_only(200)?,
        })
    }

    /// Asks how far a binding's operation is. `hints` names the operation and may name service and plan.
    ///
    /// # Errors
    /// See [`ClientError`]; after a delete [`ClientError::is_gone`] means success.
    pub async fn poll_binding(
        &self,
        instance_id: &str,
        binding_id: &str,
        hints: &Query,
    ) -> Result<Polled<LastOperation>, ClientError> {
        let answer = self
            .get(
                &format!("{}/last_operation", binding(instance_id, binding_id)?),
                hints,
            )
            .await?;
        Ok(Polled {
            retry_after: answer.retry_after,
            operation: answer.expect_only(200)?,
        })
    }

    async fn get(&self, path: &str, hints: &Query) -> Result<Answer, ClientError> {
        self.send(Method::GET, path, hints, None::<&()>).await
    }

    async fn delete(
        &self,
        path: &str,
        service_id: &str,
        plan_id: &str,
        mode: Mode,
    ) -> Result<DeleteAnswer, ClientError> {
        let query = Query {
            service_id: Some(service_id.to_owned()),
            plan_id: Some(plan_id.to_owned()),
            ..mode.query()
        };
        let answer = self.send(Method::DELETE, path, &query, None::<&()>).await?;
        match answer.status {
            200 => answer
                .read::<Ignored>()
                .map(|Ignored| DeleteAnswer::Deleted {}),
            202 if mode == Mode::AcceptsIncomplete => answer.read().map(DeleteAnswer::InProgress),
            _ => Err(answer.unexpected()),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: &Query,
        body: Option<&impl Serialize>,
    ) -> Result<Answer, ClientError> {
        call::send(self, method, path, query, body).await
    }
}

/// An object of which nothing is read.
struct Ignored;

impl FromObject for Ignored {
    fn from_fields(_: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self)
    }
}

fn instance(id: &str) -> Result<String, ClientError> {
    Ok(format!("/v2/service_instances/{}", segment(id)?))
}

fn binding(instance_id: &str, binding_id: &str) -> Result<String, ClientError> {
    Ok(format!(
        "{}/service_bindings/{}",
        instance(instance_id)?,
        segment(binding_id)?
    ))
}

// `.` and `..` mean "here" and "above" in a URL, percent-encoded too: a DELETE would hit something else.
fn segment(id: &str) -> Result<String, ClientError> {
    if matches!(id, "" | "." | "..") {
        Err(ClientError::Id(id.to_owned()))
    } else {
        Ok(encode_segment(id))
    }
}
