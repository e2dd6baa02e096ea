//! What readers ask.

use evenkeel_core::ids::{BindingId, InstanceId, JobId};
use evenkeel_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};

use super::db::{Columns, Db};
use super::rows::{attempt, audit, binding, instance, job};
use crate::error::StoreError;
use crate::seam::{BindingView, Counts, JobDetail, JobFilter, JobSummary, Operation, Standing};

/// Attempts and audit lines of one job in an answer.
const MAX_HISTORY: u32 = 1000;
/// Jobs of one answer.
const MAX_JOBS: u32 = 1000;
/// Who is a suspect still: the mark is only kept up to date of what is not final.
pub(super) const SUSPECT: &str = "j.suspect = 1 AND j.state IN ('queued', 'running', 'backoff')";

pub(super) fn standing(
    db: &Db<'_>,
    instance: &InstanceId,
    binding: Option<&BindingId>,
) -> Result<Standing, StoreError> {
    let Some(life) = instance::standing(db, instance)? else {
        return Ok(Standing::default());
    };
    let standing = life.standing;
    let binding = binding
        .map(|id| binding::standing(db, &standing.uid.to_string(), id))
        .transpose()?
        .flatten();
    Ok(Standing {
        instance: Some(standing),
        binding,
        bundle: Some(life.bundle),
        platform: Some(life.platform),
    })
}

pub(super) fn binding(
    db: &Db<'_>,
    instance: &InstanceId,
    id: &BindingId,
) -> Result<Option<BindingView>, StoreError> {
    let Some(instance) = instance::latest_uid(db, instance)? else {
        return Ok(None);
    };
    match binding::latest_uid(db, &instance, id)? {
        Some(uid) => binding::view(db, &uid),
        None => Ok(None),
    }
}

pub(super) fn bindings(db: &Db<'_>, instance: &InstanceId) -> Result<Vec<BindingView>, StoreError> {
    let live: Option<String> = db.value(
        "SELECT uid FROM instances WHERE instance_id = ?1 AND deleted_at IS NULL",
        [instance.as_str()],
    )?;
    let mut views = Vec::new();
    for (uid, _) in live
        .map(|uid| binding::live(db, &uid))
        .transpose()?
        .unwrap_or_default()
    {
        views.extend(binding::view(db, &uid.to_string())?);
    }
    Ok(views)
}

pub(super) fn operation(
    db: &Db<'_>,
    instance: &InstanceId,
    binding: Option<&BindingId>,
    named: Option<JobId>,
) -> Result<Option<Operation>, StoreError> {
    let binding = binding.map(BindingId::as_str);
    let belongs = match named {
        Some(named) => db.value::<String>(
            "SELECT j.id FROM jobs j JOIN instances i ON i.uid = j.instance_uid
             WHERE j.id = ?1 AND i.instance_id = ?2 AND j.binding_id IS ?3",
            params![named.to_string(), instance.as_str(), binding],
        )?,
        None => None,
    };
    let id = match (belongs, binding) {
        (Some(id), _) => Some(id),
        (None, None) => db.value(
            "SELECT j.id FROM instances i JOIN jobs j ON j.instance_uid = i.uid
             WHERE i.instance_id = ?1 AND j.binding_uid IS NULL
             ORDER BY i.deleted_at IS NULL DESC, i.rowid DESC, j.rowid DESC LIMIT 1",
            [instance.as_str()],
        )?,
        (None, Some(binding)) => db.value(
            "SELECT j.id FROM instances i JOIN bindings b ON b.instance_uid = i.uid
                 JOIN jobs j ON j.binding_uid = b.uid
             WHERE i.instance_id = ?1 AND b.binding_id = ?2
             ORDER BY i.deleted_at IS NULL DESC, i.rowid DESC,
                 b.deleted_at IS NULL DESC, b.rowid DESC, j.rowid DESC LIMIT 1",
            params![instance.as_str(), binding],
        )?,
    };
    let Some(id) = id else { return Ok(None) };
    let sql = format!(
        "{} LEFT JOIN instances i ON i.uid = j.instance_uid
            LEFT JOIN bindings t ON t.uid = j.binding_uid WHERE j.id = ?1",
        job::select(", j.progress, ifnull(t.deleted_at, i.deleted_at) IS NOT NULL, i.platform")
    );
    db.one(&sql, [id], |row| {
        Ok(Operation {
            job: job::read(row)?,
            progress: row.get(job::WIDTH)?,
            target_deleted: row.get(job::WIDTH + 1)?,
            owner: super::db::parse(&row.get::<_, String>(job::WIDTH + 2)?)?,
        })
    })
}

pub(super) fn job(db: &Db<'_>, id: JobId) -> Result<Option<JobDetail>, StoreError> {
    let sql = format!(
        "{} JOIN instances i ON i.uid = j.instance_uid WHERE j.id = ?1",
        job::select(", i.instance_id, j.progress, j.updated_at, j.finished_at, j.discarded_at")
    );
    let detail = db.one(&sql, [id.to_string()], |row| {
        let at = |column: usize| Ok::<_, StoreError>(row.get::<_, Option<i64>>(column)?);
        Ok(JobDetail {
            job: job::read(row)?,
            instance: super::db::parse(&row.get::<_, String>(job::WIDTH)?)?,
            progress: row.get(job::WIDTH + 1)?,
            updated_at: Timestamp(row.get(job::WIDTH + 2)?),
            finished_at: at(job::WIDTH + 3)?.map(Timestamp),
            discarded_at: at(job::WIDTH + 4)?.map(Timestamp),
            after: Vec::new(),
            attempts: Vec::new(),
            audit: Vec::new(),
        })
    })?;
    let Some(detail) = detail else {
        return Ok(None);
    };
    Ok(Some(JobDetail {
        after: db.all(
            "SELECT after_id FROM job_after WHERE job_id = ?1 ORDER BY after_id LIMIT ?2",
            params![id.to_string(), MAX_HISTORY],
            |row| super::db::parse(&row.get::<_, String>(0)?),
        )?,
        attempts: attempt::of_job(db, id, MAX_HISTORY)?,
        audit: audit::of_job(db, id, MAX_HISTORY)?,
        ..detail
    }))
}

/// A row whose header cannot be read is left out: a list with a gap serves an operator better
/// than no list.
pub(super) fn jobs(db: &Db<'_>, filter: &JobFilter) -> Result<Vec<JobSummary>, StoreError> {
    let mut conditions = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    if !filter.states.is_empty() {
        let marks = vec!["?"; filter.states.len()].join(", ");
        conditions.push(format!("j.state IN ({marks})"));
        values.extend(filter.states.iter().cloned().map(Value::Text));
    }
    if let Some(instance) = &filter.instance {
        conditions
            .push("j.instance_uid IN (SELECT uid FROM instances WHERE instance_id = ?)".to_owned());
        values.push(Value::Text(instance.as_str().to_owned()));
    }
    if let Some(service) = &filter.service {
        conditions.push("j.service_id = ?".to_owned());
        values.push(Value::Text(service.as_str().to_owned()));
    }
    if filter.suspect {
        conditions.push(SUSPECT.to_owned());
    }
    if let Some(before) = filter.before {
        conditions.push("j.id < ?".to_owned());
        values.push(Value::Text(before.to_string()));
    }
    let conditions = if conditions.is_empty() {
        String::new()
    } else {
        format!("WHERE {}", conditions.join(" AND "))
    };
    values.push(Value::Integer(i64::from(filter.limit.min(MAX_JOBS))));
    let sql = format!(
        "{} JOIN instances i ON i.uid = j.instance_uid {conditions} ORDER BY j.id DESC LIMIT ?",
        job::select(", i.instance_id, j.progress, j.updated_at, j.discarded_at")
    );
    let rows = db.all(&sql, params_from_iter(values), |row| {
        let summary = job::read(row).and_then(|job| {
            Ok(JobSummary {
                job,
                instance: super::db::parse(&row.get::<_, String>(job::WIDTH)?)?,
                progress: row.get(job::WIDTH + 1)?,
                updated_at: Timestamp(row.get(job::WIDTH + 2)?),
                discarded_at: row.get::<_, Option<i64>>(job::WIDTH + 3)?.map(Timestamp),
            })
        });
        match summary {
            Ok(summary) => Ok(Some(summary)),
            Err(StoreError::Unreadable(error)) => {
                let job: String = row.get(0)?;
                tracing::warn!(job, error, "a job that cannot be read is not listed");
                Ok(None)
            }
            Err(other) => Err(other),
        }
    })?;
    Ok(rows.into_iter().flatten().collect())
}

pub(super) fn counts(db: &Db<'_>) -> Result<Counts, StoreError> {
    let mut counts = Counts::default();
    let states: Vec<(String, u64)> = db.all(
        "SELECT state, count(*) FROM jobs GROUP BY state",
        [],
        |row| {
            let mut c = Columns::new(row);
            Ok((c.take()?, c.count()?))
        },
    )?;
    for (state, number) in states {
        match state.as_str() {
            "queued" => counts.queued = number,
            "running" => counts.running = number,
            "backoff" => counts.backoff = number,
            "succeeded" => counts.succeeded = number,
            "failed" => counts.failed = number,
            "cancelled" => counts.cancelled = number,
            _ => {}
        }
    }
    let number = |sql: &str| {
        let found = db.one(sql, [], |row| Columns::new(row).count())?;
        Ok::<_, StoreError>(found.unwrap_or(0))
    };
    counts.quarantined = number(
        "SELECT count(*) FROM jobs j WHERE j.state = 'quarantined' AND j.discarded_at IS NULL
             AND NOT EXISTS (SELECT 1 FROM jobs r WHERE r.retry_of = j.id)",
    )?;
    counts.suspects = number(&format!("SELECT count(*) FROM jobs j WHERE {SUSPECT}"))?;
    counts.instances = number("SELECT count(*) FROM instances WHERE deleted_at IS NULL")?;
    counts.bindings = number("SELECT count(*) FROM bindings WHERE deleted_at IS NULL")?;
    counts.leaks = number("SELECT count(*) FROM leaks WHERE resolved_at IS NULL")?;
    Ok(counts)
}
