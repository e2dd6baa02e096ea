//! `kill -9` in the middle of writing: what was acknowledged is there.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use evenkeel_core::ids::JobId;
use evenkeel_store::seam::Submitted;
use tokio::task::JoinSet;

use super::open;
use crate::world::World;

const FOLDER: &str = "EVENKEEL_STORE_TEST_FOLDER";
const FIRST: &str = "EVENKEEL_STORE_TEST_FIRST";
const NAME: &str = "sqlite::kill::every_acknowledged_submit_survives_kill_9";

/// I1. This test is its own writing process: run with a folder in the environment, it writes
/// until it is killed.
#[test]
fn every_acknowledged_submit_survives_kill_9() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        write_until_killed(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..5_u64 {
        let mut child = start(folder.path(), round * 1_000_000);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        for line in lines.by_ref() {
            let Some(job) = read_ack(&line.unwrap()) else {
                continue;
            };
            acknowledged.push(job);
            heard += 1;
            if heard == 50 + round * 37 {
                child.kill().unwrap();
                break;
            }
        }
        // What it still said before it died, up to the end of the pipe.
        acknowledged.extend(
            lines
                .map_while(Result::ok)
                .filter_map(|line| read_ack(&line)),
        );
        child.wait().unwrap();
        assert!(heard >= 50, "the child ended by itself after {heard}");
        let store = open(folder.path());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for job in &acknowledged {
            let found = runtime.block_on(store.job(*job)).unwrap();
            assert!(found.is_some(), "{job} was acknowledged and is gone");
        }
    }
    let conn = super::stranger(folder.path());
    let sound: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
}

#[expect(
    clippy::disallowed_methods,
    reason = "a process that can be killed is what this test is about"
)]
fn start(folder: &Path, first: u64) -> Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn read_ack(line: &str) -> Option<JobId> {
    // The harness may have begun a line of its own.
    let (_, id) = line.split_once("ack ")?;
    id.trim().parse().ok()
}

fn write_until_killed(folder: &Path) -> ! {
    let first = std::env::var(FIRST).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = Arc::new(World::starting_at(open(folder), first));
        let mut tasks = JoinSet::new();
        for task in 0..16 {
            let world = Arc::clone(&world);
            tasks.spawn(async move {
                for nth in 0.. {
                    let order = world.provision(&format!("{first}-{task}-{nth}"));
                    let accepted = world.store.submit(order.clone()).await.unwrap();
                    assert!(matches!(accepted, Submitted::Accepted { .. }));
                    let line = format!("ack {}\n", order.job);
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
        tasks.join_all().await;
    });
    unreachable!("it writes until it is killed");
}
