//! What is told of an attempt that came to its end without its run's record: the run may have left
//! none, or a step of ours that failed has not read it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use evenkeel_core::attempt::End;
use evenkeel_core::ids::AttemptId;
use tokio::time::timeout;

use super::Outcome;
use crate::guard::{self, Caught};
use crate::service::Shared;

/// How long a look at what is left may take: the end must not wait for it.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

impl Outcome {
    /// An end, with whatever there is to tell of its run.
    pub(crate) async fn gathered(
        shared: &Shared,
        attempt: AttemptId,
        end: End,
        ran: Duration,
    ) -> Self {
        let mut outcome = Self::of(end, ran);
        // Nor may a panic here keep it from being written, again and again.
        let look = guard::catch(AssertUnwindSafe(shared.options.executor.remains(attempt)));
        let left = match timeout(LOOK_LIMIT, look).await {
            Ok(Ok(Ok(left))) => left,
            Ok(Ok(Err(error))) => {
                tracing::debug!(%attempt, %error, "nothing can be told of its run");
                return outcome;
            }
            Ok(Err(panic)) => {
                let location = panic.location;
                tracing::error!(%attempt, location, "a look at what is left of its run panicked");
                return outcome;
            }
            Err(_) => return outcome,
        };
        let mut forensics = left.forensics;
        forensics.last_sign = left.last_sign_ago.map(|ago| shared.now().minus(ago));
        outcome.progress.clone_from(&forensics.progress);
        outcome.usage = (left.peak_memory, left.cpu_millis);
        outcome.started = (left.started_at, left.containment);
        outcome.forensics = forensics;
        outcome
    }

    /// With the silence for which its shim was ended here, if it was.
    pub(super) fn silenced(mut self, silence: Option<Duration>) -> Self {
        let millis = silence.map(|silence| u64::try_from(silence.as_millis()).unwrap_or(u64::MAX));
        self.forensics.silent_ms = millis;
        self
    }

    /// With the panic that ended it.
    pub(crate) fn after(mut self, panic: &Caught) -> Self {
        self.forensics.panic = Some(panic.told());
        self
    }
}
