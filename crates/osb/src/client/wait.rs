//! Polling until an operation has ended.

use std::time::Duration;

use super::{Client, ClientError, Polled};
use crate::catalog::Plan;
use crate::headers::RetryAfter;
use crate::mitigation::Action;
use crate::operation::InstanceLastOperation;
use crate::uri::Query;

/// Whose operation is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// A service instance's.
    Instance {
        /// Its id.
        instance_id: &'a str,
    },
    /// A service binding's.
    Binding {
        /// Its instance's id.
        instance_id: &'a str,
        /// Its id.
        binding_id: &'a str,
    },
}

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitOptions {
    /// Between polls when the broker does not say how long.
    pub interval: Duration,
    /// A smaller `Retry-After` is taken as this.
    pub at_least: Duration,
    /// A larger `Retry-After` is taken as this.
    pub at_most: Duration,
    /// For the whole wait.
    pub give_up_after: Duration,
}

impl Default for WaitOptions {
    /// 5 s between polls, `Retry-After` from 1 s to 60 s, a week in all.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            at_least: Duration::from_secs(1),
            at_most: Duration::from_secs(60),
            give_up_after: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

impl WaitOptions {
    /// No longer than the plan's `maximum_polling_duration`, if it has one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use evenkeel_osb::Plan;
    /// use evenkeel_osb::client::WaitOptions;
    ///
    /// let plan = Plan { maximum_polling_duration_secs: Some(600), ..Plan::default() };
    /// assert_eq!(WaitOptions::default().for_plan(&plan).give_up_after, Duration::from_secs(600));
    /// ```
    #[must_use]
    pub fn for_plan(mut self, plan: &Plan) -> Self {
        if let Some(seconds) = plan.maximum_polling_duration_secs {
            self.give_up_after = self.give_up_after.min(Duration::from_secs(seconds));
        }
        self
    }

    fn pause(&self, retry_after: Option<RetryAfter>) -> Duration {
        // Not `clamp`, which panics on bounds that are the wrong way round.
        retry_after.map_or(self.interval, |asked| {
            asked.as_duration().max(self.at_least).min(self.at_most)
        })
    }
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitEnd {
    /// `succeeded` or `failed`.
    Ended(InstanceLastOperation),
    /// 410 after a delete: success.
    Gone,
}

impl Client {
    /// Polls until the operation has ended, and tells `on_poll` each answer and each trouble that it goes on after.
    ///
    /// As platforms do it: only `succeeded`, `failed`, a 400 and time end a wait; a 410 does where `action` removes
    /// something, and otherwise the operation counts as in progress.
    ///
    /// # Errors
    /// [`ClientError::GaveUp`] when the time is over, and what [ends a wait](ClientError::ends_a_wait).
    pub async fn wait(
        &self,
        action: Action,
        target: Target<'_>,
        hints: &Query,
        options: &WaitOptions,
        on_poll: impl FnMut(Result<&InstanceLastOperation, &ClientError>),
    ) -> Result<WaitEnd, ClientError> {
        match tokio::time::timeout(
            options.give_up_after,
            self.poll_to_the_end(action, target, hints, options, on_poll),
        )
        .await
        {
            Ok(end) => end,
            Err(_) => Err(ClientError::GaveUp {
                after: options.give_up_after,
            }),
        }
    }

    async fn poll_to_the_end(
        &self,
        action: Action,
        target: Target<'_>,
        hints: &Query,
        options: &WaitOptions,
        mut on_poll: impl FnMut(Result<&InstanceLastOperation, &ClientError>),
    ) -> Result<WaitEnd, ClientError> {
        let removes = matches!(action, Action::Deprovision | Action::Unbind);
        loop {
            let retry_after = match self.poll(target, hints).await {
                Ok(polled) => {
                    on_poll(Ok(&polled.operation));
                    if polled.operation.state().is_final() {
                        return Ok(WaitEnd::Ended(polled.operation));
                    }
                    polled.retry_after
                }
                Err(error) if removes && error.is_gone() => return Ok(WaitEnd::Gone),
                Err(error) if error.ends_a_wait() => return Err(error),
                Err(error) => {
                    on_poll(Err(&error));
                    error.retry_after()
                }
            };
            tokio::time::sleep(options.pause(retry_after)).await;
        }
    }

    async fn poll(
        &self,
        target: Target<'_>,
        hints: &Query,
    ) -> Result<Polled<InstanceLastOperation>, ClientError> {
        match target {
            Target::Instance { instance_id } => self.poll_instance(instance_id, hints).await,
            Target::Binding {
                instance_id,
                binding_id,
            } => {
                let polled = self.poll_binding(instance_id, binding_id, hints).await?;
                Ok(Polled {
                    operation: polled.operation.into(),
                    retry_after: polled.retry_after,
                })
            }
        }
    }
}
