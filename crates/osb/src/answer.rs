//! What brokers answer about instances, and to every DELETE. Each kind knows its status.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::body::BadRequest;
use crate::fields::{Fields, FromObject};
use crate::operation::Operation;
use crate::request::MaintenanceInfo;
use crate::secret::SecretObject;

/// What an instance is labelled with.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InstanceMetadata {
    /// Key and value, to find instances by.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub labels: Map<String, Value>,
    /// Key and value, for information.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub attributes: Map<String, Value>,
}

impl InstanceMetadata {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.attributes.is_empty()
    }
}

impl FromObject for InstanceMetadata {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            labels: fields.map("labels")?.unwrap_or_default(),
            attributes: fields.map("attributes")?.unwrap_or_default(),
        })
    }
}

/// What is told about an instance when it is provisioned or updated.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InstanceInfo {
    /// Where its dashboard is. One that exists must be in the first answer, also in a 202.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// Labels and attributes.
    #[serde(skip_serializing_if = "InstanceMetadata::is_empty")]
    pub metadata: InstanceMetadata,
}

impl FromObject for InstanceInfo {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            dashboard_url: fields.text("dashboard_url")?,
            metadata: fields.read("metadata")?.unwrap_or_default(),
        })
    }
}

/// An instance on which an operation is in progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InstanceInProgress {
    /// What is known about it by now.
    #[serde(flatten)]
    pub info: InstanceInfo,
    /// What to poll with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

impl FromObject for InstanceInProgress {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            info: InstanceInfo::from_fields(fields)?,
            operation: Operation::field_of(fields)?,
        })
    }
}

/// The answer to a provision.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ProvisionAnswer {
    /// 201: made by this request.
    Created(InstanceInfo),
    /// 200: was there, fully provisioned, with the same attributes.
    Exists(InstanceInfo),
    /// 202: being provisioned; only when the request accepts it.
    InProgress(InstanceInProgress),
}

impl ProvisionAnswer {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Created(_) => 201,
            Self::Exists(_) => 200,
            Self::InProgress(_) => 202,
        }
    }
}

/// The answer to an update.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum UpdateAnswer {
    /// 200: applied, or nothing to do.
    Updated(InstanceInfo),
    /// 202: being updated; only when the request accepts it.
    InProgress(InstanceInProgress),
}

impl UpdateAnswer {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Updated(_) => 200,
            Self::InProgress(_) => 202,
        }
    }
}

/// An operation in progress about which nothing else may be told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct InProgress {
    /// What to poll with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

impl FromObject for InProgress {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            operation: Operation::field_of(fields)?,
        })
    }
}

/// The answer to a deprovision or an unbind. (What does not exist is [`ErrorBody::gone`](crate::ErrorBody::gone).)
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum DeleteAnswer {
    /// 200: deleted. The body is `{}`.
    Deleted {},
    /// 202: being deleted; only when the request accepts it.
    InProgress(InProgress),
}

impl DeleteAnswer {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Deleted {} => 200,
            Self::InProgress(_) => 202,
        }
    }
}

/// `GET /v2/service_instances/:instance_id`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InstanceDetails {
    /// Its service offering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_id: Option<String>,
    /// Its plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// Dashboard, labels and attributes.
    #[serde(flatten)]
    pub info: InstanceInfo,
    /// Its parameters, or those that the broker shows.
    #[serde(skip_serializing_if = "SecretObject::is_empty")]
    pub parameters: SecretObject,
    /// The maintenance version that it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
}

impl FromObject for InstanceDetails {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            service_id: fields.text("service_id")?,
            plan_id: fields.text("plan_id")?,
            info: InstanceInfo::from_fields(fields)?,
            parameters: fields.map("parameters")?.unwrap_or_default().into(),
            maintenance_info: MaintenanceInfo::field_of(fields)?,
        })
    }
}
