//! The rest of `bundle.yml`: version, executor, environment, secrets and limits.

use std::collections::BTreeMap;
use std::time::Duration;

use super::field::{Entry, Field};
use super::{ExecutorKind, FormatVersion, Limits, SecretSource};

const MAX_ENV: usize = 100;
const MAX_ENV_NAME_BYTES: usize = 255;
const MAX_ENV_VALUE_BYTES: usize = 32 * 1024;
const MAX_SECRETS: usize = 64;
const MAX_SECRET_NAME_BYTES: usize = 64;
const MAX_PATH_BYTES: usize = 4095;

/// The broker gives each run folders of its own under these names.
const RESERVED_ENV: [&str; 2] = ["HOME", "TMPDIR"];

pub(super) fn version(field: &Field<'_>) -> Option<FormatVersion> {
    let number = field.whole(0..=u64::from(u32::MAX))?;
    let version = u32::try_from(number).ok()?.try_into();
    version
        .map_err(|message: String| field.error_with(message, "write bundle: 1"))
        .ok()
}

pub(super) fn executor(field: &Field<'_>) -> Option<ExecutorKind> {
    field.one_of(&[("process", ExecutorKind::Process)])
}

pub(super) fn env(field: &Field<'_>) -> Option<BTreeMap<String, String>> {
    let read = |entry: &Entry<'_>| {
        let name = env_name(entry);
        let value = entry.value.any_text()?;
        if value.len() > MAX_ENV_VALUE_BYTES {
            let bytes = value.len();
            entry.value.error(format!(
                "has {bytes} bytes, more than {MAX_ENV_VALUE_BYTES}"
            ));
            return None;
        }
        Some((name?, value.to_owned()))
    };
    each_entry(field, MAX_ENV, read)
}

fn env_name(entry: &Entry<'_>) -> Option<String> {
    let name = entry.name();
    let is_word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if !is_word || name.len() > MAX_ENV_NAME_BYTES {
        let hint = "use letters, digits and `_`, and no digit first".to_owned();
        entry.error("is no name of a variable", Some(hint));
        return None;
    }
    if name.starts_with("EVENKEEL_") || RESERVED_ENV.contains(&name) {
        let hint =
            "EVENKEEL_*, HOME and TMPDIR are set for each run; PATH and LANG may be set here";
        entry.error("is set by the broker", Some(hint.to_owned()));
        return None;
    }
    let upper = name.to_uppercase();
    if ["PASSWORD", "SECRET", "TOKEN", "CREDENTIAL"]
        .iter()
        .any(|word| upper.contains(word))
    {
        entry.warn(
            "looks like a secret, and the environment is no place for one",
            "put it into a file and name the file under `secrets`",
        );
    }
    Some(name.to_owned())
}

pub(super) fn secrets(field: &Field<'_>) -> Option<BTreeMap<String, SecretSource>> {
    let read = |entry: &Entry<'_>| {
        let name = secret_name(entry);
        let fields = entry.value.fields(&["file"])?;
        let file = fields.need("file").and_then(|f| secret_file(&f))?;
        Some((name?, SecretSource { file }))
    };
    each_entry(field, MAX_SECRETS, read)
}

fn secret_name(entry: &Entry<'_>) -> Option<String> {
    let name = entry.name();
    let is_file_name = (1..=MAX_SECRET_NAME_BYTES).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if !is_file_name {
        let hint = format!(
            "it becomes a file name: up to {MAX_SECRET_NAME_BYTES} letters, digits, `_`, `-`, `.`"
        );
        entry.error("is no name for a secret", Some(hint));
        return None;
    }
    Some(name.to_owned())
}

fn secret_file(field: &Field<'_>) -> Option<String> {
    let path = field.text()?;
    if path.len() > MAX_PATH_BYTES {
        field.error(format!(
            "has {} bytes, more than {MAX_PATH_BYTES}",
            path.len()
        ));
        return None;
    }
    if path.split('/').any(|part| part == "..") {
        field.error_with(
            "must not climb with `..`",
            "give an absolute path, or one below the operator's folder of secrets",
        );
        return None;
    }
    Some(path.to_owned())
}

pub(super) fn limits(field: &Field<'_>) -> Option<Limits> {
    const LONGEST: Duration = Duration::from_hours(7 * 24);
    let fields = field.fields(&[
        "memory",
        "cpu_time",
        "open_files",
        "processes",
        "disk",
        "output",
    ])?;
    let memory = fields.maybe("memory", |f| f.size(1 << 20..=1 << 44));
    let cpu_time = fields.maybe("cpu_time", |f| f.duration(Duration::from_secs(1)..=LONGEST));
    let open_files = fields.maybe("open_files", |f| f.whole(16..=1 << 20));
    let processes = fields.maybe("processes", |f| f.whole(1..=1 << 15));
    let disk = fields.maybe("disk", |f| f.size(1 << 10..=1 << 44));
    let output = fields.maybe("output", |f| f.size(1 << 10..=1 << 30));
    Some(Limits {
        memory: memory?,
        cpu_time: cpu_time?,
        open_files: open_files?,
        processes: processes?,
        disk: disk?,
        output: output?,
    })
}

fn each_entry<T>(
    field: &Field<'_>,
    limit: usize,
    read: impl Fn(&Entry<'_>) -> Option<(String, T)>,
) -> Option<BTreeMap<String, T>> {
    let entries = field.entries()?;
    if entries.len() > limit {
        field.error(format!(
            "{} entries are more than the limit of {limit}",
            entries.len()
        ));
        return None;
    }
    let all: Vec<_> = entries.iter().map(read).collect();
    all.into_iter().collect()
}
