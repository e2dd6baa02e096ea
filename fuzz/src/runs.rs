//! What a run leaves on the disk, as the shim reads it of an action, and the broker of a shim: exit
//! records, output, progress. Whole folders are in [`folders`].

use std::fs::{self, File};
use std::future::Future;

use arbitrary::Unstructured;
use evenkeel_core::attempt;
use evenkeel_core::bundle::Requirement;
use evenkeel_core::ids::AttemptId;
use evenkeel_core::request::Outputs;
use evenkeel_executor::{Executor, Probe, ProcessExecutor, ProcessOptions};
use evenkeel_run::shim::results;
use evenkeel_run::{ExitRecord, Kind, RunEnd, RunError, RunFolder, RunRoot, Standing, encode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::replay::Target;
use super::{any_record, folders};

/// The targets of this module and of [`folders`].
pub const TARGETS: [Target; 4] = [
    ("exit_record", exit_record),
    ("run_folder", run_folder),
    ("output", output),
    ("progress", progress),
];

/// The run that everything here is about.
pub(super) const ATTEMPT: &str = "01930f00-0000-7000-8000-00000000000a";
/// The largest output that is accepted here, in bytes.
const MAX_OUTPUT_BYTES: u64 = 2048;
/// The longest line of progress, in bytes.
const MAX_LINE_BYTES: usize = 1024;

/// A run root of its own, with the executor that a broker has over it.
pub(super) struct World {
    pub(super) dir: TempDir,
    pub(super) root: RunRoot,
    pub(super) folder: RunFolder,
    executor: ProcessExecutor,
}

impl World {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let root = RunRoot::open(&dir.path().join("root"), "fuzz").expect("a run root");
        let folder = root.run(ATTEMPT).expect("a name");
        let executor = ProcessExecutor::new(root.clone(), ProcessOptions::default());
        Self {
            dir,
            root,
            folder,
            executor,
        }
    }

    /// What the engine is told of the run.
    pub(super) fn told(&self) -> Probe {
        let attempt: AttemptId = ATTEMPT.parse().expect("an id");
        // Both at once: each goes through another thread.
        let (probe, remains) = wait(async {
            tokio::join!(self.executor.probe(attempt), self.executor.remains(attempt))
        });
        let progress = remains.expect("an answer").forensics.progress;
        assert!(progress.as_deref().is_none_or(is_line), "{progress:?}");
        probe.expect("an answer")
    }

    /// The run's folder as it is when a broker has prepared it and no shim came.
    fn prepared() -> Self {
        let world = Self::new();
        fs::create_dir_all(world.folder.path().join("out")).expect("a folder");
        world.put("spec.json", b"{}");
        world
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.folder.path().join(name), bytes).expect("a file");
    }

    /// What the shim finds where actions write.
    fn out(&self) -> File {
        File::open(self.folder.path().join("out")).expect("a folder")
    }
}

/// Waits for what an executor does.
fn wait<T>(what: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(what))
}

/// See [`folders::run_folder`].
pub fn run_folder(data: &[u8]) {
    folders::run_folder(data);
}

/// The bytes as an exit record, and as what is in one; and a record made of them.
pub fn exit_record(data: &[u8]) {
    let world = World::prepared();
    told(&world, data);
    // The fuzzer cannot make a checksum.
    told(&world, &encode(Kind::Exit, data));
    let made = any_record::record(&mut Unstructured::new(data), ATTEMPT);
    let record = made.expect("a record of any bytes");
    let json = serde_json::to_vec(&record).expect("JSON");
    world.put("exit", &encode(Kind::Exit, &json));
    let read = world.folder.exit_record();
    let read = read.expect("it is whole").expect("it is there");
    let expected = ExitRecord {
        last_progress: read.last_progress.clone(),
        ..record.clone()
    };
    assert_eq!(read, expected);
    let line = record
        .last_progress
        .as_deref()
        .filter(|line| is_line(line) && !line.is_empty());
    assert!(line.is_none_or(|line| read.last_progress.as_deref() == Some(line)));
    told(&world, &encode(Kind::Exit, &json));
}

/// Everything that a broker asks of a run whose folder holds these bytes as its exit record.
fn told(world: &World, bytes: &[u8]) {
    fs::remove_file(world.folder.path().join("tombstone")).ok();
    world.put("exit", bytes);
    let whole = payload(bytes, Kind::Exit, "exit");
    let record = match (world.folder.exit_record(), whole) {
        (Ok(None), None) => {
            let head = &bytes[..bytes.len().min(64)];
            assert!(head.iter().all(|byte| *byte == 0), "it is not blank");
            None
        }
        (Ok(Some(record)), Some(json)) => {
            assert_eq!(record.attempt_id, ATTEMPT, "of another run");
            assert!(record.last_progress.as_deref().is_none_or(is_line));
            let json: Value = serde_json::from_slice(json).expect("JSON");
            assert_eq!(json["attempt_id"], ATTEMPT);
            Some(record)
        }
        (Err(RunError::Record { .. }), None) | (Err(RunError::Content { .. }), Some(_)) => None,
        (answer, whole) => panic!("{answer:?} of {whole:?}"),
    };
    assert!(!world.folder.is_lost().expect("an answer"));
    assert_eq!(world.folder.standing().expect("an answer"), Standing::Over);
    fs::remove_file(world.folder.path().join("tombstone")).ok();
    let probe = world.folder.probe().expect("an answer");
    let report = world.told();
    match (record, probe, report) {
        (Some(record), evenkeel_run::Probe::Exited(told), Probe::Exited(report)) => {
            assert_eq!(record, *told);
            let well = record.end == RunEnd::Exited { code: 0 };
            assert_eq!(well, report.end == attempt::RunEnd::Exited { code: 0 });
            assert!(report.ran().as_millis() <= u128::from(u64::MAX));
        }
        (None, evenkeel_run::Probe::NeverStarted, Probe::NeverStarted) => {}
        (record, probe, report) => panic!("{record:?}: {probe:?}, {report:?}"),
    }
}

/// The JSON of a record that is whole, by `FORMAT.md` alone.
pub(super) fn payload<'a>(bytes: &'a [u8], kind: Kind, word: &str) -> Option<&'a [u8]> {
    let head = bytes.get(..format!("run/1 {word} ").len() + 10 + 1 + 8 + 1)?;
    let length = head.get(head.len() - 20..head.len() - 10)?;
    let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
    let json = bytes.get(head.len()..head.len().checked_add(length)?)?;
    // What the writer makes of the same JSON, but for the end of the line.
    encode(kind, json).starts_with(head).then_some(json)
}

/// The bytes as an action's output.
pub fn output(data: &[u8]) {
    let world = World::prepared();
    world.put("out/output.json", data);
    let (output, error) = results::output(world.out(), MAX_OUTPUT_BYTES);
    if let Some(error) = &error {
        assert!(output.is_none() && error.to_string().len() < 400, "{error}");
        let refused = serde_json::from_slice::<Value>(data).map_or(true, |value| {
            !value.is_object() || value.to_string().len() as u64 > MAX_OUTPUT_BYTES
        });
        assert!(refused || data.len() as u64 > MAX_OUTPUT_BYTES, "{error}");
    }
    if let Some(output) = &output {
        assert!(output.0.is_object());
        assert!(output.0.to_string().len() as u64 <= MAX_OUTPUT_BYTES);
    }
    assert!(output.is_some() || error.is_some() || data.is_empty());
    // Into the record, out of it, and to what the engine is told.
    let record = any_record::record(&mut Unstructured::new(&[]), ATTEMPT);
    let record = ExitRecord {
        end: RunEnd::Exited { code: 0 },
        output: output.clone(),
        output_error: error.clone(),
        tree_ended: true,
        ..record.expect("a record of zeros")
    };
    let json = serde_json::to_vec(&record).expect("JSON");
    world.put("exit", &encode(Kind::Exit, &json));
    let read = world.folder.exit_record();
    let read = read.expect("it is whole").expect("it is there");
    assert_eq!((&read.output, &read.output_error), (&output, &error));
    let told = world.told();
    let Probe::Exited(report) = told else {
        panic!("{told:?}")
    };
    match report.outputs {
        Ok(outputs) => {
            assert!(error.is_none());
            let json = serde_json::to_value(&outputs).expect("JSON");
            let again = serde_json::from_value::<Outputs>(json).expect("outputs");
            assert_eq!(again, outputs);
            // What nothing was granted for is what any offering would need to say.
            let all = [
                Requirement::SyslogDrain,
                Requirement::RouteForwarding,
                Requirement::VolumeMount,
            ];
            outputs.check_granted(&all).expect("all is granted");
            if let Err(message) = outputs.check_granted(&[]) {
                assert!(message.contains("`requires`"), "{message}");
            }
            let urls = [&outputs.dashboard_url, &outputs.syslog_drain_url];
            assert!(
                urls.into_iter()
                    .flatten()
                    .all(|url| url.chars().count() <= 16_000)
            );
        }
        Err(message) => {
            assert!(error.is_some() || output.is_some());
            assert!(!message.is_empty() && message.len() < 600, "{message}");
        }
    }
}

/// The bytes as what an action appends to its progress, and as the record of its last line.
pub fn progress(data: &[u8]) {
    let world = World::prepared();
    world.put("out/progress", data);
    let (line, bytes) = results::progress(world.out());
    assert_eq!(bytes, data.len() as u64);
    if let Some(line) = &line {
        assert!(!line.is_empty() && is_line(line), "{line:?}");
    }
    if let Some(expected) = last_plain_line(data) {
        assert_eq!(line.as_deref(), expected);
    }
    let json = serde_json::to_vec(&line).expect("JSON");
    world.put("last-progress", &encode(Kind::Progress, &json));
    assert_eq!(world.folder.last_progress().expect("it is whole"), line);
    for record in [data.to_vec(), encode(Kind::Progress, data)] {
        world.put("last-progress", &record);
        match world.folder.last_progress() {
            Ok(Some(line)) => {
                assert!(payload(&record, Kind::Progress, "progress").is_some());
                assert!(is_line(&line), "{line:?}");
            }
            Ok(None) | Err(RunError::Content { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    world.told();
}

/// The last line that is not blank, of bytes that are plain text and few enough to be read whole.
fn last_plain_line(data: &[u8]) -> Option<Option<&str>> {
    let plain = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
    if data.len() > 4096 || !data.iter().all(plain) {
        return None;
    }
    let text = std::str::from_utf8(data).ok()?;
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    Some(line.map(|line| line[..line.len().min(MAX_LINE_BYTES)].trim()))
}

/// What may be shown to people as one line: short, and nothing in it moves the cursor, breaks the
/// line or turns the direction of writing.
pub(super) fn is_line(line: &str) -> bool {
    let harmful = |char: char| {
        char.is_control()
            || matches!(char, '\u{2028}' | '\u{2029}')
            // The `Bidi_Control` characters of Unicode.
            || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}')
            || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    line.len() <= MAX_LINE_BYTES && !line.chars().any(harmful) && line.trim() == line
}
