//! How runs end.

use std::time::Duration;

use evenkeel_run::{Containment, ContainmentWish, RunEnd};

use crate::harness::{EVERY_LEVEL, World, eventually, line_of, processes_of};

#[test]
fn a_run_that_ends_well_says_so_at_every_level() {
    let world = World::new();
    for (level, held) in
        EVERY_LEVEL
            .into_iter()
            .zip([Containment::Pidns, Containment::Cgroup, Containment::Sweep])
    {
        let script = r#"echo out; echo err >&2; echo "step 1" >> $EVENKEEL_PROGRESS
            echo '{"credentials": {"user": "u"}, "data": 7}' > $EVENKEEL_OUTPUT"#;
        let (record, folder) = world.run(level, script);
        assert_eq!(record.end, RunEnd::Exited { code: 0 }, "{level:?}");
        assert_eq!(record.attempt_id, folder.attempt_id());
        assert_eq!(record.containment, Some(held));
        assert_eq!(record.output.unwrap().0["credentials"]["user"], "u");
        assert_eq!(record.output_error, None);
        assert_eq!(record.last_progress.as_deref(), Some("step 1"));
        assert!(record.started_at_ms.unwrap() <= record.ended_at_ms);
        assert!(record.peak_memory_bytes.unwrap() > 0);
        assert!(record.tree_ended);
        let log = folder.log_tail(1000).unwrap().unwrap();
        assert_eq!(
            (log.stdout.text(), log.stderr.text()),
            ("out\n".into(), "err\n".into())
        );
        assert_eq!((record.stdout_bytes, record.stderr_bytes), (4, 4));
    }
}

#[test]
fn exit_codes_and_signals_of_the_main_process_are_told_apart() {
    let world = World::new();
    for level in EVERY_LEVEL {
        for (script, end) in [
            ("exit 1", RunEnd::Exited { code: 1 }),
            ("exit 75", RunEnd::Exited { code: 75 }),
            ("bash -c 'kill -9 $$'", RunEnd::Exited { code: 137 }),
            ("kill -9 $$", RunEnd::Signalled { signal: 9 }),
            ("kill -SEGV $$", RunEnd::Signalled { signal: 11 }),
            ("kill -ABRT $$", RunEnd::Signalled { signal: 6 }),
            ("kill -TERM $$", RunEnd::Signalled { signal: 15 }),
        ] {
            let (record, _) = world.run(level, script);
            assert_eq!(record.end, end, "{level:?}: {script}");
        }
    }
}

#[test]
fn a_command_that_cannot_be_started_is_named() {
    let world = World::new();
    for level in EVERY_LEVEL {
        for command in [
            "./missing",
            "missing-program",
            "./no-interpreter",
            "./not-executable",
            "/",
        ] {
            let folder = world.fresh();
            let mut spec = world.script(&folder, "exit 0");
            spec.containment = level;
            spec.command = vec![command.to_owned()];
            use std::os::unix::fs::PermissionsExt;
            let script = world.path("bundle").join("no-interpreter");
            std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::write(world.path("bundle").join("not-executable"), "#!/bin/sh\n").unwrap();
            let (record, _) = world.run_spec(&folder, &spec);
            let RunEnd::SpawnFailed { message } = record.end else {
                panic!("{level:?} {command}: {:?}", record.end)
            };
            assert!(message.contains(command), "{message}");
        }
    }
}

#[test]
fn a_run_past_its_timeout_is_ended() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(&folder, "sleep 1000");
        spec.containment = level;
        spec.timeout_ms = 200;
        let (record, _) = world.run_spec(&folder, &spec);
        assert_eq!(record.end, RunEnd::TimedOut);
        assert_eq!(record.signal, Some(15), "it went at the first word");
        assert_eq!(processes_of(&folder), [0; 0]);
    }
}

#[test]
fn a_run_at_its_deadline_is_ended_and_one_past_it_never_starts() {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "touch $WORLD/ran; sleep 1000");
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec * 1000;
    spec.deadline_at_ms = Some(now - 1);
    assert_eq!(world.run_spec(&folder, &spec).0.end, RunEnd::DeadlinePassed);
    assert!(!world.path("ran").exists());
    let folder = world.fresh();
    let mut spec = world.script(&folder, "touch $WORLD/ran; sleep 1000");
    spec.deadline_at_ms = Some(now + 2000);
    assert_eq!(world.run_spec(&folder, &spec).0.end, RunEnd::DeadlinePassed);
    assert!(world.path("ran").exists());
}

#[test]
fn a_stop_asks_first_and_is_recorded_as_a_stop() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        // The children are asked too, not only the main process.
        let mut spec = world.script(
            &folder,
            r#"trap 'echo main >> stopped; wait; exit 3' TERM
            bash -c 'trap "echo child >> stopped; exit" TERM; echo up; while :; do sleep 0.01; done' &
            echo up > ready; while :; do sleep 0.01; done"#,
        );
        spec.containment = level;
        let started = world.start(&folder, &spec);
        line_of(&folder.surroundings().work.join("ready"));
        eventually("the child", || {
            let log = folder.log_tail(100).unwrap().unwrap();
            log.stdout.text().contains("up").then_some(())
        });
        folder.request_stop(None).unwrap();
        let record = started.finish();
        assert_eq!(record.end, RunEnd::Stopped, "{level:?}");
        assert_eq!(record.exit_code, Some(3), "{level:?}");
        let stopped = std::fs::read_to_string(folder.surroundings().work.join("stopped")).unwrap();
        assert!(
            stopped.contains("main") && stopped.contains("child"),
            "{level:?}: {stopped}"
        );
    }
}

#[test]
fn a_tree_that_ignores_the_wish_to_stop_is_killed_after_the_grace() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(
            &folder,
            "trap '' TERM; (trap '' TERM; while :; do sleep 1000; done) & echo up > ready; while :; do sleep 1000; done",
        );
        spec.containment = level;
        let started = world.start(&folder, &spec);
        line_of(&folder.surroundings().work.join("ready"));
        folder
            .request_stop(Some(Duration::from_millis(100)))
            .unwrap();
        let record = started.finish();
        assert_eq!(record.end, RunEnd::Stopped, "{level:?}");
        assert_eq!(record.signal.unwrap_or(9), 9);
        assert_eq!(processes_of(&folder), [0; 0]);
    }
}

#[test]
fn a_stop_before_the_shim_comes_to_itself_keeps_the_action_from_starting() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "touch $WORLD/ran");
    let mut ticket = crate::harness::begin(&folder, &spec);
    folder.request_stop(None).unwrap();
    let shim = crate::harness::spawn(&mut ticket);
    drop(ticket);
    let record = crate::harness::Started { folder, shim }.finish();
    assert_eq!(record.end, RunEnd::Stopped);
    assert_eq!(record.started_at_ms, None);
    assert!(!world.path("ran").exists());
}

#[test]
fn progress_can_be_followed_while_the_run_lives() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(
        &folder,
        r#"printf 'first\n\033[31msecond\n\n' >> $EVENKEEL_PROGRESS; while [ ! -e go ]; do sleep 0.01; done"#,
    );
    let started = world.start(&folder, &spec);
    let line = eventually("progress", || folder.last_progress().unwrap());
    assert_eq!(line, "[31msecond");
    std::fs::write(folder.surroundings().work.join("go"), "").unwrap();
    assert_eq!(
        started.finish().last_progress.as_deref(),
        Some("[31msecond")
    );
}

#[test]
fn the_strongest_containment_is_chosen_where_nobody_chooses() {
    let world = World::new();
    let (record, folder) = world.run(ContainmentWish::Auto, "exit 0");
    assert_eq!(record.containment, Some(Containment::Pidns));
    assert_eq!(
        folder.started_record().unwrap().unwrap().containment,
        Containment::Pidns
    );
}
