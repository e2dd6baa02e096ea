//! Jobs that are bad on purpose, one kind after the other among the innocent.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::kinds::{self, KILLERS, KINDS, Kind, RETRIES};
use super::{POISONS_AT_ONCE, Storm};
use crate::harness::Broker;
use crate::platforms::desk::{Desk, Instance, Offer};

/// From one job that kills brokers to the next, once each kind has been had: each stops everybody
/// else for as long as it takes.
const KILLER_EVERY: Duration = Duration::from_secs(30);

const ACTION: &str = r#"#!/bin/sh
# What is bad is bad at provision; the rest is as it ought to be.
mark() { printf '%s\n' "$2" >>"$STAGE/$1"; }
kind=$EVENKEEL_PLAN
[ "$EVENKEEL_ACTION" = provision ] || kind=good
mark starts "$EVENKEEL_JOB_ID $EVENKEEL_PLAN $EVENKEEL_ATTEMPT_ID $EVENKEEL_ACTION"
exec 9>>"$STAGE/locks/$EVENKEEL_INSTANCE_ID"
flock -n 9 || mark doubles "$EVENKEEL_JOB_ID $kind"
kill_broker() {
    read -r warden <"$STAGE/warden"
    brokers=
    for stat in /proc/[0-9]*/stat; do
        line=
        read -r line 2>/dev/null <"$stat" || continue
        set -- ${line##*) }
        [ "${2-}" != "$warden" ] || brokers="$brokers ${line%% *}"
    done
    # Between two brokers there is none: then it only kills its own run.
    [ -z "$brokers" ] || mark kills "$EVENKEEL_JOB_ID $(date +%s%3N)$brokers"
    kill -s KILL $brokers "$PPID" "$$"
}
forks() { [ "$1" -gt 6 ] || { forks $(($1 + 1)) & forks $(($1 + 1)) & }; sleep 600; }
case $kind in
    good) ;;
    segv) kill -s SEGV $$ ;;
    abort) kill -s ABRT $$ ;;
    kill-self) kill -s KILL $$ ;;
    kill-shim) kill -s KILL $PPID; sleep 600 ;;
    kills-its-broker) kill_broker ;;
    later) exit 75 ;;
    hang) sleep 600 ;;
    flood) dd if=/dev/zero bs=64k count=32 2>/dev/null ;;
    unreadable) printf '{"credentials": ' >"$EVENKEEL_OUTPUT" ;;
    memory) perl -e 'my $x = "x" x (1 << 30); print length $x' || exit 1 ;;
    forks) forks 1 & sleep 0.2; exit 1 ;;
    # Who dies of these is the broker: there has to be a run to watch, and one that has ended.
    dies-watched | dies-looked-at) sleep 600 ;;
    dies-concluded) ;;
    *) exit 1 ;;
esac
"#;

/// Makes the offerings' bundles, and where their actions leave marks; gives the bundles' folders.
pub(super) fn write(folder: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(folder.join("locks")).unwrap();
    let bundles = kinds::services().map(|service| {
        let bundle = folder.join("bundles").join(service);
        fs::create_dir_all(&bundle).unwrap();
        write_bundle(&bundle, service, folder);
        bundle
    });
    bundles.collect()
}

fn write_bundle(bundle: &Path, service: &str, stage: &Path) {
    let mut text = format!(
        "bundle: 1\nservice: {{name: {service}, id: {service}, description: Bad, bindable: false}}\n\
         plans:\n"
    );
    let of_service = || kinds::all().filter(|kind| kind.service() == service);
    for kind in of_service() {
        text += &format!("  - {{name: {}, description: Bad}}\n", kind.name);
    }
    // Where the broker dies over a run, the run is there for as long as that takes.
    let dies = of_service().any(Kind::dies_in_a_step);
    let timeout = if dies { "10m" } else { "5s" };
    text += "actions:\n";
    for action in ["provision", "deprovision"] {
        text += &format!(
            "  {action}: {{command: [./action], timeout: {timeout}, async: required, retries: {RETRIES}}}\n"
        );
    }
    text += "limits: {memory: 64Mi, output: 64Ki, processes: 256}\n";
    text += &format!("env: {{STAGE: {:?}}}\n", stage.display().to_string());
    fs::write(bundle.join("bundle.yml"), text).unwrap();
    fs::write(bundle.join("action"), ACTION).unwrap();
    fs::set_permissions(bundle.join("action"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whose child the broker is that is to be killed.
pub(super) fn tell_warden(folder: &Path, warden: u32) {
    fs::write(folder.join("warden.new"), format!("{warden}\n")).unwrap();
    fs::rename(folder.join("warden.new"), folder.join("warden")).unwrap();
}

/// There is none soon: its number may be given to a process that has children of its own.
pub(super) fn forget_warden(folder: &Path) {
    fs::remove_file(folder.join("warden")).unwrap();
}

/// What can be ordered, by kind.
pub(super) type Offers = Arc<BTreeMap<&'static str, Arc<Offer>>>;

pub(super) async fn offers(broker: &Broker) -> Offers {
    let mut offers = BTreeMap::new();
    for kind in kinds::all() {
        let (id, plan) = broker.ids(kind.service(), kind.name).await;
        let plans = BTreeMap::from([(kind.name.to_owned(), plan)]);
        offers.insert(kind.name, Arc::new(Offer { id, plans }));
    }
    Arc::new(offers)
}

/// What was ordered and accepted: whose answer did not arrive was ordered again, and is another job
/// where the first was final by then.
#[derive(Clone, Debug)]
pub(super) struct Poisoned {
    pub(super) kind: &'static str,
    pub(super) instance: String,
}

/// Orders one kind after the other until it is over, each kind once at least.
pub(super) async fn feed(storm: Arc<Storm>, mut desk: Desk, offers: Offers) -> Vec<Poisoned> {
    let room = Arc::new(Semaphore::new(POISONS_AT_ONCE));
    let mut bad = JoinSet::new();
    for nth in 0.. {
        let place = Arc::clone(&room).acquire_owned().await.unwrap();
        if nth >= KINDS.len() && storm.is_over() {
            break;
        }
        let kind = &KINDS[nth % KINDS.len()];
        let (mut desk, instance) = order(&mut desk, &offers, kind);
        bad.spawn(async move {
            let _place = place;
            life(&mut desk, &instance, kind).await
        });
    }
    let mut poisoned = Vec::new();
    while let Some(ended) = bad.join_next().await {
        poisoned.push(ended.unwrap());
    }
    poisoned
}

/// The same with those that kill brokers: one at a time, so that it is known which one did.
pub(super) async fn feed_killers(
    storm: Arc<Storm>,
    mut desk: Desk,
    offers: Offers,
) -> Vec<Poisoned> {
    let mut poisoned = Vec::new();
    for nth in 0.. {
        let ordered = Instant::now();
        let kind = &KILLERS[nth % KILLERS.len()];
        let (mut desk, instance) = order(&mut desk, &offers, kind);
        poisoned.push(life(&mut desk, &instance, kind).await);
        if nth + 1 < KILLERS.len() {
            continue;
        }
        while !storm.is_over() && ordered.elapsed() < KILLER_EVERY {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if storm.is_over() {
            break;
        }
    }
    poisoned
}

/// A new instance of a kind, and a desk at which to order it.
fn order(desk: &mut Desk, offers: &Offers, kind: &Kind) -> (Desk, Instance) {
    let mut desk = Desk {
        calm: true,
        ..desk.fork()
    };
    let mut instance = desk.new_instance();
    instance.offer = Arc::clone(&offers[kind.name]);
    instance.plan = kind.name.to_owned();
    (desk, instance)
}

/// Ordered, polled to its end, and given back.
async fn life(desk: &mut Desk, instance: &Instance, kind: &'static Kind) -> Poisoned {
    let body = json!({
        "service_id": instance.offer.id, "plan_id": instance.plan_id(),
        "organization_guid": "org", "space_guid": "space",
    });
    let url = format!("{}?accepts_incomplete=true", instance.path());
    let since = Instant::now();
    let job = loop {
        let reply = desk
            .send(Method::PUT, url.clone(), Some(body.clone()))
            .await;
        match reply.status() {
            Some(202) => break Some(reply.operation()),
            // Accepted by a broker that could not say so any more, and done by now.
            Some(200) if kind.ends.contains(&"succeeded") => break None,
            _ if reply.is_trouble() => {}
            _ => desk.shock(&format!("PUT of {}", kind.name), &reply),
        }
        assert!(
            since.elapsed() < desk.client.patience,
            "{}: {reply:?}",
            kind.name
        );
        tokio::time::sleep(Duration::from_millis(30)).await;
    };
    if let Some(job) = job {
        desk.poll(&instance.path(), &instance.ids(), &job, false)
            .await;
    }
    desk.delete_instance(instance).await;
    Poisoned {
        kind: kind.name,
        instance: instance.id.clone(),
    }
}
