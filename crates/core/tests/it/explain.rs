//! What people are told about jobs, whole.

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_core::attempt::{
    Charge, Death, DisruptionCause, End, Evidence, ExposureCause, FailReason, LimitKind,
};
use evenkeel_core::budget::Budget;
use evenkeel_core::explain::{
    MAX_DESCRIPTION_CHARS, charge_line, death_line, end_line, platform_description,
    quarantine_description, state_line,
};
use evenkeel_core::job::{Job, QuarantineReason, State, StopReason};

use crate::fixtures::{NOON, boot_id, job, job_id, running};

fn in_state(state: State) -> Job {
    Job {
        attempts: 2,
        state,
        ..job()
    }
}

fn by_delete() -> StopReason {
    StopReason::Superseded { job: job_id(2) }
}

fn reasons() -> Vec<FailReason> {
    let message = || "/srv/b/provision: No such file or directory".to_owned();
    vec![
        FailReason::ExitCode { code: 3 },
        FailReason::RetriesSpent,
        FailReason::Timeout,
        FailReason::Deadline,
        FailReason::BadOutput { message: message() },
        FailReason::NotRunnable { message: message() },
        FailReason::NotPrepared { message: message() },
    ]
}

fn jobs() -> Vec<Job> {
    let failed = |reason, message: Option<&str>| {
        in_state(State::Failed {
            reason,
            message: message.map(str::to_owned),
        })
    };
    let cancelled = |by| in_state(State::Cancelled { by });
    let quarantined = |reason| in_state(State::Quarantined { reason });
    let suspect = Budget {
        crashes: 1,
        losses: 2,
        suspect: true,
        ..Budget::default()
    };
    let mut stopping = running(None);
    if let State::Running { stop, .. } = &mut stopping.state {
        *stop = Some(by_delete());
    }
    let mut all = vec![
        job(),
        Job {
            budget: suspect.clone(),
            ..in_state(State::Queued)
        },
        running(None),
        running(Some(Duration::from_secs(120))),
        stopping,
        in_state(State::Backoff { next_at: NOON }),
        in_state(State::Succeeded),
    ];
    all.extend(reasons().into_iter().map(|reason| failed(reason, None)));
    all.extend([
        failed(FailReason::ExitCode { code: 3 }, Some(" quota exceeded\n")),
        failed(FailReason::ExitCode { code: 3 }, Some(" \n")),
        cancelled(by_delete()),
        cancelled(StopReason::Operator),
        cancelled(StopReason::SyncLimit),
        quarantined(QuarantineReason::Crashes { count: 3 }),
        quarantined(QuarantineReason::Losses { count: 1 }),
        Job {
            budget: suspect,
            ..quarantined(QuarantineReason::BudgetSpent)
        },
        quarantined(QuarantineReason::Unreadable {
            message: "Eof at byte 12".to_owned(),
        }),
    ]);
    all
}

#[test]
fn the_platform_and_the_operator_are_told_this_of_a_job() {
    let mut text = String::new();
    for job in jobs() {
        writeln!(text, "platform: {}", platform_description(&job, None))
            .expect("a string takes it");
        writeln!(text, "operator: {}\n", state_line(&job, false)).expect("a string takes it");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_job_that_was_discarded_offers_nothing_to_do() {
    for job in jobs() {
        let (before, after) = (state_line(&job, false), state_line(&job, true));
        if let State::Quarantined { .. } = &job.state {
            assert!(before.contains("evenkeel jobs retry"), "{before}");
            assert!(after.ends_with("; it was discarded"), "{after}");
            assert!(!after.contains("evenkeel jobs"), "{after}");
        } else {
            assert_eq!(before, after);
        }
    }
}

#[test]
fn the_operator_is_told_this_of_an_attempt() {
    let evidence = |evidence| End::Crashed {
        evidence: Some(evidence),
    };
    let mut ends = vec![
        (End::Succeeded, Charge::None),
        (End::TryLater, Charge::None),
        (End::Stopped, Charge::None),
        (
            evidence(Evidence::FatalSignal { signal: 11 }),
            Charge::Crash,
        ),
        (
            evidence(Evidence::FatalSignal { signal: 40 }),
            Charge::Crash,
        ),
        (evidence(Evidence::OutOfMemory), Charge::Crash),
        (
            evidence(Evidence::Panic {
                location: "crates/engine/src/drive.rs:10:5".to_owned(),
            }),
            Charge::Crash,
        ),
        (End::Crashed { evidence: None }, Charge::Crash),
        (End::Crashed { evidence: None }, Charge::Exposure),
        (
            End::OurBug {
                location: "crates/engine/src/drive.rs:10:5".to_owned(),
            },
            Charge::None,
        ),
        (
            End::Unreadable {
                message: "Eof at byte 12".to_owned(),
            },
            Charge::None,
        ),
    ];
    for limit in [
        LimitKind::Memory,
        LimitKind::CpuTime,
        LimitKind::Disk,
        LimitKind::Processes,
        LimitKind::Output,
    ] {
        ends.push((evidence(Evidence::Limit { limit }), Charge::Crash));
    }
    for cause in [
        ExposureCause::VanishedWithBroker,
        ExposureCause::NamedByBlackBox,
        ExposureCause::HostLost,
    ] {
        ends.push((End::Exposed { cause }, Charge::Exposure));
        ends.push((End::Exposed { cause }, Charge::Loss));
    }
    for cause in [
        DisruptionCause::Drain,
        DisruptionCause::Stopped,
        DisruptionCause::NeverStarted,
        DisruptionCause::Reboot,
    ] {
        ends.push((End::Disrupted { cause }, Charge::Disruption));
    }
    for reason in reasons() {
        let message = Some("quota exceeded".to_owned());
        ends.push((End::Failed { reason, message }, Charge::None));
    }
    let mut text = String::new();
    for (end, charge) in ends {
        writeln!(text, "{}\n  {}", end_line(&end), charge_line(charge, &end))
            .expect("a string takes it");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_last_line_of_progress_describes_what_is_not_over() {
    for (state, progress) in [
        (State::Queued, true),
        (State::Backoff { next_at: NOON }, true),
        (running(None).state, true),
        (State::Succeeded, true),
        (jobs().pop().expect("a quarantined job").state, false),
    ] {
        let told = platform_description(&in_state(state), Some(" creating the role \n"));
        assert_eq!(told == "creating the role", progress, "{told}");
    }
    let silent = platform_description(&job(), Some("  \n"));
    assert_eq!(silent, platform_description(&job(), None));
}

#[test]
fn what_an_action_says_cannot_command_a_terminal() {
    let failed = |message: &str| {
        in_state(State::Failed {
            reason: FailReason::ExitCode { code: 1 },
            message: Some(message.to_owned()),
        })
    };
    let told = |message: &str| platform_description(&failed(message), None);
    assert_eq!(told("\u{1b}[31mred\u{7}\u{9b}2J"), "[31mred2J");
    assert_eq!(told("two\nlines\r\n"), "two\nlines");
    assert_eq!(told("\u{202e}txt.exe \u{2066}größe 🚢"), "txt.exe größe 🚢");
    assert_eq!(told("\u{1b}\u{7}"), platform_description(&failed(""), None));
}

/// DESIGN §10 and OSB.md L1.
#[test]
fn a_platform_is_told_which_job_and_nothing_internal() {
    let id = job().id.to_string();
    for job in jobs() {
        let told = platform_description(&job, None);
        assert!(!told.trim().is_empty());
        for internal in [
            "exit code",
            "/srv",
            "crash",
            "Eof",
            "signal",
            "evenkeel jobs",
        ] {
            assert!(!told.contains(internal), "{told}");
        }
        if let State::Failed { message: None, .. } | State::Quarantined { .. } = &job.state {
            assert!(told.contains(&id), "{told}");
        }
        if let State::Quarantined { .. } = &job.state {
            assert!(told.contains("operators"), "{told}");
        }
        assert_eq!(
            quarantine_description(&job, false).is_some(),
            matches!(job.state, State::Quarantined { .. })
        );
    }
    let superseded = in_state(State::Cancelled { by: by_delete() });
    let told = platform_description(&superseded, None);
    assert!(told.starts_with("superseded by delete"), "{told}");
}

#[test]
fn an_actions_words_are_bounded() {
    let words = "é".repeat(MAX_DESCRIPTION_CHARS + 1);
    let told = platform_description(&job(), Some(&words));
    assert_eq!(told.chars().count(), MAX_DESCRIPTION_CHARS + 1);
    assert!(told.ends_with("é…"));
    let words = "é".repeat(MAX_DESCRIPTION_CHARS);
    assert_eq!(platform_description(&job(), Some(&words)), words);
}

#[test]
fn a_counted_death_is_told_by_how_the_job_was_near_and_what_it_cost() {
    let told = |cause, exclusive, charge| {
        let boot = boot_id(1);
        let line = death_line(&Death {
            boot,
            cause,
            exclusive,
            charge,
        });
        line.strip_prefix(&format!("boot {boot} "))
            .expect("it begins with who died")
            .to_owned()
    };
    let named = ExposureCause::NamedByBlackBox;
    for (line, expected) in [
        (
            told(named, true, Charge::Loss),
            "died in a step for this job that no other shared; counted as a loss: nothing but this \
             job was at work.",
        ),
        (
            told(named, false, Charge::Exposure),
            "died in a step for this job; counted as an exposure.",
        ),
        (
            told(ExposureCause::HostLost, false, Charge::Exposure),
            "died with its host; counted as an exposure.",
        ),
        (
            told(ExposureCause::VanishedWithBroker, false, Charge::Exposure),
            "died, and the run vanished with it; counted as an exposure.",
        ),
    ] {
        assert_eq!(line, expected);
    }
}
