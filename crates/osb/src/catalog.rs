//! The catalog, `GET /v2/catalog`. What is absent or has its default value is not written.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::body::BadRequest;
use crate::fields::{Fields, FromObject};

pub use check::CatalogProblem;
pub use plan::{Plan, Schemas};

mod check;
mod plan;

/// All service offerings of a broker.
///
/// ```
/// use evenkeel_osb::{Catalog, FromObject, Plan, ServiceOffering};
/// use serde_json::{json, to_value};
///
/// let plan = Plan { id: "p-1".into(), name: "small".into(), description: "A small one".into(), ..Plan::default() };
/// let mut offering = ServiceOffering {
///     id: "s-1".into(),
///     name: "database".into(),
///     description: "A database".into(),
///     bindable: true,
///     plans: vec![plan],
///     ..ServiceOffering::default()
/// };
/// let catalog = Catalog { services: vec![offering.clone()] };
/// assert_eq!(catalog.problems(), []);
/// assert_eq!(
///     to_value(&catalog)?["services"][0]["plans"],
///     json!([{ "id": "p-1", "name": "small", "description": "A small one" }])
/// );
///
/// // What a platform would refuse is known beforehand.
/// offering.plans.clear();
/// let refused = Catalog { services: vec![offering] };
/// assert_eq!(refused.problems()[0].pointer, "/services/0/plans");
///
/// // And a platform reads what brokers send.
/// let read = Catalog::from_body(br#"{"services": [], "more": 1}"#).unwrap();
/// assert!(read.services.is_empty());
/// # Ok::<(), serde_json::Error>(())
/// ```
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

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}
