//! Cleaning up what an answer in doubt may have left.

use std::time::Duration;

use super::{Client, ClientError, Mode, Retries, Target};
use crate::answer::DeleteAnswer;
use crate::mitigation::{Action, Orphan, orphan_mitigation};
use crate::operation::Operation;

/// What may be left at a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphaned<'a> {
    /// Instance or binding.
    pub target: Target<'a>,
    /// Of its service offering.
    pub service_id: &'a str,
    /// Of its plan.
    pub plan_id: &'a str,
}

/// How a mitigation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mitigated {
    /// It is deleted.
    Deleted,
    /// It was not there (any more).
    Gone,
    /// The broker deletes it. Cloud Foundry leaves it at that; whoever wants to be sure [waits](Client::wait).
    InProgress(Option<Operation>),
}

impl Retries {
    /// As Cloud Foundry's Cloud Controller cleans up: eleven times in all, after 1, 2, 4 … minutes.
    pub const MITIGATION: Self = Self {
        repeats: 10,
        pause: Duration::from_secs(60),
        at_most: Duration::from_secs(1024 * 60),
    };
}

impl ClientError {
    /// What must be cleaned up after `action` has ended so.
    ///
    /// ```no_run
    /// use evenkeel_osb::client::{Client, Mode, Orphaned, Retries, Target};
    /// use evenkeel_osb::{Action, Orphan, ProvisionRequest};
    ///
    /// # async fn order(client: Client, request: ProvisionRequest) -> Result<(), Box<dyn std::error::Error>> {
    /// if let Err(error) = client.provision("db-1", &request, Mode::AcceptsIncomplete).await {
    ///     if error.orphan(Action::Provision) == Some(Orphan::Instance) {
    ///         let left = Orphaned {
    ///             target: Target::Instance { instance_id: "db-1" },
    ///             service_id: &request.service_id,
    ///             plan_id: &request.plan_id,
    ///         };
    ///         client.mitigate(left, &Retries::MITIGATION, |trouble| println!("{trouble}")).await?;
    ///     }
    ///     return Err(error.into());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn orphan(&self, action: Action) -> Option<Orphan> {
        orphan_mitigation(action, self.received()?)
    }
}

impl Client {
    /// Deletes what may be left until the broker says that it is gone or being deleted, and tells `on_trouble` each
    /// answer that it tries again after.
    ///
    /// # Errors
    /// The last trouble, when there are no more repeats; an id that no URL can carry at once.
    pub async fn mitigate(
        &self,
        left: Orphaned<'_>,
        retries: &Retries,
        mut on_trouble: impl FnMut(&ClientError),
    ) -> Result<Mitigated, ClientError> {
        let mut repeat = 0;
        loop {
            let error = match self.delete_orphan(left).await {
                Ok(DeleteAnswer::Deleted {}) => return Ok(Mitigated::Deleted),
                Ok(DeleteAnswer::InProgress(accepted)) => {
                    return Ok(Mitigated::InProgress(accepted.operation));
                }
                Err(error) if error.is_gone() => return Ok(Mitigated::Gone),
                Err(error @ ClientError::Id(_)) => return Err(error),
                Err(error) => error,
            };
            let Some(pause) = retries.pause(repeat, error.retry_after()) else {
                return Err(error);
            };
            on_trouble(&error);
            tokio::time::sleep(pause).await;
            repeat += 1;
        }
    }

    async fn delete_orphan(&self, left: Orphaned<'_>) -> Result<DeleteAnswer, ClientError> {
        let Orphaned {
            target,
            service_id,
            plan_id,
        } = left;
        let mode = Mode::AcceptsIncomplete;
        match target {
            Target::Instance { instance_id } => {
                self.deprovision(instance_id, service_id, plan_id, mode)
                    .await
            }
            Target::Binding {
                instance_id,
                binding_id,
            } => {
                self.unbind(instance_id, binding_id, service_id, plan_id, mode)
                    .await
            }
        }
    }
}
