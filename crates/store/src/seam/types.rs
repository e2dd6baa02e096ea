//! What goes in and comes out at the seam.

use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::admit::{ActiveJob, BindingStanding, InstanceStanding, Verdict};
use evenkeel_core::attempt::{Charge, Containment, Death, End};
use evenkeel_core::boot::{self, DeathRecord};
use evenkeel_core::forensics::Forensics;
use evenkeel_core::hold::Cause;
use evenkeel_core::ids::{
    AttemptId, BindingId, BindingUid, BootId, BundleDigest, InstanceId, InstanceUid, JobId, PlanId,
    Platform, RequestDigest, RunRootId, ServiceId, Token,
};
use evenkeel_core::instance::Status;
use evenkeel_core::job::Job;
use evenkeel_core::policy::Chance;
use evenkeel_core::recovery::Exposure;
use evenkeel_core::request::{JobBody, KeptData, Object, Outputs};
use evenkeel_core::time::Timestamp;

/// The right of one boot to write about one attempt: conditional on all four.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: AttemptId,
    /// The owner.
    pub boot: BootId,
    /// The job's token when it became the owner.
    pub token: Token,
}

/// The outcome of an owner's write.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Owned<T> {
    /// It was still the owner, and this was written or read.
    Mine(T),
    /// It no longer is: nothing was changed, and it has to stop.
    Lost,
}

/// A broker process that begins its life.
#[derive(Clone, Debug)]
pub struct NewBoot {
    /// Its name.
    pub id: BootId,
    /// Where its runs live.
    pub run_root: RunRootId,
    /// When it began.
    pub at: Timestamp,
    /// Its process id.
    pub pid: u32,
    /// `/proc/sys/kernel/random/boot_id` of the host.
    pub host_boot: String,
    /// The release.
    pub version: String,
}

/// A boot as the store knows it.
#[derive(Clone, Debug)]
pub struct Boot {
    /// Its name.
    pub id: BootId,
    /// Its place in the order of all boots, which no clock that is set back changes: each has a
    /// greater one than those before it.
    pub nth: u64,
    /// Where its runs live.
    pub run_root: RunRootId,
    /// When it began.
    pub started_at: Timestamp,
    /// `boot_id` of the host that it ran on.
    pub host_boot: String,
    /// When it left its drain mark.
    pub drained_at: Option<Timestamp>,
    /// Which part of it had panicked, where it handed over for that.
    pub broke: Option<String>,
    /// When it was last known to be alive.
    pub seen_at: Timestamp,
    /// When the verdict on its death was given.
    pub closed_at: Option<Timestamp>,
}

impl Boot {
    /// Whether it ended in order; see [`boot::ended_in_order`].
    pub fn ended_in_order(&self) -> bool {
        boot::ended_in_order(self.drained_at.is_some(), self.broke.is_some())
    }
}

/// The end of holds.
#[derive(Clone, Debug)]
pub struct Release {
    /// Which.
    pub causes: Vec<Cause>,
    /// Who ends them: the deaths of all other boots never count again.
    pub boot: BootId,
    /// By whose word: `operator`, `broker`.
    pub actor: String,
    /// Why, in words.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// A boot as an operator sees it.
#[derive(Clone, Debug)]
pub struct BootView {
    /// The boot.
    pub boot: Boot,
    /// Its process id.
    pub pid: u32,
    /// The release.
    pub version: String,
    /// The verdict on its death, once given.
    pub verdict: Option<String>,
    /// How it ended, if a warden saw it; without its last words.
    pub death: Option<DeathRecord>,
    /// Jobs that its black box names, once they are counted; at most 64.
    pub named: Vec<JobId>,
}

/// A job that is to be accepted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its name.
    pub job: JobId,
    /// What is asked.
    pub action: Action,
    /// Who asks.
    pub platform: Platform,
    /// The instance, by the platform's name.
    pub instance: InstanceId,
    /// The uid that a new life of the instance gets.
    pub new_instance_uid: InstanceUid,
    /// The binding, by the platform's name, and the uid that a new life of it gets.
    pub binding: Option<(BindingId, BindingUid)>,
    /// The service offering.
    pub service: ServiceId,
    /// The plan that the job works towards.
    pub plan: PlanId,
    /// The bundle content that carries it out.
    pub bundle: BundleDigest,
    /// The request, as far as it tells requests apart.
    pub digest: RequestDigest,
    /// What `body` was made from, if from an instance that exists. If it has changed since, the
    /// outcome is [`Submitted::Stale`].
    pub base: Option<Base>,
    /// For an update: the order that would ask for what the instance is once this has succeeded.
    pub becomes: Option<RequestDigest>,
    /// Whether an instance that another platform ordered does not exist for this one.
    pub isolated: bool,
    /// The wholly resolved input; sealed by the store.
    pub body: JobBody,
    /// Tries that the action may ask for.
    pub retries: u32,
    /// When.
    pub at: Timestamp,
    /// When it is final at the latest.
    pub deadline_at: Timestamp,
    /// For a delete: an unbind for each binding that is not gone. Must name exactly those, else
    /// the outcome is [`Submitted::Stale`]. Empty where the bundle has no unbind action
    /// (`cascade_without_jobs`).
    pub cascade: Vec<CascadeUnbind>,
    /// The bundle has no unbind action: bindings go with their instance, without jobs.
    pub cascade_without_jobs: bool,
}

/// An instance as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// Its life.
    pub uid: InstanceUid,
    /// How often what is applied had changed.
    pub revision: u64,
}

/// The unbind of one binding that goes before the delete of its instance.
#[derive(Clone, Debug)]
pub struct CascadeUnbind {
    /// The job's name.
    pub job: JobId,
    /// The binding.
    pub binding: BindingId,
    /// Its input.
    pub body: JobBody,
    /// Tries that the action may ask for.
    pub retries: u32,
}

/// What became of a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// On disk. `job` is queued, or quarantined where the budget is spent.
    Accepted {
        /// The job as it was written.
        job: Box<Job>,
        /// Jobs under way that were asked to stop: their runs are to be told.
        stopped: Vec<JobId>,
    },
    /// Nothing was written; the verdict says why.
    Refused(Verdict),
    /// Nothing was written: bindings came or went since `cascade` was made, or the instance changed
    /// since `base` was read. Make it again.
    Stale,
}

/// How many jobs a boot wants, and of which.
#[derive(Clone, Debug)]
pub struct ClaimDue {
    /// Who claims.
    pub boot: BootId,
    /// Where the runs will live.
    pub run_root: RunRootId,
    /// When.
    pub at: Timestamp,
    /// One name for each job that may be claimed: the number of free slots.
    pub attempts: Vec<AttemptId>,
    /// Most jobs of one service that may be running at once.
    pub per_service: u32,
    /// Whether a suspect may be claimed now (nothing else runs and its turn has come). Then it
    /// is the only one claimed; suspects are passed over otherwise.
    pub solo: bool,
}

/// A job that was claimed.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The job, running.
    pub job: Job,
    /// The right to write about it.
    pub fence: Fence,
}

/// The taking over of an attempt.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The right that its owner had.
    pub from: Fence,
    /// Who takes it.
    pub boot: BootId,
    /// When.
    pub at: Timestamp,
}

/// The death of a broker that is to be counted against an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Exposing {
    /// Whose death, and how near the attempt was.
    pub exposure: Exposure,
    /// How long the run is known to have lived.
    pub ran: Duration,
    /// When it is counted.
    pub at: Timestamp,
}

/// What an attempt needs.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The job's resolved input.
    pub body: JobBody,
    /// `data` of earlier actions.
    pub data: KeptData,
}

/// How an owned attempt ended.
#[derive(Clone, Debug)]
pub struct Finish {
    /// Who writes. What is written about the attempt of a boot that is dead is nothing that this boot
    /// got done.
    pub by: BootId,
    /// How.
    pub end: End,
    /// How long its run is known to have lived.
    pub ran: Duration,
    /// What it wrote, if it succeeded (or has something private to keep).
    pub outputs: Option<Outputs>,
    /// The last line of progress.
    pub progress: Option<String>,
    /// Peak memory in bytes and processor time in milliseconds, where known.
    pub usage: (Option<u64>, Option<u64>),
    /// When its run was started, and how it was held: kept where it was not noted at the start.
    pub started: (Option<Timestamp>, Option<Containment>),
    /// What else is known of a bad end.
    pub forensics: Option<Forensics>,
    /// When.
    pub at: Timestamp,
    /// Spreads the backoff.
    pub chance: Chance,
}

/// What became of a wish to stop a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// It was waiting, and is final now.
    Ended(Box<Job>),
    /// Its run is to be stopped by this owner.
    Asked(Fence),
    /// It was final already.
    Final(Box<Job>),
    /// There is no such job.
    Unknown,
}

/// What became of an operator's retry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Retried {
    /// A new job was queued.
    Queued(Box<Job>),
    /// Something else is under way for the same target.
    Busy(JobId),
    /// Only a job that ended without success can be retried.
    NotRetryable(&'static str),
    /// Its target is gone, or has begun a new life.
    TargetGone,
    /// There is no such job.
    Unknown,
}

/// What a discard or a forget did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marked {
    /// It is on record now.
    Done,
    /// It was already.
    Already,
    /// It does not apply to a thing in this state.
    NotApplicable,
    /// There is no such thing.
    Unknown,
}

/// The standing of an instance and, if asked for, of one of its bindings; only lives that are
/// not over.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The instance.
    pub instance: Option<InstanceStanding>,
    /// The binding.
    pub binding: Option<BindingStanding>,
    /// The bundle content that the instance is pinned to.
    pub bundle: Option<BundleDigest>,
    /// Who ordered it.
    pub platform: Option<Platform>,
}

/// An instance as people and platforms may see it. `parameters` and `outputs` are unsealed.
#[derive(Clone, Debug)]
pub struct InstanceView {
    /// Its present or last life.
    pub uid: InstanceUid,
    /// The platform's name for it.
    pub id: InstanceId,
    /// Who ordered it.
    pub platform: Platform,
    /// Its service offering.
    pub service: ServiceId,
    /// Its applied plan (the desired one while it is being made).
    pub plan: PlanId,
    /// Its bundle content.
    pub bundle: BundleDigest,
    /// How often what is applied has changed.
    pub revision: u64,
    /// Where it stands.
    pub status: Status,
    /// Applied parameters.
    pub parameters: Object,
    /// The newest context.
    pub context: Object,
    /// `organization_guid` and `space_guid`, as ordered.
    pub organization_guid: Option<String>,
    /// See `organization_guid`.
    pub space_guid: Option<String>,
    /// Applied `maintenance_info.version`.
    pub maintenance_version: Option<String>,
    /// What provision (and update) wrote; without `data`.
    pub outputs: Outputs,
    /// What is wrong with a part that could not be read, and is empty here.
    pub damage: Option<String>,
    /// Jobs under way for the instance itself.
    pub active: Vec<ActiveJob>,
    /// When it was ordered.
    pub created_at: Timestamp,
    /// When it was gone.
    pub deleted_at: Option<Timestamp>,
}

/// A binding as people and platforms may see it. `parameters` and `outputs` are unsealed.
#[derive(Clone, Debug)]
pub struct BindingView {
    /// Its present or last life.
    pub uid: BindingUid,
    /// The platform's name for it.
    pub id: BindingId,
    /// Its instance.
    pub instance: InstanceUid,
    /// Where it stands.
    pub status: Status,
    /// Its parameters.
    pub parameters: Object,
    /// Its `bind_resource`.
    pub bind_resource: Object,
    /// Its context.
    pub context: Object,
    /// What bind wrote; without `data`.
    pub outputs: Outputs,
    /// What is wrong with a part that could not be read, and is empty here.
    pub damage: Option<String>,
    /// Jobs under way for it.
    pub active: Vec<ActiveJob>,
    /// When it was ordered.
    pub created_at: Timestamp,
    /// When it was gone.
    pub deleted_at: Option<Timestamp>,
}

/// What a poll finds: a job's header, and how its target stands.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The job.
    pub job: Job,
    /// The last line of progress.
    pub progress: Option<String>,
    /// Who ordered the instance.
    pub owner: Platform,
    /// Whether the life of the target that it belongs to is over.
    pub target_deleted: bool,
}

/// One attempt as it is on record.
#[derive(Clone, Debug)]
pub struct AttemptRecord {
    /// Its name.
    pub id: AttemptId,
    /// 1 for the first try of the job.
    pub ordinal: u32,
    /// Who owns or owned it.
    pub boot: BootId,
    /// Where its run lives or lived.
    pub run_root: RunRootId,
    /// Whether it ran alone at first.
    pub solo: bool,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When its run was started.
    pub started_at: Option<Timestamp>,
    /// How its run is held.
    pub containment: Option<Containment>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How.
    pub end: Option<End>,
    /// What it cost.
    pub charge: Option<Charge>,
    /// Peak memory in bytes and processor time in milliseconds, where known.
    pub usage: (Option<u64>, Option<u64>),
    /// Brokers that died near it, as far as they are counted; oldest first.
    pub deaths: Vec<Death>,
    /// What else is known of a bad end.
    pub forensics: Option<Forensics>,
}

/// A boot that owned an attempt of a job, or died near one, and is over.
#[derive(Clone, Debug)]
pub struct EndedBoot {
    /// The boot.
    pub id: BootId,
    /// When it was last known to be alive.
    pub seen_at: Timestamp,
    /// When it left its drain mark.
    pub drained_at: Option<Timestamp>,
    /// The verdict on its end, in words; `None` if it has not been given yet.
    pub verdict: Option<String>,
    /// What its warden saw of its end; without its last words.
    pub death: Option<DeathRecord>,
}

/// A job with its history.
#[derive(Clone, Debug)]
pub struct JobDetail {
    /// The header.
    pub job: Job,
    /// The instance, by the platform's name.
    pub instance: InstanceId,
    /// The last line of progress.
    pub progress: Option<String>,
    /// When the last change was.
    pub updated_at: Timestamp,
    /// When it became final.
    pub finished_at: Option<Timestamp>,
    /// When an operator discarded it.
    pub discarded_at: Option<Timestamp>,
    /// Jobs that have to be final before it may be claimed.
    pub after: Vec<JobId>,
    /// Its attempts, oldest first; at most 1,000.
    pub attempts: Vec<AttemptRecord>,
    /// What was done to it by whom, oldest first; at most 1,000.
    pub audit: Vec<AuditRecord>,
}

/// A line of the audit table.
#[derive(Clone, Debug)]
pub struct AuditRecord {
    /// When.
    pub at: Timestamp,
    /// Who: `platform:NAME`, `operator`, `broker`.
    pub actor: String,
    /// What: `submit`, `retry`, `discard`, `cancel`, `clear`, `quarantine`, …
    pub what: String,
    /// In words.
    pub detail: String,
}

/// Which jobs to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only in these states (words of [`evenkeel_core::job::State::as_str`]); empty: all.
    pub states: Vec<String>,
    /// Only of this instance.
    pub instance: Option<InstanceId>,
    /// Only of this service.
    pub service: Option<ServiceId>,
    /// Only suspects that are not final: whose next run, or the one under way, is isolated.
    pub suspect: bool,
    /// Only older than this one (the last of the page before).
    pub before: Option<JobId>,
    /// At most this many; the store holds it to 1,000.
    pub limit: u32,
}

/// A job in a list.
#[derive(Clone, Debug)]
pub struct JobSummary {
    /// The header.
    pub job: Job,
    /// The instance, by the platform's name.
    pub instance: InstanceId,
    /// The last line of progress.
    pub progress: Option<String>,
    /// When the last change was.
    pub updated_at: Timestamp,
    /// When an operator discarded it.
    pub discarded_at: Option<Timestamp>,
}

/// A job recorded as running, as recovery sees it: no body is read.
#[derive(Clone, Debug)]
pub enum RunningRow {
    /// Its header is sound.
    Sound(Box<Job>),
    /// Its header cannot be read; what could be is here.
    Unreadable {
        /// The attempt that it names, whose run may live: it is to be ended first.
        attempt: Option<AttemptId>,
        /// The job's name, as text.
        job: String,
        /// What is wrong.
        message: String,
    },
}

/// When there is work.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NextDue {
    /// A job that is no suspect is due now.
    pub due: bool,
    /// The oldest due job is a suspect's (or only suspects are due).
    pub suspect_first: bool,
    /// Which one that is, if its name can be read.
    pub suspect: Option<JobId>,
    /// When the next job in backoff is due.
    pub next_at: Option<Timestamp>,
}
