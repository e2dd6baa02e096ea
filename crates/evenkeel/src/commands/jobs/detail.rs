//! A job with its history, for people.

use evenkeel_server::admin::types::{Budget, JobDetail};
use jiff::Timestamp;

use super::attempts;
use crate::fail::Failure;
use crate::output::{self, shown};

/// A time to the second, in UTC.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

pub(super) fn show(job: &JobDetail) -> Result<(), Failure> {
    output::data(&facts(job))?;
    if !job.history.is_empty() {
        output::data("")?;
        output::table(&attempts::HEADINGS, job.history.iter().map(attempts::row))?;
        for attempt in &job.history {
            output::data("")?;
            output::data(&attempts::details(attempt))?;
        }
    }
    if !job.audit.is_empty() {
        output::data("")?;
        let rows = job.audit.iter().map(|line| {
            vec![
                time(line.at),
                line.actor.clone(),
                line.what.clone(),
                line.detail.clone(),
            ]
        });
        output::table(&["WHEN (UTC)", "WHO", "WHAT", "DETAIL"], rows)?;
    }
    Ok(())
}

fn facts(job: &JobDetail) -> String {
    let summary = &job.summary;
    let mut lines = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("{name:<13}{}", shown(&value))));
    };
    let service = match &summary.service_name {
        Some(name) => format!("{name} ({})", summary.service),
        None => summary.service.to_string(),
    };
    let Budget {
        crashes,
        losses,
        exposures,
        disruptions,
    } = job.budget;
    let after: Vec<String> = job.after.iter().map(ToString::to_string).collect();
    fact("job", Some(summary.id.to_string()));
    fact("action", Some(summary.action.to_string()));
    fact("state", Some(summary.state.to_string()));
    fact("reason", summary.reason.clone());
    fact("progress", summary.progress.clone());
    fact(
        "suspect",
        summary
            .suspect
            .then(|| "yes: its next run is isolated".to_owned()),
    );
    fact("instance", Some(summary.instance.to_string()));
    fact("binding", summary.binding.as_ref().map(ToString::to_string));
    fact("service", Some(service));
    fact("bundle", Some(job.bundle.to_string()));
    fact("platform", Some(summary.platform.to_string()));
    fact("created", Some(time(summary.created_at)));
    fact("next try", summary.next_at.map(time));
    fact("deadline", Some(time(summary.deadline_at)));
    fact("finished", job.finished_at.map(time));
    fact("discarded", job.discarded_at.map(time));
    fact("retry of", job.retry_of.map(|id| id.to_string()));
    fact("superseded", job.superseded_by.map(|id| format!("by {id}")));
    fact("waits for", (!after.is_empty()).then(|| after.join(", ")));
    fact(
        "charged",
        Some(format!(
            "{crashes} crashes, {losses} losses, {exposures} exposures, {disruptions} disruptions"
        )),
    );
    fact(
        "tried later",
        Some(format!("{} of {} times", job.tempfails, job.retries)),
    );
    lines.join("\n")
}
