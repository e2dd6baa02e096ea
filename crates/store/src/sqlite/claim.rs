//! Claims: which due job is next, and its passage to Running.
//!
//! Fair between services: of the services that have something due and room for it, the one that
//! was served longest ago is next (`service_turns`); within a service what has been due longest.
//! Each look-up is a seek in an index that begins with (suspect, service), so that a claim
//! costs the same whatever waits behind it.

use std::collections::BTreeSet;

use evenkeel_core::ids::JobId;
use evenkeel_core::job::State;
use evenkeel_core::request::CODEC_VERSION;
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::{Event, transition};
use rusqlite::params;

use super::db::{Db, millis, parse};
use super::rows::{attempt, job};
use super::{recover, settle};
use crate::error::StoreError;
use crate::seam::{ClaimDue, Claimed, NextDue};

/// Most jobs that end in one claim without an attempt (condemned, past their deadline,
/// unreadable): bounds the transaction.
const MAX_ENDED: u32 = 256;

/// The first of a service's line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Head {
    due_at: i64,
    id: String,
    service: String,
}

pub(super) fn claim_due(db: &Db<'_>, claim: &ClaimDue) -> Result<Vec<Claimed>, StoreError> {
    let mut turn = Turn {
        db,
        claim,
        ended: 0,
        full: BTreeSet::new(),
    };
    if claim.solo
        && let Some(suspect) = turn.suspect()?
    {
        return Ok(vec![suspect]);
    }
    turn.others()
}

struct Turn<'a> {
    db: &'a Db<'a>,
    claim: &'a ClaimDue,
    ended: u32,
    /// Services that have no more room.
    full: BTreeSet<String>,
}

impl Turn<'_> {
    /// The oldest due suspect, if there is one.
    fn suspect(&mut self) -> Result<Option<Claimed>, StoreError> {
        if self.claim.attempts.is_empty() {
            return Ok(None);
        }
        while self.ended < MAX_ENDED {
            let heads = heads(self.db, true, self.claim.at)?;
            let Some(head) = heads.into_iter().min() else {
                return Ok(None);
            };
            if let Some(claimed) = self.take(&head, 0)? {
                return Ok(Some(claimed));
            }
        }
        Ok(None)
    }

    fn others(&mut self) -> Result<Vec<Claimed>, StoreError> {
        let mut claimed = Vec::new();
        while claimed.len() < self.claim.attempts.len() && self.ended < MAX_ENDED {
            let Some(head) = self.next_head()? else { break };
            if let Some(one) = self.take(&head, claimed.len())? {
                serve(self.db, &head.service)?;
                claimed.push(one);
            }
        }
        Ok(claimed)
    }

    /// Whose turn it is.
    fn next_head(&mut self) -> Result<Option<Head>, StoreError> {
        let mut best: Option<(i64, Head)> = None;
        for head in heads(self.db, false, self.claim.at)? {
            if self.full.contains(&head.service) {
                continue;
            }
            let running: u32 = self
                .db
                .value(
                    "SELECT count(*) FROM jobs WHERE state = 'running' AND service_id = ?1",
                    [&head.service],
                )?
                .unwrap_or(0);
            if running >= self.claim.per_service {
                self.full.insert(head.service);
                continue;
            }
            let turn = self
                .db
                .value(
                    "SELECT turn FROM service_turns WHERE service_id = ?1",
                    [&head.service],
                )?
                .unwrap_or(0);
            let candidate = (turn, head);
            if best.as_ref().is_none_or(|best| candidate < *best) {
                best = Some(candidate);
            }
        }
        Ok(best.map(|(_, head)| head))
    }

    /// Claims a job, or ends it where it may not run.
    fn take(&mut self, head: &Head, nth: usize) -> Result<Option<Claimed>, StoreError> {
        let at = self.claim.at;
        let found = parse::<JobId>(&head.id).and_then(|id| job::load(self.db, id));
        let waiting = match found {
            Ok(Some(waiting)) => waiting,
            Ok(None) => {
                self.ended += 1;
                return Ok(None);
            }
            Err(StoreError::Unreadable(message)) => {
                self.ended += 1;
                recover::set_aside(self.db, &head.id, &message, at)?;
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        let event = Event::Claim {
            attempt: self.claim.attempts[nth],
            boot: self.claim.boot,
            run_root: self.claim.run_root,
        };
        let (job, effects) = transition(waiting, event, at, self.db.policy)?;
        settle::write(self.db, &job, &effects, None, at)?;
        match (&job.state, job::fence(&job)) {
            (State::Running { .. }, Some(fence)) => {
                attempt::open(self.db, &job)?;
                Ok(Some(Claimed { job, fence }))
            }
            _ => {
                self.ended += 1;
                Ok(None)
            }
        }
    }
}

/// Notes that a service had its turn.
fn serve(db: &Db<'_>, service: &str) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO service_turns (service_id, turn)
         SELECT ?1, 1 + ifnull(max(turn), 0) FROM service_turns WHERE true
         ON CONFLICT (service_id) DO UPDATE SET turn = excluded.turn",
        [service],
    )?;
    Ok(())
}

/// One seek from service to service in a partial index, instead of a walk over its rows.
const NEXT_QUEUED: &str = "SELECT min(service_id) FROM jobs WHERE state = 'queued' AND blocked = 0
     AND suspect = ?1 AND service_id > ?2";
const NEXT_BACKOFF: &str = "SELECT min(service_id) FROM jobs WHERE state = 'backoff'
     AND suspect = ?1 AND service_id > ?2";

/// The longest due of each line of a service. A wait that the clock cannot have chosen counts
/// as over (`transition::is_due`).
const FIRST_QUEUED: &str = "SELECT queued_at, id FROM jobs WHERE state = 'queued' AND blocked = 0
     AND suspect = ?1 AND service_id = ?2 AND codec_version <= ?3
     ORDER BY queued_at, id LIMIT 1";
const FIRST_BACKOFF: &str = "SELECT next_at, id FROM jobs WHERE state = 'backoff'
     AND suspect = ?1 AND service_id = ?2 AND codec_version <= ?3 AND next_at <= ?4
     ORDER BY next_at, id LIMIT 1";
const FIRST_STEPPED: &str = "SELECT next_at, id FROM jobs WHERE state = 'backoff'
     AND suspect = ?1 AND service_id = ?2 AND codec_version <= ?3 AND next_at > ?4
     ORDER BY next_at, id LIMIT 1";

/// The head of each service's line.
fn heads(db: &Db<'_>, suspect: bool, now: Timestamp) -> Result<Vec<Head>, StoreError> {
    let mut services = BTreeSet::new();
    for next in [NEXT_QUEUED, NEXT_BACKOFF] {
        let mut last = String::new();
        while let Some(service) = db
            .value::<Option<String>>(next, params![suspect, last])?
            .flatten()
        {
            last.clone_from(&service);
            services.insert(service);
        }
    }
    let stepped = now.plus(db.policy.backoff_max).0;
    let mut heads = Vec::new();
    for service in services {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let codec = CODEC_VERSION;
        let lines: [Option<(i64, String)>; 3] = [
            db.one(FIRST_QUEUED, params![suspect, service, codec], read)?,
            db.one(FIRST_BACKOFF, params![suspect, service, codec, now.0], read)?,
            db.one(
                FIRST_STEPPED,
                params![suspect, service, codec, stepped],
                read,
            )?,
        ];
        if let Some((due_at, id)) = lines.into_iter().flatten().min() {
            heads.push(Head {
                due_at,
                id,
                service,
            });
        }
    }
    Ok(heads)
}

pub(super) fn next_due(db: &Db<'_>, now: Timestamp) -> Result<NextDue, StoreError> {
    let other = heads(db, false, now)?.into_iter().min();
    let suspect = heads(db, true, now)?.into_iter().min();
    let latest = now.0.saturating_add(millis(db.policy.backoff_max));
    let next_at: Option<i64> = db
        .value::<Option<i64>>(
            "SELECT min(next_at) FROM jobs WHERE state = 'backoff' AND codec_version <= ?1
                 AND next_at > ?2 AND next_at <= ?3",
            params![CODEC_VERSION, now.0, latest],
        )?
        .flatten();
    let first = suspect.filter(|suspect| other.as_ref().is_none_or(|other| suspect < other));
    Ok(NextDue {
        due: other.is_some(),
        suspect_first: first.is_some(),
        suspect: first.and_then(|head| parse(&head.id).ok()),
        next_at: next_at.map(Timestamp),
    })
}

#[cfg(test)]
pub(super) const SEEKS: [&str; 5] = [
    NEXT_QUEUED,
    NEXT_BACKOFF,
    FIRST_QUEUED,
    FIRST_BACKOFF,
    FIRST_STEPPED,
];
