//! Lives of service instances.

use evenkeel_core::admit::InstanceStanding;
use evenkeel_core::ids::{BundleDigest, InstanceId, InstanceUid, Platform};
use evenkeel_core::instance::Status;
use evenkeel_core::request::{JobBody, Object};
use evenkeel_core::time::Timestamp;
use rusqlite::params;

use super::super::db::{Columns, Db};
use super::job::{self, Of};
use crate::error::StoreError;
use crate::seam::{InstanceView, Submission};

pub(crate) const TABLE: &str = "instances";

/// The present life of an instance.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) standing: InstanceStanding,
    pub(crate) bundle: BundleDigest,
    /// Who ordered it.
    pub(crate) platform: Platform,
    pub(crate) revision: u64,
}

pub(crate) fn standing(db: &Db<'_>, id: &InstanceId) -> Result<Option<Life>, StoreError> {
    let found = db.one(
        "SELECT uid, service_id, plan_id, request_digest, status, bundle, platform, revision
         FROM instances WHERE instance_id = ?1 AND deleted_at IS NULL",
        [id.as_str()],
        |row| {
            let mut c = Columns::new(row);
            let standing = InstanceStanding {
                uid: c.parse()?,
                service: c.parse()?,
                plan: c.parse()?,
                digest: c.parse()?,
                status: c.word()?,
                active: Vec::new(),
                active_bindings: Vec::new(),
            };
            Ok(Life {
                standing,
                bundle: c.parse()?,
                platform: c.parse()?,
                revision: c.count()?,
            })
        },
    )?;
    found
        .map(|mut life| {
            let uid = life.standing.uid.to_string();
            life.standing.active = job::active(db, Of::Instance(&uid))?;
            life.standing.active_bindings = job::active(db, Of::Bindings(&uid))?;
            Ok(life)
        })
        .transpose()
}

/// A new life, as ordered.
pub(crate) fn insert(db: &Db<'_>, ordered: &Submission) -> Result<(), StoreError> {
    let uid = ordered.new_instance_uid.to_string();
    db.execute(
        "INSERT INTO instances (uid, instance_id, platform, service_id, plan_id, bundle,
             request_digest, status, organization_guid, space_guid, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'creating', ?8, ?9, ?10, ?10)",
        params![
            uid,
            ordered.instance.as_str(),
            ordered.platform.as_str(),
            ordered.service.as_str(),
            ordered.plan.as_str(),
            ordered.bundle.to_string(),
            ordered.digest.to_string(),
            ordered.body.instance.organization_guid,
            ordered.body.instance.space_guid,
            ordered.at.0,
        ],
    )?;
    Ok(())
}

/// What is wanted of an instance that is being made, or what was applied to it.
pub(crate) fn apply(
    db: &Db<'_>,
    uid: InstanceUid,
    bundle: BundleDigest,
    body: &JobBody,
    at: Timestamp,
) -> Result<(), StoreError> {
    let row = uid.to_string();
    let parameters = db.seal(TABLE, &row, "parameters", &body.instance.parameters)?;
    let context = db.seal(TABLE, &row, "context", &body.instance.context)?;
    db.execute(
        "UPDATE instances SET plan_id = ?2, maintenance_version = ?3, bundle = ?4,
             parameters = ?5, context = ?6, updated_at = ?7, revision = revision + 1
         WHERE uid = ?1 AND deleted_at IS NULL",
        params![
            row,
            body.plan.id.as_str(),
            body.plan.maintenance_version,
            bundle.to_string(),
            parameters,
            context,
            at.0
        ],
    )?;
    Ok(())
}

/// The newest context, of an instance that nobody is working on.
pub(crate) fn keep_context(
    db: &Db<'_>,
    uid: InstanceUid,
    context: &Object,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let row = uid.to_string();
    if !job::active(db, Of::Instance(&row))?.is_empty() {
        return Ok(false);
    }
    let sealed = db.seal(TABLE, &row, "context", context)?;
    let kept = db.execute(
        "UPDATE instances SET context = ?2, updated_at = ?3, revision = revision + 1
         WHERE uid = ?1 AND deleted_at IS NULL",
        params![row, sealed, at.0],
    )?;
    Ok(kept == 1)
}

/// The present life, else the last one.
pub(crate) fn latest_uid(db: &Db<'_>, id: &InstanceId) -> Result<Option<String>, StoreError> {
    db.value(
        "SELECT uid FROM instances WHERE instance_id = ?1
         ORDER BY deleted_at IS NULL DESC, rowid DESC LIMIT 1",
        [id.as_str()],
    )
}

pub(crate) fn view(db: &Db<'_>, id: &InstanceId) -> Result<Option<InstanceView>, StoreError> {
    let Some(uid) = latest_uid(db, id)? else {
        return Ok(None);
    };
    let active = job::active(db, Of::Instance(&uid))?;
    db.one(
        "SELECT uid, instance_id, platform, service_id, plan_id, bundle, revision, status, parameters,
             context, organization_guid, space_guid, maintenance_version, outputs, created_at,
             deleted_at
         FROM instances WHERE uid = ?1",
        [&uid],
        |row| {
            let mut c = Columns::new(row);
            let mut damage = None;
            Ok(InstanceView {
                uid: c.parse()?,
                id: c.parse()?,
                platform: c.parse()?,
                service: c.parse()?,
                plan: c.parse()?,
                bundle: c.parse()?,
                revision: c.count()?,
                status: c.word::<Status>()?,
                parameters: or_damage(sealed(db, TABLE, &uid, "parameters", &mut c), &mut damage)?,
                context: or_damage(sealed(db, TABLE, &uid, "context", &mut c), &mut damage)?,
                organization_guid: c.take()?,
                space_guid: c.take()?,
                maintenance_version: c.take()?,
                outputs: or_damage(sealed(db, TABLE, &uid, "outputs", &mut c), &mut damage)?,
                damage,
                active,
                created_at: Timestamp(c.take()?),
                deleted_at: c.take::<Option<i64>>()?.map(Timestamp),
            })
        },
    )
}

/// A part that cannot be read is empty and told: a delete must do without it.
pub(super) fn or_damage<T: Default>(
    part: Result<T, StoreError>,
    damage: &mut Option<String>,
) -> Result<T, StoreError> {
    match part {
        Err(StoreError::Damaged(what) | StoreError::Unreadable(what)) => {
            damage.get_or_insert(what);
            Ok(T::default())
        }
        other => other,
    }
}

/// The next column, sealed; empty is the default.
pub(super) fn sealed<T: serde::de::DeserializeOwned + Default>(
    db: &Db<'_>,
    table: &'static str,
    row: &str,
    column: &'static str,
    columns: &mut Columns<'_, '_>,
) -> Result<T, StoreError> {
    let blob: Option<Vec<u8>> = columns.take()?;
    Ok(db
        .open(table, row, column, blob.as_deref())?
        .unwrap_or_default())
}
