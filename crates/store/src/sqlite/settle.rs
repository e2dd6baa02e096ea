//! What a job's end makes of its instance or binding, and of the jobs that waited for it.
//!
//! Where a later job has taken a job's place, the status of the target belongs to the later one:
//! a provision that is stopped for a delete must not turn `deleting` into `create_failed`. What
//! its run made is kept all the same.

use evenkeel_core::action::Action;
use evenkeel_core::ids::JobId;
use evenkeel_core::instance::{Settlement, Status, settle};
use evenkeel_core::job::{Job, State, StopReason};
use evenkeel_core::request::{CODEC_VERSION, JobBody, Outputs};
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::{Effect, Event, transition};
use rusqlite::params;

use super::db::Db;
use super::recover;
use super::rows::job::Of;
use super::rows::{audit, binding, body, instance, job};
use crate::error::StoreError;

/// The row that a job is about.
#[derive(Clone, Debug)]
struct Row {
    table: &'static str,
    uid: String,
}

fn row(job: &Job) -> Row {
    match &job.target.binding {
        Some(target) => Row {
            table: binding::TABLE,
            uid: target.uid.to_string(),
        },
        None => Row {
            table: instance::TABLE,
            uid: job.target.instance.to_string(),
        },
    }
}

/// Writes a job after a transition, with all that follows from its effects. Gives the jobs whose
/// runs are to be told to stop.
pub(crate) fn write(
    db: &Db<'_>,
    job: &Job,
    effects: &[Effect],
    outputs: Option<&Outputs>,
    at: Timestamp,
) -> Result<Vec<JobId>, StoreError> {
    job::save(db, job, at)?;
    let made_outputs = effects.contains(&Effect::KeepOutputs);
    let mut stops = Vec::new();
    for effect in effects {
        match effect {
            Effect::Settle => end(db, job, outputs, made_outputs, at)?,
            Effect::StopRun { .. } => stops.push(job.id),
            // The attempt's record is closed by who knows how it ended; outputs go with Settle.
            Effect::CloseAttempt { .. } | Effect::KeepOutputs => {}
        }
    }
    Ok(stops)
}

/// A job is final: its target and the jobs that waited for it follow.
pub(crate) fn end(
    db: &Db<'_>,
    job: &Job,
    outputs: Option<&Outputs>,
    made_outputs: bool,
    at: Timestamp,
) -> Result<(), StoreError> {
    if let Some(settlement) = settle(job.action, &job.state, made_outputs) {
        apply(db, job, &settlement, outputs, at)?;
    }
    if let State::Quarantined { reason } = &job.state {
        let detail = super::db::to_json(reason)?;
        let about = (job.id, job.target.instance);
        audit::append(db, at, audit::BROKER, "quarantine", about, &detail)?;
    }
    job::release_waiting(db, &job.id.to_string())
}

fn apply(
    db: &Db<'_>,
    job: &Job,
    settlement: &Settlement,
    outputs: Option<&Outputs>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let row = row(job);
    if settlement.apply_desired {
        apply_desired(db, job, at)?;
    }
    if settlement.keep_outputs
        && let Some(outputs) = outputs
    {
        keep_outputs(db, job, &row, outputs)?;
    }
    if settlement.bindings_gone {
        let instance = job.target.instance.to_string();
        end_jobs_of_bindings(db, job, &instance, at)?;
        for (uid, _) in binding::live(db, &instance)? {
            bury(db, binding::TABLE, &uid.to_string(), at)?;
        }
    }
    match settlement.status {
        Some(Status::Deleted) => bury(db, row.table, &row.uid, at),
        Some(status) if job.superseded_by.is_none() => set_status(db, job, status, at),
        Some(_) | None => Ok(()),
    }
}

/// Sets the status of a job's target, unless its life is over.
pub(crate) fn set_status(
    db: &Db<'_>,
    job: &Job,
    status: Status,
    at: Timestamp,
) -> Result<(), StoreError> {
    let row = row(job);
    db.execute(
        &format!(
            "UPDATE {} SET status = ?2, updated_at = ?3 WHERE uid = ?1 AND deleted_at IS NULL",
            row.table
        ),
        params![row.uid, status.as_str(), at.0],
    )?;
    Ok(())
}

/// What the job desired is in force now.
fn apply_desired(db: &Db<'_>, job: &Job, at: Timestamp) -> Result<(), StoreError> {
    match body::load(db, job.id) {
        Ok(body) => match (&job.target.binding, &body.binding) {
            (Some(target), Some(wanted)) => binding::apply(db, target.uid, wanted, at),
            _ => {
                instance::apply(db, job.target.instance, job.bundle, &body, at)?;
                becomes(db, job)?;
                deletes_follow(db, job, &body)
            }
        },
        // The run has done its work: a body that was damaged since must not undo that. The
        // header knows plan and maintenance; parameters stay as they were.
        Err(StoreError::Damaged(error) | StoreError::Unreadable(error)) => {
            tracing::warn!(job = %job.id, error, "parameters could not be applied");
            if job.target.binding.is_none() {
                db.execute(
                    "UPDATE instances SET (plan_id, maintenance_version, bundle) =
                         (SELECT plan_id, maintenance_version, bundle FROM jobs WHERE id = ?2)
                     WHERE uid = ?1 AND deleted_at IS NULL",
                    params![job.target.instance.to_string(), job.id.to_string()],
                )?;
                becomes(db, job)?;
            }
            Ok(())
        }
        Err(other) => Err(other),
    }
}

/// Deletes that wait for the update go by what it has made of the instance, and not by what was
/// in force when they were ordered.
fn deletes_follow(db: &Db<'_>, update: &Job, new: &JobBody) -> Result<(), StoreError> {
    let waiting: Vec<JobId> = db.all(
        "SELECT id FROM jobs WHERE instance_uid = ?1 AND state = 'queued'
             AND action IN ('deprovision', 'unbind')",
        [update.target.instance.to_string()],
        |row| super::db::parse(&row.get::<_, String>(0)?),
    )?;
    for delete in waiting {
        let mut body = match body::load(db, delete) {
            Ok(body) => body,
            // Its own attempt will say so.
            Err(StoreError::Damaged(_) | StoreError::Unreadable(_)) => continue,
            Err(other) => return Err(other),
        };
        body.plan = new.plan.clone();
        body.instance = new.instance.clone();
        body::replace(db, delete, &body)?;
        db.execute(
            "UPDATE jobs SET (plan_id, maintenance_version, bundle, codec_version, base_revision) =
                 (SELECT plan_id, maintenance_version, bundle, ?3,
                     (SELECT revision FROM instances WHERE uid = jobs.instance_uid)
                  FROM jobs WHERE id = ?2)
             WHERE id = ?1",
            params![delete.to_string(), update.id.to_string(), CODEC_VERSION],
        )?;
    }
    Ok(())
}

/// An instance that was updated is as if another order had made it.
fn becomes(db: &Db<'_>, job: &Job) -> Result<(), StoreError> {
    db.execute(
        "UPDATE instances SET request_digest = new.becomes
         FROM (SELECT becomes FROM jobs WHERE id = ?2 AND becomes IS NOT NULL) AS new
         WHERE uid = ?1 AND deleted_at IS NULL",
        params![job.target.instance.to_string(), job.id.to_string()],
    )?;
    Ok(())
}

/// Seals what the run wrote for others. An update changes what it names and leaves the rest.
fn keep_outputs(db: &Db<'_>, job: &Job, row: &Row, new: &Outputs) -> Result<(), StoreError> {
    let mut kept = Outputs {
        data: None,
        error_message: None,
        ..new.clone()
    };
    if job.action == Action::Update {
        let blob: Option<Vec<u8>> = db
            .value(
                &format!("SELECT outputs FROM {} WHERE uid = ?1", row.table),
                [&row.uid],
            )?
            .flatten();
        let old: Outputs = db
            .open(row.table, &row.uid, "outputs", blob.as_deref())?
            .unwrap_or_default();
        kept = Outputs {
            credentials: kept.credentials.or(old.credentials),
            dashboard_url: kept.dashboard_url.or(old.dashboard_url),
            endpoints: kept.endpoints.or(old.endpoints),
            volume_mounts: kept.volume_mounts.or(old.volume_mounts),
            syslog_drain_url: kept.syslog_drain_url.or(old.syslog_drain_url),
            route_service_url: kept.route_service_url.or(old.route_service_url),
            metadata: kept.metadata.or(old.metadata),
            expires_at: kept.expires_at.or(old.expires_at),
            renew_before: kept.renew_before.or(old.renew_before),
            data: None,
            error_message: None,
        };
    }
    let sealed = db.seal(row.table, &row.uid, "outputs", &kept)?;
    db.execute(
        &format!(
            "UPDATE {} SET outputs = ?2 WHERE uid = ?1 AND deleted_at IS NULL",
            row.table
        ),
        params![row.uid, sealed],
    )?;
    Ok(())
}

/// `data` is replaced if the run gave some, whatever became of the run: the next action or
/// attempt may need it to clean up.
pub(crate) fn keep_data(
    db: &Db<'_>,
    job: &Job,
    outputs: Option<&Outputs>,
) -> Result<(), StoreError> {
    let Some(data) = outputs.and_then(|outputs| outputs.data.as_ref()) else {
        return Ok(());
    };
    let row = row(job);
    let sealed = db.seal(row.table, &row.uid, "data", data)?;
    db.execute(
        &format!(
            "UPDATE {} SET data = ?2 WHERE uid = ?1 AND deleted_at IS NULL",
            row.table
        ),
        params![row.uid, sealed],
    )?;
    Ok(())
}

/// The bindings are gone with their instance: whatever waits for them is pointless.
fn end_jobs_of_bindings(
    db: &Db<'_>,
    delete: &Job,
    instance: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    for active in job::active(db, Of::Bindings(instance))? {
        stop(db, active.id, StopReason::Superseded { job: delete.id }, at)?;
    }
    Ok(())
}

/// Asks a job that is not final to stop, by a decision taken here and not by its owner. A header
/// that cannot be read stands in nobody's way: it is set aside, by recovery if it may have a run.
/// Gives the job if its run is to be told.
pub(crate) fn stop(
    db: &Db<'_>,
    id: JobId,
    reason: StopReason,
    at: Timestamp,
) -> Result<Vec<JobId>, StoreError> {
    let found = match job::load(db, id) {
        Ok(found) => found,
        Err(StoreError::Unreadable(message)) => {
            let id = id.to_string();
            if !recover::set_aside_waiting(db, &id, &message, at)?
                && let StopReason::Superseded { job: by } = reason
            {
                db.execute(
                    "UPDATE jobs SET superseded_by = ?2 WHERE id = ?1",
                    params![id, by.to_string()],
                )?;
            }
            None
        }
        Err(other) => return Err(other),
    };
    let Some(job) = found else {
        return Ok(Vec::new());
    };
    let (job, effects) = transition(job, Event::Stop { reason }, at, db.policy)?;
    write(db, &job, &effects, None, at)
}

/// A life is over: the row stays as a tombstone for polls, its secrets go. So do those of its
/// finished jobs, but for what was set aside (quarantine deletes nothing).
fn bury(db: &Db<'_>, table: &'static str, uid: &str, at: Timestamp) -> Result<(), StoreError> {
    let (bind_resource, whose) = if table == binding::TABLE {
        (", bind_resource = NULL", "binding_uid = ?1")
    } else {
        ("", "instance_uid = ?1")
    };
    db.execute(
        &format!(
            "UPDATE {table} SET status = 'deleted', deleted_at = ?2, updated_at = ?2,
                 parameters = NULL, context = NULL, outputs = NULL, data = NULL{bind_resource}
             WHERE uid = ?1 AND deleted_at IS NULL"
        ),
        params![uid, at.0],
    )?;
    db.execute(
        &format!(
            "DELETE FROM job_bodies WHERE job_id IN (SELECT id FROM jobs WHERE {whose}
                 AND state IN ('succeeded', 'failed', 'cancelled'))"
        ),
        [uid],
    )?;
    Ok(())
}
