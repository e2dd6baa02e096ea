//! The handle that the rest of the process calls.

use std::sync::Arc;

use evenkeel_core::explain::Turn;
use evenkeel_core::ids::{AttemptId, BootId, JobId, Platform};
use evenkeel_core::job::StopReason;
use evenkeel_core::policy::Policy;
use evenkeel_core::time::Timestamp;
use evenkeel_executor::LogTail;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Counts, Marked, Read, Retried, Stopped};

use crate::ask::{Answer, Bind, Caller, Deprovision, Provision, Refusal, Unbind, Update};
use crate::catalog::Catalog;
use crate::hold::{self, Held};
use crate::service::Shared;
use crate::{operator, submit};

/// A handle to a running engine; cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// An end that nobody had asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastDeath {
    /// Whose.
    pub boot: evenkeel_core::ids::BootId,
    /// When, or when it was last seen alive.
    pub at: evenkeel_core::time::Timestamp,
    /// How, to follow its name.
    pub how: String,
    /// The jobs in whose steps it died, as its black box names them; at most 64.
    pub named: Vec<JobId>,
}

/// What an operator wants at a glance.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// This process's boot.
    pub boot: BootId,
    /// When it began.
    pub started_at: Timestamp,
    /// Whether the first pass of recovery is over.
    pub recovered: bool,
    /// What recovery stumbles over, if it does.
    pub unrecovered: Option<String>,
    /// Why no new run starts, if it is held.
    pub holds: Vec<Held>,
    /// Whose turn to run alone it is, if it is a suspect's.
    pub alone: Option<Turn>,
    /// What keeps jobs from being claimed, if anything else does.
    pub unclaimed: Option<String>,
    /// The last end of an earlier boot that nobody had asked for.
    pub last_death: Option<LastDeath>,
    /// Whether the broker is ending.
    pub draining: bool,
    /// Attempts that this process drives.
    pub driving: u32,
    /// Most runs at once.
    pub concurrency: u32,
}

impl Engine {
    /// The catalog as it stands.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.catalog.current()
    }

    /// This process's boot.
    pub fn boot(&self) -> BootId {
        self.shared.options.boot
    }

    /// The time by the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.shared.now()
    }

    /// The limits of charging.
    pub fn policy(&self) -> Policy {
        self.shared.options.store.policy()
    }

    /// What readers may ask the store.
    pub fn read(&self) -> &dyn Read {
        &*self.shared.options.store
    }

    /// Whether a platform may be told of an instance that another one, or itself, has ordered.
    pub fn is_shown(&self, to: &Platform, of: &Platform) -> bool {
        submit::is_shown(&self.shared, to, of)
    }

    /// Orders an instance.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn provision(&self, caller: Caller, ask: Provision) -> Result<Answer, Refusal> {
        submit::provision(&self.shared, caller, ask).await
    }

    /// Changes an instance.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn update(&self, caller: Caller, ask: Update) -> Result<Answer, Refusal> {
        submit::update(&self.shared, caller, ask).await
    }

    /// Deletes an instance, whatever state it is in.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn deprovision(&self, caller: Caller, ask: Deprovision) -> Result<Answer, Refusal> {
        submit::deprovision(&self.shared, caller, ask).await
    }

    /// Orders a binding.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn bind(&self, caller: Caller, ask: Bind) -> Result<Answer, Refusal> {
        submit::bind(&self.shared, caller, ask).await
    }

    /// Deletes a binding.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn unbind(&self, caller: Caller, ask: Unbind) -> Result<Answer, Refusal> {
        submit::unbind(&self.shared, caller, ask).await
    }

    /// An operator's retry of a job that ended without success: a new job, with a clear budget.
    ///
    /// # Errors
    /// The store's.
    pub async fn retry(&self, job: JobId) -> Result<Retried, StoreError> {
        operator::retry(&self.shared, job).await
    }

    /// An operator's mark that a quarantined job has been dealt with.
    ///
    /// # Errors
    /// The store's.
    pub async fn discard(&self, job: JobId) -> Result<Marked, StoreError> {
        operator::discard(&self.shared, job).await
    }

    /// An operator's cancel.
    ///
    /// # Errors
    /// The store's.
    pub async fn cancel(&self, job: JobId) -> Result<Stopped, StoreError> {
        operator::stop(&self.shared, job, StopReason::Operator, operator::ACTOR).await
    }

    /// An operator's word that a job is no suspect.
    ///
    /// # Errors
    /// The store's.
    pub async fn clear(&self, job: JobId) -> Result<Marked, StoreError> {
        operator::clear(&self.shared, job).await
    }

    /// An operator's hold: no new run starts, over restarts, until [`Self::release`]. `false`: it
    /// was so before, for the same reason.
    ///
    /// # Errors
    /// The store's.
    pub async fn hold(&self, reason: &str) -> Result<bool, StoreError> {
        hold::by_hand(&self.shared, reason).await
    }

    /// An operator's end of every hold. `false`: nothing was held.
    ///
    /// # Errors
    /// The store's.
    pub async fn release(&self) -> Result<bool, StoreError> {
        hold::release(&self.shared).await
    }

    /// Why no new run starts, if so: held, or no job can be claimed.
    pub fn held(&self) -> Option<String> {
        self.shared.held()
    }

    /// All reasons for which no new run starts.
    pub fn holds(&self) -> Vec<Held> {
        self.shared.holds.all()
    }

    /// Whose turn to run alone it is, if it is a suspect's.
    pub fn alone(&self) -> Option<Turn> {
        self.shared.alone()
    }

    /// The end of an attempt's log: standard output and error.
    ///
    /// # Errors
    /// The log cannot be read; `None` where there is none (any more).
    pub async fn log(
        &self,
        attempt: AttemptId,
        max_bytes: usize,
    ) -> Result<Option<LogTail>, String> {
        operator::log(&self.shared, attempt, max_bytes).await
    }

    /// How things stand, as this process knows without its store.
    pub fn status(&self) -> EngineStatus {
        self.shared.status()
    }

    /// How many rows there are by state. Takes the longer the more there are.
    ///
    /// # Errors
    /// The store's.
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        self.shared.options.store.counts().await
    }

    /// Whether the store works, for `/readyz`.
    ///
    /// # Errors
    /// The store's.
    pub async fn check_store(&self) -> Result<(), StoreError> {
        self.shared.options.store.check().await
    }

    /// Reads the bundles again.
    pub async fn reload(&self) {
        self.shared.reload_catalog().await;
    }
}
