//! Accounts: one for each (instance life, binding id, action).

use evenkeel_core::action::Action;
use evenkeel_core::budget::Budget;
use evenkeel_core::job::Target;
use rusqlite::params;

use super::super::db::{Columns, Db, millis, span};
use crate::error::StoreError;

/// The columns of an account, in the order that [`read`] takes them.
pub(crate) const COLUMNS: &str =
    "b.crashes, b.losses, b.exposures, b.disruptions, b.suspect, b.longest_lost_ms";

/// Reads an account from a row of an outer join: nothing on record is an account at zero.
pub(crate) fn read(columns: &mut Columns<'_, '_>) -> Result<Budget, StoreError> {
    let mut count = || Ok::<_, StoreError>(columns.take::<Option<u32>>()?.unwrap_or(0));
    Ok(Budget {
        crashes: count()?,
        losses: count()?,
        exposures: count()?,
        disruptions: count()?,
        suspect: columns.take::<Option<bool>>()?.unwrap_or(false),
        longest_lost: span(columns.take::<Option<i64>>()?.unwrap_or(0)),
    })
}

pub(crate) fn load(db: &Db<'_>, target: &Target, action: Action) -> Result<Budget, StoreError> {
    let found = db.one(
        &format!(
            "SELECT {COLUMNS} FROM budgets b
             WHERE b.instance_uid = ?1 AND b.binding_id = ?2 AND b.action = ?3"
        ),
        params![
            target.instance.to_string(),
            account(target),
            action.as_str()
        ],
        |row| read(&mut Columns::new(row)),
    )?;
    Ok(found.unwrap_or_default())
}

/// Writes an account, and repeats its suspicion where claims look.
pub(crate) fn save(
    db: &Db<'_>,
    target: &Target,
    action: Action,
    budget: &Budget,
) -> Result<(), StoreError> {
    if *budget == load(db, target, action)? {
        return Ok(());
    }
    let instance = target.instance.to_string();
    let account = account(target);
    db.execute(
        "INSERT INTO budgets (instance_uid, binding_id, action,
             crashes, losses, exposures, disruptions, suspect, longest_lost_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT DO UPDATE SET crashes = ?4, losses = ?5, exposures = ?6, disruptions = ?7,
             suspect = ?8, longest_lost_ms = ?9",
        params![
            instance,
            account,
            action.as_str(),
            budget.crashes,
            budget.losses,
            budget.exposures,
            budget.disruptions,
            budget.suspect,
            millis(budget.longest_lost),
        ],
    )?;
    db.execute(
        "UPDATE jobs INDEXED BY jobs_unfinished SET suspect = ?4
         WHERE instance_uid = ?1 AND state IN ('queued', 'running', 'backoff')
             AND ifnull(binding_id, '') = ?2 AND action = ?3 AND suspect <> ?4",
        params![instance, account, action.as_str(), budget.suspect],
    )?;
    Ok(())
}

fn account(target: &Target) -> &str {
    let binding = target.binding.as_ref();
    binding.map_or("", |binding| binding.id.as_str())
}
