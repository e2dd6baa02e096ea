//! Retention: what ended long ago goes, but for what somebody may still ask for.
//!
//! Kept whatever its age: a quarantined job that nobody has dealt with (of those that a spent budget
//! kept from being tried, the latest speaks for all of a target and action); the latest job of a
//! target that lives (a poll may ask for it); a job that another one waits for.

use evenkeel_core::job::QuarantineReason;
use evenkeel_core::time::Timestamp;
use rusqlite::params;

use super::db::{Db, to_json};
use crate::error::StoreError;

/// Most jobs of a call: bounds the transaction.
const MAX_JOBS: u32 = 1000;

pub(super) fn purge(db: &Db<'_>, before: Timestamp, limit: u32) -> Result<u32, StoreError> {
    let limit = limit.min(MAX_JOBS);
    let jobs: Vec<String> = db.all(
        "SELECT j.id FROM jobs j
         WHERE j.finished_at < ?1 AND j.finished_at IS NOT NULL
             AND (j.state <> 'quarantined' OR j.discarded_at IS NOT NULL
                 OR EXISTS (SELECT 1 FROM jobs r WHERE r.retry_of = j.id)
                 OR (j.reason = ?3 AND EXISTS (SELECT 1 FROM jobs n
                     WHERE n.instance_uid = j.instance_uid AND n.binding_uid IS j.binding_uid
                         AND n.action = j.action AND n.rowid > j.rowid)))
             AND NOT EXISTS (SELECT 1 FROM job_after a JOIN jobs w ON w.id = a.job_id
                 WHERE a.after_id = j.id AND w.state IN ('queued', 'running', 'backoff'))
             AND (EXISTS (SELECT 1 FROM jobs n WHERE n.instance_uid = j.instance_uid
                     AND n.binding_uid IS j.binding_uid AND n.rowid > j.rowid)
                 OR EXISTS (SELECT 1 FROM instances i
                     WHERE i.uid = j.instance_uid AND i.deleted_at IS NOT NULL)
                 OR EXISTS (SELECT 1 FROM bindings b
                     WHERE b.uid = j.binding_uid AND b.deleted_at IS NOT NULL))
         ORDER BY j.finished_at LIMIT ?2",
        params![before.0, limit, to_json(&QuarantineReason::BudgetSpent)?],
        |row| Ok(row.get(0)?),
    )?;
    for job in &jobs {
        db.execute("DELETE FROM jobs WHERE id = ?1", [job])?;
    }
    for table in ["bindings", "instances"] {
        let others = if table == "bindings" {
            "NOT EXISTS (SELECT 1 FROM jobs WHERE binding_uid = bindings.uid)"
        } else {
            "NOT EXISTS (SELECT 1 FROM jobs WHERE instance_uid = instances.uid)
                 AND NOT EXISTS (SELECT 1 FROM bindings WHERE instance_uid = instances.uid)"
        };
        db.execute(
            &format!(
                "DELETE FROM {table} WHERE uid IN (SELECT uid FROM {table}
                     WHERE deleted_at IS NOT NULL AND deleted_at < ?1 AND {others} LIMIT ?2)"
            ),
            params![before.0, limit],
        )?;
    }
    audit_lines(db, before, limit)?;
    db.execute(
        "DELETE FROM boots WHERE closed_at IS NOT NULL AND closed_at < ?1
             AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND boot_id = boots.id)",
        [before.0],
    )?;
    Ok(u32::try_from(jobs.len()).unwrap_or(u32::MAX))
}

/// The one documented way to remove audit lines: their trigger looks for `purge_before`.
fn audit_lines(db: &Db<'_>, before: Timestamp, limit: u32) -> Result<(), StoreError> {
    db.execute(
        "INSERT OR REPLACE INTO meta (key, value) VALUES ('purge_before', ?1)",
        [before.0.to_string()],
    )?;
    db.execute(
        "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit
             WHERE at < ?1 AND (job_id IS NULL
                 OR NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = audit.job_id))
             ORDER BY at LIMIT ?2)",
        // A job leaves a handful of lines.
        params![before.0, limit.saturating_mul(8).max(1)],
    )?;
    db.execute("DELETE FROM meta WHERE key = 'purge_before'", [])?;
    Ok(())
}
