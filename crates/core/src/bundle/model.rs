//! What a bundle says, once it is checked; also the stored form.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::parameters::ParameterSchema;
use crate::action::Action;
use crate::ids::{InstanceId, PlanId, ServiceId};

/// A checked bundle.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bundle {
    /// The version of the format, on the wire `bundle: 1`.
    #[serde(rename = "bundle")]
    pub version: FormatVersion,
    /// The service offering.
    pub service: Service,
    /// Its plans: at least one, with unique names and ids, in the order of the file.
    pub plans: Vec<Plan>,
    /// What runs the actions.
    pub executor: ExecutorKind,
    /// The actions; `provision` and `deprovision` are always there.
    pub actions: BTreeMap<Action, ActionSpec>,
    /// Variables for every action, beside those of the action contract. `PATH` and `LANG` may be
    /// overridden; `HOME`, `TMPDIR` and `EVENKEEL_*` belong to the broker.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Secrets for every action: the file name in `EVENKEEL_SECRETS`, and where it comes from.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretSource>,
    /// Bounds for every run of an action.
    #[serde(default)]
    pub limits: Limits,
}

impl Bundle {
    /// The plan with this id.
    pub fn plan(&self, id: &PlanId) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.id == *id)
    }

    /// Whether instances of `plan` can be bound: the plan's word, else the offering's.
    pub fn is_bindable(&self, plan: &Plan) -> bool {
        plan.bindable.unwrap_or(self.service.bindable)
    }

    /// Whether instances of `plan` may change to another: the plan's word, else the offering's.
    pub fn is_plan_updateable(&self, plan: &Plan) -> bool {
        plan.plan_updateable.unwrap_or(self.service.plan_updateable)
    }
}

/// Version 1 of the bundle format, the only one: serialised as the number 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct FormatVersion;

impl From<FormatVersion> for u32 {
    fn from(_: FormatVersion) -> Self {
        1
    }
}

impl TryFrom<u32> for FormatVersion {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        match number {
            1 => Ok(Self),
            other => Err(format!(
                "bundle format {other} is unknown, this version reads 1"
            )),
        }
    }
}

/// A service offering (Open Service Broker API v2.17, "Service Offering Object").
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Service {
    /// Given, or derived from the name (see [`bundle`](super)).
    pub id: ServiceId,
    /// Unique in the catalog, case-sensitive; 1 to 255 characters.
    pub name: String,
    /// Never empty.
    pub description: String,
    /// Words for searching.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Permissions that a platform must grant.
    #[serde(default)]
    pub requires: Vec<Requirement>,
    /// Whether instances can be bound unless the plan says otherwise; true unless set.
    pub bindable: bool,
    /// Whether an instance may change its plan unless the plan says otherwise; false unless set,
    /// and only with an `update` action.
    pub plan_updateable: bool,
    /// Whether platforms may fetch instances; true unless set.
    #[serde(default = "yes")]
    pub instances_retrievable: bool,
    /// Whether platforms may fetch bindings, as they must after an asynchronous bind; true unless
    /// set.
    #[serde(default = "yes")]
    pub bindings_retrievable: bool,
    /// Whether a platform may send an update of the context alone; false unless set.
    #[serde(default)]
    pub allow_context_updates: bool,
    /// For marketplaces, passed on as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// An OAuth client that the platform is to make for the dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_client: Option<DashboardClient>,
    /// Where the dashboard of an instance is, with `{instance_id}` for the instance's id; for
    /// offerings whose dashboard is known before an instance is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
}

/// Stands for the instance's id in [`Service::dashboard_url`].
pub(super) const INSTANCE_ID: &str = "{instance_id}";

impl Service {
    /// Where the dashboard of this instance is, if the bundle says so. All of the id but RFC
    /// 3986's unreserved characters is percent-encoded, so that it stays one part of the URL.
    pub fn dashboard_of(&self, instance: &InstanceId) -> Option<String> {
        let template = self.dashboard_url.as_ref()?;
        let mut id = String::new();
        for byte in instance.as_str().bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                id.push(byte.into());
            } else {
                write!(id, "%{byte:02X}").expect("a string takes any text");
            }
        }
        Some(template.replace(INSTANCE_ID, &id))
    }
}

/// A permission that an offering needs from the platform.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    /// Bindings may carry a `syslog_drain_url`.
    SyslogDrain,
    /// Bindings may carry a `route_service_url`.
    RouteForwarding,
    /// Bindings may carry `volume_mounts`.
    VolumeMount,
}

/// The OAuth client of a dashboard ("Dashboard Client Object").
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DashboardClient {
    /// Unique over the catalog.
    pub id: String,
    /// Told to the platform in the catalog; hidden from `Debug`.
    pub secret: String,
    /// Where the platform may send users back to; Cloud Foundry demands it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

impl fmt::Debug for DashboardClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardClient")
            .field("id", &self.id)
            .field("secret", &"[hidden]")
            .field("redirect_uri", &self.redirect_uri)
            .finish()
    }
}

/// A plan ("Service Plan Object").
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Given, or derived from the names of offering and plan (see [`bundle`](super)).
    pub id: PlanId,
    /// Unique in the offering; 1 to 255 characters.
    pub name: String,
    /// Never empty.
    pub description: String,
    /// Whether the plan costs nothing; true unless set.
    pub free: bool,
    /// Overrides the offering's `bindable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindable: Option<bool>,
    /// Whether a binding can be made from a predecessor; false unless set.
    #[serde(default)]
    pub binding_rotatable: bool,
    /// Overrides the offering's `plan_updateable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_updateable: Option<bool>,
    /// For marketplaces, passed on as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Which version of the plan's instances is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
    /// Seconds after which the platform takes an operation as failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_polling_duration: Option<u32>,
    /// JSON schemas of the parameters.
    #[serde(default)]
    pub schemas: Schemas,
    /// Handed to the actions as `plan.values`; never sent to the platform.
    #[serde(default)]
    pub values: Map<String, Value>,
}

/// The version of a plan's instances ("Maintenance Info Object").
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MaintenanceInfo {
    /// A semantic version 2.0.
    pub version: String,
    /// What the version is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// JSON schemas of the parameters of three actions: each an object with `$schema`, at most
/// 64 KiB as JSON, valid in its draft, without references that lead out of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Schemas {
    /// `service_instance.create.parameters` of the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<ParameterSchema>,
    /// `service_instance.update.parameters` of the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<ParameterSchema>,
    /// `service_binding.create.parameters` of the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<ParameterSchema>,
    /// Whether actions get the schemas' defaults for what a request leaves out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub apply_defaults: bool,
}

impl Schemas {
    /// Compiles them, so that no request has to wait for it. Takes time in proportion to their
    /// size; what cannot be compiled is told when it is used.
    pub fn compile(&self) {
        let all = [&self.provision, &self.update, &self.bind];
        for schema in all.into_iter().flatten() {
            schema.compile();
        }
    }

    /// The schema of the parameters that a request for `action` may carry.
    pub fn of(&self, action: Action) -> Option<&ParameterSchema> {
        match action {
            Action::Provision => self.provision.as_ref(),
            Action::Update => self.update.as_ref(),
            Action::Bind => self.bind.as_ref(),
            Action::Deprovision | Action::Unbind => None,
        }
    }
}

/// What runs the actions of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutorKind {
    /// A contained process tree on the broker's host.
    #[default]
    Process,
}

/// How one action is run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActionSpec {
    /// Program and arguments, never empty. A program with a slash is a path in the bundle's
    /// folder, relative to it; one without is looked up in `PATH`.
    pub command: Vec<String>,
    /// How long one attempt may take; none: the operator's `jobs.timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Whether the platform must, may or must not let the action go on after the answer.
    #[serde(rename = "async")]
    pub async_mode: AsyncMode,
    /// How often exit code 75 (try again later) starts another attempt.
    pub retries: u32,
}

/// Whether an action answers before it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AsyncMode {
    /// Requests without `accepts_incomplete=true` are refused.
    Required,
    /// As the platform asks.
    #[default]
    Optional,
    /// Always answered when done.
    Unsupported,
}

/// Where a secret comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SecretSource {
    /// Absolute, or relative to the operator's folder of secrets, without `..`. Never a file of
    /// the bundle: its folder is copied as a whole.
    pub file: String,
}

/// Bounds for each run of an action; none: the operator's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory of the whole process tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processor time of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Duration>,
    /// Open files of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Processes of the whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes in the work folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Bytes of standard output and error that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
}

fn yes() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}
