//! Disks that are full, read-only or damaged. Small file systems of their own, mounted here.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use evenkeel_core::attempt::End;
use evenkeel_store::error::StoreError;
use evenkeel_store::{SqliteStore, StoreOptions};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use super::open;
use crate::world::{World, mine};

/// A tmpfs of a few megabytes, unmounted at the end of the test.
struct Small {
    folder: tempfile::TempDir,
}

impl Small {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        mount(
            "tmpfs",
            folder.path(),
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=4m"),
        )
        .expect("tests of full disks mount a tmpfs, as root");
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.filler())
            .unwrap();
        for block in [65_536, 4096, 1] {
            let zeros = vec![0; block];
            while file.write_all(&zeros).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        unmount(self.folder.path(), UnmountFlags::DETACH).unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_is_over_when_there_is_room() {
    let disk = Small::new();
    let world = World::new(open(disk.path()));
    world.ready("early").await;
    world.accept(&world.provision("running")).await;
    let running = world.claim_one().await;
    let mut acknowledged = Vec::new();
    let mut refused = Vec::new();
    for round in 0..3 {
        disk.fill();
        for nth in 0..100 {
            let order = world.provision(&format!("{round}-{nth}"));
            match world.store.submit(order.clone()).await {
                Ok(_) => acknowledged.push(order.job),
                Err(StoreError::Full(_)) => refused.push(order.job),
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(!refused.is_empty(), "the disk is full");
        // Each further write is refused or done, and never half.
        for answer in [
            world.store.check().await,
            world
                .store
                .progress(running.fence, "x", world.now())
                .await
                .map(drop),
            world.store.claim_due(world.wish(1)).await.map(|claimed| {
                acknowledged.retain(|job| claimed.iter().all(|one| one.job.id != *job));
            }),
        ] {
            assert!(
                matches!(answer, Ok(()) | Err(StoreError::Full(_))),
                "{answer:?}"
            );
        }
        world.store.counts().await.expect("reads go on");
        disk.make_room();
        world.store.check().await.expect("there is room again");
    }
    let job = mine(
        world
            .store
            .finish_attempt(running.fence, world.finish(End::Succeeded))
            .await
            .unwrap(),
    );
    assert!(job.state.is_final());
    for job in &acknowledged {
        assert!(world.store.job(*job).await.unwrap().is_some());
    }
    for job in &refused {
        assert!(world.store.job(*job).await.unwrap().is_none());
    }
    drop(world);
    let world = World::starting_at(open(disk.path()), 10_000);
    for job in &acknowledged {
        assert!(world.store.job(*job).await.unwrap().is_some());
    }
}

#[test]
fn a_disk_without_room_cannot_be_opened_and_says_where() {
    let disk = Small::new();
    disk.fill();
    let data_dir = disk.path().join("data");
    let error = SqliteStore::open(StoreOptions::new(&data_dir)).expect_err("no room");
    assert!(matches!(error, StoreError::Full(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&disk.path().display().to_string()), "{text}");
    disk.make_room();
    SqliteStore::open(StoreOptions::new(&data_dir)).expect("there is room again");
}

#[test]
fn a_read_only_folder_says_what_to_do() {
    let disk = Small::new();
    drop(open(disk.path()));
    mount_remount(disk.path(), MountFlags::RDONLY, c"").unwrap();
    let error = SqliteStore::open(StoreOptions::new(disk.path())).expect_err("read-only");
    let text = error.to_string();
    assert!(matches!(error, StoreError::Unavailable(_)), "{text}");
    assert!(text.contains(&disk.path().display().to_string()), "{text}");
    assert!(text.contains("mount it writable"), "{text}");
    let fresh = disk.path().join("data");
    let text = SqliteStore::open(StoreOptions::new(fresh))
        .expect_err("read-only")
        .to_string();
    assert!(text.contains("mount it writable"), "{text}");
}

#[tokio::test]
async fn a_damaged_page_is_damage_and_not_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(open(folder.path()));
    let mut jobs = Vec::new();
    for nth in 0..200 {
        let order = world.provision(&format!("i{nth}"));
        world.accept(&order).await;
        jobs.push(order.job);
    }
    drop(world);
    let path = folder.path().join("evenkeel.db");
    let mut bytes = fs::read(&path).unwrap();
    // The schema comes first; what follows are rows and indexes.
    let rows = bytes.len() * 2 / 3;
    bytes[rows..].fill(0xA5);
    fs::write(&path, bytes).unwrap();
    let opened = SqliteStore::open(StoreOptions::new(folder.path())).unwrap();
    let world = World::starting_at(std::sync::Arc::new(opened.store), 10_000);
    let mut damaged = 0;
    for job in jobs {
        match world.store.job(job).await {
            Ok(_) | Err(StoreError::Unreadable(_)) => {}
            Err(StoreError::Damaged(text)) => {
                damaged += 1;
                assert!(text.contains("backup"), "{text}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(damaged > 0);
}

#[test]
fn a_file_that_is_no_database_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("evenkeel.db"), "hello ".repeat(1000)).unwrap();
    let error = SqliteStore::open(StoreOptions::new(folder.path())).expect_err("no database");
    assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
    assert!(error.to_string().contains("evenkeel.db"), "{error}");
}

#[tokio::test]
async fn a_database_that_is_moved_away_takes_and_tells_nothing_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(open(folder.path()));
    world.ready("before").await;
    let (path, away) = (
        folder.path().join("evenkeel.db"),
        folder.path().join("away"),
    );
    for in_its_place in ["nothing", "a folder", "another file", "a copy"] {
        fs::rename(&path, &away).unwrap();
        match in_its_place {
            "a folder" => fs::create_dir(&path).unwrap(),
            "another file" => fs::write(&path, "no database").unwrap(),
            "a copy" => drop(fs::copy(&away, &path).unwrap()),
            _ => {}
        }
        let order = world.provision(in_its_place);
        let refused = world.store.submit(order.clone()).await.unwrap_err();
        let StoreError::Unavailable(text) = &refused else {
            panic!("{in_its_place}: {refused:?}");
        };
        assert!(
            text.contains("evenkeel.db") && text.contains("put"),
            "{text}"
        );
        let read = world.store.counts().await;
        assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
        assert!(world.store.check().await.is_err(), "{in_its_place}");
        match in_its_place {
            "a folder" => fs::remove_dir(&path).unwrap(),
            "nothing" => {}
            _ => fs::remove_file(&path).unwrap(),
        }
        fs::rename(&away, &path).unwrap();
        world.store.check().await.unwrap();
        assert!(
            world.store.job(order.job).await.unwrap().is_none(),
            "nothing of it"
        );
        world.run(&order, End::Succeeded).await;
    }
    let counts = world.store.counts().await.unwrap();
    drop(world);
    let world = World::starting_at(open(folder.path()), 1000);
    assert_eq!(
        world.store.counts().await.unwrap(),
        counts,
        "all of it was kept"
    );
    assert_eq!(counts.succeeded, 5);
}
