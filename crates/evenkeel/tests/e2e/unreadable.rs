//! Records that cannot be read: set aside by name, or left to whoever can read them; nobody waits.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::Method;
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Broker, Setup, eventually};

/// Bytes of the largest body that is put into the store.
const HUGE: usize = 100 << 20;

/// The database of a broker that is down.
fn database(broker: &Broker) -> Connection {
    Connection::open(broker.data().join("evenkeel.db")).unwrap()
}

/// Bytes without a pattern (xorshift), the same in every run; repeated where there are many.
fn noise(length: usize) -> Vec<u8> {
    const BLOCK: usize = 1 << 16;
    if length > BLOCK {
        let mut bytes = noise(BLOCK).repeat(length.div_ceil(BLOCK));
        bytes.truncate(length);
        return bytes;
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = length.div_ceil(8);
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .take(words)
    .flatten()
    .collect();
    bytes.truncate(length);
    bytes
}

fn body(database: &Connection, job: &str) -> Vec<u8> {
    let select = "SELECT sealed FROM job_bodies WHERE job_id = ?1";
    database.query_row(select, [job], |row| row.get(0)).unwrap()
}

fn put_body(database: &Connection, job: &str, sealed: &[u8]) {
    let update = "UPDATE job_bodies SET sealed = ?2 WHERE job_id = ?1";
    let rows = database.execute(update, params![job, sealed]).unwrap();
    assert_eq!(rows, 1, "job {job} has a body");
}

/// A broker that has accepted these instances and started none of them, ended in order.
async fn accepted(ids: &[&str]) -> (Broker, Vec<String>) {
    // Claims wait at a file that never comes.
    let mut broker = Broker::new(Setup::faults_bundle());
    let never = broker.dir.path().join("never");
    broker.setup.faults = format!("engine.claim=hold:{}", never.display());
    broker.boot().await;
    let of = broker.ids("faults", "ok").await;
    let mut jobs = Vec::new();
    for id in ids {
        jobs.push(broker.provision(id, &of, json!({})).await.operation());
    }
    broker.kill();
    broker.setup.faults.clear();
    (broker, jobs)
}

/// The most memory that a process has had, in bytes.
fn peak_memory(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_noise_cut_short_swapped_or_huge_are_set_aside_and_delay_nobody() {
    let spoilt = [
        "noise",
        "empty",
        "cut",
        "swapped",
        "flipped",
        "huge",
        "huge-inside",
    ];
    let sound = ["sound-0", "sound-1", "sound-2", "sound-3", "sound-4"];
    let ids: Vec<_> = spoilt.into_iter().chain(sound).collect();
    let (mut broker, jobs) = accepted(&ids).await;
    let job = |id: &str| &jobs[ids.iter().position(|known| *known == id).unwrap()];
    {
        let database = database(&broker);
        put_body(&database, job("noise"), &noise(4096));
        put_body(&database, job("empty"), &[]);
        let whole = body(&database, job("cut"));
        put_body(&database, job("cut"), &whole[..whole.len() - 1]);
        put_body(&database, job("swapped"), &body(&database, job("sound-0")));
        let mut flipped = body(&database, job("flipped"));
        *flipped.last_mut().unwrap() ^= 1;
        put_body(&database, job("flipped"), &flipped);
        put_body(&database, job("huge"), &noise(HUGE));
        // Format, key and nonce are right: nothing gives it away before it is opened.
        let mut inside = body(&database, job("huge-inside"))[..33].to_vec();
        inside.extend(noise(HUGE));
        put_body(&database, job("huge-inside"), &inside);
    }
    let began = Instant::now();
    broker.spawn();
    broker.listening().await;
    broker.ready().await;
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "ready after {:?}",
        began.elapsed()
    );

    for id in sound {
        broker.succeeded(id, None, job(id)).await;
    }
    for id in spoilt {
        let end = broker.finished(id, None, job(id)).await;
        assert_eq!(end["state"], "failed", "{id}: {end}");
        assert!(
            end["description"].as_str().unwrap().contains(job(id)),
            "{id}: {end}"
        );
        let shown = broker.job(job(id)).await;
        assert_eq!(shown["state"], "quarantined", "{id}: {shown:#}");
        let history = shown["history"].as_array().unwrap();
        assert_eq!(history.len(), 1, "{id}: {shown:#}");
        assert_eq!(history[0]["end"], "unreadable", "{id}: {shown:#}");
        assert_eq!(history[0]["charge"], "none", "{id}: {shown:#}");
        assert_eq!(shown["budget"]["crashes"], 0, "{id}: {shown:#}");
    }
    let peak = peak_memory(broker.pid());
    assert!(
        peak < 6 * HUGE,
        "{} MiB for bodies that are no use",
        peak >> 20
    );

    // Such an instance can be got rid of.
    let of = broker.ids("faults", "ok").await;
    let gone = broker.deprovision("noise", &of).await.operation();
    broker.succeeded("noise", None, &gone).await;
    broker.nothing_left().await;
    assert!(broker.terminate().success());
    let database = database(&broker);
    assert_eq!(
        body(&database, job("huge")).len(),
        HUGE,
        "the bytes are kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_newer_release_is_left_for_a_broker_that_knows_it_and_delays_nobody() {
    let (mut broker, jobs) = accepted(&["newer", "ours"]).await;
    {
        let database = database(&broker);
        let update = "UPDATE jobs SET codec_version = 99 WHERE id = ?1";
        assert_eq!(database.execute(update, [&jobs[0]]).unwrap(), 1);
        put_body(&database, &jobs[0], &noise(100));
    }
    broker.boot().await;
    broker.succeeded("ours", None, &jobs[1]).await;
    let left = broker.job(&jobs[0]).await;
    assert_eq!(left["state"], "queued", "{left:#}");
    assert_eq!(left["attempts"], 0, "{left:#}");
    let poll = format!(
        "/v2/service_instances/newer/last_operation?operation={}",
        jobs[0]
    );
    let poll = broker.osb(Method::GET, &poll, None).await;
    assert_eq!(poll.body["state"], "in progress", "{poll:?}");
    assert!(broker.terminate().success());
    assert_eq!(
        body(&database(&broker), &jobs[0]),
        noise(100),
        "nobody touched it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_makes_no_sense_is_set_aside_by_name_and_delays_nobody() {
    let (mut broker, jobs) = accepted(&["strange", "sound"]).await;
    {
        let database = database(&broker);
        let update = "UPDATE jobs SET bundle = 'no digest' WHERE id = ?1";
        assert_eq!(database.execute(update, [&jobs[0]]).unwrap(), 1);
    }
    broker.boot().await;
    broker.succeeded("sound", None, &jobs[1]).await;
    eventually("the strange row is set aside", || async {
        let quarantined = broker.admin(Method::GET, "/admin/v1/status").await;
        (quarantined.body["counts"]["quarantined"] == 1).then_some(())
    })
    .await;
    let of = broker.ids("faults", "ok").await;
    let more = broker.provision("more", &of, json!({})).await.operation();
    broker.succeeded("more", None, &more).await;
    assert!(broker.is_alive());
}

/// Another key file of the right form.
fn change_key(path: &Path) -> Vec<u8> {
    let right = fs::read(path).unwrap();
    let text = String::from_utf8(right.clone()).unwrap();
    let (prefix, key) = text.trim_end().rsplit_once(' ').unwrap();
    let other: String = key
        .chars()
        .map(|digit| if digit == '0' { '1' } else { '0' })
        .collect();
    fs::write(path, format!("{prefix} {other}\n")).unwrap();
    right
}

fn rows(database: &Connection) -> Vec<(String, String, i64, i64)> {
    let mut select = database
        .prepare("SELECT id, state, attempts, updated_at FROM jobs ORDER BY id")
        .unwrap();
    let rows = select
        .query_map([], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_wrong_key_nothing_is_claimed_or_condemned_and_the_right_one_mends_it() {
    let (mut broker, jobs) = accepted(&["one", "two"]).await;
    let key = broker.data().join("store.key");
    let before = rows(&database(&broker));
    let right = change_key(&key);
    broker.spawn();
    broker.listening().await;
    let refused = eventually("the broker says what is wrong", || async {
        let ready = broker.admin(Method::GET, "/readyz").await;
        assert_eq!(ready.status, 503, "{ready:?}");
        ready.body.to_string().contains("key").then_some(ready.body)
    })
    .await;
    let reasons: Vec<&Value> = refused["reasons"].as_array().unwrap().iter().collect();
    assert!(
        reasons.iter().any(|reason| reason["blocking"] == true),
        "{refused:#}"
    );
    let text = refused.to_string();
    assert!(
        text.contains("store.key") && text.contains("does not open"),
        "{text}"
    );
    let osb = broker.osb(Method::GET, "/v2/catalog", None).await;
    assert_eq!(osb.status, 503, "{osb:?}");
    assert!(osb.headers.contains_key("retry-after"), "{osb:?}");
    let status = broker.cli(&["status"]);
    let told = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        !status.status.success() && told.contains("store.key"),
        "{told}"
    );
    assert!(broker.is_alive(), "it waits for the right key");

    fs::write(&key, right).unwrap();
    broker.ready().await;
    for (id, job) in ["one", "two"].iter().zip(&jobs) {
        broker.succeeded(id, None, job).await;
        assert_eq!(broker.job(job).await["attempts"], 1);
    }
    assert!(
        before
            .iter()
            .all(|(_, state, attempts, _)| state == "queued" && *attempts == 0)
    );
    assert!(broker.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_changes_no_row() {
    let (mut broker, _) = accepted(&["one", "two"]).await;
    let before = rows(&database(&broker));
    change_key(&broker.data().join("store.key"));
    broker.spawn();
    broker.listening().await;
    eventually("the broker says what is wrong", || async {
        let ready = broker.admin(Method::GET, "/readyz").await;
        ready.body.to_string().contains("store.key").then_some(())
    })
    .await;
    broker.kill();
    assert_eq!(rows(&database(&broker)), before);
}

/// An address on which nobody listens.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listener_answers_soon_whatever_the_store_holds() {
    let (mut broker, jobs) = accepted(&["huge", "other"]).await;
    put_body(&database(&broker), &jobs[0], &noise(HUGE));
    // Somebody else holds the database, so that the store cannot even be opened yet.
    let holder = database(&broker);
    holder
        .pragma_update(None, "locking_mode", "exclusive")
        .unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let (osb, admin) = (free_port(), free_port());
    broker.setup.toml =
        format!("[osb]\nlisten = \"127.0.0.1:{osb}\"\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n");
    let began = Instant::now();
    broker.spawn();
    let live = format!("http://127.0.0.1:{admin}/livez");
    let answered = eventually("the listener answers", || async {
        let answer = broker.http.get(&live).send().await.ok()?;
        (answer.status() == 200).then(|| began.elapsed())
    })
    .await;
    // 2 s in a release build on a quiet machine; this is neither.
    assert!(
        answered < Duration::from_secs(10),
        "the first answer came after {answered:?}"
    );
    let catalog = format!("http://127.0.0.1:{osb}/v2/catalog");
    let answer = broker.http.get(&catalog).send().await.unwrap();
    assert_eq!(
        answer.status(),
        503,
        "the store is not there yet, and that is the answer"
    );
    drop(holder);
    broker.ready().await;
    broker.succeeded("other", None, &jobs[1]).await;
    broker.job_is(&jobs[0], "quarantined").await;
}

/// Overwrites the root page of a table or index.
fn damage(broker: &Broker, object: &str) {
    let path = broker.data().join("evenkeel.db");
    let database = database(broker);
    database
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let select = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: u32 = database
        .query_row(select, [object], |row| row.get(0))
        .unwrap();
    let size: u32 = database
        .query_row("PRAGMA page_size", [], |row| row.get(0))
        .unwrap();
    drop(database);
    let file = fs::File::options().write(true).open(path).unwrap();
    let noise = noise(usize::try_from(size).unwrap());
    let at = u64::from(page - 1) * u64::from(size);
    std::os::unix::fs::FileExt::write_all_at(&file, &noise, at).unwrap();
}

/// Lines of the log, which grows by a bounded number in `while_waiting`.
fn lines(broker: &Broker) -> usize {
    broker.log().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_page_is_reported_and_not_looped_over_and_a_backup_mends_it() {
    // What claims read, what recovery reads, what every check writes, what opening reads.
    let mut brokers = JoinSet::new();
    for object in ["jobs", "jobs_state", "meta", "canary"] {
        brokers.spawn(a_damaged(object));
    }
    while let Some(done) = brokers.join_next().await {
        done.unwrap();
    }
}

async fn a_damaged(object: &str) {
    let (mut broker, jobs) = accepted(&["one"]).await;
    let path = broker.data().join("evenkeel.db");
    database(&broker)
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let backup = fs::read(&path).unwrap();
    damage(&broker, object);
    broker.spawn();
    broker.listening().await;
    let pid = broker.pid();
    let told = eventually(&format!("{object}: the damage is told"), || async {
        let ready = broker.admin(Method::GET, "/readyz").await;
        let text = ready.body.to_string();
        text.contains("damaged").then_some(text)
    })
    .await;
    assert!(
        told.contains("backup"),
        "{object}: it says what to do: {told}"
    );
    assert!(broker.is_alive() && broker.pid() == pid, "{object}");
    // Three times the interval of the slowest loop that could be writing to the log.
    let (before, began) = (lines(&broker), Instant::now());
    eventually("some time has passed", || {
        std::future::ready((began.elapsed() > Duration::from_secs(3)).then_some(()))
    })
    .await;
    let more = lines(&broker) - before;
    assert!(
        more < 60,
        "{object}: {more} lines in three seconds:\n{}",
        broker.log()
    );
    broker.kill();
    fs::write(&path, backup).unwrap();
    for name in ["evenkeel.db-wal", "evenkeel.db-shm"] {
        drop(fs::remove_file(broker.data().join(name)));
    }
    broker.boot().await;
    broker.succeeded("one", None, &jobs[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_database_is_reported_and_mended_without_a_restart() {
    let (mut broker, jobs) = accepted(&["one"]).await;
    let path = broker.data().join("evenkeel.db");
    database(&broker)
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let backup = fs::read(&path).unwrap();
    fs::write(&path, noise(8192)).unwrap();
    broker.spawn();
    broker.listening().await;
    let pid = broker.pid();
    eventually("the damage is told", || async {
        let ready = broker.admin(Method::GET, "/readyz").await;
        let text = ready.body.to_string();
        (ready.status == 503 && text.contains("damaged") && text.contains("backup")).then_some(())
    })
    .await;
    fs::write(&path, backup).unwrap();
    broker.ready().await;
    broker.succeeded("one", None, &jobs[0]).await;
    assert_eq!(broker.pid(), pid);
    let told = broker.log().matches("cannot start").count();
    assert_eq!(
        told,
        1,
        "said once, not every two seconds:\n{}",
        broker.log()
    );
}
