//! How a job stands now, and what an operator can do about it.

use crate::job::{Job, State};
use crate::policy::Policy;

use super::story::{Advice, Facts, sentence, span};
use super::{quarantine_reason, state_line};

pub(super) fn standing(facts: &Facts<'_>) -> Vec<String> {
    let job = facts.job;
    let mut lines = Vec::new();
    lines.push(match &job.state {
        State::Backoff { next_at } => format!(
            "It waits before attempt {}, which is due in {}; the wait doubles with every setback, \
             up to {}.",
            job.attempts.saturating_add(1),
            span(next_at.since(facts.now)),
            span(facts.policy.backoff_max)
        ),
        State::Quarantined { reason } => format!(
            "It is in quarantine because {}. No attempt follows by itself.",
            quarantine_reason(job, reason)
        ),
        State::Queued
        | State::Running { .. }
        | State::Succeeded
        | State::Failed { .. }
        | State::Cancelled { .. } => format!("Now: {}.", state_line(job, facts.discarded)),
    });
    if facts.discarded {
        lines.push("An operator marked it as dealt with.".to_owned());
    }
    lines.extend(account(job, facts.policy));
    lines.extend(suspicion(job, facts.policy));
    lines.extend(waits(facts));
    lines
}

/// What keeps it from being started, beside what all jobs wait for.
fn waits(facts: &Facts<'_>) -> Vec<String> {
    let job = facts.job;
    let held = match &job.state {
        State::Queued | State::Backoff { .. } => facts.held,
        State::Running { .. }
        | State::Succeeded
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Quarantined { .. } => None,
    };
    let held = held.map(|why| format!("No run starts at present: the broker is held ({why})."));
    let turn = facts.turn.and_then(|turn| {
        let limit = format!("for {} at most", span(turn.until.since(facts.now)));
        turn.line_for(job, &limit)
    });
    held.into_iter()
        .chain(turn.map(|line| sentence(&line)))
        .collect()
}

fn account(job: &Job, policy: &Policy) -> Option<String> {
    let budget = &job.budget;
    if budget.setbacks() == 0 && budget.disruptions == 0 {
        return None;
    }
    Some(format!(
        "The account of its target: {} of {} crashes, {} of {} losses, {}, {} in a row.",
        budget.crashes,
        policy.crash_limit,
        budget.losses,
        policy.loss_limit,
        counted(budget.exposures, "exposure"),
        counted(budget.disruptions, "disruption"),
    ))
}

fn counted(count: u32, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn suspicion(job: &Job, policy: &Policy) -> Option<String> {
    let budget = &job.budget;
    if !budget.suspect || job.state.is_final() {
        return None;
    }
    let why = if budget.losses > 0 {
        "a broker died while nothing but this job was at work"
    } else if budget.exposures >= policy.suspect_exposures {
        "it was near as many deaths as make a suspect, though none of them proves anything"
    } else if budget.disruptions >= policy.suspect_disruptions {
        "its runs were disrupted as often in a row as makes a suspect"
    } else {
        "one more end that nothing explains would reach the limit, and counts only in isolation"
    };
    let alone = budget.solo_window().map_or_else(String::new, |window| {
        format!(
            ": the next one starts when nothing else runs, and is alone until it has lived for {}",
            span(window)
        )
    });
    Some(format!(
        "It is a suspect, because {why}. Its runs are isolated{alone}."
    ))
}

pub(super) fn advice(facts: &Facts<'_>) -> Vec<Advice> {
    let job = facts.job;
    let can = |verb: &str, text: &str| Advice {
        text: text.to_owned(),
        command: format!("evenkeel jobs {verb} {}", job.id),
    };
    let logs = (!facts.attempts.is_empty()).then(|| can("logs", "read the log of its last run"));
    let retry = || {
        can(
            "retry",
            "start a new job for the same, with a clear account",
        )
    };
    let cancel = || can("cancel", "end it; what is under way is stopped");
    let clear = job.budget.suspect.then(|| {
        can(
            "clear",
            "lift suspicion, if you know that it was not the cause",
        )
    });
    let turn = facts.turn.filter(|turn| turn.holds_up(job));
    let turn = turn.map(|turn| Advice {
        text: "see why that job has to run alone, which this one waits for".to_owned(),
        command: format!("evenkeel jobs explain {}", turn.job),
    });
    match &job.state {
        State::Quarantined { .. } if facts.discarded => logs.into_iter().collect(),
        State::Quarantined { .. } => {
            let discard = can("discard", "mark it as dealt with; nothing more is tried");
            logs.into_iter().chain([retry(), discard]).collect()
        }
        State::Queued | State::Backoff { .. } | State::Running { .. } => {
            let first = logs.into_iter().chain(turn);
            first.chain(clear).chain([cancel()]).collect()
        }
        State::Failed { .. } | State::Cancelled { .. } => {
            logs.into_iter().chain([retry()]).collect()
        }
        State::Succeeded => logs.into_iter().collect(),
    }
}
