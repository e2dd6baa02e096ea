//! Jobs in plain English, for two kinds of readers.
//!
//! Operators are told all that is known and what they can do about it. Platforms are told what
//! concerns them (DESIGN §10): the action's own words, or a neutral text that names the job, so
//! that whoever asks an operator can say which one. Neither text ever holds a secret, because
//! nothing that is looked at here does.

use std::time::Duration;

use crate::attempt::{
    Charge, DisruptionCause, End, Evidence, ExposureCause, FailReason, LimitKind,
};
use crate::job::{Job, QuarantineReason, State, StopReason};

mod clues;
mod outlook;
pub mod story;
mod turn;

pub use clues::{Clue, clues_of, death_line, usage_line};
pub use turn::Turn;

/// Most characters of an action's own words that are passed on to a platform.
pub const MAX_DESCRIPTION_CHARS: usize = 2_000;

/// What a platform that polls is told of a job: never empty. `progress` is the last line that
/// the action wrote.
pub fn platform_description(job: &Job, progress: Option<&str>) -> String {
    let id = job.id;
    let progress = progress.and_then(spoken);
    match &job.state {
        State::Running {
            stop: Some(reason), ..
        } => format!("being stopped: {}", stop_reason(reason)),
        State::Queued => progress.unwrap_or_else(|| format!("job {id} is waiting to start")),
        State::Running { .. } => progress.unwrap_or_else(|| format!("job {id} is running")),
        State::Backoff { .. } => {
            progress.unwrap_or_else(|| format!("job {id} is waiting to be tried again"))
        }
        State::Succeeded => progress.unwrap_or_else(|| format!("job {id} succeeded")),
        State::Failed {
            reason: FailReason::Deadline,
            ..
        } => format!("job {id} was not finished by its deadline"),
        State::Failed { message, .. } => message
            .as_deref()
            .and_then(spoken)
            .unwrap_or_else(|| format!("job {id} failed")),
        State::Cancelled { by } => {
            let reason = stop_reason(by);
            match by {
                StopReason::Superseded { .. } => reason,
                StopReason::Operator | StopReason::SyncLimit | StopReason::Deadline => {
                    format!("job {id} was cancelled: {reason}")
                }
            }
        }
        State::Quarantined { .. } => {
            format!("job {id} was set aside; the operators of this broker know about it")
        }
    }
}

/// Why a job is in quarantine and what can be done, for operators; `None` if it is not. Once it is
/// `discarded` it is dealt with, and cannot be retried.
pub fn quarantine_description(job: &Job, discarded: bool) -> Option<String> {
    let State::Quarantined { reason } = &job.state else {
        return None;
    };
    let why = quarantine_reason(job, reason);
    if discarded {
        return Some(format!("set aside because {why}; it was discarded"));
    }
    let id = job.id;
    Some(format!(
        "set aside because {why}; `evenkeel jobs retry {id}` starts a new job with a clear \
         account, `evenkeel jobs discard {id}` marks it as dealt with"
    ))
}

/// Why it is in quarantine, as what follows a "because".
fn quarantine_reason(job: &Job, reason: &QuarantineReason) -> String {
    match reason {
        QuarantineReason::Crashes { count } => format!(
            "its run ended without an outcome {} (attempts of earlier jobs for the same target included)",
            times(*count)
        ),
        QuarantineReason::Losses { count } => format!(
            "the broker or its host died {} while nothing but this job was at work",
            times(*count)
        ),
        QuarantineReason::BudgetSpent => format!(
            "earlier jobs for the same target used up its budget ({}), so it was not started",
            account(job)
        ),
        QuarantineReason::Unreadable { message } => {
            format!("its stored record cannot be dealt with ({message}); the bytes are kept")
        }
    }
}

/// Where a job stands, for operators; `discarded` as in [`quarantine_description`].
pub fn state_line(job: &Job, discarded: bool) -> String {
    let next = job.attempts.saturating_add(1);
    let alone = if job.budget.suspect {
        "; it is a suspect and will run alone"
    } else {
        ""
    };
    match &job.state {
        State::Queued => format!("waits for a free slot for attempt {next}{alone}"),
        State::Backoff { .. } => format!("waits before attempt {next}{alone}"),
        State::Running { attempt, stop } => {
            let solo = attempt.solo.map_or_else(String::new, |window| {
                format!(", alone until it has lived for {}", seconds(window))
            });
            let stopping = stop.as_ref().map_or_else(String::new, |reason| {
                format!("; being stopped: {}", stop_reason(reason))
            });
            format!("attempt {} is under way{solo}{stopping}", attempt.ordinal)
        }
        State::Succeeded => format!("succeeded at attempt {}", job.attempts),
        State::Failed { reason, message } => failure(reason, message.as_deref()),
        State::Cancelled { by } => format!("cancelled: {}", stop_reason(by)),
        State::Quarantined { .. } => quarantine_description(job, discarded).unwrap_or_default(),
    }
}

/// How an attempt ended, for operators.
pub fn end_line(end: &End) -> String {
    match end {
        End::Succeeded => "succeeded".to_owned(),
        End::Failed { reason, message } => failure(reason, message.as_deref()),
        End::TryLater => "the action asks to be tried again later (exit code 75)".to_owned(),
        End::Stopped => "stopped, as this broker asked".to_owned(),
        End::Crashed { evidence } => evidence.as_ref().map_or_else(
            || {
                "crashed: the run ended without an outcome, and nothing proves why (a signal from \
                 elsewhere, or its supervisor vanished)"
                    .to_owned()
            },
            |evidence| format!("crashed: {}", proof(evidence)),
        ),
        End::Exposed { cause } => format!("lost: {}", near(*cause)),
        End::Disrupted { cause } => match cause {
            DisruptionCause::Drain => "interrupted: its broker was asked to end",
            DisruptionCause::Stopped => "interrupted: its run was asked to stop from outside",
            DisruptionCause::NeverStarted => "its run never started",
            DisruptionCause::Reboot => "interrupted: the host was restarted in an orderly way",
        }
        .to_owned(),
        End::OurBug { location } => {
            format!("the broker panicked at {location}, as it did for other jobs")
        }
        End::Unreadable { message } => {
            format!("its stored record cannot be dealt with: {message}")
        }
    }
}

/// What an attempt's end was charged, and why, for operators.
pub fn charge_line(charge: Charge, end: &End) -> &'static str {
    match (charge, end) {
        (Charge::None, End::Succeeded) => "nothing charged; success clears the account",
        (Charge::None, End::OurBug { .. }) => "nobody is charged: the broker is at fault",
        (Charge::None, _) => "nothing charged",
        (
            Charge::Crash,
            End::Crashed {
                evidence: Some(_), ..
            },
        ) => "charged as a crash: it was the run's own doing",
        (Charge::Crash, _) => "charged as a crash, though nothing proves that it was its own doing",
        (Charge::Exposure, End::Crashed { .. }) => {
            "charged as an exposure only: the crash that would reach the limit needs proof, or a \
             run that was alone; it is a suspect now"
        }
        (Charge::Exposure, _) => "charged as an exposure: makes a suspect, never convicts",
        (Charge::Loss, _) => "charged as a loss: nothing but this job was at work",
        (Charge::Disruption, _) => "nothing charged: it was disrupted",
    }
}

/// An action's own words, trimmed and bounded, without what could command the terminal of
/// whoever reads them; `None` if it said nothing.
fn spoken(text: &str) -> Option<String> {
    let commands = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || (c.is_control() && c != '\n')
    };
    let mut said: String = text.chars().filter(|c| !commands(*c)).collect();
    if let Some((end, _)) = said.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        said.truncate(end);
        said.push('…');
    }
    let said = said.trim();
    (!said.is_empty()).then(|| said.to_owned())
}

fn stop_reason(reason: &StopReason) -> String {
    match reason {
        StopReason::Superseded { job } => format!("superseded by delete, job {job}"),
        StopReason::Operator => "an operator asked for it".to_owned(),
        StopReason::SyncLimit => "it took too long for a synchronous answer".to_owned(),
        StopReason::Deadline => "its deadline has passed".to_owned(),
    }
}

fn failure(reason: &FailReason, message: Option<&str>) -> String {
    let why = match reason {
        FailReason::ExitCode { code } => format!("the action ended with exit code {code}"),
        FailReason::RetriesSpent => {
            "the action asked to be tried again more often than its `retries` allow".to_owned()
        }
        FailReason::Timeout => "the action took longer than its timeout".to_owned(),
        FailReason::Deadline => "the job was not finished by its deadline".to_owned(),
        FailReason::BadOutput { message } => {
            format!("the action ended well, but what it wrote cannot be used: {message}")
        }
        FailReason::NotRunnable { message } => format!("the command did not start: {message}"),
        FailReason::NotPrepared { message } => {
            format!("the job could not be prepared: {message}")
        }
    };
    match message.and_then(spoken) {
        Some(words) => format!("failed: {why}; the action says: {words}"),
        None => format!("failed: {why}"),
    }
}

fn proof(evidence: &Evidence) -> String {
    match evidence {
        Evidence::FatalSignal { signal } => {
            format!("it brought {} on itself", signal_text(*signal))
        }
        Evidence::Limit { limit } => format!("it went over its limit of {}", limit_words(*limit)),
        Evidence::OutOfMemory => "it used up the memory of its own cgroup".to_owned(),
        Evidence::Panic { location } => {
            format!("the broker's step for it panicked at {location}")
        }
    }
}

fn near(cause: ExposureCause) -> &'static str {
    match cause {
        ExposureCause::VanishedWithBroker => "its run vanished when the broker died",
        ExposureCause::NamedByBlackBox => "the broker died in a step for this job",
        ExposureCause::HostLost => "the host was restarted without warning",
    }
}

fn limit_words(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::Memory => "memory",
        LimitKind::CpuTime => "processor time",
        LimitKind::Disk => "disk",
        LimitKind::Processes => "processes",
        LimitKind::Output => "output",
    }
}

fn signal_text(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}

/// The names of signals that end processes, signal(7).
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

fn account(job: &Job) -> String {
    let plural = |count: u32, one, many| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    format!(
        "{}, {}",
        plural(job.budget.crashes, "crash", "crashes"),
        plural(job.budget.losses, "loss", "losses")
    )
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_secs())
}
