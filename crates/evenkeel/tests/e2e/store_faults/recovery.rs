//! The power cut right after a COMMIT of recovery: what it had written of a death, or of who owns a
//! run now, is torn off the log, and the next boot does it again.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::wal::Tear;
use crate::casualties::{QUICK, charged};
use crate::harness::was_killed;
use crate::stage::Stage;

/// The rows that recovery changes, as SQLite reads them after a power cut.
fn rows(data: &Path) -> Vec<String> {
    // A copy: whoever opens the log mends it.
    let copy = tempfile::tempdir().unwrap();
    for name in ["evenkeel.db", "evenkeel.db-wal"] {
        fs::copy(data.join(name), copy.path().join(name)).unwrap();
    }
    let database = Connection::open(copy.path().join("evenkeel.db")).unwrap();
    let mut all = Vec::new();
    for table in ["jobs", "attempts", "budgets", "audit"] {
        let mut statement = database
            .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2, 3"))
            .unwrap();
        let columns = statement.column_count();
        let mut found = statement.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let values: Vec<Value> = (0..columns).map(|at| row.get(at).unwrap()).collect();
            all.push(format!("{table}: {values:?}"));
        }
    }
    all
}

/// `deaths`: how many are counted against the job in the end.
async fn torn(write: &str, deaths: usize, tear: Tear) {
    let mut stage = Stage::new(QUICK).await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    scene.open_gate();
    let once = stage.file("once");
    fs::create_dir(&once).unwrap();
    let data = stage.broker.data();
    let rules = format!(
        "once={};engine.ended~^provision=kill@1;store.{write}.before~^provision=hold:{}@1;\
         store.{write}.after~^provision=kill@1",
        once.display(),
        stage.file("hold").display(),
    );
    stage.reboot(&rules).await;
    let order = stage.provision(&scene, &of, "provision").await;
    assert!(was_killed(stage.broker.died().await));

    stage.broker.spawn();
    crate::stage::reached(&stage.file("hold")).await;
    let before = rows(&data);
    fs::write(stage.file("hold"), "").unwrap();
    assert!(was_killed(stage.broker.died().await));
    let used_up = fs::read_dir(&once).unwrap().count();
    assert_eq!(used_up, 3, "every rule was reached: {write}, {tear:?}");
    let written = rows(&data);
    assert_ne!(before, written, "{write}");
    tear.apply(&data.join("evenkeel.db-wal"));
    match tear {
        Tear::Cut | Tear::Garbled => assert_eq!(rows(&data), before, "{write}, {tear:?}"),
        Tear::Trailing => assert_eq!(rows(&data), written, "{write}, {tear:?}"),
    }

    stage.boot("").await;
    stage.succeeded(&order).await;
    assert_eq!(scene.starts("provision"), 1, "{write}, {tear:?}");
    assert_eq!(scene.ends("provision"), 1, "{write}, {tear:?}");
    let attempts = stage.attempts(&order).await;
    assert_eq!(attempts.len(), 1, "{write}, {tear:?}: {attempts:?}");
    assert_eq!(attempts[0]["charge"], "none", "{write}, {tear:?}");
    // Neither lost nor doubled: counting is no step of the job's, taking its run over is.
    let job = stage.broker.job(&order.job).await;
    let exposures = charged(&stage, &order, "exposure").await;
    assert_eq!(exposures, deaths, "{write}, {tear:?}: {job:#}");
    stage.broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i9_what_recovery_committed_and_a_power_cut_tore_is_done_again_and_counted_once() {
    for (write, deaths) in [("expose", 1), ("adopt", 2)] {
        for tear in [Tear::Cut, Tear::Garbled, Tear::Trailing] {
            torn(write, deaths, tear).await;
        }
    }
}
