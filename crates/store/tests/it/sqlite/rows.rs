//! What the schema refuses, and rows that somebody else has spoilt.

use std::time::Duration;

use evenkeel_core::attempt::{End, ExposureCause};
use evenkeel_core::ids::BootId;
use evenkeel_core::instance::Status;
use evenkeel_core::job::{QuarantineReason, State};
use evenkeel_core::recovery::Exposure;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Exposing, JobFilter, RunningRow};

use super::{fresh, stranger};
use crate::world::{World, failed, mine};

/// The CHECKs repeat the shape of each state.
#[tokio::test]
async fn the_schema_refuses_impossible_rows() {
    let (folder, world) = fresh();
    world.run(&world.provision("final"), failed()).await;
    world.accept(&world.provision("running")).await;
    world.claim_one().await;
    world.accept(&world.provision("backoff")).await;
    let claimed = world.claim_one().await;
    world.end(claimed.fence, End::TryLater).await;
    world.ready("ready").await;
    world.run(&world.bind("ready", "b"), End::Succeeded).await;
    world.accept(&world.provision("queued")).await;
    let conn = stranger(folder.path());
    for (state, set) in [
        ("queued", "queued_at = NULL"),
        ("queued", "attempt_id = 'a'"),
        ("queued", "next_at = 1"),
        ("queued", "finished_at = 1"),
        ("queued", "reason = '{}'"),
        ("queued", "message = 'm'"),
        ("queued", "stop = '{}'"),
        ("queued", "solo_ms = 1"),
        ("queued", "discarded_at = 1"),
        ("queued", "state = 'running'"),
        ("queued", "state = 'done'"),
        ("queued", "action = 'explode'"),
        ("queued", "action = 'bind'"),
        ("queued", "binding_uid = 'b'"),
        ("queued", "tempfails = 1"),
        ("queued", "blocked = -1"),
        ("queued", "codec_version = 0"),
        ("queued", "retries = 'many'"),
        ("running", "attempt_id = NULL"),
        ("running", "attempt_ordinal = NULL"),
        ("running", "attempt_ordinal = 7"),
        ("running", "boot_id = NULL"),
        ("running", "run_root = NULL"),
        ("running", "claimed_at = NULL"),
        ("running", "token = 0"),
        ("running", "blocked = 1"),
        ("running", "queued_at = 1"),
        ("running", "finished_at = 1"),
        ("backoff", "next_at = NULL"),
        ("backoff", "attempts = 0"),
        ("backoff", "token = token - 1"),
        ("failed", "finished_at = NULL"),
        ("failed", "reason = NULL"),
        ("failed", "discarded_at = 1"),
        (
            "failed",
            "state = 'succeeded', reason = NULL, message = NULL",
        ),
        (
            "failed",
            "state = 'queued', queued_at = 1, finished_at = NULL, reason = NULL, message = NULL",
        ),
        ("succeeded", "reason = '{}'"),
        ("succeeded", "state = 'quarantined', reason = '{}'"),
    ] {
        let held: i64 = conn
            .query_row(
                "SELECT count(*) FROM jobs WHERE state = ?1",
                [state],
                |row| row.get(0),
            )
            .unwrap();
        assert!(held > 0, "there is a {state} job");
        let sql = format!("UPDATE jobs SET {set} WHERE state = '{state}'");
        let answer = conn.execute(&sql, []);
        let refused = answer.as_ref().is_err_and(|error| {
            error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
        });
        assert!(refused, "{sql}: {answer:?}");
    }
    for sql in [
        "UPDATE instances SET status = 'deleted' WHERE status = 'ready'",
        "UPDATE instances SET deleted_at = 1 WHERE status = 'ready'",
        "UPDATE instances SET status = 'deleted', deleted_at = 1 WHERE status = 'ready'",
        "UPDATE instances SET instance_id = 'ready'",
        "UPDATE bindings SET status = 'odd'",
        "UPDATE bindings SET instance_uid = 'nobody'",
        "UPDATE attempts SET ended_at = NULL WHERE ended_at IS NOT NULL",
        "UPDATE attempts SET ordinal = 0",
        "UPDATE audit SET detail = 'rewritten'",
        "DELETE FROM audit",
        "DELETE FROM instances",
        "INSERT INTO canary SELECT 2, sealed FROM canary",
    ] {
        let on = "PRAGMA foreign_keys = ON";
        conn.execute_batch(on).unwrap();
        let answer = conn.execute(sql, []);
        assert!(answer.is_err(), "{sql}: {answer:?}");
    }
}

#[tokio::test]
async fn two_jobs_for_one_target_are_refused_by_the_schema() {
    let (folder, world) = fresh();
    world.accept(&world.provision("i")).await;
    let conn = stranger(folder.path());
    let columns = "instance_uid, action, service_id, plan_id, bundle, platform, request_digest,
         codec_version, created_at, deadline_at, updated_at, retries, state, queued_at";
    let second = format!("INSERT INTO jobs (id, {columns}) SELECT 'second', {columns} FROM jobs");
    assert!(conn.execute(&second, []).is_err());
    conn.execute("UPDATE jobs SET superseded_by = 'second'", [])
        .unwrap();
    assert_eq!(conn.execute(&second, []).unwrap(), 1);
}

async fn spoil(folder: &std::path::Path, world: &World, set: &str) -> String {
    let order = world.provision("spoilt");
    world.accept(&order).await;
    let mut claimed = world.claim(10).await;
    claimed.retain(|one| one.job.id == order.job);
    assert_eq!(claimed.len(), 1);
    let conn = stranger(folder);
    conn.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF;")
        .unwrap();
    let id = order.job.to_string();
    let sql = format!("UPDATE jobs SET {set} WHERE id = ?1");
    assert_eq!(conn.execute(&sql, [&id]).unwrap(), 1);
    id
}

/// I10.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_told_set_aside_and_delays_nobody() {
    for set in [
        "stop = '{'",
        "boot_id = 'nobody'",
        "attempt_id = ''",
        "bundle = 'zz'",
        "state = 'exploded'",
        "retries = -1",
        "superseded_by = '?'",
        "platform = ''",
    ] {
        let (folder, world) = fresh();
        world.accept(&world.provision("sound")).await;
        let spoilt = spoil(folder.path(), &world, set).await;
        let rows = world.store.running(None, 10).await.unwrap();
        assert_eq!(rows.len(), 2, "{set}");
        let told = rows.iter().any(|row| {
            matches!(row, RunningRow::Unreadable { job, message, .. } if *job == spoilt && !message.is_empty())
        });
        assert!(told, "{set}: {rows:?}");
        let list = JobFilter {
            limit: 10,
            ..JobFilter::default()
        };
        assert_eq!(world.store.jobs(&list).await.unwrap().len(), 1, "{set}");
        for _ in 0..2 {
            world
                .store
                .set_aside(&spoilt, "spoilt", world.now())
                .await
                .unwrap();
        }
        let rows = world.store.running(None, 10).await.unwrap();
        assert!(matches!(rows[..], [RunningRow::Sound(_)]), "{set}");
        assert_eq!(world.store.counts().await.unwrap().quarantined, 1, "{set}");
        if set != "superseded_by = '?'" {
            assert_eq!(world.status("spoilt").await, Status::CreateFailed, "{set}");
        }
        // Life goes on.
        world.ready("another").await;
    }
}

#[tokio::test]
async fn a_waiting_row_that_cannot_be_read_is_set_aside_by_the_claim_and_by_its_deadline() {
    for late in [false, true] {
        let (folder, world) = fresh();
        let spoilt = world.provision("spoilt");
        world.accept(&spoilt).await;
        let sound = world.provision("sound");
        world.accept(&sound).await;
        stranger(folder.path())
            .execute(
                "UPDATE jobs SET retry_of = '?' WHERE id = ?1",
                [spoilt.job.to_string()],
            )
            .unwrap();
        if late {
            let asked = world.store.expire(spoilt.deadline_at, 1).await.unwrap();
            assert!(asked.is_empty(), "nothing runs");
        } else {
            assert_eq!(world.claim_one().await.job.id, sound.job);
        }
        assert_eq!(world.store.counts().await.unwrap().quarantined, 1);
    }
}

#[tokio::test]
async fn an_id_that_is_no_id_can_be_set_aside() {
    let (folder, world) = fresh();
    world.accept(&world.provision("i")).await;
    world.claim_one().await;
    let conn = stranger(folder.path());
    conn.execute_batch("PRAGMA foreign_keys = OFF; UPDATE jobs SET id = 'no id';")
        .unwrap();
    let rows = world.store.running(None, 10).await.unwrap();
    assert!(matches!(&rows[..], [RunningRow::Unreadable { job, .. }] if job == "no id"));
    world
        .store
        .set_aside("no id", "not an id", world.now())
        .await
        .unwrap();
    assert!(world.store.running(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_damaged_of_a_boot_hides_no_other_boot_and_stops_no_counting() {
    let (folder, world) = fresh();
    let store = &world.store;
    store.open_boot(&world.new_boot(world.boot)).await.unwrap();
    world.accept(&world.provision("i")).await;
    let claimed = world.claim_one().await;
    stranger(folder.path())
        .execute(
            "UPDATE boots SET death = '{\"ended_at\":', culprits = 'x'",
            [],
        )
        .unwrap();
    let next = BootId(world.uuid());
    store.open_boot(&world.new_boot(next)).await.unwrap();
    let seen = store.boots(9).await.unwrap();
    let seen: Vec<_> = seen
        .iter()
        .map(|view| (view.boot.id, view.death.is_some(), view.named.len()))
        .collect();
    assert_eq!(seen, [(next, false, 0), (world.boot, false, 0)]);
    let ends = store.boot_ends(next, 9).await.unwrap();
    assert_eq!(ends.len(), 1);
    assert!(ends[0].named && !ends[0].orderly, "{ends:?}");
    let near = Exposing {
        exposure: Exposure {
            boot: world.boot,
            cause: ExposureCause::NamedByBlackBox,
            named: true,
            exclusive: false,
        },
        ran: Duration::ZERO,
        at: world.now(),
    };
    let job = mine(store.expose(claimed.fence, near).await.unwrap());
    assert_eq!(job.budget.exposures, 1);
    let seen = store.boots(9).await.unwrap();
    assert_eq!(seen[1].named, [job.id], "named anew");
}

#[tokio::test]
async fn a_body_that_was_damaged_is_damage_and_delays_nobody() {
    let (folder, world) = fresh();
    let order = world.provision("i");
    world.accept(&order).await;
    stranger(folder.path())
        .execute("UPDATE job_bodies SET sealed = zeroblob(100)", [])
        .unwrap();
    let claimed = world.claim_one().await;
    let answer = world.store.inputs(claimed.fence).await;
    assert!(matches!(answer, Err(StoreError::Damaged(_))), "{answer:?}");
    let end = End::Unreadable {
        message: "body".into(),
    };
    let job = world.end(claimed.fence, end).await;
    assert!(matches!(
        job.state,
        State::Quarantined {
            reason: QuarantineReason::Unreadable { .. }
        }
    ));
    let kept: i64 = stranger(folder.path())
        .query_row("SELECT count(*) FROM job_bodies", [], |row| row.get(0))
        .unwrap();
    assert_eq!(kept, 1, "the bytes are kept");
}

#[tokio::test]
async fn a_job_of_a_newer_release_waits_for_it() {
    let (folder, world) = fresh();
    world.accept(&world.provision("newer")).await;
    stranger(folder.path())
        .execute("UPDATE jobs SET codec_version = 2", [])
        .unwrap();
    let ours = world.provision("ours");
    world.accept(&ours).await;
    assert_eq!(world.claim_one().await.job.id, ours.job);
    assert!(!world.store.next_due(world.now()).await.unwrap().due);
    assert_eq!(world.store.counts().await.unwrap().queued, 1);
}

#[tokio::test]
async fn a_gone_instance_leaves_no_sealed_byte() {
    let (folder, world) = fresh();
    world.ready("i").await;
    world.run(&world.bind("i", "b"), End::Succeeded).await;
    world.accept(&world.deprovision("i", &["b"])).await;
    for _ in 0..2 {
        let claimed = world.claim_one().await;
        world.end(claimed.fence, End::Succeeded).await;
    }
    let conn = stranger(folder.path());
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM job_bodies"), 0);
    assert_eq!(count("SELECT count(*) FROM jobs"), 4, "polls are answered");
    assert_eq!(
        count("SELECT count(*) FROM instances WHERE outputs IS NOT NULL OR data IS NOT NULL"),
        0
    );
}

#[tokio::test]
async fn a_part_that_was_damaged_is_told_and_the_rest_is_shown() {
    let (folder, world) = fresh();
    let order = world.provision("i");
    world.run(&order, End::Succeeded).await;
    let view = || world.store.instance(&order.instance);
    assert_eq!(view().await.unwrap().unwrap().damage, None);
    stranger(folder.path())
        .execute("UPDATE instances SET parameters = randomblob(100)", [])
        .unwrap();
    let seen = view().await.unwrap().unwrap();
    assert!(seen.damage.unwrap().contains("parameters"));
    assert!(seen.parameters.is_empty());
    assert!(seen.outputs.credentials.is_some());
    // A delete can do without.
    world
        .run(&world.deprovision("i", &[]), End::Succeeded)
        .await;
}

/// The run of a row that names an attempt may live: it is left to recovery, and in nobody's way.
#[tokio::test]
async fn a_running_row_that_cannot_be_read_is_left_to_recovery_and_a_delete_goes_behind_it() {
    let (folder, world) = fresh();
    let spoilt = spoil(folder.path(), &world, "retry_of = '?'").await;
    let delete = world.deprovision("spoilt", &[]);
    world.accept(&delete).await;
    let late = delete.deadline_at.plus(crate::world::LATER);
    assert!(world.store.expire(late, 1).await.unwrap().is_empty());
    assert!(world.claim(1).await.is_empty(), "its run may live");
    let rows = world.store.running(None, 10).await.unwrap();
    let [RunningRow::Unreadable { job, attempt, .. }] = &rows[..] else {
        panic!("{rows:?}")
    };
    assert_eq!(*job, spoilt);
    assert!(attempt.is_some(), "whose run is to be ended first");
    world
        .store
        .set_aside(&spoilt, "spoilt", world.now())
        .await
        .unwrap();
    assert_eq!(world.claim_one().await.job.id, delete.job);
}

/// For whoever asks the database itself: no part of the broker reads it.
#[tokio::test]
async fn the_evidence_of_an_attempt_stands_in_a_column_of_its_own() {
    let (folder, world) = fresh();
    world.accept(&world.provision("i")).await;
    let claimed = world.claim_one().await;
    world.end(claimed.fence, crate::world::crashed()).await;
    let written: Option<String> = stranger(folder.path())
        .query_row("SELECT evidence FROM attempts", [], |row| row.get(0))
        .unwrap();
    assert_eq!(written.as_deref(), Some(r#"{"kind":"out_of_memory"}"#));
}

#[tokio::test]
async fn what_is_set_aside_keeps_the_ends_that_its_attempts_had() {
    let (_folder, world) = fresh();
    let order = world.provision("i");
    world.accept(&order).await;
    let claimed = world.claim_one().await;
    world.end(claimed.fence, End::TryLater).await;
    world.pass(crate::world::LATER);
    world.claim_one().await;
    let id = order.job.to_string();
    let set_aside = world.store.set_aside(&id, "spoilt", world.now());
    set_aside.await.unwrap();
    let attempts = world.store.job(order.job).await.unwrap().unwrap().attempts;
    let ends: Vec<_> = attempts.into_iter().map(|one| one.end.unwrap()).collect();
    let message = "spoilt".into();
    assert_eq!(ends, [End::TryLater, End::Unreadable { message }]);
}
