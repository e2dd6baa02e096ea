//! What a run may use, by the kernel's limits and by looking.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use evenkeel_run::{ContainmentWish, Limit, Limits, RunEnd, StateDir};

use crate::harness::{World, command, out_of_memory};

const MB: u64 = 1 << 20;

fn run_limited(world: &World, limits: Limits, script: &str) -> evenkeel_run::ExitRecord {
    let folder = world.fresh();
    let mut spec = world.script(&folder, script);
    spec.limits = limits;
    world.run_spec(&folder, &spec).0
}

#[test]
fn a_main_process_that_outgrows_the_groups_memory_is_told_from_a_foreign_kill() {
    let _alone = out_of_memory();
    let world = World::new();
    // Memory that RLIMIT_DATA does not count: shared.
    let script = r#"exec perl -e 'require "syscall.ph" if 0; open my $f, "+>", "/dev/shm/ek-$$" or die; unlink "/dev/shm/ek-$$";
        my $chunk = "x" x (1 << 20); while (1) { print $f $chunk or die }'"#;
    let limits = Limits {
        memory_bytes: Some(64 * MB),
        ..Limits::default()
    };
    let record = run_limited(&world, limits, script);
    assert_eq!(record.end, RunEnd::OomKilled);
    assert!(record.own_oom && !record.host_oom);
    assert!(
        (32 * MB..=65 * MB).contains(&record.peak_memory_bytes.unwrap()),
        "{record:?}"
    );
}

#[test]
fn allocating_without_end_ends() {
    let _alone = out_of_memory();
    let world = World::new();
    let limits = Limits {
        memory_bytes: Some(64 * MB),
        ..Limits::default()
    };
    let record = run_limited(
        &world,
        limits,
        "exec perl -e 'my @a; push @a, \"x\" x 1000000 while 1'",
    );
    assert!(
        matches!(
            record.end,
            RunEnd::Exited { .. } | RunEnd::OomKilled | RunEnd::Signalled { .. }
        ),
        "{record:?}"
    );
    assert!(record.peak_memory_bytes.unwrap() <= 65 * MB);
}

#[test]
fn processor_time_is_limited() {
    let world = World::new();
    let limits = Limits {
        cpu_secs: Some(1),
        ..Limits::default()
    };
    let record = run_limited(&world, limits, "while :; do :; done");
    assert_eq!(
        record.end,
        RunEnd::Limit {
            limit: Limit::CpuTime
        }
    );
    // The limit counts by another clock than the usage does.
    assert!(record.cpu_ms.unwrap() >= 500, "{record:?}");
}

#[test]
fn disk_room_is_limited_in_many_files_and_in_one() {
    let world = World::new();
    fs::create_dir(world.path("state")).unwrap();
    fs::write(world.path("state/before"), vec![0; 20 * MB as usize]).unwrap();
    let limits = Limits {
        disk_bytes: Some(10 * MB),
        ..Limits::default()
    };
    for place in ["$HOME", "$TMPDIR", "$HOME/../out", "$WORLD/state"] {
        let folder = world.fresh();
        let script = format!(
            "n=0; while :; do head -c 1000000 /dev/zero > {place}/$n; n=$((n+1)); sleep 0.02; done"
        );
        let mut spec = world.script(&folder, &script);
        spec.limits = limits.clone();
        spec.state = Some(StateDir {
            path: world.path("state"),
            read_only: false,
        });
        let (record, folder) = world.run_spec(&folder, &spec);
        assert_eq!(record.end, RunEnd::Limit { limit: Limit::Disk }, "{place}");
        folder.conclude().unwrap();
    }
    let record = run_limited(&world, limits, "exec head -c 1000000000 /dev/zero > one");
    assert_eq!(record.end, RunEnd::Limit { limit: Limit::Disk });
}

/// A fork bomb runs into its own limit, and nowhere else.
#[test]
fn a_fork_bomb_is_held_and_ended() {
    let _alone = out_of_memory();
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "bomb() { bomb | bomb & }; bomb; sleep 1000");
    spec.limits = Limits {
        processes: Some(40),
        memory_bytes: Some(256 * MB),
        ..Limits::default()
    };
    spec.timeout_ms = 1500;
    spec.grace_ms = 100;
    let (record, folder) = world.run_spec(&folder, &spec);
    assert!(
        matches!(
            record.end,
            RunEnd::TimedOut | RunEnd::Exited { .. } | RunEnd::OomKilled
        ),
        "{record:?}"
    );
    assert!(record.tree_ended);
    assert_eq!(crate::harness::processes_of(&folder), [0; 0]);
}

/// Without control groups the shim has to look by itself. They are hidden from it by a mount
/// namespace in which nothing is mounted over their folder.
#[test]
fn memory_and_processes_are_limited_by_looking_where_no_group_can_be_had() {
    let world = World::new();
    for (limits, script, limit) in [
        (
            Limits {
                memory_bytes: Some(64 * MB),
                ..Limits::default()
            },
            "for n in 1 2 3 4; do perl -e 'my $x = \"x\" x 20000000; sleep 1000' & done; wait",
            Limit::Memory,
        ),
        (
            Limits {
                processes: Some(10),
                ..Limits::default()
            },
            "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; wait",
            Limit::Processes,
        ),
    ] {
        let folder = world.fresh();
        let mut spec = world.script(&folder, script);
        spec.limits = limits;
        spec.containment = ContainmentWish::Sweep;
        let mut ticket = crate::harness::begin(&folder, &spec);
        let shim = command("unshare")
            .args([
                "--mount",
                "sh",
                "-c",
                "umount -R /sys/fs/cgroup && exec \"$0\" \"$1\"",
            ])
            .arg(crate::harness::shim_command().get_program())
            .arg(ticket.folder())
            .stdin(ticket.lock_for_shim().unwrap())
            .spawn()
            .unwrap();
        drop(ticket);
        let record = crate::harness::Started {
            folder: folder.clone(),
            shim,
        }
        .finish();
        assert_eq!(record.end, RunEnd::Limit { limit });
        assert_eq!(crate::harness::processes_of(&folder), [0; 0]);
    }
}

/// A small file system of its own, for a run root that fills up.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn mount(path: &'a Path, options: &str) -> Self {
        fs::create_dir_all(path).unwrap();
        let done = command("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(path)
            .status();
        assert!(done.unwrap().success());
        Self(path)
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        command("umount").arg("-l").arg(self.0).status().ok();
    }
}

#[test]
fn a_full_disk_does_not_cost_the_record() {
    let world = World::new();
    let place = world.path("small");
    let _mount = Tmpfs::mount(&place, "size=4m,mode=0700");
    let root = evenkeel_run::RunRoot::open(&place.join("root"), "id").unwrap();
    let folder = root.run("full").unwrap();
    let mut spec = world.script(
        &folder,
        r#"echo '{"data": "kept"}' > $EVENKEEL_OUTPUT; echo before
        head -c 100000000 /dev/zero > $TMPDIR/all 2>/dev/null; echo x > $TMPDIR/more 2>/dev/null && exit 1
        echo after; head -c 100000 /dev/zero; exit 3"#,
    );
    spec.bundle_dir = world.path("bundle");
    let (record, folder) = world.run_spec(&folder, &spec);
    assert_eq!(record.end, RunEnd::Exited { code: 3 }, "{record:?}");
    assert_eq!(record.output.unwrap().0["data"], "kept");
    assert!(record.log_lost_bytes > 0);
    assert_eq!(record.stdout_bytes, 7 + 6 + 100_000);
    // Nothing more can be prepared, and nothing is started half.
    let next = root.run("next").unwrap();
    let error = next.begin(&spec, b"{}", &Default::default()).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(next.probe().unwrap(), evenkeel_run::Probe::NeverStarted);
    // Room comes back with the run that took it.
    folder.conclude().unwrap();
    let third = root.run("third").unwrap();
    spec.command = vec!["true".into()];
    assert_eq!(
        world.run_spec(&third, &spec).0.end,
        RunEnd::Exited { code: 0 }
    );
}

#[test]
fn a_run_that_cannot_be_stopped_by_a_signal_to_its_group_only_is_stopped_whole() {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "setsid sleep 1000 & setsid sleep 1000 & wait");
    spec.timeout_ms = 200;
    let record = world.run_spec(&folder, &spec).0;
    assert_eq!(record.end, RunEnd::TimedOut);
    let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}
