//! What the end of a run means: outcomes are no crashes, and only evidence proves.

use std::time::Duration;

use evenkeel_core::attempt::{
    Containment, DisruptionCause, End, Evidence, FailReason, LimitKind, RunEnd, RunReport, classify,
};
use evenkeel_core::forensics::Forensics;
use evenkeel_core::request::Outputs;

use crate::fixtures::NOON;

fn report(end: RunEnd) -> RunReport {
    RunReport {
        end,
        started_at: Some(NOON),
        ended_at: NOON,
        containment: Some(Containment::Pidns),
        peak_memory: None,
        cpu_millis: None,
        host_oom_grew: false,
        outputs: Ok(Outputs::default()),
        progress: None,
        forensics: Forensics::default(),
    }
}

fn failed(reason: FailReason) -> End {
    End::Failed {
        reason,
        message: None,
    }
}

#[test]
fn every_exit_code_is_an_outcome() {
    for code in 0..=255 {
        let expected = match code {
            0 => End::Succeeded,
            75 => End::TryLater,
            _ => failed(FailReason::ExitCode { code }),
        };
        assert_eq!(classify(&report(RunEnd::Exited { code }), false), expected);
    }
}

#[test]
fn a_signal_proves_something_only_if_a_process_brings_it_on_itself() {
    // Also what a shell reports as 128 + n is an exit code, and above.
    for signal in 1..=64 {
        let own = [4, 5, 6, 7, 8, 11, 13, 24, 25, 31].contains(&signal);
        let evidence = own.then_some(Evidence::FatalSignal { signal });
        let end = classify(&report(RunEnd::Signalled { signal }), false);
        assert_eq!(end, End::Crashed { evidence }, "signal {signal}");
    }
}

#[test]
fn its_own_limits_are_evidence() {
    for limit in [
        LimitKind::Memory,
        LimitKind::CpuTime,
        LimitKind::Disk,
        LimitKind::Processes,
        LimitKind::Output,
    ] {
        let evidence = Some(Evidence::Limit { limit });
        let end = classify(&report(RunEnd::LimitExceeded { limit }), false);
        assert_eq!(end, End::Crashed { evidence });
    }
    let evidence = Some(Evidence::OutOfMemory);
    let end = classify(&report(RunEnd::OutOfMemory), false);
    assert_eq!(end, End::Crashed { evidence });
}

#[test]
fn a_stop_is_what_was_asked_for_or_a_disruption() {
    let stopped = report(RunEnd::Stopped);
    assert_eq!(classify(&stopped, true), End::Stopped);
    let cause = DisruptionCause::Stopped;
    assert_eq!(classify(&stopped, false), End::Disrupted { cause });
}

#[test]
fn time_and_commands_that_do_not_start_are_failures() {
    let message = "No such file: ./provision".to_owned();
    for (end, reason) in [
        (RunEnd::TimedOut, FailReason::Timeout),
        (RunEnd::DeadlinePassed, FailReason::Deadline),
        (
            RunEnd::NotRunnable {
                message: message.clone(),
            },
            FailReason::NotRunnable { message },
        ),
    ] {
        assert_eq!(classify(&report(end), false), failed(reason));
    }
}

#[test]
fn outputs_that_cannot_be_used_fail_a_run_that_ended_well() {
    let mut bad = report(RunEnd::Exited { code: 0 });
    bad.outputs = Err("not JSON".to_owned());
    let message = "not JSON".to_owned();
    assert_eq!(
        classify(&bad, false),
        failed(FailReason::BadOutput { message })
    );
    bad.end = RunEnd::Exited { code: 3 };
    let end = classify(&bad, false);
    assert_eq!(end, failed(FailReason::ExitCode { code: 3 }));
}

#[test]
fn a_failed_action_may_say_why() {
    let mut report = report(RunEnd::Exited { code: 3 });
    report.outputs = Ok(Outputs {
        error_message: Some("quota".to_owned()),
        ..Outputs::default()
    });
    let expected = End::Failed {
        reason: FailReason::ExitCode { code: 3 },
        message: Some("quota".to_owned()),
    };
    assert_eq!(classify(&report, false), expected);
}

#[test]
fn a_run_lived_from_its_start_to_the_end_of_its_tree() {
    let ended_at = NOON.plus(Duration::from_secs(7));
    for (started_at, lived) in [
        (Some(NOON), 7),
        // The clock was set back meanwhile.
        (Some(ended_at.plus(Duration::from_secs(1))), 0),
        (None, 0),
    ] {
        let report = RunReport {
            started_at,
            ended_at,
            ..report(RunEnd::Stopped)
        };
        assert_eq!(report.ran(), Duration::from_secs(lived));
    }
}
