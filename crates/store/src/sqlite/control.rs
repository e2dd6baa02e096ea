//! What operators and deadlines do to jobs.

use evenkeel_core::action::Action;
use evenkeel_core::ids::{BootId, JobId, Token};
use evenkeel_core::instance::Status;
use evenkeel_core::job::{Job, State, StopReason};
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::{Event, transition};
use rusqlite::params;

use super::db::{Columns, Db, parse, to_json, word};
use super::rows::job::{Desired, Of};
use super::rows::{audit, body, budget, job};
use super::{recover, settle, submit};
use crate::error::StoreError;
use crate::seam::{Fence, Marked, Retried, Stopped};

/// Without the index's name the planner, which knows no figures, takes the states' index.
pub(super) const LATE: &str = "SELECT id FROM jobs INDEXED BY jobs_deadline
    WHERE state IN ('queued', 'running', 'backoff') AND stop IS NULL AND deadline_at <= ?1
    ORDER BY deadline_at LIMIT ?2";

/// Most jobs of a call.
const MAX_ROWS: u32 = 1000;

pub(super) fn stop_job(
    db: &Db<'_>,
    id: JobId,
    reason: &StopReason,
    actor: &str,
    at: Timestamp,
) -> Result<Stopped, StoreError> {
    let Some(known) = job::load(db, id)? else {
        return Ok(Stopped::Unknown);
    };
    if known.state.is_final() {
        return Ok(Stopped::Final(Box::new(known)));
    }
    let asked_before = known.stop().cloned();
    let event = Event::Stop {
        reason: reason.clone(),
    };
    let (job, effects) = transition(known, event, at, db.policy)?;
    settle::write(db, &job, &effects, None, at)?;
    if asked_before.is_none() || job.stop().cloned() != asked_before {
        let about = (job.id, job.target.instance);
        audit::append(db, at, actor, "cancel", about, &to_json(reason)?)?;
    }
    Ok(match job::fence(&job) {
        Some(fence) => Stopped::Asked(fence),
        None => Stopped::Ended(Box::new(job)),
    })
}

pub(super) fn expire(db: &Db<'_>, now: Timestamp, limit: u32) -> Result<Vec<Fence>, StoreError> {
    let late: Vec<String> = db.all(LATE, params![now.0, limit.min(MAX_ROWS)], |row| {
        Ok(row.get(0)?)
    })?;
    let mut asked = Vec::new();
    for id in late {
        let found = parse::<JobId>(&id).and_then(|id| job::load(db, id));
        let known = match found {
            Ok(Some(known)) => known,
            Ok(None) => continue,
            Err(StoreError::Unreadable(message)) => {
                recover::set_aside_waiting(db, &id, &message, now)?;
                continue;
            }
            Err(other) => return Err(other),
        };
        let event = Event::Stop {
            reason: StopReason::Deadline,
        };
        let (job, effects) = transition(known, event, now, db.policy)?;
        settle::write(db, &job, &effects, None, now)?;
        let about = (job.id, job.target.instance);
        audit::append(
            db,
            now,
            audit::BROKER,
            "deadline",
            about,
            job.state.as_str(),
        )?;
        asked.extend(job::fence(&job));
    }
    Ok(asked)
}

/// Those with a wish to stop on record, and those whose budget was spent by the death of an
/// earlier owner while their run lived on.
pub(super) fn stopping(db: &Db<'_>, boot: BootId) -> Result<Vec<Fence>, StoreError> {
    db.all(
        "SELECT j.id, j.attempt_id, j.token FROM jobs j
         LEFT JOIN budgets b ON b.instance_uid = j.instance_uid
             AND b.binding_id = ifnull(j.binding_id, '') AND b.action = j.action
         WHERE j.state = 'running' AND j.boot_id = ?1
             AND (j.stop IS NOT NULL OR b.crashes >= ?2 OR b.losses >= ?3)
         ORDER BY j.id LIMIT ?4",
        params![
            boot.to_string(),
            db.policy.crash_limit,
            db.policy.loss_limit,
            MAX_ROWS
        ],
        |row| {
            let mut c = Columns::new(row);
            Ok(Fence {
                job: c.parse()?,
                attempt: c.parse()?,
                boot,
                token: Token(c.count()?),
            })
        },
    )
}

pub(super) fn clear_suspicion(
    db: &Db<'_>,
    id: JobId,
    actor: &str,
    at: Timestamp,
) -> Result<Marked, StoreError> {
    let Some(known) = job::load(db, id)? else {
        return Ok(Marked::Unknown);
    };
    let before = known.budget.clone();
    let cleared = if known.state.is_final() {
        // The account outlives the job: the next one for this target would inherit suspicion.
        let mut known = known;
        known.budget.lift_suspicion();
        budget::save(db, &known.target, known.action, &known.budget)?;
        known
    } else {
        let (job, effects) = transition(known, Event::Clear, at, db.policy)?;
        settle::write(db, &job, &effects, None, at)?;
        job
    };
    if cleared.budget == before {
        return Ok(Marked::Already);
    }
    let about = (id, cleared.target.instance);
    let detail = format!("suspicion lifted; was {}", to_json(&before)?);
    audit::append(db, at, actor, "clear", about, &detail)?;
    Ok(Marked::Done)
}

/// What a retry is asked for.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    pub(super) job: JobId,
    pub(super) new: JobId,
    pub(super) actor: String,
    pub(super) at: Timestamp,
    pub(super) deadline_at: Timestamp,
}

pub(super) fn retry(db: &Db<'_>, asked: &Retry) -> Result<Retried, StoreError> {
    // Asked again after an answer that got lost.
    if let Some(known) = job::load(db, asked.new)? {
        return Ok(Retried::Queued(Box::new(known)));
    }
    let Some(old) = job::load(db, asked.job)? else {
        return Ok(Retried::Unknown);
    };
    match &old.state {
        State::Failed { .. } | State::Cancelled { .. } | State::Quarantined { .. } => {}
        State::Succeeded => return Ok(Retried::NotRetryable("it succeeded")),
        State::Queued | State::Running { .. } | State::Backoff { .. } => {
            return Ok(Retried::NotRetryable("it has not ended yet"));
        }
    }
    if is_discarded(db, asked.job)? {
        return Ok(Retried::NotRetryable("it was discarded"));
    }
    if let Some(no) = target_allows(db, &old)? {
        return Ok(no);
    }
    let Some((codec_version, plain)) = body::bytes(db, old.id)? else {
        return Ok(Retried::NotRetryable("its body is gone"));
    };
    let spent = old.budget.clone();
    let mut new = Job {
        id: asked.new,
        created_at: asked.at,
        deadline_at: asked.deadline_at,
        token: Token::default(),
        attempts: 0,
        tempfails: 0,
        superseded_by: None,
        retry_of: Some(old.id),
        state: State::Queued,
        ..old.clone()
    };
    new.budget.clear();
    budget::save(db, &new.target, new.action, &new.budget)?;
    let desired = desired(db, old.id, codec_version)?;
    submit::insert(db, &new, &desired, &[], &plain, asked.at)?;
    let about = (old.id, old.target.instance);
    let detail = format!(
        "by job {}; budget cleared, was {}",
        new.id,
        to_json(&spent)?
    );
    audit::append(db, asked.at, &asked.actor, "retry", about, &detail)?;
    let about = (new.id, new.target.instance);
    let detail = format!("retry of job {}", old.id);
    audit::append(db, asked.at, &asked.actor, "submit", about, &detail)?;
    Ok(Retried::Queued(Box::new(new)))
}

fn is_discarded(db: &Db<'_>, id: JobId) -> Result<bool, StoreError> {
    let found: Option<i64> = db.value(
        "SELECT 1 FROM jobs WHERE id = ?1 AND discarded_at IS NOT NULL",
        [id.to_string()],
    )?;
    Ok(found.is_some())
}

fn desired(db: &Db<'_>, id: JobId, codec_version: u32) -> Result<Desired, StoreError> {
    db.one(
        "SELECT plan_id, maintenance_version, request_digest, becomes, base_revision
         FROM jobs WHERE id = ?1",
        [id.to_string()],
        |row| {
            let mut c = Columns::new(row);
            Ok(Desired {
                plan: c.parse()?,
                maintenance_version: c.take()?,
                digest: c.parse()?,
                becomes: c.parse_opt()?,
                base_revision: c
                    .take::<Option<i64>>()?
                    .and_then(|count| count.try_into().ok()),
                codec_version,
            })
        },
    )?
    .ok_or_else(|| StoreError::Unavailable(format!("job {id} is gone")))
}

/// Whether the target of an ended job is where the job would find it. `Some` says why not.
fn target_allows(db: &Db<'_>, old: &Job) -> Result<Option<Retried>, StoreError> {
    let instance = old.target.instance.to_string();
    let Some(instance_status) = status(db, "instances", &instance)? else {
        return Ok(Some(Retried::TargetGone));
    };
    let under_way = match &old.target.binding {
        None => {
            let mut active = job::active(db, Of::Instance(&instance))?;
            if old.action != Action::Provision {
                active.extend(job::active(db, Of::Bindings(&instance))?);
            }
            active
        }
        Some(binding) => {
            let mut active = job::active(db, Of::Binding(&binding.uid.to_string()))?;
            active.extend(job::active(db, Of::Instance(&instance))?);
            active
        }
    };
    if let Some(busy) = submit::first(&under_way) {
        return Ok(Some(Retried::Busy(busy)));
    }
    let status = match &old.target.binding {
        None => instance_status,
        Some(binding) => match status(db, "bindings", &binding.uid.to_string())? {
            None => return Ok(Some(Retried::TargetGone)),
            Some(status) => status,
        },
    };
    // It would bring back what was in force when it was ordered.
    if !matches!(old.action, Action::Provision | Action::Deprovision) && has_changed_since(db, old)?
    {
        return Ok(Some(Retried::NotRetryable(
            "its instance has been changed since: it has to be ordered anew",
        )));
    }
    if old.action == Action::Bind && instance_status != Status::Ready {
        return Ok(Some(Retried::NotRetryable("its instance is not ready")));
    }
    let (wanted, otherwise) = match old.action {
        Action::Provision | Action::Bind => (
            Status::CreateFailed,
            "its target was made or deleted by a later job",
        ),
        Action::Update => (Status::Ready, "its instance is not ready"),
        Action::Deprovision | Action::Unbind => {
            (Status::DeleteFailed, "its target is not half deleted")
        }
    };
    Ok((status != wanted).then_some(Retried::NotRetryable(otherwise)))
}

fn has_changed_since(db: &Db<'_>, old: &Job) -> Result<bool, StoreError> {
    let changed: Option<i64> = db.value(
        "SELECT 1 FROM jobs j JOIN instances i ON i.uid = j.instance_uid
         WHERE j.id = ?1 AND j.base_revision <> i.revision",
        [old.id.to_string()],
    )?;
    Ok(changed.is_some())
}

/// Where a life stands; `None` if it is over.
fn status(db: &Db<'_>, table: &str, uid: &str) -> Result<Option<Status>, StoreError> {
    db.one(
        &format!("SELECT status FROM {table} WHERE uid = ?1 AND deleted_at IS NULL"),
        [uid],
        |row| word(row.get(0)?),
    )
}

pub(super) fn discard(
    db: &Db<'_>,
    id: JobId,
    actor: &str,
    at: Timestamp,
) -> Result<Marked, StoreError> {
    // By columns: also a job whose header cannot be read can be dealt with.
    let row = db.one(
        "SELECT j.state, j.discarded_at IS NOT NULL, j.action, j.instance_uid, i.instance_id,
             j.service_id
         FROM jobs j JOIN instances i ON i.uid = j.instance_uid WHERE j.id = ?1",
        [id.to_string()],
        |row| {
            let mut c = Columns::new(row);
            Ok((
                c.take::<String>()?,
                c.take::<bool>()?,
                c.take::<String>()?,
                [
                    c.take::<String>()?,
                    c.take::<String>()?,
                    c.take::<String>()?,
                ],
            ))
        },
    )?;
    let Some((state, discarded, action, [instance_uid, instance_id, service_id])) = row else {
        return Ok(Marked::Unknown);
    };
    if state != "quarantined" {
        return Ok(Marked::NotApplicable);
    }
    if discarded {
        return Ok(Marked::Already);
    }
    db.execute(
        "UPDATE jobs SET discarded_at = ?2, updated_at = ?2 WHERE id = ?1",
        params![id.to_string(), at.0],
    )?;
    if action == Action::Provision.as_str() {
        db.execute(
            "INSERT OR IGNORE INTO leaks
                 (at, kind, instance_uid, instance_id, service_id, job_id, detail)
             VALUES (?1, 'discarded_provision', ?2, ?3, ?4, ?5, ?6)",
            params![
                at.0,
                instance_uid,
                instance_id,
                service_id,
                id.to_string(),
                format!("a quarantined provision was discarded by {actor}"),
            ],
        )?;
    }
    let about = (id.to_string(), Some(instance_uid));
    audit::append_raw(db, at, actor, "discard", about, &action)?;
    Ok(Marked::Done)
}
