//! Headers of jobs: from columns to [`Job`] and back. The CHECKs of the schema repeat the shape.

use evenkeel_core::admit::ActiveJob;
use evenkeel_core::attempt::{Attempt, Death};
use evenkeel_core::ids::{JobId, PlanId, RequestDigest, Token};
use evenkeel_core::job::{BindingTarget, Job, State, Target};
use evenkeel_core::time::Timestamp;
use rusqlite::{Row, params};

use super::super::db::{Columns, Db, from_json, millis, signed, span, to_json};
use super::{UNFINISHED, budget};
use crate::error::StoreError;
use crate::seam::Fence;

/// `SELECT … FROM jobs j LEFT JOIN budgets b …` with the columns that [`read`] takes, followed
/// by `more` (each with a leading comma).
pub(crate) fn select(more: &str) -> String {
    format!(
        "SELECT j.id, j.instance_uid, j.binding_uid, j.binding_id, j.action, j.service_id,
             j.bundle, j.platform, j.created_at, j.deadline_at, j.token, j.attempts,
             j.tempfails, j.retries, j.superseded_by, j.retry_of, j.state,
             j.attempt_id, j.attempt_ordinal, j.boot_id, j.run_root, j.claimed_at, j.solo_ms,
             j.deaths, j.stop, j.next_at, j.reason, j.message, {}{more}
         FROM jobs j LEFT JOIN budgets b ON b.instance_uid = j.instance_uid
             AND b.binding_id = ifnull(j.binding_id, '') AND b.action = j.action",
        budget::COLUMNS
    )
}

/// How many columns [`read`] takes: further ones begin here.
pub(crate) const WIDTH: usize = 34;

/// # Errors
/// `Unreadable` if a column does not hold what it should.
pub(crate) fn read(row: &Row<'_>) -> Result<Job, StoreError> {
    let mut c = Columns::new(row);
    let id = c.parse()?;
    let instance = c.parse()?;
    let binding = match (c.parse_opt()?, c.parse_opt()?) {
        (Some(uid), Some(id)) => Some(BindingTarget { uid, id }),
        (None, None) => None,
        _ => return Err(StoreError::Unreadable("half a binding".to_owned())),
    };
    let mut job = Job {
        id,
        target: Target { instance, binding },
        action: c.parse()?,
        service: c.parse()?,
        bundle: c.parse()?,
        platform: c.parse()?,
        created_at: Timestamp(c.take()?),
        deadline_at: Timestamp(c.take()?),
        token: Token(c.count()?),
        attempts: c.take()?,
        tempfails: c.take()?,
        retries: c.take()?,
        superseded_by: c.parse_opt()?,
        retry_of: c.parse_opt()?,
        budget: evenkeel_core::budget::Budget::default(),
        state: State::Queued,
    };
    job.state = read_state(&mut c)?;
    job.budget = budget::read(&mut c)?;
    Ok(job)
}

fn read_state(c: &mut Columns<'_, '_>) -> Result<State, StoreError> {
    let word: String = c.take()?;
    let attempt = c.parse_opt()?;
    let ordinal: Option<u32> = c.take()?;
    let boot = c.parse_opt()?;
    let run_root = c.parse_opt()?;
    let claimed_at: Option<i64> = c.take()?;
    let solo: Option<i64> = c.take()?;
    let deaths: Option<Vec<Death>> = c.json()?;
    let stop = c.json()?;
    let next_at: Option<i64> = c.take()?;
    let reason: Option<String> = c.take()?;
    let message: Option<String> = c.take()?;
    let missing = |what: &str| StoreError::Unreadable(format!("{word} without {what}"));
    let reason_json = reason.as_deref().unwrap_or("");
    Ok(match word.as_str() {
        "queued" => State::Queued,
        "running" => State::Running {
            attempt: Attempt {
                id: attempt.ok_or_else(|| missing("an attempt"))?,
                ordinal: ordinal.ok_or_else(|| missing("an ordinal"))?,
                boot: boot.ok_or_else(|| missing("an owner"))?,
                run_root: run_root.ok_or_else(|| missing("a run root"))?,
                claimed_at: Timestamp(claimed_at.ok_or_else(|| missing("a time of claim"))?),
                solo: solo.map(span),
                deaths: deaths.unwrap_or_default(),
            },
            stop,
        },
        "backoff" => State::Backoff {
            next_at: Timestamp(next_at.ok_or_else(|| missing("a time to go on"))?),
        },
        "succeeded" => State::Succeeded,
        "failed" => State::Failed {
            reason: from_json(reason_json)?,
            message,
        },
        "cancelled" => State::Cancelled {
            by: from_json(reason_json)?,
        },
        "quarantined" => State::Quarantined {
            reason: from_json(reason_json)?,
        },
        other => {
            return Err(StoreError::Unreadable(format!(
                "{other:?} is not a state of a job"
            )));
        }
    })
}

pub(crate) fn load(db: &Db<'_>, id: JobId) -> Result<Option<Job>, StoreError> {
    db.one(
        &format!("{} WHERE j.id = ?1", select("")),
        [id.to_string()],
        read,
    )
}

/// The job, if the fence's holder still owns it.
pub(crate) fn load_fenced(db: &Db<'_>, fence: &Fence) -> Result<Option<Job>, StoreError> {
    db.one(
        &format!(
            "{} WHERE j.id = ?1 AND j.state = 'running' AND j.attempt_id = ?2
                 AND j.boot_id = ?3 AND j.token = ?4",
            select("")
        ),
        params![
            fence.job.to_string(),
            fence.attempt.to_string(),
            fence.boot.to_string(),
            signed(fence.token.0)
        ],
        read,
    )
}

/// Whether the fence's holder still owns the job; the row itself need not be readable.
pub(crate) fn is_owner(db: &Db<'_>, fence: &Fence) -> Result<bool, StoreError> {
    let found = db.value::<i64>(
        "SELECT 1 FROM jobs WHERE id = ?1 AND state = 'running' AND attempt_id = ?2
             AND boot_id = ?3 AND token = ?4",
        params![
            fence.job.to_string(),
            fence.attempt.to_string(),
            fence.boot.to_string(),
            signed(fence.token.0)
        ],
    )?;
    Ok(found.is_some())
}

/// The right that a running job's owner has.
pub(crate) fn fence(job: &Job) -> Option<Fence> {
    job.attempt().map(|attempt| Fence {
        job: job.id,
        attempt: attempt.id,
        boot: attempt.boot,
        token: job.token,
    })
}

/// What a new job's row holds besides its header.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    pub(crate) plan: PlanId,
    pub(crate) maintenance_version: Option<String>,
    pub(crate) digest: RequestDigest,
    pub(crate) becomes: Option<RequestDigest>,
    pub(crate) base_revision: Option<u64>,
    pub(crate) codec_version: u32,
}

/// Inserts a new job, queued; [`save`] writes its state.
pub(crate) fn insert(
    db: &Db<'_>,
    job: &Job,
    desired: &Desired,
    after: &[JobId],
    at: Timestamp,
) -> Result<(), StoreError> {
    let id = job.id.to_string();
    let binding = job.target.binding.as_ref();
    db.execute(
        "INSERT INTO jobs (id, instance_uid, binding_uid, binding_id, action, service_id, plan_id,
             maintenance_version, bundle, platform, request_digest, codec_version, created_at,
             deadline_at, updated_at, retries, retry_of, suspect, becomes, base_revision,
             state, queued_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
             ?18, ?19, ?20, 'queued', ?15)",
        params![
            id,
            job.target.instance.to_string(),
            binding.map(|binding| binding.uid.to_string()),
            binding.map(|binding| binding.id.as_str()),
            job.action.as_str(),
            job.service.as_str(),
            desired.plan.as_str(),
            desired.maintenance_version,
            job.bundle.to_string(),
            job.platform.as_str(),
            desired.digest.to_string(),
            desired.codec_version,
            job.created_at.0,
            job.deadline_at.0,
            at.0,
            job.retries,
            job.retry_of.map(|job| job.to_string()),
            job.budget.suspect,
            desired.becomes.map(|digest| digest.to_string()),
            desired.base_revision.map(signed),
        ],
    )?;
    for before in after {
        db.execute(
            "INSERT OR IGNORE INTO job_after (job_id, after_id) VALUES (?1, ?2)",
            params![id, before.to_string()],
        )?;
    }
    if !after.is_empty() {
        count_blocked(db, &id)?;
    }
    Ok(())
}

/// Writes what a transition made of a job, and its account.
pub(crate) fn save(db: &Db<'_>, job: &Job, at: Timestamp) -> Result<(), StoreError> {
    let attempt = job.attempt();
    let (reason, message) = match &job.state {
        State::Failed { reason, message } => (Some(to_json(reason)?), message.as_deref()),
        State::Cancelled { by } => (Some(to_json(by)?), None),
        State::Quarantined { reason } => (Some(to_json(reason)?), None),
        State::Queued | State::Running { .. } | State::Backoff { .. } | State::Succeeded => {
            (None, None)
        }
    };
    let next_at = match &job.state {
        State::Backoff { next_at } => Some(next_at.0),
        State::Queued
        | State::Running { .. }
        | State::Succeeded
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Quarantined { .. } => None,
    };
    db.execute(
        "UPDATE jobs SET token = ?2, attempts = ?3, tempfails = ?4, superseded_by = ?5,
             suspect = ?6, state = ?7, updated_at = ?8,
             queued_at = CASE WHEN ?7 = 'queued' THEN ifnull(queued_at, ?8) END,
             attempt_id = ?9, attempt_ordinal = ?10, boot_id = ?11, run_root = ?12,
             claimed_at = ?13, solo_ms = ?14, stop = ?15, next_at = ?16,
             finished_at = CASE WHEN ?17 THEN ifnull(finished_at, ?8) END,
             reason = ?18, message = ?19, deaths = ?20
         WHERE id = ?1",
        params![
            job.id.to_string(),
            signed(job.token.0),
            job.attempts,
            job.tempfails,
            job.superseded_by.map(|job| job.to_string()),
            job.budget.suspect,
            job.state.as_str(),
            at.0,
            attempt.map(|attempt| attempt.id.to_string()),
            attempt.map(|attempt| attempt.ordinal),
            attempt.map(|attempt| attempt.boot.to_string()),
            attempt.map(|attempt| attempt.run_root.to_string()),
            attempt.map(|attempt| attempt.claimed_at.0),
            attempt.and_then(|attempt| attempt.solo).map(millis),
            job.stop().map(to_json).transpose()?,
            next_at,
            job.state.is_final(),
            reason,
            message,
            attempt.map(deaths).transpose()?.flatten(),
        ],
    )?;
    budget::save(db, &job.target, job.action, &job.budget)
}

/// The deaths that are counted against an attempt, as a column holds them.
///
/// # Errors
/// Never: they are plain data.
pub(crate) fn deaths(attempt: &Attempt) -> Result<Option<String>, StoreError> {
    let some = !attempt.deaths.is_empty();
    some.then(|| to_json(&attempt.deaths)).transpose()
}

/// Counts anew what a waiting job waits for.
fn count_blocked(db: &Db<'_>, job: &str) -> Result<(), StoreError> {
    db.execute(
        "UPDATE jobs SET blocked = (SELECT count(*) FROM job_after a JOIN jobs p
             ON p.id = a.after_id WHERE a.job_id = ?1
                 AND p.state IN ('queued', 'running', 'backoff'))
         WHERE id = ?1",
        [job],
    )?;
    Ok(())
}

/// Lets those go on that waited for a job which is final now.
pub(crate) fn release_waiting(db: &Db<'_>, done: &str) -> Result<(), StoreError> {
    let waiting: Vec<String> = db.all(
        "SELECT job_id FROM job_after WHERE after_id = ?1",
        [done],
        |row| Ok(row.get(0)?),
    )?;
    waiting.iter().try_for_each(|job| count_blocked(db, job))
}

/// Whose unfinished jobs are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of<'a> {
    /// Those of an instance itself.
    Instance(&'a str),
    /// Those of all bindings of an instance.
    Bindings(&'a str),
    /// Those of one binding.
    Binding(&'a str),
}

pub(crate) fn active_sql(of: Of<'_>) -> String {
    let which = match of {
        Of::Instance(_) => {
            "INDEXED BY jobs_unfinished WHERE instance_uid = ?1 AND binding_uid IS NULL"
        }
        Of::Bindings(_) => {
            "INDEXED BY jobs_unfinished WHERE instance_uid = ?1 AND binding_uid IS NOT NULL"
        }
        Of::Binding(_) => "INDEXED BY jobs_binding WHERE binding_uid = ?1",
    };
    format!(
        "SELECT id, action, request_digest, superseded_by IS NOT NULL FROM jobs
         {which} AND {UNFINISHED} ORDER BY rowid"
    )
}

/// Unfinished jobs, oldest first.
pub(crate) fn active(db: &Db<'_>, of: Of<'_>) -> Result<Vec<ActiveJob>, StoreError> {
    let uid = match of {
        Of::Instance(uid) | Of::Bindings(uid) | Of::Binding(uid) => uid,
    };
    db.all(&active_sql(of), [uid], |row| {
        let mut c = Columns::new(row);
        Ok(ActiveJob {
            id: c.parse()?,
            action: c.parse()?,
            digest: c.parse()?,
            superseded: c.take()?,
        })
    })
}
