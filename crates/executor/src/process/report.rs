//! From what a shim wrote down to what it means.

use evenkeel_core::attempt::{Containment, LimitKind, RunEnd, RunReport};
use evenkeel_core::request::{Object, Outputs};
use evenkeel_core::time::Timestamp;
use evenkeel_run::{ExitRecord, Limit};
use serde_json::Value;

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
        (None, Some(output)) => outputs(output.0),
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

/// The action contract's output document (DESIGN §6). Fields that it does not name are left out;
/// messages name fields and never show values, which may be secret.
fn outputs(document: Value) -> Result<Outputs, String> {
    let Value::Object(mut fields) = document else {
        return Err("the output is not a JSON object".to_owned());
    };
    let fields = &mut fields;
    let error_message = match object(fields, "error")? {
        Some(mut error) => {
            text(&mut error, "message").map_err(|error| format!("`error`: {error}"))?
        }
        None => None,
    };
    Ok(Outputs {
        credentials: object(fields, "credentials")?,
        dashboard_url: text(fields, "dashboard_url")?,
        endpoints: array(fields, "endpoints")?,
        volume_mounts: array(fields, "volume_mounts")?,
        syslog_drain_url: text(fields, "syslog_drain_url")?,
        route_service_url: text(fields, "route_service_url")?,
        metadata: object(fields, "metadata")?,
        expires_at: text(fields, "expires_at")?,
        renew_before: text(fields, "renew_before")?,
        data: take(fields, "data"),
        error_message,
    })
}

/// `null` is as good as nothing.
fn take(fields: &mut Object, name: &str) -> Option<Value> {
    fields.remove(name).filter(|value| !value.is_null())
}

fn object(fields: &mut Object, name: &str) -> Result<Option<Object>, String> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(format!("`{name}` in the output must be an object")),
    }
}

fn array(fields: &mut Object, name: &str) -> Result<Option<Vec<Value>>, String> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::Array(array)) => Ok(Some(array)),
        Some(_) => Err(format!("`{name}` in the output must be an array")),
    }
}

fn text(fields: &mut Object, name: &str) -> Result<Option<String>, String> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` in the output must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_of_the_contract_is_taken_over() {
        let document = json!({
            "credentials": {"password": "p"}, "dashboard_url": "https://d", "endpoints": [1],
            "volume_mounts": [2], "syslog_drain_url": "s", "route_service_url": "r",
            "metadata": {"labels": {}}, "expires_at": "e", "renew_before": "b", "data": [3],
            "error": {"message": "m"}, "unknown": true,
        });
        let taken = outputs(document).unwrap();
        assert_eq!(taken.credentials.unwrap()["password"], "p");
        assert_eq!(taken.endpoints, Some(vec![json!(1)]));
        assert_eq!(taken.data, Some(json!([3])));
        assert_eq!(taken.error_message.as_deref(), Some("m"));
        assert_eq!(taken.renew_before.as_deref(), Some("b"));
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named_and_not_shown() {
        for document in [
            json!({"credentials": "hunter2"}),
            json!({"dashboard_url": ["hunter2"]}),
            json!({"error": "hunter2"}),
            json!({"error": {"message": {"hunter2": 1}}}),
            json!({"endpoints": "hunter2"}),
        ] {
            let name = document.as_object().unwrap().keys().next().unwrap().clone();
            let message = outputs(document).unwrap_err();
            assert!(
                message.contains(&name) && !message.contains("hunter2"),
                "{message}"
            );
        }
        assert_eq!(
            outputs(json!({"credentials": null})).unwrap().credentials,
            None
        );
    }
}
