//! From what the engine wants to what the run folder is prepared with.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use evenkeel_run::{DEFAULT_LOG_MAX_BYTES, DEFAULT_OUTPUT_MAX_BYTES, Limits, RunFolder, StateDir};

use super::ProcessOptions;
use crate::executor::RunSpec;

/// Processes of a run whose bundle sets no limit: a fork bomb must not take the host's.
const DEFAULT_PROCESSES: u64 = 1_024;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const DEFAULT_LANG: &str = "C.UTF-8";

/// Spec, request and secrets of a run.
type Prepared = (evenkeel_run::RunSpec, Vec<u8>, BTreeMap<String, Vec<u8>>);

pub(super) fn for_folder(folder: &RunFolder, spec: RunSpec, options: &ProcessOptions) -> Prepared {
    let limits = &spec.limits;
    let wanted = evenkeel_run::RunSpec {
        env: environment(folder, &spec),
        command: spec.command,
        bundle_dir: spec.bundle_dir,
        state: Some(StateDir {
            path: spec.state_dir,
            read_only: spec.state_read_only,
        }),
        limits: Limits {
            memory_bytes: limits.memory,
            // RLIMIT_CPU counts whole seconds, and 0 would mean none at all.
            cpu_secs: limits
                .cpu_time
                .map(|time| time.as_millis().div_ceil(1000).max(1))
                .map(saturate),
            open_files: limits.open_files,
            processes: Some(limits.processes.unwrap_or(DEFAULT_PROCESSES)),
            disk_bytes: limits.disk,
        },
        timeout_ms: millis(spec.timeout),
        deadline_at_ms: Some(spec.deadline.as_millis()),
        grace_ms: millis(spec.grace),
        containment: options.containment,
        run_as: options.run_as,
        output_max_bytes: DEFAULT_OUTPUT_MAX_BYTES,
        // The bundle's bound is for both streams together.
        log_max_bytes: limits.output.map_or(DEFAULT_LOG_MAX_BYTES, |both| both / 2),
    };
    (wanted, spec.request, spec.secrets)
}

/// What the action finds in its environment: defaults, then what the bundle and the engine say,
/// then the places that nobody else knows.
fn environment(folder: &RunFolder, spec: &RunSpec) -> BTreeMap<String, String> {
    let places = folder.surroundings();
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), DEFAULT_PATH.to_owned()),
        ("LANG".to_owned(), DEFAULT_LANG.to_owned()),
    ]);
    env.extend(spec.env.clone());
    let mut place = |name: &str, path: &Path| {
        env.insert(name.to_owned(), path.to_string_lossy().into_owned());
    };
    place("HOME", &places.work);
    place("TMPDIR", &places.tmp);
    place("EVENKEEL_REQUEST", &places.request);
    place("EVENKEEL_OUTPUT", &places.output);
    place("EVENKEEL_PROGRESS", &places.progress);
    place("EVENKEEL_SECRETS", &places.secrets);
    place("EVENKEEL_STATE", &spec.state_dir);
    env
}

fn millis(span: Duration) -> u64 {
    saturate(span.as_millis())
}

fn saturate(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
