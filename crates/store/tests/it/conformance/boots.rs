//! Boots, recovery's questions, and the store's own health.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_core::attempt::End;
use evenkeel_core::ids::{AttemptId, BootId, InstanceUid};
use evenkeel_store::seam::RunningRow;
use uuid::Uuid;

use crate::world::World;

pub(crate) async fn a_verdict_is_given_once(w: World) {
    let boots: Vec<_> = (0..2).map(|_| BootId(w.uuid())).collect();
    for boot in &boots {
        w.pass(Duration::from_secs(1));
        let new = w.new_boot(*boot);
        w.store.open_boot(&new).await.unwrap();
        w.store.open_boot(&new).await.unwrap();
    }
    let open = w.store.open_boots().await.unwrap();
    let ids: Vec<_> = open.iter().map(|boot| boot.id).collect();
    assert_eq!(ids, boots, "oldest first");
    assert!(w.store.close_boot(boots[0], "died", w.now()).await.unwrap());
    assert!(!w.store.close_boot(boots[0], "died", w.now()).await.unwrap());
    let nobody = BootId(Uuid::from_u128(99));
    assert!(!w.store.close_boot(nobody, "died", w.now()).await.unwrap());
    assert_eq!(w.store.open_boots().await.unwrap().len(), 1);
    let closed = w.store.boot(boots[0]).await.unwrap().unwrap();
    assert_eq!(closed.closed_at, Some(w.now()));
    assert!(w.store.boot(nobody).await.unwrap().is_none());
}

pub(crate) async fn a_drain_mark_stays(w: World) {
    let boot = BootId(w.uuid());
    w.store.open_boot(&w.new_boot(boot)).await.unwrap();
    let marked = w.now();
    w.store.mark_drained(boot, marked).await.unwrap();
    w.pass(Duration::from_secs(5));
    w.store.mark_drained(boot, w.now()).await.unwrap();
    w.store.boot_seen(boot, w.now()).await.unwrap();
    let known = w.store.boot(boot).await.unwrap().unwrap();
    assert_eq!(known.drained_at, Some(marked));
    assert_eq!(known.seen_at, w.now());
    assert_eq!(known.host_boot, "host");
    assert_eq!(known.run_root, w.run_root);
}

pub(crate) async fn running_rows_come_page_by_page(w: World) {
    let mut expected = BTreeSet::new();
    for nth in 0..5 {
        let order = w.provision(&format!("i{nth}"));
        w.accept(&order).await;
        expected.insert(order.job);
    }
    w.claim(5).await;
    w.accept(&w.provision("waiting")).await;
    let mut found = Vec::new();
    loop {
        let page = w.store.running(found.last().copied(), 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        for row in page {
            let RunningRow::Sound(job) = row else {
                panic!("{row:?}")
            };
            assert!(job.attempt().is_some());
            found.push(job.id);
        }
    }
    assert!(found.is_sorted());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

pub(crate) async fn claimed_attempts_are_told_from_strays(w: World) {
    w.accept(&w.provision("i")).await;
    let claimed = w.claim_one().await;
    let stray = AttemptId(Uuid::from_u128(99));
    let ask = [stray, claimed.fence.attempt];
    let known = w.store.claimed_attempts(&ask).await.unwrap();
    assert_eq!(known, [claimed.fence.attempt]);
    w.end(claimed.fence, End::Succeeded).await;
    assert!(w.store.claimed_attempts(&ask).await.unwrap().is_empty());
}

pub(crate) async fn deleted_instances_are_told_from_living_and_unknown_ones(w: World) {
    let gone = w.provision("gone");
    w.run(&gone, End::Succeeded).await;
    w.run(&w.deprovision("gone", &[]), End::Succeeded).await;
    let again = w.provision("gone");
    w.run(&again, End::Succeeded).await;
    let uids = [
        gone.new_instance_uid,
        again.new_instance_uid,
        InstanceUid(Uuid::from_u128(99)),
    ];
    let deleted = w.store.deleted_instances(&uids).await.unwrap();
    assert_eq!(deleted, [gone.new_instance_uid]);
}

pub(crate) async fn the_store_checks_itself(w: World) {
    w.store.check().await.unwrap();
    w.store.check().await.unwrap();
    assert_eq!(w.store.policy(), evenkeel_core::policy::Policy::default());
}

pub(crate) async fn digests_tell_requests_apart(w: World) {
    assert_eq!(w.store.digest(b"a"), w.store.digest(b"a"));
    assert_ne!(w.store.digest(b"a"), w.store.digest(b"b"));
}
