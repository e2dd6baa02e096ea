//! Which job is next.

use evenkeel_core::attempt::{End, ExposureCause, FailReason};
use evenkeel_core::job::State;
use evenkeel_core::time::Timestamp;
use evenkeel_store::seam::NextDue;

use crate::world::{LATER, World, disrupted, failed, mine};

pub(crate) async fn the_longest_due_is_claimed_first(w: World) {
    let mut orders = Vec::new();
    for nth in 0..4 {
        let order = w.provision(&format!("i{nth}"));
        w.accept(&order).await;
        orders.push(order.job);
    }
    let claimed = w.claim(2).await;
    let ids: Vec<_> = claimed.iter().map(|one| one.job.id).collect();
    assert_eq!(ids, orders[..2]);
    let claimed = w.claim(9).await;
    let ids: Vec<_> = claimed.iter().map(|one| one.job.id).collect();
    assert_eq!(ids, orders[2..]);
    assert!(claimed.iter().all(|one| one.fence.token.0 == 1));
    assert!(w.claim(1).await.is_empty());
}

pub(crate) async fn services_take_turns(w: World) {
    for nth in 0..3 {
        for service in ["a", "b", "c"] {
            let instance = format!("{service}{nth}");
            w.accept(&w.of_service(service, &instance)).await;
        }
    }
    // One slot at a time, as it is under load.
    let mut turns = Vec::new();
    for _ in 0..9 {
        let claimed = w.claim(1).await.remove(0);
        turns.push(claimed.job.service.to_string());
    }
    for round in turns.chunks(3) {
        let mut round = round.to_vec();
        round.sort();
        assert_eq!(round, ["a", "b", "c"], "{turns:?}");
    }
}

pub(crate) async fn a_lone_newcomer_is_not_starved_by_a_long_line(w: World) {
    for nth in 0..20 {
        w.accept(&w.of_service("busy", &format!("i{nth}"))).await;
    }
    let first = w.claim(1).await.remove(0);
    w.accept(&w.of_service("quiet", "q")).await;
    w.end(first.fence, failed()).await;
    let next = w.claim(1).await.remove(0);
    assert_eq!(next.job.service.as_str(), "quiet");
}

pub(crate) async fn no_service_runs_more_than_its_share(w: World) {
    for nth in 0..5 {
        w.accept(&w.of_service("a", &format!("a{nth}"))).await;
    }
    w.accept(&w.of_service("b", "b")).await;
    let mut wish = w.wish(6);
    wish.per_service = 2;
    let claimed = w.store.claim_due(wish).await.unwrap();
    let of = |service: &str| {
        claimed
            .iter()
            .filter(|one| one.job.service.as_str() == service)
            .count()
    };
    assert_eq!((of("a"), of("b")), (2, 1));
    let mut wish = w.wish(6);
    wish.per_service = 2;
    assert!(w.store.claim_due(wish).await.unwrap().is_empty());
}

pub(crate) async fn a_backoff_is_over_when_it_is_due_and_when_the_clock_has_stepped_back(w: World) {
    w.accept(&w.provision("i")).await;
    let claimed = w.claim_one().await;
    let job = w.end(claimed.fence, End::TryLater).await;
    let State::Backoff { next_at } = job.state else {
        panic!("{:?}", job.state)
    };
    assert!(w.claim(1).await.is_empty());
    let at = |at: Timestamp| {
        let mut wish = w.wish(1);
        wish.at = at;
        wish
    };
    let early = Timestamp(next_at.0 - 1);
    assert!(w.store.claim_due(at(early)).await.unwrap().is_empty());
    let max = w.store.policy().backoff_max;
    let stepped = Timestamp(next_at.0 - i64::try_from(max.as_millis()).unwrap() - 1);
    let claimed = w.store.claim_due(at(stepped)).await.unwrap().remove(0);
    assert_eq!(claimed.job.attempts, 2);
    let finish = evenkeel_store::seam::Finish {
        at: next_at,
        ..w.finish(disrupted())
    };
    mine(w.store.finish_attempt(claimed.fence, finish).await.unwrap());
    let due = w.store.claim_due(at(next_at)).await.unwrap();
    assert_eq!(due[0].job.attempts, 3);
}

pub(crate) async fn a_suspect_is_claimed_alone_and_only_when_asked_for(w: World) {
    let suspect = w.provision("suspect");
    w.accept(&suspect).await;
    for _ in 0..2 {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        let cause = ExposureCause::VanishedWithBroker;
        w.end(claimed.fence, End::Exposed { cause }).await;
    }
    assert!(w.job(suspect.job).await.budget.suspect);
    w.pass(LATER);
    for nth in 0..2 {
        w.accept(&w.provision(&format!("i{nth}"))).await;
    }
    let due = w.store.next_due(w.now()).await.unwrap();
    assert!(due.due && due.suspect_first);
    assert_eq!(due.suspect, Some(suspect.job));
    let claimed = w.claim(1).await;
    assert_ne!(claimed[0].job.id, suspect.job);
    let mut wish = w.wish(3);
    wish.solo = true;
    let claimed = w.store.claim_due(wish).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].job.id, suspect.job);
    assert!(claimed[0].job.attempt().unwrap().solo.is_some());
    // No suspect is left: a solo turn is a turn like any other.
    let mut wish = w.wish(3);
    wish.solo = true;
    assert_eq!(w.store.claim_due(wish).await.unwrap().len(), 1);
}

pub(crate) async fn what_waits_past_its_deadline_ends_in_the_claim(w: World) {
    let mut late = w.provision("late");
    late.deadline_at = w.now();
    w.accept(&late).await;
    let sound = w.provision("sound");
    w.accept(&sound).await;
    let claimed = w.claim(1).await;
    assert_eq!(claimed[0].job.id, sound.job, "the slot is not lost");
    assert!(matches!(
        w.job(late.job).await.state,
        State::Failed {
            reason: FailReason::Deadline,
            ..
        }
    ));
    assert_eq!(
        w.status("late").await,
        evenkeel_core::instance::Status::CreateFailed
    );
}

/// A claim is one transaction: what it has to end is bounded, and the rest is for the next.
pub(crate) async fn one_claim_ends_so_many_that_may_not_run_and_no_more(w: World) {
    const BOUND: u64 = 256;
    for nth in 0..=BOUND {
        let mut late = w.provision(&format!("late{nth}"));
        late.deadline_at = late.at;
        w.accept(&late).await;
    }
    let sound = w.provision("sound");
    w.accept(&sound).await;
    assert!(w.claim(1).await.is_empty());
    let counts = w.store.counts().await.unwrap();
    assert_eq!((counts.failed, counts.queued), (BOUND, 2));
    assert_eq!(w.claim_one().await.job.id, sound.job);
}

pub(crate) async fn next_due_tells_when_there_is_work(w: World) {
    assert_eq!(w.store.next_due(w.now()).await.unwrap(), NextDue::default());
    w.accept(&w.provision("i")).await;
    assert!(w.store.next_due(w.now()).await.unwrap().due);
    let claimed = w.claim_one().await;
    let job = w.end(claimed.fence, End::TryLater).await;
    let State::Backoff { next_at } = job.state else {
        panic!("{:?}", job.state)
    };
    let due = w.store.next_due(w.now()).await.unwrap();
    assert_eq!(due.next_at, Some(next_at));
    assert!(!due.due);
    let due = w.store.next_due(next_at).await.unwrap();
    assert!(due.due);
}
