//! What an action gets from its surroundings, and what it does not.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;

use evenkeel_run::{Begin, RunAs, RunEnd, StateDir};

use crate::harness::{EVERY_LEVEL, Started, World, spawn};

fn stdout(folder: &evenkeel_run::RunFolder) -> String {
    let log = folder.log_tail(1 << 20).unwrap().unwrap();
    assert_eq!(log.stderr.text(), "");
    log.stdout.text()
}

#[test]
fn an_action_has_no_descriptor_but_its_own() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        // Listed by the shell itself, so that no descriptor of a helper is in the way.
        let mut spec = world.script(
            &folder,
            "for fd in /proc/self/fd/*; do echo ${fd##*/} $(readlink /proc/$$/fd/${fd##*/}); done",
        );
        spec.containment = level;
        let mut ticket = crate::harness::begin(&folder, &spec);
        // Descriptors that a broker without CLOEXEC would leave open.
        let leak = fs::File::open("/etc/passwd").unwrap();
        rustix::io::fcntl_setfd(leak.as_fd(), rustix::io::FdFlags::empty()).unwrap();
        let shim = spawn(&mut ticket);
        drop((ticket, leak));
        Started {
            folder: folder.clone(),
            shim,
        }
        .finish();
        let text = stdout(&folder);
        let mut kinds: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            // 255 is bash's own handle of its script.
            .filter(|(number, target)| *number != "255" && !target.is_empty())
            .map(|(_, target)| {
                if target.ends_with("tree.lock") {
                    "tree.lock"
                } else if target.starts_with("pipe:") {
                    "pipe"
                } else {
                    target
                }
            })
            .collect();
        let lock = kinds
            .iter()
            .position(|kind| *kind == "tree.lock")
            .map(|at| kinds.remove(at));
        assert_eq!(
            lock.is_some(),
            level == evenkeel_run::ContainmentWish::Sweep
        );
        // The third pipe is that of the `$(…)` around readlink, which bash lists as its own.
        assert_eq!(
            kinds[..3],
            ["/dev/null", "pipe", "pipe"],
            "{level:?}: {text}"
        );
        assert!(
            !text.contains("passwd") && !text.contains("/lock\n"),
            "{text}"
        );
        assert!(kinds.len() <= 4, "{text}");
    }
}

#[test]
fn the_shim_keeps_nothing_of_its_starter_open() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(&folder, "while [ ! -e go ]; do sleep 0.01; done");
    let mut ticket = crate::harness::begin(&folder, &spec);
    let leak = fs::File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(leak.as_fd(), rustix::io::FdFlags::empty()).unwrap();
    let shim = spawn(&mut ticket);
    drop((ticket, leak));
    crate::harness::eventually("the start", || folder.started_record().unwrap());
    let own = folder.path().canonicalize().unwrap();
    for entry in fs::read_dir(format!("/proc/{}/fd", shim.id()))
        .unwrap()
        .flatten()
    {
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        let text = target.to_string_lossy();
        let fine = target.starts_with(&own)
            || text == "/dev/null"
            || text.starts_with("pipe:")
            || text.starts_with("anon_inode:[signalfd]")
            // What it opens for a moment, to see how its tree fares.
            || text.starts_with("/proc/")
            || text.starts_with("/sys/fs/cgroup/");
        assert!(fine, "{text}");
    }
    fs::write(folder.surroundings().work.join("go"), "").unwrap();
    Started { folder, shim }.finish();
}

#[test]
fn the_environment_is_what_the_spec_says_and_the_attempts_name() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(&folder, "");
        spec.containment = level;
        spec.command = vec!["env".to_owned()];
        spec.env = BTreeMap::from(
            [
                ("PATH", "/usr/bin:/bin"),
                ("ONE", "1 = one"),
                ("EVENKEEL_ATTEMPT_ID", "forged"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        world.run_spec(&folder, &spec);
        let text = stdout(&folder);
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        let own = format!("EVENKEEL_ATTEMPT_ID={}", folder.attempt_id());
        assert_eq!(
            lines,
            [own.as_str(), "ONE=1 = one", "PATH=/usr/bin:/bin"],
            "{level:?}"
        );
    }
}

#[test]
fn session_umask_folder_and_input_are_the_actions_own() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let script = r#"
            [ "$1" = 'one argument' ] || exit 11
            [ "$PWD" = "$HOME" ] && [ -w . ] || exit 12
            [ $(umask) = 0077 ] || exit 13
            read line && exit 14
            [ "$(cut -d' ' -f6 /proc/$$/stat)" = $$ ] || exit 15
            [ "$(stat -c %a .)" = 700 ] && [ "$(stat -c %a $TMPDIR)" = 700 ] || exit 18
            [ "$(cat /proc/$$/oom_score_adj)" -ge 500 ] || exit 19
            case $0 in /*) ;; *) exit 20;; esac
            exit 0"#;
        let (record, folder) = world.run(level, script);
        assert_eq!(
            record.end,
            RunEnd::Exited { code: 0 },
            "{level:?} {:?}",
            folder.log_tail(999)
        );
    }
}

#[test]
fn no_signal_is_blocked_or_ignored_from_the_start() {
    let world = World::new();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(&folder, "");
        spec.containment = level;
        spec.command = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
            .map(str::to_owned)
            .into();
        world.run_spec(&folder, &spec);
        let none = "0000000000000000";
        assert_eq!(
            stdout(&folder),
            format!("SigBlk:\t{none}\nSigIgn:\t{none}\n"),
            "{level:?}"
        );
    }
}

#[test]
fn request_and_secrets_are_private_files() {
    let world = World::new();
    let folder = world.fresh();
    let spec = world.script(
        &folder,
        r#"stat -c '%a' $EVENKEEL_REQUEST $EVENKEEL_SECRETS $EVENKEEL_SECRETS/*; cat $EVENKEEL_REQUEST $EVENKEEL_SECRETS/*"#,
    );
    let secrets = BTreeMap::from([("KEY.pem".to_owned(), b"s3cret".to_vec())]);
    let Begin::Ready(mut ticket) = folder.begin(&spec, b"{\"a\":1}", &secrets).unwrap() else {
        panic!("begun before")
    };
    let shim = spawn(&mut ticket);
    drop(ticket);
    Started {
        folder: folder.clone(),
        shim,
    }
    .finish();
    assert_eq!(stdout(&folder), "600\n700\n600\n{\"a\":1}s3cret");
    let spec_text = fs::read_to_string(folder.path().join("spec.json")).unwrap();
    assert!(!spec_text.contains("s3cret"));
}

#[test]
fn bundle_and_read_only_state_cannot_be_changed() {
    let world = World::new();
    fs::create_dir(world.path("state")).unwrap();
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(
            &folder,
            "touch $WORLD/state/x 2>/dev/null && exit 1; touch $WORLD/bundle/x 2>/dev/null && exit 2; exit 0",
        );
        spec.containment = level;
        spec.state = Some(StateDir {
            path: world.path("state"),
            read_only: true,
        });
        let (record, _) = world.run_spec(&folder, &spec);
        assert_eq!(record.end, RunEnd::Exited { code: 0 }, "{level:?}");
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !mounts.contains(world.dir.path().to_str().unwrap()),
        "mounts stay inside"
    );
}

#[test]
fn an_action_can_run_as_a_user_of_its_own() {
    let dir = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o711))
        .tempdir()
        .unwrap();
    let world = World::in_dir(dir);
    for level in EVERY_LEVEL {
        let folder = world.fresh();
        let mut spec = world.script(
            &folder,
            r#"[ "$(id -u):$(id -g):$(id -G)" = 65534:65534:65534 ] || exit 1
            cat $EVENKEEL_REQUEST > copy || exit 2; touch $TMPDIR/x || exit 3
            echo '{"data": 1}' > $TMPDIR/o && mv $TMPDIR/o $EVENKEEL_OUTPUT || exit 4
            echo here >> $EVENKEEL_PROGRESS || exit 5
            ls $WORLD/root 2>/dev/null && exit 6; cat $WORLD/root/id 2>/dev/null && exit 7; exit 0"#,
        );
        spec.containment = level;
        spec.run_as = Some(RunAs {
            uid: 65534,
            gid: 65534,
        });
        let (record, folder) = world.run_spec(&folder, &spec);
        assert_eq!(
            record.end,
            RunEnd::Exited { code: 0 },
            "{level:?} {:?}",
            folder.log_tail(999)
        );
        assert_eq!(record.output.unwrap().0["data"], 1);
        assert_eq!(record.last_progress.as_deref(), Some("here"));
        folder.conclude().unwrap();
    }
}

/// A broker that is not root gets its namespace by way of a user namespace.
#[test]
fn a_shim_without_privileges_contains_its_action_as_well() {
    let world = World::new();
    let dir = world.path("open");
    fs::create_dir(&dir).unwrap();
    for path in [world.dir.path(), &dir] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let bundle = dir.join("bundle");
    fs::create_dir(&bundle).unwrap();
    let program = dir.join("shim");
    fs::copy(crate::harness::shim_command().get_program(), &program).unwrap();
    let folder = world.fresh();
    let mut spec = world.script(&folder, "");
    spec.command = vec![
        "/bin/sh".into(),
        "-c".into(),
        "echo $$ $(id -u); sleep 1000 & exit 7".into(),
    ];
    spec.bundle_dir = bundle;
    let mut ticket = crate::harness::begin(&folder, &spec);
    for entry in walk(&world.path("root")) {
        std::os::unix::fs::chown(&entry, Some(65534), Some(65534)).unwrap();
    }
    use std::os::unix::process::CommandExt;
    // A child of another test, forked while the copy was written, keeps it busy until it executes.
    let shim = crate::harness::eventually("the copy can be executed", || {
        let spawned = crate::harness::command(&program)
            .arg(ticket.folder())
            .stdin(ticket.lock_for_shim().unwrap())
            .uid(65534)
            .gid(65534)
            .spawn();
        match spawned {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
            spawned => Some(spawned.unwrap()),
        }
    });
    drop(ticket);
    let record = Started {
        folder: folder.clone(),
        shim,
    }
    .finish();
    assert_eq!(record.end, RunEnd::Exited { code: 7 });
    assert_eq!(record.containment, Some(evenkeel_run::Containment::Pidns));
    assert_eq!(
        stdout(&folder),
        "2 65534\n",
        "second process of its namespace, still the same user"
    );
    assert_eq!(crate::harness::processes_of(&folder), [0; 0]);
}

fn walk(top: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while next < found.len() {
        if found[next].is_dir() {
            found.extend(
                fs::read_dir(&found[next])
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        next += 1;
    }
    found
}
