//! Whatever is written about one instance, no column of another's rows changes: over a life in
//! which as much goes wrong as can.

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{End, ExposureCause};
use evenkeel_core::ids::{InstanceId, InstanceUid, PlanId, RequestDigest};
use evenkeel_store::seam::{Base, Claimed, Submission};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::{fresh, stranger};
use crate::world::{LATER, World, failed};

/// The rows of an instance, whatever they hold.
const ROWS: [&str; 7] = [
    "SELECT * FROM instances WHERE uid = ?1",
    "SELECT * FROM bindings WHERE instance_uid = ?1 ORDER BY uid",
    "SELECT * FROM budgets WHERE instance_uid = ?1 ORDER BY binding_id, action",
    "SELECT * FROM jobs WHERE instance_uid = ?1 ORDER BY id",
    "SELECT * FROM job_bodies WHERE job_id IN (SELECT id FROM jobs WHERE instance_uid = ?1)
         ORDER BY job_id",
    "SELECT * FROM job_after WHERE job_id IN (SELECT id FROM jobs WHERE instance_uid = ?1)
         ORDER BY job_id, after_id",
    "SELECT * FROM attempts WHERE job_id IN (SELECT id FROM jobs WHERE instance_uid = ?1)
         ORDER BY id",
];

fn dump(conn: &Connection, sql: &str, key: &str) -> Vec<Vec<Value>> {
    let mut statement = conn.prepare(sql).unwrap();
    let width = statement.column_count();
    let rows = statement.query_map([key], |row| (0..width).map(|at| row.get(at)).collect());
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

async fn uid(w: &World, instance: &str) -> InstanceUid {
    let id = InstanceId::new(instance).unwrap();
    w.store.instance(&id).await.unwrap().unwrap().uid
}

/// Others, and how they were.
struct Others {
    conn: Connection,
    uids: Vec<String>,
    before: Vec<Vec<Vec<Value>>>,
}

impl Others {
    fn now(conn: &Connection, uids: &[String]) -> Vec<Vec<Vec<Value>>> {
        uids.iter()
            .flat_map(|uid| ROWS.map(|sql| dump(conn, sql, uid)))
            .collect()
    }

    fn are_as_before(&self, what: &str) {
        let now = Self::now(&self.conn, &self.uids);
        for (nth, (was, is)) in self.before.iter().zip(&now).enumerate() {
            assert_eq!(was, is, "{what}: {}", ROWS[nth % ROWS.len()]);
        }
    }
}

/// An update into `what`, which leaves the instance with another order and plan.
async fn update(w: &World, instance: &str, what: &str) -> Submission {
    let id = InstanceId::new(instance).unwrap();
    let view = w.store.instance(&id).await.unwrap().unwrap();
    let mut order = w.submission(Action::Update, instance);
    order.digest = w.store.digest(what.as_bytes());
    order.base = Some(Base {
        uid: view.uid,
        revision: view.revision,
    });
    order.becomes = Some(w.store.digest(format!("order {what}").as_bytes()));
    order.plan = PlanId::new(what).unwrap();
    order.body.plan.id = order.plan.clone();
    order
}

/// The plan that an instance has, and the order that it answers to.
async fn order_of(w: &World, instance: &str) -> (PlanId, Option<RequestDigest>) {
    let id = InstanceId::new(instance).unwrap();
    let plan = w.store.instance(&id).await.unwrap().unwrap().plan;
    let standing = w.store.standing(&id, None).await.unwrap();
    (plan, standing.instance.map(|found| found.digest))
}

async fn claim_solo(w: &World) -> Claimed {
    let mut wish = w.wish(1);
    wish.solo = true;
    w.store.claim_due(wish).await.unwrap().remove(0)
}

#[tokio::test]
async fn what_is_written_about_one_instance_changes_no_column_of_another() {
    let (folder, w) = fresh();
    // Each of them has something of its kind: also what comes first in its table.
    for instance in ["own", "updated", "bound", "aside"] {
        w.ready(instance).await;
        w.run(&w.bind(instance, "b"), End::Succeeded).await;
    }
    let unreadable = End::Unreadable {
        message: "EOF".into(),
    };
    w.run(&w.bind("aside", "c"), unreadable).await;
    // An update that runs and a delete that waits for it; a bind that runs.
    w.accept(&update(&w, "updated", "medium").await).await;
    w.claim_one().await;
    w.accept(&w.deprovision("updated", &["b"])).await;
    w.accept(&w.bind("bound", "c")).await;
    w.claim_one().await;

    let conn = stranger(folder.path());
    let mut uids = Vec::new();
    for instance in ["updated", "bound", "aside"] {
        uids.push(uid(&w, instance).await.to_string());
    }
    let before = Others::now(&conn, &uids);
    let others = Others { conn, uids, before };
    let conn = stranger(folder.path());

    w.pass(LATER);
    let undone = w.unbind("own", "b");
    w.run(&undone, failed()).await;
    others.are_as_before("an unbind that failed");
    let job = "SELECT * FROM jobs WHERE id = ?1";
    let ended = dump(&conn, job, &undone.job.to_string());

    let damaged = update(&w, "own", "large").await;
    w.accept(&damaged).await;
    let claimed = w.claim_one().await;
    let spoil = "UPDATE job_bodies SET sealed = zeroblob(100) WHERE job_id = ?1";
    conn.execute(spoil, [damaged.job.to_string()]).unwrap();
    w.end(claimed.fence, End::Succeeded).await;
    others.are_as_before("an update whose body was damaged meanwhile");
    assert_eq!(order_of(&w, "own").await, (damaged.plan, damaged.becomes));

    let larger = update(&w, "own", "huge").await;
    w.ready("later").await;
    w.accept(&larger).await;
    let claimed = w.claim_one().await;
    // The last in the table is not the one that is meant either.
    w.accept(&update(&w, "later", "tiny").await).await;
    w.claim_one().await;
    w.accept(&w.unbind("own", "b")).await;
    w.end(claimed.fence, End::Succeeded).await;
    others.are_as_before("an update that a waiting unbind goes by");
    assert_eq!(order_of(&w, "own").await, (larger.plan, larger.becomes));
    assert_eq!(dump(&conn, job, &undone.job.to_string()), ended);
    let claimed = w.claim_one().await;
    w.end(claimed.fence, failed()).await;
    others.are_as_before("an unbind that failed again");

    let spoilt = w.bind("own", "e");
    w.accept(&spoilt).await;
    w.claim_one().await;
    let spoil = "UPDATE jobs SET retry_of = '?' WHERE id = ?1";
    conn.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    conn.execute(spoil, [spoilt.job.to_string()]).unwrap();
    w.accept(&w.deprovision("own", &["b", "e"])).await;
    others.are_as_before("a delete behind a row that cannot be read");
    let id = spoilt.job.to_string();
    w.store.set_aside(&id, "spoilt", w.now()).await.unwrap();
    others.are_as_before("a row that cannot be read");
    for unbind in w.claim(9).await {
        assert_eq!(unbind.job.action, Action::Unbind);
        w.end(unbind.fence, End::Succeeded).await;
    }
    others.are_as_before("unbinds");

    for _ in 0..2 {
        w.pass(LATER);
        let claimed = w.claim_one().await;
        assert_eq!(claimed.job.action, Action::Deprovision);
        let cause = ExposureCause::VanishedWithBroker;
        w.end(claimed.fence, End::Exposed { cause }).await;
        others.are_as_before("a death near it");
    }
    w.pass(LATER);
    let claimed = claim_solo(&w).await;
    w.end(claimed.fence, End::Succeeded).await;
    others.are_as_before("a delete");
    // I13.
    let kept = "SELECT 1 FROM job_bodies WHERE job_id = ?1";
    assert_eq!(dump(&conn, kept, &id).len(), 1, "what is set aside is kept");
}

/// No job should be under way when a life ends. If one is all the same, the tombstone stays as it
/// is: what a poll was answered once, it is answered again.
#[tokio::test]
async fn a_life_that_is_over_stays_as_it_ended_whatever_a_late_job_makes() {
    let (folder, w) = fresh();
    let conn = stranger(folder.path());
    for instance in ["updated", "damaged", "deleted"] {
        w.ready(instance).await;
    }
    let damaged = update(&w, "damaged", "large").await;
    for order in [
        w.provision("made"),
        update(&w, "updated", "large").await,
        damaged.clone(),
        w.deprovision("deleted", &[]),
    ] {
        w.accept(&order).await;
    }
    let spoil = "UPDATE job_bodies SET sealed = zeroblob(100) WHERE job_id = ?1";
    conn.execute(spoil, [damaged.job.to_string()]).unwrap();
    let late = w.claim(9).await;
    assert_eq!(late.len(), 4);
    let end = "UPDATE instances SET status = 'deleted', deleted_at = 1, parameters = NULL,
         context = NULL, outputs = NULL, data = NULL";
    assert_eq!(conn.execute(end, []).unwrap(), 4);
    let tombstones = "SELECT * FROM instances WHERE ?1 = '' ORDER BY uid";
    let before = dump(&conn, tombstones, "");
    for job in late {
        let action = job.job.action;
        w.end(job.fence, End::Succeeded).await;
        assert_eq!(dump(&conn, tombstones, ""), before, "{action}");
    }
}
