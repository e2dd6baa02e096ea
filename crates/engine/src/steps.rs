//! Driving steps: whatever this process does for one job, poll by poll, named in the black box.
//!
//! Between two polls nothing of a job is under way on this thread, so that a death then is not
//! its doing. What a poll hands to another thread (`evenkeel_executor::blocking`) is named there.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use evenkeel_core::attempt::{Attempt, Death, ExposureCause};
use evenkeel_core::ids::{AttemptId, BootId};
use evenkeel_core::job::Job;
use evenkeel_core::policy::Policy;
use evenkeel_executor::blackbox::{self, Alone, BlackBox, Wish};
use evenkeel_executor::{RunError, RunRoot};
use tokio::time::{Instant, sleep_until};

use crate::service::Shared;

/// How soon a step that another one stands against is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Files of dead boots that are removed in one go; the rest follows at the next death.
const MAX_FORGOTTEN: usize = 10_000;

/// The black box of this boot, and those of boots before it.
#[derive(Clone, Debug)]
pub struct BlackBoxes {
    root: RunRoot,
    own: BlackBox,
}

/// What a dead boot was working on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named(Vec<blackbox::Named>);

impl BlackBoxes {
    /// Makes the black box of a boot in its run root.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(root: &RunRoot, boot: BootId) -> Result<Self, RunError> {
        Ok(Self {
            own: BlackBox::create(root, &boot.to_string())?,
            root: root.clone(),
        })
    }

    /// What a dead boot was working on; `host_too`: its host went down with it.
    pub(crate) fn named_by(&self, boot: BootId, host_too: bool) -> Result<Named, RunError> {
        let named = blackbox::named_by(&self.root, &boot.to_string(), host_too)?;
        Ok(Named(named))
    }

    /// See [`blackbox::spoil`].
    pub(crate) fn spoil(&self, boot: BootId) -> Result<(), RunError> {
        blackbox::spoil(&self.root, &boot.to_string())
    }

    /// Removes what dead boots left, when the verdict on all that are registered is given: also on
    /// one that died before it was registered, or whose verdict a boot gave that died right after.
    pub(crate) fn forget_all_but(&self, own: BootId) {
        let own = own.to_string();
        let found = match self.root.boots(MAX_FORGOTTEN) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "the files of dead boots are left");
                return;
            }
        };
        for boot in found.iter().filter(|boot| **boot != own) {
            let forgotten =
                blackbox::forget(&self.root, boot).and_then(|()| self.root.forget_boot(boot));
            if let Err(error) = forgotten {
                tracing::warn!(boot, %error, "the files of a dead boot are left");
            }
        }
    }
}

impl Named {
    #[cfg(test)]
    pub(crate) fn of(named: impl IntoIterator<Item = (AttemptId, bool)>) -> Self {
        let named = named
            .into_iter()
            .map(|(attempt, exclusive)| blackbox::Named {
                attempt: attempt.0.into_bytes(),
                exclusive,
            });
        Self(named.collect())
    }

    /// Whether this attempt was being worked on, and if so whether nothing else was.
    pub(crate) fn names(&self, attempt: AttemptId) -> Option<bool> {
        let of = |named: &&blackbox::Named| named.attempt == attempt.0.into_bytes();
        self.0.iter().find(of).map(|named| named.exclusive)
    }

    /// The attempt that was being worked on and nothing else.
    pub(crate) fn exclusive(&self) -> Option<AttemptId> {
        let named = self.0.iter().find(|named| named.exclusive)?;
        Some(AttemptId(uuid::Uuid::from_bytes(named.attempt)))
    }

    /// Something else went wrong too.
    pub(crate) fn spoil(&mut self) {
        for named in &mut self.0 {
            named.exclusive = false;
        }
    }
}

/// How long others wait for the step of a suspect at first: longer than it takes to run out of
/// memory, on most hosts.
const PATIENCE: Duration = Duration::from_secs(5);
/// And at most.
const MOST_PATIENCE: Duration = Duration::from_secs(60);

/// How the steps for a job are kept apart from others, if they are: those of a suspect. Whoever
/// dies slowly (memory that runs out) outlasts the others' patience, which makes its step a shared
/// one and its death an exposure: so patience grows fourfold with each of them.
pub(crate) fn apart(job: &Job, policy: &Policy) -> Option<Alone> {
    let budget = &job.budget;
    let beyond = budget.exposures.saturating_sub(policy.suspect_exposures);
    budget.suspect.then(|| Alone {
        patience: PATIENCE
            .saturating_mul(4_u32.saturating_pow(beyond))
            .min(MOST_PATIENCE),
        through: job.attempt().is_some_and(lost_its_host),
    })
}

/// Whether an attempt was near the loss of its host.
pub(crate) fn lost_its_host(attempt: &Attempt) -> bool {
    let host = |death: &Death| death.cause == ExposureCause::HostLost;
    attempt.deaths.iter().any(host)
}

/// Does something for an attempt under its name; `alone`: the steps are exclusive.
pub(crate) async fn of<T>(
    shared: &Shared,
    attempt: AttemptId,
    alone: Option<Alone>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    let Some(boxes) = &shared.options.black_boxes else {
        return work.await;
    };
    let wish = Wish {
        attempt: attempt.0.into_bytes(),
        alone,
    };
    let mut again = pin!(sleep_until(Instant::now()));
    poll_fn(move |context| {
        loop {
            if let Some(step) = boxes.own.try_enter(wish) {
                let polled = work.as_mut().poll(context);
                drop(step);
                return polled;
            }
            again.as_mut().reset(Instant::now() + TRY_AGAIN);
            if again.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}
