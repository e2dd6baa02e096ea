//! Admission: what a request means to an instance as it stands.
//!
//! A pure function from what the store holds to a verdict. The store asks it again inside the
//! transaction that accepts the job, so that a verdict given outside is only ever a preview.

use crate::action::Action;
use crate::ids::{BindingUid, InstanceUid, JobId, PlanId, RequestDigest, ServiceId};
use crate::instance::Status;

/// What a platform asks for, as far as admission cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The action.
    pub action: Action,
    /// Digest over what makes two requests of this action the same.
    pub digest: RequestDigest,
}

/// A job that is not final.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActiveJob {
    /// Its name.
    pub id: JobId,
    /// What it does.
    pub action: Action,
    /// The request that it was made for.
    pub digest: RequestDigest,
    /// Whether a later job takes its place.
    pub superseded: bool,
}

/// An instance as the store holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceStanding {
    /// Its present life.
    pub uid: InstanceUid,
    /// Its service offering.
    pub service: ServiceId,
    /// Its applied plan, or the desired one while it is being made.
    pub plan: PlanId,
    /// The request that made it.
    pub digest: RequestDigest,
    /// Where it stands.
    pub status: Status,
    /// Jobs under way for the instance itself, oldest first.
    pub active: Vec<ActiveJob>,
    /// Jobs under way for its bindings, oldest first.
    pub active_bindings: Vec<ActiveJob>,
}

/// A binding as the store holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingStanding {
    /// Its present life.
    pub uid: BindingUid,
    /// The request that made it.
    pub digest: RequestDigest,
    /// Where it stands.
    pub status: Status,
    /// Jobs under way for it, oldest first.
    pub active: Vec<ActiveJob>,
}

/// What becomes of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A job is made, behind these (some of which it may supersede).
    Accept {
        /// Jobs that are stopped in its favour.
        supersedes: Vec<JobId>,
        /// Jobs that have to be final before it may be claimed.
        after: Vec<JobId>,
        /// Whether the instance or binding begins a new life with it.
        new_life: bool,
    },
    /// It is as asked already.
    Already,
    /// The same request is being worked on.
    InProgress(JobId),
    /// Another request made it, or is making it.
    Conflict,
    /// Something else is under way.
    Busy(JobId, Action),
    /// There is no such instance.
    NoInstance,
    /// There is no such binding.
    NoBinding,
    /// The instance could not be made or is half gone: only a delete helps.
    Unusable(Status),
}

/// Decides on `ask`. The standings are of lives that are not over; `None` where there is none.
pub fn admit(
    ask: Ask,
    instance: Option<&InstanceStanding>,
    binding: Option<&BindingStanding>,
) -> Verdict {
    match (ask.action, instance) {
        (Action::Provision, None) => accept_new(),
        (Action::Provision, Some(instance)) => provision(ask, instance),
        (Action::Update | Action::Deprovision | Action::Bind, None) => Verdict::NoInstance,
        (Action::Unbind, None) => Verdict::NoBinding,
        (Action::Update, Some(instance)) => update(ask, instance),
        (Action::Deprovision, Some(instance)) => deprovision(instance),
        (Action::Bind, Some(instance)) => bind(ask, instance, binding),
        (Action::Unbind, Some(instance)) => unbind(instance, binding),
    }
}

fn accept_new() -> Verdict {
    Verdict::Accept {
        supersedes: Vec::new(),
        after: Vec::new(),
        new_life: true,
    }
}

fn accept_again() -> Verdict {
    Verdict::Accept {
        supersedes: Vec::new(),
        after: Vec::new(),
        new_life: false,
    }
}

/// A create that is asked for where something of that name exists: the same rules for
/// instances and bindings.
fn create(ask: Ask, status: Status, digest: RequestDigest, active: &[ActiveJob]) -> Verdict {
    let other = active.iter().find(|job| job.action != ask.action);
    if let Some(job) = other {
        return Verdict::Busy(job.id, job.action);
    }
    if digest != ask.digest {
        return Verdict::Conflict;
    }
    match (active.last(), status) {
        (Some(job), _) if job.superseded => Verdict::Busy(job.id, job.action),
        (Some(job), _) => Verdict::InProgress(job.id),
        (None, Status::Ready) => Verdict::Already,
        (None, Status::Creating | Status::CreateFailed) => accept_again(),
        (None, Status::Deleting | Status::DeleteFailed) => Verdict::Unusable(status),
        (None, Status::Deleted) => accept_new(),
    }
}

fn provision(ask: Ask, instance: &InstanceStanding) -> Verdict {
    create(ask, instance.status, instance.digest, &instance.active)
}

fn update(ask: Ask, instance: &InstanceStanding) -> Verdict {
    if let Some(job) = instance.active.last() {
        return if job.action == Action::Update && job.digest == ask.digest && !job.superseded {
            Verdict::InProgress(job.id)
        } else {
            Verdict::Busy(job.id, job.action)
        };
    }
    if let Some(job) = instance.active_bindings.first() {
        return Verdict::Busy(job.id, job.action);
    }
    match instance.status {
        Status::Ready => accept_again(),
        Status::Deleted => Verdict::NoInstance,
        Status::Creating | Status::CreateFailed | Status::Deleting | Status::DeleteFailed => {
            Verdict::Unusable(instance.status)
        }
    }
}

fn deprovision(instance: &InstanceStanding) -> Verdict {
    if let Some(job) = instance
        .active
        .iter()
        .find(|job| job.action == Action::Deprovision)
    {
        return Verdict::InProgress(job.id);
    }
    if instance.status == Status::Deleted {
        return Verdict::NoInstance;
    }
    take_over(&instance.active)
}

/// A delete stops what it makes pointless and waits for it.
fn take_over(active: &[ActiveJob]) -> Verdict {
    Verdict::Accept {
        supersedes: active
            .iter()
            .filter(|job| !job.superseded)
            .map(|job| job.id)
            .collect(),
        after: active.iter().map(|job| job.id).collect(),
        new_life: false,
    }
}

fn bind(ask: Ask, instance: &InstanceStanding, binding: Option<&BindingStanding>) -> Verdict {
    if let Some(binding) = binding {
        let verdict = create(ask, binding.status, binding.digest, &binding.active);
        if !matches!(verdict, Verdict::Accept { .. }) {
            return verdict;
        }
    }
    if let Some(job) = instance.active.last() {
        return Verdict::Busy(job.id, job.action);
    }
    match instance.status {
        Status::Ready if binding.is_some_and(|known| known.status != Status::Deleted) => {
            accept_again()
        }
        Status::Ready => accept_new(),
        Status::Deleted => Verdict::NoInstance,
        Status::Creating | Status::CreateFailed | Status::Deleting | Status::DeleteFailed => {
            Verdict::Unusable(instance.status)
        }
    }
}

fn unbind(instance: &InstanceStanding, binding: Option<&BindingStanding>) -> Verdict {
    let Some(binding) = binding.filter(|known| known.status != Status::Deleted) else {
        return Verdict::NoBinding;
    };
    if let Some(job) = binding
        .active
        .iter()
        .find(|job| job.action == Action::Unbind)
    {
        return Verdict::InProgress(job.id);
    }
    let Verdict::Accept {
        supersedes,
        mut after,
        new_life,
    } = take_over(&binding.active)
    else {
        return Verdict::NoBinding;
    };
    // Whatever runs on the instance goes first (DESIGN §5, order on one instance).
    after.extend(instance.active.iter().map(|job| job.id));
    Verdict::Accept {
        supersedes,
        after,
        new_life,
    }
}
