//! The story of one job, for operators: what was asked, what happened in which order, what each
//! end proves and cost, where the job stands now, and what can be done about it.
//!
//! A pure function of what is on record. Times stay numbers: whoever shows them knows the calendar
//! and the reader's clock.

use std::time::Duration;

use crate::attempt::{Charge, Containment, DisruptionCause, End};
use crate::forensics::{Beside, BrokerDeath, Forensics};
use crate::ids::BootId;
use crate::job::{Job, QuarantineReason, State};
use crate::policy::Policy;
use crate::time::Timestamp;

use super::clues::{self, clues_of, counted_as, usage_line};
use super::{Turn, charge_line, end_line, outlook, spoken};

/// What is on record of one attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptFacts {
    /// 1 for the first.
    pub ordinal: u32,
    /// The broker process that owned it last.
    pub boot: BootId,
    /// Whether it ran alone at first.
    pub solo: bool,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When its run was started.
    pub started_at: Option<Timestamp>,
    /// How its run was held.
    pub containment: Option<Containment>,
    /// When and how it ended, and what that cost.
    pub ended: Option<(Timestamp, End, Charge)>,
    /// The most memory that its tree is known to have used, in bytes.
    pub peak_memory: Option<u64>,
    /// Processor time of its tree, in milliseconds.
    pub cpu_millis: Option<u64>,
    /// What else is known of a bad end.
    pub forensics: Option<Forensics>,
    /// Whether its log is still there to be read.
    pub has_log: bool,
}

/// Something that somebody did to the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Act {
    /// When.
    pub at: Timestamp,
    /// Who: `platform:NAME`, `operator`, `broker`.
    pub actor: String,
    /// The audit's word for it.
    pub what: String,
    /// In words.
    pub detail: String,
}

/// All that the story is told from.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The job.
    pub job: &'a Job,
    /// The instance, by the platform's name.
    pub instance: &'a str,
    /// The service offering, by name or id.
    pub service: &'a str,
    /// When the story is told.
    pub now: Timestamp,
    /// When the job became final.
    pub finished_at: Option<Timestamp>,
    /// Whether an operator marked it as dealt with.
    pub discarded: bool,
    /// Its attempts, oldest first.
    pub attempts: &'a [AttemptFacts],
    /// What was done to it, oldest first.
    pub acts: &'a [Act],
    /// What died beside it.
    pub beside: &'a [Beside],
    /// The deaths of brokers that it was tied to.
    pub deaths: &'a [BrokerDeath],
    /// The limits.
    pub policy: &'a Policy,
    /// Why no new run starts, if so.
    pub held: Option<&'a str>,
    /// Whose turn to run alone it is, if it is a suspect's.
    pub turn: Option<&'a Turn>,
}

/// A story, to be shown in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Story {
    /// What it is and how it stands, in one sentence.
    pub headline: String,
    /// What happened, oldest first.
    pub events: Vec<Told>,
    /// How it stands now and why.
    pub standing: Vec<String>,
    /// What can be done.
    pub advice: Vec<Advice>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// When it began.
    pub at: Timestamp,
    /// The attempt that it is about.
    pub attempt: Option<u32>,
    /// What it was.
    pub text: String,
    /// What else is to be known of it, in this order.
    pub details: Vec<String>,
}

/// Something that an operator can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// What it does.
    pub text: String,
    /// The command.
    pub command: String,
}

/// Tells the story of a job.
pub fn story(facts: &Facts<'_>) -> Story {
    let mut events: Vec<Told> = facts
        .acts
        .iter()
        .filter_map(|act| told_act(facts.job, act))
        .chain(facts.deaths.iter().map(told_death))
        .chain(
            facts
                .attempts
                .iter()
                .map(|attempt| told_attempt(facts, attempt)),
        )
        .chain(told_end(facts))
        .collect();
    // Of what bears the same time, what was done comes before what followed from it.
    events.sort_by_key(|event| event.at);
    Story {
        headline: headline(facts),
        events,
        standing: outlook::standing(facts),
        advice: outlook::advice(facts),
    }
}

fn headline(facts: &Facts<'_>) -> String {
    let job = facts.job;
    let target = match &job.target.binding {
        Some(binding) => format!("binding {} of instance {}", binding.id, facts.instance),
        None => format!("instance {}", facts.instance),
    };
    let state = match &job.state {
        State::Queued => "waits for its turn",
        State::Running { .. } => "is under way",
        State::Backoff { .. } => "waits to be tried again",
        State::Succeeded => "succeeded",
        State::Failed { .. } => "failed",
        State::Cancelled { .. } => "was cancelled",
        State::Quarantined { .. } => "was quarantined",
    };
    let tries = match job.attempts {
        0 => "without an attempt".to_owned(),
        1 => "after 1 attempt".to_owned(),
        many => format!("after {many} attempts"),
    };
    let tries = match &job.state {
        State::Queued | State::Running { .. } if job.attempts <= 1 => String::new(),
        State::Queued
        | State::Running { .. }
        | State::Backoff { .. }
        | State::Succeeded
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Quarantined { .. } => format!(" {tries}"),
    };
    format!(
        "The {} of {target} ({}) {state}{tries}.",
        job.action, facts.service
    )
}

/// What the attempts and the job's end tell by themselves is left out.
fn told_act(job: &Job, act: &Act) -> Option<Told> {
    let who = match act.actor.strip_prefix("platform:") {
        Some(platform) => format!("platform \"{platform}\""),
        None if act.actor == "broker" => "the broker".to_owned(),
        None => format!("an {}", act.actor),
    };
    let text = match act.what.as_str() {
        "charge" | "quarantine" => return None,
        "submit" => match job.retry_of {
            Some(old) => format!("{who} had job {old} tried again: this job, with a clear account"),
            None if act.detail.contains(' ') => {
                format!("{who} asked for it ({}); it was accepted", act.detail)
            }
            None => format!("{who} asked for it; it was accepted"),
        },
        "cancel" => format!("{who} asked for it to end"),
        "deadline" => "its deadline had passed".to_owned(),
        "clear" => format!("{who} lifted suspicion from it"),
        "retry" => format!("{who} had it tried again by a new job"),
        "discard" => format!("{who} marked it as dealt with"),
        "set_aside" => format!("{who} set it aside: {}", act.detail),
        other => format!("{who}: {other} ({})", act.detail),
    };
    Some(Told {
        at: act.at,
        attempt: None,
        text: sentence(&spoken(&text)?),
        details: Vec::new(),
    })
}

fn told_death(death: &BrokerDeath) -> Told {
    let mut details = Vec::new();
    if death.named {
        details.push(if death.exclusive {
            "Its black box names this job, in a step that no other shared.".to_owned()
        } else {
            "Its black box names this job.".to_owned()
        });
    }
    if let Some(charge) = death.charge {
        details.push(format!(
            "This was counted against the job as {}, before its run was looked at.",
            counted_as(charge)
        ));
    }
    Told {
        at: death.at,
        attempt: None,
        text: format!("The broker (boot {}) {}.", death.boot, death.how),
        details,
    }
}

fn told_attempt(facts: &Facts<'_>, attempt: &AttemptFacts) -> Told {
    let company = if attempt.solo {
        "alone, because the job was a suspect"
    } else {
        "in company"
    };
    let held = attempt.containment.map_or("", |held| match held {
        Containment::Pidns => ", held by a PID namespace of its own",
        Containment::Cgroup => ", held by a cgroup of its own",
        Containment::Sweep => ", held by an inherited lock",
    });
    let mut details = Vec::new();
    if let Some((at, end, charge)) = &attempt.ended {
        let lived_until = attempt.forensics.as_ref().and_then(|known| known.last_sign);
        details.push(match (attempt.started_at, lived_until) {
            (Some(started), None) => {
                format!(
                    "its run ended {} after it started.",
                    span(at.since(started))
                )
            }
            // How long a run without a record lived, nobody knows: when its loss was noticed.
            (Some(started), Some(_)) => format!(
                "its run started, and {} later it was found to be gone.",
                span(at.since(started))
            ),
            (None, _) => "no start of its run is on record.".to_owned(),
        });
        details.push(end_line(end));
        details.extend(clues::of_end(end));
        if let Some(forensics) = &attempt.forensics {
            let known = clues_of(forensics, attempt.claimed_at);
            details.extend(known.into_iter().map(|clue| clue.text));
        }
        details.extend(usage_line(
            attempt.peak_memory,
            attempt
                .forensics
                .as_ref()
                .and_then(|known| known.memory_limit),
            attempt.cpu_millis,
        ));
        details.extend(neighbours(facts, attempt.ordinal, *at));
        details.push(charge_line(*charge, end).to_owned());
        if attempt.has_log && *end != End::Succeeded {
            let (job, nth) = (facts.job.id, attempt.ordinal);
            details.push(format!(
                "its log is there: `evenkeel jobs logs {job} --attempt {nth}`."
            ));
        }
    } else {
        details.push("it is under way.".to_owned());
    }
    Told {
        at: attempt.claimed_at,
        attempt: Some(attempt.ordinal),
        text: format!("Attempt {} began, {company}{held}.", attempt.ordinal),
        details: details.into_iter().map(said).collect(),
    }
}

/// Neighbours that are named; of more, there is only a number.
const MAX_NAMED: usize = 5;

fn neighbours(facts: &Facts<'_>, ordinal: u32, at: Timestamp) -> Vec<String> {
    let beside: Vec<&Beside> = facts
        .beside
        .iter()
        .filter(|other| other.ordinal == ordinal)
        .collect();
    let mut lines: Vec<String> = beside
        .iter()
        .take(MAX_NAMED)
        .map(|other| {
            let when = if other.same_broker {
                "was lost with the same broker".to_owned()
            } else if other.at <= at {
                format!("ended {} before", span(at.since(other.at)))
            } else {
                format!("ended {} after", span(other.at.since(at)))
            };
            format!(
                "beside it, job {} ({} of instance {}) {when}, charged as {}.",
                other.job,
                other.action,
                other.instance,
                charged_as(other.charge),
            )
        })
        .collect();
    if beside.len() > MAX_NAMED {
        let more = beside.len() - MAX_NAMED;
        lines.push(format!("beside it, {more} more came to a bad end."));
    }
    lines
}

fn charged_as(charge: Charge) -> &'static str {
    match charge {
        Charge::None => "nothing",
        Charge::Crash => "a crash",
        Charge::Exposure => "an exposure",
        Charge::Loss => "a loss",
        Charge::Disruption => "a disruption",
    }
}

fn told_end(facts: &Facts<'_>) -> Option<Told> {
    let at = facts.finished_at?;
    let text = match &facts.job.state {
        State::Queued | State::Running { .. } | State::Backoff { .. } => return None,
        State::Succeeded => "The job succeeded.",
        State::Failed { .. } => "The job failed.",
        State::Cancelled { .. } => "The job was cancelled.",
        State::Quarantined { .. } => "The job was quarantined: set aside, with nothing deleted.",
    };
    let rule = match &facts.job.state {
        State::Quarantined {
            reason: QuarantineReason::Crashes { .. },
        } => Some(at_most(facts.policy.crash_limit, "crash", "crashes")),
        State::Quarantined {
            reason: QuarantineReason::Losses { .. },
        } => Some(at_most(facts.policy.loss_limit, "loss", "losses")),
        State::Quarantined { .. }
        | State::Queued
        | State::Running { .. }
        | State::Backoff { .. }
        | State::Succeeded
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    };
    Some(Told {
        at,
        attempt: None,
        text: text.to_owned(),
        details: rule.into_iter().collect(),
    })
}

fn at_most(limit: u32, one: &str, many: &str) -> String {
    let what = if limit == 1 { one } else { many };
    format!("A target may have {limit} {what} at most.")
}

/// Whether an end is tied to the death of the broker that drove the attempt.
pub fn tied_to_broker(end: &End) -> bool {
    match end {
        End::Exposed { .. }
        | End::Disrupted {
            cause: DisruptionCause::Drain | DisruptionCause::Reboot,
        } => true,
        End::Disrupted {
            cause: DisruptionCause::Stopped | DisruptionCause::NeverStarted,
        }
        | End::Succeeded
        | End::Failed { .. }
        | End::TryLater
        | End::Stopped
        | End::Crashed { .. }
        | End::OurBug { .. }
        | End::Unreadable { .. } => false,
    }
}

/// A detail as a sentence, but for the frames of a backtrace, which are set in.
fn said(detail: String) -> String {
    if detail.starts_with("  ") {
        return detail;
    }
    sentence(&detail)
}

/// A text as a sentence: with a capital, and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut chars = text.trim().chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    let mut said = first.unwrap_or_default() + chars.as_str();
    if !said.ends_with(['.', '!', '?', '…', '"']) {
        said.push('.');
    }
    said
}

/// A span of time for people: two units at most.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..10 => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

fn two(large: u64, of_large: &str, small: u64, of_small: &str) -> String {
    if small == 0 {
        return format!("{large} {of_large}");
    }
    format!("{large} {of_large} {small} {of_small}")
}
