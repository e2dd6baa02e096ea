//! The catalog: what is offered now, and the pinned content of what was offered before.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_core::bundle::{Bundle, Plan};
use evenkeel_core::ids::{BundleDigest, PlanId, ServiceId};
use evenkeel_core::time::Timestamp;

mod content;
mod keeper;
mod load;

pub(crate) use keeper::Keeper;

/// Where copies by digest are, below the data folder.
const COPIES: &str = "bundles";
/// Where relative secret files are, below the data folder.
pub(crate) const SECRETS: &str = "secrets";

/// A bundle whose content was copied by digest, and never changes.
#[derive(Clone, Debug)]
pub struct Pinned {
    /// The name of its content.
    pub digest: BundleDigest,
    /// What it says.
    pub bundle: Arc<Bundle>,
    /// The read-only copy.
    pub folder: PathBuf,
}

impl Pinned {
    /// The plan of this id.
    pub fn plan(&self, id: &PlanId) -> Option<&Plan> {
        self.bundle.plans.iter().find(|plan| plan.id == *id)
    }
}

/// Something that keeps a bundle, or a part of it, from being offered, or that an author ought
/// to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The bundle's folder as configured.
    pub bundle: String,
    /// Whether the bundle is left out for it.
    pub fatal: bool,
    /// File, line, field, what and how to mend it.
    pub message: String,
}

/// One reading of all bundle folders.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// What is offered, by service id.
    pub services: BTreeMap<ServiceId, Pinned>,
    /// What is not, and why; and warnings.
    pub problems: Vec<Problem>,
    /// When the folders were read.
    pub loaded_at: Timestamp,
}

impl Catalog {
    /// The offering of this id.
    pub fn service(&self, id: &ServiceId) -> Option<&Pinned> {
        self.services.get(id)
    }
}
