//! What an update makes of the order that an instance answers to, and what only its context or
//! its owner changes.

use evenkeel_core::action::Action;
use evenkeel_core::admit::Verdict;
use evenkeel_core::attempt::End;
use evenkeel_core::ids::{BindingId, InstanceId, PlanId, Platform, RequestDigest};
use evenkeel_core::request::{Object, PredecessorInput};
use evenkeel_store::seam::{Base, Retried, Submission, Submitted};
use serde_json::json;

use crate::world::{World, failed, mine, object};

async fn digest(w: &World) -> RequestDigest {
    let id = InstanceId::new("i").unwrap();
    let standing = w.store.standing(&id, None).await.unwrap();
    standing.instance.unwrap().digest
}

async fn base(w: &World) -> Base {
    let id = InstanceId::new("i").unwrap();
    let view = w.store.instance(&id).await.unwrap().unwrap();
    Base {
        uid: view.uid,
        revision: view.revision,
    }
}

/// An update of the instance as it is now, into what `what` names.
async fn update(w: &World, what: &str) -> Submission {
    let mut order = w.submission(Action::Update, "i");
    order.digest = w.store.digest(what.as_bytes());
    order.base = Some(base(w).await);
    order.becomes = Some(w.store.digest(format!("order {what}").as_bytes()));
    order
}

pub(crate) async fn an_update_that_succeeds_moves_the_order_that_the_instance_answers_to(w: World) {
    w.ready("i").await;
    let first = digest(&w).await;
    let order = update(&w, "a").await;
    w.run(&order, failed()).await;
    assert_eq!(digest(&w).await, first);
    let order = update(&w, "b").await;
    w.accept(&order).await;
    assert_eq!(digest(&w).await, first, "not before it has succeeded");
    let claimed = w.claim_one().await;
    w.end(claimed.fence, End::Succeeded).await;
    assert_eq!(Some(digest(&w).await), order.becomes);
    let mut again = w.provision("i");
    assert_eq!(
        w.submit(&again).await,
        Submitted::Refused(Verdict::Conflict),
        "what it was"
    );
    again.digest = order.becomes.unwrap();
    assert_eq!(
        w.submit(&again).await,
        Submitted::Refused(Verdict::Already),
        "what it is"
    );
}

pub(crate) async fn an_update_of_what_has_been_updated_meanwhile_is_stale(w: World) {
    w.ready("i").await;
    let (one, other) = (update(&w, "a").await, update(&w, "b").await);
    w.run(&one, End::Succeeded).await;
    assert_eq!(w.submit(&other).await, Submitted::Stale);
    assert!(w.store.job(other.job).await.unwrap().is_none());
    let anew = update(&w, "b").await;
    w.accept(&anew).await;
}

pub(crate) async fn a_context_is_kept_where_no_job_is_under_way(w: World) {
    w.ready("i").await;
    let id = InstanceId::new("i").unwrap();
    let uid = w.store.instance(&id).await.unwrap().unwrap().uid;
    let context = object(json!({ "space_name": "renamed" }));
    let keep = async |context: &Object| {
        let kept = w.store.keep_context(uid, context.clone(), w.now()).await;
        kept.unwrap()
    };
    assert!(keep(&context).await);
    let view = w.store.instance(&id).await.unwrap().unwrap();
    assert_eq!(view.context, context);
    w.accept(&w.submission(Action::Update, "i")).await;
    assert!(!keep(&Object::new()).await, "an update may bring its own");
    let claimed = w.claim_one().await;
    w.end(claimed.fence, failed()).await;
    w.run(&w.deprovision("i", &[]), End::Succeeded).await;
    assert!(!keep(&context).await, "it is gone");
}

pub(crate) async fn what_another_platform_ordered_is_not_there_where_they_are_isolated(w: World) {
    w.ready("i").await;
    w.run(&w.bind("i", "b"), End::Succeeded).await;
    let stranger = |order: Submission| Submission {
        platform: Platform::new("stranger").unwrap(),
        isolated: true,
        ..order
    };
    for (order, verdict) in [
        (w.provision("i"), Verdict::Conflict),
        (w.submission(Action::Update, "i"), Verdict::NoInstance),
        (w.deprovision("i", &["b"]), Verdict::NoInstance),
        (w.bind("i", "c"), Verdict::NoInstance),
        (w.unbind("i", "b"), Verdict::NoBinding),
    ] {
        let what = order.action;
        let refused = Submitted::Refused(verdict);
        assert_eq!(w.submit(&stranger(order)).await, refused, "{what}");
    }
    let own = Submission {
        isolated: true,
        ..w.unbind("i", "b")
    };
    w.accept(&own).await;
}

pub(crate) async fn a_rotation_is_given_what_its_predecessor_keeps(w: World) {
    w.ready("i").await;
    w.run(&w.bind("i", "old"), End::Succeeded).await;
    let (id, old) = (
        InstanceId::new("i").unwrap(),
        BindingId::new("old").unwrap(),
    );
    let uid = w.store.binding(&id, &old).await.unwrap().unwrap().uid;
    let rotate = |binding: &str| {
        let mut order = w.bind("i", binding);
        let predecessor = PredecessorInput {
            id: "old".into(),
            uid,
        };
        order.body.binding.as_mut().unwrap().predecessor = Some(predecessor);
        order
    };
    w.accept(&rotate("new")).await;
    let claimed = w.claim_one().await;
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert!(inputs.data.predecessor.is_some() && inputs.data.binding.is_none());
    w.end(claimed.fence, End::Succeeded).await;
    w.run(&w.unbind("i", "old"), End::Succeeded).await;
    // Another life of the name is not the one that was meant.
    w.run(&w.bind("i", "old"), End::Succeeded).await;
    w.accept(&rotate("newer")).await;
    let claimed = w.claim_one().await;
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert!(inputs.data.predecessor.is_none(), "it has gone meanwhile");
}

pub(crate) async fn whatever_was_decided_on_an_instance_that_changed_is_stale(w: World) {
    w.ready("i").await;
    let old = base(&w).await;
    let with = |mut order: Submission, base| {
        order.base = Some(base);
        order
    };
    let id = InstanceId::new("i").unwrap();
    let uid = w.store.instance(&id).await.unwrap().unwrap().uid;
    let context = object(json!({ "space_name": "renamed" }));
    assert!(w.store.keep_context(uid, context, w.now()).await.unwrap());
    for order in [
        w.submission(Action::Update, "i"),
        w.bind("i", "b"),
        w.deprovision("i", &[]),
    ] {
        let what = order.action;
        assert_eq!(
            w.submit(&with(order, old)).await,
            Submitted::Stale,
            "{what}"
        );
    }
    let new = base(&w).await;
    assert!(new.uid == old.uid && new.revision > old.revision);
    w.run(&with(w.deprovision("i", &[]), new), End::Succeeded)
        .await;
    w.ready("i").await;
    assert_ne!(base(&w).await.uid, new.uid);
    let order = with(w.bind("i", "b"), new);
    assert_eq!(w.submit(&order).await, Submitted::Stale, "another life");
}

pub(crate) async fn a_delete_that_waited_for_an_update_goes_by_what_that_made(w: World) {
    w.ready("i").await;
    w.run(&w.bind("i", "b"), End::Succeeded).await;
    let mut order = update(&w, "a").await;
    order.plan = PlanId::new("large").unwrap();
    order.body.plan.id = order.plan.clone();
    order.body.instance.parameters = object(json!({ "size": 9 }));
    order.bundle = evenkeel_core::ids::BundleDigest([9; 32]);
    w.accept(&order).await;
    let claimed = w.claim_one().await;
    w.accept(&w.unbind("i", "b")).await;
    w.end(claimed.fence, End::Succeeded).await;
    let unbind = w.claim_one().await;
    assert_eq!(unbind.job.action, Action::Unbind);
    assert_eq!(unbind.job.bundle, order.bundle);
    let inputs = mine(w.store.inputs(unbind.fence).await.unwrap());
    assert_eq!(inputs.body.plan.id, order.plan);
    let parameters = &inputs.body.instance.parameters;
    assert_eq!(*parameters, order.body.instance.parameters);
    assert_eq!(inputs.body.action, Action::Unbind);
    assert_eq!(inputs.body.binding.unwrap().id, "b");
}

pub(crate) async fn an_update_is_not_retried_over_a_later_one(w: World) {
    w.ready("i").await;
    let first = update(&w, "a").await;
    w.run(&first, failed()).await;
    w.run(&update(&w, "b").await, End::Succeeded).await;
    let retry = async |job| {
        let new = evenkeel_core::ids::JobId(w.uuid());
        let at = w.now();
        w.store.retry(job, new, "operator", at, at).await.unwrap()
    };
    assert!(matches!(retry(first.job).await, Retried::NotRetryable(_)));
    let last = update(&w, "c").await;
    w.run(&last, failed()).await;
    assert!(matches!(retry(last.job).await, Retried::Queued(_)));
}
