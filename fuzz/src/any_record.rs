//! Exit records with anything in their fields, as a shim could write them.

use arbitrary::{Arbitrary, Result, Unstructured};
use evenkeel_run::{Containment, ExitRecord, Limit, Output, OutputError, RunEnd, Sender};
use serde_json::{Map, Number, Value};

/// How deeply what an action wrote nests here.
const MAX_DEPTH: u32 = 4;

/// A record of this run, made of what the fuzzer gave.
///
/// # Errors
/// Never but for a fault of the builder: what is missing is taken as zeros.
pub fn record(raw: &mut Unstructured<'_>, attempt_id: &str) -> Result<ExitRecord> {
    Ok(ExitRecord {
        attempt_id: attempt_id.to_owned(),
        end: end(raw)?,
        exit_code: raw.arbitrary()?,
        signal: raw.arbitrary()?,
        core_dumped: raw.arbitrary()?,
        namespace_killed: raw.arbitrary()?,
        stopped_by: maybe(raw, sender)?,
        stop_wished: raw.arbitrary()?,
        started_at_ms: raw.arbitrary()?,
        ended_at_ms: raw.arbitrary()?,
        boot_id: raw.arbitrary()?,
        containment: maybe(raw, |raw| {
            raw.choose(&[Containment::Pidns, Containment::Cgroup, Containment::Sweep])
                .copied()
        })?,
        peak_memory_bytes: raw.arbitrary()?,
        peak_own_bytes: raw.arbitrary()?,
        memory_limit_bytes: raw.arbitrary()?,
        cpu_ms: raw.arbitrary()?,
        own_oom: raw.arbitrary()?,
        own_oom_kills: raw.arbitrary()?,
        host_oom: raw.arbitrary()?,
        output: maybe(raw, |raw| object(raw, MAX_DEPTH).map(Output))?,
        output_error: maybe(raw, output_error)?,
        last_progress: raw.arbitrary()?,
        stdout_bytes: raw.arbitrary()?,
        stderr_bytes: raw.arbitrary()?,
        log_lost_bytes: raw.arbitrary()?,
        tree_ended: raw.arbitrary()?,
    })
}

fn maybe<'a, T>(
    raw: &mut Unstructured<'a>,
    make: impl FnOnce(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Option<T>> {
    bool::arbitrary(raw)?.then(|| make(raw)).transpose()
}

fn end(raw: &mut Unstructured<'_>) -> Result<RunEnd> {
    let limits = [
        Limit::Memory,
        Limit::CpuTime,
        Limit::Disk,
        Limit::Processes,
        Limit::Unknown,
    ];
    Ok(match raw.int_in_range(0..=8)? {
        0 => RunEnd::Exited {
            code: raw.arbitrary()?,
        },
        1 => RunEnd::Signalled {
            signal: raw.arbitrary()?,
        },
        2 => RunEnd::TimedOut,
        3 => RunEnd::DeadlinePassed,
        4 => RunEnd::Stopped,
        5 => RunEnd::Limit {
            limit: *raw.choose(&limits)?,
        },
        6 => RunEnd::OomKilled,
        7 => RunEnd::SpawnFailed {
            message: raw.arbitrary()?,
        },
        _ => RunEnd::Unknown,
    })
}

fn sender(raw: &mut Unstructured<'_>) -> Result<Sender> {
    Ok(Sender {
        pid: raw.arbitrary()?,
        uid: raw.arbitrary()?,
        command: raw.arbitrary()?,
        of_run: raw.arbitrary()?,
    })
}

fn output_error(raw: &mut Unstructured<'_>) -> Result<OutputError> {
    Ok(match raw.int_in_range(0..=5)? {
        0 => OutputError::NotAFile {
            found: raw.arbitrary()?,
        },
        1 => OutputError::TooLarge {
            bytes: raw.arbitrary()?,
            max_bytes: raw.arbitrary()?,
        },
        2 => OutputError::NotJson {
            message: raw.arbitrary()?,
        },
        3 => OutputError::NotAnObject {
            found: raw.arbitrary()?,
        },
        4 => OutputError::Unreadable {
            message: raw.arbitrary()?,
        },
        _ => OutputError::Unknown,
    })
}

fn object(raw: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    let mut fields = Map::new();
    while fields.len() < 8 && bool::arbitrary(raw)? {
        fields.insert(raw.arbitrary()?, value(raw, depth - 1)?);
    }
    Ok(Value::Object(fields))
}

fn value(raw: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    let kinds = if depth == 0 { 5 } else { 7 };
    Ok(match raw.int_in_range(0..=kinds)? {
        0 => Value::Null,
        1 => Value::Bool(raw.arbitrary()?),
        2 => Value::String(raw.arbitrary()?),
        3 => Value::Number(u64::arbitrary(raw)?.into()),
        4 => Value::Number(i64::arbitrary(raw)?.into()),
        5 => Number::from_f64(raw.arbitrary()?).map_or(Value::Null, Value::Number),
        6 => {
            let mut items = Vec::new();
            while items.len() < 8 && bool::arbitrary(raw)? {
                items.push(value(raw, depth - 1)?);
            }
            Value::Array(items)
        }
        _ => object(raw, depth)?,
    })
}
