//! Order on one instance: deletes in every state, bindings before their instance.

use evenkeel_core::action::Action;
use evenkeel_core::admit::Verdict;
use evenkeel_core::attempt::End;
use evenkeel_core::ids::{BindingId, InstanceId};
use evenkeel_core::instance::Status;
use evenkeel_core::job::{State, StopReason};
use evenkeel_store::seam::{Submission, Submitted};
use serde_json::json;

use crate::world::{LATER, SECRET, World, crashed, failed, mine};

/// I12, and DESIGN: a run that succeeded after a cancel was asked ends as cancelled with its
/// outputs kept.
pub(crate) async fn a_delete_during_create_waits_keeps_the_outputs_and_cleans_up(w: World) {
    let create = w.provision("i");
    w.accept(&create).await;
    let running = w.claim_one().await;
    let delete = w.deprovision("i", &[]);
    let Submitted::Accepted { job, stopped } = w.submit(&delete).await else {
        panic!("a delete is accepted in every state")
    };
    assert_eq!(stopped, [create.job]);
    assert_eq!(job.state, State::Queued);
    assert_eq!(w.status("i").await, Status::Deleting);
    // Told again after an answer that was lost.
    let Submitted::Accepted { stopped, .. } = w.submit(&delete).await else {
        panic!("the same job")
    };
    assert_eq!(stopped, [create.job]);
    assert_eq!(
        w.submit(&w.again(&delete)).await,
        Submitted::Refused(Verdict::InProgress(delete.job))
    );
    assert!(w.claim(2).await.is_empty(), "the create has not ended");
    assert_eq!(w.store.stopping(w.boot).await.unwrap(), [running.fence]);
    let by = StopReason::Superseded { job: delete.job };
    let job = w.end(running.fence, End::Succeeded).await;
    assert_eq!(job.state, State::Cancelled { by });
    assert_eq!(job.superseded_by, Some(delete.job));
    assert_eq!(
        w.status("i").await,
        Status::Deleting,
        "the status belongs to the delete now"
    );
    let view = w.store.instance(&create.instance).await.unwrap().unwrap();
    assert!(view.outputs.credentials.is_some(), "kept for the delete");
    let claimed = w.claim_one().await;
    assert_eq!(claimed.job.id, delete.job);
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert_eq!(inputs.data.instance, Some(json!({ "private": SECRET })));
    w.end(claimed.fence, End::Succeeded).await;
    assert_eq!(w.status("i").await, Status::Deleted);
}

pub(crate) async fn a_delete_of_a_waiting_create_ends_it_at_once(w: World) {
    let create = w.provision("i");
    w.accept(&create).await;
    let delete = w.deprovision("i", &[]);
    let Submitted::Accepted { stopped, .. } = w.submit(&delete).await else {
        panic!("not accepted")
    };
    assert!(stopped.is_empty(), "nothing runs");
    assert!(w.job(create.job).await.state.is_final());
    assert_eq!(w.status("i").await, Status::Deleting);
    assert_eq!(w.claim_one().await.job.id, delete.job);
}

/// I12.
pub(crate) async fn a_delete_is_accepted_in_every_state(w: World) {
    for status in [
        Status::Creating,
        Status::Ready,
        Status::CreateFailed,
        Status::DeleteFailed,
    ] {
        let instance = format!("in-{}", status.as_str());
        let create = w.provision(&instance);
        match status {
            Status::Creating => {
                w.accept(&create).await;
            }
            Status::Ready => w.ready(&instance).await,
            Status::CreateFailed => {
                w.run(&create, failed()).await;
            }
            Status::DeleteFailed => {
                w.ready(&instance).await;
                w.run(&w.deprovision(&instance, &[]), failed()).await;
            }
            Status::Deleting | Status::Deleted => unreachable!(),
        }
        assert_eq!(w.status(&instance).await, status);
        w.run(&w.deprovision(&instance, &[]), End::Succeeded).await;
        assert_eq!(w.status(&instance).await, Status::Deleted);
        assert_eq!(
            w.submit(&w.deprovision(&instance, &[])).await,
            Submitted::Refused(Verdict::NoInstance)
        );
    }
    // An update under way, and one in backoff.
    w.ready("u").await;
    w.accept(&w.submission(Action::Update, "u")).await;
    let update = w.claim_one().await;
    w.end(update.fence, crashed()).await;
    w.pass(LATER);
    let update = w.claim_one().await;
    w.accept(&w.deprovision("u", &[])).await;
    w.end(update.fence, End::Stopped).await;
    assert_eq!(w.status("u").await, Status::Deleting);
    let delete = w.claim_one().await;
    w.end(delete.fence, End::Succeeded).await;
    assert_eq!(w.status("u").await, Status::Deleted);
}

async fn bound(w: &World, bindings: &[&str]) {
    w.ready("i").await;
    for binding in bindings {
        w.run(&w.bind("i", binding), End::Succeeded).await;
    }
}

pub(crate) async fn a_delete_unbinds_what_is_bound_first(w: World) {
    bound(&w, &["b1", "b2"]).await;
    let delete = w.deprovision("i", &["b1", "b2"]);
    w.accept(&delete).await;
    let detail = w.store.job(delete.job).await.unwrap().unwrap();
    let mut after = detail.after.clone();
    let mut unbinds: Vec<_> = delete.cascade.iter().map(|one| one.job).collect();
    after.sort();
    unbinds.sort();
    assert_eq!(after, unbinds);
    let claimed = w.claim(5).await;
    assert_eq!(claimed.len(), 2);
    assert!(claimed.iter().all(|one| one.job.action == Action::Unbind));
    let inputs = mine(w.store.inputs(claimed[0].fence).await.unwrap());
    assert!(inputs.body == delete.cascade[0].body);
    for (nth, one) in claimed.iter().enumerate() {
        assert!(w.claim(1).await.is_empty(), "{nth} of 2 have ended");
        w.end(one.fence, End::Succeeded).await;
    }
    let last = w.claim_one().await;
    assert_eq!(last.job.id, delete.job);
    w.end(last.fence, End::Succeeded).await;
    assert_eq!(w.status("i").await, Status::Deleted);
    assert_eq!(w.binding_status("i", "b1").await, Status::Deleted);
}

pub(crate) async fn a_delete_takes_over_a_bind_under_way(w: World) {
    w.ready("i").await;
    let bind = w.bind("i", "b");
    w.accept(&bind).await;
    let running = w.claim_one().await;
    let delete = w.deprovision("i", &["b"]);
    let Submitted::Accepted { stopped, .. } = w.submit(&delete).await else {
        panic!("not accepted")
    };
    assert_eq!(stopped, [bind.job]);
    let unbind = delete.cascade[0].job;
    assert_eq!(w.job(bind.job).await.superseded_by, Some(unbind));
    assert_eq!(w.binding_status("i", "b").await, Status::Deleting);
    assert!(w.claim(5).await.is_empty());
    w.end(running.fence, End::Succeeded).await;
    assert_eq!(w.binding_status("i", "b").await, Status::Deleting);
    let claimed = w.claim_one().await;
    assert_eq!(claimed.job.id, unbind);
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert!(inputs.data.binding.is_some());
    w.end(claimed.fence, End::Succeeded).await;
    assert_eq!(w.claim_one().await.job.id, delete.job);
}

pub(crate) async fn a_delete_joins_an_unbind_under_way(w: World) {
    bound(&w, &["b"]).await;
    let unbind = w.unbind("i", "b");
    w.accept(&unbind).await;
    let running = w.claim_one().await;
    let delete = w.deprovision("i", &["b"]);
    let Submitted::Accepted { stopped, .. } = w.submit(&delete).await else {
        panic!("not accepted")
    };
    assert!(stopped.is_empty(), "the unbind goes on");
    let detail = w.store.job(delete.job).await.unwrap().unwrap();
    assert_eq!(detail.after, [unbind.job]);
    assert!(w.store.job(delete.cascade[0].job).await.unwrap().is_none());
    w.end(running.fence, End::Succeeded).await;
    assert_eq!(w.claim_one().await.job.id, delete.job);
}

pub(crate) async fn a_cascade_that_is_out_of_date_is_stale(w: World) {
    bound(&w, &["b1"]).await;
    for wrong in [&[][..], &["b1", "b2"], &["b2"]] {
        let delete = w.deprovision("i", wrong);
        assert_eq!(w.submit(&delete).await, Submitted::Stale);
        assert!(w.store.job(delete.job).await.unwrap().is_none());
    }
    assert_eq!(w.status("i").await, Status::Ready);
    w.accept(&w.deprovision("i", &["b1"])).await;
}

pub(crate) async fn bindings_go_without_jobs_where_there_is_no_unbind(w: World) {
    bound(&w, &["b1"]).await;
    let bind = w.bind("i", "b2");
    w.accept(&bind).await;
    let running = w.claim_one().await;
    let delete = Submission {
        cascade_without_jobs: true,
        ..w.deprovision("i", &[])
    };
    let Submitted::Accepted { stopped, .. } = w.submit(&delete).await else {
        panic!("not accepted")
    };
    assert_eq!(stopped, [bind.job]);
    assert!(w.claim(5).await.is_empty(), "the bind has not ended");
    w.end(running.fence, End::Stopped).await;
    let claimed = w.claim_one().await;
    assert_eq!(claimed.job.id, delete.job);
    w.end(claimed.fence, End::Succeeded).await;
    for binding in ["b1", "b2"] {
        assert_eq!(w.binding_status("i", binding).await, Status::Deleted);
    }
    let counts = w.store.counts().await.unwrap();
    assert_eq!((counts.instances, counts.bindings), (0, 0));
}

pub(crate) async fn an_unbind_waits_for_what_runs_on_the_instance(w: World) {
    bound(&w, &["b"]).await;
    w.accept(&w.submission(Action::Update, "i")).await;
    let update = w.claim_one().await;
    let unbind = w.unbind("i", "b");
    w.accept(&unbind).await;
    assert!(w.claim(1).await.is_empty());
    let refused = w.submit(&w.bind("i", "b2")).await;
    assert!(
        matches!(
            refused,
            Submitted::Refused(Verdict::Busy(_, Action::Update))
        ),
        "{refused:?}"
    );
    w.end(update.fence, End::Succeeded).await;
    assert_eq!(w.claim_one().await.job.id, unbind.job);
}

pub(crate) async fn what_waits_for_a_binding_that_is_gone_ends(w: World) {
    bound(&w, &["b"]).await;
    w.accept(&w.deprovision("i", &["b"])).await;
    let unbind = w.claim_one().await;
    w.end(unbind.fence, failed()).await;
    assert_eq!(w.binding_status("i", "b").await, Status::DeleteFailed);
    let delete = w.claim_one().await;
    // Asked for once more while the delete runs: it queues behind it.
    let late = w.unbind("i", "b");
    w.accept(&late).await;
    w.end(delete.fence, End::Succeeded).await;
    let by = StopReason::Superseded { job: delete.job.id };
    assert_eq!(w.job(late.job).await.state, State::Cancelled { by });
    assert!(w.claim(1).await.is_empty());
    let (i, b) = (InstanceId::new("i").unwrap(), BindingId::new("b").unwrap());
    let poll = w.store.operation(&i, Some(&b), Some(late.job)).await;
    assert!(poll.unwrap().unwrap().target_deleted);
}

pub(crate) async fn binds_of_one_instance_run_side_by_side(w: World) {
    w.ready("i").await;
    w.accept(&w.bind("i", "b1")).await;
    w.accept(&w.bind("i", "b2")).await;
    assert_eq!(w.claim(5).await.len(), 2);
    let refused = w.submit(&w.submission(Action::Update, "i")).await;
    assert!(matches!(
        refused,
        Submitted::Refused(Verdict::Busy(_, Action::Bind))
    ));
}

pub(crate) async fn a_failed_unbind_lets_the_delete_go_on(w: World) {
    bound(&w, &["b"]).await;
    w.accept(&w.deprovision("i", &["b"])).await;
    let unbind = w.claim_one().await;
    w.end(unbind.fence, failed()).await;
    let delete = w.claim_one().await;
    w.end(delete.fence, failed()).await;
    assert_eq!(w.status("i").await, Status::DeleteFailed);
    assert_eq!(w.binding_status("i", "b").await, Status::DeleteFailed);
    // Both are asked for again, and end well.
    w.accept(&w.deprovision("i", &["b"])).await;
    let unbind = w.claim_one().await;
    w.end(unbind.fence, End::Succeeded).await;
    let delete = w.claim_one().await;
    w.end(delete.fence, End::Succeeded).await;
    assert_eq!(w.status("i").await, Status::Deleted);
}
