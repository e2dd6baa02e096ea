//! A run's folder with anything in it, and whatever recovery does with one.
//!
//! The input says what is there, an entry for each line that begins with `== `, with what follows as
//! its content:
//!
//! ```text
//! == file NAME            the content
//! == record NAME KIND     a whole record of this kind, with the content as its JSON
//! == torn NAME KIND N     the same, but for its last N bytes
//! == room NAME            room that was allocated for a record
//! == dir NAME             a folder
//! == link NAME TARGET     a symbolic link
//! == hard NAME            another name of a file that lies elsewhere
//! == pipe NAME            a named pipe
//! ```
//!
//! A NAME begins in the run's folder, or, as `boots/…` and `logs/…`, beside it; `.` is the folder
//! itself. `@BOOT@` stands for this kernel's boot id, `@ATTEMPT@` for the run, `@ELSEWHERE@` for a
//! folder that is none of its business.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use evenkeel_run::{
    Begin, Kind, Limits, Probe, RunEnd, RunError, RunFolder, RunSpec, Standing, blackbox, encode,
};
use rustix::fs::{CWD, Mode};

use super::runs::{ATTEMPT, World, is_line, payload};

/// The dead boot whose files may lie there.
const BOOT: &str = "01930f00-0000-7000-8000-00000000000b";
/// Entries of one input.
const MAX_ENTRIES: usize = 24;
const ROOM_BYTES: usize = 4096;
const LOG_TAIL_BYTES: u64 = 1000;
/// Slots of a black box.
const MAX_BOX_SLOTS: usize = 1024;

/// Whatever lies in a run's folder, there is an answer about it, the answer stays, and nothing
/// beyond the folder is read through a link, changed or removed. Returns the answer's name.
pub fn run_folder(data: &[u8]) -> &'static str {
    let world = World::new();
    let elsewhere = Elsewhere::make(world.dir.path());
    lay(&world, data, &elsewhere.0);
    let before = elsewhere.fingerprint();
    look(&world);
    let answer = judge(&world);
    if !matches!(answer, Probe::Lingering) {
        assert_nothing_starts(&world.folder);
        dispose(&world);
    }
    assert_eq!(
        elsewhere.fingerprint(),
        before,
        "changed what lies elsewhere"
    );
    match answer {
        Probe::NeverStarted => "never started",
        Probe::Alive => "alive",
        Probe::Lingering => "lingering",
        Probe::Exited(_) => "exited",
        Probe::Vanished => "vanished",
    }
}

/// What recovery reads before it asks for a verdict.
fn look(world: &World) {
    let (root, folder) = (&world.root, &world.folder);
    let listed = root.runs(100).expect("a list");
    assert!(listed.names.iter().all(|name| name == ATTEMPT));
    root.boots(100).expect("a list");
    for host_too in [false, true] {
        if let Ok(named) = blackbox::named_by(root, BOOT, host_too) {
            let most = if host_too { 1 } else { MAX_BOX_SLOTS };
            assert!(named.len() <= most);
        }
    }
    root.boot_is_dead(BOOT).ok();
    blackbox::spoil(root, BOOT).ok();
    if let Ok(named) = blackbox::named_by(root, BOOT, false) {
        assert!(named.iter().all(|one| !one.exclusive), "it was spoiled");
    }
    blackbox::forget(root, BOOT).ok();
    root.forget_boot(BOOT).ok();
    folder.spec().ok();
    folder.lock_record().ok();
    folder.heartbeat_age().ok();
    if let Ok(Some(line)) = folder.last_progress() {
        assert!(is_line(&line), "{line:?}");
    }
    if let Ok(Some(tail)) = folder.log_tail(LOG_TAIL_BYTES) {
        for stream in [tail.stdout, tail.stderr] {
            assert!(stream.bytes.len() as u64 <= LOG_TAIL_BYTES);
            assert!(
                !stream.text().contains(Elsewhere::SECRET),
                "read through a link"
            );
        }
    }
    let remains = folder.remains();
    assert!(remains.last_progress.as_deref().is_none_or(is_line));
    if is_alone() {
        folder.request_stop(Some(Duration::from_secs(1))).ok();
        folder.end_silent(Duration::ZERO).ok();
        folder.sweep().expect("an answer");
    }
}

/// The verdict, which must be one that what lies there can prove, and must stay.
fn judge(world: &World) -> Probe {
    let folder = &world.folder;
    let exit = whole(folder, "exit", Kind::Exit);
    let lost = folder.is_lost().ok();
    let answer = folder
        .probe()
        .unwrap_or_else(|error| panic!("no answer: {error}"));
    match &answer {
        Probe::Exited(record) => {
            let exit = exit.expect("a whole record");
            assert_eq!(record.attempt_id, ATTEMPT);
            if record.end == (RunEnd::Exited { code: 0 }) {
                assert!(String::from_utf8_lossy(&exit).contains("exited"));
            }
            assert_ne!(lost, Some(true));
        }
        Probe::NeverStarted => {
            let started = whole(folder, "started", Kind::Started);
            assert!(started.is_none(), "it may have started");
            assert!(folder.path().join("tombstone").symlink_metadata().is_ok());
        }
        Probe::Vanished => {
            assert!(folder.path().join("tombstone").symlink_metadata().is_ok());
        }
        Probe::Lingering => {
            let started = folder.started_record().ok().flatten();
            let leader = started.map(|record| format!("/proc/{}", record.leader_pid));
            assert!(
                leader.is_some_and(|leader| Path::new(&leader).exists()),
                "nothing lives"
            );
        }
        Probe::Alive => panic!("nobody holds the lock"),
    }
    let again = folder
        .probe()
        .unwrap_or_else(|error| panic!("no answer: {error}"));
    assert_eq!(again, answer, "the answer did not stay");
    let standing = folder
        .standing()
        .unwrap_or_else(|error| panic!("no answer: {error}"));
    assert_eq!(
        standing == Standing::Over,
        !matches!(answer, Probe::Lingering)
    );
    world.told();
    answer
}

/// After a final answer no shim may be spawned.
fn assert_nothing_starts(folder: &RunFolder) {
    let spec = RunSpec {
        command: vec!["true".to_owned()],
        env: BTreeMap::new(),
        bundle_dir: "/".into(),
        state: None,
        limits: Limits::default(),
        timeout_ms: 1,
        deadline_at_ms: None,
        grace_ms: 1,
        containment: evenkeel_run::ContainmentWish::Auto,
        run_as: None,
        output_max_bytes: 1,
        log_max_bytes: 1,
    };
    match folder.begin(&spec, b"{}", &BTreeMap::new()) {
        Ok(Begin::Already) | Err(RunError::Tombstone { .. }) => {}
        other => panic!("it would start again: {other:?}"),
    }
}

/// The end of everything: the folder is gone, and nothing of it left but its log.
fn dispose(world: &World) {
    world
        .folder
        .conclude()
        .unwrap_or_else(|error| panic!("it stays: {error}"));
    assert!(
        world.folder.path().symlink_metadata().is_err(),
        "it is still there"
    );
    world.folder.conclude().expect("it may be repeated");
    if let Ok(Some(tail)) = world.folder.log_tail(LOG_TAIL_BYTES) {
        assert!(
            !tail.stdout.text().contains(Elsewhere::SECRET),
            "read through a link"
        );
    }
    world.root.forget_logs(i64::MAX).expect("logs are removed");
    let logs = fs::read_dir(world.root.path().join("logs")).expect("a folder");
    assert_eq!(logs.count(), 0, "a log stays");
}

/// The JSON of a record that is there as a plain file, and whole.
fn whole(folder: &RunFolder, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let path = folder.path().join(name);
    let plain = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let bytes = plain.then(|| fs::read(&path).ok()).flatten()?;
    payload(&bytes, kind, name).map(<[u8]>::to_vec)
}

/// Whether this process may send signals to whatever an input names: in a PID namespace of its own,
/// as `scripts/fuzz` makes it.
fn is_alone() -> bool {
    std::env::var_os("EVENKEEL_FUZZ_ALONE").is_some()
}

fn lay(world: &World, data: &[u8], elsewhere: &Path) {
    fs::create_dir(world.folder.path()).expect("a folder");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let put_in = |bytes: &[u8]| {
        let bytes = replace(bytes, b"@BOOT@", boot.trim().as_bytes());
        let bytes = replace(&bytes, b"@ATTEMPT@", ATTEMPT.as_bytes());
        replace(
            &bytes,
            b"@ELSEWHERE@",
            elsewhere.as_os_str().as_encoded_bytes(),
        )
    };
    let mut rest = data.strip_prefix(b"== ").unwrap_or_default();
    for _ in 0..MAX_ENTRIES {
        let end = find(rest, b"\n== ");
        let entry = &rest[..end.unwrap_or(rest.len())];
        let (head, content) = entry.split_at(find(entry, b"\n").unwrap_or(entry.len()));
        let content = put_in(content.get(1..).unwrap_or_default());
        let head = put_in(head);
        lay_one(world, &String::from_utf8_lossy(&head), &content, elsewhere);
        let Some(end) = end else { break };
        rest = &rest[end + 4..];
    }
}

/// What cannot be laid is left out.
fn lay_one(world: &World, head: &str, content: &[u8], elsewhere: &Path) -> Option<()> {
    let mut words = head.split(' ');
    let (what, name) = (words.next()?, words.next()?);
    let path = place(world, name)?;
    if let Some(parent) = path.parent() {
        // Not through a link that an earlier entry has laid.
        if parent.canonicalize().is_ok_and(|real| real != parent) {
            return None;
        }
        fs::create_dir_all(parent).ok()?;
    }
    let mut record = || {
        let kind = match words.next()? {
            "lock" => Kind::Lock,
            "started" => Kind::Started,
            "exit" => Kind::Exit,
            "progress" => Kind::Progress,
            "heartbeat" => Kind::Heartbeat,
            _ => return None,
        };
        Some(encode(kind, content))
    };
    match what {
        "file" => write(&path, content),
        "record" => write(&path, &record()?),
        "torn" => {
            let record = record()?;
            let gone: usize = words.next()?.parse().ok()?;
            write(&path, &record[..record.len().checked_sub(gone)?])
        }
        "room" => write(&path, &[0; ROOM_BYTES]),
        "dir" => fs::create_dir(&path).ok(),
        "link" => {
            replace_self(world, &path);
            symlink(words.next()?, &path).ok()
        }
        "hard" => fs::hard_link(elsewhere.join("file"), &path).ok(),
        "pipe" => rustix::fs::mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).ok(),
        _ => None,
    }
}

fn write(path: &Path, bytes: &[u8]) -> Option<()> {
    let fresh = path.symlink_metadata().is_err();
    fresh.then(|| fs::write(path, bytes).ok()).flatten()
}

/// The folder itself may be a link too.
fn replace_self(world: &World, path: &Path) {
    if path == world.folder.path() {
        fs::remove_dir(path).ok();
    }
}

fn place(world: &World, name: &str) -> Option<PathBuf> {
    let root = world.root.path();
    if name == "." {
        return Some(world.folder.path().to_owned());
    }
    let plain = Path::new(name)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !plain || name.contains('\0') || name.is_empty() {
        return None;
    }
    Some(match name.split_once('/') {
        Some(("boots", "lock")) => root.join("boots").join(format!("{BOOT}.lock")),
        Some(("boots", "box")) => root.join("boots").join(format!("{BOOT}.box")),
        Some(("logs", rest)) => root.join("logs").join(ATTEMPT).join(rest),
        _ => world.folder.path().join(name),
    })
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}

fn replace(bytes: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut done = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, what) {
        done.extend_from_slice(&rest[..at]);
        done.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    done.extend_from_slice(rest);
    done
}

/// What lies beside the run root and is none of its business.
struct Elsewhere(PathBuf);

impl Elsewhere {
    const SECRET: &str = "of somebody else";

    fn make(dir: &Path) -> Self {
        let path = dir.canonicalize().expect("a path").join("elsewhere");
        let group = format!("evenkeel-{ATTEMPT}");
        for folder in [
            format!("folder/{group}"),
            format!("pipes/{group}"),
            format!("{group}/inner"),
        ] {
            fs::create_dir_all(path.join(folder)).expect("a folder");
        }
        for file in ["file", "folder/file", "folder/stdout", "folder/exit"] {
            fs::write(path.join(file), Self::SECRET).expect("a file");
        }
        // Whoever opened these would wait for ever.
        for name in [
            "memory.peak",
            "memory.max_usage_in_bytes",
            "memory.events",
            "cgroup.procs",
        ] {
            let pipe = path.join("pipes").join(&group).join(name);
            rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
        }
        Self(path)
    }

    /// Names, kinds, rights and contents of everything in it.
    fn fingerprint(&self) -> BTreeSet<(PathBuf, u32, Vec<u8>)> {
        let mut all = BTreeSet::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder").flatten() {
                let path = entry.path();
                let meta = path.symlink_metadata().expect("what it is");
                let content = meta.is_file().then(|| fs::read(&path).expect("a file"));
                if meta.is_dir() {
                    folders.push(path.clone());
                }
                all.insert((path, meta.mode(), content.unwrap_or_default()));
            }
        }
        all
    }
}
