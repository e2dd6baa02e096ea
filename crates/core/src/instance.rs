//! Service instances and bindings: where they stand, and what a finished job makes of them.

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::job::{State, StopReason};

/// Where an instance or a binding stands, apart from the jobs that are under way for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Ordered; not yet made.
    Creating,
    /// Made, and usable.
    Ready,
    /// It could not be made; a delete has to clean up.
    CreateFailed,
    /// Its delete is under way.
    Deleting,
    /// Its delete failed; it may be half gone.
    DeleteFailed,
    /// Gone. The row stays as a tombstone that answers polls.
    Deleted,
}

impl Status {
    /// The word used in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::CreateFailed => "create_failed",
            Self::Deleting => "deleting",
            Self::DeleteFailed => "delete_failed",
            Self::Deleted => "deleted",
        }
    }

    /// All of them, in the order of a life.
    pub const ALL: [Self; 6] = [
        Self::Creating,
        Self::Ready,
        Self::CreateFailed,
        Self::Deleting,
        Self::DeleteFailed,
        Self::Deleted,
    ];
}

/// What a final job makes of its instance or binding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Settlement {
    /// The new status of the job's target: the binding for bind and unbind, else the instance.
    /// `None` leaves it as the delete that took the job's place has set it.
    pub status: Option<Status>,
    /// The plan, parameters and maintenance that the job desired are now the applied ones.
    pub apply_desired: bool,
    /// What the run wrote is kept with the target.
    pub keep_outputs: bool,
    /// The instance's bindings are gone with it.
    pub bindings_gone: bool,
}

/// What the final state of a job makes of its target.
///
/// `made_outputs` says that the job's last run succeeded (a run that succeeded after a cancel was
/// asked ends as cancelled with its outputs kept for the delete that follows).
/// `None` while the job is not final.
pub fn settle(action: Action, state: &State, made_outputs: bool) -> Option<Settlement> {
    if !state.is_final() {
        return None;
    }
    let done = *state == State::Succeeded;
    let superseded = matches!(
        state,
        State::Cancelled {
            by: StopReason::Superseded { .. }
        }
    );
    let status = match (action, done) {
        (Action::Provision | Action::Bind | Action::Update, true) | (Action::Update, false) => {
            Status::Ready
        }
        (Action::Provision | Action::Bind, false) => Status::CreateFailed,
        (Action::Deprovision | Action::Unbind, true) => Status::Deleted,
        (Action::Deprovision | Action::Unbind, false) => Status::DeleteFailed,
    };
    let makes = matches!(action, Action::Provision | Action::Update | Action::Bind);
    // What is made in vain has to be known for the delete that follows; what was changed in vain
    // must not show (specification: a failed PATCH applies none of its changes).
    let shows = done || action != Action::Update;
    Some(Settlement {
        status: (!superseded).then_some(status),
        apply_desired: done && makes,
        keep_outputs: makes && made_outputs && shows,
        bindings_gone: done && action == Action::Deprovision,
    })
}

/// The status of the target from the moment that a job of this action is accepted; an update
/// leaves it as it is.
pub fn on_submit(action: Action) -> Option<Status> {
    match action {
        Action::Provision | Action::Bind => Some(Status::Creating),
        Action::Deprovision | Action::Unbind => Some(Status::Deleting),
        Action::Update => None,
    }
}
