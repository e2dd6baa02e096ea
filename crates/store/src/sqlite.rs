//! SQLite behind the seam: one file, one writer thread with group commit, readers beside it.
//!
//! | module | what it does |
//! |---|---|
//! | `open` | lock, schema, key, threads |
//! | `writer`, `reader` | run requests in transactions |
//! | `db`, `rows` | from columns to meaning and back |
//! | `submit`, `claim`, `attempts`, `control`, `recover`, `boots`, `holds`, `purge` | the seam's writes |
//! | `settle` | what a job's end makes of its target |
//! | `read` | the seam's reads |

mod attempts;
mod boots;
mod claim;
mod control;
mod db;
mod fault;
mod holds;
mod open;
mod purge;
mod read;
mod reader;
mod recover;
mod rows;
mod settle;
mod submit;
#[cfg(test)]
mod tests;
mod worker;
mod writer;

use std::sync::Arc;

use async_trait::async_trait;
use evenkeel_core::attempt::Containment;
use evenkeel_core::boot::DeathRecord;
use evenkeel_core::forensics::Beside;
use evenkeel_core::hold::{BootEnd, Hold};
use evenkeel_core::ids::{
    AttemptId, BindingId, BootId, InstanceId, InstanceUid, JobId, RequestDigest,
};
use evenkeel_core::job::{Job, StopReason};
use evenkeel_core::policy::Policy;
use evenkeel_core::request::Object;
use evenkeel_core::time::Timestamp;

use self::open::Database;
pub use self::open::StoreOptions;
use self::reader::Readers;
use self::writer::Writer;
use crate::error::StoreError;
use crate::seam::{
    Adoption, BindingView, Boot, BootView, ClaimDue, Claimed, Counts, EndedBoot, Exposing, Fence,
    Finish, Inputs, InstanceView, JobDetail, JobFilter, JobSummary, Marked, NewBoot, NextDue,
    Operation, Owned, Read, Release, Retried, RunningRow, Standing, Stopped, Store, Submission,
    Submitted,
};

/// A store in a data folder. Dropping it waits for the requests that it has taken on, then
/// frees the folder.
#[derive(Debug)]
pub struct SqliteStore {
    // Readers end first: the last connection to close empties the log, and has to be a writer.
    readers: Readers,
    writer: Writer,
    database: Arc<Database>,
}

/// A store that was opened, and what opening did.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SqliteStore,
    /// The database was made just now.
    pub created: bool,
    /// The key file was made just now: whoever makes backups has to know.
    pub key_created: bool,
}

impl SqliteStore {
    /// Opens the store of a data folder; blocks, on the disk and (if told to wait) on the lock.
    ///
    /// # Errors
    /// `Locked`, `NewerSchema`, `WrongKey`, `Full`, `Damaged`, or `Unavailable` with the path
    /// and what to do about it.
    pub fn open(options: StoreOptions) -> Result<Opened, StoreError> {
        open::open(options)
    }
}

#[async_trait]
impl Read for SqliteStore {
    async fn standing(
        &self,
        instance: &InstanceId,
        binding: Option<&BindingId>,
    ) -> Result<Standing, StoreError> {
        let (instance, binding) = (instance.clone(), binding.cloned());
        self.readers
            .call(move |db| read::standing(db, &instance, binding.as_ref()))
            .await
    }

    async fn instance(&self, id: &InstanceId) -> Result<Option<InstanceView>, StoreError> {
        let id = id.clone();
        self.readers
            .call(move |db| rows::instance::view(db, &id))
            .await
    }

    async fn binding(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<Option<BindingView>, StoreError> {
        let (instance, binding) = (instance.clone(), binding.clone());
        self.readers
            .call(move |db| read::binding(db, &instance, &binding))
            .await
    }

    async fn bindings(&self, instance: &InstanceId) -> Result<Vec<BindingView>, StoreError> {
        let instance = instance.clone();
        self.readers
            .call(move |db| read::bindings(db, &instance))
            .await
    }

    async fn operation(
        &self,
        instance: &InstanceId,
        binding: Option<&BindingId>,
        named: Option<JobId>,
    ) -> Result<Option<Operation>, StoreError> {
        let (instance, binding) = (instance.clone(), binding.cloned());
        self.readers
            .call(move |db| read::operation(db, &instance, binding.as_ref(), named))
            .await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        self.readers.call(move |db| read::job(db, id)).await
    }

    async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        let filter = filter.clone();
        self.readers.call(move |db| read::jobs(db, &filter)).await
    }

    async fn boots(&self, limit: u32) -> Result<Vec<BootView>, StoreError> {
        self.readers.call(move |db| boots::newest(db, limit)).await
    }

    async fn beside(&self, job: JobId, limit: u32) -> Result<Vec<Beside>, StoreError> {
        self.readers
            .call(move |db| rows::attempt::beside(db, job, limit))
            .await
    }

    async fn ended_boots(&self, job: JobId, present: BootId) -> Result<Vec<EndedBoot>, StoreError> {
        self.readers
            .call(move |db| rows::attempt::ended_boots(db, job, present))
            .await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.readers.call(read::counts).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn policy(&self) -> Policy {
        self.database.policy
    }

    async fn open_boot(&self, boot: &NewBoot) -> Result<(), StoreError> {
        let boot = boot.clone();
        self.writer.call(move |db| boots::open(db, &boot)).await
    }

    async fn boot_seen(&self, boot: BootId, at: Timestamp) -> Result<(), StoreError> {
        self.writer.call(move |db| boots::seen(db, boot, at)).await
    }

    async fn mark_drained(
        &self,
        boot: BootId,
        broke: Option<&'static str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer
            .call(move |db| boots::drained(db, boot, broke, at))
            .await
    }

    async fn boot_died(&self, boot: BootId, death: DeathRecord) -> Result<(), StoreError> {
        self.writer
            .call(move |db| boots::died(db, boot, &death))
            .await
    }

    async fn open_boots(&self) -> Result<Vec<Boot>, StoreError> {
        self.readers.call(boots::all_open).await
    }

    async fn boot(&self, id: BootId) -> Result<Option<Boot>, StoreError> {
        self.readers.call(move |db| boots::one(db, id)).await
    }

    async fn close_boot(
        &self,
        boot: BootId,
        verdict: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let verdict = verdict.to_owned();
        self.writer
            .call(move |db| boots::close(db, boot, &verdict, at))
            .await
    }

    async fn boot_ends(&self, before: BootId, limit: u32) -> Result<Vec<BootEnd>, StoreError> {
        self.readers
            .call(move |db| holds::ends(db, before, limit))
            .await
    }

    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        self.readers.call(holds::all).await
    }

    async fn hold(&self, hold: &Hold) -> Result<(), StoreError> {
        let hold = hold.clone();
        self.writer.call(move |db| holds::set(db, &hold)).await
    }

    async fn release(&self, release: Release) -> Result<(), StoreError> {
        self.writer
            .call(move |db| holds::release(db, &release))
            .await
    }

    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        self.writer
            .call(move |db| submit::submit(db, &submission))
            .await
    }

    async fn keep_context(
        &self,
        instance: InstanceUid,
        context: Object,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.writer
            .call(move |db| rows::instance::keep_context(db, instance, &context, at))
            .await
    }

    async fn claim_due(&self, claim: ClaimDue) -> Result<Vec<Claimed>, StoreError> {
        self.writer
            .call(move |db| claim::claim_due(db, &claim))
            .await
    }

    async fn next_due(&self, now: Timestamp) -> Result<NextDue, StoreError> {
        self.readers.call(move |db| claim::next_due(db, now)).await
    }

    async fn adopt(&self, adoption: Adoption) -> Result<Owned<Claimed>, StoreError> {
        self.writer
            .call(move |db| attempts::adopt(db, &adoption))
            .await
    }

    async fn expose(&self, fence: Fence, near: Exposing) -> Result<Owned<Job>, StoreError> {
        self.writer
            .call(move |db| attempts::expose(db, &fence, &near))
            .await
    }

    async fn inputs(&self, fence: Fence) -> Result<Owned<Inputs>, StoreError> {
        self.readers
            .call(move |db| attempts::inputs(db, &fence))
            .await
    }

    async fn started(
        &self,
        fence: Fence,
        containment: Option<Containment>,
        at: Timestamp,
    ) -> Result<Owned<()>, StoreError> {
        self.writer
            .call(move |db| attempts::started(db, &fence, containment, at))
            .await
    }

    async fn progress(
        &self,
        fence: Fence,
        line: &str,
        at: Timestamp,
    ) -> Result<Owned<()>, StoreError> {
        let line = line.to_owned();
        self.writer
            .call(move |db| attempts::progress(db, &fence, &line, at))
            .await
    }

    async fn finish_attempt(&self, fence: Fence, finish: Finish) -> Result<Owned<Job>, StoreError> {
        self.writer
            .call(move |db| attempts::finish(db, &fence, &finish))
            .await
    }

    async fn stop_job(
        &self,
        job: JobId,
        reason: StopReason,
        actor: &str,
        at: Timestamp,
    ) -> Result<Stopped, StoreError> {
        let actor = actor.to_owned();
        self.writer
            .call(move |db| control::stop_job(db, job, &reason, &actor, at))
            .await
    }

    async fn expire(&self, now: Timestamp, limit: u32) -> Result<Vec<Fence>, StoreError> {
        self.writer
            .call(move |db| control::expire(db, now, limit))
            .await
    }

    async fn stopping(&self, boot: BootId) -> Result<Vec<Fence>, StoreError> {
        self.readers
            .call(move |db| control::stopping(db, boot))
            .await
    }

    async fn running(
        &self,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<RunningRow>, StoreError> {
        self.readers
            .call(move |db| recover::running(db, after, limit))
            .await
    }

    async fn set_aside(&self, job: &str, message: &str, at: Timestamp) -> Result<(), StoreError> {
        let (job, message) = (job.to_owned(), message.to_owned());
        self.writer
            .call(move |db| recover::set_aside(db, &job, &message, at))
            .await
    }

    async fn claimed_attempts(&self, attempts: &[AttemptId]) -> Result<Vec<AttemptId>, StoreError> {
        let attempts = attempts.to_vec();
        self.readers
            .call(move |db| recover::claimed_attempts(db, &attempts))
            .await
    }

    async fn deleted_instances(
        &self,
        instances: &[InstanceUid],
    ) -> Result<Vec<InstanceUid>, StoreError> {
        let instances = instances.to_vec();
        self.readers
            .call(move |db| recover::deleted_instances(db, &instances))
            .await
    }

    async fn clear_suspicion(
        &self,
        job: JobId,
        actor: &str,
        at: Timestamp,
    ) -> Result<Marked, StoreError> {
        let actor = actor.to_owned();
        self.writer
            .call(move |db| control::clear_suspicion(db, job, &actor, at))
            .await
    }

    async fn retry(
        &self,
        job: JobId,
        new: JobId,
        actor: &str,
        at: Timestamp,
        deadline_at: Timestamp,
    ) -> Result<Retried, StoreError> {
        let retry = control::Retry {
            job,
            new,
            actor: actor.to_owned(),
            at,
            deadline_at,
        };
        self.writer.call(move |db| control::retry(db, &retry)).await
    }

    async fn discard(&self, job: JobId, actor: &str, at: Timestamp) -> Result<Marked, StoreError> {
        let actor = actor.to_owned();
        self.writer
            .call(move |db| control::discard(db, job, &actor, at))
            .await
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u32, StoreError> {
        self.writer
            .call(move |db| purge::purge(db, before, limit))
            .await
    }

    fn digest(&self, canonical: &[u8]) -> RequestDigest {
        self.database.sealer.digest(canonical)
    }

    async fn broken(&self) -> &'static str {
        self.writer.broken().await;
        "the store's writer"
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.writer
            .call(|db| {
                db.execute(
                    "INSERT INTO meta (key, value) VALUES ('checked', '1')
                     ON CONFLICT DO UPDATE SET value = CAST(value AS INTEGER) + 1",
                    [],
                )?;
                let blob: Option<Vec<u8>> = db.value("SELECT sealed FROM canary", [])?;
                open::prove(db.sealer, &blob.unwrap_or_default())
            })
            .await?;
        self.readers
            .call(|db| db.value::<String>("SELECT value FROM meta WHERE key = 'checked'", []))
            .await?
            .map(|_| ())
            .ok_or_else(|| StoreError::Damaged("what was written cannot be read".to_owned()))
    }
}
