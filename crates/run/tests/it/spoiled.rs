//! Answers about folders that something spoiled, and about one that many ask at once.

use std::fs;
use std::sync::Barrier;

use evenkeel_run::{ContainmentWish, Probe, RunError};
use rustix::process::Signal;

use crate::harness::{World, line_of};

/// I3: its action, say, has removed all that tells of a run, and its tree hides its environment.
#[test]
fn a_run_whose_records_were_taken_away_is_not_over_before_its_tree_is() {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "echo up > ready; exec env -i /bin/sleep 1000");
    spec.containment = ContainmentWish::Sweep;
    let mut started = world.start(&folder, &spec);
    line_of(&folder.surroundings().work.join("ready"));
    let leader = folder.started_record().unwrap().unwrap().leader_pid;
    crate::harness::eventually("the environment is hidden", || {
        let environ = fs::read(format!("/proc/{leader}/environ")).unwrap();
        environ.is_empty().then_some(())
    });
    started.kill_shim(Signal::KILL);
    started.wait_for_shim();
    for record in ["spec.json", "started", "exit"] {
        fs::remove_file(folder.path().join(record)).unwrap();
    }
    assert_eq!(folder.probe().unwrap(), Probe::Lingering);
    assert!(folder.sweep().unwrap());
    assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);
}

#[test]
fn what_is_no_folder_is_cleared_and_keeps_nobody_from_an_answer() {
    let world = World::new();
    let folder = world.fresh();
    fs::write(folder.path(), "").unwrap();
    assert!(!folder.is_lost().unwrap());
    assert!(!folder.path().exists());
    fs::write(folder.path(), "").unwrap();
    assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);
    assert!(folder.path().is_dir(), "it has a tombstone");
}

#[test]
fn where_no_folder_can_be_made_there_is_no_answer() {
    let world = World::new();
    let folder = world.fresh();
    fs::remove_dir_all(folder.path().parent().unwrap()).unwrap();
    assert!(matches!(folder.probe(), Err(RunError::Io { .. })));
    assert!(!folder.is_lost().unwrap());
}

#[test]
fn all_who_ask_at_once_about_a_run_that_is_not_there_get_the_same_answer() {
    const MANY: usize = 4;
    let world = World::new();
    for _ in 0..10 {
        let folder = world.fresh();
        let together = Barrier::new(MANY);
        std::thread::scope(|scope| {
            for _ in 0..MANY {
                scope.spawn(|| {
                    together.wait();
                    assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);
                });
            }
        });
    }
}
