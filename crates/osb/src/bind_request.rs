//! The body of `PUT …/service_bindings/:binding_id`, which is a bind or, with a predecessor, a rotation.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::body::BadRequest;
use crate::fields::{Fields, FromObject};
use crate::request::Context;
use crate::secret::SecretObject;

/// What a binding is for. Any object; empty when none was sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct BindResource(Map<String, Value>);

impl BindResource {
    /// The application to bind.
    pub fn app_guid(&self) -> Option<&str> {
        self.text("app_guid")
    }

    /// The address of the application behind a route service.
    pub fn route(&self) -> Option<&str> {
        self.text("route")
    }

    /// Cloud Foundry: the application's space.
    pub fn space_guid(&self) -> Option<&str> {
        self.text("space_guid")
    }

    /// Cloud Foundry: annotations of the application.
    pub fn app_annotations(&self) -> Option<&Map<String, Value>> {
        self.0.get("app_annotations")?.as_object()
    }

    /// Cloud Foundry: the client of the credential store, for service keys.
    pub fn credential_client_id(&self) -> Option<&str> {
        self.text("credential_client_id")
    }

    /// All properties, those that the specification does not know included.
    pub fn as_object(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Whether none was sent.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }
}

impl From<Map<String, Value>> for BindResource {
    fn from(object: Map<String, Value>) -> Self {
        Self(object)
    }
}

impl FromObject for BindResource {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        for name in ["app_guid", "route", "space_guid", "credential_client_id"] {
            fields.text(name)?;
        }
        fields.map("app_annotations")?;
        let is_present = |value: &Value| !value.is_null() && value.as_str() != Some("");
        let present = fields
            .object()
            .iter()
            .filter(|(_, value)| is_present(value));
        Ok(Self(
            present
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        ))
    }
}

/// What a bind and a rotation have in common.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BindDetails {
    /// Where the binding lives.
    #[serde(skip_serializing_if = "Context::is_empty")]
    pub context: Context,
    /// The application to bind (deprecated by the specification; read it by [`app_guid`](Self::app_guid)).
    #[serde(rename = "app_guid", skip_serializing_if = "Option::is_none")]
    pub legacy_app_guid: Option<String>,
    /// What the binding is for.
    #[serde(skip_serializing_if = "BindResource::is_empty")]
    pub bind_resource: BindResource,
    /// What the user asked for; empty when nothing.
    #[serde(skip_serializing_if = "SecretObject::is_empty")]
    pub parameters: SecretObject,
}

impl BindDetails {
    /// The application to bind, from `bind_resource` or from the deprecated field. A service that needs an
    /// application answers [`ErrorBody::requires_app`](crate::ErrorBody::requires_app) when there is none.
    pub fn app_guid(&self) -> Option<&str> {
        self.bind_resource
            .app_guid()
            .or(self.legacy_app_guid.as_deref())
    }
}

impl FromObject for BindDetails {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            context: fields.map("context")?.unwrap_or_default().into(),
            legacy_app_guid: fields.text("app_guid")?,
            bind_resource: fields.read("bind_resource")?.unwrap_or_default(),
            parameters: fields.map("parameters")?.unwrap_or_default().into(),
        })
    }
}

/// A binding of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewBinding {
    /// Id of the instance's service offering.
    pub service_id: String,
    /// Id of the instance's plan.
    pub plan_id: String,
    /// The rest.
    #[serde(flatten)]
    pub details: BindDetails,
}

/// A binding that takes over from another one of the same instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rotation {
    /// The binding to take over from; must not have expired.
    pub predecessor_binding_id: String,
    /// The predecessor's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_id: Option<String>,
    /// The predecessor's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// The rest; what is absent is the predecessor's.
    #[serde(flatten)]
    pub details: BindDetails,
}

/// `PUT /v2/service_instances/:instance_id/service_bindings/:binding_id`.
///
/// ```
/// use evenkeel_osb::{BindRequest, FromObject};
///
/// let request = BindRequest::from_body(
///     br#"{"service_id": "s", "plan_id": "p", "bind_resource": {"app_guid": "a", "route": ""}}"#,
/// )?;
/// assert_eq!(request.details().app_guid(), Some("a"));
/// assert_eq!(request.details().bind_resource.route(), None);
///
/// // A rotation needs nothing but its predecessor.
/// let BindRequest::Rotate(rotation) = BindRequest::from_body(br#"{"predecessor_binding_id": "b-1"}"#)? else {
///     unreachable!("it has a predecessor")
/// };
/// assert_eq!(rotation.predecessor_binding_id, "b-1");
/// # Ok::<(), evenkeel_osb::BadRequest>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum BindRequest {
    /// A binding of its own: `service_id` and `plan_id` are required.
    New(NewBinding),
    /// `predecessor_binding_id` was given: everything else may be absent.
    Rotate(Rotation),
}

impl BindRequest {
    /// What both kinds have.
    pub fn details(&self) -> &BindDetails {
        match self {
            Self::New(new) => &new.details,
            Self::Rotate(rotation) => &rotation.details,
        }
    }
}

impl FromObject for BindRequest {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(match fields.text("predecessor_binding_id")? {
            Some(predecessor_binding_id) => Self::Rotate(Rotation {
                predecessor_binding_id,
                service_id: fields.text("service_id")?,
                plan_id: fields.text("plan_id")?,
                details: BindDetails::from_fields(fields)?,
            }),
            None => Self::New(NewBinding {
                service_id: fields.required_text("service_id")?,
                plan_id: fields.required_text("plan_id")?,
                details: BindDetails::from_fields(fields)?,
            }),
        })
    }
}
