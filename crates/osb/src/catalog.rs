//! The catalog, `GET /v2/catalog`. What is absent or has its default value is not written.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::body::BadRequest;
use crate::fields::{Fields, FromObject};
use crate::request::MaintenanceInfo;

pub use check::CatalogProblem;

mod check;

/// All service offerings of a broker.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Catalog {
    /// May be empty, though Cloud Foundry refuses such a catalog.
    pub services: Vec<ServiceOffering>,
}

impl FromObject for Catalog {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        if fields.value("services").is_none() {
            return Err(fields.bad("services", "is missing: an array is required"));
        }
        Ok(Self {
            services: fields.list("services")?,
        })
    }
}

/// What a platform must grant to the bindings of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Requires {
    /// Logs go to the binding's `syslog_drain_url`.
    SyslogDrain,
    /// Requests go through the binding's `route_service_url`.
    RouteForwarding,
    /// The binding has `volume_mounts`.
    VolumeMount,
}

impl Requires {
    /// From the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "syslog_drain" => Some(Self::SyslogDrain),
            "route_forwarding" => Some(Self::RouteForwarding),
            "volume_mount" => Some(Self::VolumeMount),
            _ => None,
        }
    }
}

/// A kind of service.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ServiceOffering {
    /// Unique in the catalog; for command lines letters, digits, `.` and `-` are recommended.
    pub name: String,
    /// Globally unique; never changes.
    pub id: String,
    /// For the user.
    pub description: String,
    /// Kinds that platforms look for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What platforms must grant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Requires>,
    /// Whether its instances can be bound, where the plan does not say otherwise.
    pub bindable: bool,
    /// Whether instances can be fetched.
    #[serde(skip_serializing_if = "is_false")]
    pub instances_retrievable: bool,
    /// Whether bindings can be fetched; asynchronous bindings need it.
    #[serde(skip_serializing_if = "is_false")]
    pub bindings_retrievable: bool,
    /// Whether an update with a changed context only is welcome.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_context_updates: bool,
    /// Whether instances can change their plan, where the plan does not say otherwise. (Spelled so on the wire.)
    #[serde(skip_serializing_if = "is_false")]
    pub plan_updateable: bool,
    /// Conventions: `displayName`, `imageUrl`, `longDescription`, `providerDisplayName`, `documentationUrl`,
    /// `supportUrl`, `shareable` (profile.md).
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The OAuth client of the service's dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dashboard_client: Option<DashboardClient>,
    /// At least one.
    pub plans: Vec<Plan>,
}

impl ServiceOffering {
    /// A plan by its id.
    pub fn plan(&self, id: &str) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.id == id)
    }

    /// Whether instances of this plan can be bound.
    pub fn is_bindable(&self, plan: &Plan) -> bool {
        plan.bindable.unwrap_or(self.bindable)
    }

    /// Whether instances of this plan can change to another.
    pub fn is_plan_updateable(&self, plan: &Plan) -> bool {
        plan.plan_updateable.unwrap_or(self.plan_updateable)
    }
}

impl FromObject for ServiceOffering {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        let requires = fields
            .texts("requires")?
            .into_iter()
            .enumerate()
            .map(|(index, name)| {
                Requires::from_name(&name).ok_or_else(|| {
                    let pointer = format!("{}/{index}", fields.pointer_to("requires"));
                    BadRequest::new(
                        pointer,
                        "must be \"syslog_drain\", \"route_forwarding\" or \"volume_mount\"",
                    )
                })
            });
        Ok(Self {
            name: fields.required_text("name")?,
            id: fields.required_text("id")?,
            description: fields.required_text("description")?,
            tags: fields.texts("tags")?,
            requires: requires.collect::<Result<_, _>>()?,
            bindable: fields
                .flag("bindable")?
                .ok_or_else(|| fields.bad("bindable", "is missing: a boolean is required"))?,
            instances_retrievable: fields.flag("instances_retrievable")?.unwrap_or(false),
            bindings_retrievable: fields.flag("bindings_retrievable")?.unwrap_or(false),
            allow_context_updates: fields.flag("allow_context_updates")?.unwrap_or(false),
            plan_updateable: fields.flag("plan_updateable")?.unwrap_or(false),
            metadata: fields.map("metadata")?.unwrap_or_default(),
            dashboard_client: fields.read("dashboard_client")?,
            plans: fields.list("plans")?,
        })
    }
}

/// The OAuth client of a service's dashboard. Its `Debug` hides the secret.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct DashboardClient {
    /// Unique in the catalog.
    pub id: String,
    /// Known to the dashboard and the platform.
    pub secret: String,
    /// Cloud Foundry requires it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

impl fmt::Debug for DashboardClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardClient")
            .field("id", &self.id)
            .field("redirect_uri", &self.redirect_uri)
            .finish_non_exhaustive()
    }
}

impl FromObject for DashboardClient {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            id: fields.required_text("id")?,
            secret: fields.required_text("secret")?,
            redirect_uri: fields.text("redirect_uri")?,
        })
    }
}

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
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_true(flag: &bool) -> bool {
    *flag
}
