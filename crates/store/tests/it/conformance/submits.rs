//! Accepting jobs.

use std::sync::Arc;

use evenkeel_core::action::Action;
use evenkeel_core::admit::Verdict;
use evenkeel_core::attempt::End;
use evenkeel_core::ids::{InstanceId, PlanId};
use evenkeel_core::instance::Status;
use evenkeel_core::job::{QuarantineReason, State};
use evenkeel_core::request::Outputs;
use evenkeel_store::seam::{JobFilter, Submitted};
use serde_json::json;
use tokio::task::JoinSet;

use crate::world::{LATER, World, crashed, failed, mine, object};

pub(crate) async fn an_accepted_job_is_queued_with_all_it_was_given(w: World) {
    let order = w.provision("i");
    let job = w.accept(&order).await;
    assert_eq!(job.id, order.job);
    assert_eq!(job.state, State::Queued);
    assert_eq!(job.target.instance, order.new_instance_uid);
    assert_eq!(job.platform, order.platform);
    assert_eq!(job.bundle, order.bundle);
    assert_eq!(job.deadline_at, order.deadline_at);
    assert_eq!(job.retries, 1);
    let detail = w.store.job(order.job).await.unwrap().unwrap();
    assert_eq!(detail.job, job);
    assert_eq!(detail.instance, order.instance);
    assert_eq!(detail.audit.len(), 1);
    assert_eq!(detail.audit[0].what, "submit");
    assert_eq!(detail.audit[0].actor, "platform:cf");
    let view = w.store.instance(&order.instance).await.unwrap().unwrap();
    assert_eq!(view.status, Status::Creating);
    assert_eq!(view.active[0].id, order.job);
    assert_eq!(view.parameters, order.body.instance.parameters);
    let standing = w.store.standing(&order.instance, None).await.unwrap();
    assert_eq!(standing.bundle, Some(order.bundle));
    assert_eq!(standing.platform, Some(order.platform));
}

pub(crate) async fn a_repeated_submission_is_the_same_job(w: World) {
    let order = w.provision("i");
    let first = w.accept(&order).await;
    assert_eq!(w.accept(&order).await, first);
    assert_eq!(w.store.counts().await.unwrap().queued, 1);
}

pub(crate) async fn an_identical_request_finds_the_job_under_way(w: World) {
    let order = w.provision("i");
    w.accept(&order).await;
    assert_eq!(
        w.submit(&w.again(&order)).await,
        Submitted::Refused(Verdict::InProgress(order.job))
    );
}

pub(crate) async fn of_thirty_two_identical_requests_one_makes_a_job(w: World) {
    let order = w.provision("i");
    let outcomes = at_once(&w, (0..32).map(|_| w.again(&order)).collect()).await;
    let accepted = accepted(&outcomes);
    assert_eq!(accepted.len(), 1);
    for outcome in &outcomes {
        match outcome {
            Submitted::Accepted { .. } => {}
            Submitted::Refused(Verdict::InProgress(job)) => assert_eq!(*job, accepted[0]),
            Submitted::Refused(_) | Submitted::Stale => panic!("{outcome:?}"),
        }
    }
    assert_eq!(w.store.counts().await.unwrap().queued, 1);
}

pub(crate) async fn of_thirty_two_different_requests_one_wins(w: World) {
    let orders = (0..32)
        .map(|nth| {
            let mut order = w.provision("i");
            order.digest = w.store.digest(format!("request {nth}").as_bytes());
            order
        })
        .collect();
    let outcomes = at_once(&w, orders).await;
    assert_eq!(accepted(&outcomes).len(), 1);
    let conflicts = outcomes
        .iter()
        .filter(|outcome| **outcome == Submitted::Refused(Verdict::Conflict));
    assert_eq!(conflicts.count(), 31);
    assert_eq!(w.store.jobs(&all()).await.unwrap().len(), 1);
}

fn all() -> JobFilter {
    JobFilter {
        limit: 100,
        ..JobFilter::default()
    }
}

async fn at_once(w: &World, orders: Vec<evenkeel_store::seam::Submission>) -> Vec<Submitted> {
    let mut tasks = JoinSet::new();
    for order in orders {
        let store = Arc::clone(&w.store);
        tasks.spawn(async move { store.submit(order).await.unwrap() });
    }
    tasks.join_all().await
}

fn accepted(outcomes: &[Submitted]) -> Vec<evenkeel_core::ids::JobId> {
    outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Submitted::Accepted { job, .. } => Some(job.id),
            Submitted::Refused(_) | Submitted::Stale => None,
        })
        .collect()
}

pub(crate) async fn a_made_instance_is_already_there_and_another_request_conflicts(w: World) {
    let order = w.provision("i");
    w.run(&order, End::Succeeded).await;
    assert_eq!(
        w.submit(&w.again(&order)).await,
        Submitted::Refused(Verdict::Already)
    );
    let mut other = w.again(&order);
    other.digest = w.store.digest(b"something else");
    assert_eq!(
        w.submit(&other).await,
        Submitted::Refused(Verdict::Conflict)
    );
}

pub(crate) async fn requests_without_an_instance_are_refused(w: World) {
    for (order, verdict) in [
        (w.submission(Action::Update, "i"), Verdict::NoInstance),
        (w.deprovision("i", &[]), Verdict::NoInstance),
        (w.bind("i", "b"), Verdict::NoInstance),
        (w.unbind("i", "b"), Verdict::NoBinding),
    ] {
        assert_eq!(w.submit(&order).await, Submitted::Refused(verdict));
    }
    w.ready("i").await;
    assert_eq!(
        w.submit(&w.unbind("i", "b")).await,
        Submitted::Refused(Verdict::NoBinding)
    );
}

pub(crate) async fn an_update_applies_what_it_desired_only_when_it_succeeds(w: World) {
    w.ready("i").await;
    let id = InstanceId::new("i").unwrap();
    let before = w.store.instance(&id).await.unwrap().unwrap();
    let update = || {
        let mut order = w.submission(Action::Update, "i");
        order.plan = PlanId::new("large").unwrap();
        order.body.plan.id = order.plan.clone();
        order.body.plan.maintenance_version = Some("2.0.0".into());
        order.body.instance.parameters = object(json!({ "size": 9 }));
        order
    };
    w.run(&update(), failed()).await;
    let after = w.store.instance(&id).await.unwrap().unwrap();
    assert_eq!(after.status, Status::Ready);
    assert_eq!(after.plan, before.plan);
    assert_eq!(after.parameters, before.parameters);
    assert_eq!(after.maintenance_version.as_deref(), Some("1.0.0"));
    let order = update();
    w.run(&order, End::Succeeded).await;
    let after = w.store.instance(&id).await.unwrap().unwrap();
    assert_eq!(after.plan, order.plan);
    assert_eq!(after.parameters, order.body.instance.parameters);
    assert_eq!(after.maintenance_version.as_deref(), Some("2.0.0"));
}

pub(crate) async fn an_update_that_writes_nothing_keeps_the_outputs(w: World) {
    w.ready("i").await;
    let id = InstanceId::new("i").unwrap();
    let before = w.store.instance(&id).await.unwrap().unwrap().outputs;
    assert!(before.credentials.is_some() && before.data.is_none());
    let order = w.submission(Action::Update, "i");
    w.accept(&order).await;
    let claimed = w.claim_one().await;
    let mut finish = w.finish(End::Succeeded);
    finish.outputs = Some(Outputs {
        dashboard_url: Some("https://new.example".into()),
        ..Outputs::default()
    });
    mine(w.store.finish_attempt(claimed.fence, finish).await.unwrap());
    let after = w.store.instance(&id).await.unwrap().unwrap().outputs;
    assert_eq!(after.credentials, before.credentials);
    assert_eq!(after.dashboard_url.as_deref(), Some("https://new.example"));
    let inputs = {
        w.accept(&w.submission(Action::Update, "i")).await;
        let claimed = w.claim_one().await;
        mine(w.store.inputs(claimed.fence).await.unwrap())
    };
    assert!(inputs.data.instance.is_some(), "data is kept if absent");
}

pub(crate) async fn a_failed_create_may_be_asked_for_again(w: World) {
    let order = w.provision("i");
    w.run(&order, failed()).await;
    assert_eq!(w.status("i").await, Status::CreateFailed);
    let again = w.again(&order);
    let job = w.accept(&again).await;
    assert_eq!(job.target.instance, order.new_instance_uid, "the same life");
    assert_eq!(w.status("i").await, Status::Creating);
}

pub(crate) async fn a_spent_budget_is_inherited_and_not_reopened_by_an_identical_request(w: World) {
    let order = w.provision("i");
    w.accept(&order).await;
    for _ in 0..3 {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        w.end(claimed.fence, crashed()).await;
    }
    assert!(matches!(
        w.job(order.job).await.state,
        State::Quarantined {
            reason: QuarantineReason::Crashes { count: 3 }
        }
    ));
    for _ in 0..2 {
        let again = w.again(&order);
        let job = w.accept(&again).await;
        assert_eq!(
            job.state,
            State::Quarantined {
                reason: QuarantineReason::BudgetSpent
            }
        );
        assert_eq!(job.budget.crashes, 3);
        assert_eq!(w.job(again.job).await, job);
        // Set aside at once, its target is settled as if it had failed.
        assert_eq!(w.status("i").await, Status::CreateFailed);
        assert!(w.claim(1).await.is_empty());
    }
    // A delete has an account of its own.
    w.run(&w.deprovision("i", &[]), End::Succeeded).await;
    assert_eq!(w.status("i").await, Status::Deleted);
}
