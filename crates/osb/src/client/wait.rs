//! Polling until an operation has ended.

use std::time::Duration;

use super::{Client, ClientError, Polled};
use crate::headers::RetryAfter;
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
    /// 5 s between polls, `Retry-After` from 1 s to 60 s, one day in all.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            at_least: Duration::from_secs(1),
            at_most: Duration::from_secs(60),
            give_up_after: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl WaitOptions {
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
    /// 410: after a delete this is success.
    Gone,
}

impl Client {
    /// Polls until the operation has ended, and tells `on_poll` each answer and each trouble that it goes on after
    /// (a broker that restarts is no reason to stop).
    ///
    /// # Errors
    /// [`ClientError::GaveUp`] when the time is over, and what is not [transient](ClientError::is_transient).
    pub async fn wait(
        &self,
        target: Target<'_>,
        hints: &Query,
        options: &WaitOptions,
        on_poll: impl FnMut(Result<&InstanceLastOperation, &ClientError>),
    ) -> Result<WaitEnd, ClientError> {
        match tokio::time::timeout(
            options.give_up_after,
            self.poll_to_the_end(target, hints, options, on_poll),
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
        target: Target<'_>,
        hints: &Query,
        options: &WaitOptions,
        mut on_poll: impl FnMut(Result<&InstanceLastOperation, &ClientError>),
    ) -> Result<WaitEnd, ClientError> {
        loop {
            let retry_after = match self.poll(target, hints).await {
                Ok(polled) => {
                    on_poll(Ok(&polled.operation));
                    if polled.operation.state().is_final() {
                        return Ok(WaitEnd::Ended(polled.operation));
                    }
                    polled.retry_after
                }
                Err(error) if error.is_gone() => return Ok(WaitEnd::Gone),
                Err(error) if error.is_transient() => {
                    on_poll(Err(&error));
                    error.broker().and_then(|error| error.retry_after)
                }
                Err(error) => return Err(error),
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
