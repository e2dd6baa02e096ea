//! From what a shim wrote down to what it means.

use std::time::Duration;

use evenkeel_core::attempt::{Containment, EX_TEMPFAIL, LimitKind, RunEnd, RunReport};
use evenkeel_core::forensics::{Forensics, LogBytes, MemoryCause, MemoryFacts, Sender, Victim};
use evenkeel_core::request::Outputs;
use evenkeel_core::time::Timestamp;
use evenkeel_run::{ExitRecord, Limit, RunFolder};

use crate::executor::{Probe, Remains};

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
    let forensics = forensics(&record);
    let outputs = match (record.output_error, record.output) {
        (Some(error), _) => Err(error.to_string()),
        (None, None) => Ok(Outputs::default()),
        (None, Some(output)) => Outputs::checked(output.0),
    };
    RunReport {
        end: end(record.end),
        started_at: record.started_at_ms.map(Timestamp),
        ended_at: Timestamp(record.ended_at_ms),
        containment: record.containment.map(containment),
        peak_memory: record.peak_memory_bytes,
        cpu_millis: record.cpu_ms,
        host_oom_grew: record.host_oom,
        outputs,
        progress: record.last_progress,
        forensics,
    }
}

fn forensics(record: &ExitRecord) -> Forensics {
    const SIGKILL: i32 = 9;
    let over_limit = record.end
        == evenkeel_run::RunEnd::Limit {
            limit: Limit::Memory,
        };
    let killed = record.end == evenkeel_run::RunEnd::Signalled { signal: SIGKILL };
    let memory = MemoryCause::of(&MemoryFacts {
        over_limit,
        own_oom_kills: record.own_oom_kills.max(u64::from(record.own_oom)),
        host_oom: record.host_oom,
        killed,
        failed: is_own_failure(&record.end),
        peak: record.peak_own_bytes,
        limit: record.memory_limit_bytes,
    });
    let victim = if record.namespace_killed {
        Some(Victim::Namespace)
    } else {
        (record.own_oom && record.signal != Some(SIGKILL)).then_some(Victim::Child)
    };
    Forensics {
        exit_code: record.exit_code,
        signal: record.signal,
        core_dumped: record.core_dumped,
        victim,
        sender: record.stopped_by.as_ref().map(|by| Sender {
            pid: by.pid,
            uid: by.uid,
            command: by.command.clone(),
            of_run: by.of_run,
            broker: record.stop_wished,
        }),
        memory,
        memory_limit: record.memory_limit_bytes,
        last_sign: None,
        silent_ms: None,
        progress: record.last_progress.clone(),
        log: Some(LogBytes {
            stdout: record.stdout_bytes,
            stderr: record.stderr_bytes,
            lost: record.log_lost_bytes,
        }),
        panic: None,
    }
    .bounded()
}

/// Whether an action ended by itself and as one does to whom memory is refused: not because it wants
/// to be tried later, or was ended from outside.
fn is_own_failure(end: &evenkeel_run::RunEnd) -> bool {
    // What allocators and runtimes end a process by: SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGSEGV.
    let own = |signal: i32| matches!(signal, 4..=7 | 11);
    match end {
        evenkeel_run::RunEnd::Exited {
            code: 0 | EX_TEMPFAIL,
        } => false,
        // A shell's way to say that a command was ended by a signal.
        evenkeel_run::RunEnd::Exited {
            code: code @ 129..=192,
        } => own(code - 128),
        evenkeel_run::RunEnd::Exited { .. } => true,
        evenkeel_run::RunEnd::Signalled { signal } => own(*signal),
        evenkeel_run::RunEnd::TimedOut
        | evenkeel_run::RunEnd::DeadlinePassed
        | evenkeel_run::RunEnd::Stopped
        | evenkeel_run::RunEnd::Limit { .. }
        | evenkeel_run::RunEnd::OomKilled
        | evenkeel_run::RunEnd::SpawnFailed { .. }
        | evenkeel_run::RunEnd::Unknown => false,
    }
}

/// What there is to tell of a run that is over.
pub(super) fn remains(folder: &RunFolder) -> Remains {
    if let Ok(Some(record)) = folder.exit_record() {
        let forensics = forensics(&record);
        return Remains {
            started_at: record.started_at_ms.map(Timestamp),
            containment: record.containment.map(containment),
            last_sign_ago: None,
            peak_memory: record.peak_memory_bytes,
            cpu_millis: record.cpu_ms,
            forensics,
        };
    }
    let left = folder.remains();
    let memory = MemoryCause::of(&MemoryFacts {
        own_oom_kills: left.own_oom_kills.unwrap_or(0),
        host_oom: left.host_oom.unwrap_or(false),
        killed: true,
        ..MemoryFacts::default()
    });
    let started = left.started;
    Remains {
        started_at: started
            .as_ref()
            .map(|record| Timestamp(record.started_at_ms)),
        containment: started
            .as_ref()
            .map(|record| containment(record.containment)),
        last_sign_ago: left.last_sign_ms_ago.map(Duration::from_millis),
        peak_memory: left.peak_memory_bytes,
        cpu_millis: None,
        forensics: Forensics {
            victim: started.map(|_| Victim::Shim),
            memory,
            memory_limit: left.memory_limit_bytes,
            progress: left.last_progress,
            ..Forensics::default()
        }
        .bounded(),
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

    fn read(record: serde_json::Value) -> RunReport {
        report(serde_json::from_value(record).unwrap())
    }

    #[test]
    fn a_record_without_what_newer_shims_tell_says_as_much_as_it_can() {
        let told = read(json!({
            "attempt_id": "a", "end": {"kind": "signalled", "signal": 9}, "ended_at_ms": 1,
            "boot_id": "b", "own_oom": true,
        }));
        assert_eq!((told.started_at, told.containment), (None, None));
        assert_eq!(told.ran(), Duration::ZERO);
        assert_eq!(told.forensics.memory, Some(MemoryCause::OwnCgroup));
    }

    #[test]
    fn numbers_at_their_ends_are_taken_as_they_are() {
        let told = read(json!({
            "attempt_id": "a", "end": {"kind": "of a newer shim"}, "ended_at_ms": i64::MIN,
            "started_at_ms": i64::MAX, "boot_id": "b", "peak_memory_bytes": u64::MAX,
            "memory_limit_bytes": 0, "own_oom_kills": u64::MAX, "exit_code": i32::MIN,
            "stopped_by": {"pid": u32::MAX, "uid": u32::MAX, "command": "x".repeat(10_000)},
            "last_progress": "y".repeat(10_000),
        }));
        assert_eq!(told.ran(), Duration::ZERO);
        assert!(told.forensics.progress.unwrap().len() <= 1024);
        assert!(told.forensics.sender.unwrap().command.unwrap().len() <= 1024);
    }

    #[test]
    fn who_stopped_it_and_what_was_hit_come_through() {
        let told = read(json!({
            "attempt_id": "a", "end": {"kind": "stopped"}, "ended_at_ms": 1, "boot_id": "b",
            "signal": 15, "stopped_by": {"pid": 7, "uid": 8, "command": "kill", "of_run": true},
        }));
        let sender = told.forensics.sender.unwrap();
        assert_eq!((sender.pid, sender.uid), (7, 8));
        assert!(sender.of_run && !sender.broker);
        let told = read(json!({
            "attempt_id": "a", "end": {"kind": "signalled", "signal": 9}, "ended_at_ms": 1,
            "boot_id": "b", "namespace_killed": true, "host_oom": true,
        }));
        assert_eq!(told.forensics.victim, Some(Victim::Namespace));
        assert_eq!(told.forensics.memory, Some(MemoryCause::Host));
        let told = read(json!({
            "attempt_id": "a", "end": {"kind": "exited", "code": 137}, "exit_code": 137,
            "ended_at_ms": 1, "boot_id": "b", "own_oom": true, "own_oom_kills": 2,
        }));
        assert_eq!(told.forensics.victim, Some(Victim::Child));
        assert_eq!(told.forensics.memory, Some(MemoryCause::OwnCgroup));
    }

    #[test]
    fn memory_of_its_own_near_the_limit_is_told_of_a_failure_of_its_own_only() {
        let memory = |end: serde_json::Value, own: serde_json::Value| {
            let record = json!({
                "attempt_id": "a", "end": end, "ended_at_ms": 1, "boot_id": "b",
                // Full of files that were read.
                "peak_memory_bytes": 64, "peak_own_bytes": own, "memory_limit_bytes": 64,
            });
            read(record).forensics.memory
        };
        let exited = |code: i32| json!({"kind": "exited", "code": code});
        let signalled = |signal: i32| json!({"kind": "signalled", "signal": signal});
        for end in [
            exited(1),
            exited(255),
            exited(134),
            signalled(6),
            signalled(11),
        ] {
            let near = memory(end.clone(), json!(60));
            assert_eq!(near, Some(MemoryCause::NearLimit), "{end}");
            for far in [json!(20), json!(null)] {
                assert_eq!(memory(end.clone(), far), None, "{end}");
            }
        }
        let others = ["timed_out", "deadline_passed", "stopped", "of a newer shim"];
        let others = others.map(|kind| json!({ "kind": kind }));
        let ends = [
            exited(0),
            exited(75),
            exited(143),
            signalled(15),
            signalled(9),
        ];
        for end in ends.into_iter().chain(others) {
            assert_eq!(memory(end.clone(), json!(64)), None, "{end}");
        }
    }

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
