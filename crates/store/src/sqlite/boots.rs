//! Lives of broker processes.

use evenkeel_core::ids::BootId;
use evenkeel_core::time::Timestamp;
use rusqlite::{Row, params};

use super::db::{Columns, Db};
use crate::error::StoreError;
use crate::seam::{Boot, NewBoot};

const COLUMNS: &str = "id, run_root, started_at, host_boot, drained_at, seen_at, closed_at";

fn read(row: &Row<'_>) -> Result<Boot, StoreError> {
    let mut c = Columns::new(row);
    Ok(Boot {
        id: c.parse()?,
        run_root: c.parse()?,
        started_at: Timestamp(c.take()?),
        host_boot: c.take()?,
        drained_at: c.take::<Option<i64>>()?.map(Timestamp),
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

pub(super) fn drained(db: &Db<'_>, boot: BootId, at: Timestamp) -> Result<(), StoreError> {
    db.execute(
        "UPDATE boots SET drained_at = ifnull(drained_at, ?2), seen_at = max(seen_at, ?2)
         WHERE id = ?1",
        params![boot.to_string(), at.0],
    )?;
    Ok(())
}

pub(super) fn all_open(db: &Db<'_>) -> Result<Vec<Boot>, StoreError> {
    db.all(
        &format!("SELECT {COLUMNS} FROM boots WHERE closed_at IS NULL ORDER BY started_at, id"),
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
