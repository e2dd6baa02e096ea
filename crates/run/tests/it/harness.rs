//! A run root in a temporary folder, and runs in it under the real shim.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_run::{
    Begin, ContainmentWish, ExitRecord, Limits, Probe, RunFolder, RunRoot, RunSpec, StartTicket,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const EVERY_LEVEL: [ContainmentWish; 3] = [
    ContainmentWish::Pidns,
    ContainmentWish::Cgroup,
    ContainmentWish::Sweep,
];

/// How long anything here may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) root: RunRoot,
}

/// A run and the shim that was spawned for it.
pub(crate) struct Started {
    pub(crate) folder: RunFolder,
    pub(crate) shim: Child,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::in_dir(tempfile::tempdir().unwrap())
    }

    pub(crate) fn in_dir(dir: TempDir) -> Self {
        let root = RunRoot::open(&dir.path().join("root"), "0190-root").unwrap();
        fs::create_dir_all(dir.path().join("bundle")).unwrap();
        Self { dir, root }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A run with a fresh name.
    pub(crate) fn fresh(&self) -> RunFolder {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.root
            .run(&format!("attempt-{}-{number}", std::process::id()))
            .unwrap()
    }

    /// What runs a shell script that lies in the bundle.
    pub(crate) fn script(&self, folder: &RunFolder, script: &str) -> RunSpec {
        let name = format!("action-{}", folder.attempt_id());
        let path = self.path("bundle").join(&name);
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let places = folder.surroundings();
        let mut env = BTreeMap::from(
            [
                ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
                ("LANG", "C.UTF-8"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        for (name, path) in [
            ("HOME", &places.work),
            ("TMPDIR", &places.tmp),
            ("EVENKEEL_OUTPUT", &places.output),
            ("EVENKEEL_PROGRESS", &places.progress),
            ("EVENKEEL_REQUEST", &places.request),
            ("EVENKEEL_SECRETS", &places.secrets),
            ("WORLD", &self.dir.path().to_owned()),
        ] {
            env.insert(name.to_owned(), path.to_str().unwrap().to_owned());
        }
        RunSpec {
            command: vec![format!("./{name}"), "one argument".to_owned()],
            env,
            bundle_dir: self.path("bundle"),
            state: None,
            limits: Limits::default(),
            timeout_ms: 60_000,
            deadline_at_ms: None,
            grace_ms: 10_000,
            containment: ContainmentWish::Auto,
            run_as: None,
            output_max_bytes: 1 << 20,
            log_max_bytes: 1 << 20,
        }
    }

    pub(crate) fn start(&self, folder: &RunFolder, spec: &RunSpec) -> Started {
        let mut ticket = begin(folder, spec);
        let shim = spawn(&mut ticket);
        Started {
            folder: folder.clone(),
            shim,
        }
    }

    /// Runs a script to its end.
    pub(crate) fn run(&self, level: ContainmentWish, script: &str) -> (ExitRecord, RunFolder) {
        let folder = self.fresh();
        let mut spec = self.script(&folder, script);
        spec.containment = level;
        self.run_spec(&folder, &spec)
    }

    pub(crate) fn run_spec(&self, folder: &RunFolder, spec: &RunSpec) -> (ExitRecord, RunFolder) {
        let record = self.start(folder, spec).finish();
        (record, folder.clone())
    }
}

pub(crate) fn begin(folder: &RunFolder, spec: &RunSpec) -> StartTicket {
    match folder.begin(spec, b"{}", &BTreeMap::new()).unwrap() {
        Begin::Ready(ticket) => ticket,
        Begin::Already => panic!("the run was begun before"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test stands in for the executor"
)]
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

pub(crate) fn shim_command() -> Command {
    command(env!("CARGO_BIN_EXE_evenkeel-run-test-shim"))
}

pub(crate) fn spawn(ticket: &mut StartTicket) -> Child {
    shim_command()
        .arg(ticket.folder())
        .stdin(Stdio::from(ticket.lock_for_shim().unwrap()))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

impl Started {
    pub(crate) fn shim_pid(&self) -> i32 {
        i32::try_from(self.shim.id()).unwrap()
    }

    /// Waits for the shim's end and reads how the run ended.
    pub(crate) fn finish(mut self) -> ExitRecord {
        self.wait_for_shim();
        // Another test of this process may be starting one of its own: until that child executes
        // its program it has a copy of the lock's descriptor, if it was forked while we had it.
        let probe = eventually("the lock is free", || {
            let probe = self.folder.probe().unwrap();
            (probe != Probe::Alive).then_some(probe)
        });
        let Probe::Exited(record) = probe else {
            panic!("{probe:?} instead of an exit record")
        };
        *record
    }

    pub(crate) fn wait_for_shim(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.shim.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the shim does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn kill_shim(&mut self, signal: Signal) {
        send(self.shim_pid(), signal);
    }
}

/// Taken by tests that have the kernel end something for want of memory: it counts that for the
/// whole host, so that one test's death would be seen by another.
pub(crate) fn out_of_memory() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Waits until something can be observed.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a file holds a whole line, and gives that line.
pub(crate) fn line_of(path: &Path) -> String {
    eventually(&format!("a line in {}", path.display()), || {
        let text = fs::read_to_string(path).ok()?;
        text.split_once('\n').map(|(line, _)| line.to_owned())
    })
}

/// Whether a process of the run is alive anywhere on the host, found by its environment.
pub(crate) fn processes_of(folder: &RunFolder) -> Vec<i32> {
    let entry = format!("EVENKEEL_ATTEMPT_ID={}", folder.attempt_id());
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let path = process.path();
        let Ok(environ) = fs::read(path.join("environ")) else {
            continue;
        };
        if environ
            .split(|byte| *byte == 0)
            .any(|one| one == entry.as_bytes())
        {
            let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
            if !stat.contains(") Z ") {
                found.push(process.file_name().to_str().unwrap().parse().unwrap());
            }
        }
    }
    found
}
