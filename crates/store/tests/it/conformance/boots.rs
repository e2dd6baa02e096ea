//! Boots, recovery's questions, and the store's own health.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_core::attempt::End;
use evenkeel_core::boot::DeathRecord;
use evenkeel_core::ids::{AttemptId, BootId, InstanceUid};
use evenkeel_core::time::Timestamp;
use evenkeel_store::seam::{NewBoot, RunningRow};
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
    w.store.mark_drained(boot, None, marked).await.unwrap();
    w.pass(Duration::from_secs(5));
    w.store
        .mark_drained(boot, Some("the claimer"), w.now())
        .await
        .unwrap();
    w.store.boot_seen(boot, w.now()).await.unwrap();
    let known = w.store.boot(boot).await.unwrap().unwrap();
    assert_eq!(known.drained_at, Some(marked));
    assert!(known.ended_in_order(), "it was asked first: {known:?}");
    assert_eq!(known.seen_at, w.now());
    assert_eq!(known.host_boot, "host");
    assert_eq!(known.run_root, w.run_root);
}

pub(crate) async fn what_broke_a_boot_stays_with_its_drain_mark(w: World) {
    let boot = BootId(w.uuid());
    w.store.open_boot(&w.new_boot(boot)).await.unwrap();
    let broke = Some("the claimer");
    w.store.mark_drained(boot, broke, w.now()).await.unwrap();
    w.store.mark_drained(boot, None, w.now()).await.unwrap();
    let asked = death(w.now(), true);
    w.store.boot_died(boot, asked).await.unwrap();
    let known = w.store.boot(boot).await.unwrap().unwrap();
    assert_eq!(known.broke.as_deref(), broke);
    assert!(known.drained_at.is_some() && !known.ended_in_order());
}

/// The clock was set back between them.
pub(crate) async fn boots_are_in_the_order_in_which_they_began_whatever_the_clock_says(w: World) {
    let mut boots = Vec::new();
    for (id, at) in [(0xB7, 5_000), (0xB3, 4_000), (0xB5, -1), (0xB1, 4_000)] {
        let id = BootId(Uuid::from_u128(id));
        let new = NewBoot {
            at: Timestamp(at),
            ..w.new_boot(id)
        };
        w.store.open_boot(&new).await.unwrap();
        w.store.open_boot(&new).await.unwrap();
        boots.push(id);
    }
    let open = w.store.open_boots().await.unwrap();
    assert_eq!(open.iter().map(|boot| boot.id).collect::<Vec<_>>(), boots);
    assert!(open.is_sorted_by(|one, next| one.nth < next.nth));
    let newest = w.store.boots(9).await.unwrap();
    let newest: Vec<_> = newest.iter().map(|view| view.boot.id).collect();
    assert!(newest.iter().eq(boots.iter().rev()), "{newest:?}");
    w.store.mark_drained(boots[3], None, w.now()).await.unwrap();
    let ends = w.store.boot_ends(BootId(w.uuid()), 2).await.unwrap();
    let orderly: Vec<_> = ends.iter().map(|end| end.orderly).collect();
    assert_eq!(orderly, [true, false], "the last that began is the newest");
}

pub(super) fn death(ended_at: Timestamp, asked_to_end: bool) -> DeathRecord {
    DeathRecord {
        signal: Some(11),
        core_dumped: true,
        asked_to_end,
        peak_memory: 1 << 40,
        cpu_millis: 7,
        host_oom: true,
        last_words: "a secret, perhaps".to_owned(),
        ..DeathRecord::at(ended_at)
    }
}

pub(crate) async fn how_a_boot_ended_is_kept_once_without_its_last_words(w: World) {
    let boots: Vec<_> = (0..3).map(|_| BootId(w.uuid())).collect();
    for boot in &boots {
        w.pass(Duration::from_secs(1));
        w.store.open_boot(&w.new_boot(*boot)).await.unwrap();
    }
    let unasked = death(w.now(), false);
    let asked = death(w.now(), true);
    w.store.boot_died(boots[0], unasked.clone()).await.unwrap();
    w.store.boot_died(boots[0], asked.clone()).await.unwrap();
    w.store.boot_died(boots[1], asked.clone()).await.unwrap();
    let newest = w.store.boots(2).await.unwrap();
    let ids: Vec<_> = newest.iter().map(|view| view.boot.id).collect();
    assert_eq!(ids, [boots[2], boots[1]], "newest first");
    let all = w.store.boots(9).await.unwrap();
    assert_eq!(all[0].death, None);
    assert_eq!(all[1].death, Some(asked.clone().without_words()));
    assert_eq!(
        all[1].boot.drained_at,
        Some(asked.ended_at),
        "as good as a mark"
    );
    assert_eq!(all[2].death, Some(unasked.without_words()), "the first one");
    assert_eq!(all[2].boot.drained_at, None);
    // The boot's own mark was there before.
    let marked = w.now();
    w.store.mark_drained(boots[2], None, marked).await.unwrap();
    w.pass(Duration::from_secs(1));
    w.store
        .boot_died(boots[2], death(w.now(), true))
        .await
        .unwrap();
    let known = w.store.boot(boots[2]).await.unwrap().unwrap();
    assert_eq!(known.drained_at, Some(marked));
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
