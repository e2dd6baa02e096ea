//! From what a shim wrote down to what it means.

use evenkeel_core::attempt::{Containment, LimitKind, RunEnd, RunReport};
use evenkeel_core::request::Outputs;
use evenkeel_core::time::Timestamp;
use evenkeel_run::{ExitRecord, Limit};

use crate::executor::Probe;

pub(super) fn probe(probe: evenkeel_run::Probe) -> Probe {
    match probe {
        evenkeel_run::Probe::NeverStarted => Probe::NeverStarted,
        evenkeel_run::Probe::Alive => Probe::Alive,
        evenkeel_run::Probe::Lingering => Probe::Lingering,
        evenkeel_run::Probe::Exited(record) => Probe::Exited(Box::new(report(*record))),
        evenkeel_run::Probe::Vanished => Probe::Vanished,
    }
}

fn report(record: ExitRecord) -> RunReport {
    let outputs = match (record.output_error, record.output) {
        (Some(error), _) => Err(error.to_string()),
        (None, None) => Ok(Outputs::default()),
        (None, Some(output)) => Outputs::checked(output.0),
    };
    RunReport {
        end: end(record.end),
        started_at: Timestamp(record.started_at_ms.unwrap_or(record.ended_at_ms)),
        ended_at: Timestamp(record.ended_at_ms),
        // A run that came to none was held by the least there is: its shim.
        containment: record.containment.map_or(Containment::Sweep, containment),
        peak_memory: record.peak_memory_bytes,
        cpu_millis: record.cpu_ms,
        host_oom_grew: record.host_oom,
        outputs,
        progress: record.last_progress,
    }
}

pub(super) fn containment(held: evenkeel_run::Containment) -> Containment {
    match held {
        evenkeel_run::Containment::Pidns => Containment::Pidns,
        evenkeel_run::Containment::Cgroup => Containment::Cgroup,
        evenkeel_run::Containment::Sweep => Containment::Sweep,
    }
}

fn end(end: evenkeel_run::RunEnd) -> RunEnd {
    match end {
        evenkeel_run::RunEnd::Exited { code } => RunEnd::Exited { code },
        evenkeel_run::RunEnd::Signalled { signal } => RunEnd::Signalled { signal },
        evenkeel_run::RunEnd::TimedOut => RunEnd::TimedOut,
        evenkeel_run::RunEnd::DeadlinePassed => RunEnd::DeadlinePassed,
        evenkeel_run::RunEnd::Stopped => RunEnd::Stopped,
        evenkeel_run::RunEnd::OomKilled => RunEnd::OutOfMemory,
        evenkeel_run::RunEnd::SpawnFailed { message } => RunEnd::NotRunnable { message },
        evenkeel_run::RunEnd::Limit { limit } => RunEnd::LimitExceeded {
            limit: limit_kind(limit),
        },
        // Written by a newer shim than we are: an end without an outcome, and without evidence.
        evenkeel_run::RunEnd::Unknown => RunEnd::Signalled { signal: 0 },
    }
}

fn limit_kind(limit: Limit) -> LimitKind {
    match limit {
        Limit::Memory => LimitKind::Memory,
        Limit::CpuTime => LimitKind::CpuTime,
        Limit::Disk => LimitKind::Disk,
        Limit::Processes => LimitKind::Processes,
        // Of all that we know, the one that no shim of ours reports.
        Limit::Unknown => LimitKind::Output,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_that_ended_well_with_an_output_that_no_platform_can_use_gives_none() {
        let record = |output| {
            let end = serde_json::to_value(evenkeel_run::RunEnd::Exited { code: 0 }).unwrap();
            let record = json!({
                "attempt_id": "a", "end": end, "ended_at_ms": 1, "boot_id": "b", "output": output,
            });
            report(serde_json::from_value(record).unwrap())
        };
        let fine = record(json!({"endpoints": [{"host": "h", "ports": ["443"]}]}));
        assert_eq!(fine.outputs.unwrap().endpoints.unwrap().len(), 1);
        let useless = record(json!({"endpoints": [{"host": "h", "ports": [443]}]}));
        assert_eq!(useless.end, RunEnd::Exited { code: 0 });
        let message = useless.outputs.unwrap_err();
        assert!(message.contains("`endpoints[0]`"), "{message}");
    }
}
