//! A disk that is full when a boot writes down whom a death is counted against, and that it owns a
//! run now.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_at_each_write_of_recovery_loses_nothing_and_counts_a_death_once() {
    let mut brokers = JoinSet::new();
    for write in ["expose", "adopt"] {
        brokers.spawn(a_full_disk_at_a_write_of_recovery(write));
    }
    while let Some(done) = brokers.join_next().await {
        done.unwrap();
    }
}

async fn a_full_disk_at_a_write_of_recovery(write: &str) {
    let (disk, stage) = (Disk::new(), Stage::new());
    let mut setup = stage.setup(&disk);
    // Named by the black box: there is a death to be counted.
    setup.faults = "engine.ended~^provision=kill@1".to_owned();
    let mut broker = Broker::start(setup).await;
    let of = broker.ids("quiet", "plain").await;
    let operation = broker.provision("i", &of, json!({})).await.operation();
    assert!(was_killed(broker.died().await));

    let hold = stage.folder.path().join("hold");
    broker.setup.faults = format!("store.{write}.before~^provision=hold:{}@1", hold.display());
    broker.spawn();
    crate::stage::reached(&hold).await;
    let pid = broker.pid();
    disk.fill().await;
    fs::write(&hold, "").unwrap();
    eventually("recovery meets the full disk", || {
        let log = broker.log();
        let told = log.lines().any(|line| {
            line.contains("recovery") && line.contains("full") && line.contains("make room")
        });
        std::future::ready(told.then_some(()))
    })
    .await;
    let path = format!("/v2/service_instances/i/last_operation?operation={operation}");
    let poll = broker.osb(Method::GET, &path, None).await;
    if poll.status == 200 {
        assert_eq!(poll.body["state"], "in progress", "{write}: {poll:?}");
    } else {
        assert_eq!(poll.status, 503, "{write}: {poll:?}");
        assert!(poll.headers.contains_key("retry-after"), "{poll:?}");
    }

    disk.make_room();
    broker.ready().await;
    broker.succeeded("i", None, &operation).await;
    assert_eq!(broker.pid(), pid, "{write}: without a restart");
    let job = broker.job(&operation).await;
    assert_eq!(job["attempts"], 1, "{write}: {job:#}");
    assert_eq!(job["history"][0]["charge"], "none", "{write}: {job:#}");
    let audit = job["audit"].as_array().unwrap().iter();
    let charges: Vec<_> = audit.filter(|line| line["what"] == "charge").collect();
    assert_eq!(charges.len(), 1, "{write}: {job:#}");
    assert_eq!(stage.provisions("i", "starts"), 1, "{write}: {job:#}");
    assert_eq!(stage.provisions("i", "ends"), 1, "{write}: {job:#}");
    assert!(broker.is_alive());
    broker.nothing_left().await;
}
