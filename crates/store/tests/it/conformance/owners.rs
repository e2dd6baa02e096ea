//! What the owner of an attempt does, and what nobody else can.

use std::time::Duration;

use evenkeel_core::attempt::{Charge, Containment, End, ExposureCause};
use evenkeel_core::ids::{AttemptId, BootId, InstanceId, Token};
use evenkeel_core::instance::Status;
use evenkeel_core::job::{QuarantineReason, State, StopReason};
use evenkeel_core::recovery::Exposure;
use evenkeel_core::request::Outputs;
use evenkeel_store::seam::{Adoption, Exposing, Fence, Owned, Retried, Stopped};
use serde_json::json;
use uuid::Uuid;

use crate::world::{LATER, SECRET, World, crashed, disrupted, failed, mine};

pub(crate) async fn an_owner_reads_inputs_and_writes_progress(w: World) {
    let order = w.provision("i");
    w.accept(&order).await;
    let claimed = w.claim_one().await;
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert!(inputs.body == order.body, "what was sealed comes back");
    assert!(inputs.data.instance.is_none() && inputs.data.binding.is_none());
    mine(
        w.store
            .started(claimed.fence, Some(Containment::Pidns), w.now())
            .await
            .unwrap(),
    );
    w.pass(Duration::from_secs(1));
    let began = w.now().minus(Duration::from_secs(1));
    mine(
        w.store
            .progress(claimed.fence, "half way", w.now())
            .await
            .unwrap(),
    );
    let id = InstanceId::new("i").unwrap();
    let operation = w.store.operation(&id, None, None).await.unwrap().unwrap();
    assert_eq!(operation.progress.as_deref(), Some("half way"));
    let detail = w.store.job(order.job).await.unwrap().unwrap();
    assert_eq!(detail.updated_at, w.now(), "progress is a change");
    assert_eq!(detail.attempts[0].started_at, Some(began));
    assert_eq!(detail.attempts[0].containment, Some(Containment::Pidns));
}

/// I4.
pub(crate) async fn a_stale_owner_changes_nothing(w: World) {
    w.accept(&w.provision("i")).await;
    let claimed = w.claim_one().await;
    let fence = claimed.fence;
    let before = w.store.job(fence.job).await.unwrap().unwrap();
    for stale in [
        Fence {
            token: Token(fence.token.0 + 1),
            ..fence
        },
        Fence {
            token: Token(0),
            ..fence
        },
        Fence {
            boot: BootId(Uuid::from_u128(99)),
            ..fence
        },
        Fence {
            attempt: AttemptId(Uuid::from_u128(99)),
            ..fence
        },
        Fence {
            job: evenkeel_core::ids::JobId(Uuid::from_u128(99)),
            ..fence
        },
    ] {
        assert_eq!(
            w.store
                .finish_attempt(stale, w.finish(End::Succeeded))
                .await
                .unwrap(),
            Owned::Lost
        );
        assert_eq!(
            w.store.started(stale, None, w.now()).await.unwrap(),
            Owned::Lost
        );
        assert_eq!(
            w.store.progress(stale, "no", w.now()).await.unwrap(),
            Owned::Lost
        );
        assert!(matches!(w.store.inputs(stale).await.unwrap(), Owned::Lost));
        assert!(matches!(
            w.store.adopt(adoption(&w, stale)).await.unwrap(),
            Owned::Lost
        ));
    }
    let after = w.store.job(fence.job).await.unwrap().unwrap();
    assert_eq!(after.job, before.job);
    assert_eq!(after.progress, before.progress);
    assert_eq!(after.attempts[0].started_at, None);
    assert_eq!(w.status("i").await, Status::Creating);
}

fn adoption(w: &World, from: Fence) -> Adoption {
    Adoption {
        from,
        boot: BootId(Uuid::from_u128(0xB008)),
        at: w.now(),
    }
}

fn near(w: &World, boot: BootId, exclusive: bool) -> Exposing {
    Exposing {
        exposure: Exposure {
            boot,
            cause: ExposureCause::NamedByBlackBox,
            named: true,
            exclusive,
        },
        ran: Duration::from_secs(3),
        at: w.now(),
    }
}

pub(crate) async fn an_adopted_attempt_has_a_new_owner(w: World) {
    w.accept(&w.provision("i")).await;
    let claimed = w.claim_one().await;
    let adopt = adoption(&w, claimed.fence);
    let taken = mine(w.store.adopt(adopt.clone()).await.unwrap());
    assert_eq!(taken.fence.token, claimed.fence.token.next());
    assert_eq!(taken.fence.boot, adopt.boot);
    assert_eq!(taken.fence.attempt, claimed.fence.attempt);
    // I9: a recovery that is repeated finds nothing to do.
    assert!(matches!(w.store.adopt(adopt).await.unwrap(), Owned::Lost));
    assert_eq!(
        w.store
            .finish_attempt(claimed.fence, w.finish(End::Succeeded))
            .await
            .unwrap(),
        Owned::Lost
    );
    let stale = w
        .store
        .expose(claimed.fence, near(&w, claimed.fence.boot, true));
    assert_eq!(stale.await.unwrap(), Owned::Lost);
    let job = w.end(taken.fence, End::Succeeded).await;
    assert_eq!(job.state, State::Succeeded);
    let detail = w.store.job(job.id).await.unwrap().unwrap();
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(detail.attempts[0].boot, taken.fence.boot);
}

/// I9: the deaths of brokers are counted against an attempt once each, and stay on record.
pub(crate) async fn the_death_of_a_broker_is_counted_once_and_kept(w: World) {
    w.accept(&w.provision("i")).await;
    let claimed = w.claim_one().await;
    let (owner, later) = (claimed.fence.boot, BootId(Uuid::from_u128(0xB00A)));
    for (boot, exclusive, account) in [
        (owner, false, (1, 0)),
        (owner, false, (1, 0)),
        (owner, true, (1, 0)),
        (later, true, (1, 1)),
        (later, false, (1, 1)),
    ] {
        let told = w.store.expose(claimed.fence, near(&w, boot, exclusive));
        let job = mine(told.await.unwrap());
        assert_eq!((job.budget.exposures, job.budget.losses), account);
        assert_eq!(job, w.job(job.id).await, "what is told is what is kept");
        assert_eq!(job.attempt().unwrap().boot, owner);
    }
    let cause = ExposureCause::NamedByBlackBox;
    let job = w.end(claimed.fence, End::Exposed { cause }).await;
    assert_eq!(job.budget.exposures, 1, "not twice for one death");
    let detail = w.store.job(job.id).await.unwrap().unwrap();
    let deaths: Vec<_> = detail.attempts[0]
        .deaths
        .iter()
        .map(|death| (death.boot, death.charge))
        .collect();
    assert_eq!(deaths, [(owner, Charge::Exposure), (later, Charge::Loss)]);
    assert_eq!(detail.attempts[0].charge, Some(Charge::Exposure));
    let charges = detail.audit.iter().filter(|line| line.what == "charge");
    assert_eq!(charges.count(), 2, "the end adds nothing: {detail:#?}");
}

pub(crate) async fn data_goes_from_one_action_to_the_next(w: World) {
    w.ready("i").await;
    w.run(&w.bind("i", "b"), End::Succeeded).await;
    w.accept(&w.unbind("i", "b")).await;
    let claimed = w.claim_one().await;
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert_eq!(inputs.data.instance, Some(json!({ "private": SECRET })));
    assert_eq!(inputs.data.binding, Some(json!({ "private": SECRET })));
}

pub(crate) async fn private_data_of_a_failed_run_is_kept(w: World) {
    let order = w.provision("i");
    w.accept(&order).await;
    let claimed = w.claim_one().await;
    let mut finish = w.finish(failed());
    finish.outputs = Some(Outputs {
        credentials: w.finish(End::Succeeded).outputs.unwrap().credentials,
        data: Some(json!("half made")),
        ..Outputs::default()
    });
    mine(w.store.finish_attempt(claimed.fence, finish).await.unwrap());
    let view = w.store.instance(&order.instance).await.unwrap().unwrap();
    assert!(view.outputs.credentials.is_none(), "it was not made");
    w.accept(&w.deprovision("i", &[])).await;
    let claimed = w.claim_one().await;
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert_eq!(inputs.data.instance, Some(json!("half made")));
}

pub(crate) async fn what_is_not_for_the_platform_is_no_output(w: World) {
    let order = w.provision("i");
    w.accept(&order).await;
    let claimed = w.claim_one().await;
    let mut finish = w.finish(End::Succeeded);
    let outputs = finish.outputs.as_mut().unwrap();
    outputs.error_message = Some("almost".into());
    assert!(outputs.data.is_some());
    mine(w.store.finish_attempt(claimed.fence, finish).await.unwrap());
    let view = w.store.instance(&order.instance).await.unwrap().unwrap();
    assert!(view.outputs.credentials.is_some());
    assert!(view.outputs.data.is_none() && view.outputs.error_message.is_none());
}

/// I13.
pub(crate) async fn crashes_end_in_quarantine_and_nothing_is_deleted(w: World) {
    w.ready("i").await;
    let order = w.bind("i", "b");
    w.accept(&order).await;
    for nth in 1..=3 {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        assert_eq!(claimed.job.attempts, nth);
        w.end(claimed.fence, crashed()).await;
    }
    w.pass(LATER);
    assert!(w.claim(1).await.is_empty());
    let detail = w.store.job(order.job).await.unwrap().unwrap();
    assert_eq!(
        detail.job.state,
        State::Quarantined {
            reason: QuarantineReason::Crashes { count: 3 }
        }
    );
    assert_eq!(detail.attempts.len(), 3);
    assert!(detail.audit.iter().any(|line| line.what == "quarantine"));
    assert_eq!(w.binding_status("i", "b").await, Status::CreateFailed);
    // The body is there: a retry can run it.
    let retry = w
        .store
        .retry(
            order.job,
            evenkeel_core::ids::JobId(w.uuid()),
            "operator",
            w.now(),
            order.deadline_at,
        )
        .await
        .unwrap();
    assert!(matches!(retry, Retried::Queued(_)));
    let claimed = w.claim_one().await;
    let inputs = mine(w.store.inputs(claimed.fence).await.unwrap());
    assert!(inputs.body == order.body);
}

/// I11.
pub(crate) async fn a_final_job_stays_final(w: World) {
    let ends = [End::Succeeded, failed()];
    for (nth, end) in ends.into_iter().enumerate() {
        let instance = format!("i{nth}");
        let order = w.provision(&instance);
        w.accept(&order).await;
        let claimed = w.claim_one().await;
        let job = w.end(claimed.fence, end).await;
        let stop = StopReason::Operator;
        let stopped = w.store.stop_job(job.id, stop, "operator", w.now()).await;
        assert_eq!(stopped.unwrap(), Stopped::Final(Box::new(job.clone())));
        let late = w.finish(failed());
        assert_eq!(
            w.store.finish_attempt(claimed.fence, late).await.unwrap(),
            Owned::Lost
        );
        w.store
            .set_aside(&job.id.to_string(), "no", w.now())
            .await
            .unwrap();
        let far = order.deadline_at.plus(LATER);
        assert!(w.store.expire(far, 10).await.unwrap().is_empty());
        assert_eq!(w.job(job.id).await, job);
    }
}

/// I9.
pub(crate) async fn a_repeated_finish_is_lost(w: World) {
    w.accept(&w.provision("i")).await;
    let claimed = w.claim_one().await;
    let finish = w.finish(crashed());
    mine(
        w.store
            .finish_attempt(claimed.fence, finish.clone())
            .await
            .unwrap(),
    );
    let once = w.job(claimed.job.id).await;
    assert_eq!(once.budget.crashes, 1);
    assert_eq!(
        w.store.finish_attempt(claimed.fence, finish).await.unwrap(),
        Owned::Lost
    );
    assert_eq!(w.job(claimed.job.id).await, once);
}

pub(crate) async fn attempts_are_on_record_with_their_charge(w: World) {
    let order = w.provision("i");
    w.accept(&order).await;
    for end in [crashed(), disrupted(), End::TryLater, End::Succeeded] {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        w.end(claimed.fence, end).await;
    }
    let attempts = w.store.job(order.job).await.unwrap().unwrap().attempts;
    let charges: Vec<_> = attempts.iter().map(|one| one.charge.unwrap()).collect();
    assert_eq!(
        charges,
        [
            Charge::Crash,
            Charge::Disruption,
            Charge::None,
            Charge::None
        ]
    );
    let ordinals: Vec<_> = attempts.iter().map(|one| one.ordinal).collect();
    assert_eq!(ordinals, [1, 2, 3, 4]);
    assert_eq!(attempts[0].end, Some(crashed()));
    assert_eq!(attempts[0].usage, (Some(1 << 20), Some(10)));
    assert_eq!(attempts[3].end, Some(End::Succeeded));
}
