//! Ten thousand random requests, made from the project's own description of its OSB routes
//! (`docs/osb-openapi.yaml`), on real connections to the real binary.
//!
//! The description is held to the broker and the broker to the description: no answer but those
//! that it declares, in the shapes that it declares, and every one of them is met. Each connection
//! has service instances of its own, so that what it asks is the same at every run with one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio::task::JoinSet;

use crate::harness::{Broker, Setup};

mod chance;
mod check;
mod description;
mod generate;
mod values;
mod wire;

use chance::Chance;
use description::Description;
use generate::{Generator, Offer};
use wire::Connection;

/// Where the run begins; `EVENKEEL_RANDOM_SEED` makes another one of it.
const SEED: u64 = 0x0e5e_17ed_0517_2026;
/// `EVENKEEL_RANDOM_REQUESTS` makes it longer or shorter.
const REQUESTS: usize = 10_000;
const CONNECTIONS: usize = 16;

/// What a healthy broker has no occasion to answer here: a body that does not arrive is the
/// listener's test, 410 to a poll needs another setting.
const NOT_MET: [(&str, u16); 2] = [("pollInstance", 410), ("pollBinding", 410)];
const NEVER_MET: [u16; 3] = [408, 500, 503];

/// Offerings that differ in what their actions may take: either way, asynchronous only (and no
/// update), and synchronous only with a right that platforms must grant.
const BUNDLES: [(&str, &str); 3] = [
    (
        "either",
        r#"
bundle: 1
service:
  id: either
  name: either
  description: As the platform asks
  tags: [test]
  plan_updateable: true
  metadata: {displayName: Either}
  dashboard_client: {id: dashboard, secret: s3cret, redirect_uri: "https://dashboard.example"}
plans:
  - id: either-small
    name: small
    description: With parameters
    free: false
    maximum_polling_duration: 600
    schemas:
      provision: &size {$schema: 'http://json-schema.org/draft-04/schema#', type: object, properties: {size: {type: integer, enum: [1, 2]}}}
      update: *size
      bind: {$schema: 'http://json-schema.org/draft-04/schema#', type: object, properties: {role: {type: string, enum: [read, write]}}}
  - {id: either-large, name: large, description: With maintenance, maintenance_info: {version: 1.0.0, description: First}}
  - {id: either-closed, name: closed, description: For nobody, bindable: false}
actions:
  provision: {command: [./act], timeout: 1m}
  update: {command: [./act], timeout: 1m}
  deprovision: {command: [./act], timeout: 1m}
  bind: {command: [./act], timeout: 1m}
  unbind: {command: [./act], timeout: 1m}
"#,
    ),
    (
        "later",
        r"
bundle: 1
service: {id: later, name: later, description: Asynchronous only}
plans:
  - {id: later-only, name: only, description: The only one}
actions:
  provision: {command: [./act], timeout: 1m, async: required}
  deprovision: {command: [./act], timeout: 1m, async: required}
  bind: {command: [./act], timeout: 1m, async: required}
  unbind: {command: [./act], timeout: 1m, async: required}
",
    ),
    (
        "drain",
        r"
bundle: 1
service: {id: drain, name: drain, description: Synchronous only, requires: [syslog_drain]}
plans:
  - {id: drain-only, name: only, description: The only one}
actions:
  provision: {command: [./act], timeout: 1m, async: unsupported}
  deprovision: {command: [./act], timeout: 1m, async: unsupported}
  bind: {command: [./act], timeout: 1m, async: unsupported}
  unbind: {command: [./act], timeout: 1m, async: unsupported}
",
    ),
];

/// Always succeeds, and hands out a value in every field that an answer can have.
const ACT: &str = r#"#!/bin/sh
case "$EVENKEEL_ACTION $EVENKEEL_SERVICE" in
    provision* | update*)
        echo '{"dashboard_url": "https://dashboard.example/1", "metadata": {"labels": {"a": "b"}, "attributes": {"c": 1}}}' ;;
    "bind drain")
        echo '{"credentials": {"user": "u"}, "syslog_drain_url": "syslog-tls://drain.example:6514"}' ;;
    bind*)
        echo '{"credentials": {"user": "u"}, "expires_at": "2099-01-01T00:00:00.0Z", "renew_before": "2098-01-01T00:00:00.0Z",
               "endpoints": [{"host": "db.example", "ports": ["5432", "6000-6010"], "protocol": "udp"}]}' ;;
    *) echo '{}' ;;
esac >"$EVENKEEL_OUTPUT"
"#;

fn bundle(folder: &Path, yaml: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("bundle.yml"), yaml).unwrap();
    fs::write(folder.join("act"), ACT).unwrap();
    fs::set_permissions(folder.join("act"), fs::Permissions::from_mode(0o755)).unwrap();
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect(variable))
}

/// What one connection found: answers that are not as declared, and how often each was met.
#[derive(Default)]
struct Found {
    wrong: Vec<String>,
    met: BTreeMap<(String, u16), usize>,
}

async fn ask_away(
    description: Arc<Description>,
    mut generator: Generator,
    mut connection: Connection,
    requests: usize,
) -> Found {
    let mut found = Found::default();
    for _ in 0..requests {
        let request = generator.request(&description);
        let reply = match connection.ask(&request).await {
            Ok(reply) => reply,
            Err(trouble) => {
                found.wrong.push(format!("{trouble}\n  {request}"));
                continue;
            }
        };
        match check::check(&description, &request, &reply) {
            Ok(operation) => {
                generator.learn(&request, &reply);
                let place = (operation.to_owned(), reply.status);
                *found.met.entry(place).or_default() += 1;
            }
            Err(problem) => found
                .wrong
                .push(format!("{problem}\n  {request}\n  {reply}")),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_random_requests_are_answered_as_the_description_says() {
    let seed = number("EVENKEEL_RANDOM_SEED", SEED);
    let requests = usize::try_from(number("EVENKEEL_RANDOM_REQUESTS", REQUESTS as u64)).unwrap();
    println!("EVENKEEL_RANDOM_SEED={seed} EVENKEEL_RANDOM_REQUESTS={requests}");
    let description = Arc::new(Description::read());
    let mut broker = Broker::new(Setup::default());
    for (name, yaml) in BUNDLES {
        bundle(&broker.dir.path().join("bundles").join(name), yaml);
    }
    broker.setup.bundles = vec![broker.dir.path().join("bundles")];
    broker.boot().await;
    let catalog = broker.osb(reqwest::Method::GET, "/v2/catalog", None).await;
    let offers: Arc<[Offer]> = Offer::all(&catalog.body).into();
    assert_eq!(offers.len(), 5, "{}", catalog.body);
    let url = broker.url("osb-url");
    let address = url.strip_prefix("http://").unwrap().parse().unwrap();

    let mut connections = JoinSet::new();
    for number in 0..CONNECTIONS {
        let generator = Generator::new(
            Chance::new(seed.wrapping_add(number as u64)),
            number,
            Arc::clone(&offers),
            &broker.password(),
        );
        let count = requests / CONNECTIONS + usize::from(number < requests % CONNECTIONS);
        connections.spawn(ask_away(
            Arc::clone(&description),
            generator,
            Connection::new(address),
            count,
        ));
    }
    let mut met = BTreeMap::<_, usize>::new();
    let mut wrong = Vec::new();
    while let Some(found) = connections.join_next().await {
        let found = found.unwrap();
        wrong.extend(found.wrong);
        for (place, count) in found.met {
            *met.entry(place).or_default() += count;
        }
    }
    println!("{met:#?}");
    let shown = wrong[..wrong.len().min(10)].join("\n\n");
    assert!(wrong.is_empty(), "{} of {requests}:\n{shown}", wrong.len());
    assert_eq!(met.values().sum::<usize>(), requests);
    // A generator that never came through would find nothing either. (Few requests prove little.)
    let missed: BTreeSet<_> = description
        .declared()
        .filter(|(_, status)| !NEVER_MET.contains(status))
        .filter(|(operation, status)| !NOT_MET.contains(&(operation.as_str(), *status)))
        .filter(|place| !met.contains_key(place))
        .collect();
    assert!(
        missed.is_empty() || requests < REQUESTS,
        "declared and never met: {missed:?}"
    );
    let health = broker.admin(reqwest::Method::GET, "/readyz").await;
    assert_eq!(health.status, 200, "{health:?}");
    let panics = broker.log().matches("panicked").count();
    assert_eq!(panics, 0, "{}", broker.log());
}

/// The check is worth something only if it finds what it is for.
#[test]
fn an_answer_that_is_not_as_described_is_found() {
    let description = Description::read();
    let request = wire::Request::example("GET", "/v2/service_instances/i/last_operation");
    let good = wire::Reply::example(200, r#"{"state": "succeeded"}"#);
    assert_eq!(
        check::check(&description, &request, &good),
        Ok("pollInstance")
    );
    let with = |change: &dyn Fn(&mut wire::Reply)| {
        let mut reply = good.clone();
        change(&mut reply);
        check::check(&description, &request, &reply).expect_err("not as described")
    };
    let body = |text: &'static str| with(&move |reply| reply.body = text.into());
    let without =
        |name: &'static str| with(&move |reply| reply.headers.retain(|(header, _)| header != name));
    for (problem, word) in [
        (body("{\"state\": \"done\"}"), "state"),
        (
            body("{\"state\": \"failed\", \"description\": null}"),
            "description",
        ),
        (body("{\"state\": \"failed\", \"extra\": 1}"), "extra"),
        (body("[]"), "object"),
        (body(""), "JSON"),
        (body("<html>"), "JSON"),
        (without("content-type"), "content type"),
        (without("x-broker-api-request-identity"), "request identity"),
        (with(&|reply| reply.status = 500), "500"),
        (with(&|reply| reply.status = 503), "503"),
        (with(&|reply| reply.status = 202), "202"),
        (with(&|reply| reply.status = 404), "state"),
    ] {
        assert!(problem.contains(word), "{word}: {problem}");
    }
    // Gates whose answer is known beforehand.
    let forbidden = wire::Request {
        authorized: false,
        ..wire::Request::example("GET", "/v2/catalog")
    };
    let refused = check::check(
        &description,
        &forbidden,
        &wire::Reply::example(412, "{\"description\": \"x\"}"),
    );
    assert_eq!(refused, Err("412 instead of 401".to_owned()));
    let wrong_method = wire::Request::example("TRACE", "/v2/catalog");
    let mut reply = wire::Reply::example(405, "{\"description\": \"x\"}");
    let refused = check::check(&description, &wrong_method, &reply);
    assert!(refused.unwrap_err().contains("Allow"));
    reply
        .headers
        .push(("allow".to_owned(), b"GET, HEAD".to_vec()));
    assert_eq!(
        check::check(&description, &wrong_method, &reply),
        Ok("no operation")
    );
}

#[test]
fn the_description_declares_for_each_operation_what_any_request_can_meet() {
    let description = Description::read();
    let operations: Vec<_> = description.operations().collect();
    assert_eq!(operations.len(), 10);
    for operation in operations {
        for status in [401, 412, 500, 503] {
            assert!(
                operation.responses.contains_key(&status),
                "{} {status}",
                operation.id
            );
        }
        assert!(
            operation.template.starts_with("/v2/"),
            "{}",
            operation.template
        );
        assert_eq!(
            operation.body.is_some(),
            matches!(operation.method.as_str(), "PUT" | "PATCH")
        );
    }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
