//! `evenkeel jobs …`.

use clap::{Args, Subcommand};
use evenkeel_core::ids::JobId;
use evenkeel_server::admin::types::{
    Acted, CatalogReport, Explanation, JobDetail, JobList, JobLog, JobState, JobSummary, LogStream,
};
use uuid::Uuid;

use super::admin::AdminClient;
use crate::cli::AdminArgs;
use crate::fail::{Exit, Failure};
use crate::output::{self, shown, shown_lines};

mod attempts;
mod detail;
mod story;

/// The admin API's largest page.
const PAGE: u32 = 500;

/// A shorter prefix of an id covers more than a minute of jobs.
const MIN_PREFIX_CHARS: usize = 8;

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, newest first
    List(ListArgs),
    /// Show a job with its attempts and what was done to it
    Show(OneJob),
    /// Tell a job's story: what happened, what it proves and cost, and what to do about it
    Explain(OneJob),
    /// Print the end of an attempt's log
    Logs {
        #[command(flatten)]
        job: OneJob,
        /// Which attempt, from 1 [default: the last]
        #[arg(long, value_name = "NUMBER")]
        attempt: Option<u32>,
        /// How much of each stream, from its end
        #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
        bytes: u32,
    },
    /// Try a job anew that ended without success: a new job, with a clear budget
    Retry(OneJob),
    /// Mark a quarantined job as dealt with
    Discard(OneJob),
    /// End a job; its run is stopped
    Cancel(OneJob),
    /// Lift suspicion from a job
    Clear(OneJob),
}

#[derive(Debug, Args)]
pub(crate) struct OneJob {
    /// The job's id, or the start of it (at least 8 characters)
    #[arg(value_name = "JOB", value_parser = id_or_prefix)]
    job: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only jobs in these states: queued, running, backoff, succeeded, failed, cancelled, quarantined
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<JobState>,
    /// Only jobs of this service instance
    #[arg(long, value_name = "ID")]
    instance: Option<String>,
    /// Only jobs of this service offering, by its name or id
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Only suspects that are not final: their runs are isolated
    #[arg(long)]
    suspect: bool,
    /// At most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Only jobs older than this one
    #[arg(long, value_name = "JOB")]
    before: Option<JobId>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) async fn run(command: JobsCommand) -> Result<(), Failure> {
    match command {
        JobsCommand::List(args) => list(&args).await,
        JobsCommand::Show(one) => {
            let (client, id) = one.find().await?;
            let job: JobDetail = client.get(&["admin", "v1", "jobs", &id], &[]).await?;
            if one.admin.format.json {
                output::json(&job)
            } else {
                detail::show(&job)
            }
        }
        JobsCommand::Explain(one) => {
            let (client, id) = one.find().await?;
            let path = ["admin", "v1", "jobs", &id, "explanation"];
            let told: Explanation = client.get(&path, &[]).await?;
            if one.admin.format.json {
                output::json(&told)
            } else {
                story::tell(&told)
            }
        }
        JobsCommand::Logs {
            job,
            attempt,
            bytes,
        } => logs(&job, attempt, bytes).await,
        JobsCommand::Retry(one) => act(&one, "retry").await,
        JobsCommand::Discard(one) => act(&one, "discard").await,
        JobsCommand::Cancel(one) => act(&one, "cancel").await,
        JobsCommand::Clear(one) => act(&one, "clear").await,
    }
}

fn id_or_prefix(text: &str) -> Result<String, String> {
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if !digits || text.len() > 36 {
        return Err("a job id has hexadecimal digits and hyphens only".to_owned());
    }
    if text.len() < MIN_PREFIX_CHARS {
        return Err(format!(
            "give at least {MIN_PREFIX_CHARS} characters of the id"
        ));
    }
    Ok(text.to_ascii_lowercase())
}

impl OneJob {
    /// A client, and the whole id of the job.
    async fn find(&self) -> Result<(AdminClient, String), Failure> {
        let client = AdminClient::new(&self.admin)?;
        if let Ok(id) = self.job.parse::<JobId>() {
            return Ok((client, id.to_string()));
        }
        // Ids sort by time: all that start so come right before the last possible one.
        let nobody = || {
            Failure::new(
                Exit::NotFound,
                format!("no job's id starts with {}", self.job),
            )
        };
        let last = last_with(&self.job).ok_or_else(nobody)?;
        let query = [("before", last.to_string()), ("limit", "2".to_owned())];
        let page: JobList = client.get(&["admin", "v1", "jobs"], &query).await?;
        let ids: Vec<String> = page.jobs.iter().map(|job| job.id.to_string()).collect();
        match ids.iter().filter(|id| id.starts_with(&self.job)).count() {
            0 => Err(nobody()),
            1 => Ok((client, ids.into_iter().next().unwrap_or_default())),
            _ => Err(
                Failure::usage(format!("several jobs' ids start with {}", self.job))
                    .hint("give more of it; `evenkeel jobs list` shows whole ids"),
            ),
        }
    }
}

/// The largest id that starts so.
fn last_with(prefix: &str) -> Option<Uuid> {
    const LARGEST: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    Uuid::parse_str(&format!("{prefix}{}", LARGEST.get(prefix.len()..)?)).ok()
}

async fn list(args: &ListArgs) -> Result<(), Failure> {
    let client = AdminClient::new(&args.admin)?;
    let mut query = Vec::new();
    if !args.state.is_empty() {
        let states: Vec<_> = args.state.iter().map(|state| state.as_str()).collect();
        query.push(("state", states.join(",")));
    }
    if let Some(instance) = &args.instance {
        query.push(("instance", instance.clone()));
    }
    if let Some(service) = &args.service {
        query.push(("service", service_id(&client, service).await?));
    }
    if args.suspect {
        query.push(("suspect", "true".to_owned()));
    }
    let mut all = JobList {
        jobs: Vec::new(),
        next: args.before,
    };
    loop {
        let left = args.limit - u32::try_from(all.jobs.len()).unwrap_or(args.limit);
        let mut query = query.clone();
        query.push(("limit", left.min(PAGE).to_string()));
        query.extend(all.next.map(|before| ("before", before.to_string())));
        let page: JobList = client.get(&["admin", "v1", "jobs"], &query).await?;
        all.jobs.extend(page.jobs);
        all.next = page.next;
        if all.next.is_none() || all.jobs.len() >= args.limit as usize {
            break;
        }
    }
    if args.admin.format.json {
        return output::json(&all);
    }
    if all.jobs.is_empty() {
        output::note("no jobs");
        return Ok(());
    }
    let headings = [
        "ID",
        "ACTION",
        "STATE",
        "TRIES",
        "SERVICE",
        "INSTANCE",
        "CREATED (UTC)",
        "NOTE",
    ];
    output::table(&headings, all.jobs.iter().map(row))?;
    if let Some(next) = all.next {
        output::hint(&format!(
            "there are older ones: --before {next}, or a larger --limit"
        ));
    }
    Ok(())
}

/// Only what is in the catalog has a name; anything else is taken for an id.
async fn service_id(client: &AdminClient, named: &str) -> Result<String, Failure> {
    let catalog: CatalogReport = client.get(&["admin", "v1", "catalog"], &[]).await?;
    let found = catalog
        .services
        .iter()
        .find(|service| service.name == named);
    Ok(found.map_or_else(|| named.to_owned(), |service| service.id.to_string()))
}

fn row(job: &JobSummary) -> Vec<String> {
    let target = match &job.binding {
        Some(binding) => format!("{} / {binding}", job.instance),
        None => job.instance.to_string(),
    };
    vec![
        job.id.to_string(),
        job.action.to_string(),
        job.state.to_string(),
        job.attempts.to_string(),
        job.service_name
            .clone()
            .unwrap_or_else(|| job.service.to_string()),
        target,
        detail::time(job.created_at),
        remark(job),
    ]
}

/// Why a job stands where it stands, or what it says.
fn remark(job: &JobSummary) -> String {
    let mut words = Vec::new();
    if job.discarded {
        words.push("discarded");
    }
    if job.suspect {
        words.push("suspect");
    }
    let said = match &job.progress {
        // That it is under way says its state.
        Some(progress) if job.state == JobState::Running => Some(progress),
        Some(_) | None => job.reason.as_ref(),
    };
    words.extend(said.map(String::as_str));
    words.join("; ")
}

async fn logs(one: &OneJob, attempt: Option<u32>, bytes: u32) -> Result<(), Failure> {
    let (client, id) = one.find().await?;
    let mut query = vec![("bytes", bytes.to_string())];
    query.extend(attempt.map(|ordinal| ("attempt", ordinal.to_string())));
    let log: JobLog = client
        .get(&["admin", "v1", "jobs", &id, "log"], &query)
        .await?;
    if one.admin.format.json {
        return output::json(&log);
    }
    output::note(&format!("attempt {} ({})", log.ordinal, log.attempt));
    for (name, LogStream { text, cut }) in [
        ("standard output", &log.stdout),
        ("standard error", &log.stderr),
    ] {
        let before = if *cut { "; the start is left out" } else { "" };
        output::note(&format!("==> {name}{before}"));
        if !text.is_empty() {
            output::data(shown_lines(text).trim_end_matches('\n'))?;
        }
    }
    Ok(())
}

async fn act(one: &OneJob, verb: &str) -> Result<(), Failure> {
    let (client, id) = one.find().await?;
    let acted: Acted = client.post(&["admin", "v1", "jobs", &id, verb]).await?;
    if one.admin.format.json {
        return output::json(&acted);
    }
    output::note(&shown(&acted.description));
    output::data(&acted.job.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_an_id_stands_for_the_largest_id_that_starts_so() {
        let last = |prefix| last_with(prefix).map(|id| id.to_string());
        assert_eq!(
            last("019c0000").as_deref(),
            Some("019c0000-ffff-ffff-ffff-ffffffffffff")
        );
        assert_eq!(
            last("019c0000-").as_deref(),
            Some("019c0000-ffff-ffff-ffff-ffffffffffff")
        );
        assert_eq!(
            last("019c0000-12").as_deref(),
            Some("019c0000-12ff-ffff-ffff-ffffffffffff")
        );
        assert_eq!(last("019c00001"), None);
    }

    #[test]
    fn a_prefix_is_long_enough_and_has_no_other_characters() {
        assert_eq!(id_or_prefix("019C0000"), Ok("019c0000".to_owned()));
        for text in [
            "019c000",
            "",
            "019c000z",
            "../../status",
            "019c0000-1234-1234-1234-1234567890123",
        ] {
            assert!(id_or_prefix(text).is_err(), "{text}");
        }
    }
}
