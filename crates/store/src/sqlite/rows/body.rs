//! Sealed bodies, apart from the headers.

use evenkeel_core::ids::JobId;
use evenkeel_core::request::{BodyError, JobBody};
use rusqlite::params;

use super::super::db::Db;
use crate::error::StoreError;
use crate::seal::Place;

fn place(job: &str) -> Place<'_> {
    Place {
        table: "job_bodies",
        row: job,
        column: "sealed",
    }
}

pub(crate) fn insert(db: &Db<'_>, job: JobId, plain: &[u8]) -> Result<(), StoreError> {
    let id = job.to_string();
    let sealed = db.sealer.seal(place(&id), plain)?;
    db.execute(
        "INSERT INTO job_bodies (job_id, sealed) VALUES (?1, ?2)",
        params![id, sealed],
    )?;
    Ok(())
}

/// Puts another body in the place of one that no attempt has read.
pub(crate) fn replace(db: &Db<'_>, job: JobId, body: &JobBody) -> Result<(), StoreError> {
    let id = job.to_string();
    let sealed = db.sealer.seal(place(&id), &body.encode())?;
    db.execute(
        "UPDATE job_bodies SET sealed = ?2 WHERE job_id = ?1",
        params![id, sealed],
    )?;
    Ok(())
}

/// The bytes and their codec version; `None` if they were wiped with their target.
pub(crate) fn bytes(db: &Db<'_>, job: JobId) -> Result<Option<(u32, Vec<u8>)>, StoreError> {
    let id = job.to_string();
    let found: Option<(u32, Vec<u8>)> = db.one(
        "SELECT j.codec_version, o.sealed FROM job_bodies o JOIN jobs j ON j.id = o.job_id
         WHERE o.job_id = ?1",
        [&id],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    found
        .map(|(version, sealed)| Ok((version, db.sealer.open(place(&id), &sealed)?)))
        .transpose()
}

/// # Errors
/// `Damaged` where it is missing or does not authenticate; `Unreadable` where it authenticates
/// and cannot be decoded; `Unavailable` where a newer release wrote it.
pub(crate) fn load(db: &Db<'_>, job: JobId) -> Result<JobBody, StoreError> {
    let (version, plain) = bytes(db, job)?
        .ok_or_else(|| StoreError::Damaged(format!("the body of job {job} is missing")))?;
    JobBody::decode(version, &plain).map_err(|error| match error {
        BodyError::Newer(_) => StoreError::Unavailable(format!("the body of job {job}: {error}")),
        BodyError::Undecodable(_) => {
            StoreError::Unreadable(format!("the body of job {job}: {error}"))
        }
    })
}
