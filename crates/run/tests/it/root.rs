//! The run root, its identity and the locks of boots.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use evenkeel_run::{RunError, RunRoot};
use rustix::process::Signal;

use crate::harness::{World, command, eventually};

#[test]
fn a_root_keeps_its_first_id_and_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep").join("root");
    assert_eq!(RunRoot::open(&path, "first").unwrap().id(), "first");
    assert_eq!(RunRoot::open(&path, "second").unwrap().id(), "first");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    RunRoot::open(&path, "third").unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn many_who_open_a_new_root_at_once_agree_on_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("root");
    let ids: Vec<String> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..8)
            .map(|number| {
                let path = &path;
                scope.spawn(move || {
                    RunRoot::open(path, &format!("id-{number}"))
                        .unwrap()
                        .id()
                        .to_owned()
                })
            })
            .collect();
        openers
            .into_iter()
            .map(|opener| opener.join().unwrap())
            .collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn a_root_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("root");
    RunRoot::open(&path, "id").unwrap();
    fs::write(path.join("format"), "run/2\n").unwrap();
    let error = RunRoot::open(&path, "id").unwrap_err();
    assert!(matches!(error, RunError::Format { .. }));
    assert!(error.to_string().contains("run/2"), "{error}");
}

#[test]
fn names_that_could_leave_the_root_are_refused() {
    let world = World::new();
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "../x",
        "a b",
        "é",
        "-x",
        &"x".repeat(65),
    ] {
        assert!(
            matches!(world.root.run(name), Err(RunError::Name { .. })),
            "{name:?}"
        );
        assert!(world.root.boot_is_dead(name).is_err(), "{name:?}");
    }
}

#[test]
fn a_listing_is_bounded_and_leaves_garbage_out() {
    let world = World::new();
    for name in ["b", "a", "c", "not a run", ".hidden", "x.y"] {
        fs::create_dir(world.path("root/runs").join(name)).unwrap();
    }
    let all = world.root.runs(10).unwrap();
    assert_eq!(
        (all.names, all.ignored, all.truncated),
        (vec!["a".into(), "b".into(), "c".into()], 3, false)
    );
    let some = world.root.runs(2).unwrap();
    assert_eq!((some.names.len(), some.truncated), (2, true));
}

#[test]
fn a_boot_is_dead_when_its_process_is() {
    let world = World::new();
    let lock = world.root.lock_boot("one").unwrap();
    assert!(!world.root.boot_is_dead("one").unwrap());
    assert!(
        world.root.lock_boot("one").is_err(),
        "a boot id is used once"
    );
    assert!(world.root.forget_boot("one").is_err());
    assert_eq!(world.root.boots(10).unwrap(), ["one"]);
    drop(lock);
    assert!(world.root.boot_is_dead("one").unwrap());
    assert!(world.root.boot_is_dead("never-was").unwrap());
    world.root.forget_boot("one").unwrap();
    world.root.forget_boot("one").unwrap();
    assert_eq!(world.root.boots(10).unwrap(), [""; 0]);
}

/// A boot makes its lock file, locks it and only then gives it its name.
#[test]
fn a_boot_that_died_between_two_steps_of_locking_is_found_and_forgotten() {
    let world = World::new();
    let at = |name: &str| world.path("root/boots").join(name);
    let living = world.root.lock_boot("living").unwrap();
    // One has just begun, one died before its file had its name and one right after.
    let begun = fs::File::create(at("begun.new")).unwrap();
    begun.lock().unwrap();
    fs::write(at("early.new"), "").unwrap();
    fs::write(at("late.new"), "").unwrap();
    fs::hard_link(at("late.new"), at("late.lock")).unwrap();
    let found = world.root.boots(10).unwrap();
    assert_eq!(found, ["begun", "early", "late", "living"]);
    for dead in ["early", "late"] {
        world.root.forget_boot(dead).unwrap();
    }
    for alive in ["begun", "living"] {
        let refused = world.root.forget_boot(alive);
        assert!(matches!(refused, Err(RunError::Busy { .. })), "{refused:?}");
    }
    assert_eq!(world.root.boots(10).unwrap(), ["begun", "living"]);
    assert!(at("begun.new").exists() && at("living.lock").exists());
    drop((begun, living));
}

/// The lock is not left to children of the broker.
#[test]
fn a_killed_boot_is_dead_although_its_children_live() {
    const ROOT: &str = "EVENKEEL_TEST_BOOT_ROOT";
    if let Ok(path) = std::env::var(ROOT) {
        let root = RunRoot::open(path.as_ref(), "x").unwrap();
        let _lock = root.lock_boot("two").unwrap();
        let mut child = command("sleep").arg("1000").spawn().unwrap();
        fs::write(root.path().join("child"), child.id().to_string()).unwrap();
        child.wait().unwrap();
    }
    let world = World::new();
    let mut boot = command(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "root::a_killed_boot_is_dead_although_its_children_live",
        ])
        .env(ROOT, world.root.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let child: i32 = eventually("the boot's child", || {
        fs::read_to_string(world.root.path().join("child"))
            .ok()?
            .parse()
            .ok()
    });
    assert!(!world.root.boot_is_dead("two").unwrap());
    boot.kill().unwrap();
    boot.wait().unwrap();
    assert!(world.root.boot_is_dead("two").unwrap());
    crate::harness::send(child, Signal::KILL);
}
