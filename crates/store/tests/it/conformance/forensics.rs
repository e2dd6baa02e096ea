//! What is known of bad ends: kept with the attempt, and found beside each other.

use std::time::Duration;

use evenkeel_core::attempt::{Containment, End, ExposureCause};
use evenkeel_core::forensics::{Forensics, MemoryCause, Panic, Sender};
use evenkeel_core::ids::{BootId, JobId};
use evenkeel_core::recovery::Exposure;
use evenkeel_store::seam::{BESIDE, Claimed, Exposing, Finish};
use uuid::Uuid;

use crate::world::{World, mine};

const CRASHED: End = End::Crashed { evidence: None };

fn lost() -> End {
    End::Exposed {
        cause: ExposureCause::VanishedWithBroker,
    }
}

async fn claimed(w: &World, instance: &str) -> Claimed {
    w.accept(&w.provision(instance)).await;
    w.claim_one().await
}

pub(crate) async fn what_is_known_of_a_bad_end_is_kept_and_bounded(w: World) {
    let claimed = claimed(&w, "i").await;
    let known = Forensics {
        signal: Some(9),
        memory: Some(MemoryCause::OwnCgroup),
        sender: Some(Sender {
            pid: 7,
            uid: 8,
            command: Some("kill".into()),
            of_run: true,
            broker: false,
        }),
        panic: Some(Panic {
            location: "a.rs:1:2".into(),
            thread: None,
            said: None,
            backtrace: "f\n".repeat(100_000),
        }),
        ..Forensics::default()
    };
    let started = w.now();
    w.pass(Duration::from_secs(1));
    let finish = Finish {
        started: (Some(started), Some(Containment::Cgroup)),
        forensics: Some(known.clone()),
        ..w.finish(CRASHED)
    };
    mine(w.store.finish_attempt(claimed.fence, finish).await.unwrap());
    let detail = w.store.job(claimed.job.id).await.unwrap().unwrap();
    let attempt = &detail.attempts[0];
    assert_eq!(attempt.forensics, Some(known.bounded()));
    // Nobody had noted the start: its end tells it.
    assert_eq!(attempt.started_at, Some(started));
    assert_eq!(attempt.containment, Some(Containment::Cgroup));
}

pub(crate) async fn a_start_that_was_noted_stands(w: World) {
    let claimed = claimed(&w, "i").await;
    let noted = w.now();
    let held = Some(Containment::Pidns);
    mine(w.store.started(claimed.fence, held, noted).await.unwrap());
    w.pass(Duration::from_secs(1));
    let finish = Finish {
        started: (Some(w.now()), Some(Containment::Sweep)),
        ..w.finish(CRASHED)
    };
    mine(w.store.finish_attempt(claimed.fence, finish).await.unwrap());
    let detail = w.store.job(claimed.job.id).await.unwrap().unwrap();
    let attempt = &detail.attempts[0];
    assert_eq!(
        (attempt.started_at, attempt.containment),
        (Some(noted), held)
    );
    assert_eq!(attempt.forensics, None);
}

async fn beside(w: &World, job: JobId, limit: u32) -> Vec<(JobId, bool)> {
    let found = w.store.beside(job, limit).await.unwrap();
    found
        .iter()
        .map(|other| (other.job, other.same_broker))
        .collect()
}

pub(crate) async fn what_died_beside_is_near_in_time_or_was_lost_with_one_boot(w: World) {
    let mut all = Vec::new();
    for name in ["crash", "near", "lost", "late", "well", "far"] {
        all.push(claimed(&w, name).await);
    }
    let ends = [
        (CRASHED, Duration::ZERO),
        (CRASHED, BESIDE),
        (lost(), Duration::ZERO),
        (lost(), 10 * BESIDE),
        (End::TryLater, Duration::ZERO),
        (CRASHED, 10 * BESIDE),
    ];
    for (one, (end, later)) in all.iter().zip(ends) {
        w.pass(later);
        w.end(one.fence, end).await;
    }
    let id = |nth: usize| all[nth].job.id;
    // A crash is nobody else's, whichever boot drove it: only the time ties it.
    assert_eq!(
        beside(&w, id(0), 100).await,
        [(id(1), false), (id(2), false)]
    );
    assert_eq!(
        beside(&w, id(2), 100).await,
        [(id(0), false), (id(1), false), (id(3), true)]
    );
    assert_eq!(beside(&w, id(3), 100).await, [(id(2), true)]);
    assert_eq!(beside(&w, id(4), 100).await, []);
    assert_eq!(beside(&w, id(5), 100).await, []);
    assert_eq!(beside(&w, id(2), 2).await.len(), 2);
    let nobody = JobId(Uuid::from_u128(99_999));
    assert_eq!(beside(&w, nobody, 100).await, []);
    let told = w.store.beside(id(3), 100).await.unwrap();
    assert_eq!(told[0].instance.as_str(), "lost");
    assert_eq!(told[0].ordinal, 1);
}

pub(crate) async fn boots_that_its_attempts_were_near_are_told_with_their_ends(w: World) {
    w.store.open_boot(&w.new_boot(w.boot)).await.unwrap();
    let claimed = claimed(&w, "i").await;
    // One that died while it looked at the run, and never owned it.
    let looker = BootId(w.uuid());
    w.store.open_boot(&w.new_boot(looker)).await.unwrap();
    let near = Exposing {
        exposure: Exposure {
            boot: looker,
            cause: ExposureCause::NamedByBlackBox,
            named: true,
            exclusive: false,
        },
        ran: Duration::ZERO,
        at: w.now(),
    };
    mine(w.store.expose(claimed.fence, near).await.unwrap());
    w.end(claimed.fence, lost()).await;
    let job = claimed.job.id;
    // Boots of another job's attempts: one that owned it, one that looked.
    let (owner, dead) = (BootId(w.uuid()), BootId(w.uuid()));
    for boot in [owner, dead] {
        w.store.open_boot(&w.new_boot(boot)).await.unwrap();
    }
    w.accept(&w.provision("another")).await;
    let mut wish = w.wish(1);
    wish.boot = owner;
    let another = w.store.claim_due(wish).await.unwrap().remove(0);
    assert_ne!(another.job.id, job);
    let mut near_another = near;
    near_another.exposure.boot = dead;
    mine(w.store.expose(another.fence, near_another).await.unwrap());
    let near = w.store.ended_boots(job, w.boot).await.unwrap();
    assert_eq!(
        near.iter().map(|boot| boot.id).collect::<Vec<_>>(),
        [looker]
    );
    let next = BootId(w.uuid());
    let open = w.store.ended_boots(job, next).await.unwrap();
    assert!(
        open.iter()
            .any(|boot| boot.id == w.boot && boot.verdict.is_none())
    );
    w.store.close_boot(w.boot, "died", w.now()).await.unwrap();
    let closed = w.store.ended_boots(job, next).await.unwrap();
    assert_eq!(closed.len(), 2);
    let closed = closed.iter().find(|boot| boot.id == w.boot).unwrap();
    assert_eq!(closed.verdict.as_deref(), Some("died"));
}
