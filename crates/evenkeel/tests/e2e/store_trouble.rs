//! A store that cannot be used: told with 503 and when to ask again, on every route that needs it;
//! the process goes on, and so does everything else as soon as it is mended.

use std::fs;
use std::path::PathBuf;

use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{Answer, Broker, PATIENCE, Setup, eventually};
use crate::stage::{Offer, Order, Scene, Stage};

fn database(broker: &Broker) -> PathBuf {
    broker.data().join("evenkeel.db")
}

/// A refusal for now, in the words of the Open Service Broker API.
fn is_later(what: &str, answer: &Answer) {
    assert_eq!(answer.status, 503, "{what}: {answer:?}");
    let after = answer
        .headers
        .get("retry-after")
        .and_then(|after| after.to_str().ok());
    let after = after.and_then(|after| after.parse::<u32>().ok());
    assert!(
        after.is_some_and(|seconds| seconds > 0),
        "{what}: {answer:?}"
    );
    let told = answer.body["description"].as_str().unwrap_or_default();
    assert!(
        !told.is_empty() && !told.contains("evenkeel.db"),
        "{what}: {answer:?}"
    );
}

/// Every OSB route that needs the store.
async fn refuses_platforms(broker: &Broker, of: &Offer, operation: &str) {
    let whose = format!("service_id={}&plan_id={}", of.0, of.1);
    let order = json!({
        "service_id": of.0, "plan_id": of.1, "organization_guid": "o", "space_guid": "s",
    });
    let later = "accepts_incomplete=true";
    for (method, path, body) in [
        (Method::PUT, format!("new?{later}"), Some(order.clone())),
        (Method::PATCH, format!("i?{later}"), Some(order.clone())),
        (Method::DELETE, format!("i?{later}&{whose}"), None),
        (Method::GET, "i".to_owned(), None),
        (
            Method::GET,
            format!("i/last_operation?operation={operation}"),
            None,
        ),
        (
            Method::PUT,
            format!("i/service_bindings/b?{later}"),
            Some(order),
        ),
        (
            Method::DELETE,
            format!("i/service_bindings/b?{later}&{whose}"),
            None,
        ),
        (Method::GET, "i/service_bindings/b".to_owned(), None),
        (
            Method::GET,
            "i/service_bindings/b/last_operation".to_owned(),
            None,
        ),
    ] {
        let path = format!("/v2/service_instances/{path}");
        let answer = broker.osb(method.clone(), &path, body).await;
        is_later(&format!("{method} {path}"), &answer);
    }
}

/// Every admin route that needs the store, and what it says of it.
async fn refuses_operators(broker: &Broker, operation: &str, why: &str) {
    let job = format!("/admin/v1/jobs/{operation}");
    for (method, path) in [
        (Method::GET, "/admin/v1/jobs".to_owned()),
        (Method::GET, job.clone()),
        (Method::GET, format!("{job}/log")),
        (Method::POST, format!("{job}/cancel")),
        (Method::POST, format!("{job}/retry")),
        (Method::POST, format!("{job}/clear")),
        (Method::POST, format!("{job}/discard")),
        (Method::POST, "/admin/v1/hold".to_owned()),
    ] {
        let answer = broker.admin(method.clone(), &path).await;
        assert_eq!(answer.status, 503, "{method} {path}: {answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        assert_eq!(answer.body["error"], "unavailable", "{answer:?}");
        assert!(
            answer.body["description"].as_str().unwrap().contains(why),
            "{answer:?}"
        );
    }
}

/// Waits until `/readyz` names the trouble with the store.
async fn not_ready(broker: &Broker, why: &str) {
    eventually("the broker says what is wrong with its store", || async {
        let ready = broker.admin(Method::GET, "/readyz").await;
        let reasons = ready.body["reasons"].as_array()?.clone();
        let about = |reason: &Value| {
            reason["about"] == "store" && reason["message"].as_str().unwrap().contains(why)
        };
        (ready.status == 503 && reasons.iter().any(about)).then_some(())
    })
    .await;
    assert_eq!(broker.admin(Method::GET, "/livez").await.status, 200);
    let out = broker.cli(&["status"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let told = String::from_utf8(out.stdout).unwrap();
    assert!(told.contains("not ready") && told.contains(why), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_moved_away_is_told_everywhere_and_nothing_is_lost_when_it_is_back() {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let pid = stage.broker.pid();
    let (path, away) = (database(&stage.broker), stage.file("away.db"));
    for (place, in_its_place) in ["nothing", "a folder"].into_iter().enumerate() {
        let id = format!("running-{place}");
        let scene = stage.scene(&id);
        let running = on_record_as_running(&stage, &scene, &of).await;
        let broker = &stage.broker;

        fs::rename(&path, &away).unwrap();
        if in_its_place == "a folder" {
            fs::create_dir(&path).unwrap();
        }
        not_ready(broker, "put").await;
        refuses_platforms(broker, &of, &running.job).await;
        refuses_operators(broker, &running.job, "evenkeel.db").await;
        // What runs goes on, and its end waits for the store.
        scene.open_gate();
        eventually("the run ends", || {
            std::future::ready((scene.ends("provision") == 1).then_some(()))
        })
        .await;
        if in_its_place == "a folder" {
            fs::remove_dir(&path).unwrap();
        }
        fs::rename(&away, &path).unwrap();

        stage.broker.ready().await;
        stage.succeeded(&running).await;
        assert_eq!(scene.starts("provision"), 1);
        let after = stage.scene(&format!("after-{place}"));
        let order = stage.provision(&after, &of, "never").await;
        stage.succeeded(&order).await;
        let new = stage
            .broker
            .osb(Method::GET, "/v2/service_instances/new", None)
            .await;
        assert_eq!(new.status, 404, "what was refused is not there: {new:?}");
    }
    assert!(stage.broker.is_alive());
    assert_eq!(stage.broker.pid(), pid);
    stage.broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_somebody_locks_is_told_and_reads_are_served_and_it_goes_on_after() {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let pid = stage.broker.pid();
    let scene = stage.scene("i");
    let running = on_record_as_running(&stage, &scene, &of).await;
    let broker = &stage.broker;
    let other = Connection::open(database(broker)).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    not_ready(broker, "").await;
    let order = broker.provision("new", &of, json!({})).await;
    is_later("provision", &order);
    // What is committed can still be told.
    let poll = "/v2/service_instances/i/last_operation";
    let poll = broker.osb(Method::GET, poll, None).await;
    assert_eq!(
        (poll.status, &poll.body["state"]),
        (200, &json!("in progress"))
    );
    assert_eq!(broker.job(&running.job).await["state"], "running");
    scene.open_gate();
    eventually("the run ends", || {
        std::future::ready((scene.ends("provision") == 1).then_some(()))
    })
    .await;
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);

    stage.broker.ready().await;
    stage.succeeded(&running).await;
    assert_eq!(scene.starts("provision"), 1);
    let order = stage.broker.provision("new", &of, json!({})).await;
    stage
        .broker
        .succeeded("new", None, &order.operation())
        .await;
    assert!(stage.broker.is_alive());
    assert_eq!(stage.broker.pid(), pid);
    stage.broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_opened_is_told_and_opened_when_it_is_mended_without_a_restart() {
    for trouble in ["newer", "folder"] {
        let mut broker = Broker::start(Setup::faults_bundle()).await;
        let of = broker.ids("faults", "ok").await;
        let made = broker.provision("i", &of, json!({})).await.operation();
        broker.succeeded("i", None, &made).await;
        assert!(broker.terminate().success());
        let (path, away) = (database(&broker), broker.dir.path().join("away.db"));
        let newer = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let why = match trouble {
            "newer" => {
                newer(
                    "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
                     VALUES (99, 'later', '', '0')",
                );
                "written by a newer release"
            }
            _ => {
                fs::rename(&path, &away).unwrap();
                fs::create_dir(&path).unwrap();
                "evenkeel.db"
            }
        };
        broker.spawn();
        broker.listening().await;
        not_ready(&broker, why).await;
        let pid = broker.pid();
        refuses_platforms(&broker, &of, &made).await;
        let catalog = broker.osb(Method::GET, "/v2/catalog", None).await;
        is_later("catalog", &catalog);
        refuses_operators(&broker, &made, why).await;
        assert!(broker.is_alive(), "no exit loop");
        match trouble {
            "newer" => newer("DELETE FROM refinery_schema_history WHERE version = 99"),
            _ => {
                fs::remove_dir(&path).unwrap();
                fs::rename(&away, &path).unwrap();
            }
        }
        broker.ready().await;
        assert_eq!(broker.pid(), pid, "without a restart");
        let found = broker
            .osb(Method::GET, "/v2/service_instances/i", None)
            .await;
        assert_eq!(found.status, 200, "{found:?}");
        let more = broker.provision("new", &of, json!({})).await.operation();
        broker.succeeded("new", None, &more).await;
    }
}

/// Overwrites the page that holds the body of a job, which shares it with no other.
fn spoil_body(broker: &Broker, nth: u32) {
    let open = Connection::open(database(broker)).unwrap();
    open.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let leaves = "SELECT pageno, ncell, pgsize FROM dbstat
         WHERE name = 'job_bodies' AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET ?1";
    let (page, bodies, size): (u32, u32, u32) = open
        .query_row(leaves, [nth], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    assert_eq!(bodies, 1, "one body a page");
    drop(open);
    let file = fs::File::options()
        .write(true)
        .open(database(broker))
        .unwrap();
    let noise = vec![0xA5; usize::try_from(size).unwrap()];
    std::os::unix::fs::FileExt::write_all_at(&file, &noise, u64::from(page - 1) * u64::from(size))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_page_of_one_job_is_told_of_that_job_and_the_others_go_on() {
    let mut broker = Broker::new(Setup::faults_bundle());
    let never = broker.dir.path().join("never");
    broker.setup.faults = format!("engine.claim=hold:{}", never.display());
    broker.boot().await;
    let of = broker.ids("faults", "ok").await;
    let mut jobs = Vec::new();
    for nth in 0..6 {
        // So large that two do not fit on a page, and so small that one does.
        let parameters = json!({ "padding": "x".repeat(2_400) });
        let order = broker.provision(&format!("i-{nth}"), &of, parameters).await;
        jobs.push(order.operation());
    }
    broker.kill();
    spoil_body(&broker, 2);
    broker.setup.faults.clear();
    broker.boot().await;
    let pid = broker.pid();
    for (nth, job) in jobs.iter().enumerate() {
        let end = broker.finished(&format!("i-{nth}"), None, job).await;
        let job = broker.job(job).await;
        if nth == 2 {
            assert_eq!(job["state"], "quarantined", "{job:#}");
            let reason = job["reason"].as_str().unwrap();
            assert!(
                reason.contains("cannot be dealt with") && reason.contains("malformed"),
                "{reason}"
            );
        } else {
            assert_eq!(job["state"], "succeeded", "{job:#}\n{end}");
        }
    }
    let status = broker.cli(&["status"]);
    let told = String::from_utf8(status.stdout).unwrap();
    assert!(told.contains("quarantined 1"), "{told}");
    let more = broker.provision("more", &of, json!({})).await.operation();
    broker.succeeded("more", None, &more).await;
    assert!(broker.is_alive());
    assert_eq!(broker.pid(), pid);
    let looked = broker.log().matches("malformed").count();
    assert!(looked < 20, "not looped over:\n{}", broker.log());
    broker.nothing_left().await;
}

/// A provision that waits at its gate, and whose start has been written down.
async fn on_record_as_running(stage: &Stage, scene: &Scene, of: &Offer) -> Order {
    let running = stage.provision(scene, of, "provision").await;
    scene.started("provision", 1).await;
    eventually("its start is on record", || async {
        let job = stage.broker.job(&running.job).await;
        job["history"][0]["started_at"].is_string().then_some(())
    })
    .await;
    running
}
