//! A shim that is stopped or stuck is found, and ended without harm to anybody else.

use std::fs;
use std::process::Child;
use std::time::Duration;

use evenkeel_run::{Kind, LockRecord, Probe, SilentEnd, encode};
use rustix::process::Signal;

use crate::harness::{EVERY_LEVEL, World, command, eventually, line_of, processes_of};

const STALE: Duration = Duration::from_millis(1500);

#[test]
fn a_stopped_shim_is_ended_and_a_living_one_is_not() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(&folder, "echo up > ready; exec sleep 1000");
        spec.containment = level;
        let mut started = world.start(&folder, &spec);
        line_of(&folder.surroundings().work.join("ready"));
        let spared = folder.end_silent(Duration::from_secs(30)).unwrap();
        assert!(
            matches!(spared, SilentEnd::NotSilent { .. }),
            "{level:?}: {spared:?}"
        );
        started.kill_shim(Signal::STOP);
        eventually("silence", || {
            folder.heartbeat_age().unwrap().filter(|age| *age >= STALE)
        });
        assert_eq!(
            folder.probe().unwrap(),
            Probe::Alive,
            "the lock is held all the same"
        );
        assert_eq!(folder.end_silent(STALE).unwrap(), SilentEnd::Ended);
        if folder.probe().unwrap() == Probe::Lingering {
            assert!(folder.sweep().unwrap());
        }
        assert_eq!(folder.probe().unwrap(), Probe::Vanished);
        assert_eq!(folder.end_silent(STALE).unwrap(), SilentEnd::NotAlive);
        assert_eq!(processes_of(&folder), [0; 0]);
        started.wait_for_shim();
    }
}

#[test]
fn a_shim_that_never_came_to_write_its_name_is_found_by_its_lock() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "touch $WORLD/ran");
    let mut ticket = crate::harness::begin(&folder, &spec);
    let mut shim = command("/bin/sh")
        .args(["-c", "kill -STOP $$; exec true"])
        .arg(folder.path())
        .stdin(ticket.lock_for_shim().unwrap())
        .spawn()
        .unwrap();
    drop(ticket);
    assert_eq!(folder.probe().unwrap(), Probe::Alive);
    assert_eq!(folder.end_silent(Duration::ZERO).unwrap(), SilentEnd::Ended);
    shim.wait().unwrap();
    assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);
}

/// A process that did not start in that clock tick (of 10 ms), by which lives are told apart: a
/// number comes round once in thousands of processes, so not within one.
fn born_later(tick: u64) -> Child {
    loop {
        let mut child = command("sleep").arg("1000").spawn().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        // The 22nd field, of a program without spaces in its name.
        if stat.split(' ').nth(21).unwrap() != tick.to_string() {
            return child;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_process_that_got_the_shims_number_later_is_left_alone() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "echo up > ready; exec sleep 1000");
    let mut started = world.start(&folder, &spec);
    line_of(&folder.surroundings().work.join("ready"));
    let record = folder.lock_record().unwrap().unwrap();
    let mut bystander = born_later(record.start_time);
    let pid = i32::try_from(bystander.id()).unwrap();
    for forged in [
        LockRecord {
            pid,
            ..record.clone()
        },
        LockRecord {
            pid,
            boot_id: "another".into(),
            ..record.clone()
        },
    ] {
        let bytes = encode(Kind::Lock, &serde_json::to_vec(&forged).unwrap());
        fs::write(folder.path().join("lock"), bytes).unwrap();
        assert!(folder.shim().unwrap().is_none());
        folder.request_stop(None).unwrap();
    }
    // Neither number is the shim's: it is found by the lock that it has open.
    assert_eq!(folder.end_silent(Duration::ZERO).unwrap(), SilentEnd::Ended);
    assert!(
        bystander.try_wait().unwrap().is_none(),
        "the bystander lives"
    );
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    started.wait_for_shim();
    eventually("the end of the tree", || {
        (folder.probe().unwrap() == Probe::Vanished).then_some(())
    });
}
