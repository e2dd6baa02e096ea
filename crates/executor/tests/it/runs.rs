//! Starting, finding, watching and ending runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::attempt::{Containment, RunEnd};
use evenkeel_core::bundle::Limits;
use evenkeel_core::time::Timestamp;
use evenkeel_executor::{
    ContainmentWish, Executor, ExecutorError, Probe, RunError, StartError, WatchEnd,
};
use tokio::sync::mpsc;

use crate::world::{World, eventually, finished, fresh, watched};

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn a_run_is_started_watched_and_reported() {
    let world = World::new();
    let spec = world.script(
        r#"echo '{"credentials": {"n": 1}, "error": {"message": "m"}}' > $EVENKEEL_OUTPUT
        [ "$(cat $EVENKEEL_SECRETS/KEY)" = hunter2 ] && [ -d "$EVENKEEL_STATE" ] && [ -s "$EVENKEEL_REQUEST" ] || exit 9
        echo half way >> $EVENKEEL_PROGRESS; while [ ! -e $WORLD/go ]; do sleep 0.01; done; exit 4"#,
    );
    let attempt = spec.attempt;
    let handle = world.executor.start(spec).await.unwrap();
    assert_eq!(handle.containment, Some(Containment::Pidns));
    let (progress, mut lines) = mpsc::channel(1);
    let go = world.path("go");
    let (end, line) = tokio::join!(world.executor.watch(attempt, progress), async {
        let line = lines.recv().await;
        fs::write(go, "").unwrap();
        line
    });
    assert_eq!(line.as_deref(), Some("half way"));
    let WatchEnd::Exited(report) = end.unwrap() else {
        panic!("no exit record")
    };
    assert_eq!(report.end, RunEnd::Exited { code: 4 });
    assert_eq!(report.containment, Some(Containment::Pidns));
    assert_eq!(report.progress.as_deref(), Some("half way"));
    let outputs = report.outputs.unwrap();
    assert_eq!(outputs.credentials.unwrap()["n"], 1);
    assert_eq!(outputs.error_message.as_deref(), Some("m"));
    assert!(matches!(
        world.executor.probe(attempt).await.unwrap(),
        Probe::Exited(_)
    ));
}

#[tokio::test]
async fn many_starts_of_one_attempt_make_one_run() {
    let world = World::new();
    let spec =
        world.script("echo x >> $WORLD/starts; while [ ! -e $WORLD/go ]; do sleep 0.01; done");
    let attempt = spec.attempt;
    let mut starts = tokio::task::JoinSet::new();
    for index in 0..8 {
        // Half of them by another broker.
        let executor = if index % 2 == 0 {
            world.executor.clone()
        } else {
            world.another()
        };
        let spec = spec.clone();
        starts.spawn(async move { executor.start(spec).await });
    }
    while let Some(start) = starts.join_next().await {
        start.unwrap().unwrap();
    }
    world.executor.start(spec.clone()).await.unwrap();
    fs::write(world.path("go"), "").unwrap();
    finished(&world.executor, attempt).await;
    world.executor.start(spec).await.unwrap();
    assert_eq!(lines(&world.path("starts")), 1);
}

#[tokio::test]
async fn a_run_is_adopted_by_an_executor_that_did_not_start_it() {
    let world = World::new();
    let spec = world.script("while [ ! -e $WORLD/go ]; do sleep 0.01; done; exit 3");
    let attempt = spec.attempt;
    world.executor.start(spec).await.unwrap();
    let next = world.another();
    assert_eq!(next.runs().await.unwrap(), [attempt]);
    assert!(matches!(next.probe(attempt).await.unwrap(), Probe::Alive));
    let (report, ()) = tokio::join!(finished(&next, attempt), async {
        fs::write(world.path("go"), "").unwrap();
    });
    assert_eq!(report.end, RunEnd::Exited { code: 3 });
}

/// The starter is a process of its own, killed without warning: this very test, started again.
#[tokio::test]
async fn a_run_outlives_the_kill_of_its_starter() {
    const WORLD: &str = "EVENKEEL_TEST_ADOPTION";
    if let Ok(place) = std::env::var(WORLD) {
        let world = World::new();
        let mut spec = world.script("");
        let place = std::path::PathBuf::from(place);
        spec.attempt = fs::read_to_string(place.join("attempt"))
            .unwrap()
            .parse()
            .unwrap();
        spec.command = vec!["./wait".into()];
        spec.bundle_dir = place.join("bundle");
        spec.state_dir = place.join("state");
        spec.env
            .insert("WORLD".into(), place.to_str().unwrap().into());
        let root = evenkeel_executor::RunRoot::open(&place.join("root"), "0190-root").unwrap();
        let program = env!("CARGO_BIN_EXE_evenkeel-executor-test-shim").into();
        let options = evenkeel_executor::ProcessOptions {
            shim: evenkeel_executor::ShimCommand {
                program,
                args: vec![],
            },
            ..Default::default()
        };
        evenkeel_executor::ProcessExecutor::new(root, options)
            .start(spec)
            .await
            .unwrap();
        fs::write(place.join("started"), "").unwrap();
        std::future::pending::<()>().await;
    }
    let world = World::new();
    let attempt = fresh();
    fs::write(world.path("attempt"), attempt.to_string()).unwrap();
    let script = "#!/bin/bash\nwhile [ ! -e $WORLD/go ]; do sleep 0.01; done\n";
    fs::write(world.path("bundle/wait"), script).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(world.path("bundle/wait"), fs::Permissions::from_mode(0o755)).unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "the starter has to be a process that can be killed"
    )]
    let mut starter = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "runs::a_run_outlives_the_kill_of_its_starter"])
        .env(WORLD, world.dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("the start", || world.path("started").exists().then_some(())).await;
    starter.kill().unwrap();
    starter.wait().unwrap();
    assert!(matches!(
        world.executor.probe(attempt).await.unwrap(),
        Probe::Alive
    ));
    let (report, ()) = tokio::join!(finished(&world.executor, attempt), async {
        fs::write(world.path("go"), "").unwrap();
    });
    assert_eq!(report.end, RunEnd::Exited { code: 0 });
}

#[tokio::test]
async fn a_stop_ends_the_run_and_is_told_by_the_watch() {
    let world = World::new();
    let spec = world.script("trap '' TERM; echo up > up; while :; do sleep 1000; done");
    let attempt = spec.attempt;
    let up = world.run_path(attempt).join("work/up");
    world.executor.start(spec).await.unwrap();
    eventually("the action", || up.exists().then_some(())).await;
    world
        .executor
        .stop(attempt, Duration::from_millis(50))
        .await
        .unwrap();
    assert_eq!(
        finished(&world.executor, attempt).await.end,
        RunEnd::Stopped
    );
    // Asking again, and asking for what never was, is no error.
    world.executor.stop(attempt, Duration::ZERO).await.unwrap();
    world.executor.stop(fresh(), Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_run_that_never_started_stays_so() {
    let world = World::new();
    let spec = world.script("touch $WORLD/ran");
    let attempt = spec.attempt;
    assert!(matches!(
        world.executor.probe(attempt).await.unwrap(),
        Probe::NeverStarted
    ));
    let refused = world.executor.start(spec).await.unwrap_err();
    assert!(matches!(
        refused,
        StartError::Failed(ExecutorError::Run(RunError::Tombstone { .. }))
    ));
    assert!(matches!(
        watched(&world.executor, attempt).await,
        WatchEnd::NeverStarted
    ));
    assert!(!world.path("ran").exists());
}

#[tokio::test]
async fn a_spec_beyond_all_bounds_is_refused() {
    let world = World::new();
    let mut spec = world.script("exit 0");
    spec.request = vec![b' '; 17 << 20];
    assert!(matches!(
        world.executor.start(spec).await,
        Err(StartError::Refused(_))
    ));
    let mut spec = world.script("exit 0");
    spec.secrets.insert("../escape".into(), vec![]);
    assert!(matches!(
        world.executor.start(spec).await,
        Err(StartError::Refused(_))
    ));
}

#[tokio::test]
async fn a_shim_that_cannot_be_spawned_leaves_a_run_that_never_started() {
    let world = World::with(|options| options.shim.program = "/no/such/program".into());
    let spec = world.script("exit 0");
    let attempt = spec.attempt;
    let error = world.executor.start(spec).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
    assert!(matches!(
        world.executor.probe(attempt).await.unwrap(),
        Probe::NeverStarted
    ));
}

/// I16.
#[tokio::test]
async fn concluding_removes_every_secret_and_keeps_the_log() {
    let world = World::new();
    let spec = world.script(
        r#"echo the log; echo '{"credentials": {"p": "hunter2"}}' > $EVENKEEL_OUTPUT; echo hunter2 > $TMPDIR/x
        while [ ! -e $WORLD/go ]; do sleep 0.01; done"#,
    );
    let attempt = spec.attempt;
    world.executor.start(spec).await.unwrap();
    let error = world.executor.conclude(attempt).await.unwrap_err();
    assert!(matches!(error, ExecutorError::Run(RunError::Alive { .. })));
    fs::write(world.path("go"), "").unwrap();
    finished(&world.executor, attempt).await;
    assert!(holds(&world.path("root"), b"hunter2"));
    world.executor.conclude(attempt).await.unwrap();
    assert!(!holds(&world.path("root"), b"hunter2"));
    assert_eq!(world.executor.runs().await.unwrap(), []);
    let log = world.executor.log(attempt, 100).await.unwrap().unwrap();
    assert_eq!(log.stdout.text(), "the log\n");
    // Again, and late: nothing happens, and the log stays until it is too old.
    world.executor.conclude(attempt).await.unwrap();
    world.executor.forget_logs(Timestamp(1000)).await.unwrap();
    assert!(world.executor.log(attempt, 100).await.unwrap().is_some());
    world
        .executor
        .forget_logs(Timestamp(i64::MAX))
        .await
        .unwrap();
    assert_eq!(world.executor.log(attempt, 100).await.unwrap(), None);
}

/// Whether any file below a folder holds these bytes.
fn holds(folder: &Path, needle: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, needle);
        }
        fs::read(&path)
            .unwrap()
            .windows(needle.len())
            .any(|window| window == needle)
    })
}

#[tokio::test]
async fn a_dead_shim_is_told_and_what_it_left_is_swept() {
    let world = World::with(|options| options.containment = ContainmentWish::Sweep);
    let spec = world.script("sleep 1000 & echo up > up; sleep 1000");
    let attempt = spec.attempt;
    let up = world.run_path(attempt).join("work/up");
    world.executor.start(spec).await.unwrap();
    eventually("the action", || up.exists().then_some(())).await;
    let shim = shim_pid(&world, attempt);
    let (end, ()) = tokio::join!(watched(&world.executor, attempt), async {
        kill(shim, rustix::process::Signal::KILL);
    });
    assert!(matches!(end, WatchEnd::Lingering));
    assert!(world.executor.sweep(attempt).await.unwrap());
    assert!(matches!(
        watched(&world.executor, attempt).await,
        WatchEnd::Vanished
    ));
}

#[tokio::test]
async fn a_stopped_shim_is_silent_and_is_ended() {
    let world = World::with(|options| options.silent_after = Duration::from_secs(2));
    let spec = world.script("echo up > up; sleep 1000");
    let attempt = spec.attempt;
    let up = world.run_path(attempt).join("work/up");
    world.executor.start(spec).await.unwrap();
    eventually("the action", || up.exists().then_some(())).await;
    kill(shim_pid(&world, attempt), rustix::process::Signal::STOP);
    assert!(matches!(
        watched(&world.executor, attempt).await,
        WatchEnd::Silent
    ));
    assert!(world.executor.end_silent(attempt).await.unwrap());
    let again = world.executor.end_silent(attempt).await;
    assert!(!again.unwrap(), "it is gone");
    if let WatchEnd::Lingering = watched(&world.executor, attempt).await {
        assert!(world.executor.sweep(attempt).await.unwrap());
    }
    assert!(matches!(
        watched(&world.executor, attempt).await,
        WatchEnd::Vanished
    ));
}

fn shim_pid(world: &World, attempt: evenkeel_core::ids::AttemptId) -> i32 {
    let folder = world.executor.root().run(&attempt.to_string()).unwrap();
    folder.lock_record().unwrap().unwrap().pid
}

fn kill(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_runs_at_once_all_end_and_leave_no_zombie() {
    let world = Arc::new(World::new());
    let mut runs = tokio::task::JoinSet::new();
    for code in 0..64 {
        let world = Arc::clone(&world);
        runs.spawn(async move {
            let script = format!(
                "echo x >> $WORLD/up; while [ ! -e $WORLD/go ]; do sleep 0.2; done; exit {code}"
            );
            let spec = world.script(&script);
            let attempt = spec.attempt;
            world.executor.start(spec).await.unwrap();
            assert_eq!(
                finished(&world.executor, attempt).await.end,
                RunEnd::Exited { code }
            );
            attempt
        });
    }
    eventually("all of them at once", || {
        (lines(&world.path("up")) == 64).then_some(())
    })
    .await;
    let listed = world.executor.runs().await.unwrap();
    let shims: Vec<_> = listed
        .into_iter()
        .map(|attempt| shim_pid(&world, attempt))
        .collect();
    assert_eq!(shims.len(), 64);
    fs::write(world.path("go"), "").unwrap();
    let attempts = runs.join_all().await;
    for attempt in attempts {
        world.executor.conclude(attempt).await.unwrap();
    }
    assert_eq!(world.executor.runs().await.unwrap(), []);
    // Other tests of this process have children of their own.
    let ours = std::process::id().to_string();
    let zombies = shims.iter().filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(&format!(") Z {ours} "))
    });
    assert_eq!(zombies.count(), 0);
}

#[tokio::test]
async fn limits_of_a_bundle_reach_the_run() {
    let world = World::new();
    let mut spec = world.script("ulimit -t; ulimit -n; ulimit -d; ulimit -c");
    spec.limits = Limits {
        memory: Some(1 << 30),
        cpu_time: Some(Duration::from_millis(6500)),
        open_files: Some(100),
        processes: Some(50),
        disk: Some(1 << 30),
        output: Some(2000),
    };
    let attempt = spec.attempt;
    world.executor.start(spec).await.unwrap();
    assert_eq!(
        finished(&world.executor, attempt).await.end,
        RunEnd::Exited { code: 0 }
    );
    let log = world.executor.log(attempt, 100).await.unwrap().unwrap();
    assert_eq!(
        log.stdout.text(),
        "7\n100\n1048576\n0\n",
        "{}",
        log.stderr.text()
    );
}

#[tokio::test]
async fn little_room_is_told() {
    assert!(
        !World::with(|options| options.low_water_bytes = 1)
            .executor
            .disk_low()
            .await
    );
    assert!(
        World::with(|options| options.low_water_bytes = u64::MAX)
            .executor
            .disk_low()
            .await
    );
}
