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
//! [`DashboardClient::secret`], so it is to be kept where the broker alone can read it.

use uuid::Uuid;

mod actions;
mod catalog;
mod defaults;
mod digest;
mod field;
mod finding;
mod model;
mod names;
mod parameters;
mod plan;
mod schema;
mod service;
mod settings;
mod units;
mod yaml;

pub use catalog::{CatalogError, Claim, check_catalog};
pub use digest::{DigestError, Entry, digest};
pub use finding::{BundleError, Finding, MAX_FINDINGS, Warning};
pub use model::{
    ActionSpec, AsyncMode, Bundle, DashboardClient, ExecutorKind, FormatVersion, Limits,
    MaintenanceInfo, Plan, Requirement, Schemas, SecretSource, Service,
};
pub use parameters::{BadSchema, ParameterSchema, Violation};
pub use yaml::MAX_BUNDLE_BYTES;

use field::Field;
use finding::Findings;
use model::INSTANCE_ID;

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
        .and_then(|field| plan::plans(&field, namespace, service_name.unwrap_or_default()));
    let executor = top.maybe("executor", settings::executor);
    let env = top.maybe("env", settings::env);
    let secrets = top.maybe("secrets", settings::secrets);
    let limits = top.maybe("limits", settings::limits);
    if let Some(actions) = &actions {
        plan::check_against_actions(&top, actions);
    }
    if let (Some(service), Some(plans)) = (&service, &plans) {
        plan::check_ids(&top, service, plans);
    }
    Some(Bundle {
        version,
        service: service?,
        plans: plans?,
        executor: executor?.unwrap_or_default(),
        actions: actions?,
        env: env?.unwrap_or_default(),
        secrets: secrets?.unwrap_or_default(),
        limits: limits?.unwrap_or_default(),
    })
}
