//! The fence: one life of a run, and answers that stay true.

use std::fs::{self, OpenOptions};
use std::io::Write;

use evenkeel_run::{Begin, ContainmentWish, Probe, RunEnd, RunError};
use rustix::process::Signal;

use crate::harness::{
    EVERY_LEVEL, Started, World, begin, eventually, line_of, processes_of, shim_command, spawn,
};

#[test]
fn a_run_that_nobody_prepared_never_started_and_never_will() {
    let world = World::new();
    let folder = world.fresh();
    assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);
    let spec = world.script(&folder, "touch $WORLD/ran");
    let error = folder.begin(&spec, b"{}", &Default::default()).unwrap_err();
    assert!(matches!(error, RunError::Tombstone { .. }));
    assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);
}

#[test]
fn a_run_is_alive_from_before_the_spawn_to_the_end_of_its_shim() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "while [ ! -e go ]; do sleep 0.01; done");
    let mut ticket = begin(&folder, &spec);
    // The starter keeps everybody out until the shim has the lock alone.
    let asked = std::thread::spawn({
        let folder = folder.clone();
        move || folder.probe().unwrap()
    });
    let shim = spawn(&mut ticket);
    drop(ticket);
    assert_eq!(asked.join().unwrap(), Probe::Alive);
    assert_eq!(folder.probe().unwrap(), Probe::Alive);
    assert!(matches!(
        folder.begin(&spec, b"{}", &Default::default()).unwrap(),
        Begin::Already
    ));
    fs::write(folder.surroundings().work.join("go"), "").unwrap();
    Started {
        folder: folder.clone(),
        shim,
    }
    .finish();
    assert!(matches!(
        folder.begin(&spec, b"{}", &Default::default()).unwrap(),
        Begin::Already
    ));
    assert!(matches!(folder.probe().unwrap(), Probe::Exited(_)));
}

#[test]
fn a_starter_that_dies_before_the_spawn_leaves_a_run_that_another_may_start() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "exit 0");
    drop(begin(&folder, &spec));
    assert_eq!(
        world.start(&folder, &spec).finish().end,
        RunEnd::Exited { code: 0 }
    );
}

/// The shim is spawned and stopped before its first instruction, so that whatever follows happens
/// between the two.
fn spawn_asleep(world: &World, script: &str) -> Started {
    let folder = world.fresh();
    let spec = world.script(&folder, script);
    let mut ticket = begin(&folder, &spec);
    // A shell that has the lock and becomes the shim when it is woken: it holds the lock as a shim
    // does that has not come to its first instruction.
    let shim = crate::harness::command("/bin/sh")
        .args(["-c", "kill -STOP $$; exec \"$0\" \"$1\""])
        .arg(shim_command().get_program())
        .arg(folder.path())
        .stdin(ticket.lock_for_shim().unwrap())
        .spawn()
        .unwrap();
    let started = Started { folder, shim };
    eventually("the shim is asleep", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", started.shim_pid())).unwrap();
        stat.contains(") T ").then_some(())
    });
    started
}

#[test]
fn a_shim_killed_before_its_first_instruction_leaves_a_run_that_never_started() {
    let world = World::new();
    let mut started = spawn_asleep(&world, "touch $WORLD/ran");
    assert_eq!(started.folder.probe().unwrap(), Probe::Alive);
    started.kill_shim(Signal::KILL);
    started.wait_for_shim();
    assert_eq!(started.folder.probe().unwrap(), Probe::NeverStarted);
    assert!(!world.path("ran").exists());
}

#[test]
fn a_shim_that_finds_a_tombstone_does_nothing() {
    let world = World::new();
    let mut started = spawn_asleep(&world, "touch $WORLD/ran");
    fs::write(started.folder.path().join("tombstone"), "").unwrap();
    started.kill_shim(Signal::CONT);
    started.wait_for_shim();
    assert_eq!(started.folder.lock_record().unwrap(), None);
    assert_eq!(started.folder.probe().unwrap(), Probe::NeverStarted);
    assert!(!world.path("ran").exists());
}

#[test]
fn a_shim_without_the_lock_does_nothing() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "touch $WORLD/ran");
    let ticket = begin(&folder, &spec);
    let stranger = world.path("stranger");
    fs::write(&stranger, "").unwrap();
    // No lock at all, another file, the right file opened by itself.
    for path in ["/dev/null".into(), stranger, folder.path().join("lock")] {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let status = shim_command()
            .arg(folder.path())
            .stdin(file)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(64), "{}", path.display());
    }
    assert_eq!(shim_command().status().unwrap().code(), Some(64));
    drop(ticket);
    assert!(!world.path("ran").exists());
}

#[test]
fn a_second_shim_of_a_run_that_was_taken_up_does_nothing() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "echo x >> $WORLD/ran");
    let mut ticket = begin(&folder, &spec);
    let mut first = Started {
        folder: folder.clone(),
        shim: spawn(&mut ticket),
    };
    first.wait_for_shim();
    // The same descriptor of the same lock, after the first shim's death.
    let mut second = Started {
        folder: folder.clone(),
        shim: spawn(&mut ticket),
    };
    second.wait_for_shim();
    assert_eq!(second.shim.wait().unwrap().code(), Some(65));
    assert_eq!(fs::read_to_string(world.path("ran")).unwrap(), "x\n");
}

/// I3 and I18: what the next attempt may rely on.
#[test]
fn a_killed_shim_leaves_a_tree_that_is_ended_before_the_run_is_called_vanished() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let job_lock = world.path("job.lock");
        let hold = "exec 8>$WORLD/job.lock; flock -n 8 || { echo double > $WORLD/double; exit 1; }";
        let folder = world.fresh();
        let mut spec = world.script(
            &folder,
            &format!(
                "{hold}
                (trap '' TERM HUP; setsid sleep 1000 & exec sleep 1000) &
                setsid bash -c 'sleep 1000 & exec sleep 1000' > /dev/null 2>&1 &
                sleep 0.05; echo up > ready; exec sleep 1000"
            ),
        );
        spec.containment = level;
        let mut started = world.start(&folder, &spec);
        line_of(&folder.surroundings().work.join("ready"));
        started.kill_shim(Signal::KILL);
        started.wait_for_shim();
        let probe = folder.probe().unwrap();
        if probe == Probe::Lingering {
            assert!(folder.sweep().unwrap(), "{level:?}");
        } else {
            // The kernel ends a namespace by itself.
            assert_eq!((probe, level), (Probe::Vanished, ContainmentWish::Pidns));
        }
        assert_eq!(folder.probe().unwrap(), Probe::Vanished);
        assert_eq!(processes_of(&folder), [0; 0], "{level:?}");
        let file = OpenOptions::new().write(true).open(&job_lock).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .expect("nothing of the first attempt holds the job's lock");
        drop(file);
        let (record, _) = world.run(level, &format!("{hold}; exit 0"));
        assert_eq!(record.end, RunEnd::Exited { code: 0 });
        assert!(!world.path("double").exists());
        let error = folder.begin(&spec, b"{}", &Default::default()).unwrap_err();
        assert!(matches!(error, RunError::Tombstone { .. }));
    }
}

#[test]
fn a_torn_exit_record_counts_as_none() {
    let world = World::new();
    let (_, folder) = world.run(ContainmentWish::Auto, "exit 0");
    let path = folder.path().join("exit");
    let whole = fs::read(&path).unwrap();
    for cut in [1, 20, 50, whole.len() - 2] {
        let mut torn = whole[..cut].to_vec();
        torn.resize(whole.len(), 0);
        fs::write(&path, torn).unwrap();
        fs::remove_file(folder.path().join("tombstone")).ok();
        assert!(matches!(folder.exit_record(), Err(RunError::Record { .. })));
        assert_eq!(folder.probe().unwrap(), Probe::Vanished, "cut at {cut}");
    }
    fs::write(&path, &whole).unwrap();
    assert!(matches!(folder.probe().unwrap(), Probe::Exited(_)));
}

#[test]
fn records_that_a_run_spoiled_still_get_an_answer() {
    let world = World::new();
    for name in ["exit", "started"] {
        let (_, folder) = world.run(ContainmentWish::Auto, "exit 0");
        fs::remove_file(folder.path().join("exit")).unwrap();
        fs::remove_file(folder.path().join(name)).ok();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join(name)).unwrap();
        assert_eq!(folder.probe().unwrap(), Probe::Vanished, "{name}");
    }
}

#[test]
fn a_record_with_fields_of_a_newer_release_is_read() {
    let world = World::new();
    let (record, folder) = world.run(ContainmentWish::Auto, "exit 0");
    let mut value = serde_json::to_value(&record).unwrap();
    value["a_new_field"] = serde_json::json!({"x": [1]});
    value["end"] = serde_json::json!({"kind": "a_new_end", "detail": 3});
    let bytes = evenkeel_run::encode(evenkeel_run::Kind::Exit, value.to_string().as_bytes());
    fs::File::create(folder.path().join("exit"))
        .unwrap()
        .write_all(&bytes)
        .unwrap();
    let Probe::Exited(read) = folder.probe().unwrap() else {
        panic!("no record")
    };
    assert_eq!(read.end, RunEnd::Unknown);
}

#[test]
fn a_tree_of_another_boot_of_the_host_is_known_to_be_empty() {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "echo up > ready; exec sleep 1000");
    spec.containment = ContainmentWish::Sweep;
    let mut started = world.start(&folder, &spec);
    line_of(&folder.surroundings().work.join("ready"));
    let record = folder.started_record().unwrap().unwrap();
    started.kill_shim(Signal::KILL);
    started.wait_for_shim();
    assert_eq!(folder.probe().unwrap(), Probe::Lingering);
    // The same process ids, of a life before.
    let before = evenkeel_run::StartedRecord {
        boot_id: "another".into(),
        ..record.clone()
    };
    let write = |record: &evenkeel_run::StartedRecord| {
        let payload = serde_json::to_vec(record).unwrap();
        let bytes = evenkeel_run::encode(evenkeel_run::Kind::Started, &payload);
        fs::write(folder.path().join("started"), bytes).unwrap();
    };
    write(&before);
    assert_eq!(folder.probe().unwrap(), Probe::Vanished);
    write(&record);
    assert!(folder.sweep().unwrap());
}

#[test]
fn concluding_is_refused_while_anything_lives_and_can_be_repeated() {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "echo up > ready; exec sleep 1000");
    spec.containment = ContainmentWish::Sweep;
    let mut started = world.start(&folder, &spec);
    line_of(&folder.surroundings().work.join("ready"));
    assert!(matches!(folder.conclude(), Err(RunError::Alive { .. })));
    started.kill_shim(Signal::KILL);
    started.wait_for_shim();
    assert!(matches!(folder.conclude(), Err(RunError::Lingering { .. })));
    assert!(folder.sweep().unwrap());
    folder.conclude().unwrap();
    assert!(!folder.path().exists());
    folder.conclude().unwrap();
}

#[test]
fn a_run_whose_folder_was_taken_away_is_ended_before_it_counts_as_never_started() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(&folder, "echo up > ready; exec sleep 1000");
        spec.containment = level;
        let mut started = world.start(&folder, &spec);
        line_of(&folder.surroundings().work.join("ready"));
        fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(folder.probe().unwrap(), Probe::Lingering, "{level:?}");
        eventually("the tree is gone", || folder.sweep().unwrap().then_some(()));
        started.wait_for_shim();
        assert_eq!(folder.probe().unwrap(), Probe::NeverStarted, "{level:?}");
        assert_eq!(processes_of(&folder), [0; 0], "{level:?}");
    }
}
