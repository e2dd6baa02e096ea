//! A store with a point before and after each write: `store.NAME.before`, `store.NAME.after`.
//! Reads are passed on: nothing can be half done by them.

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
use evenkeel_executor::faults::{Fault, due, watched};
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{
    Adoption, BindingView, Boot, BootView, ClaimDue, Claimed, Counts, EndedBoot, Exposing, Fence,
    Finish, Inputs, InstanceView, JobDetail, JobFilter, JobSummary, Marked, NewBoot, NextDue,
    Operation, Owned, Read, Release, Retried, RunningRow, Standing, Stopped, Store, Submission,
    Submitted,
};

use super::armed::act;
use crate::attempt;

type Answer<T> = Result<T, StoreError>;

/// Where a job in backoff or in the queue is looked up before a claim.
const WAITING: u32 = 16;

#[derive(Debug)]
pub(super) struct Faulty {
    real: Arc<dyn Store>,
}

impl Faulty {
    pub(super) fn new(real: Arc<dyn Store>) -> Self {
        Self { real }
    }

    /// A write between its two points. `about` is found out only if a rule is about one of them.
    async fn write<T>(
        &self,
        name: &str,
        about: impl Future<Output = String>,
        call: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        let (before, after) = (format!("{name}.before"), format!("{name}.after"));
        let about = if watched(&before) || watched(&after) {
            about.await
        } else {
            String::new()
        };
        reach(&before, &about)?;
        let done = call.await;
        reach(&after, &about)?;
        done
    }

    async fn job_about(&self, job: JobId) -> String {
        match self.real.job(job).await {
            Ok(Some(found)) => attempt::about(&found.job),
            Ok(None) | Err(_) => job.to_string(),
        }
    }

    /// What waits and may be claimed, oldest first.
    async fn waiting(&self) -> String {
        let filter = JobFilter {
            states: vec!["queued".to_owned(), "backoff".to_owned()],
            limit: WAITING,
            ..JobFilter::default()
        };
        let found = self.real.jobs(&filter).await.unwrap_or_default();
        let about: Vec<_> = found
            .iter()
            .rev()
            .map(|found| attempt::about(&found.job))
            .collect();
        about.join(", ")
    }
}

/// The store's own faults are answers; all others are done here.
fn reach(point: &str, about: &str) -> Answer<()> {
    for fault in due(point, || about.to_owned()) {
        match fault {
            Fault::Lost => {
                return Err(StoreError::Unknown(format!(
                    "the answer was lost at {point}"
                )));
            }
            Fault::Error(kind) => return Err(error(kind, point)),
            Fault::Kill
            | Fault::Abort
            | Fault::Exit
            | Fault::Segv
            | Fault::Overflow
            | Fault::Alloc
            | Fault::Oom
            | Fault::Panic
            | Fault::DropPanic
            | Fault::DoublePanic
            | Fault::PanicLocked
            | Fault::Stop
            | Fault::Wedge
            | Fault::Hold(_)
            | Fault::Delay(_) => act(fault, point),
        }
    }
    Ok(())
}

fn error(kind: &str, point: &str) -> StoreError {
    let text = format!("fault injected at {point}");
    match kind {
        "unavailable" => StoreError::Unavailable(text),
        "full" => StoreError::Full(text),
        "overloaded" => StoreError::Overloaded,
        "damaged" => StoreError::Damaged(text),
        "unreadable" => StoreError::Unreadable(text),
        "panicked" => StoreError::Panicked(text),
        other => panic!("EVENKEEL_FAULTS: the store at {point} has no error {other:?}"),
    }
}

async fn text(about: impl ToString) -> String {
    about.to_string()
}

#[async_trait]
impl Read for Faulty {
    async fn standing(
        &self,
        instance: &InstanceId,
        binding: Option<&BindingId>,
    ) -> Answer<Standing> {
        self.real.standing(instance, binding).await
    }

    async fn instance(&self, id: &InstanceId) -> Answer<Option<InstanceView>> {
        self.real.instance(id).await
    }

    async fn binding(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Answer<Option<BindingView>> {
        self.real.binding(instance, binding).await
    }

    async fn bindings(&self, instance: &InstanceId) -> Answer<Vec<BindingView>> {
        self.real.bindings(instance).await
    }

    async fn operation(
        &self,
        instance: &InstanceId,
        binding: Option<&BindingId>,
        named: Option<JobId>,
    ) -> Answer<Option<Operation>> {
        self.real.operation(instance, binding, named).await
    }

    async fn job(&self, id: JobId) -> Answer<Option<JobDetail>> {
        self.real.job(id).await
    }

    async fn jobs(&self, filter: &JobFilter) -> Answer<Vec<JobSummary>> {
        self.real.jobs(filter).await
    }

    async fn boots(&self, limit: u32) -> Answer<Vec<BootView>> {
        self.real.boots(limit).await
    }

    async fn beside(&self, job: JobId, limit: u32) -> Answer<Vec<Beside>> {
        self.real.beside(job, limit).await
    }

    async fn ended_boots(&self, job: JobId, present: BootId) -> Answer<Vec<EndedBoot>> {
        self.real.ended_boots(job, present).await
    }

    async fn counts(&self) -> Answer<Counts> {
        self.real.counts().await
    }
}

#[async_trait]
impl Store for Faulty {
    fn policy(&self) -> Policy {
        self.real.policy()
    }

    async fn open_boot(&self, boot: &NewBoot) -> Answer<()> {
        let call = self.real.open_boot(boot);
        self.write("store.open_boot", text(boot.id), call).await
    }

    async fn boot_seen(&self, boot: BootId, at: Timestamp) -> Answer<()> {
        let call = self.real.boot_seen(boot, at);
        self.write("store.boot_seen", text(boot), call).await
    }

    async fn mark_drained(
        &self,
        boot: BootId,
        broke: Option<&'static str>,
        at: Timestamp,
    ) -> Answer<()> {
        let call = self.real.mark_drained(boot, broke, at);
        self.write("store.mark_drained", text(boot), call).await
    }

    async fn open_boots(&self) -> Answer<Vec<Boot>> {
        self.real.open_boots().await
    }

    async fn boot(&self, id: BootId) -> Answer<Option<Boot>> {
        self.real.boot(id).await
    }

    async fn close_boot(&self, boot: BootId, verdict: &str, at: Timestamp) -> Answer<bool> {
        let call = self.real.close_boot(boot, verdict, at);
        self.write("store.close_boot", text(boot), call).await
    }

    async fn boot_died(&self, boot: BootId, death: DeathRecord) -> Answer<()> {
        let call = self.real.boot_died(boot, death);
        self.write("store.boot_died", text(boot), call).await
    }

    async fn boot_ends(&self, before: BootId, limit: u32) -> Answer<Vec<BootEnd>> {
        self.real.boot_ends(before, limit).await
    }

    async fn holds(&self) -> Answer<Vec<Hold>> {
        self.real.holds().await
    }

    async fn hold(&self, hold: &Hold) -> Answer<()> {
        let call = self.real.hold(hold);
        self.write("store.hold", text(hold.cause.as_str()), call)
            .await
    }

    async fn release(&self, release: Release) -> Answer<()> {
        let about = release.actor.clone();
        let call = self.real.release(release);
        self.write("store.release", text(about), call).await
    }

    async fn broken(&self) -> &'static str {
        self.real.broken().await
    }

    async fn submit(&self, submission: Submission) -> Answer<Submitted> {
        let about = format!("{} {}", submission.action, submission.job);
        let call = self.real.submit(submission);
        self.write("store.submit", text(about), call).await
    }

    async fn keep_context(
        &self,
        instance: InstanceUid,
        context: Object,
        at: Timestamp,
    ) -> Answer<bool> {
        let call = self.real.keep_context(instance, context, at);
        self.write("store.keep_context", text(instance), call).await
    }

    async fn claim_due(&self, claim: ClaimDue) -> Answer<Vec<Claimed>> {
        let call = self.real.claim_due(claim);
        self.write("store.claim_due", self.waiting(), call).await
    }

    async fn next_due(&self, now: Timestamp) -> Answer<NextDue> {
        self.real.next_due(now).await
    }

    async fn adopt(&self, adoption: Adoption) -> Answer<Owned<Claimed>> {
        let about = self.job_about(adoption.from.job);
        let call = self.real.adopt(adoption);
        self.write("store.adopt", about, call).await
    }

    async fn expose(&self, fence: Fence, near: Exposing) -> Answer<Owned<Job>> {
        let call = self.real.expose(fence, near);
        self.write("store.expose", self.job_about(fence.job), call)
            .await
    }

    async fn inputs(&self, fence: Fence) -> Answer<Owned<Inputs>> {
        self.real.inputs(fence).await
    }

    async fn started(
        &self,
        fence: Fence,
        containment: Option<Containment>,
        at: Timestamp,
    ) -> Answer<Owned<()>> {
        let call = self.real.started(fence, containment, at);
        self.write("store.started", self.job_about(fence.job), call)
            .await
    }

    async fn progress(&self, fence: Fence, line: &str, at: Timestamp) -> Answer<Owned<()>> {
        let call = self.real.progress(fence, line, at);
        self.write("store.progress", self.job_about(fence.job), call)
            .await
    }

    async fn finish_attempt(&self, fence: Fence, finish: Finish) -> Answer<Owned<Job>> {
        let call = self.real.finish_attempt(fence, finish);
        self.write("store.finish_attempt", self.job_about(fence.job), call)
            .await
    }

    async fn stop_job(
        &self,
        job: JobId,
        reason: StopReason,
        actor: &str,
        at: Timestamp,
    ) -> Answer<Stopped> {
        let call = self.real.stop_job(job, reason, actor, at);
        self.write("store.stop_job", self.job_about(job), call)
            .await
    }

    async fn expire(&self, now: Timestamp, limit: u32) -> Answer<Vec<Fence>> {
        let call = self.real.expire(now, limit);
        self.write("store.expire", text(""), call).await
    }

    async fn stopping(&self, boot: BootId) -> Answer<Vec<Fence>> {
        self.real.stopping(boot).await
    }

    async fn running(&self, after: Option<JobId>, limit: u32) -> Answer<Vec<RunningRow>> {
        self.real.running(after, limit).await
    }

    async fn set_aside(&self, job: &str, message: &str, at: Timestamp) -> Answer<()> {
        let call = self.real.set_aside(job, message, at);
        self.write("store.set_aside", text(job), call).await
    }

    async fn claimed_attempts(&self, attempts: &[AttemptId]) -> Answer<Vec<AttemptId>> {
        self.real.claimed_attempts(attempts).await
    }

    async fn deleted_instances(&self, instances: &[InstanceUid]) -> Answer<Vec<InstanceUid>> {
        self.real.deleted_instances(instances).await
    }

    async fn clear_suspicion(&self, job: JobId, actor: &str, at: Timestamp) -> Answer<Marked> {
        let call = self.real.clear_suspicion(job, actor, at);
        self.write("store.clear_suspicion", self.job_about(job), call)
            .await
    }

    async fn retry(
        &self,
        job: JobId,
        new: JobId,
        actor: &str,
        at: Timestamp,
        deadline_at: Timestamp,
    ) -> Answer<Retried> {
        let call = self.real.retry(job, new, actor, at, deadline_at);
        self.write("store.retry", self.job_about(job), call).await
    }

    async fn discard(&self, job: JobId, actor: &str, at: Timestamp) -> Answer<Marked> {
        let call = self.real.discard(job, actor, at);
        self.write("store.discard", self.job_about(job), call).await
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Answer<u32> {
        let call = self.real.purge(before, limit);
        self.write("store.purge", text(""), call).await
    }

    fn digest(&self, canonical: &[u8]) -> RequestDigest {
        self.real.digest(canonical)
    }

    async fn check(&self) -> Answer<()> {
        let call = self.real.check();
        self.write("store.check", text(""), call).await
    }
}
