//! The one seam that every database stands behind, named by intent.
//!
//! Each method of [`Store`] is one transaction. Whoever owns an attempt writes through a
//! [`Fence`]: when the job has changed hands the answer is [`Owned::Lost`], and the caller stops.
//! Decisions are not taken here: methods load rows, ask `evenkeel_core` (`admit`, `transition`,
//! `settle`) and write down what it says.

use std::time::Duration;

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

use crate::error::StoreError;

mod counts;
mod types;

pub use counts::Counts;
pub use types::{
    Adoption, AttemptRecord, AuditRecord, Base, BindingView, Boot, BootView, CascadeUnbind,
    ClaimDue, Claimed, EndedBoot, Exposing, Fence, Finish, Inputs, InstanceView, JobDetail,
    JobFilter, JobSummary, Marked, NewBoot, NextDue, Operation, Owned, Release, Retried,
    RunningRow, Standing, Stopped, Submission, Submitted,
};

/// How near in time two bad ends have to be to be told together.
pub const BESIDE: Duration = Duration::from_secs(5);

/// What readers ask. Reads see committed rows only.
#[async_trait]
pub trait Read: Send + Sync + std::fmt::Debug {
    /// How an instance (and one of its bindings) stands.
    async fn standing(
        &self,
        instance: &InstanceId,
        binding: Option<&BindingId>,
    ) -> Result<Standing, StoreError>;

    /// An instance's present life, else its last one.
    async fn instance(&self, id: &InstanceId) -> Result<Option<InstanceView>, StoreError>;

    /// A binding's present life, else its last one, within the instance's present or last life.
    async fn binding(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<Option<BindingView>, StoreError>;

    /// Bindings of an instance's present life that are not gone, oldest first.
    async fn bindings(&self, instance: &InstanceId) -> Result<Vec<BindingView>, StoreError>;

    /// The job that a poll is about: the named one if it belongs to the instance (or binding) in
    /// this or an earlier life, else the latest of the present life, else of the last one.
    async fn operation(
        &self,
        instance: &InstanceId,
        binding: Option<&BindingId>,
        named: Option<JobId>,
    ) -> Result<Option<Operation>, StoreError>;

    /// One job with its history.
    async fn job(&self, id: JobId) -> Result<Option<JobDetail>, StoreError>;

    /// Jobs, newest first.
    async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobSummary>, StoreError>;

    /// Boots, newest first by [`Boot::nth`], at most `limit`.
    async fn boots(&self, limit: u32) -> Result<Vec<BootView>, StoreError>;

    /// Other jobs whose attempts came to a bad end within [`BESIDE`] of one of this job's bad
    /// ends, or were lost with the same boot, oldest first; at most `limit`, held to 1,000.
    async fn beside(&self, job: JobId, limit: u32) -> Result<Vec<Beside>, StoreError>;

    /// Boots other than `present` that own or owned this job's attempts, or whose deaths are counted
    /// against them, oldest first; at most 1,000.
    async fn ended_boots(&self, job: JobId, present: BootId) -> Result<Vec<EndedBoot>, StoreError>;

    /// How many there are of what.
    async fn counts(&self) -> Result<Counts, StoreError>;
}

/// What the engine does. Every method is one transaction.
#[async_trait]
pub trait Store: Read {
    /// The numbers that decisions depend on.
    fn policy(&self) -> Policy;

    /// Registers a boot.
    async fn open_boot(&self, boot: &NewBoot) -> Result<(), StoreError>;

    /// Notes that a boot lives.
    async fn boot_seen(&self, boot: BootId, at: Timestamp) -> Result<(), StoreError>;

    /// Leaves a boot's drain mark, with what had panicked where it hands over for that. The first
    /// mark stays.
    async fn mark_drained(
        &self,
        boot: BootId,
        broke: Option<&'static str>,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Keeps how a boot ended, without its last words. The first record stays. One that was asked
    /// to end counts as drained.
    async fn boot_died(&self, boot: BootId, death: DeathRecord) -> Result<(), StoreError>;

    /// Boots on which no verdict has been given, oldest first by [`Boot::nth`].
    async fn open_boots(&self) -> Result<Vec<Boot>, StoreError>;

    /// One boot.
    async fn boot(&self, id: BootId) -> Result<Option<Boot>, StoreError>;

    /// Gives the verdict on a dead boot, once: `false` if it was given before.
    async fn close_boot(
        &self,
        boot: BootId,
        verdict: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError>;

    /// How the last boots but `before` ended, newest first, at most `limit`. Each of them is dead.
    async fn boot_ends(&self, before: BootId, limit: u32) -> Result<Vec<BootEnd>, StoreError>;

    /// What is on record of why no new run starts.
    async fn holds(&self) -> Result<Vec<Hold>, StoreError>;

    /// Puts a hold of a kind that outlives a process on record. One of its kind that is there keeps
    /// its beginning.
    async fn hold(&self, hold: &Hold) -> Result<(), StoreError>;

    /// Ends holds, on record, and forgives the deaths of all boots but one.
    async fn release(&self, release: Release) -> Result<(), StoreError>;

    /// Accepts a job, if `admit` says so.
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError>;

    /// Keeps the newest context of an instance that lives and for which no job is under way; says
    /// whether it did.
    async fn keep_context(
        &self,
        instance: InstanceUid,
        context: Object,
        at: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Claims due jobs, oldest first but fairly between services: round robin over services,
    /// none over `per_service`. A due job whose budget is spent or whose deadline has passed ends
    /// here, without an attempt. Skips jobs of a newer codec version.
    async fn claim_due(&self, claim: ClaimDue) -> Result<Vec<Claimed>, StoreError>;

    /// When the next job in backoff is due, and whether anything (a suspect?) is due now.
    async fn next_due(&self, now: Timestamp) -> Result<NextDue, StoreError>;

    /// Takes over an attempt of a boot that is dead (or of this one, if it lost its driver).
    async fn adopt(&self, adoption: Adoption) -> Result<Owned<Claimed>, StoreError>;

    /// Counts the death of a broker against an attempt, whoever owns it now; once for each boot.
    /// The owner and its fence stay. A job that a black box names is noted with the boot too.
    async fn expose(&self, fence: Fence, near: Exposing) -> Result<Owned<Job>, StoreError>;

    /// What an attempt needs.
    async fn inputs(&self, fence: Fence) -> Result<Owned<Inputs>, StoreError>;

    /// Notes that an attempt's run was started.
    async fn started(
        &self,
        fence: Fence,
        containment: Option<Containment>,
        at: Timestamp,
    ) -> Result<Owned<()>, StoreError>;

    /// Notes the last line of progress.
    async fn progress(
        &self,
        fence: Fence,
        line: &str,
        at: Timestamp,
    ) -> Result<Owned<()>, StoreError>;

    /// Ends an attempt: its record, the job's state and budget, instance or binding, sealed
    /// outputs, together.
    async fn finish_attempt(&self, fence: Fence, finish: Finish) -> Result<Owned<Job>, StoreError>;

    /// Asks a job to stop.
    async fn stop_job(
        &self,
        job: JobId,
        reason: StopReason,
        actor: &str,
        at: Timestamp,
    ) -> Result<Stopped, StoreError>;

    /// Jobs whose deadline has passed: those that wait are failed here; those that run are
    /// marked to stop, and returned for their owners to act on. At most `limit` a call.
    async fn expire(&self, now: Timestamp, limit: u32) -> Result<Vec<Fence>, StoreError>;

    /// Jobs that this boot owns and that are to stop.
    async fn stopping(&self, boot: BootId) -> Result<Vec<Fence>, StoreError>;

    /// Jobs recorded as running, oldest first, `limit` at a time.
    async fn running(
        &self,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<RunningRow>, StoreError>;

    /// Quarantines a job whose header cannot be read, or whose end cannot be written, by its id as
    /// text.
    async fn set_aside(&self, job: &str, message: &str, at: Timestamp) -> Result<(), StoreError>;

    /// Of these attempts, those that some job's row still claims as its present one.
    async fn claimed_attempts(&self, attempts: &[AttemptId]) -> Result<Vec<AttemptId>, StoreError>;

    /// Of these instances, those that are known to be deleted: not those that are not known.
    async fn deleted_instances(
        &self,
        instances: &[InstanceUid],
    ) -> Result<Vec<InstanceUid>, StoreError>;

    /// Lifts suspicion from a job's target, by an operator's word.
    async fn clear_suspicion(
        &self,
        job: JobId,
        actor: &str,
        at: Timestamp,
    ) -> Result<Marked, StoreError>;

    /// A new job for the target of one that ended without success; clears the budget, on record.
    async fn retry(
        &self,
        job: JobId,
        new: JobId,
        actor: &str,
        at: Timestamp,
        deadline_at: Timestamp,
    ) -> Result<Retried, StoreError>;

    /// Marks a quarantined job as dealt with. A discarded provision goes into the register of
    /// what may have leaked.
    async fn discard(&self, job: JobId, actor: &str, at: Timestamp) -> Result<Marked, StoreError>;

    /// Removes final jobs, tombstones and audit lines that ended before `before`, at most
    /// `limit` jobs; gives how many.
    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u32, StoreError>;

    /// A digest that tells requests apart, under the installation's own key.
    fn digest(&self, canonical: &[u8]) -> RequestDigest;

    /// Writes and reads something, to know that the store works. Also the canary.
    async fn check(&self) -> Result<(), StoreError>;

    /// Until a part of the store that all share has panicked; says which. What replaces it serves
    /// for as long as it takes to hand over.
    async fn broken(&self) -> &'static str;
}
