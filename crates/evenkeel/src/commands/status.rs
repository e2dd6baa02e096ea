//! `evenkeel status`.

use evenkeel_server::admin::types::{About, Counts, Ready, Reason, Status};
use serde::Serialize;

use super::admin::AdminClient;
use crate::cli::AdminArgs;
use crate::fail::{Exit, Failure};
use crate::output::{self, shown, shown_lines};

pub(crate) async fn run(args: &AdminArgs) -> Result<(), Failure> {
    let client = match AdminClient::new(args) {
        Ok(client) => client,
        Err(failure) if failure.exit == Exit::Unreachable => {
            return not_started(args, failure).await;
        }
        Err(failure) => return Err(failure),
    };
    let ready = match client.get_if_available(&["admin", "v1", "status"]).await? {
        Some(status) => {
            tell(args, &status, told)?;
            status.ready
        }
        // A broker without its store has nothing to count, but it says what it waits for.
        None => {
            let ready = client.get_any(&["readyz"]).await?;
            tell(args, &ready, told_without_store)?;
            ready
        }
    };
    if ready.ready {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Failed))
    }
}

/// A broker whose store has never been open has no token yet, and needs none to say why.
async fn not_started(args: &AdminArgs, no_token: Failure) -> Result<(), Failure> {
    let client = AdminClient::without_token(args)?;
    let ready: Ready = client.get_any(&["readyz"]).await?;
    if ready.ready {
        return Err(no_token);
    }
    tell(args, &ready, told_without_store)?;
    Err(Failure::silent(Exit::Failed))
}

fn told_without_store(ready: &Ready) -> String {
    let standing = format!("evenkeel is {}", standing(ready));
    [vec![standing], reasons(ready)].concat().join("\n")
}

fn tell<T: Serialize>(
    args: &AdminArgs,
    answer: &T,
    told: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    if args.format.json {
        output::json(answer)
    } else {
        output::data(&told(answer))
    }
}

fn told(status: &Status) -> String {
    let mut lines = vec![
        format!(
            "evenkeel {} is {}",
            shown(&status.version),
            standing(&status.ready)
        ),
        format!("started    {} (boot {})", status.started_at, status.boot),
        format!("runs       {} of {}", status.driving, status.concurrency),
    ];
    match status.counts {
        Some(counts) => lines.extend(counted(&counts)),
        None => lines.push("jobs       unknown: the store does not answer".to_owned()),
    }
    lines.push(format!("services   {}", status.services));
    lines.extend(reasons(&status.ready));
    lines.join("\n")
}

fn standing(ready: &Ready) -> &'static str {
    if ready.ready { "ready" } else { "not ready" }
}

fn reasons(ready: &Ready) -> Vec<String> {
    let reasons = ready.reasons.iter().map(|reason| {
        let weight = if reason.blocking { "not ready" } else { "note" };
        format!("{weight}: {}: {}", reason.about, message(reason))
    });
    let notes = ready
        .notes
        .iter()
        .map(|note| format!("note: {}", shown(note)));
    reasons.chain(notes).collect()
}

/// Lines after the first are set in, so that none of them can pass for a reason of its own.
fn message(reason: &Reason) -> String {
    let mut message = reason.message.clone();
    if reason.about == About::Catalog
        && let Some((head, problems)) = message.split_once(" is left out: ")
        && let Some(folder) = head.strip_prefix("bundle ")
    {
        // The path of the folder before each of its problems says nothing new.
        let problems = problems.replace(&format!("{folder}/"), "");
        message = format!("{head} is left out:\n{problems}");
    }
    shown_lines(&message).replace('\n', "\n  ")
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
        suspects,
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
    if *suspects > 0 {
        lines.push(format!(
            "suspects   {suspects}, whose runs are isolated: see `evenkeel jobs list --suspect`"
        ));
    }
    if *leaks > 0 {
        lines.push(format!(
            "leaks      {leaks}: what discarded provisions may have left behind"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_of_a_bundle_are_lines_that_name_its_folder_once() {
        let reason = Reason {
            about: About::Catalog,
            blocking: false,
            message: "bundle /b/x is left out: /b/x/bundle.yml:3:1: no\n/b/x/a.sh: \x1bno"
                .to_owned(),
        };
        assert_eq!(
            message(&reason),
            "bundle /b/x is left out:\n  bundle.yml:3:1: no\n  a.sh: \\u{1b}no"
        );
    }
}
