//! What operators, deadlines and retention do.

use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{End, ExposureCause, FailReason};
use evenkeel_core::budget::Budget;
use evenkeel_core::ids::{BootId, InstanceId, JobId, ServiceId};
use evenkeel_core::instance::Status;
use evenkeel_core::job::{QuarantineReason, State, StopReason};
use evenkeel_core::recovery::Exposure;
use evenkeel_store::seam::{Counts, Exposing, JobFilter, Marked, Retried, Stopped, Submission};
use uuid::Uuid;

use crate::world::{LATER, World, crashed, failed, mine};

const BY: &str = "operator";

/// How often somebody is on record to have cancelled a job.
async fn cancels(w: &World, job: JobId) -> usize {
    let detail = w.store.job(job).await.unwrap().unwrap();
    let cancels = detail.audit.iter().filter(|line| line.what == "cancel");
    cancels.count()
}

pub(crate) async fn a_waiting_job_is_stopped_at_once_and_a_running_one_is_asked(w: World) {
    let stop = |job| w.store.stop_job(job, StopReason::Operator, BY, w.now());
    assert_eq!(
        stop(JobId(Uuid::from_u128(99))).await.unwrap(),
        Stopped::Unknown
    );
    let order = w.provision("waiting");
    w.accept(&order).await;
    let Stopped::Ended(job) = stop(order.job).await.unwrap() else {
        panic!("it was waiting")
    };
    let by = StopReason::Operator;
    assert_eq!(job.state, State::Cancelled { by });
    assert_eq!(cancels(&w, order.job).await, 1);
    assert_eq!(w.status("waiting").await, Status::CreateFailed);
    assert!(w.claim(1).await.is_empty());

    w.accept(&w.provision("running")).await;
    let claimed = w.claim_one().await;
    for _ in 0..2 {
        let asked = stop(claimed.job.id).await.unwrap();
        assert_eq!(asked, Stopped::Asked(claimed.fence));
    }
    assert_eq!(w.store.stopping(w.boot).await.unwrap(), [claimed.fence]);
    let other = BootId(Uuid::from_u128(5));
    assert!(w.store.stopping(other).await.unwrap().is_empty());
    let asked = cancels(&w, claimed.job.id).await;
    assert_eq!(asked, 1, "asked once, on record once");
    let job = w.end(claimed.fence, End::Stopped).await;
    assert!(matches!(job.state, State::Cancelled { .. }));
    assert!(w.store.stopping(w.boot).await.unwrap().is_empty());
}

pub(crate) async fn deadlines_end_what_waits_and_ask_what_runs_once(w: World) {
    let deadline_at = w.now().plus(Duration::from_secs(60));
    let with_deadline = |instance| Submission {
        deadline_at,
        ..w.provision(instance)
    };
    let running = with_deadline("running");
    w.accept(&running).await;
    let claimed = w.claim_one().await;
    let waiting = with_deadline("waiting");
    w.accept(&waiting).await;
    assert!(w.store.expire(w.now(), 10).await.unwrap().is_empty());
    let late = deadline_at;
    assert_eq!(
        w.store.expire(late, 10).await.unwrap(),
        [claimed.fence],
        "its owner acts on it"
    );
    let failed = State::Failed {
        reason: FailReason::Deadline,
        message: None,
    };
    assert_eq!(w.job(waiting.job).await.state, failed);
    assert_eq!(w.status("waiting").await, Status::CreateFailed);
    assert!(w.store.expire(late, 10).await.unwrap().is_empty());
    assert_eq!(w.store.stopping(w.boot).await.unwrap(), [claimed.fence]);
    let job = w.end(claimed.fence, End::Stopped).await;
    assert_eq!(job.state, failed);
}

async fn quarantined(w: &World, order: &Submission) {
    w.accept(order).await;
    for _ in 0..3 {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        w.end(claimed.fence, crashed()).await;
    }
}

const SOON: Duration = Duration::from_secs(3600);

async fn retry(w: &World, job: JobId) -> Retried {
    w.store
        .retry(job, JobId(w.uuid()), BY, w.now(), w.now().plus(SOON))
        .await
        .unwrap()
}

pub(crate) async fn a_retry_clears_the_budget_on_record(w: World) {
    let order = w.provision("i");
    quarantined(&w, &order).await;
    let Retried::Queued(job) = retry(&w, order.job).await else {
        panic!("it can be retried")
    };
    assert_eq!(job.retry_of, Some(order.job));
    let times = (job.created_at, job.deadline_at);
    assert_eq!(times, (w.now(), w.now().plus(SOON)), "not those of before");
    assert_eq!(job.budget, Budget::default());
    assert_eq!(job.state, State::Queued);
    assert_eq!(w.job(job.id).await, *job);
    assert_eq!(w.status("i").await, Status::Creating);
    let old = w.store.job(order.job).await.unwrap().unwrap();
    assert!(matches!(
        old.job.state,
        State::Quarantined {
            reason: QuarantineReason::Crashes { count: 3 }
        }
    ));
    let line = old.audit.iter().find(|line| line.what == "retry").unwrap();
    assert_eq!(line.actor, BY);
    assert!(line.detail.contains("budget cleared"), "{}", line.detail);
    assert_eq!(w.store.counts().await.unwrap().quarantined, 0);
    // Said again after an answer that was lost.
    let again = w
        .store
        .retry(order.job, job.id, BY, w.now(), job.deadline_at)
        .await
        .unwrap();
    assert_eq!(again, Retried::Queued(job.clone()));
    assert_eq!(retry(&w, order.job).await, Retried::Busy(job.id));
    let claimed = w.claim_one().await;
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert!(inputs.body == order.body);
    w.end(claimed.fence, End::Succeeded).await;
    assert_eq!(w.status("i").await, Status::Ready);
}

pub(crate) async fn a_retry_is_refused_where_it_makes_no_sense(w: World) {
    let nobody = JobId(Uuid::from_u128(9999));
    assert_eq!(retry(&w, nobody).await, Retried::Unknown);
    let order = w.provision("i");
    w.accept(&order).await;
    let no = |retried: &Retried| matches!(retried, Retried::NotRetryable(_));
    assert!(no(&retry(&w, order.job).await), "not ended");
    let claimed = w.claim_one().await;
    w.end(claimed.fence, failed()).await;
    // A later job made it.
    w.run(&w.again(&order), End::Succeeded).await;
    assert!(no(&retry(&w, order.job).await), "made since");
    w.run(&w.bind("i", "b"), failed()).await;
    let update = w.submission(Action::Update, "i");
    w.run(&update, failed()).await;
    let unbind = w.unbind("i", "b");
    w.accept(&unbind).await;
    let busy = retry(&w, update.job).await;
    assert_eq!(busy, Retried::Busy(unbind.job), "its binding is at work");
    let claimed = w.claim_one().await;
    w.end(claimed.fence, failed()).await;
    w.accept(&w.deprovision("i", &["b"])).await;
    for _ in 0..2 {
        let claimed = w.claim_one().await;
        w.end(claimed.fence, End::Succeeded).await;
    }
    assert_eq!(retry(&w, order.job).await, Retried::TargetGone);
    assert_eq!(retry(&w, update.job).await, Retried::TargetGone);
    // The id lives again; the old life does not.
    w.ready("i").await;
    assert_eq!(retry(&w, update.job).await, Retried::TargetGone);
}

pub(crate) async fn a_discarded_provision_is_registered_as_a_leak(w: World) {
    let discard = |job| w.store.discard(job, BY, w.now());
    let nobody = JobId(Uuid::from_u128(9999));
    assert_eq!(discard(nobody).await.unwrap(), Marked::Unknown);
    let order = w.provision("i");
    quarantined(&w, &order).await;
    assert_eq!(w.store.counts().await.unwrap().quarantined, 1);
    assert_eq!(discard(order.job).await.unwrap(), Marked::Done);
    assert_eq!(discard(order.job).await.unwrap(), Marked::Already);
    let counts = w.store.counts().await.unwrap();
    assert_eq!((counts.quarantined, counts.leaks), (0, 1));
    let detail = w.store.job(order.job).await.unwrap().unwrap();
    assert_eq!(detail.discarded_at, Some(w.now()));
    assert!(detail.audit.iter().any(|line| line.what == "discard"));
    assert!(matches!(
        retry(&w, order.job).await,
        Retried::NotRetryable(_)
    ));
    let sound = w.provision("sound");
    w.run(&sound, End::Succeeded).await;
    assert_eq!(discard(sound.job).await.unwrap(), Marked::NotApplicable);
}

fn exposed() -> End {
    End::Exposed {
        cause: ExposureCause::VanishedWithBroker,
    }
}

pub(crate) async fn suspicion_is_lifted_by_hand(w: World) {
    let order = w.provision("i");
    w.accept(&order).await;
    let clear = || w.store.clear_suspicion(order.job, BY, w.now());
    assert_eq!(clear().await.unwrap(), Marked::Already);
    for _ in 0..2 {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        w.end(claimed.fence, exposed()).await;
    }
    w.pass(LATER);
    assert!(w.claim(1).await.is_empty(), "a suspect");
    assert_eq!(clear().await.unwrap(), Marked::Done);
    assert_eq!(clear().await.unwrap(), Marked::Already);
    assert_eq!(w.claim_one().await.job.id, order.job);
    let nobody = JobId(Uuid::from_u128(9999));
    let unknown = w.store.clear_suspicion(nobody, BY, w.now()).await;
    assert_eq!(unknown.unwrap(), Marked::Unknown);
}

pub(crate) async fn suspicion_lifted_by_way_of_an_older_job_frees_the_one_that_waits(w: World) {
    let old = w.provision("i");
    w.accept(&old).await;
    for end in [exposed(), exposed(), failed()] {
        w.pass(LATER);
        let mut wish = w.wish(1);
        wish.solo = true;
        let claimed = w.store.claim_due(wish).await.unwrap().remove(0);
        w.end(claimed.fence, end).await;
    }
    let waiting = w.again(&old);
    assert!(w.accept(&waiting).await.budget.suspect, "inherited");
    assert!(w.claim(1).await.is_empty());
    let cleared = w.store.clear_suspicion(old.job, BY, w.now()).await;
    assert_eq!(cleared.unwrap(), Marked::Done);
    assert_eq!(w.claim_one().await.job.id, waiting.job);
}

pub(crate) async fn suspects_are_counted_and_listed_until_they_are_final(w: World) {
    let suspects = async || {
        let filter = JobFilter {
            suspect: true,
            limit: 9,
            ..JobFilter::default()
        };
        let listed = w.store.jobs(&filter).await.unwrap();
        let ids: Vec<_> = listed.iter().map(|one| one.job.id).collect();
        let counted = w.store.counts().await.unwrap().suspects;
        assert_eq!(counted, ids.len() as u64);
        ids
    };
    let old = w.provision("i");
    w.accept(&old).await;
    for expected in [&[][..], &[old.job]] {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        w.end(claimed.fence, exposed()).await;
        assert_eq!(suspects().await, expected);
    }
    w.accept(&w.provision("innocent")).await;
    w.pass(LATER);
    let mut wish = w.wish(1);
    wish.solo = true;
    let claimed = w.store.claim_due(wish).await.unwrap().remove(0);
    assert_eq!(suspects().await, [old.job], "while it runs, too");
    // Its account keeps the suspicion, but nothing of this job is to be isolated any more.
    let ended = w.end(claimed.fence, failed()).await;
    assert!(ended.state.is_final() && ended.budget.suspect);
    assert!(suspects().await.is_empty());
    let next = w.again(&old);
    w.accept(&next).await;
    assert_eq!(suspects().await, [next.job], "inherited");
    let clear = w.store.clear_suspicion(next.job, BY, w.now());
    assert_eq!(clear.await.unwrap(), Marked::Done);
    assert!(suspects().await.is_empty());
}

pub(crate) async fn a_condemned_run_is_to_stop(w: World) {
    w.accept(&w.provision("i")).await;
    let owned = w.claim_one().await;
    let stopping = || w.store.stopping(owned.fence.boot);
    for nth in 1..=3 {
        assert!(stopping().await.unwrap().is_empty(), "{nth}");
        let near = Exposing {
            exposure: Exposure {
                boot: BootId(Uuid::from_u128(0xB009 + u128::from(nth))),
                cause: ExposureCause::NamedByBlackBox,
                named: true,
                exclusive: true,
            },
            ran: Duration::from_secs(1),
            at: w.now(),
        };
        let job = mine(w.store.expose(owned.fence, near).await.unwrap());
        assert_eq!(job.budget.losses, nth);
    }
    assert_eq!(stopping().await.unwrap(), [owned.fence]);
    let job = w.end(owned.fence, End::Stopped).await;
    let reason = QuarantineReason::Losses { count: 3 };
    assert_eq!(job.state, State::Quarantined { reason });
}

pub(crate) async fn counts_count(w: World) {
    assert_eq!(w.store.counts().await.unwrap(), Counts::default());
    w.ready("ready").await;
    w.run(&w.provision("failed"), failed()).await;
    w.run(&w.bind("ready", "b"), End::Succeeded).await;
    let waiting = w.provision("later");
    w.accept(&waiting).await;
    let claimed = w.claim_one().await;
    w.end(claimed.fence, End::TryLater).await;
    w.accept(&w.provision("running")).await;
    w.claim_one().await;
    let cancelled = w.provision("cancelled");
    w.accept(&cancelled).await;
    let stop = w
        .store
        .stop_job(cancelled.job, StopReason::Operator, BY, w.now());
    stop.await.unwrap();
    w.accept(&w.provision("queued")).await;
    assert_eq!(
        w.store.counts().await.unwrap(),
        Counts {
            queued: 1,
            running: 1,
            backoff: 1,
            succeeded: 2,
            failed: 1,
            cancelled: 1,
            quarantined: 0,
            suspects: 0,
            instances: 6,
            bindings: 1,
            leaks: 0,
        }
    );
}

pub(crate) async fn lists_are_filtered_and_paged(w: World) {
    let mut ids = Vec::new();
    for nth in 0..5 {
        let service = if nth % 2 == 0 { "even" } else { "odd" };
        let order = w.of_service(service, &format!("i{nth}"));
        w.accept(&order).await;
        ids.push(order.job);
    }
    let list = |filter: JobFilter| {
        let store = w.store.clone();
        async move {
            let found = store.jobs(&filter).await.unwrap();
            found.iter().map(|one| one.job.id).collect::<Vec<_>>()
        }
    };
    let page = |before, limit| JobFilter {
        before,
        limit,
        ..JobFilter::default()
    };
    assert_eq!(list(page(None, 2)).await, [ids[4], ids[3]]);
    assert_eq!(list(page(Some(ids[3]), 9)).await, [ids[2], ids[1], ids[0]]);
    let claimed = w.claim(1).await.remove(0).job.id;
    let running = JobFilter {
        states: vec!["running".into(), "backoff".into()],
        ..page(None, 9)
    };
    assert_eq!(list(running).await, [claimed]);
    let odd = JobFilter {
        service: Some(ServiceId::new("odd").unwrap()),
        ..page(None, 9)
    };
    assert_eq!(list(odd).await, [ids[3], ids[1]]);
    let one = JobFilter {
        instance: Some(InstanceId::new("i2").unwrap()),
        ..page(None, 9)
    };
    assert_eq!(list(one).await, [ids[2]]);
}

pub(crate) async fn retention_keeps_what_may_still_be_asked_for(w: World) {
    let gone = w.provision("gone");
    w.run(&gone, End::Succeeded).await;
    w.run(&w.deprovision("gone", &[]), End::Succeeded).await;
    let alive = w.provision("alive");
    w.run(&alive, failed()).await;
    let latest = w.again(&alive);
    w.run(&latest, End::Succeeded).await;
    let open = w.provision("open");
    quarantined(&w, &open).await;
    w.pass(LATER);
    // Not the latest of its target: kept for its own sake.
    let delete = w.deprovision("open", &[]);
    w.run(&delete, failed()).await;
    w.pass(LATER);
    let early = w.store.purge(alive.at, 100).await.unwrap();
    assert!(early <= 2, "{early}: only what ended before");
    let long_after = w.now().plus(Duration::from_secs(30 * 86_400));
    let mut removed = early;
    loop {
        let some = w.store.purge(long_after, 1).await.unwrap();
        assert!(some <= 1, "the limit holds");
        removed += some;
        if some == 0 {
            break;
        }
    }
    assert_eq!(removed, 3, "two of the gone instance, one of the living");
    assert!(w.store.job(gone.job).await.unwrap().is_none());
    assert!(w.store.job(alive.job).await.unwrap().is_none());
    assert!(w.store.instance(&gone.instance).await.unwrap().is_none());
    let poll = w.store.operation(&alive.instance, None, None).await;
    assert_eq!(poll.unwrap().unwrap().job.id, latest.job);
    // I13: nobody has dealt with it.
    let kept = w.store.job(open.job).await.unwrap().unwrap();
    assert!(!kept.audit.is_empty() && kept.attempts.len() == 3);
    assert!(w.store.job(delete.job).await.unwrap().is_some());
    let discarded = w.store.discard(open.job, BY, w.now()).await;
    assert_eq!(discarded.unwrap(), Marked::Done);
    assert_eq!(w.store.purge(long_after, 100).await.unwrap(), 1);
    assert!(w.store.job(open.job).await.unwrap().is_none());
}

pub(crate) async fn of_orders_on_a_spent_budget_the_latest_is_kept(w: World) {
    let first = w.provision("i");
    quarantined(&w, &first).await;
    let untried: Vec<_> = (0..3).map(|_| w.again(&first)).collect();
    for order in &untried {
        w.accept(order).await;
    }
    let long_after = w.now().plus(Duration::from_secs(60 * 86_400));
    assert_eq!(w.store.purge(long_after, 100).await.unwrap(), 2);
    let reason = QuarantineReason::BudgetSpent;
    let kept = w.store.job(untried[2].job).await.unwrap().unwrap();
    assert_eq!(kept.job.state, State::Quarantined { reason });
    let crashed = w.store.job(first.job).await.unwrap().unwrap();
    assert_eq!(crashed.attempts.len(), 3, "the one that tells why");
}

/// I10.
pub(crate) async fn setting_aside_is_final_and_delays_nobody(w: World) {
    let order = w.provision("i");
    w.accept(&order).await;
    let claimed = w.claim_one().await;
    let delete = w.deprovision("i", &[]);
    w.accept(&delete).await;
    for _ in 0..2 {
        w.store
            .set_aside(&order.job.to_string(), "cannot be read", w.now())
            .await
            .unwrap();
    }
    let reason = QuarantineReason::Unreadable {
        message: "cannot be read".into(),
    };
    let detail = w.store.job(order.job).await.unwrap().unwrap();
    assert_eq!(detail.job.state, State::Quarantined { reason });
    assert!(matches!(
        detail.attempts[0].end,
        Some(End::Unreadable { .. })
    ));
    assert_eq!(w.status("i").await, Status::Deleting);
    assert!(matches!(
        w.store
            .finish_attempt(claimed.fence, w.finish(End::Succeeded))
            .await
            .unwrap(),
        evenkeel_store::seam::Owned::Lost
    ));
    assert_eq!(w.claim_one().await.job.id, delete.job);
    w.store
        .set_aside("no such job", "cannot be read", w.now())
        .await
        .unwrap();
}
