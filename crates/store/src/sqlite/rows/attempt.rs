//! Records of attempts.

use evenkeel_core::attempt::{Attempt, Charge, Containment, Death, End, Evidence};
use evenkeel_core::forensics::{Beside, Forensics};
use evenkeel_core::ids::{AttemptId, BootId, JobId};
use evenkeel_core::job::Job;
use evenkeel_core::time::Timestamp;
use rusqlite::params;

use super::super::db::{Columns, Db, from_json, millis, signed, to_json, word};
use crate::error::StoreError;
use crate::seam::{AttemptRecord, BESIDE, EndedBoot, Finish};

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

/// Notes a change of owner.
pub(crate) fn adopt(db: &Db<'_>, attempt: AttemptId, boot: BootId) -> Result<(), StoreError> {
    db.execute(
        "UPDATE attempts SET boot_id = ?2 WHERE id = ?1",
        params![attempt.to_string(), boot.to_string()],
    )?;
    Ok(())
}

/// Notes the deaths that are counted against it.
pub(crate) fn expose(db: &Db<'_>, attempt: &Attempt) -> Result<(), StoreError> {
    db.execute(
        "UPDATE attempts SET deaths = ?2 WHERE id = ?1",
        params![attempt.id.to_string(), super::job::deaths(attempt)?],
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
    let (started_at, containment) = finish.started;
    let forensics = finish.forensics.clone().map(Forensics::bounded);
    db.execute(
        "UPDATE attempts SET ended_at = ?2, end_reason = ?3, evidence = ?4, charge = ?5,
             ran_ms = ?6, peak_memory = ?7, cpu_ms = ?8, started_at = ifnull(started_at, ?9),
             containment = ifnull(containment, ?10), forensics = ?11 WHERE id = ?1",
        params![
            attempt.to_string(),
            finish.at.0,
            to_json(&finish.end)?,
            evidence(&finish.end).map(to_json).transpose()?,
            charge.as_str(),
            millis(finish.ran),
            peak.map(signed),
            cpu.map(signed),
            started_at.map(|at| at.0),
            containment.map(Containment::as_str),
            forensics.as_ref().map(to_json).transpose()?,
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
             ended_at, end_reason, charge, peak_memory, cpu_ms, deaths, forensics
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
                deaths: c.json::<Vec<Death>>()?.unwrap_or_default(),
                // For people's eyes: damaged, it hides nothing else.
                forensics: c
                    .take::<Option<String>>()?
                    .and_then(|text| from_json(&text).ok()),
            })
        },
    )
}

/// See [`crate::seam::Read::beside`].
pub(crate) fn beside(db: &Db<'_>, job: JobId, limit: u32) -> Result<Vec<Beside>, StoreError> {
    // Each way by its own index. Attempts that were lost with one boot end when recovery comes to
    // them, which may be much later for some than for others.
    let near = "SELECT a.ordinal, o.id, o.job_id, o.ended_at, o.charge,
             a.boot_id = o.boot_id AND a.charge <> 'crash' AND o.charge <> 'crash' AS same
         FROM attempts a JOIN attempts o INDEXED BY attempts_bad
             ON o.ended_at BETWEEN a.ended_at - ?2 AND a.ended_at + ?2
         WHERE a.job_id = ?1 AND a.charge IN ('crash', 'exposure', 'loss')
             AND o.charge IN ('crash', 'exposure', 'loss') AND o.job_id <> ?1";
    let lost = "SELECT a.ordinal, o.id, o.job_id, o.ended_at, o.charge, 1 AS same
         FROM attempts a JOIN attempts o INDEXED BY attempts_lost ON o.boot_id = a.boot_id
         WHERE a.job_id = ?1 AND a.charge IN ('exposure', 'loss')
             AND o.charge IN ('exposure', 'loss') AND o.job_id <> ?1";
    // Each half is bounded by itself, so that a boot that took thousands along is cheap to ask of.
    db.all(
        &format!(
            "SELECT min(b.ordinal), b.job_id, j.action, i.instance_id, b.ended_at, b.charge,
                 max(b.same)
             FROM (SELECT * FROM ({near} LIMIT ?3) UNION SELECT * FROM ({lost} LIMIT ?3)) b
                 JOIN jobs j ON j.id = b.job_id JOIN instances i ON i.uid = j.instance_uid
             GROUP BY b.id ORDER BY b.ended_at, b.job_id LIMIT ?3"
        ),
        params![job.to_string(), millis(BESIDE), limit.min(1000)],
        |row| {
            let mut c = Columns::new(row);
            Ok(Beside {
                ordinal: c.take()?,
                job: c.parse()?,
                action: c.parse()?,
                instance: c.parse()?,
                at: Timestamp(c.take()?),
                charge: word(c.take()?)?,
                same_broker: c.take()?,
            })
        },
    )
}

/// See [`crate::seam::Read::ended_boots`].
pub(crate) fn ended_boots(
    db: &Db<'_>,
    job: JobId,
    present: BootId,
) -> Result<Vec<EndedBoot>, StoreError> {
    db.all(
        "SELECT id, seen_at, drained_at, verdict, death FROM boots
         WHERE id <> ?2 AND id IN (
             SELECT boot_id FROM attempts WHERE job_id = ?1
             UNION SELECT json_extract(d.value, '$.boot')
                 FROM attempts a, json_each(a.deaths) d WHERE a.job_id = ?1)
         ORDER BY nth LIMIT 1000",
        params![job.to_string(), present.to_string()],
        |row| {
            let mut c = Columns::new(row);
            Ok(EndedBoot {
                id: c.parse()?,
                seen_at: Timestamp(c.take()?),
                drained_at: c.take::<Option<i64>>()?.map(Timestamp),
                verdict: c.take()?,
                death: c.json_if_sound()?,
            })
        },
    )
}
