use evenkeel_core::ids::JobId;
use rusqlite::Connection;
use uuid::Uuid;

use super::claim::SEEKS;
use super::control::LATE;
use super::db::Db;
use super::read::SUSPECT;
use super::recover::RUNNING;
use super::rows::body;
use super::rows::job::{Of, active_sql};
use super::*;
use crate::seal::Place;

fn open_in(folder: &std::path::Path) -> SqliteStore {
    SqliteStore::open(StoreOptions::new(folder)).unwrap().store
}

fn plan(conn: &Connection, sql: &str) -> String {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut lines = Vec::new();
    let mut rows = explain.raw_query();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get::<_, String>(3).unwrap());
    }
    lines.join("\n")
}

/// A claim costs the same whatever waits behind it.
#[test]
fn claims_seek_in_an_index_and_never_scan_or_sort() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_in(folder.path());
    let conn = store.database.connect_reader().unwrap();
    for sql in SEEKS {
        let plan = plan(&conn, sql);
        assert!(
            plan.contains("SEARCH jobs USING COVERING INDEX jobs_queued (suspect=?")
                || plan.contains("SEARCH jobs USING COVERING INDEX jobs_backoff (suspect=?"),
            "{sql}\n{plan}"
        );
        assert!(!plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
    }
    let running = "SELECT count(*) FROM jobs WHERE state = 'running' AND service_id = ?1";
    assert!(plan(&conn, running).contains("INDEX jobs_running (service_id=?)"));
    let late = plan(&conn, LATE);
    assert!(late.contains("jobs_deadline (deadline_at<?)"), "{late}");
    assert!(!late.contains("TEMP B-TREE"), "{late}");
    let running = plan(&conn, RUNNING);
    assert!(running.contains("MERGE (UNION ALL)"), "{running}");
    assert!(
        running.contains("jobs_state (state=? AND id>?)"),
        "{running}"
    );
    assert!(!running.contains("TEMP B-TREE"), "{running}");
    let suspects = format!("SELECT count(*) FROM jobs j WHERE {SUSPECT}");
    let suspects = plan(&conn, &suspects);
    assert!(
        suspects.contains("INDEX jobs_suspects (state=?)"),
        "{suspects}"
    );
    for of in [Of::Instance(""), Of::Bindings(""), Of::Binding("")] {
        let active = plan(&conn, &active_sql(of));
        assert!(active.contains("_uid=?)"), "{active}");
        assert!(!active.contains("TEMP B-TREE"), "{active}");
    }
}

/// Whoever has no room in `/var/tmp`, or no such folder, still has a store.
#[test]
fn nothing_is_kept_in_files_outside_the_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let database = open_in(folder.path()).database;
    for conn in [database.connect_writer(), database.connect_reader()] {
        let kept = conn
            .unwrap()
            .pragma_query_value(None, "temp_store", |row| row.get::<_, u8>(0));
        assert_eq!(kept.unwrap(), 2, "2 is MEMORY");
    }
}

fn insert_job(conn: &Connection, id: &str) {
    conn.execute_batch(&format!(
        "INSERT INTO instances (uid, instance_id, platform, service_id, plan_id, bundle,
             request_digest, status, created_at, updated_at)
         VALUES ('u', 'i', 'p', 's', 'p', 'b', 'd', 'creating', 0, 0);
         INSERT INTO jobs (id, instance_uid, action, service_id, plan_id, bundle, platform,
             request_digest, codec_version, created_at, deadline_at, updated_at, retries, state,
             queued_at)
         VALUES ('{id}', 'u', 'provision', 's', 'p', 'b', 'p', 'd', 1, 0, 0, 0, 0, 'queued', 0);"
    ))
    .unwrap();
}

/// The difference between damage and a body from another world.
#[tokio::test]
async fn a_body_that_authenticates_but_does_not_decode_is_unreadable_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_in(folder.path());
    let id = JobId(Uuid::from_u128(7));
    let text = id.to_string();
    store
        .writer
        .call(move |db: &Db<'_>| {
            insert_job(db.conn, &id.to_string());
            body::insert(db, id, b"\xff hunter2 is no body")
        })
        .await
        .unwrap();
    let load = || store.readers.call(move |db| body::load(db, id));
    let error = load().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreadable(_)), "{error:?}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let bytes = store.readers.call(move |db| body::bytes(db, id)).await;
    assert_eq!(bytes.unwrap().unwrap().1, b"\xff hunter2 is no body");

    // A newer release's body waits for a newer release.
    let conn = store.database.connect_writer().unwrap();
    conn.execute("UPDATE jobs SET codec_version = 2", [])
        .unwrap();
    let error = load().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");

    // Sealed for another row: damage, not a body.
    let place = Place {
        table: "job_bodies",
        row: "another",
        column: "sealed",
    };
    let swapped = store.database.sealer.seal(place, b"{}").unwrap();
    conn.execute(
        "UPDATE job_bodies SET sealed = ?1 WHERE job_id = ?2",
        rusqlite::params![swapped, text],
    )
    .unwrap();
    let error = load().await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
}

#[tokio::test]
async fn a_panic_in_a_read_is_an_error_of_that_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::new(folder.path());
    options.readers = 1;
    let store = SqliteStore::open(options).unwrap().store;
    let panicked: Result<(), _> = store.readers.call(|_| panic!("a read")).await;
    assert!(matches!(panicked, Err(StoreError::Panicked(text)) if text == "a read"));
    store.counts().await.unwrap();
}

/// I16: the words of a panic may hold what a request said, and errors are logged, shown and kept.
#[tokio::test]
async fn i16_an_error_has_no_words_of_a_panic_that_were_put_together_at_run_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(StoreOptions::new(folder.path())).unwrap();
    let parameter = "hunter2".to_owned();
    let panicked = store
        .store
        .readers
        .call::<(), _>(move |_| panic!("no {parameter}"));
    let error = panicked.await.unwrap_err();
    assert!(matches!(error, StoreError::Panicked(_)), "{error:?}");
    assert!(
        !format!("{error} {error:?}").contains("hunter2"),
        "{error:?}"
    );
}
