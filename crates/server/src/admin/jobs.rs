//! Jobs as an operator sees them.

use evenkeel_core::attempt::End;
use evenkeel_core::explain;
use evenkeel_core::ids::{InstanceId, JobId, ServiceId};
use evenkeel_core::job::{Job, State};
use evenkeel_core::time::Timestamp;
use evenkeel_engine::catalog::Catalog;
use evenkeel_store::seam::{self, JobFilter};

use super::explanation::forensics;
use super::turn::Waits;
use super::types::{
    Attempt, AuditLine, Budget, ErrorKind, JobDetail, JobList, JobLog, JobState, JobSummary,
    LogStream,
};
use super::{AdminState, Problem};
use crate::query;

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 500;
const DEFAULT_LOG_BYTES: usize = 64 * 1024;
const MAX_LOG_BYTES: usize = 1024 * 1024;

impl AdminState {
    pub(super) async fn jobs(&self, query: Option<&str>) -> Result<JobList, Problem> {
        let filter = filter(query)?;
        // One more than asked for tells whether there is another page.
        let asked = JobFilter {
            limit: filter.limit + 1,
            ..filter.clone()
        };
        let found = self.engine.read().jobs(&asked).await?;
        let page = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let next = (found.len() > page).then(|| found[page - 1].job.id);
        let catalog = self.engine.catalog();
        let waits = self.waits();
        let jobs = found.into_iter().take(page).map(|row| {
            let seam::JobSummary {
                job,
                instance,
                progress,
                updated_at,
                discarded_at,
            } = row;
            summary(
                &catalog,
                &job,
                instance,
                progress,
                updated_at,
                discarded_at.is_some(),
                &waits,
            )
        });
        Ok(JobList {
            jobs: jobs.collect(),
            next,
        })
    }

    pub(super) async fn job(&self, id: JobId) -> Result<JobDetail, Problem> {
        let found = self.known(id).await?;
        Ok(detail(&self.engine.catalog(), found, &self.waits()))
    }

    pub(super) async fn log(&self, id: JobId, query: Option<&str>) -> Result<JobLog, Problem> {
        let (ordinal, bytes) = log_query(query)?;
        let attempts = self.known(id).await?.attempts;
        let found = match ordinal {
            Some(ordinal) => attempts.iter().find(|attempt| attempt.ordinal == ordinal),
            None => attempts.last(),
        };
        let attempt = found.ok_or_else(|| {
            let text = match ordinal {
                Some(ordinal) => format!("job {id} has no attempt {ordinal}"),
                None => format!("job {id} has not been attempted yet, so it has no log"),
            };
            Problem::new(ErrorKind::NotFound, text)
        })?;
        let tail = self.engine.log(attempt.id, bytes).await.map_err(|error| {
            let text = format!(
                "the log of attempt {} cannot be read: {error}",
                attempt.ordinal
            );
            Problem::new(ErrorKind::Internal, text)
        })?;
        let tail = tail.ok_or_else(|| {
            let text = format!("attempt {} has no log, or no longer", attempt.ordinal);
            Problem::new(ErrorKind::NotFound, text)
        })?;
        Ok(JobLog {
            job: id,
            attempt: attempt.id,
            ordinal: attempt.ordinal,
            stdout: stream(&tail.stdout.bytes, tail.stdout.cut),
            stderr: stream(&tail.stderr.bytes, tail.stderr.cut),
        })
    }

    pub(super) async fn known(&self, id: JobId) -> Result<seam::JobDetail, Problem> {
        let found = self.engine.read().job(id).await?;
        found.ok_or_else(|| no_job(id))
    }
}

/// A job with its history, as the wire has it.
pub(super) fn detail(catalog: &Catalog, found: seam::JobDetail, waits: &Waits) -> JobDetail {
    let job = found.job;
    let summary = summary(
        catalog,
        &job,
        found.instance,
        found.progress,
        found.updated_at,
        found.discarded_at.is_some(),
        waits,
    );
    JobDetail {
        summary,
        bundle: job.bundle,
        tempfails: job.tempfails,
        retries: job.retries,
        finished_at: found.finished_at.map(time),
        discarded_at: found.discarded_at.map(time),
        retry_of: job.retry_of,
        superseded_by: job.superseded_by,
        after: found.after,
        budget: Budget {
            crashes: job.budget.crashes,
            losses: job.budget.losses,
            exposures: job.budget.exposures,
            disruptions: job.budget.disruptions,
        },
        history: found.attempts.into_iter().map(attempt).collect(),
        audit: found.audit.into_iter().map(audit).collect(),
    }
}

/// 404 for a job.
pub(super) fn no_job(id: JobId) -> Problem {
    Problem::new(
        ErrorKind::NotFound,
        format!("there is no job {id}, or no longer"),
    )
}

/// An instant as the wire writes it.
pub(super) fn time(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or(if at.as_millis() < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    })
}

/// The same to the second, for texts.
pub(super) fn second(at: Timestamp) -> String {
    time(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn summary(
    catalog: &Catalog,
    job: &Job,
    instance: InstanceId,
    progress: Option<String>,
    updated_at: Timestamp,
    discarded: bool,
    waits: &Waits,
) -> JobSummary {
    let next_at = match job.state {
        State::Backoff { next_at } => Some(time(next_at)),
        State::Queued
        | State::Running { .. }
        | State::Succeeded
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Quarantined { .. } => None,
    };
    JobSummary {
        id: job.id,
        action: job.action,
        state: JobState::from(&job.state),
        instance,
        binding: job
            .target
            .binding
            .as_ref()
            .map(|binding| binding.id.clone()),
        service_name: catalog
            .service(&job.service)
            .map(|pinned| pinned.bundle.service.name.clone()),
        service: job.service.clone(),
        platform: job.platform.clone(),
        attempts: job.attempts,
        created_at: time(job.created_at),
        updated_at: time(updated_at),
        deadline_at: time(job.deadline_at),
        next_at,
        reason: Some(reason(job, discarded, waits)).filter(|line| !line.is_empty()),
        progress,
        suspect: job.budget.suspect,
        discarded,
    }
}

/// Where it stands, and what keeps it from being started.
fn reason(job: &Job, discarded: bool, waits: &Waits) -> String {
    let mut line = explain::state_line(job, discarded);
    for why in waits.lines(job) {
        line.push_str("; ");
        line.push_str(&why);
    }
    line
}

fn attempt(record: seam::AttemptRecord) -> Attempt {
    let end = record.end.as_ref();
    let charge = record.charge;
    Attempt {
        id: record.id,
        ordinal: record.ordinal,
        boot: record.boot,
        solo: record.solo,
        claimed_at: time(record.claimed_at),
        started_at: record.started_at.map(time),
        ended_at: record.ended_at.map(time),
        containment: record.containment,
        end: end.map(|end| end_word(end).to_owned()),
        reason: end.map(explain::end_line),
        charge,
        charge_reason: charge
            .zip(end)
            .map(|(charge, end)| explain::charge_line(charge, end).to_owned()),
        peak_memory_bytes: record.usage.0,
        cpu_millis: record.usage.1,
        deaths: record.deaths,
        forensics: record.forensics.map(forensics),
    }
}

fn end_word(end: &End) -> &'static str {
    match end {
        End::Succeeded => "succeeded",
        End::Failed { .. } => "failed",
        End::TryLater => "try_later",
        End::Stopped => "stopped",
        End::Crashed { .. } => "crashed",
        End::Exposed { .. } => "exposed",
        End::Disrupted { .. } => "disrupted",
        End::OurBug { .. } => "our_bug",
        End::Unreadable { .. } => "unreadable",
    }
}

fn audit(line: seam::AuditRecord) -> AuditLine {
    AuditLine {
        at: time(line.at),
        actor: line.actor,
        what: line.what,
        detail: line.detail,
    }
}

pub(super) fn stream(bytes: &[u8], cut: bool) -> LogStream {
    LogStream {
        text: String::from_utf8_lossy(bytes).into_owned(),
        cut,
    }
}

pub(super) fn bad(name: &str, what: impl std::fmt::Display) -> Problem {
    Problem::new(ErrorKind::BadRequest, format!("?{name}: {what}"))
}

pub(super) fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>, Problem> {
    query::pairs(query).map_err(|what| Problem::new(ErrorKind::BadRequest, what))
}

pub(super) fn number(name: &str, value: &str, max: u32) -> Result<u32, Problem> {
    let number = value
        .parse()
        .ok()
        .filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| bad(name, format_args!("must be a number from 1 to {max}")))
}

fn filter(query: Option<&str>) -> Result<JobFilter, Problem> {
    let mut filter = JobFilter {
        limit: DEFAULT_LIMIT,
        ..JobFilter::default()
    };
    for (name, value) in pairs(query)? {
        match name.as_str() {
            "state" => {
                for word in value.split(',').filter(|word| !word.is_empty()) {
                    let state: JobState = word.parse().map_err(|error| bad("state", error))?;
                    filter.states.push(state.as_str().to_owned());
                }
            }
            "instance" => {
                let id = InstanceId::new(value).map_err(|error| bad("instance", error))?;
                filter.instance = Some(id);
            }
            "service" => {
                let id = ServiceId::new(value).map_err(|error| bad("service", error))?;
                filter.service = Some(id);
            }
            "suspect" if value == "true" => filter.suspect = true,
            "suspect" => return Err(bad("suspect", "is true, or left out")),
            "before" => {
                filter.before = Some(value.parse().map_err(|error| bad("before", error))?);
            }
            "limit" => filter.limit = number("limit", &value, MAX_LIMIT)?,
            other => {
                let known =
                    "is unknown; known are state, instance, service, suspect, before, limit";
                return Err(bad(other, known));
            }
        }
    }
    filter.states.sort_unstable();
    filter.states.dedup();
    Ok(filter)
}

fn log_query(query: Option<&str>) -> Result<(Option<u32>, usize), Problem> {
    let (mut ordinal, mut bytes) = (None, DEFAULT_LOG_BYTES);
    for (name, value) in pairs(query)? {
        match name.as_str() {
            "attempt" => ordinal = Some(number("attempt", &value, u32::MAX)?),
            "bytes" => {
                let max = u32::try_from(MAX_LOG_BYTES).unwrap_or(u32::MAX);
                bytes = usize::try_from(number("bytes", &value, max)?).unwrap_or(MAX_LOG_BYTES);
            }
            other => return Err(bad(other, "is unknown; known are attempt, bytes")),
        }
    }
    Ok((ordinal, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_states_as_a_list_or_one_by_one() {
        let filter = filter(Some(
            "state=queued,running&state=queued&instance=a%2Fb+c&suspect=true&limit=7",
        ))
        .unwrap();
        assert!(filter.suspect);
        assert_eq!(filter.states, ["queued", "running"]);
        assert_eq!(filter.instance.unwrap().as_str(), "a/b c");
        assert_eq!(filter.limit, 7);
    }

    #[test]
    fn a_mistyped_parameter_is_told_and_not_ignored() {
        for (query, word) in [
            ("stat=queued", "known are"),
            ("state=quoted", "queued"),
            ("limit=0", "from 1 to 500"),
            ("limit=501", "from 1 to 500"),
            ("before=x", "UUID"),
            ("suspect=no", "left out"),
            ("instance=", "empty"),
            ("state=%FF", "UTF-8"),
        ] {
            let problem = filter(Some(query)).unwrap_err();
            assert_eq!(problem.kind, ErrorKind::BadRequest);
            assert!(
                problem.description.contains(word),
                "{query}: {}",
                problem.description
            );
        }
        assert!(log_query(Some("bytes=1048577")).is_err());
        assert!(log_query(Some("attempt=0")).is_err());
        assert_eq!(log_query(Some("attempt=2&bytes=9")).unwrap(), (Some(2), 9));
    }

    #[test]
    fn times_outside_the_calendar_do_not_panic() {
        assert_eq!(time(Timestamp(i64::MAX)), jiff::Timestamp::MAX);
        assert_eq!(time(Timestamp(i64::MIN)), jiff::Timestamp::MIN);
        assert_eq!(time(Timestamp(0)).to_string(), "1970-01-01T00:00:00Z");
    }
}
