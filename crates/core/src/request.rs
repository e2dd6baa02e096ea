//! What a job was asked for, wholly resolved, and what its run gave back.
//!
//! A [`JobBody`] holds all that an attempt needs, so that a job can run years later under
//! another catalog. Bodies are sealed by the store; their codec version stands in the job's
//! header, so that a broker which does not know a version leaves the job alone.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::action::Action;
use crate::ids::{BindingUid, JobId, PlanId, ServiceId};

/// The version of [`JobBody`]'s encoding that this build writes, and the newest that it reads.
pub const CODEC_VERSION: u32 = 1;

/// A JSON object.
pub type Object = Map<String, Value>;

/// The whole resolved input of a job.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct JobBody {
    /// What is asked.
    pub action: Action,
    /// The service offering.
    pub service: Named<ServiceId>,
    /// The plan that the action works towards.
    pub plan: PlanInput,
    /// The instance.
    pub instance: InstanceInput,
    /// The binding, for bind and unbind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingInput>,
    /// For update: what was in force before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousInput>,
    /// `X-Broker-API-Originating-Identity`, decoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Value>,
}

/// An id and the name that people use for it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Named<T> {
    /// As in the catalog.
    pub id: T,
    /// As in the catalog.
    pub name: String,
}

/// The plan as the action sees it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanInput {
    /// As in the catalog.
    pub id: PlanId,
    /// As in the catalog.
    pub name: String,
    /// `values` of the bundle's plan.
    #[serde(default)]
    pub values: Object,
    /// `maintenance_info.version` that becomes the instance's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_version: Option<String>,
}

/// The instance as the action sees it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceInput {
    /// `instance_id` of the API.
    pub id: String,
    /// Parameters that the action works towards (for update: merged).
    #[serde(default)]
    pub parameters: Object,
    /// `context` of the API, as the platform last sent it.
    #[serde(default)]
    pub context: Object,
    /// `organization_guid` and `space_guid` of the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization_guid: Option<String>,
    /// See `organization_guid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_guid: Option<String>,
}

/// The binding as the action sees it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct BindingInput {
    /// `binding_id` of the API.
    pub id: String,
    /// Parameters of the request.
    #[serde(default)]
    pub parameters: Object,
    /// `bind_resource` of the request.
    #[serde(default)]
    pub bind_resource: Object,
    /// `context` of the request.
    #[serde(default)]
    pub context: Object,
    /// `predecessor_binding_id` of the request: the binding that this one takes over from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<PredecessorInput>,
}

/// The binding that another one takes over from: one life of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PredecessorInput {
    /// `binding_id` of the API.
    pub id: String,
    /// The life that was there when the request was accepted.
    pub uid: BindingUid,
}

/// `data` of earlier actions, as the store kept it.
#[derive(Clone, PartialEq, Default)]
pub struct KeptData {
    /// Of the instance.
    pub instance: Option<Value>,
    /// Of the binding.
    pub binding: Option<Value>,
    /// Of the binding that this one takes over from.
    pub predecessor: Option<Value>,
}

/// What was in force before an update.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PreviousInput {
    /// The plan.
    pub plan: Named<PlanId>,
    /// The parameters.
    pub parameters: Object,
}

/// Why a body cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Written by a newer release.
    #[error("codec version {0} is newer than this release's {CODEC_VERSION}")]
    Newer(u32),
    /// Not what this codec version writes.
    #[error("the body cannot be decoded: {0}")]
    Undecodable(String),
}

impl JobBody {
    /// The bytes that the store seals.
    ///
    /// # Panics
    /// Never: the type holds nothing that JSON cannot express.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a body of strings and JSON values is always JSON")
    }

    /// Reads what [`Self::encode`] of codec `version` wrote.
    ///
    /// # Errors
    /// A newer version, or bytes that are not a body.
    pub fn decode(version: u32, bytes: &[u8]) -> Result<Self, BodyError> {
        if version > CODEC_VERSION {
            return Err(BodyError::Newer(version));
        }
        // serde_json's message names a position and a kind, never a value.
        serde_json::from_slice(bytes).map_err(|error| {
            BodyError::Undecodable(format!("{:?} at byte {}", error.classify(), error.column()))
        })
    }

    /// The document that the action finds at `EVENKEEL_REQUEST` (DESIGN §6).
    pub fn request_document(&self, job: JobId, attempt: u32, data: &KeptData) -> Value {
        let mut document = json!({
            "action": self.action,
            "job_id": job,
            "attempt": attempt,
            "service": self.service,
            "plan": { "id": self.plan.id, "name": self.plan.name, "values": self.plan.values },
            "instance": {
                "id": self.instance.id,
                "plan": self.plan.name,
                "parameters": self.instance.parameters,
                "context": self.instance.context,
                "data": data.instance,
            },
        });
        if let Some(binding) = &self.binding {
            document["binding"] = json!({
                "id": binding.id,
                "parameters": binding.parameters,
                "bind_resource": binding.bind_resource,
                "context": binding.context,
                "data": data.binding,
            });
            if let Some(predecessor) = &binding.predecessor {
                document["binding"]["predecessor"] =
                    json!({ "id": predecessor.id, "data": data.predecessor });
            }
        }
        if let Some(previous) = &self.previous {
            document["previous"] = json!({
                "plan": previous.plan.name,
                "parameters": previous.parameters,
            });
        }
        if let Some(identity) = &self.identity {
            document["identity"] = identity.clone();
        }
        document
    }
}

/// What an action wrote to `EVENKEEL_OUTPUT`, checked and bounded by the shim.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outputs {
    /// For the application. A secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Object>,
    /// Where the instance can be managed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// Network endpoints of a binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<Value>>,
    /// Volumes of a binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<Value>>,
    /// Where the application's logs go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syslog_drain_url: Option<String>,
    /// Where the application's requests go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_service_url: Option<String>,
    /// `metadata` of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// When a binding ends, as the API writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When a binding is best renewed, as the API writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
    /// Private to the bundle: handed to later actions of the same instance or binding. A secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// What a failed action has to say to the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

// Bodies and outputs hold secrets: what is printed of them is their shape.
impl fmt::Debug for JobBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobBody")
            .field("action", &self.action)
            .field("service", &self.service.name)
            .field("plan", &self.plan.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs")
            .field(
                "credentials",
                &self.credentials.as_ref().map(|_| "[redacted]"),
            )
            .field("data", &self.data.as_ref().map(|_| "[redacted]"))
            .finish_non_exhaustive()
    }
}

macro_rules! shape_only {
    ($($name:ty),+) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("id", &self.id).finish_non_exhaustive()
            }
        }
    )+};
}

impl fmt::Debug for KeptData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptData")
            .field("instance", &self.instance.as_ref().map(|_| "[redacted]"))
            .field("binding", &self.binding.as_ref().map(|_| "[redacted]"))
            .finish_non_exhaustive()
    }
}

shape_only!(PlanInput, InstanceInput, BindingInput);

impl<T: fmt::Debug> fmt::Debug for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self.id, self.name)
    }
}

impl fmt::Debug for PreviousInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreviousInput")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
