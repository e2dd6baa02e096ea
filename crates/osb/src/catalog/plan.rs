//! Plans and the schemas of their parameters.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::is_false;
use crate::body::BadRequest;
use crate::fields::{Fields, FromObject};
use crate::request::MaintenanceInfo;

/// A variant of a service offering.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Globally unique; never changes.
    pub id: String,
    /// Unique in its offering.
    pub name: String,
    /// For the user.
    pub description: String,
    /// Conventions: `bullets`, `costs`, `displayName` (profile.md).
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Whether it costs nothing. The default is true.
    #[serde(skip_serializing_if = "is_true")]
    pub free: bool,
    /// Overrides the offering's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bindable: Option<bool>,
    /// Whether bindings can take over from others.
    #[serde(skip_serializing_if = "is_false")]
    pub binding_rotatable: bool,
    /// Overrides the offering's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_updateable: Option<bool>,
    /// What parameters must look like.
    #[serde(skip_serializing_if = "Schemas::is_empty")]
    pub schemas: Schemas,
    /// For how long a platform is to poll, in seconds.
    #[serde(
        rename = "maximum_polling_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub maximum_polling_duration_secs: Option<u64>,
    /// The maintenance version that new instances get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            id: String::new(),
            name: String::new(),
            description: String::new(),
            metadata: Map::new(),
            free: true,
            bindable: None,
            binding_rotatable: false,
            plan_updateable: None,
            schemas: Schemas::default(),
            maximum_polling_duration_secs: None,
            maintenance_info: None,
        }
    }
}

impl FromObject for Plan {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            id: fields.required_text("id")?,
            name: fields.required_text("name")?,
            description: fields.required_text("description")?,
            metadata: fields.map("metadata")?.unwrap_or_default(),
            free: fields.flag("free")?.unwrap_or(true),
            bindable: fields.flag("bindable")?,
            binding_rotatable: fields.flag("binding_rotatable")?.unwrap_or(false),
            plan_updateable: fields.flag("plan_updateable")?,
            schemas: fields.read("schemas")?.unwrap_or_default(),
            maximum_polling_duration_secs: fields.integer("maximum_polling_duration")?,
            maintenance_info: MaintenanceInfo::field_of(fields)?,
        })
    }
}

/// JSON schemas of a plan's parameters. On the wire each stands some objects deeper.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schemas {
    /// `service_instance.create.parameters`
    pub provision: Option<Map<String, Value>>,
    /// `service_instance.update.parameters`
    pub update: Option<Map<String, Value>>,
    /// `service_binding.create.parameters`
    pub bind: Option<Map<String, Value>>,
}

impl Schemas {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.provision.is_none() && self.update.is_none() && self.bind.is_none()
    }
}

impl Serialize for Schemas {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = |members: [(&str, Option<Value>); 2]| -> Option<Value> {
            let present = members
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)));
            Some(Value::Object(present.collect())).filter(|object| *object != json!({}))
        };
        let parameters = |schema: &Option<Map<_, _>>| {
            schema
                .as_ref()
                .map(|schema| json!({ "parameters": schema }))
        };
        let instance = object([
            ("create", parameters(&self.provision)),
            ("update", parameters(&self.update)),
        ]);
        let binding = object([("create", parameters(&self.bind)), ("", None)]);
        object([("service_instance", instance), ("service_binding", binding)])
            .unwrap_or_else(|| json!({}))
            .serialize(serializer)
    }
}

impl FromObject for Schemas {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        let schema =
            |resource: &str, action: &str| -> Result<Option<Map<String, Value>>, BadRequest> {
                let Some(resource) = fields.nested(resource)? else {
                    return Ok(None);
                };
                let Some(action) = resource.nested(action)? else {
                    return Ok(None);
                };
                action.map("parameters")
            };
        Ok(Self {
            provision: schema("service_instance", "create")?,
            update: schema("service_instance", "update")?,
            bind: schema("service_binding", "create")?,
        })
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_true(flag: &bool) -> bool {
    *flag
}
