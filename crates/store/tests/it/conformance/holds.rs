//! What is on record of holds, and what the rule of holds asks of earlier boots.

use std::time::Duration;

use evenkeel_core::attempt::{DisruptionCause, End, Evidence, ExposureCause};
use evenkeel_core::boot::DeathRecord;
use evenkeel_core::hold::{BootEnd, Cause, Hold};
use evenkeel_core::ids::BootId;
use evenkeel_core::recovery::Exposure;
use evenkeel_store::seam::{Exposing, Finish, Release};

use super::boots::death;
use crate::world::{World, mine};

/// Boots as the rule sees them; the last one asks.
async fn ends(w: &World) -> Vec<BootEnd> {
    w.store.boot_ends(BootId(w.uuid()), 100).await.unwrap()
}

async fn boot(w: &World) -> BootId {
    w.pass(Duration::from_secs(1));
    let boot = BootId(w.uuid());
    w.store.open_boot(&w.new_boot(boot)).await.unwrap();
    boot
}

fn release(w: &World, causes: &[Cause], boot: BootId) -> Release {
    Release {
        causes: causes.to_vec(),
        boot,
        actor: "operator".into(),
        why: "mended".into(),
        at: w.now(),
    }
}

const DEATH: BootEnd = BootEnd {
    orderly: false,
    named: false,
    concluded: false,
    served: Duration::ZERO,
    forgiven: false,
};

pub(crate) async fn a_hold_is_on_record_until_it_is_released(w: World) {
    let store = &w.store;
    assert_eq!(store.holds().await.unwrap(), []);
    let hand = Hold::new(Cause::Hand, "a move", "operator", w.now());
    store.hold(&hand).await.unwrap();
    w.pass(Duration::from_secs(5));
    let deaths = Hold::new(Cause::Deaths, "three", "broker", w.now());
    store.hold(&deaths).await.unwrap();
    assert_eq!(store.holds().await.unwrap(), [hand.clone(), deaths.clone()]);
    // Again, with other words: it has been held since the first time.
    let again = Hold::new(Cause::Hand, "a longer move", "operator", w.now());
    store.hold(&again).await.unwrap();
    let kept = Hold {
        since: hand.since,
        ..again
    };
    assert_eq!(store.holds().await.unwrap(), [kept.clone(), deaths]);
    let me = boot(&w).await;
    store
        .release(release(&w, &[Cause::Deaths], me))
        .await
        .unwrap();
    assert_eq!(store.holds().await.unwrap(), [kept]);
    for _ in 0..2 {
        store.release(release(&w, &Cause::ALL, me)).await.unwrap();
        assert_eq!(store.holds().await.unwrap(), []);
    }
}

pub(crate) async fn ends_of_boots_come_newest_first_with_what_came_of_them(w: World) {
    assert_eq!(ends(&w).await, []);
    let drained = boot(&w).await;
    w.store.mark_drained(drained, None, w.now()).await.unwrap();
    // Somebody sent its process a SIGTERM, and not its warden.
    let record = DeathRecord {
        exit_code: Some(0),
        signal: None,
        ..death(w.now(), false)
    };
    w.store.boot_died(drained, record).await.unwrap();
    // It handed over because a part of it had broken; no warden saw it.
    let broken = boot(&w).await;
    let broke = Some("the claimer");
    w.store.mark_drained(broken, broke, w.now()).await.unwrap();
    let long = boot(&w).await;
    w.pass(Duration::from_secs(60));
    w.store.boot_seen(long, w.now()).await.unwrap();
    let named = boot(&w).await;
    w.accept(&w.provision("i")).await;
    let claimed = w.claim_one().await;
    for (cause, is_named) in [
        (ExposureCause::HostLost, false),
        // A host that was lost with a boot in whose step it happened.
        (ExposureCause::HostLost, true),
    ] {
        let dead = if is_named { named } else { boot(&w).await };
        let near = Exposing {
            exposure: Exposure {
                boot: dead,
                cause,
                named: is_named,
                exclusive: false,
            },
            ran: Duration::ZERO,
            at: w.now(),
        };
        mine(w.store.expose(claimed.fence, near).await.unwrap());
        let among = ends(&w).await;
        assert_eq!(
            among.iter().filter(|end| end.named).count(),
            usize::from(is_named)
        );
    }
    let me = boot(&w).await;
    let expected = [
        DEATH,
        BootEnd {
            named: true,
            ..DEATH
        },
        BootEnd {
            served: Duration::from_secs(60),
            ..DEATH
        },
        DEATH,
        BootEnd {
            orderly: true,
            ..DEATH
        },
    ];
    let before = |limit| w.store.boot_ends(me, limit);
    assert_eq!(
        before(9).await.unwrap(),
        expected,
        "of all but the one that asks"
    );
    assert_eq!(before(2).await.unwrap(), expected[..2]);
}

pub(crate) async fn a_job_that_ends_by_itself_is_something_that_its_boot_got_done(w: World) {
    w.store.open_boot(&w.new_boot(w.boot)).await.unwrap();
    let cause = ExposureCause::VanishedWithBroker;
    for end in [
        End::Disrupted {
            cause: DisruptionCause::Drain,
        },
        End::Exposed { cause },
        End::Crashed {
            evidence: Some(Evidence::OutOfMemory),
        },
    ] {
        let order = w.provision(&format!("{end:?}"));
        let job = w.run(&order, end).await;
        assert!(!job.state.is_final(), "{job:?}");
        assert_eq!(
            ends(&w).await,
            [DEATH],
            "what is tried again is not concluded"
        );
        w.store
            .stop_job(
                job.id,
                evenkeel_core::job::StopReason::Operator,
                "operator",
                w.now(),
            )
            .await
            .unwrap();
        assert_eq!(ends(&w).await, [DEATH], "nor what had no run");
    }
    // Another boot writes down what became of it, under its fence.
    w.accept(&w.provision("left")).await;
    let left = w.claim_one().await;
    let finish = Finish {
        by: BootId(w.uuid()),
        ..w.finish(End::Succeeded)
    };
    let job = mine(w.store.finish_attempt(left.fence, finish).await.unwrap());
    assert!(job.state.is_final());
    assert_eq!(ends(&w).await, [DEATH], "nor what others did after it");
    w.run(&w.provision("done"), End::Succeeded).await;
    assert_eq!(
        ends(&w).await,
        [BootEnd {
            concluded: true,
            ..DEATH
        }]
    );
}

pub(crate) async fn a_death_is_told_once_in_the_audit_however_often_it_is_met(w: World) {
    w.store.open_boot(&w.new_boot(w.boot)).await.unwrap();
    let charges = async |job| {
        let detail = w.store.job(job).await.unwrap().unwrap();
        let charges = detail
            .audit
            .into_iter()
            .filter(|line| line.what == "charge");
        charges.map(|line| line.detail).collect::<Vec<_>>()
    };
    let cause = ExposureCause::VanishedWithBroker;
    w.accept(&w.provision("counted")).await;
    let counted = w.claim_one().await;
    let near = Exposing {
        exposure: Exposure {
            boot: w.boot,
            cause: ExposureCause::NamedByBlackBox,
            named: true,
            exclusive: false,
        },
        ran: Duration::ZERO,
        at: w.now(),
    };
    mine(w.store.expose(counted.fence, near).await.unwrap());
    w.end(counted.fence, End::Exposed { cause }).await;
    let told = charges(counted.job.id).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&w.boot.to_string()), "{told:?}");
    // One that nobody had counted is told by the end.
    let job = w.run(&w.provision("lost"), End::Exposed { cause }).await;
    assert_eq!(charges(job.id).await.len(), 1);
}

pub(crate) async fn a_release_forgives_the_deaths_before_it(w: World) {
    for _ in 0..3 {
        boot(&w).await;
    }
    let me = boot(&w).await;
    w.store.release(release(&w, &Cause::ALL, me)).await.unwrap();
    let forgiven = BootEnd {
        forgiven: true,
        ..DEATH
    };
    assert_eq!(
        ends(&w).await,
        [DEATH, forgiven, forgiven, forgiven],
        "the one that goes on has yet to die"
    );
}
