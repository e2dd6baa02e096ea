//! What an action leaves behind is ended with it.

use evenkeel_run::{Containment, ContainmentWish, ExitRecord, Probe, RunEnd};
use rustix::process::Signal;

use crate::harness::{EVERY_LEVEL, World, eventually, line_of, processes_of, send};

/// I18.
#[test]
fn children_left_behind_with_the_log_open_are_ended_with_the_main_process() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let script = r#"
            sleep 1000 &
            (setsid sleep 1000 &) ; (setsid bash -c 'trap "" TERM HUP INT; (sleep 1000 &) ; sleep 1000' &)
            nohup sleep 1000 > /dev/null 2>&1 &
            echo done; exit 5"#;
        let (record, folder) = world.run(level, script);
        assert_eq!(record.end, RunEnd::Exited { code: 5 }, "{level:?}");
        assert!(record.tree_ended);
        assert_eq!(processes_of(&folder), [0; 0], "{level:?}");
        assert_eq!(
            folder.log_tail(100).unwrap().unwrap().stdout.text(),
            "done\n"
        );
    }
}

#[test]
fn a_child_that_cleared_its_environment_and_left_its_session_is_ended_too() {
    let world = World::new();
    for level in EVERY_LEVEL {
        // The marker is an argument: the environment tells nothing any more.
        let marker = format!("100{}", std::process::id());
        let script = format!("(env -i setsid sleep {marker} &); echo up > ready; exec sleep 1000");
        let folder = world.fresh();
        let mut spec = world.script(&folder, &script);
        spec.containment = level;
        let mut started = world.start(&folder, &spec);
        line_of(&folder.surroundings().work.join("ready"));
        eventually("the child", || {
            (!with_argument(&marker).is_empty()).then_some(())
        });
        started.kill_shim(Signal::KILL);
        started.wait_for_shim();
        if folder.probe().unwrap() == Probe::Lingering {
            assert!(folder.sweep().unwrap(), "{level:?}");
        }
        assert_eq!(folder.probe().unwrap(), Probe::Vanished);
        assert_eq!(with_argument(&marker), [0; 0], "{level:?}");
    }
}

fn with_argument(argument: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        if line
            .split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
        {
            found.push(process.file_name().to_str().unwrap().parse().unwrap());
        }
    }
    found
}

#[test]
fn an_action_that_kills_its_parent_or_everybody_harms_only_itself() {
    let world = World::new();
    // In a namespace of its own `-1` is the namespace, and the parent is deaf.
    let level = evenkeel_run::ContainmentWish::Pidns;
    let (record, _) = world.run(level, "kill -9 $PPID; exit 3");
    assert_eq!(record.end, RunEnd::Exited { code: 3 });
    let (record, _) = world.run(level, "kill -9 -1; sleep 0.05; exit 4");
    assert_eq!(
        record.end,
        RunEnd::Exited { code: 4 },
        "kill spares the caller"
    );
    let (record, _) = world.run(level, "perl -e 'fork; kill 9, -1; sleep 1000'; exit 6");
    assert!(matches!(
        record.end,
        RunEnd::Signalled { signal: 9 } | RunEnd::Exited { code: 6 | 137 }
    ));
}

#[test]
fn a_shim_killed_by_its_action_is_a_vanished_run() {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "kill -9 $PPID; sleep 1000");
    spec.containment = evenkeel_run::ContainmentWish::Sweep;
    let mut started = world.start(&folder, &spec);
    started.wait_for_shim();
    assert_eq!(folder.probe().unwrap(), Probe::Lingering);
    assert!(folder.sweep().unwrap());
    assert_eq!(folder.probe().unwrap(), Probe::Vanished);
}

#[test]
fn the_death_of_the_namespaces_init_ends_the_run_without_an_outcome() {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "echo up > ready; exec sleep 1000");
    spec.containment = evenkeel_run::ContainmentWish::Pidns;
    let started = world.start(&folder, &spec);
    line_of(&folder.surroundings().work.join("ready"));
    send(
        folder.started_record().unwrap().unwrap().leader_pid,
        Signal::KILL,
    );
    let record = started.finish();
    assert_eq!(record.end, RunEnd::Signalled { signal: 9 });
    assert_eq!(record.signal, None, "nobody saw how the main process ended");
}

#[test]
fn no_group_is_left_when_a_run_is_over() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(&folder, "sleep 1000 & exit 0");
        spec.containment = level;
        spec.limits.memory_bytes = Some(1 << 30);
        spec.limits.processes = Some(100);
        let mut started = world.start(&folder, &spec);
        let record = eventually("the start", || folder.started_record().unwrap());
        started.wait_for_shim();
        for group in record.cgroups {
            assert!(!std::path::Path::new(&group).exists(), "{level:?}: {group}");
        }
    }
}

/// Runs `true` under a shim whose host takes abilities away first: in a user namespace of its own,
/// so that nobody else notices.
fn under(taken_away: &str, level: ContainmentWish) -> ExitRecord {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "exit 0");
    spec.containment = level;
    let mut ticket = crate::harness::begin(&folder, &spec);
    let shim = crate::harness::command("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec"])
        .arg(format!("{taken_away}; exec \"$0\" \"$1\""))
        .arg(crate::harness::shim_command().get_program())
        .arg(ticket.folder())
        .stdin(ticket.lock_for_shim().unwrap())
        .spawn()
        .unwrap();
    drop(ticket);
    crate::harness::Started { folder, shim }.finish()
}

const NO_PID_NAMESPACES: &str = "echo 0 > /proc/sys/user/max_pid_namespaces";
const NO_GROUPS: &str = "mount -t tmpfs none /sys/fs/cgroup";

#[test]
fn what_the_host_refuses_is_replaced_by_the_next_best() {
    let both = format!("{NO_PID_NAMESPACES}; {NO_GROUPS}");
    for (taken_away, held) in [
        ("true", Containment::Pidns),
        (NO_GROUPS, Containment::Pidns),
        (NO_PID_NAMESPACES, Containment::Cgroup),
        (&both, Containment::Sweep),
    ] {
        let record = under(taken_away, ContainmentWish::Auto);
        assert_eq!(record.end, RunEnd::Exited { code: 0 }, "{taken_away}");
        assert_eq!(record.containment, Some(held), "{taken_away}");
    }
}

#[test]
fn a_containment_that_was_asked_for_and_cannot_be_had_keeps_the_run_from_starting() {
    for (taken_away, level, word) in [
        (NO_PID_NAMESPACES, ContainmentWish::Pidns, "PID namespace"),
        (NO_GROUPS, ContainmentWish::Cgroup, "cgroup2"),
    ] {
        let record = under(taken_away, level);
        let RunEnd::SpawnFailed { message } = record.end else {
            panic!("{:?}", record.end)
        };
        assert!(message.contains(word), "{message}");
        assert_eq!(record.started_at_ms, None);
    }
}
