//! What the owner of an attempt writes: all of it behind a fence.

use evenkeel_core::attempt::{Charge, Containment, End};
use evenkeel_core::ids::BindingUid;
use evenkeel_core::job::Job;
use evenkeel_core::recovery::Exposure;
use evenkeel_core::request::{JobBody, KeptData};
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::{Effect, Event, transition};
use rusqlite::params;

use super::db::Db;
use super::holds;
use super::rows::{attempt, audit, binding, body, instance, job};
use super::settle;
use crate::error::StoreError;
use crate::seam::{Adoption, Claimed, Exposing, Fence, Finish, Inputs, Owned};

/// Longer lines of progress are cut.
const MAX_PROGRESS: usize = 1024;

pub(super) fn adopt(db: &Db<'_>, adoption: &Adoption) -> Result<Owned<Claimed>, StoreError> {
    let from = &adoption.from;
    let Some(owned) = job::load_fenced(db, from)? else {
        return Ok(Owned::Lost);
    };
    let event = Event::Adopt {
        attempt: from.attempt,
        boot: adoption.boot,
    };
    let (job, effects) = transition(owned, event, adoption.at, db.policy)?;
    settle::write(db, &job, &effects, None, adoption.at)?;
    attempt::adopt(db, from.attempt, adoption.boot)?;
    let fence = Fence {
        boot: adoption.boot,
        token: job.token,
        ..*from
    };
    Ok(Owned::Mine(Claimed { job, fence }))
}

pub(super) fn expose(
    db: &Db<'_>,
    fence: &Fence,
    near: &Exposing,
) -> Result<Owned<Job>, StoreError> {
    let Some(owned) = job::load_fenced(db, fence)? else {
        return Ok(Owned::Lost);
    };
    let counted = |job: &Job| job.attempt().map_or(0, |attempt| attempt.deaths.len());
    let before = counted(&owned);
    let Exposure {
        boot,
        cause,
        named,
        exclusive,
    } = near.exposure;
    let event = Event::Expose {
        attempt: fence.attempt,
        boot,
        cause,
        exclusive,
        ran: near.ran,
    };
    let (job, effects) = transition(owned, event, near.at, db.policy)?;
    if let Some(attempt) = job.attempt().filter(|_| counted(&job) > before) {
        settle::write(db, &job, &effects, None, near.at)?;
        attempt::expose(db, attempt)?;
        if named {
            holds::name_culprit(db, boot, job.id)?;
        }
        if let Some(death) = attempt.death_of(boot) {
            let text = format!(
                "{} for attempt {}: boot {boot} died",
                death.charge.as_str(),
                attempt.id
            );
            let about = (job.id, job.target.instance);
            audit::append(db, near.at, audit::BROKER, "charge", about, &text)?;
        }
    }
    Ok(Owned::Mine(job))
}

pub(super) fn inputs(db: &Db<'_>, fence: &Fence) -> Result<Owned<Inputs>, StoreError> {
    let Some(job) = job::load_fenced(db, fence)? else {
        return Ok(Owned::Lost);
    };
    let target = &job.target;
    let binding = target.binding.as_ref().map(|binding| binding.uid);
    let body = body::load(db, job.id)?;
    let instance = target.instance.to_string();
    let of_binding = |uid: Option<BindingUid>| match uid {
        Some(uid) => data(db, binding::TABLE, &uid.to_string()),
        None => Ok(None),
    };
    let data = KeptData {
        instance: data(db, instance::TABLE, &instance)?,
        binding: of_binding(binding)?,
        predecessor: predecessor_data(db, &body)?,
    };
    Ok(Owned::Mine(Inputs { body, data }))
}

/// What the binding keeps that this one takes over from: nothing once it is gone, or if it cannot
/// be read, which is no fault of this one.
fn predecessor_data(db: &Db<'_>, body: &JobBody) -> Result<Option<serde_json::Value>, StoreError> {
    let own = body.binding.as_ref();
    let Some(predecessor) = own.and_then(|binding| binding.predecessor.as_ref()) else {
        return Ok(None);
    };
    match data(db, binding::TABLE, &predecessor.uid.to_string()) {
        Err(StoreError::Damaged(error) | StoreError::Unreadable(error)) => {
            tracing::warn!(
                binding = predecessor.id,
                error,
                "its data cannot be handed on"
            );
            Ok(None)
        }
        read => read,
    }
}

fn data(
    db: &Db<'_>,
    table: &'static str,
    uid: &str,
) -> Result<Option<serde_json::Value>, StoreError> {
    let blob: Option<Vec<u8>> = db
        .value(&format!("SELECT data FROM {table} WHERE uid = ?1"), [uid])?
        .flatten();
    db.open(table, uid, "data", blob.as_deref())
}

pub(super) fn started(
    db: &Db<'_>,
    fence: &Fence,
    containment: Option<Containment>,
    at: Timestamp,
) -> Result<Owned<()>, StoreError> {
    if !job::is_owner(db, fence)? {
        return Ok(Owned::Lost);
    }
    attempt::started(db, fence.attempt, containment, at)?;
    touch(db, fence, at)?;
    Ok(Owned::Mine(()))
}

pub(super) fn progress(
    db: &Db<'_>,
    fence: &Fence,
    line: &str,
    at: Timestamp,
) -> Result<Owned<()>, StoreError> {
    if !job::is_owner(db, fence)? {
        return Ok(Owned::Lost);
    }
    note_progress(db, fence, line)?;
    touch(db, fence, at)?;
    Ok(Owned::Mine(()))
}

fn note_progress(db: &Db<'_>, fence: &Fence, line: &str) -> Result<(), StoreError> {
    let line: String = line.chars().take(MAX_PROGRESS).collect();
    db.execute(
        "UPDATE jobs SET progress = ?2 WHERE id = ?1",
        params![fence.job.to_string(), line],
    )?;
    Ok(())
}

fn touch(db: &Db<'_>, fence: &Fence, at: Timestamp) -> Result<(), StoreError> {
    db.execute(
        "UPDATE jobs SET updated_at = ?2 WHERE id = ?1",
        params![fence.job.to_string(), at.0],
    )?;
    Ok(())
}

pub(super) fn finish(db: &Db<'_>, fence: &Fence, done: &Finish) -> Result<Owned<Job>, StoreError> {
    let Some(owned) = job::load_fenced(db, fence)? else {
        return Ok(Owned::Lost);
    };
    let counted_before = matches!(done.end, End::Exposed { .. })
        && owned
            .attempt()
            .is_some_and(|attempt| attempt.death_of(attempt.boot).is_some());
    let event = Event::End {
        attempt: fence.attempt,
        end: done.end.clone(),
        ran: done.ran,
        chance: done.chance,
    };
    let (job, effects) = transition(owned, event, done.at, db.policy)?;
    attempt::close(db, fence.attempt, done, charge(&effects))?;
    if let Some(line) = &done.progress {
        note_progress(db, fence, line)?;
    }
    // Before the target settles: a target that ends loses its data with the rest.
    settle::keep_data(db, &job, done.outputs.as_ref())?;
    settle::write(db, &job, &effects, done.outputs.as_ref(), done.at)?;
    // What is written about a boot after its death is nothing that it got done.
    if job.state.is_final() && fence.boot == done.by {
        holds::concluded(db, fence.boot, done.at)?;
    }
    // A death that was counted before its run was looked at is on record since then.
    let is_told = counted_before || matches!(charge(&effects), Charge::None | Charge::Disruption);
    if !is_told {
        audit::append(
            db,
            done.at,
            audit::BROKER,
            "charge",
            (job.id, job.target.instance),
            &format!(
                "{} for attempt {}",
                charge(&effects).as_str(),
                fence.attempt
            ),
        )?;
    }
    Ok(Owned::Mine(job))
}

fn charge(effects: &[Effect]) -> Charge {
    effects
        .iter()
        .find_map(|effect| match effect {
            Effect::CloseAttempt { charge, .. } => Some(*charge),
            Effect::StopRun { .. } | Effect::KeepOutputs | Effect::Settle => None,
        })
        .unwrap_or(Charge::None)
}
