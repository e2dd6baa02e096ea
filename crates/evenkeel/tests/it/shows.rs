//! What commands make of the admin API's answers, for a person at a terminal of a hundred columns.

use serde_json::{Value, json};

use crate::asks::asks;
use crate::fake::Fake;

const JOB: &str = "019c0000-0000-7000-8000-000000000001";

fn boot(number: u32) -> String {
    format!("019c0000-0000-7000-8000-0000000000b{number}")
}

/// An attempt of its own boot, with whatever else is known of it.
fn attempt(ordinal: u32, more: &Value) -> Value {
    let mut attempt = json!({
        "id": format!("019c0000-0000-7000-8000-0000000000a{ordinal}"),
        "ordinal": ordinal,
        "boot": boot(ordinal),
        "claimed_at": format!("2026-01-01T00:0{ordinal}:00.123Z"),
        "started_at": format!("2026-01-01T00:0{ordinal}:00.143Z"),
        "containment": "pidns",
    });
    for (name, value) in more.as_object().unwrap() {
        attempt[name] = value.clone();
    }
    attempt
}

/// A job with one attempt of each kind, so that everything that can be known is.
fn job() -> Value {
    let panic = json!({
        "location": "crates/engine/src/attempt.rs:10:5",
        "thread": "worker-1",
        "backtrace": "evenkeel_engine::attempt::drive at crates/engine/src/attempt.rs:10\ntokio::run",
    });
    let history = [
        attempt(
            1,
            &json!({
                "ended_at": "2026-01-01T00:01:02Z",
                "end": "crashed",
                "reason": "crashed: it brought signal 11 (SIGSEGV) on itself",
                "charge": "crash",
                "charge_reason": "charged as a crash: it was the run's own doing",
                "peak_memory_bytes": 12 << 20,
                "cpu_millis": 340,
                "forensics": {
                    "signal": 11,
                    "memory": "near_limit",
                    "memory_limit_bytes": 64 << 20,
                    "progress": "creating \u{1b}[31mthe role",
                    "log_bytes": {"stdout": 10, "stderr": 0, "lost": 2048},
                },
            }),
        ),
        attempt(
            2,
            &json!({
                "ended_at": "2026-01-01T00:02:02Z",
                "end": "disrupted",
                "reason": "interrupted: its run was asked to stop from outside",
                "charge": "disruption",
                "charge_reason": "nothing charged: it was disrupted",
                "forensics": {"sender": {"pid": 7, "uid": 1000, "command": "system\u{202e}ctl"}},
            }),
        ),
        attempt(
            3,
            &json!({
                "solo": true,
                "ended_at": "2026-01-01T00:03:40Z",
                "end": "exposed",
                "reason": "lost: its run vanished when the broker died",
                "charge": "loss",
                "charge_reason": "charged as a loss: nothing but this job was at work",
                "deaths": [
                    {"boot": boot(1), "cause": "host_lost", "exclusive": false, "charge": "exposure"},
                    {"boot": boot(2), "cause": "named_by_black_box", "exclusive": true, "charge": "loss"},
                ],
                "forensics": {"victim": "shim", "last_sign_at": "2026-01-01T00:03:30.123Z"},
            }),
        ),
        attempt(
            4,
            &json!({
                "ended_at": "2026-01-01T00:04:02Z",
                "end": "crashed",
                "reason": "crashed: the broker's step for it panicked at crates/engine/src/attempt.rs:10:5",
                "charge": "crash",
                "charge_reason": "charged as a crash: it was the run's own doing",
                "forensics": {"panic": panic},
            }),
        ),
        attempt(5, &json!({})),
    ];
    json!({
        "id": JOB,
        "action": "provision",
        "state": "running",
        "instance": "i",
        "service": "s-id",
        "service_name": "postgres",
        "platform": "platform",
        "attempts": 5,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:05:00Z",
        "deadline_at": "2026-01-02T00:00:00Z",
        "reason": "attempt 5 is under way",
        "bundle": "07".repeat(32),
        "tempfails": 0,
        "retries": 3,
        "budget": {"crashes": 2, "losses": 1, "exposures": 1, "disruptions": 1},
        "history": history,
        "audit": [],
    })
}

#[test]
fn a_job_is_shown_with_all_that_is_known_of_each_attempt_in_a_hundred_columns() {
    let fake = Fake::new(|_| (200, job().to_string()));
    let said = asks(&fake, &["jobs", "show", JOB]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    for line in said.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line}");
    }
    insta::assert_snapshot!(said.stdout);
    // For programs nothing is lost.
    let said = asks(&fake, &["jobs", "show", JOB, "--json"]);
    let data: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(data["history"][2]["deaths"], job()["history"][2]["deaths"]);
}

#[test]
fn status_tells_of_suspects_and_whose_turn_it_is() {
    let turn = format!("job {JOB} is a suspect and runs alone");
    let fake = Fake::new(move |_| {
        let reason = json!({"about": "isolation", "blocking": false, "message": turn});
        let counts = json!({
            "queued": 3, "running": 1, "backoff": 0, "succeeded": 9, "failed": 0, "cancelled": 0,
            "quarantined": 0, "suspects": 2, "instances": 4, "bindings": 0, "leaks": 0,
        });
        let status = json!({
            "version": "1.2.3",
            "boot": boot(1),
            "started_at": "2026-01-01T00:00:00Z",
            "ready": true,
            "description": "requests are served",
            "reasons": [reason],
            "driving": 1,
            "concurrency": 32,
            "counts": counts,
            "isolation": {"job": JOB, "runs": true, "until": "2026-01-01T00:02:00Z"},
            "services": 1,
        });
        (200, status.to_string())
    });
    let said = asks(&fake, &["status"]);
    assert_eq!(said.code, 0, "{said:?}");
    insta::assert_snapshot!(said.stdout);
    let said = asks(&fake, &["status", "--json"]);
    let data: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(data["isolation"]["job"], JOB);
    assert_eq!(data["counts"]["suspects"], 2);
}
