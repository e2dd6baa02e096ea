//! Records of attempts.

use evenkeel_core::attempt::{Charge, Containment, End, Evidence, Exposure};
use evenkeel_core::ids::{AttemptId, BootId, JobId};
use evenkeel_core::job::Job;
use evenkeel_core::time::Timestamp;
use rusqlite::params;

use super::super::db::{Columns, Db, millis, signed, to_json, word};
use crate::error::StoreError;
use crate::seam::{AttemptRecord, Finish};

/// Opens the record of a job's present attempt.
pub(crate) fn open(db: &Db<'_>, job: &Job) -> Result<(), StoreError> {
    let Some(attempt) = job.attempt() else {
        return Ok(());
    };
    db.execute(
        "INSERT INTO attempts (id, job_id, ordinal, boot_id, run_root, solo, claimed_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            attempt.id.to_string(),
            job.id.to_string(),
            attempt.ordinal,
            attempt.boot.to_string(),
            attempt.run_root.to_string(),
            attempt.solo.is_some(),
            attempt.claimed_at.0,
        ],
    )?;
    Ok(())
}

pub(crate) fn started(
    db: &Db<'_>,
    attempt: AttemptId,
    containment: Option<Containment>,
    at: Timestamp,
) -> Result<(), StoreError> {
    db.execute(
        "UPDATE attempts SET started_at = ifnull(started_at, ?2),
             containment = ifnull(?3, containment) WHERE id = ?1",
        params![
            attempt.to_string(),
            at.0,
            containment.map(Containment::as_str)
        ],
    )?;
    Ok(())
}

pub(crate) fn adopt(
    db: &Db<'_>,
    attempt: AttemptId,
    boot: BootId,
    exposed: Option<&Exposure>,
) -> Result<(), StoreError> {
    db.execute(
        "UPDATE attempts SET boot_id = ?2, exposed = ifnull(?3, exposed) WHERE id = ?1",
        params![
            attempt.to_string(),
            boot.to_string(),
            exposed.map(to_json).transpose()?
        ],
    )?;
    Ok(())
}

pub(crate) fn close(
    db: &Db<'_>,
    attempt: AttemptId,
    finish: &Finish,
    charge: Charge,
) -> Result<(), StoreError> {
    let (peak, cpu) = finish.usage;
    db.execute(
        "UPDATE attempts SET ended_at = ?2, end_reason = ?3, evidence = ?4, charge = ?5,
             ran_ms = ?6, peak_memory = ?7, cpu_ms = ?8 WHERE id = ?1",
        params![
            attempt.to_string(),
            finish.at.0,
            to_json(&finish.end)?,
            evidence(&finish.end).map(to_json).transpose()?,
            charge.as_str(),
            millis(finish.ran),
            peak.map(signed),
            cpu.map(signed),
        ],
    )?;
    Ok(())
}

/// Closes what is open of a job whose row cannot be read.
pub(crate) fn close_unreadable(
    db: &Db<'_>,
    job: &str,
    message: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let end = End::Unreadable {
        message: message.to_owned(),
    };
    db.execute(
        "UPDATE attempts SET ended_at = ?2, end_reason = ?3, charge = 'none'
         WHERE job_id = ?1 AND ended_at IS NULL",
        params![job, at.0, to_json(&end)?],
    )?;
    Ok(())
}

fn evidence(end: &End) -> Option<&Evidence> {
    if let End::Crashed { evidence } = end {
        evidence.as_ref()
    } else {
        None
    }
}

/// The attempts of a job, oldest first.
pub(crate) fn of_job(
    db: &Db<'_>,
    job: JobId,
    limit: u32,
) -> Result<Vec<AttemptRecord>, StoreError> {
    db.all(
        "SELECT id, ordinal, boot_id, run_root, solo, claimed_at, started_at, containment,
             ended_at, end_reason, charge, peak_memory, cpu_ms
         FROM attempts WHERE job_id = ?1 ORDER BY ordinal LIMIT ?2",
        params![job.to_string(), limit],
        |row| {
            let mut c = Columns::new(row);
            Ok(AttemptRecord {
                id: c.parse()?,
                ordinal: c.take()?,
                boot: c.parse()?,
                run_root: c.parse()?,
                solo: c.take()?,
                claimed_at: Timestamp(c.take()?),
                started_at: c.take::<Option<i64>>()?.map(Timestamp),
                containment: c.take::<Option<String>>()?.map(word).transpose()?,
                ended_at: c.take::<Option<i64>>()?.map(Timestamp),
                end: c.json()?,
                charge: c.take::<Option<String>>()?.map(word).transpose()?,
                usage: (c.count_opt()?, c.count_opt()?),
            })
        },
    )
}
