//! What a platform may ask of the engine, and what it may be told.
//!
//! These are domain types: ids are checked, the wire is behind them. The order in which a
//! request is judged (lookup, maintenance, asynchrony, parameters, concurrency) is the
//! engine's; the order before that (authentication, version, body) is the server's.

use evenkeel_core::ids::{BindingId, InstanceId, JobId, PlanId, Platform, ServiceId};
use evenkeel_core::instance::Status;
use evenkeel_core::job::Job;
use evenkeel_core::request::Object;
use evenkeel_store::error::StoreError;
use serde_json::Value;

/// What every request carries.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The authenticated platform.
    pub platform: Platform,
    /// `X-Broker-API-Originating-Identity`, decoded: `{platform, value}`.
    pub identity: Option<Value>,
    /// `accepts_incomplete=true`.
    pub accepts_incomplete: bool,
}

/// PUT of an instance.
#[derive(Clone, Debug)]
pub struct Provision {
    /// `instance_id`.
    pub instance: InstanceId,
    /// `service_id`.
    pub service: ServiceId,
    /// `plan_id`.
    pub plan: PlanId,
    /// `organization_guid`.
    pub organization_guid: String,
    /// `space_guid`.
    pub space_guid: String,
    /// `parameters`, `{}` if absent.
    pub parameters: Object,
    /// `context`, `{}` if absent.
    pub context: Object,
    /// `maintenance_info.version`.
    pub maintenance_version: Option<String>,
}

/// PATCH of an instance.
#[derive(Clone, Debug)]
pub struct Update {
    /// `instance_id`.
    pub instance: InstanceId,
    /// `service_id`.
    pub service: ServiceId,
    /// `plan_id`, if the plan is to change (or is named again).
    pub plan: Option<PlanId>,
    /// `parameters` to merge; `{}` if absent.
    pub parameters: Object,
    /// `context`, if sent.
    pub context: Option<Object>,
    /// `maintenance_info.version`.
    pub maintenance_version: Option<String>,
}

/// DELETE of an instance. A differing `plan_id` is no reason to refuse it, and neither is a
/// service that the catalog no longer has.
#[derive(Clone, Debug)]
pub struct Deprovision {
    /// `instance_id`.
    pub instance: InstanceId,
    /// `service_id`, asked only about what nobody knows.
    pub service: Option<ServiceId>,
}

/// PUT of a binding.
#[derive(Clone, Debug)]
pub struct Bind {
    /// `instance_id`.
    pub instance: InstanceId,
    /// `binding_id`.
    pub binding: BindingId,
    /// `service_id`; a rotation may leave it out.
    pub service: Option<ServiceId>,
    /// `plan_id`; a rotation may leave it out.
    pub plan: Option<PlanId>,
    /// `predecessor_binding_id`: makes it a rotation, in which what is empty is the predecessor's.
    pub predecessor: Option<BindingId>,
    /// `parameters`, `{}` if absent.
    pub parameters: Object,
    /// `bind_resource` (with `app_guid` of the body folded in), `{}` if absent.
    pub bind_resource: Object,
    /// `context`, `{}` if absent.
    pub context: Object,
}

/// DELETE of a binding.
#[derive(Clone, Debug)]
pub struct Unbind {
    /// `instance_id`.
    pub instance: InstanceId,
    /// `binding_id`.
    pub binding: BindingId,
    /// `service_id`, asked only about what nobody knows.
    pub service: Option<ServiceId>,
    /// What is wrong with the ids that the query has to have, if anything is. Told only where the
    /// binding exists.
    pub missing: Option<String>,
}

/// What became of a request that was not refused.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It was done within this request: 201 for a create, 200 otherwise.
    Done(Box<Job>),
    /// It was done before: 200.
    Already,
    /// It is being worked on: 202, with the job as `operation`.
    InProgress(JobId),
}

/// Why a request was refused. Nothing was changed, except as [`Self::Failed`] and
/// [`Self::TooSlow`] say.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// 400: a field names something that does not exist or does not fit.
    #[error("{message}")]
    BadRequest {
        /// What and where, and what would do instead.
        message: String,
    },
    /// 400: the parameters do not fit the plan's schema.
    #[error("parameters{pointer}: {message}")]
    Parameters {
        /// JSON pointer into `parameters`; empty for the whole.
        pointer: String,
        /// What the schema demands.
        message: String,
    },
    /// 409: the id is taken by a different request.
    #[error("{what} exists already with other attributes")]
    Conflict {
        /// `instance NAME` or `binding NAME`.
        what: String,
    },
    /// 422 AsyncRequired.
    #[error(
        "this plan needs asynchronous operations: the request must have accepts_incomplete=true"
    )]
    AsyncRequired,
    /// 422 MaintenanceInfoConflict.
    #[error("maintenance_info.version {sent:?} is not the catalog's, {}", offered(current.as_deref()))]
    MaintenanceInfoConflict {
        /// What the request says.
        sent: String,
        /// What the catalog says.
        current: Option<String>,
    },
    /// 422 RequiresApp.
    #[error("this service can only be bound to an application: bind_resource.app_guid is missing")]
    RequiresApp,
    /// 422 ConcurrencyError.
    #[error("{action} {job} is under way for it")]
    Busy {
        /// The job.
        job: JobId,
        /// What it does.
        action: evenkeel_core::action::Action,
    },
    /// 404 (PATCH, bind) or 410 (DELETE).
    #[error("there is no service instance {0:?}")]
    NoInstance(String),
    /// 410.
    #[error("there is no service binding {0:?}")]
    NoBinding(String),
    /// 422 for a PATCH, else 400: only a delete helps.
    #[error("the instance cannot be used: {}", standing(*.0))]
    Unusable(Status),
    /// 400: only a delete of the binding helps.
    #[error("binding {binding:?} cannot be used: {}", standing(*status))]
    UnusableBinding {
        /// `binding_id`.
        binding: String,
        /// How it stands.
        status: Status,
    },
    /// 422 for a PATCH that this plan or service will never carry out.
    #[error("{0}")]
    NotUpdatable(String),
    /// 500: a synchronous action ended without success; the text is for the platform.
    #[error("{description}")]
    Failed {
        /// The job.
        job: Box<Job>,
        /// What the platform may know.
        description: String,
    },
    /// 500: a synchronous action took longer than `sync_limit`, and is being cancelled.
    #[error("job {job} took longer than a synchronous answer may; it is being cancelled")]
    TooSlow {
        /// The job.
        job: JobId,
    },
    /// 503 with Retry-After: try again.
    #[error("the broker cannot take this on now: {0}")]
    Unavailable(String),
}

fn offered(version: Option<&str>) -> String {
    version.map_or_else(
        || "the plan has none".to_owned(),
        |version| format!("which is {version:?}"),
    )
}

fn standing(status: Status) -> &'static str {
    match status {
        Status::Creating => "it is not made yet",
        Status::Ready => "it exists",
        Status::CreateFailed => "it could not be made; delete it first",
        Status::Deleting => "it is being deleted",
        Status::DeleteFailed => "its delete failed; delete it again first",
        Status::Deleted => "it was deleted",
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_told_in_words_what_the_catalog_and_the_instance_say() {
        let conflict = |current: Option<&str>| Refusal::MaintenanceInfoConflict {
            sent: "2".to_owned(),
            current: current.map(str::to_owned),
        };
        for (refusal, words) in [
            (
                conflict(None),
                "maintenance_info.version \"2\" is not the catalog's, the plan has none",
            ),
            (
                conflict(Some("1.0.0")),
                "maintenance_info.version \"2\" is not the catalog's, which is \"1.0.0\"",
            ),
            (
                Refusal::Unusable(Status::CreateFailed),
                "the instance cannot be used: it could not be made; delete it first",
            ),
        ] {
            assert_eq!(refusal.to_string(), words);
        }
        for status in Status::ALL {
            let text = Refusal::Unusable(status).to_string();
            assert!(!text.contains('_'), "{text}");
        }
    }
}
