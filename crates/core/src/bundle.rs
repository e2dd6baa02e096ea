//! A bundle: one service offering, its plans, and the actions behind it.
//!
//! [`Bundle::parse`] turns the bytes of `bundle.yml` into a checked [`Bundle`], or into as many
//! errors as one reading can find, each with line, column and field. What the Open Service
//! Broker API demands of a catalog is an error; what it allows but a known platform refuses is a
//! [`Warning`]. Nothing here touches a file: what lies in the folder comes in as a function.
//!
//! # Ids
//!
//! An offering or a plan without an `id` gets one from its name, so that it never changes:
//!
//! - offering: UUIDv5 of `service/NAME` in the configured namespace;
//! - plan: UUIDv5 of `plan/NAME` in the namespace that the rule above gives the offering's
//!   *name*, also where the offering has an `id` of its own. Plans of equal names in two
//!   offerings so have different ids, whatever characters the names hold.
//!
//! # Stored form
//!
//! Serialised with serde, a bundle is the snapshot that an instance pins. It carries `bundle: 1`;
//! readers ignore fields that they do not know and refuse other versions. The snapshot holds
//! [`DashboardClient::secret`], so it is to be sealed where it is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::action::Action;
use crate::ids::{PlanId, ServiceId};

mod actions;
mod catalog;
mod digest;
mod field;
mod finding;
mod names;
mod schema;
mod service;
mod settings;
mod units;
mod yaml;

pub use catalog::{CatalogError, Claim, check_catalog};
pub use digest::{DigestError, Entry, digest};
pub use finding::{BundleError, Finding, MAX_FINDINGS, Warning};
pub use yaml::MAX_BUNDLE_BYTES;

use field::Field;
use finding::Findings;

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
    /// Given, or derived from the name (module documentation).
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
    /// Whether a platform may send an update of the context alone; false unless set.
    #[serde(default)]
    pub allow_context_updates: bool,
    /// For marketplaces, passed on as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// An OAuth client that the platform is to make for the dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_client: Option<DashboardClient>,
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
    /// Given, or derived from the names of offering and plan (module documentation).
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
/// 64 KiB as JSON, without references that lead out of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Schemas {
    /// `service_instance.create.parameters` of the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<Value>,
    /// `service_instance.update.parameters` of the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Value>,
    /// `service_binding.create.parameters` of the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<Value>,
}

impl Schemas {
    /// The schema of the parameters that a request for `action` may carry.
    pub fn of(&self, action: Action) -> Option<&Value> {
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
    /// Absolute, or relative to the folder that `bundle.yml` was read from and then leading out
    /// of it: what lies in the folder is copied with the bundle.
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

/// What is known of a regular file in the bundle's folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileFact {
    /// Whether it may be executed.
    pub executable: bool,
}

impl Bundle {
    /// Reads and checks the bytes of a `bundle.yml`.
    ///
    /// `files` answers for a path in the bundle's folder: relative, `/`-separated, without `.`
    /// and `..` parts (`bin/provision`). Warnings come in the order of the file.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the file: at most [`MAX_FINDINGS`], then a last
    /// one that counts the others. Bytes that are no YAML, or exceed its bounds, give one error.
    pub fn parse(
        yaml: &[u8],
        namespace: Uuid,
        files: &dyn Fn(&str) -> Option<FileFact>,
    ) -> Result<(Self, Vec<Warning>), Vec<BundleError>> {
        let findings = Findings::default();
        let bundle = yaml::read(yaml, &findings)
            .and_then(|root| read_root(&Field::root(&root, &findings), namespace, files));
        findings.conclude(bundle)
    }

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

fn read_root(
    root: &Field<'_>,
    namespace: Uuid,
    files: &dyn Fn(&str) -> Option<FileFact>,
) -> Option<Bundle> {
    let top = root.fields(&[
        "bundle", "service", "plans", "executor", "actions", "env", "secrets", "limits",
    ])?;
    // The version first: of another version nothing else would make sense.
    let version = top
        .need("bundle")
        .and_then(|field| settings::version(&field))?;
    let actions = top
        .need("actions")
        .and_then(|field| actions::read(&field, files));
    let service = top
        .need("service")
        .and_then(|field| service::service(&field, namespace));
    let service_name = top
        .get("service")
        .and_then(|field| field.peek("name")?.as_text());
    let plans = top
        .need("plans")
        .and_then(|field| service::plans(&field, namespace, service_name.unwrap_or_default()));
    let executor = top
        .get("executor")
        .map_or(Some(ExecutorKind::Process), |f| settings::executor(&f));
    let env = top
        .get("env")
        .map_or_else(|| Some(BTreeMap::new()), |f| settings::env(&f));
    let secrets = top
        .get("secrets")
        .map_or_else(|| Some(BTreeMap::new()), |f| settings::secrets(&f));
    let limits = top
        .get("limits")
        .map_or_else(|| Some(Limits::default()), |f| settings::limits(&f));
    if let Some(actions) = &actions {
        service::check_against_actions(&top, actions);
    }
    Some(Bundle {
        version,
        service: service?,
        plans: plans?,
        executor: executor?,
        actions: actions?,
        env: env?,
        secrets: secrets?,
        limits: limits?,
    })
}
