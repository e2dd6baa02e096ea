//! Opening: the lock, the key file, the schema.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use evenkeel_core::attempt::End;
use evenkeel_store::error::StoreError;
use evenkeel_store::{SqliteStore, StoreOptions};

use super::{fresh, open, stranger};
use crate::world::{SECRET, World};

fn refused(options: StoreOptions) -> StoreError {
    SqliteStore::open(options).expect_err("it must not open")
}

#[test]
fn a_first_start_makes_private_files_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("new/data");
    let opened = SqliteStore::open(StoreOptions::new(&data_dir)).unwrap();
    assert!(opened.created && opened.key_created);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data_dir), 0o700);
    for file in ["evenkeel.db", "store.key", "lock"] {
        assert_eq!(mode(&data_dir.join(file)), 0o600, "{file}");
    }
    drop(opened);
    let opened = SqliteStore::open(StoreOptions::new(&data_dir)).unwrap();
    assert!(!opened.created && !opened.key_created);
}

#[test]
fn a_second_broker_is_told_who_holds_the_folder() {
    let (folder, _world) = fresh();
    let error = refused(StoreOptions::new(folder.path()));
    let StoreError::Locked(text) = &error else {
        panic!("{error:?}")
    };
    assert!(text.contains(&folder.path().display().to_string()));
    assert!(text.contains(&format!("process {}", std::process::id())));
}

#[test]
fn a_second_broker_may_wait_for_the_first_to_end() {
    let (folder, world) = fresh();
    let options = StoreOptions {
        lock_wait: Duration::from_secs(60),
        ..StoreOptions::new(folder.path())
    };
    let waiting = std::thread::spawn(move || SqliteStore::open(options).map(drop));
    drop(world);
    waiting.join().unwrap().unwrap();
}

#[tokio::test]
async fn what_was_accepted_is_there_after_a_restart() {
    let (folder, world) = fresh();
    let order = world.provision("i");
    world.run(&order, End::Succeeded).await;
    let job = world.job(order.job).await;
    drop(world);
    assert!(
        !folder.path().join("evenkeel.db-wal").exists(),
        "a clean end"
    );
    let world = World::starting_at(open(folder.path()), 1000);
    assert_eq!(world.job(order.job).await, job);
    let view = world
        .store
        .instance(&order.instance)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(view.outputs.credentials.unwrap()["password"], SECRET);
}

#[tokio::test]
async fn a_wrong_key_file_touches_nothing() {
    let (folder, world) = fresh();
    world.accept(&world.provision("i")).await;
    drop(world);
    let key = folder.path().join("store.key");
    let right = fs::read(&key).unwrap();
    let mut wrong = right.clone();
    let digit = wrong.len() - 2;
    wrong[digit] = if wrong[digit] == b'0' { b'1' } else { b'0' };
    fs::write(&key, &wrong).unwrap();
    let database = fs::read(folder.path().join("evenkeel.db")).unwrap();
    let error = refused(StoreOptions::new(folder.path()));
    assert!(matches!(error, StoreError::WrongKey(_)), "{error:?}");
    assert!(error.to_string().contains("store.key"));

    // A key file that is gone is not quietly replaced.
    fs::remove_file(&key).unwrap();
    let error = refused(StoreOptions::new(folder.path()));
    assert!(matches!(error, StoreError::WrongKey(_)), "{error:?}");
    assert!(!key.exists());
    assert_eq!(
        fs::read(folder.path().join("evenkeel.db")).unwrap(),
        database
    );

    fs::write(&key, &right).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let world = World::starting_at(open(folder.path()), 1000);
    assert_eq!(world.store.counts().await.unwrap().queued, 1);
    world.store.check().await.unwrap();
}

#[test]
fn a_key_file_that_others_may_read_is_refused_with_the_remedy() {
    let (folder, world) = fresh();
    drop(world);
    let key = folder.path().join("store.key");
    for mode in [0o640, 0o604, 0o660] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let text = refused(StoreOptions::new(folder.path())).to_string();
        assert!(text.contains("chmod 600"), "{text}");
        assert!(text.contains("store.key"), "{text}");
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    for broken in ["", "evenkeel-key-1 abc\n", "hunter2\n"] {
        fs::write(&key, broken).unwrap();
        let text = refused(StoreOptions::new(folder.path())).to_string();
        assert!(text.contains("not a key file"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_newer_schema_is_left_alone() {
    let (folder, world) = fresh();
    drop(world);
    let conn = stranger(folder.path());
    conn.execute_batch(
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             VALUES (99, 'later', '', '0');
         PRAGMA wal_checkpoint(TRUNCATE);",
    )
    .unwrap();
    drop(conn);
    let before = fs::read(folder.path().join("evenkeel.db")).unwrap();
    let error = refused(StoreOptions::new(folder.path()));
    assert!(
        matches!(
            error,
            StoreError::NewerSchema {
                found: 99,
                known: 1
            }
        ),
        "{error:?}"
    );
    let after = fs::read(folder.path().join("evenkeel.db")).unwrap();
    assert_eq!(before, after);
}

/// I16.
#[tokio::test]
async fn no_secret_stands_in_the_files() {
    let (folder, world) = fresh();
    world.ready("i").await;
    world.run(&world.bind("i", "b"), End::Succeeded).await;
    world
        .accept(&world.submission(evenkeel_core::action::Action::Update, "i"))
        .await;
    let search = || {
        let mut bytes_seen = 0;
        for entry in fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            bytes_seen += bytes.len();
            let found = bytes
                .windows(SECRET.len())
                .any(|some| some == SECRET.as_bytes());
            assert!(!found, "{}", path.display());
        }
        bytes_seen
    };
    assert!(folder.path().join("evenkeel.db-wal").exists());
    assert!(search() > 100_000, "the log holds rows");
    // What is printed of the store holds none either.
    let key = fs::read_to_string(folder.path().join("store.key")).unwrap();
    let digits = key.trim_end().rsplit(' ').next().unwrap().to_owned();
    let printed = format!("{:?}", world.store);
    assert!(!printed.contains(SECRET) && !printed.contains(&digits));
    drop(world);
    search();
}
