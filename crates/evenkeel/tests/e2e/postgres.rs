//! The whole way on real input: a platform orders a PostgreSQL database, gets credentials that log
//! in, and gives it back; by HTTP, by the command line, and with the broker killed on the way.

use reqwest::Method;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Login};
use crate::harness::{Broker, Setup, eventually, pid, root};

async fn start() -> (Cluster, Broker) {
    let cluster = Cluster::start();
    let broker = Broker::start(Setup {
        bundles: vec![root().join("examples/bundles/postgres")],
        ..Setup::default()
    })
    .await;
    cluster.introduce_to(&broker);
    (cluster, broker)
}

fn refused(cluster: &Cluster, login: &Login) {
    let refusal = cluster.run(login, "SELECT 1").unwrap_err();
    assert!(refusal.contains("authentication failed"), "{refusal}");
}

#[tokio::test]
async fn a_database_is_ordered_used_and_given_back_by_http() {
    let (cluster, broker) = start().await;
    let small = broker.ids("postgres", "small").await;

    let asked = broker.provision("shop", &small, json!({})).await;
    broker.succeeded("shop", None, &asked.operation()).await;
    assert_eq!(cluster.made().len(), 2, "{:?}", cluster.made());

    let asked = broker.bind("shop", "web", &small, json!({})).await;
    let operation = asked.operation();
    broker.succeeded("shop", Some("web"), &operation).await;
    let path = "/v2/service_instances/shop/service_bindings/web";
    let fetched = broker.osb(Method::GET, path, None).await;
    assert_eq!(fetched.status, 200, "{fetched:?}");
    let login = Login::of(&fetched.body["credentials"]);
    let sql = "CREATE TABLE orders AS SELECT 7 AS n; SELECT n FROM orders";
    assert_eq!(cluster.run(&login, sql), Ok("7".to_owned()));

    // The plan's limit reaches the server, and another plan changes it.
    let limit = "SELECT datconnlimit FROM pg_database WHERE datname LIKE 'ek\\_%'";
    assert_eq!(cluster.query(limit), "10");
    let large = broker.ids("postgres", "large").await;
    let asked = broker.update("shop", &large, json!({})).await;
    broker.succeeded("shop", None, &asked.operation()).await;
    assert_eq!(cluster.query(limit), "100");

    let asked = broker.unbind("shop", "web", &large).await;
    let operation = asked.operation();
    broker.succeeded("shop", Some("web"), &operation).await;
    refused(&cluster, &login);
    assert_eq!(broker.osb(Method::GET, path, None).await.status, 404);

    let asked = broker.deprovision("shop", &large).await;
    broker.succeeded("shop", None, &asked.operation()).await;
    assert_eq!(cluster.made(), Vec::<String>::new());
    broker.nothing_left().await;
}

/// Runs a command that succeeds; gives what it prints, and what it says.
fn told(broker: &Broker, arguments: &[&str]) -> (String, String) {
    let output = broker.cli(arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {out}{err}");
    (out, err)
}

#[tokio::test]
async fn a_database_is_ordered_used_and_given_back_by_the_command_line() {
    let (cluster, broker) = start().await;
    let broker = &broker;

    let (out, _) = told(broker, &["osb", "catalog"]);
    let heading: Vec<_> = out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        heading,
        ["SERVICE", "PLAN", "FREE", "BINDABLE", "DESCRIPTION"]
    );
    let row = out.lines().find(|line| line.contains("small")).unwrap();
    assert!(
        row.starts_with("postgres") && row.contains("Up to 10"),
        "{out}"
    );

    let (out, err) = told(
        broker,
        &["osb", "provision", "postgres", "small", "--id", "shop"],
    );
    assert_eq!(out, "shop\n");
    assert!(
        err.starts_with("instance shop of postgres small\n"),
        "{err}"
    );
    assert!(err.ends_with("done\n"), "{err}");

    let (out, _) = told(broker, &["osb", "instance", "shop"]);
    let instance: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(instance["plan_id"], broker.ids("postgres", "small").await.1);

    let (out, err) = told(broker, &["osb", "bind", "shop", "--id", "web"]);
    assert!(err.starts_with("binding web of instance shop\n"), "{err}");
    let credentials: Value = serde_json::from_str(&out).unwrap();
    let login = Login::of(&credentials);
    assert!(
        !err.contains(&login.password),
        "messages are no place for passwords"
    );
    let sql = "CREATE TABLE orders AS SELECT 7 AS n; SELECT n FROM orders";
    assert_eq!(cluster.run(&login, sql), Ok("7".to_owned()));
    let (out, _) = told(broker, &["osb", "binding", "shop", "web"]);
    let binding: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(binding["credentials"], credentials);

    let (out, err) = told(
        broker,
        &["osb", "update", "shop", "--plan", "large", "--json"],
    );
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        answer,
        json!({"instance_id": "shop", "state": "succeeded"}),
        "{err}"
    );

    let (out, _) = told(broker, &["osb", "unbind", "shop", "web"]);
    assert_eq!(out, "web\n");
    refused(&cluster, &login);
    let (out, _) = told(
        broker,
        &["osb", "last-operation", "shop", "--binding", "web"],
    );
    assert!(out.starts_with("succeeded"), "{out}");

    let (out, _) = told(broker, &["osb", "deprovision", "shop"]);
    assert_eq!(out, "shop\n");
    assert_eq!(cluster.made(), Vec::<String>::new());

    // What cannot be done has its own exit code and a message, and prints nothing.
    for (arguments, code, word) in [
        (&["osb", "deprovision", "shop"][..], 3, "shop"),
        (&["osb", "bind", "shop"], 3, "shop"),
        (&["osb", "provision", "mysql"], 3, "mysql"),
        (&["osb", "provision", "postgres", "huge"], 3, "huge"),
        (&["osb", "provision", "postgres"], 2, "several plans"),
        (
            &["osb", "provision", "postgres", "small", "-p", "size=9"],
            2,
            "size",
        ),
    ] {
        let output = broker.cli(arguments);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
        assert!(err.starts_with("error: ") && err.contains(word), "{err}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
}

#[tokio::test]
async fn a_command_that_does_not_wait_names_the_operation_and_the_server_may_come_later() {
    let (cluster, broker) = start().await;
    let held = cluster.hold_roles();
    let arguments = [
        "osb",
        "provision",
        "postgres",
        "small",
        "--id",
        "shop",
        "--no-wait",
        "--json",
    ];
    let (out, _) = told(&broker, &arguments);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["state"], "in progress");
    let operation = answer["operation"].as_str().unwrap();

    eventually("the action waits at the server", || {
        std::future::ready((cluster.waiting_actions() == 1).then_some(()))
    })
    .await;
    let again = [
        "osb",
        "provision",
        "postgres",
        "small",
        "--id",
        "shop",
        "--wait-limit",
        "1",
    ];
    let output = broker.cli(&again);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    eventually("the progress line is there", || async {
        let (out, _) = told(
            &broker,
            &["osb", "last-operation", "shop", "--operation", operation],
        );
        (out == "in progress: Creating the database\n").then_some(())
    })
    .await;

    drop(held);
    broker.succeeded("shop", None, operation).await;
    assert_eq!(broker.job(operation).await["attempts"], 1);
}

/// Waits until exactly one action waits at the server.
async fn at_the_server(cluster: &Cluster) {
    eventually("the action waits at the server", || {
        std::future::ready((cluster.waiting_actions() == 1).then_some(()))
    })
    .await;
}

#[tokio::test]
async fn a_broker_that_is_killed_during_a_provision_finishes_it_with_one_database() {
    let (cluster, mut broker) = start().await;
    let small = broker.ids("postgres", "small").await;

    // The broker alone: its run goes on without it, and is found again.
    let held = cluster.hold_roles();
    let asked = broker.provision("one", &small, json!({})).await;
    let operation = asked.operation();
    at_the_server(&cluster).await;
    broker.kill();
    assert_eq!(
        cluster.waiting_actions(),
        1,
        "the action outlives the broker"
    );
    broker.boot().await;
    drop(held);
    broker.succeeded("one", None, &operation).await;
    let job = broker.job(&operation).await;
    assert_eq!(job["attempts"], 1, "{job:#}");
    assert_eq!(cluster.made().len(), 2, "{:?}", cluster.made());

    // The broker and everything of the run: a second attempt finds what the first one left,
    // a statement that the server still works on included.
    let held = cluster.hold_roles();
    let asked = broker.provision("two", &small, json!({})).await;
    let operation = asked.operation();
    at_the_server(&cluster).await;
    let runs = broker.run_processes();
    assert!(!runs.is_empty());
    broker.kill();
    for id in runs {
        kill_process(pid(id), Signal::KILL).ok();
    }
    broker.boot().await;
    let job = eventually("a second attempt runs", || async {
        let job = broker.job(&operation).await;
        (job["attempts"] == 2 && job["state"] == "running").then_some(job)
    })
    .await;
    assert_eq!(job["history"][0]["end"], "exposed", "{job:#}");
    drop(held);
    broker.succeeded("two", None, &operation).await;
    assert_eq!(cluster.made().len(), 4, "{:?}", cluster.made());

    let asked = broker.bind("two", "web", &small, json!({})).await;
    let operation = asked.operation();
    broker.succeeded("two", Some("web"), &operation).await;
    // Somebody else has already removed one of them: what is gone is gone.
    let database = cluster.query(
        "SELECT datname FROM pg_database WHERE shobj_description(oid, 'pg_database') LIKE '% one'",
    );
    cluster.query(&format!("DROP DATABASE {database} WITH (FORCE)"));
    cluster.query(&format!("DROP ROLE {database}_owner"));
    for id in ["one", "two"] {
        let asked = broker.deprovision(id, &small).await;
        broker.succeeded(id, None, &asked.operation()).await;
    }
    assert_eq!(cluster.made(), Vec::<String>::new());
    broker.nothing_left().await;
}

#[tokio::test]
async fn a_server_that_is_named_only_later_is_asked_again_by_an_operators_retry() {
    let cluster = Cluster::start();
    let broker = Broker::start(Setup {
        bundles: vec![root().join("examples/bundles/postgres")],
        ..Setup::default()
    })
    .await;
    let small = broker.ids("postgres", "small").await;
    let asked = broker.provision("shop", &small, json!({})).await;
    let operation = asked.operation();
    let end = broker.finished("shop", None, &operation).await;
    assert_eq!(end["state"], "failed", "{end}");
    cluster.introduce_to(&broker);
    let (out, _) = told(&broker, &["jobs", "retry", &operation]);
    broker.succeeded("shop", None, out.trim()).await;
    // The first operation stays what it was.
    let end = broker.finished("shop", None, &operation).await;
    assert_eq!(end["state"], "failed", "{end}");
    assert_eq!(cluster.made().len(), 2);
}
