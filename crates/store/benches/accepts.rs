//! Durable accepts at 64 callers, against a floor taken in the same run: single fsynced SQLite
//! commits of a similar set of rows, one at a time. Prints both rates and their ratio.

#[path = "../tests/it/world.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the tests, of which this is a part"
)]
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use evenkeel_store::{SqliteStore, StoreOptions};
use tokio::task::JoinSet;
use world::World;

const CALLERS: usize = 64;

fn accept(runtime: &tokio::runtime::Runtime, world: &Arc<World>, number: u64) -> Duration {
    let orders: Vec<_> = (0..number)
        .map(|_| world.provision(&world.uuid().to_string()))
        .collect();
    let mut shares: Vec<Vec<_>> = (0..CALLERS).map(|_| Vec::new()).collect();
    for (nth, order) in orders.into_iter().enumerate() {
        shares[nth % CALLERS].push(order);
    }
    let since = Instant::now();
    runtime.block_on(async {
        let mut callers = JoinSet::new();
        for share in shares {
            let store = Arc::clone(&world.store);
            callers.spawn(async move {
                for order in share {
                    store.submit(order).await.expect("accepted");
                }
            });
        }
        callers.join_all().await;
    });
    since.elapsed()
}

/// The floor: an instance, a job, a body and an audit line, one COMMIT each.
struct Floor {
    conn: rusqlite::Connection,
    next: u64,
    body: Vec<u8>,
}

impl Floor {
    fn open(folder: &std::path::Path) -> Self {
        let conn = rusqlite::Connection::open(folder.join("floor.db")).expect("a database");
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE instances (uid TEXT PRIMARY KEY, name TEXT UNIQUE, sealed BLOB);
             CREATE TABLE jobs (id TEXT PRIMARY KEY, instance TEXT, state TEXT, at INTEGER);
             CREATE INDEX jobs_state ON jobs (state, id);
             CREATE TABLE bodies (job TEXT PRIMARY KEY, sealed BLOB);
             CREATE TABLE audit (seq INTEGER PRIMARY KEY, at INTEGER, job TEXT, what TEXT);",
        )
        .expect("tables");
        Self {
            conn,
            next: 0,
            body: vec![7; 600],
        }
    }

    fn commit(&mut self) {
        self.next += 1;
        let id = uuid::Uuid::from_u128(u128::from(self.next)).to_string();
        let all = "BEGIN IMMEDIATE";
        self.conn.execute_batch(all).expect("begin");
        for (sql, sealed) in [
            ("INSERT INTO instances VALUES (?1, ?1, ?2)", true),
            ("INSERT INTO jobs VALUES (?1, ?1, 'queued', 1)", false),
            ("INSERT INTO bodies VALUES (?1, ?2)", true),
            ("INSERT INTO audit VALUES (NULL, 1, ?1, 'submit')", false),
        ] {
            let mut statement = self.conn.prepare_cached(sql).expect("a statement");
            let done = if sealed {
                statement.execute(rusqlite::params![id, self.body])
            } else {
                statement.execute([&id])
            };
            done.expect("a row");
        }
        self.conn.execute_batch("COMMIT").expect("commit");
    }
}

#[expect(clippy::print_stdout, reason = "figures go to standard output")]
fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let opened = SqliteStore::open(StoreOptions::new(folder.path())).expect("a store");
    let world = Arc::new(World::new(Arc::new(opened.store)));
    let mut floor = Floor::open(folder.path());

    let number = 4000;
    accept(&runtime, &world, 500);
    let accepts = accept(&runtime, &world, number);
    let since = Instant::now();
    for _ in 0..number {
        floor.commit();
    }
    let commits = since.elapsed();
    let rate = |span: Duration| f64::from(u32::try_from(number).unwrap_or(0)) / span.as_secs_f64();
    println!(
        "accepts at {CALLERS} callers: {:.0}/s; floor, single commits: {:.0}/s; ratio {:.2}",
        rate(accepts),
        rate(commits),
        rate(accepts) / rate(commits)
    );

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("durable");
    group.throughput(Throughput::Elements(1));
    group.sample_size(10);
    group.bench_function("accepts at 64 callers", |bencher| {
        bencher.iter_custom(|number| accept(&runtime, &world, number));
    });
    group.bench_function("single commits", |bencher| bencher.iter(|| floor.commit()));
    group.finish();
    criterion.final_summary();
}
