//! Why no new run starts: what is on record of it, and what the rule asks of earlier boots.

use evenkeel_core::boot::ended_in_order;
use evenkeel_core::hold::{BootEnd, Hold};
use evenkeel_core::ids::{BootId, JobId};
use evenkeel_core::time::Timestamp;
use rusqlite::params;

use super::db::{Columns, Db, sound, to_json};
use super::rows::audit;
use crate::error::StoreError;
use crate::seam::Release;

/// Most jobs that are kept of those that a black box names: it has a slot for each thread.
const MAX_CULPRITS: usize = 64;

pub(super) fn all(db: &Db<'_>) -> Result<Vec<Hold>, StoreError> {
    db.all(
        "SELECT cause, reason, actor, since FROM holds ORDER BY since, cause",
        [],
        |row| {
            let mut c = Columns::new(row);
            Ok(Hold {
                cause: c.word()?,
                reason: c.take()?,
                actor: c.take()?,
                since: Timestamp(c.take()?),
            })
        },
    )
}

/// What is held already keeps its beginning.
pub(super) fn set(db: &Db<'_>, hold: &Hold) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO holds (cause, reason, actor, since) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (cause) DO UPDATE SET reason = excluded.reason, actor = excluded.actor",
        params![hold.cause.as_str(), hold.reason, hold.actor, hold.since.0],
    )?;
    audit::append_about_broker(db, hold.since, &hold.actor, "hold", &hold.line())
}

pub(super) fn release(db: &Db<'_>, release: &Release) -> Result<(), StoreError> {
    for cause in &release.causes {
        db.execute("DELETE FROM holds WHERE cause = ?1", [cause.as_str()])?;
    }
    db.execute(
        "UPDATE boots SET forgiven = 1 WHERE forgiven = 0 AND id <> ?1",
        [release.boot.to_string()],
    )?;
    let Release { at, actor, why, .. } = release;
    audit::append_about_broker(db, *at, actor, "release", why)
}

pub(super) fn ends(db: &Db<'_>, before: BootId, limit: u32) -> Result<Vec<BootEnd>, StoreError> {
    db.all(
        "SELECT drained_at IS NOT NULL, broke IS NOT NULL, culprits IS NOT NULL,
             concluded_at IS NOT NULL, seen_at, started_at, forgiven
         FROM boots WHERE id <> ?1 ORDER BY nth DESC LIMIT ?2",
        params![before.to_string(), limit],
        |row| {
            let mut c = Columns::new(row);
            Ok(BootEnd {
                orderly: ended_in_order(c.take()?, c.take()?),
                named: c.take()?,
                concluded: c.take()?,
                served: Timestamp(c.take()?).since(Timestamp(c.take()?)),
                forgiven: c.take()?,
            })
        },
    )
}

/// A job has ended by what its run did, or by an operator's word, under this boot.
pub(super) fn concluded(db: &Db<'_>, boot: BootId, at: Timestamp) -> Result<(), StoreError> {
    db.execute(
        "UPDATE boots SET concluded_at = ?2 WHERE id = ?1 AND concluded_at IS NULL",
        params![boot.to_string(), at.0],
    )?;
    Ok(())
}

/// The black box of a dead boot names this job.
pub(super) fn name_culprit(db: &Db<'_>, boot: BootId, job: JobId) -> Result<(), StoreError> {
    let before: Option<String> = db
        .value(
            "SELECT culprits FROM boots WHERE id = ?1",
            [boot.to_string()],
        )?
        .flatten();
    let mut named: Vec<JobId> = before.as_deref().and_then(sound).unwrap_or_default();
    if named.contains(&job) || named.len() >= MAX_CULPRITS {
        return Ok(());
    }
    named.push(job);
    db.execute(
        "UPDATE boots SET culprits = ?2 WHERE id = ?1",
        params![boot.to_string(), to_json(&named)?],
    )?;
    Ok(())
}
