//! Lives of service bindings.

use evenkeel_core::admit::BindingStanding;
use evenkeel_core::ids::{BindingId, BindingUid};
use evenkeel_core::instance::Status;
use evenkeel_core::request::BindingInput;
use evenkeel_core::time::Timestamp;
use rusqlite::params;

use super::super::db::{Columns, Db};
use super::instance::{or_damage, sealed};
use super::job::{self, Of};
use crate::error::StoreError;
use crate::seam::{BindingView, Submission};

pub(crate) const TABLE: &str = "bindings";

/// The present life within an instance's present life.
pub(crate) fn standing(
    db: &Db<'_>,
    instance: &str,
    id: &BindingId,
) -> Result<Option<BindingStanding>, StoreError> {
    let found = db.one(
        "SELECT uid, request_digest, status FROM bindings
         WHERE instance_uid = ?1 AND binding_id = ?2 AND deleted_at IS NULL",
        params![instance, id.as_str()],
        |row| {
            let mut c = Columns::new(row);
            Ok(BindingStanding {
                uid: c.parse()?,
                digest: c.parse()?,
                status: c.word()?,
                active: Vec::new(),
            })
        },
    )?;
    found
        .map(|mut standing| {
            standing.active = job::active(db, Of::Binding(&standing.uid.to_string()))?;
            Ok(standing)
        })
        .transpose()
}

/// Bindings of an instance's life that are not gone, oldest first.
pub(crate) fn live(
    db: &Db<'_>,
    instance: &str,
) -> Result<Vec<(BindingUid, BindingId)>, StoreError> {
    db.all(
        "SELECT uid, binding_id FROM bindings
         WHERE instance_uid = ?1 AND deleted_at IS NULL ORDER BY rowid",
        [instance],
        |row| {
            let mut c = Columns::new(row);
            Ok((c.parse()?, c.parse()?))
        },
    )
}

/// A new life, as ordered.
pub(crate) fn insert(
    db: &Db<'_>,
    ordered: &Submission,
    instance: &str,
    (id, uid): &(BindingId, BindingUid),
) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO bindings (uid, instance_uid, binding_id, platform, request_digest, status,
             created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 'creating', ?6, ?6)",
        params![
            uid.to_string(),
            instance,
            id.as_str(),
            ordered.platform.as_str(),
            ordered.digest.to_string(),
            ordered.at.0,
        ],
    )?;
    Ok(())
}

/// What is wanted of a binding.
pub(crate) fn apply(
    db: &Db<'_>,
    uid: BindingUid,
    wanted: &BindingInput,
    at: Timestamp,
) -> Result<(), StoreError> {
    let row = uid.to_string();
    let parameters = db.seal(TABLE, &row, "parameters", &wanted.parameters)?;
    let bind_resource = db.seal(TABLE, &row, "bind_resource", &wanted.bind_resource)?;
    let context = db.seal(TABLE, &row, "context", &wanted.context)?;
    db.execute(
        "UPDATE bindings SET parameters = ?2, bind_resource = ?3, context = ?4, updated_at = ?5
         WHERE uid = ?1 AND deleted_at IS NULL",
        params![row, parameters, bind_resource, context, at.0],
    )?;
    Ok(())
}

/// The present life within an instance's life, else the last one.
pub(crate) fn latest_uid(
    db: &Db<'_>,
    instance: &str,
    id: &BindingId,
) -> Result<Option<String>, StoreError> {
    db.value(
        "SELECT uid FROM bindings WHERE instance_uid = ?1 AND binding_id = ?2
         ORDER BY deleted_at IS NULL DESC, rowid DESC LIMIT 1",
        params![instance, id.as_str()],
    )
}

pub(crate) fn view(db: &Db<'_>, uid: &str) -> Result<Option<BindingView>, StoreError> {
    let active = job::active(db, Of::Binding(uid))?;
    db.one(
        "SELECT uid, binding_id, instance_uid, status, parameters, bind_resource, context,
             outputs, created_at, deleted_at
         FROM bindings WHERE uid = ?1",
        [uid],
        |row| {
            let mut c = Columns::new(row);
            let mut damage = None;
            Ok(BindingView {
                uid: c.parse()?,
                id: c.parse()?,
                instance: c.parse()?,
                status: c.word::<Status>()?,
                parameters: or_damage(sealed(db, TABLE, uid, "parameters", &mut c), &mut damage)?,
                bind_resource: or_damage(
                    sealed(db, TABLE, uid, "bind_resource", &mut c),
                    &mut damage,
                )?,
                context: or_damage(sealed(db, TABLE, uid, "context", &mut c), &mut damage)?,
                outputs: or_damage(sealed(db, TABLE, uid, "outputs", &mut c), &mut damage)?,
                damage,
                active,
                created_at: Timestamp(c.take()?),
                deleted_at: c.take::<Option<i64>>()?.map(Timestamp),
            })
        },
    )
}
