//! `jobs explain`: gathers what is on record of a job, and has its story told.

use evenkeel_core::attempt::{Charge, Death, End, ExposureCause};
use evenkeel_core::explain::story::{Act, AttemptFacts, Facts, Story, story, tied_to_broker};
use evenkeel_core::forensics::{self, BrokerDeath};
use evenkeel_core::ids::{AttemptId, JobId};
use evenkeel_core::time::Timestamp;
use evenkeel_store::seam::{AttemptRecord, EndedBoot, JobDetail};

use super::jobs::{detail, stream, time};
use super::types::{self, Advice, Explanation, Forensics, JobLog, StoryEvent};
use super::{AdminState, Problem};

/// Neighbours in an answer.
const MAX_BESIDE: u32 = 100;
/// How much of each stream of a log is shown with the story.
const LOG_BYTES: usize = 4 << 10;
/// Bad ends whose logs are looked for: the newest.
const MAX_LOGS: usize = 50;

impl AdminState {
    pub(super) async fn explanation(&self, id: JobId) -> Result<Explanation, Problem> {
        let found = self.known(id).await?;
        let read = self.engine.read();
        let beside = read.beside(id, MAX_BESIDE).await?;
        let boots = read.ended_boots(id, self.engine.boot()).await?;
        let deaths = deaths(&found.attempts, &boots);
        let catalog = self.engine.catalog();
        let service = match catalog.service(&found.job.service) {
            Some(pinned) => pinned.bundle.service.name.clone(),
            None => found.job.service.to_string(),
        };
        let logs = self.logs_of_bad(&found).await;
        let records = found.attempts.iter();
        let attempts: Vec<AttemptFacts> = records.map(|record| facts_of(record, &logs)).collect();
        let waits = self.waits();
        let acts: Vec<Act> = found.audit.iter().map(act).collect();
        let now = self.engine.now();
        let told = story(&Facts {
            job: &found.job,
            instance: found.instance.as_str(),
            service: &service,
            now,
            finished_at: found.finished_at,
            discarded: found.discarded_at.is_some(),
            attempts: &attempts,
            acts: &acts,
            beside: &beside,
            deaths: &deaths,
            policy: &self.engine.policy(),
            held: waits.held.as_deref(),
            turn: waits.turn.as_ref(),
        });
        let log = self.log_of_last_bad(&found).await;
        let Story {
            headline,
            events,
            standing,
            advice,
        } = told;
        Ok(Explanation {
            told_at: time(now),
            headline,
            events: events.into_iter().map(event).collect(),
            standing,
            advice: advice
                .into_iter()
                .map(|one| Advice {
                    text: one.text,
                    command: one.command,
                })
                .collect(),
            beside: beside.into_iter().map(neighbour).collect(),
            broker_deaths: deaths.into_iter().map(death).collect(),
            log,
            job: detail(&catalog, found, &waits),
        })
    }

    /// A story without a log is better than none: what cannot be read is left out.
    async fn log_of_last_bad(&self, found: &JobDetail) -> Option<JobLog> {
        let attempt = bad_ends(found).next()?;
        let tail = self.engine.log(attempt.id, LOG_BYTES).await.ok()??;
        Some(JobLog {
            job: found.job.id,
            attempt: attempt.id,
            ordinal: attempt.ordinal,
            stdout: stream(&tail.stdout.bytes, tail.stdout.cut),
            stderr: stream(&tail.stderr.bytes, tail.stderr.cut),
        })
    }

    /// Whose logs there are to be read, of the attempts that came to a bad end.
    async fn logs_of_bad(&self, found: &JobDetail) -> Vec<AttemptId> {
        let mut logs = Vec::new();
        for attempt in bad_ends(found).take(MAX_LOGS) {
            if let Ok(Some(tail)) = self.engine.log(attempt.id, 1).await
                && !(tail.stdout.bytes.is_empty() && tail.stderr.bytes.is_empty())
            {
                logs.push(attempt.id);
            }
        }
        logs
    }
}

/// Attempts that came to a bad end, newest first.
fn bad_ends(found: &JobDetail) -> impl Iterator<Item = &AttemptRecord> {
    let is_bad = |attempt: &&AttemptRecord| {
        let end = attempt.end.as_ref();
        end.is_some_and(|end| *end != End::Succeeded)
    };
    found.attempts.iter().rev().filter(is_bad)
}

/// The deaths of brokers that the job was tied to: the one place where what is known of a boot's
/// end is joined with what ties an attempt to it.
fn deaths(attempts: &[AttemptRecord], boots: &[EndedBoot]) -> Vec<BrokerDeath> {
    let known = boots.iter().filter_map(|boot| {
        let counted = attempts
            .iter()
            .flat_map(|attempt| &attempt.deaths)
            .find(|death| death.boot == boot.id);
        let lost = attempts.iter().rev().find(|attempt| {
            attempt.boot == boot.id && attempt.end.as_ref().is_some_and(tied_to_broker)
        });
        if counted.is_none() && lost.is_none() {
            return None;
        }
        let is_named = |death: &&Death| death.cause == ExposureCause::NamedByBlackBox;
        let named = counted.filter(is_named);
        Some(BrokerDeath {
            boot: boot.id,
            at: ended_at(boot, lost),
            how: how_it_ended(boot),
            named: named.is_some(),
            exclusive: named.is_some_and(|death| death.exclusive),
            charge: counted.map(|death| death.charge),
        })
    });
    known.collect()
}

/// A boot says only now and then that it lives; what it did until its end tells more.
fn ended_at(boot: &EndedBoot, lost: Option<&AttemptRecord>) -> Timestamp {
    if let Some(at) = boot.death.as_ref().map(|death| death.ended_at) {
        return at;
    }
    let signs = [
        Some(boot.seen_at),
        lost.map(|attempt| attempt.claimed_at),
        lost.and_then(|attempt| attempt.forensics.as_ref()?.last_sign),
    ];
    let seen_at = signs.into_iter().flatten().max();
    boot.drained_at.or(seen_at).unwrap_or(boot.seen_at)
}

fn how_it_ended(boot: &EndedBoot) -> String {
    if let Some(death) = &boot.death {
        return death.to_string();
    }
    match (&boot.verdict, boot.drained_at) {
        (Some(verdict), _) => verdict.clone(),
        (None, Some(_)) => "was asked to end, and did".to_owned(),
        (None, None) => "ended without having been asked to".to_owned(),
    }
}

fn facts_of(record: &AttemptRecord, logs: &[AttemptId]) -> AttemptFacts {
    let ended = record.ended_at.zip(record.end.clone());
    AttemptFacts {
        ordinal: record.ordinal,
        boot: record.boot,
        solo: record.solo,
        claimed_at: record.claimed_at,
        started_at: record.started_at,
        containment: record.containment,
        ended: ended.map(|(at, end)| (at, end, record.charge.unwrap_or(Charge::None))),
        peak_memory: record.usage.0,
        cpu_millis: record.usage.1,
        forensics: record.forensics.clone(),
        has_log: logs.contains(&record.id),
    }
}

fn act(line: &evenkeel_store::seam::AuditRecord) -> Act {
    Act {
        at: line.at,
        actor: line.actor.clone(),
        what: line.what.clone(),
        detail: line.detail.clone(),
    }
}

fn event(told: evenkeel_core::explain::story::Told) -> StoryEvent {
    StoryEvent {
        at: time(told.at),
        attempt: told.attempt,
        text: told.text,
        details: told.details,
    }
}

fn neighbour(other: forensics::Beside) -> types::Beside {
    types::Beside {
        attempt: other.ordinal,
        job: other.job,
        action: other.action,
        instance: other.instance,
        at: time(other.at),
        charge: other.charge,
        same_broker: other.same_broker,
    }
}

fn death(death: BrokerDeath) -> types::BrokerDeath {
    types::BrokerDeath {
        boot: death.boot,
        at: time(death.at),
        how: death.how,
        named: death.named,
        exclusive: death.exclusive,
        charge: death.charge,
    }
}

/// What is known of a bad end, as the wire has it.
pub(super) fn forensics(known: forensics::Forensics) -> Forensics {
    Forensics {
        exit_code: known.exit_code,
        signal: known.signal,
        core_dumped: known.core_dumped,
        victim: known.victim,
        sender: known.sender,
        memory: known.memory,
        memory_limit_bytes: known.memory_limit,
        last_sign_at: known.last_sign.map(time),
        silent_ms: known.silent_ms,
        progress: known.progress,
        log_bytes: known.log,
        panic: known.panic,
    }
}
