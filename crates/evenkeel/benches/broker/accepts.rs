//! Durable accepts by HTTP at 64 connections, against single fsynced SQLite commits.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use crate::bundle;
use crate::harness::{Broker, Setup};

const CONNECTIONS: usize = 64;
const EACH: usize = 100;
const FLOOR_COMMITS: usize = 2_000;

pub(crate) async fn run() {
    let folder = tempfile::tempdir().expect("a folder");
    let floor = floor(&folder.path().join("floor.db"));
    // One job hangs in the only slot, so that accepting is all that the broker does.
    let setup = Setup {
        bundles: vec![bundle::write(folder.path(), &["sleep", "600"])],
        toml: "[jobs]\nconcurrency = 1\nper_service = 1\n[shutdown]\non_shutdown = \"detach\"\n"
            .into(),
        ..Setup::default()
    };
    let broker = Arc::new(Broker::start(setup).await);
    let ids = Arc::new(broker.ids("bench", "only").await);
    let since = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for connection in 0..CONNECTIONS {
        let (broker, ids) = (Arc::clone(&broker), Arc::clone(&ids));
        tasks.spawn(async move {
            for nth in 0..EACH {
                let id = format!("i-{connection}-{nth}");
                let answer = broker.provision(&id, &ids, json!({})).await;
                assert_eq!(answer.status, 202, "{answer:?}");
            }
        });
    }
    tasks.join_all().await;
    let rate = (CONNECTIONS * EACH) as f64 / since.elapsed().as_secs_f64();
    println!(
        "accepts   {rate:8.0}/s at {CONNECTIONS} connections (load generator on the same cores)"
    );
    println!("floor     {floor:8.0}/s single fsynced SQLite commits, one at a time");
    println!("ratio     {:8.2}\n", rate / floor);
}

/// Commits a second of a row set of the same shape as an accept's, one by one.
fn floor(path: &std::path::Path) -> f64 {
    let store = rusqlite::Connection::open(path).expect("a database");
    store
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE rows (id INTEGER PRIMARY KEY, part INTEGER, text TEXT, blob BLOB);",
        )
        .expect("a table");
    let since = Instant::now();
    for nth in 0..FLOOR_COMMITS {
        store.execute_batch("BEGIN IMMEDIATE").expect("begin");
        for part in 0..4 {
            store
                .prepare_cached("INSERT INTO rows (part, text, blob) VALUES (?1, ?2, ?3)")
                .and_then(|mut row| row.execute((part, format!("row {nth}"), vec![7_u8; 300])))
                .expect("a row");
        }
        store.execute_batch("COMMIT").expect("commit");
    }
    FLOOR_COMMITS as f64 / since.elapsed().as_secs_f64()
}
