//! Lives of broker processes.

use evenkeel_core::boot::DeathRecord;
use evenkeel_core::ids::BootId;
use evenkeel_core::time::Timestamp;
use rusqlite::{Row, params};

use super::db::{Columns, Db, to_json};
use crate::error::StoreError;
use crate::seam::{Boot, BootView, NewBoot};

const COLUMNS: &str =
    "id, nth, run_root, started_at, host_boot, drained_at, broke, seen_at, closed_at";

fn read(row: &Row<'_>) -> Result<Boot, StoreError> {
    boot(&mut Columns::new(row))
}

fn boot(c: &mut Columns<'_, '_>) -> Result<Boot, StoreError> {
    Ok(Boot {
        id: c.parse()?,
        nth: c.count()?,
        run_root: c.parse()?,
        started_at: Timestamp(c.take()?),
        host_boot: c.take()?,
        drained_at: c.take::<Option<i64>>()?.map(Timestamp),
        broke: c.take()?,
        seen_at: Timestamp(c.take()?),
        closed_at: c.take::<Option<i64>>()?.map(Timestamp),
    })
}

/// Registering the same boot again changes nothing.
pub(super) fn open(db: &Db<'_>, boot: &NewBoot) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO boots (id, run_root, started_at, pid, host_boot, version, seen_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?3) ON CONFLICT (id) DO NOTHING",
        params![
            boot.id.to_string(),
            boot.run_root.to_string(),
            boot.at.0,
            boot.pid,
            boot.host_boot,
            boot.version,
        ],
    )?;
    Ok(())
}

pub(super) fn seen(db: &Db<'_>, boot: BootId, at: Timestamp) -> Result<(), StoreError> {
    db.execute(
        "UPDATE boots SET seen_at = max(seen_at, ?2) WHERE id = ?1",
        params![boot.to_string(), at.0],
    )?;
    Ok(())
}

/// The first mark stays, as it was.
pub(super) fn drained(
    db: &Db<'_>,
    boot: BootId,
    broke: Option<&str>,
    at: Timestamp,
) -> Result<(), StoreError> {
    db.execute(
        "UPDATE boots SET drained_at = ifnull(drained_at, ?2), seen_at = max(seen_at, ?2),
             broke = CASE WHEN drained_at IS NULL THEN ?3 ELSE broke END
         WHERE id = ?1",
        params![boot.to_string(), at.0, broke],
    )?;
    Ok(())
}

/// What is known of a death stays known. That the end was asked for is as good as a drain mark.
pub(super) fn died(db: &Db<'_>, boot: BootId, death: &DeathRecord) -> Result<(), StoreError> {
    let drained_at = death.asked_to_end.then_some(death.ended_at.0);
    db.execute(
        "UPDATE boots SET death = ?2, drained_at = ifnull(drained_at, ?3)
         WHERE id = ?1 AND death IS NULL",
        params![
            boot.to_string(),
            to_json(&death.clone().without_words())?,
            drained_at,
        ],
    )?;
    Ok(())
}

pub(super) fn newest(db: &Db<'_>, limit: u32) -> Result<Vec<BootView>, StoreError> {
    db.all(
        &format!(
            "SELECT {COLUMNS}, pid, version, verdict, death, culprits FROM boots
             ORDER BY nth DESC LIMIT ?1"
        ),
        [limit],
        |row| {
            let mut c = Columns::new(row);
            Ok(BootView {
                boot: boot(&mut c)?,
                pid: c.take()?,
                version: c.take()?,
                verdict: c.take()?,
                death: c.json_if_sound()?,
                named: c.json_if_sound()?.unwrap_or_default(),
            })
        },
    )
}

pub(super) fn all_open(db: &Db<'_>) -> Result<Vec<Boot>, StoreError> {
    db.all(
        &format!("SELECT {COLUMNS} FROM boots WHERE closed_at IS NULL ORDER BY nth"),
        [],
        read,
    )
}

pub(super) fn one(db: &Db<'_>, id: BootId) -> Result<Option<Boot>, StoreError> {
    db.one(
        &format!("SELECT {COLUMNS} FROM boots WHERE id = ?1"),
        [id.to_string()],
        read,
    )
}

pub(super) fn close(
    db: &Db<'_>,
    boot: BootId,
    verdict: &str,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let changed = db.execute(
        "UPDATE boots SET closed_at = ?2, verdict = ?3 WHERE id = ?1 AND closed_at IS NULL",
        params![boot.to_string(), at.0, verdict],
    )?;
    Ok(changed > 0)
}
