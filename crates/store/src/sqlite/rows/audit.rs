//! Audit lines: appended, never changed.

use evenkeel_core::ids::{InstanceUid, JobId};
use evenkeel_core::time::Timestamp;
use rusqlite::params;

use super::super::db::{Columns, Db};
use crate::error::StoreError;
use crate::seam::AuditRecord;

/// Who acts when nobody asked.
pub(crate) const BROKER: &str = "broker";

/// Lines are for people: longer ones are cut.
const MAX_DETAIL: usize = 2000;

pub(crate) fn append(
    db: &Db<'_>,
    at: Timestamp,
    actor: &str,
    what: &str,
    about: (JobId, InstanceUid),
    detail: &str,
) -> Result<(), StoreError> {
    let about = (about.0.to_string(), Some(about.1.to_string()));
    append_raw(db, at, actor, what, about, detail)
}

/// As [`append`], about the broker itself.
pub(crate) fn append_about_broker(
    db: &Db<'_>,
    at: Timestamp,
    actor: &str,
    what: &str,
    detail: &str,
) -> Result<(), StoreError> {
    write(db, at, actor, what, (None, None), detail)
}

/// As [`append`], for rows whose ids cannot be read.
pub(crate) fn append_raw(
    db: &Db<'_>,
    at: Timestamp,
    actor: &str,
    what: &str,
    (job, instance): (String, Option<String>),
    detail: &str,
) -> Result<(), StoreError> {
    write(db, at, actor, what, (Some(job), instance), detail)
}

fn write(
    db: &Db<'_>,
    at: Timestamp,
    actor: &str,
    what: &str,
    (job, instance): (Option<String>, Option<String>),
    detail: &str,
) -> Result<(), StoreError> {
    let detail: String = detail.chars().take(MAX_DETAIL).collect();
    db.execute(
        "INSERT INTO audit (at, actor, what, job_id, instance_uid, detail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![at.0, actor, what, job, instance, detail],
    )?;
    Ok(())
}

/// The lines about a job, oldest first.
pub(crate) fn of_job(db: &Db<'_>, job: JobId, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
    db.all(
        "SELECT at, actor, what, detail FROM audit WHERE job_id = ?1 ORDER BY seq LIMIT ?2",
        params![job.to_string(), limit],
        |row| {
            let mut columns = Columns::new(row);
            Ok(AuditRecord {
                at: Timestamp(columns.take()?),
                actor: columns.take()?,
                what: columns.take()?,
                detail: columns.take()?,
            })
        },
    )
}
