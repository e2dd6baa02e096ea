//! What is written about one job leaves every other as it was.

use std::time::Duration;

use evenkeel_core::attempt::{Containment, End, ExposureCause};
use evenkeel_core::ids::{BindingId, BootId, InstanceId, JobId};
use evenkeel_core::recovery::Exposure;
use evenkeel_store::seam::{Adoption, Exposing};
use serde_json::json;
use uuid::Uuid;

use crate::world::{LATER, World, crashed, failed, mine};

/// All that can be seen of these jobs, of an instance and of its binding `b`.
async fn sight(w: &World, instance: &str, jobs: &[JobId]) -> String {
    let mut seen = String::new();
    for job in jobs {
        seen += &format!("{:#?}\n", w.store.job(*job).await.unwrap());
    }
    let id = InstanceId::new(instance).unwrap();
    if let Some(view) = w.store.instance(&id).await.unwrap() {
        seen += &format!("{view:#?}\n{}\n", json!(view.outputs));
    }
    let binding = BindingId::new("b").unwrap();
    if let Some(view) = w.store.binding(&id, &binding).await.unwrap() {
        seen += &format!("{view:#?}\n{}\n", json!(view.outputs));
    }
    seen
}

pub(crate) async fn an_owner_writes_about_its_own_job_and_no_other(w: World) {
    w.ready("near").await;
    w.run(&w.bind("near", "b"), End::Succeeded).await;
    let (runs, own) = (w.provision("runs"), w.provision("own"));
    w.accept(&runs).await;
    w.accept(&own).await;
    let claimed = w.claim(2).await;
    assert_eq!(claimed[1].job.id, own.job);
    let waits = w.provision("waits");
    w.accept(&waits).await;
    let others = async || {
        let mut seen = sight(&w, "near", &[]).await;
        seen += &sight(&w, "runs", &[runs.job]).await;
        seen + &sight(&w, "waits", &[waits.job]).await
    };
    let before = others().await;
    let fence = claimed[1].fence;
    let pass = || w.pass(Duration::from_secs(1));

    pass();
    let started = w.store.started(fence, Some(Containment::Sweep), w.now());
    mine(started.await.unwrap());
    assert_eq!(others().await, before, "started");
    pass();
    mine(w.store.progress(fence, "half", w.now()).await.unwrap());
    assert_eq!(others().await, before, "progress");
    pass();
    let near = Exposing {
        exposure: Exposure {
            boot: fence.boot,
            cause: ExposureCause::NamedByBlackBox,
            named: true,
            exclusive: false,
        },
        ran: Duration::from_secs(3),
        at: w.now(),
    };
    mine(w.store.expose(fence, near).await.unwrap());
    assert_eq!(others().await, before, "a death");
    pass();
    let adoption = Adoption {
        from: fence,
        boot: BootId(Uuid::from_u128(0xB008)),
        at: w.now(),
    };
    let taken = mine(w.store.adopt(adoption).await.unwrap());
    assert_eq!(others().await, before, "taken over");
    pass();
    w.end(taken.fence, crashed()).await;
    assert_eq!(others().await, before, "a bad end");
    // What waits is next; then its own job again.
    let next = w.claim_one().await;
    assert_eq!(next.job.id, waits.job);
    w.pass(LATER);
    let before = others().await;
    let again = w.claim_one().await;
    assert_eq!(again.job.id, own.job);
    w.end(again.fence, End::Succeeded).await;
    assert_eq!(others().await, before, "a good end");
}

/// Both have a binding of one name.
pub(crate) async fn what_becomes_of_an_instance_becomes_of_no_other(w: World) {
    for instance in ["own", "near"] {
        w.ready(instance).await;
        w.run(&w.bind(instance, "b"), End::Succeeded).await;
    }
    let near = || sight(&w, "near", &[]);
    let before = near().await;
    let update = || {
        let mut update = w.submission(evenkeel_core::action::Action::Update, "own");
        update.body.instance.parameters = crate::world::object(json!({ "size": 2 }));
        update
    };
    w.pass(LATER);
    w.run(&update(), failed()).await;
    assert_eq!(near().await, before, "an update that failed");
    w.run(&update(), End::Succeeded).await;
    assert_eq!(near().await, before, "an update");
    w.run(&w.unbind("own", "b"), failed()).await;
    assert_eq!(near().await, before, "an unbind that failed");
    w.run(&w.unbind("own", "b"), End::Succeeded).await;
    assert_eq!(near().await, before, "an unbind");
    w.run(&w.deprovision("own", &[]), failed()).await;
    assert_eq!(near().await, before, "a delete that failed");
    w.run(&w.deprovision("own", &[]), End::Succeeded).await;
    assert_eq!(near().await, before, "a delete");
    // What it keeps is there for its own actions.
    w.accept(&w.unbind("near", "b")).await;
    let claimed = w.claim_one().await;
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert!(inputs.data.instance.is_some() && inputs.data.binding.is_some());
}

/// Accounts are kept by action: whoever cleans up after a suspect is none.
pub(crate) async fn what_one_action_is_suspected_of_no_other_is(w: World) {
    w.accept(&w.provision("i")).await;
    let first = w.claim_one().await;
    let cause = ExposureCause::VanishedWithBroker;
    w.end(first.fence, End::Exposed { cause }).await;
    w.pass(LATER);
    let again = w.claim_one().await;
    let delete = w.deprovision("i", &[]);
    w.accept(&delete).await;
    let near = Exposing {
        exposure: Exposure {
            boot: again.fence.boot,
            cause: ExposureCause::NamedByBlackBox,
            named: true,
            exclusive: false,
        },
        ran: Duration::ZERO,
        at: w.now(),
    };
    let job = mine(w.store.expose(again.fence, near).await.unwrap());
    assert!(job.budget.suspect);
    w.end(again.fence, End::Stopped).await;
    let claimed = w.claim_one().await;
    assert_eq!(claimed.job.id, delete.job);
    assert_eq!(claimed.job.budget, evenkeel_core::budget::Budget::default());
}

/// I5: the account of one binding condemns no other of the same instance.
pub(crate) async fn one_binding_is_not_charged_for_another(w: World) {
    w.ready("i").await;
    let poison = w.bind("i", "poison");
    w.accept(&poison).await;
    for _ in 0..w.store.policy().crash_limit {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        w.end(claimed.fence, crashed()).await;
    }
    assert_eq!(w.job(poison.job).await.state.as_str(), "quarantined");
    let job = w.run(&w.bind("i", "sound"), failed()).await;
    assert_eq!(job.budget, evenkeel_core::budget::Budget::default());
    assert_eq!(job.attempts, 1);
}

/// I5: nor is another binding under suspicion, and made to run alone.
pub(crate) async fn what_one_binding_is_suspected_of_no_other_is(w: World) {
    w.ready("i").await;
    w.accept(&w.bind("i", "near")).await;
    let first = w.claim_one().await;
    let cause = ExposureCause::VanishedWithBroker;
    w.end(first.fence, End::Exposed { cause }).await;
    w.pass(LATER);
    let again = w.claim_one().await;
    let other = w.bind("i", "other");
    w.accept(&other).await;
    let job = w.end(again.fence, End::Exposed { cause }).await;
    assert!(job.budget.suspect);
    assert_eq!(w.claim_one().await.job.id, other.job);
}
