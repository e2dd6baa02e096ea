//! What is known of a bad end: who sent what, whose memory it was, which process of the tree died,
//! and what is left to tell where nobody wrote it down.

use evenkeel_run::{Containment, ContainmentWish, ExitRecord, Limits, Probe, RunEnd, RunFolder};
use rustix::process::Signal;

use crate::harness::{
    EVERY_LEVEL, Started, World, eventually, line_of, out_of_memory, processes_of, send,
};

const MB: u64 = 1 << 20;
const HOLD: &str = "echo up > ready; while :; do sleep 0.05; done";

fn run_in(world: &World, level: ContainmentWish, limits: Limits, script: &str) -> ExitRecord {
    let folder = world.fresh();
    let mut spec = world.script(&folder, script);
    spec.containment = level;
    spec.limits = limits;
    world.run_spec(&folder, &spec).0
}

fn limited() -> Limits {
    Limits {
        memory_bytes: Some(64 * MB),
        ..Limits::default()
    }
}

/// A run that is under way and goes on until it is ended.
fn held(world: &World, level: ContainmentWish) -> (RunFolder, Started) {
    let folder = world.fresh();
    let mut spec = world.script(&folder, HOLD);
    spec.containment = level;
    let started = world.start(&folder, &spec);
    line_of(&folder.surroundings().work.join("ready"));
    (folder, started)
}

#[test]
fn deaths_by_its_own_fault_name_their_signal_at_every_level() {
    let world = World::new();
    for level in EVERY_LEVEL {
        for (script, signal) in [
            ("exec perl -MPOSIX -e 'POSIX::abort()'", 6),
            (
                "exec perl -e 'my $s = unpack \"p\", pack \"J\", 8; print $s'",
                11,
            ),
            // Recursion without end: the stack overflows.
            ("ulimit -s 256; exec bash -c 'f() { f; }; f'", 11),
        ] {
            let record = run_in(&world, level, Limits::default(), script);
            assert_eq!(
                record.end,
                RunEnd::Signalled { signal },
                "{level:?}: {script}"
            );
            assert_eq!(record.signal, Some(signal));
            // That others ran out of memory meanwhile would be no news: other tests do.
            assert!(!record.namespace_killed && !record.own_oom);
            assert_eq!((record.stopped_by, record.stop_wished), (None, false));
            assert!(record.cpu_ms.is_some() && record.peak_memory_bytes.unwrap() > 0);
        }
    }
}

#[test]
fn an_allocation_that_fails_under_its_own_limit_shows_in_how_much_was_used() {
    let _alone = out_of_memory();
    let world = World::new();
    let script = "exec perl -e 'my @a; push @a, \"x\" x 2097152 while 1'";
    let record = run_in(&world, ContainmentWish::Auto, limited(), script);
    // Two MiB at a time: RLIMIT_DATA refuses them before they are touched and the group counts.
    assert!(
        matches!(record.end, RunEnd::Exited { code: 1 }),
        "{record:?}"
    );
    assert_eq!(record.memory_limit_bytes, Some(64 * MB));
    let peak = record.peak_memory_bytes.unwrap();
    assert!((56 * MB..=65 * MB).contains(&peak), "{peak}");
    let own = record.peak_own_bytes.unwrap();
    assert!((56 * MB..=72 * MB).contains(&own), "{own}");
    assert!(!record.own_oom);
}

#[test]
fn the_page_cache_that_an_action_fills_is_no_memory_of_its_own() {
    let _alone = out_of_memory();
    let world = World::new();
    let script = "dd if=/dev/zero of=much bs=1M count=96 2> /dev/null; rm much; exit 3";
    let record = run_in(&world, ContainmentWish::Auto, limited(), script);
    assert!(
        matches!(record.end, RunEnd::Exited { code: 3 }),
        "{record:?}"
    );
    let own = record.peak_own_bytes.unwrap();
    assert!((1..32 * MB).contains(&own), "{record:?}");
    assert!(record.peak_memory_bytes.unwrap() >= own, "{record:?}");
}

#[test]
fn a_child_that_the_group_ran_out_of_memory_for_is_told_from_the_main_process() {
    let _alone = out_of_memory();
    let world = World::new();
    // Each below what one process may have; together beyond what the group may.
    let script = "perl -e 'push @a, \"x\" x 1048576 while @a < 40; sleep 1000' &
        perl -e 'push @a, \"x\" x 1048576 while @a < 40; sleep 1000' &
        wait -n; exit $?";
    let record = run_in(&world, ContainmentWish::Pidns, limited(), script);
    assert_eq!(record.end, RunEnd::Exited { code: 137 }, "{record:?}");
    assert!(record.own_oom && record.own_oom_kills >= 1, "{record:?}");
    assert_eq!(record.signal, None, "it was a child that was ended");
}

#[test]
fn a_kill_from_elsewhere_is_told_with_what_it_hit() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let (folder, started) = held(&world, level);
        let leader = folder.started_record().unwrap().unwrap();
        send(leader.leader_pid, Signal::KILL);
        let record = started.finish();
        assert_eq!(record.end, RunEnd::Signalled { signal: 9 }, "{level:?}");
        let whole = leader.containment == Containment::Pidns;
        assert_eq!(record.namespace_killed, whole, "{level:?}");
        assert_eq!(record.signal, (!whole).then_some(9), "{level:?}");
        assert!(!record.own_oom);
    }
}

#[test]
fn whoever_sends_the_shim_a_stop_is_named() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let (_folder, started) = held(&world, level);
        send(started.shim_pid(), Signal::TERM);
        let record = started.finish();
        assert_eq!(record.end, RunEnd::Stopped);
        assert!(!record.stop_wished, "{level:?}: no broker asked");
        let sender = record.stopped_by.unwrap();
        assert_eq!(sender.pid, std::process::id());
        assert_eq!(sender.uid, rustix::process::getuid().as_raw());
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(sender.command.as_deref(), Some(own.trim()));
        assert!(!sender.of_run);
    }
}

#[test]
fn a_brokers_wish_to_stop_is_told_from_a_signal_out_of_nowhere() {
    let world = World::new();
    let (folder, started) = held(&world, ContainmentWish::default());
    folder.request_stop(None).unwrap();
    let record = started.finish();
    assert_eq!(record.end, RunEnd::Stopped);
    assert!(record.stop_wished);
    assert_eq!(record.stopped_by.unwrap().pid, std::process::id());
}

#[test]
fn an_action_that_stops_its_own_shim_is_named_as_that() {
    let world = World::new();
    for level in [ContainmentWish::Cgroup, ContainmentWish::Sweep] {
        let script = "kill -TERM $PPID; while :; do sleep 0.05; done";
        let record = run_in(&world, level, Limits::default(), script);
        assert_eq!(record.end, RunEnd::Stopped, "{level:?}");
        let sender = record.stopped_by.unwrap();
        assert!(sender.of_run && !record.stop_wished, "{sender:?}");
        assert!(sender.command.unwrap().starts_with("action-"));
    }
}

#[test]
fn an_action_that_ends_early_or_goes_into_the_background_ends_well_and_leaves_nothing() {
    let world = World::new();
    for level in EVERY_LEVEL {
        for script in ["exit 0", "(setsid bash -c 'sleep 1000 & sleep 1000' &)"] {
            let folder = world.fresh();
            let mut spec = world.script(&folder, script);
            spec.containment = level;
            let (record, folder) = world.run_spec(&folder, &spec);
            assert_eq!(record.end, RunEnd::Exited { code: 0 }, "{level:?}");
            assert_eq!((record.output, record.output_error), (None, None));
            assert!(record.tree_ended);
            assert_eq!(processes_of(&folder), [0; 0]);
        }
    }
}

#[test]
fn a_run_whose_shim_was_killed_leaves_enough_to_tell_its_story() {
    let world = World::new();
    for level in EVERY_LEVEL {
        for fatal in [Signal::KILL, Signal::ABORT] {
            let folder = world.fresh();
            let script = format!("echo half >> $EVENKEEL_PROGRESS; echo said; {HOLD}");
            let mut spec = world.script(&folder, &script);
            spec.containment = level;
            spec.limits.memory_bytes = Some(64 * MB);
            let mut started = world.start(&folder, &spec);
            eventually("progress", || folder.last_progress().unwrap());
            eventually("the log", || {
                let log = folder.log_tail(100).unwrap().unwrap();
                log.stdout.text().contains("said").then_some(())
            });
            let before = folder.started_record().unwrap().unwrap();
            started.kill_shim(fatal);
            started.wait_for_shim();
            let remains = folder.remains();
            assert_eq!(remains.started.as_ref(), Some(&before), "{level:?}");
            assert_eq!(remains.last_progress.as_deref(), Some("half"));
            assert!(remains.last_sign_ms_ago.unwrap() < 60_000);
            assert!(before.host_oom_kills.is_some());
            assert!(remains.host_oom.is_some(), "{level:?}");
            assert_eq!(remains.memory_limit_bytes, Some(64 * MB));
            assert!(remains.peak_memory_bytes.unwrap() > 0, "its group is there");
            assert_eq!(remains.own_oom_kills, Some(0));
            assert!(eventually("the tree ends", || {
                folder.sweep().unwrap().then_some(true)
            }));
            assert_eq!(folder.probe().unwrap(), Probe::Vanished);
            let log = folder.log_tail(100).unwrap().unwrap();
            assert!(log.stdout.text().contains("said"));
        }
    }
}

#[test]
fn nothing_is_told_of_a_run_that_never_was_or_is_spoiled() {
    let world = World::new();
    let never = world.fresh();
    assert_eq!(never.remains(), evenkeel_run::Remains::default());
    let (_, folder) = world.run(ContainmentWish::Sweep, "exit 0");
    for name in ["started", "heartbeat", "last-progress", "spec.json", "lock"] {
        std::fs::write(folder.path().join(name), b"\xff\x00 not a record").unwrap();
    }
    assert_eq!(folder.remains(), evenkeel_run::Remains::default());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever lies in a run's folder, and in records that check, there is an answer or a typed
    /// error.
    #[test]
    fn any_bytes_in_a_folder_are_told_or_left_out(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
        numbers in proptest::array::uniform4(proptest::prelude::any::<i64>()),
        sealed in proptest::prelude::any::<bool>(),
    ) {
        let world = World::new();
        let folder = world.fresh();
        std::fs::create_dir_all(folder.path()).unwrap();
        let [a, b, c, d] = numbers;
        let json = format!(
            r#"{{"boot_id":"b","containment":"sweep","leader_pid":{},"leader_start_time":{},
                "started_at_ms":{c},"host_oom_kills":{},"cgroups":["/","..","evenkeel-x"],
                "attempt_id":"a","end":{{"kind":"{}"}},"ended_at_ms":{d},"pid":1,"uid":{a}}}"#,
            a as i32, b.unsigned_abs(), d.unsigned_abs(), String::from_utf8_lossy(&bytes).escape_default(),
        );
        for (name, kind) in [
            ("started", evenkeel_run::Kind::Started),
            ("heartbeat", evenkeel_run::Kind::Heartbeat),
            ("last-progress", evenkeel_run::Kind::Progress),
            ("exit", evenkeel_run::Kind::Exit),
            ("lock", evenkeel_run::Kind::Lock),
        ] {
            let payload = match (sealed, kind) {
                (true, evenkeel_run::Kind::Heartbeat) => evenkeel_run::encode(kind, a.to_string().as_bytes()),
                (true, _) => evenkeel_run::encode(kind, json.as_bytes()),
                (false, _) => bytes.clone(),
            };
            std::fs::write(folder.path().join(name), payload).unwrap();
        }
        std::fs::write(folder.path().join("spec.json"), &bytes).unwrap();
        let remains = folder.remains();
        proptest::prop_assert!(remains.host_oom.is_none(), "it is of another boot of the host");
        proptest::prop_assert!(remains.peak_memory_bytes.is_none());
        if let Ok(Some(record)) = folder.exit_record() {
            proptest::prop_assert_eq!(record.ended_at_ms, d);
        }
    }
}

/// Readers take what is missing as unknown, and ignore what they do not know.
#[test]
fn records_of_an_older_and_of_a_newer_shim_are_read() {
    let old = br#"{"attempt_id":"a","end":{"kind":"signalled","signal":9},"ended_at_ms":7,"boot_id":"b"}"#;
    let record: ExitRecord = serde_json::from_slice(old).unwrap();
    assert!(!record.namespace_killed && !record.core_dumped && !record.stop_wished);
    assert_eq!((record.stopped_by, record.memory_limit_bytes), (None, None));
    let new = br#"{"attempt_id":"a","end":{"kind":"stopped","why":1},"ended_at_ms":7,"boot_id":"b",
        "stopped_by":{"pid":1,"uid":2,"cgroup":"/x"},"more":[1]}"#;
    let record: ExitRecord = serde_json::from_slice(new).unwrap();
    assert_eq!(record.stopped_by.unwrap().pid, 1);
}
