//! Whether a run is over, told without understanding what it left; and what a record of its end is
//! worth while its tree lives.

use std::fs;

use evenkeel_run::{ContainmentWish, ExitRecord, Kind, Probe, RunError, RunFolder, Standing};
use rustix::process::Signal;

use crate::harness::{World, begin, line_of};

/// A run whose shim was killed and whose tree lives on.
fn orphaned(world: &World) -> RunFolder {
    let folder = world.fresh();
    let mut spec = world.script(&folder, "echo up > ready; exec sleep 1000");
    spec.containment = ContainmentWish::Sweep;
    let mut started = world.start(&folder, &spec);
    line_of(&folder.surroundings().work.join("ready"));
    assert_eq!(folder.standing().unwrap(), Standing::Alive);
    assert!(!folder.is_lost().unwrap());
    started.kill_shim(Signal::KILL);
    started.wait_for_shim();
    folder
}

/// A record that its reader can check and not understand.
fn leave_nonsense(folder: &RunFolder) {
    let bytes = evenkeel_run::encode(Kind::Exit, b"no record");
    fs::write(folder.path().join("exit"), bytes).unwrap();
    assert!(matches!(
        folder.exit_record(),
        Err(RunError::Content { .. })
    ));
}

#[test]
fn a_run_that_was_never_prepared_is_over_and_not_lost() {
    let world = World::new();
    let folder = world.fresh();
    assert!(!folder.is_lost().unwrap());
    assert!(!folder.path().exists(), "to ask leaves nothing");
    assert_eq!(folder.standing().unwrap(), Standing::Over);
    assert!(!folder.is_lost().unwrap());
    // It stays over.
    let spec = world.script(&folder, "touch $WORLD/ran");
    let error = folder.begin(&spec, b"{}", &Default::default()).unwrap_err();
    assert!(matches!(error, RunError::Tombstone { .. }));
}

#[test]
fn a_run_that_was_prepared_and_never_started_is_over_and_not_lost() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "touch $WORLD/ran");
    drop(begin(&folder, &spec));
    assert!(!folder.is_lost().unwrap());
    assert_eq!(folder.standing().unwrap(), Standing::Over);
    assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);
}

#[test]
fn a_run_that_left_a_record_is_over_and_not_lost_whatever_the_record_says() {
    let world = World::new();
    let (_, folder) = world.run(ContainmentWish::Auto, "exit 0");
    for nonsense in [false, true] {
        if nonsense {
            leave_nonsense(&folder);
        }
        assert_eq!(folder.standing().unwrap(), Standing::Over);
        assert!(!folder.is_lost().unwrap());
        assert!(!folder.path().join("tombstone").exists());
    }
}

#[test]
fn a_run_whose_shim_was_killed_is_lost_at_once_and_over_when_its_tree_is_gone() {
    let world = World::new();
    let folder = orphaned(&world);
    assert!(folder.is_lost().unwrap());
    assert_eq!(folder.standing().unwrap(), Standing::Lingering);
    // With a record that nobody understands, too: it is no proof of anything.
    leave_nonsense(&folder);
    assert!(!folder.is_lost().unwrap());
    assert_eq!(folder.standing().unwrap(), Standing::Lingering);
    fs::remove_file(folder.path().join("exit")).unwrap();
    assert!(folder.sweep().unwrap());
    assert!(folder.is_lost().unwrap());
    assert_eq!(folder.standing().unwrap(), Standing::Over);
    assert_eq!(folder.probe().unwrap(), Probe::Vanished);
}

/// I18: the record of an end that came before that of the tree.
#[test]
fn a_record_whose_tree_was_not_seen_to_end_counts_once_the_tree_is_gone() {
    let world = World::new();
    let (record, _) = world.run(ContainmentWish::Sweep, "exit 0");
    assert!(record.tree_ended);
    let folder = orphaned(&world);
    let early = ExitRecord {
        attempt_id: folder.attempt_id().to_owned(),
        tree_ended: false,
        ..record
    };
    let payload = serde_json::to_vec(&early).unwrap();
    let bytes = evenkeel_run::encode(Kind::Exit, &payload);
    fs::write(folder.path().join("exit"), bytes).unwrap();
    assert_eq!(folder.probe().unwrap(), Probe::Lingering);
    assert!(folder.sweep().unwrap());
    assert_eq!(folder.probe().unwrap(), Probe::Exited(Box::new(early)));
}
