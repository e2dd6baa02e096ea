//! What recovery asks: headers only, and no row that cannot be read delays another.

use evenkeel_core::action::Action;
use evenkeel_core::ids::{AttemptId, InstanceUid, JobId};
use evenkeel_core::instance::settle;
use evenkeel_core::job::{QuarantineReason, State};
use evenkeel_core::time::Timestamp;
use rusqlite::params;

use super::db::{Columns, Db, to_json};
use super::rows::{UNFINISHED, attempt, audit, binding, instance, job};
use crate::error::StoreError;
use crate::seam::RunningRow;

/// The states that this release knows; the text that the index `jobs_strange` was made with.
const STRANGE: &str = "state NOT IN
    ('queued', 'running', 'backoff', 'succeeded', 'failed', 'cancelled', 'quarantined')";

/// Ids in order, from two indexes that are merged as they are read.
pub(super) const RUNNING: &str = "
    SELECT id FROM jobs INDEXED BY jobs_state WHERE state = 'running' AND id > ?1
    UNION ALL SELECT id FROM jobs INDEXED BY jobs_strange WHERE state NOT IN
        ('queued', 'running', 'backoff', 'succeeded', 'failed', 'cancelled', 'quarantined')
        AND id > ?1
    ORDER BY id LIMIT ?2";

/// Most rows a call may ask for.
const MAX_ROWS: u32 = 1000;

pub(super) fn running(
    db: &Db<'_>,
    after: Option<JobId>,
    limit: u32,
) -> Result<Vec<RunningRow>, StoreError> {
    let after = after.map_or_else(String::new, |job| job.to_string());
    // Ids first, each header by itself: what cannot be read is told apart row by row.
    let ids: Vec<String> = db.all(RUNNING, params![after, limit.min(MAX_ROWS)], |row| {
        Ok(row.get(0)?)
    })?;
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        let sql = format!("{} WHERE j.id = ?1", job::select(""));
        match db.one(&sql, [&id], job::read) {
            Ok(Some(job)) => rows.push(RunningRow::Sound(Box::new(job))),
            Ok(None) => {}
            Err(StoreError::Unreadable(message)) => {
                let attempt = attempt_of(db, &id)?;
                rows.push(RunningRow::Unreadable {
                    job: id,
                    attempt,
                    message,
                });
            }
            Err(other) => return Err(other),
        }
    }
    Ok(rows)
}

/// The attempt that a row names, as far as it can be read.
fn attempt_of(db: &Db<'_>, id: &str) -> Result<Option<AttemptId>, StoreError> {
    let named: Option<String> = db
        .value(
            "SELECT CAST(attempt_id AS TEXT) FROM jobs WHERE id = ?1",
            [id],
        )?
        .flatten();
    Ok(named.and_then(|named| named.parse().ok()))
}

/// Quarantines a row that cannot be read and names no attempt; says whether it did. The run of one
/// that does has to be ended first: that is for recovery.
pub(super) fn set_aside_waiting(
    db: &Db<'_>,
    id: &str,
    message: &str,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let waits = attempt_of(db, id)?.is_none();
    if waits {
        set_aside(db, id, message, at)?;
    }
    Ok(waits)
}

/// Quarantines a row by its id as text, touching no column that it does not have to. Nothing
/// happens to a job that is final already.
pub(super) fn set_aside(
    db: &Db<'_>,
    id: &str,
    message: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let raw = db.one(
        &format!(
            "SELECT action, instance_uid, binding_uid, superseded_by IS NOT NULL FROM jobs
             WHERE id = ?1 AND ({UNFINISHED} OR {STRANGE})"
        ),
        [id],
        |row| {
            let mut c = Columns::new(row);
            Ok((
                c.take::<String>()?,
                c.take::<String>()?,
                c.take::<Option<String>>()?,
                c.take::<bool>()?,
            ))
        },
    )?;
    let Some((action, instance_uid, binding_uid, superseded)) = raw else {
        return Ok(());
    };
    let reason = QuarantineReason::Unreadable {
        message: message.to_owned(),
    };
    db.execute(
        "UPDATE jobs SET state = 'quarantined', reason = ?2, message = NULL, updated_at = ?3,
             finished_at = ?3, queued_at = NULL, attempt_id = NULL, attempt_ordinal = NULL,
             boot_id = NULL, run_root = NULL, claimed_at = NULL, solo_ms = NULL, deaths = NULL,
             stop = NULL, next_at = NULL
         WHERE id = ?1",
        params![id, to_json(&reason)?, at.0],
    )?;
    attempt::close_unreadable(db, id, message, at)?;
    let state = State::Quarantined { reason };
    let settlement = action
        .parse::<Action>()
        .ok()
        .and_then(|action| settle(action, &state, false));
    let status = settlement.and_then(|settlement| settlement.status);
    if let Some(status) = status.filter(|_| !superseded) {
        let (table, uid) = match &binding_uid {
            Some(uid) => (binding::TABLE, uid),
            None => (instance::TABLE, &instance_uid),
        };
        db.execute(
            &format!(
                "UPDATE {table} SET status = ?2, updated_at = ?3
                 WHERE uid = ?1 AND deleted_at IS NULL"
            ),
            params![uid, status.as_str(), at.0],
        )?;
    }
    job::release_waiting(db, id)?;
    let about = (id.to_owned(), Some(instance_uid));
    audit::append_raw(db, at, audit::BROKER, "set_aside", about, message)
}

pub(super) fn claimed_attempts(
    db: &Db<'_>,
    attempts: &[AttemptId],
) -> Result<Vec<AttemptId>, StoreError> {
    those(db, "SELECT 1 FROM jobs WHERE attempt_id = ?1", attempts)
}

pub(super) fn deleted_instances(
    db: &Db<'_>,
    instances: &[InstanceUid],
) -> Result<Vec<InstanceUid>, StoreError> {
    let deleted = "SELECT 1 FROM instances WHERE uid = ?1 AND deleted_at IS NOT NULL";
    those(db, deleted, instances)
}

/// Of these ids, those for which there is a row.
fn those<T: Copy + ToString>(db: &Db<'_>, sql: &str, ids: &[T]) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::new();
    for id in ids {
        if db.value::<i64>(sql, [id.to_string()])?.is_some() {
            found.push(*id);
        }
    }
    Ok(found)
}
