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
    let instance = instance.filter(|known| known.status != Status::Deleted);
    let binding = binding.filter(|known| known.status != Status::Deleted);
    match (ask.action, instance) {
        (Action::Provision, None) => accept(true),
        (Action::Provision, Some(instance)) => {
            create(ask, instance.status, instance.digest, &instance.active)
        }
        (Action::Update | Action::Deprovision | Action::Bind, None) => Verdict::NoInstance,
        (Action::Unbind, None) => Verdict::NoBinding,
        (Action::Update, Some(instance)) => update(ask, instance),
        (Action::Deprovision, Some(instance)) => deprovision(instance),
        (Action::Bind, Some(instance)) => bind(ask, instance, binding),
        (Action::Unbind, Some(instance)) => {
            binding.map_or(Verdict::NoBinding, |binding| unbind(instance, binding))
        }
    }
}

/// A job that waits for nothing and stops nothing.
fn accept(new_life: bool) -> Verdict {
    Verdict::Accept {
        supersedes: Vec::new(),
        after: Vec::new(),
        new_life,
    }
}

fn is_delete(job: &&ActiveJob) -> bool {
    matches!(job.action, Action::Deprovision | Action::Unbind)
}

/// A create that is asked for where something of that name exists: the same rules for
/// instances and bindings. A delete under way comes before a difference, a difference before
/// anything else under way (OSB.md §1.0, steps 5 and 9; P9).
fn create(ask: Ask, status: Status, digest: RequestDigest, active: &[ActiveJob]) -> Verdict {
    if let Some(job) = active.iter().find(is_delete) {
        return Verdict::Busy(job.id, job.action);
    }
    if digest != ask.digest {
        return Verdict::Conflict;
    }
    match (active.last(), status) {
        (Some(job), _) if job.action == ask.action && !job.superseded => {
            Verdict::InProgress(job.id)
        }
        (Some(job), _) => Verdict::Busy(job.id, job.action),
        (None, Status::Ready) => Verdict::Already,
        (None, Status::Creating | Status::CreateFailed) => accept(false),
        (None, Status::Deleting | Status::DeleteFailed | Status::Deleted) => {
            Verdict::Unusable(status)
        }
    }
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
    if instance.status == Status::Ready {
        accept(false)
    } else {
        Verdict::Unusable(instance.status)
    }
}

fn bind(ask: Ask, instance: &InstanceStanding, binding: Option<&BindingStanding>) -> Verdict {
    // What a delete is about to take away is not handed out any more.
    if let Some(job) = instance.active.iter().find(is_delete) {
        return Verdict::Busy(job.id, job.action);
    }
    if let Some(binding) = binding {
        let verdict = create(ask, binding.status, binding.digest, &binding.active);
        if !matches!(verdict, Verdict::Accept { .. }) {
            return verdict;
        }
    }
    if let Some(job) = instance.active.last() {
        return Verdict::Busy(job.id, job.action);
    }
    if instance.status == Status::Ready {
        accept(binding.is_none())
    } else {
        Verdict::Unusable(instance.status)
    }
}

/// A delete stops the creates and updates that it makes pointless, those of bindings included,
/// and waits for all that runs: for them, and for the unbinds.
fn deprovision(instance: &InstanceStanding) -> Verdict {
    if let Some(job) = instance.active.iter().find(is_delete) {
        return Verdict::InProgress(job.id);
    }
    let waits_for = || instance.active.iter().chain(&instance.active_bindings);
    Verdict::Accept {
        supersedes: pointless(waits_for()),
        after: waits_for().map(|job| job.id).collect(),
        new_life: false,
    }
}

/// An unbind stops the bind, and waits for it and for whatever runs on the instance.
fn unbind(instance: &InstanceStanding, binding: &BindingStanding) -> Verdict {
    if let Some(job) = binding.active.iter().find(is_delete) {
        return Verdict::InProgress(job.id);
    }
    let waits_for = binding.active.iter().chain(&instance.active);
    Verdict::Accept {
        supersedes: pointless(&binding.active),
        after: waits_for.map(|job| job.id).collect(),
        new_life: false,
    }
}

fn pointless<'a>(active: impl IntoIterator<Item = &'a ActiveJob>) -> Vec<JobId> {
    active
        .into_iter()
        .filter(|job| !job.superseded && !is_delete(job))
        .map(|job| job.id)
        .collect()
}
