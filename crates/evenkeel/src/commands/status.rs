//! `evenkeel status`.

use evenkeel_server::admin::types::{Counts, Status};

use super::admin::AdminClient;
use crate::cli::AdminArgs;
use crate::fail::{Exit, Failure};
use crate::output::{self, shown};

pub(crate) async fn run(args: &AdminArgs) -> Result<(), Failure> {
    let status: Status = AdminClient::new(args)?
        .get_any(&["admin", "v1", "status"])
        .await?;
    if args.format.json {
        output::json(&status)?;
    } else {
        output::data(&told(&status))?;
    }
    if status.ready.ready {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Failed))
    }
}

fn told(status: &Status) -> String {
    let ready = if status.ready.ready {
        "ready"
    } else {
        "not ready"
    };
    let mut lines = vec![
        format!("evenkeel {} is {ready}", shown(&status.version)),
        format!("started    {} (boot {})", status.started_at, status.boot),
        format!("runs       {} of {}", status.driving, status.concurrency),
    ];
    match status.counts {
        Some(counts) => lines.extend(counted(&counts)),
        None => lines.push("jobs       unknown: the store does not answer".to_owned()),
    }
    lines.push(format!("services   {}", status.services));
    for reason in &status.ready.reasons {
        let weight = if reason.blocking { "not ready" } else { "note" };
        lines.push(format!(
            "{weight}: {}: {}",
            reason.about,
            shown(&reason.message)
        ));
    }
    lines.extend(
        status
            .ready
            .notes
            .iter()
            .map(|note| format!("note: {}", shown(note))),
    );
    lines.join("\n")
}

fn counted(counts: &Counts) -> Vec<String> {
    let Counts {
        queued,
        running,
        backoff,
        succeeded,
        failed,
        cancelled,
        quarantined,
        instances,
        bindings,
        leaks,
    } = counts;
    let mut lines = vec![
        format!("jobs       {queued} queued, {running} running, {backoff} in backoff"),
        format!("ended      {succeeded} succeeded, {failed} failed, {cancelled} cancelled"),
        format!("instances  {instances}"),
        format!("bindings   {bindings}"),
    ];
    if *quarantined > 0 {
        lines.push(format!(
            "quarantined {quarantined}: see `evenkeel jobs list --state quarantined`"
        ));
    }
    if *leaks > 0 {
        lines.push(format!(
            "leaks      {leaks}: what discarded provisions may have left behind"
        ));
    }
    lines
}
