//! What a refusal of the engine is on the wire. (The statuses stand on [`Refusal`]'s variants;
//! what Cloud Foundry makes of them is why a refused create is never a bare 422.)

use axum::response::Response;
use evenkeel_core::action::Action;
use evenkeel_core::job::{Job, State};
use evenkeel_engine::ask::Refusal;
use evenkeel_osb::{DeprovisionError, ErrorBody, UpdateError};
use evenkeel_store::error::StoreError;

use super::OsbState;
use crate::exchange;

impl OsbState {
    /// The answer to a request that the engine refused.
    pub(super) fn refused(&self, action: Action, refusal: Refusal) -> Response {
        let Afterwards { usable, repeatable } = afterwards(action, &refusal);
        let error = error_body(action, refusal);
        match action {
            Action::Provision | Action::Bind | Action::Unbind => self.error(&error),
            Action::Deprovision => {
                let mut error = DeprovisionError::from(error);
                if let Some(usable) = usable {
                    error = error.instance_usable(usable);
                }
                self.finished(
                    error.body().status(),
                    exchange::json(error.body().status(), &error),
                )
            }
            Action::Update => {
                let mut error = UpdateError::from(error);
                if let Some(usable) = usable {
                    error = error.instance_usable(usable);
                }
                if let Some(repeatable) = repeatable {
                    error = error.update_repeatable(repeatable);
                }
                self.finished(
                    error.body().status(),
                    exchange::json(error.body().status(), &error),
                )
            }
        }
    }

    fn finished(&self, status: u16, response: Response) -> Response {
        if status == 503 {
            self.try_later(response)
        } else {
            response
        }
    }
}

/// A store that does not answer a read.
pub(super) fn store_error(error: &StoreError) -> ErrorBody {
    tracing::warn!(%error, "a read for a platform failed");
    match error {
        StoreError::Unavailable(_)
        | StoreError::Full(_)
        | StoreError::Overloaded
        | StoreError::Unknown(_)
        | StoreError::WrongKey(_)
        | StoreError::NewerSchema { .. }
        | StoreError::Locked(_) => {
            ErrorBody::unavailable("The broker's store does not answer: try again later.")
        }
        StoreError::Damaged(_)
        | StoreError::Unreadable(_)
        | StoreError::Illegal(_)
        | StoreError::Panicked(_) => {
            ErrorBody::internal("The broker could not read what it knows about this.")
        }
    }
}

fn error_body(action: Action, refusal: Refusal) -> ErrorBody {
    let text = refusal.to_string();
    match refusal {
        Refusal::BadRequest { .. } | Refusal::Parameters { .. } => ErrorBody::bad_request(text),
        Refusal::Conflict { .. } => ErrorBody::conflict(text),
        Refusal::AsyncRequired => ErrorBody::async_required(),
        Refusal::MaintenanceInfoConflict { .. } => ErrorBody::maintenance_info_conflict(text),
        Refusal::RequiresApp => ErrorBody::requires_app(),
        Refusal::Busy { .. } => ErrorBody::concurrency(text),
        Refusal::NoInstance(_) => match action {
            Action::Deprovision | Action::Unbind => ErrorBody::gone(text),
            Action::Provision | Action::Update | Action::Bind => ErrorBody::not_found(text),
        },
        Refusal::NoBinding(_) => ErrorBody::gone(text),
        Refusal::UnusableBinding { .. } => ErrorBody::bad_request(text),
        Refusal::Unusable(_) if action == Action::Update => ErrorBody::unprocessable(text),
        Refusal::Unusable(_) => ErrorBody::bad_request(text),
        Refusal::NotUpdatable(_) => ErrorBody::unprocessable(text),
        Refusal::Failed { .. } | Refusal::TooSlow { .. } => ErrorBody::internal(text),
        Refusal::Unavailable(_) => {
            // The store's words (paths, addresses) are for the log.
            tracing::warn!(%action, reason = text, "a request could not be taken on");
            ErrorBody::unavailable("The broker cannot take this on now: try again later.")
        }
    }
}

/// What the specification lets a broker say of an instance whose update or delete was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Afterwards {
    /// Whether the instance can still be used.
    usable: Option<bool>,
    /// Whether the same update can work later.
    repeatable: Option<bool>,
}

fn afterwards(action: Action, refusal: &Refusal) -> Afterwards {
    let updates = action == Action::Update;
    match refusal {
        // A failed update leaves what was in force; a failed delete may have left half of it.
        Refusal::Failed { job, .. } => Afterwards {
            usable: Some(updates),
            repeatable: Some(repeatable(job)),
        },
        Refusal::TooSlow { .. } => Afterwards {
            usable: Some(updates),
            repeatable: Some(true),
        },
        Refusal::Unusable(_) => Afterwards {
            usable: Some(false),
            repeatable: Some(false),
        },
        Refusal::NotUpdatable(_) => Afterwards {
            usable: Some(true),
            repeatable: Some(false),
        },
        Refusal::BadRequest { .. }
        | Refusal::Parameters { .. }
        | Refusal::Conflict { .. }
        | Refusal::AsyncRequired
        | Refusal::MaintenanceInfoConflict { .. }
        | Refusal::RequiresApp
        | Refusal::Busy { .. }
        | Refusal::NoInstance(_)
        | Refusal::NoBinding(_)
        | Refusal::UnusableBinding { .. }
        | Refusal::Unavailable(_) => Afterwards::default(),
    }
}

/// With a spent budget the same update is set aside at once, until an operator has had a look.
pub(super) fn repeatable(job: &Job) -> bool {
    !matches!(job.state, State::Quarantined { .. })
}
