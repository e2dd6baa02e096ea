//! Requests of every kind at 50 connections, against a bare hyper server that answers the same
//! bytes; what authentication costs; polls beside 1,000 runs; a catalog of 1,000 services.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use argon2::password_hash::{PasswordHasher as _, SaltString};
use argon2::{Argon2, PasswordHash, PasswordVerifier as _};
use serde_json::{Value, json};

use crate::bundle;
use crate::harness::{Broker, Setup, eventually};

#[path = "requests/floor.rs"]
mod floor;
#[path = "requests/wire.rs"]
mod wire;

use floor::Floor;
use wire::{Figures, HASHED, PASSWORD, Requests, Wire, get, load, put};

const READS: usize = 40_000;
const ACCEPTS: usize = 8_000;
const IN_FLIGHT: usize = 1_000;
const SERVICES: usize = 1_000;

/// Makes this process the floor, where it was started as such.
pub(crate) async fn be_the_floor() {
    floor::serve_if_asked().await;
}

pub(crate) async fn run() {
    println!("requests                             per second   p50 ms   p99 ms");
    reads_and_users().await;
    accepts().await;
    large_catalog().await;
    println!();
}

fn line(what: &str, figures: Figures) {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{what:36} {:10.0} {:8.2} {:8.2}",
        figures.per_second,
        millis(figures.p50),
        millis(figures.p99)
    );
}

/// Measures the broker and then, with the same requests and the same answer, the floor.
async fn beside_floor(
    folder: &Path,
    what: &str,
    address: &str,
    (number, status): (usize, u16),
    requests: &Requests,
) -> Figures {
    // Once before it counts, for connections, caches and the answer that the floor gives.
    let (told, body) = Wire::connect(address).await.exchange(&requests(0)).await;
    assert_eq!(told, status, "{}", String::from_utf8_lossy(&body));
    let later: Requests = {
        let requests = Arc::clone(requests);
        Arc::new(move |nth| requests(nth + 1))
    };
    let broker = load(address, number, status, &later).await;
    line(what, broker);
    let floor = Floor::start(folder, status, &body);
    load(&floor.address, number / 4, status, &later).await;
    let bare = load(&floor.address, number, status, &later).await;
    line(&format!("  floor ({} bytes)", body.len()), bare);
    println!("  ratio {:40.2}", broker.per_second / bare.per_second);
    broker
}

fn always(request: Vec<u8>) -> Requests {
    Arc::new(move |_| request.clone())
}

/// A broker with a user of each kind.
async fn start(bundles: Vec<PathBuf>, jobs: usize) -> (Broker, String) {
    let mut broker = Broker::new(Setup {
        bundles,
        ..Setup::default()
    });
    fs::create_dir_all(broker.data()).expect("a folder");
    // Where the harness looks for it.
    let file = broker.data().join("osb-password");
    fs::write(&file, PASSWORD).expect("a file");
    broker.setup.toml = format!(
        "[osb]\nlisten = \"127.0.0.1:0\"\n\
         [[osb.users]]\nname = \"platform\"\npassword_file = {:?}\n\
         [[osb.users]]\nname = \"hashed\"\npassword_hash = {:?}\n\
         [jobs]\nconcurrency = {jobs}\nper_service = {jobs}\n\
         [shutdown]\non_shutdown = \"detach\"\n",
        file.display().to_string(),
        hash(),
    );
    broker.boot().await;
    let url = broker.url("osb-url");
    let address = url.strip_prefix("http://").expect("an address").to_owned();
    (broker, address)
}

/// Of [`PASSWORD`], at the cost that the crate takes by itself: 19 MiB, two passes.
fn hash() -> String {
    let salt = SaltString::encode_b64(b"salt of the bench").expect("a salt");
    Argon2::default()
        .hash_password(PASSWORD.as_bytes(), &salt)
        .expect("a hash")
        .to_string()
}

/// Instances are made at once where their name begins with `ready`, and never otherwise.
fn sleeper(folder: &Path) -> PathBuf {
    let script = "case $EVENKEEL_INSTANCE_ID in ready*) ;; *) exec sleep 600 ;; esac";
    bundle::write(folder, &["sh", "-c", script])
}

async fn reads_and_users() {
    let folder = tempfile::tempdir().expect("a folder");
    let (broker, address) = start(vec![sleeper(folder.path())], IN_FLIGHT).await;
    let ids = broker.ids("bench", "only").await;
    let made = broker.provision("ready", &ids, json!({ "size": 1 })).await;
    let operation = made.operation();
    broker.succeeded("ready", None, &operation).await;

    let poll = format!("/v2/service_instances/ready/last_operation?operation={operation}");
    let poll_as = |credentials: &str| always(get(credentials, &poll, ""));
    for (what, path) in [
        ("catalog", "/v2/catalog"),
        ("fetch of an instance", "/v2/service_instances/ready"),
        ("poll of what has ended", poll.as_str()),
    ] {
        let requests = always(get(wire::FILED, path, ""));
        beside_floor(folder.path(), what, &address, (READS, 200), &requests).await;
    }

    // Taken by turns, so that neither has the quieter moments.
    let since = Instant::now();
    Wire::connect(&address)
        .await
        .exchange(&get(HASHED, &poll, ""))
        .await;
    let first = since.elapsed();
    let mut shares = Vec::new();
    for turn in 0..3 {
        let filed = load(&address, READS / 2, 200, &poll_as(wire::FILED)).await;
        let hashed = load(&address, READS / 2, 200, &poll_as(HASHED)).await;
        if turn == 0 {
            line("poll, user with a password file", filed);
            line("poll, user with an argon2id hash", hashed);
        }
        shares.push(hashed.per_second / filed.per_second);
    }
    println!("  ratio of the two, three times: {shares:.2?}");
    let known = hash();
    let known = PasswordHash::new(&known).expect("a hash");
    let since = Instant::now();
    Argon2::default()
        .verify_password(PASSWORD.as_bytes(), &known)
        .expect("it fits");
    println!(
        "  first request with the hash {:.1} ms; argon2id alone {:.1} ms",
        first.as_secs_f64() * 1e3,
        since.elapsed().as_secs_f64() * 1e3
    );

    polls_beside_runs(folder.path(), &broker, &address, &ids).await;
}

async fn polls_beside_runs(folder: &Path, broker: &Broker, address: &str, ids: &(String, String)) {
    let mut polls = Vec::new();
    for nth in 0..IN_FLIGHT {
        let name = format!("i-{nth}");
        let made = broker.provision(&name, ids, json!({})).await.operation();
        let path = format!("/v2/service_instances/{name}/last_operation?operation={made}");
        polls.push(get(wire::FILED, &path, ""));
    }
    eventually("all of them run", || async {
        let status = broker.admin(reqwest::Method::GET, "/admin/v1/status").await;
        (status.body["counts"]["running"] == IN_FLIGHT).then_some(())
    })
    .await;
    let requests: Requests = Arc::new(move |nth| polls[nth % IN_FLIGHT].clone());
    let what = format!("poll, {IN_FLIGHT} runs in flight");
    beside_floor(folder, &what, address, (READS, 200), &requests).await;
}

async fn accepts() {
    let folder = tempfile::tempdir().expect("a folder");
    // One run holds the only slot, so that accepting is all that the broker does.
    let (broker, address) = start(vec![sleeper(folder.path())], 1).await;
    let ids = broker.ids("bench", "only").await;
    broker
        .provision("holder", &ids, json!({}))
        .await
        .operation();
    let body = json!({
        "service_id": ids.0, "plan_id": ids.1,
        "organization_guid": "org", "space_guid": "space", "parameters": { "size": 1 },
    })
    .to_string();
    let requests: Requests = Arc::new(move |nth| {
        let path = format!("/v2/service_instances/i-{nth}?accepts_incomplete=true");
        put(wire::FILED, &path, &body)
    });
    beside_floor(
        folder.path(),
        "accept (PUT of an instance)",
        &address,
        (ACCEPTS, 202),
        &requests,
    )
    .await;
}

async fn large_catalog() {
    let folder = tempfile::tempdir().expect("a folder");
    let bundles = (0..SERVICES)
        .map(|nth| numbered(folder.path(), nth))
        .collect();
    let since = Instant::now();
    let (_broker, address) = start(bundles, 1).await;
    println!(
        "{SERVICES} services are loaded and ready after {:.1?}",
        since.elapsed()
    );
    let requests = always(get(wire::FILED, "/v2/catalog", ""));
    let what = format!("catalog of {SERVICES} services");
    beside_floor(folder.path(), &what, &address, (READS / 20, 200), &requests).await;

    let (_, body) = Wire::connect(&address).await.exchange(&requests(0)).await;
    let catalog: Value = serde_json::from_slice(&body).expect("a catalog");
    let services = catalog["services"].as_array().map(Vec::len);
    assert_eq!(services, Some(SERVICES));
    let tagged = etag(&address).await;
    let header = format!("If-None-Match: {tagged}\r\n");
    let requests = always(get(wire::FILED, "/v2/catalog", &header));
    beside_floor(
        folder.path(),
        "  the same, not modified",
        &address,
        (READS, 304),
        &requests,
    )
    .await;
}

fn numbered(folder: &Path, nth: usize) -> PathBuf {
    let bundle = bundle::write(&folder.join(nth.to_string()), &["true"]);
    let file = bundle.join("bundle.yml");
    let text = fs::read_to_string(&file).expect("a bundle");
    let text = text.replace("name: bench", &format!("name: bench-{nth}"));
    fs::write(file, text).expect("a bundle");
    bundle
}

/// The catalog's entity tag.
async fn etag(address: &str) -> String {
    let answer = reqwest::Client::new()
        .get(format!("http://{address}/v2/catalog"))
        .basic_auth("platform", Some(PASSWORD))
        .header("X-Broker-API-Version", "2.17")
        .send()
        .await
        .expect("an answer");
    let tag = answer.headers()["etag"].to_str().expect("a tag");
    tag.to_owned()
}
