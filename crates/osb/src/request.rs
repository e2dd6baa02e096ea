//! The bodies that platforms send: provision, update, bind and rotate.
//!
//! Absent and empty are one thing here: `parameters` that are missing, `null` or `{}` read alike (Cloud Foundry sends
//! `"parameters": {}` with every update and means "no change"), and what is empty is not written.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::body::BadRequest;
use crate::fields::{Fields, FromObject};
use crate::secret::SecretObject;

/// The version of a plan's maintenance state that a platform asks for or a broker offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MaintenanceInfo {
    /// Semantic version 2.0. Not checked when read: a platform that sends another text is to get
    /// `MaintenanceInfoConflict` and not 400.
    pub version: String,
    /// What the maintenance does. Never compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl MaintenanceInfo {
    /// Reads the `maintenance_info` field; one without a version says nothing and is none.
    pub(crate) fn field_of(fields: &Fields<'_>) -> Result<Option<Self>, BadRequest> {
        let Some(info) = fields.nested("maintenance_info")? else {
            return Ok(None);
        };
        let description = info.text("description")?;
        Ok(info.text("version")?.map(|version| Self {
            version,
            description,
        }))
    }
}

/// What the platform tells about where an instance or binding lives.
///
/// Any object; `platform` names which properties it has (profile.md). Empty when none was sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Context(Map<String, Value>);

impl Context {
    /// The platform's name, as `cloudfoundry` or `kubernetes`.
    pub fn platform(&self) -> Option<&str> {
        self.text("platform")
    }

    /// A property that is a non-empty string.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    /// All properties.
    pub fn as_object(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Whether none was sent.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Map<String, Value>> for Context {
    fn from(object: Map<String, Value>) -> Self {
        Self(object)
    }
}

/// `PUT /v2/service_instances/:instance_id`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProvisionRequest {
    /// Id of a service offering of the catalog.
    pub service_id: String,
    /// Id of a plan of that offering.
    pub plan_id: String,
    /// Required by the specification even when `context` has it.
    pub organization_guid: String,
    /// Required by the specification even when `context` has it.
    pub space_guid: String,
    /// Where the instance lives.
    #[serde(skip_serializing_if = "Context::is_empty")]
    pub context: Context,
    /// What the user asked for; empty when nothing.
    #[serde(skip_serializing_if = "SecretObject::is_empty")]
    pub parameters: SecretObject,
    /// The maintenance version that the platform believes the plan to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
}

impl FromObject for ProvisionRequest {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            service_id: fields.required_text("service_id")?,
            plan_id: fields.required_text("plan_id")?,
            organization_guid: fields.required_text("organization_guid")?,
            space_guid: fields.required_text("space_guid")?,
            context: fields.map("context")?.unwrap_or_default().into(),
            parameters: fields.map("parameters")?.unwrap_or_default().into(),
            maintenance_info: MaintenanceInfo::field_of(fields)?,
        })
    }
}

/// What the platform believes an instance to be before an update. Informative only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PreviousValues {
    /// Service offering (deprecated by the specification).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_id: Option<String>,
    /// Plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// Organization (deprecated by the specification).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<String>,
    /// Space (deprecated by the specification).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space_id: Option<String>,
    /// Maintenance version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
}

impl PreviousValues {
    /// Whether nothing was told.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl FromObject for PreviousValues {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            service_id: fields.text("service_id")?,
            plan_id: fields.text("plan_id")?,
            organization_id: fields.text("organization_id")?,
            space_id: fields.text("space_id")?,
            maintenance_info: MaintenanceInfo::field_of(fields)?,
        })
    }
}

/// `PATCH /v2/service_instances/:instance_id`.
///
/// ```
/// use evenkeel_osb::{FromObject, UpdateRequest};
///
/// // As Cloud Foundry sends it for a rename: no change of plan or parameters.
/// let request = UpdateRequest::from_body(
///     br#"{"service_id": "s", "plan_id": "p", "parameters": {}, "previous_values": {"maintenance_info": null},
///          "context": {"platform": "cloudfoundry", "instance_name": "new"}}"#,
/// )?;
/// assert!(request.parameters.is_empty() && request.previous_values.is_empty());
/// assert_eq!(request.context.text("instance_name"), Some("new"));
/// # Ok::<(), evenkeel_osb::BadRequest>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct UpdateRequest {
    /// Id of the instance's service offering.
    pub service_id: String,
    /// The plan to change to; none keeps the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// Where the instance lives now.
    #[serde(skip_serializing_if = "Context::is_empty")]
    pub context: Context,
    /// Parameters to change; empty keeps all.
    #[serde(skip_serializing_if = "SecretObject::is_empty")]
    pub parameters: SecretObject,
    /// What the platform believes to be the state before.
    #[serde(skip_serializing_if = "PreviousValues::is_empty")]
    pub previous_values: PreviousValues,
    /// The maintenance version to go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
}

impl FromObject for UpdateRequest {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            service_id: fields.required_text("service_id")?,
            plan_id: fields.text("plan_id")?,
            context: fields.map("context")?.unwrap_or_default().into(),
            parameters: fields.map("parameters")?.unwrap_or_default().into(),
            previous_values: fields.read("previous_values")?.unwrap_or_default(),
            maintenance_info: MaintenanceInfo::field_of(fields)?,
        })
    }
}
