//! What platforms see.

use evenkeel_core::attempt::End;
use evenkeel_core::ids::{BindingId, InstanceId, JobId};
use evenkeel_core::instance::Status;
use evenkeel_core::request::Outputs;
use uuid::Uuid;

use crate::world::{World, failed};

fn i() -> InstanceId {
    InstanceId::new("i").unwrap()
}

fn b() -> BindingId {
    BindingId::new("b").unwrap()
}

async fn poll(w: &World, binding: bool, named: Option<JobId>) -> Option<JobId> {
    let b = b();
    let binding = binding.then_some(&b);
    let found = w.store.operation(&i(), binding, named).await.unwrap();
    found.map(|operation| operation.job.id)
}

pub(crate) async fn a_poll_finds_the_named_job_or_the_latest(w: World) {
    assert_eq!(poll(&w, false, None).await, None);
    let first = w.provision("i");
    w.run(&first, failed()).await;
    let second = w.again(&first);
    w.run(&second, End::Succeeded).await;
    let bind = w.bind("i", "b");
    w.accept(&bind).await;
    let stranger = w.provision("other");
    w.accept(&stranger).await;
    assert_eq!(poll(&w, false, None).await, Some(second.job));
    assert_eq!(poll(&w, false, Some(first.job)).await, Some(first.job));
    assert_eq!(poll(&w, true, None).await, Some(bind.job));
    assert_eq!(poll(&w, true, Some(bind.job)).await, Some(bind.job));
    // What is named but belongs to something else is not given away.
    let nobody = JobId(Uuid::from_u128(9999));
    for wrong in [stranger.job, bind.job, nobody] {
        assert_eq!(poll(&w, false, Some(wrong)).await, Some(second.job));
    }
    assert_eq!(poll(&w, true, Some(second.job)).await, Some(bind.job));
}

pub(crate) async fn a_tombstone_answers_while_the_id_lives_again(w: World) {
    let first = w.provision("i");
    w.run(&first, End::Succeeded).await;
    let delete = w.deprovision("i", &[]);
    w.run(&delete, End::Succeeded).await;
    let found = w.store.operation(&i(), None, None).await.unwrap().unwrap();
    assert_eq!(found.job.id, delete.job);
    assert!(found.target_deleted);
    assert!(
        w.store
            .standing(&i(), None)
            .await
            .unwrap()
            .instance
            .is_none()
    );

    let second = w.again(&first);
    w.accept(&second).await;
    let found = w.store.operation(&i(), None, None).await.unwrap().unwrap();
    assert_eq!(found.job.id, second.job);
    assert!(!found.target_deleted);
    let old = w.store.operation(&i(), None, Some(delete.job)).await;
    let old = old.unwrap().unwrap();
    assert_eq!(old.job.id, delete.job, "this or an earlier life");
    assert!(old.target_deleted);
    let view = w.store.instance(&i()).await.unwrap().unwrap();
    assert_eq!(view.uid, second.new_instance_uid);
    assert_ne!(first.new_instance_uid, second.new_instance_uid);
}

pub(crate) async fn a_gone_instance_keeps_no_secret(w: World) {
    w.ready("i").await;
    w.run(&w.deprovision("i", &[]), End::Succeeded).await;
    let view = w.store.instance(&i()).await.unwrap().unwrap();
    assert_eq!(view.status, Status::Deleted);
    assert!(view.deleted_at.is_some());
    assert!(view.parameters.is_empty() && view.context.is_empty());
    assert!(view.outputs == Outputs::default());
}

pub(crate) async fn views_show_what_was_applied(w: World) {
    let order = w.provision("i");
    w.run(&order, End::Succeeded).await;
    let view = w.store.instance(&i()).await.unwrap().unwrap();
    assert_eq!(view.id, order.instance);
    assert_eq!(view.platform, order.platform);
    assert_eq!(view.service, order.service);
    assert_eq!(view.plan, order.plan);
    assert_eq!(view.bundle, order.bundle);
    assert_eq!(view.status, Status::Ready);
    assert_eq!(view.parameters, order.body.instance.parameters);
    assert_eq!(view.context, order.body.instance.context);
    assert_eq!(view.organization_guid.as_deref(), Some("org"));
    assert_eq!(view.space_guid.as_deref(), Some("space"));
    assert_eq!(view.maintenance_version.as_deref(), Some("1.0.0"));
    assert_eq!(
        view.outputs.dashboard_url.as_deref(),
        Some("https://dashboard.example")
    );
    assert!(view.outputs.data.is_none(), "data is private to the bundle");
    assert!(view.active.is_empty());
    assert_eq!(view.created_at, order.at);
    let nobody = InstanceId::new("nobody").unwrap();
    assert!(w.store.instance(&nobody).await.unwrap().is_none());
}

pub(crate) async fn a_binding_is_shown_with_its_credentials_and_gone_with_its_instance(w: World) {
    w.ready("i").await;
    let order = w.bind("i", "b");
    w.run(&order, End::Succeeded).await;
    let view = w.store.binding(&i(), &b()).await.unwrap().unwrap();
    let wanted = order.body.binding.as_ref().unwrap();
    assert_eq!(view.status, Status::Ready);
    assert_eq!(view.parameters, wanted.parameters);
    assert_eq!(view.bind_resource, wanted.bind_resource);
    assert!(view.outputs.credentials.is_some());
    let all = w.store.bindings(&i()).await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].id, b());
    let unbind = w.unbind("i", "b");
    w.run(&unbind, End::Succeeded).await;
    assert!(w.store.bindings(&i()).await.unwrap().is_empty());
    let view = w.store.binding(&i(), &b()).await.unwrap().unwrap();
    assert_eq!(view.status, Status::Deleted);
    assert!(view.outputs == Outputs::default());
    let poll = w.store.operation(&i(), Some(&b()), None).await;
    let poll = poll.unwrap().unwrap();
    assert_eq!(poll.job.id, unbind.job);
    assert!(poll.target_deleted);
    // Ordered anew: another life, the same account.
    let again = w.bind("i", "b");
    let job = w.accept(&again).await;
    let uid = job.target.binding.unwrap().uid;
    assert_ne!(uid, view.uid);
}
