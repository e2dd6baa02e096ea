//! Cases of the suites and of eden about polls and fetches; named as in [`cases`](super::cases).

use std::fs;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Suite, binding, instance, is_error, named, reader};
use crate::harness::{Broker, PATIENCE, Setup, eventually, root};

#[tokio::test]
async fn go_an_operation_is_polled_under_a_word_of_its_own_and_bindings_under_none() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("async-bindings");
    let (at, bound_at) = (instance("i"), binding("i", "b"));
    let poll = |path: String, operation: &'static str| {
        let path = format!("{path}/last_operation?{}{operation}", plan.ids());
        let suite = &suite;
        async move { suite.get(&path).await }
    };
    let later = |path: &str| format!("{path}?accepts_incomplete=true");
    let answer = suite.put(&later(&at), plan.provision(named())).await;
    suite.over(&answer, &at, "operation=provision").await;
    let answer = suite
        .patch(&later(&at), plan.bind(json!({"name": "m"})))
        .await;
    suite.over(&answer, &at, "operation=update").await;
    let answer = suite.put(&later(&bound_at), plan.bind(reader())).await;
    suite.over(&answer, &bound_at, "").await;
    for (path, operation) in [
        (at.clone(), "&operation=provision"),
        (at.clone(), "&operation=update"),
        (at.clone(), ""),
        (bound_at.clone(), ""),
    ] {
        let answer = poll(path, operation).await;
        assert_eq!(
            (answer.status, &answer.body["state"]),
            (200, &json!("succeeded"))
        );
    }
    for path in [&bound_at, &at] {
        let answer = suite
            .delete(&format!("{}&{}", later(path), plan.ids()))
            .await;
        suite.over(&answer, path, "operation=deprovision").await;
    }
    let answer = poll(at, "&operation=deprovision").await;
    assert_eq!(
        (answer.status, &answer.body["state"]),
        (200, &json!("succeeded"))
    );
    let unknown = poll(instance("unknown"), "&operation=provision").await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
}

#[tokio::test]
async fn kotlin_a_fetched_binding_has_no_parameters_when_none_were_given() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan_of("hello");
    let order = plan.provision(json!({}));
    // Its own metadata would be one of the fields of 2.16.
    let call = suite
        .broker
        .osb(Method::PUT, &instance("i"), Some(order))
        .await;
    assert_eq!(call.status, 201, "{call:?}");
    let mut body = plan.bind(json!({}));
    body.as_object_mut().unwrap().remove("parameters");
    assert_eq!(suite.put(&binding("i", "b"), body).await.status, 201);
    let fetched = suite.get(&binding("i", "b")).await;
    assert_eq!(fetched.status, 200, "{fetched:?}");
    assert!(fetched.body.get("parameters").is_none(), "{fetched:?}");
}

#[tokio::test]
async fn eden_never_accepts_incomplete_bindings_and_polls_with_an_operation_that_may_be_empty() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("maintained");
    let at = instance("i");
    let send = async |method: Method, path: &str, body: Option<Value>| {
        let ask = suite.ask(method, path).version(Some("2.13"));
        let ask = ask.content_type(Some("application/json"));
        suite
            .send(match body {
                Some(body) => ask.body(body),
                None => ask,
            })
            .await
    };
    let answer = send(
        Method::PUT,
        &format!("{at}?accepts_incomplete=true"),
        Some(plan.provision(named())),
    )
    .await;
    for operation in [answer.operation(), String::new()] {
        let path = format!("{at}/last_operation?{}&operation={operation}", plan.ids());
        let end = eventually("eden's poll ends", || async {
            let poll = send(Method::GET, &path, None).await;
            (poll.body["state"] != "in progress").then_some(poll)
        })
        .await;
        assert_eq!((end.status, &end.body["state"]), (200, &json!("succeeded")));
    }
    let bound_at = binding("i", "b");
    let answer = send(Method::PUT, &bound_at, Some(plan.bind(reader()))).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let answer = send(Method::DELETE, &format!("{bound_at}?{}", plan.ids()), None).await;
    assert_eq!((answer.status, answer.body), (200, json!({})));
    let answer = send(
        Method::DELETE,
        &format!("{at}?{}&accepts_incomplete=true", plan.ids()),
        None,
    )
    .await;
    let path = format!(
        "{at}/last_operation?{}&operation={}",
        plan.ids(),
        answer.operation()
    );
    let end = eventually("eden's delete ends", || async {
        let poll = send(Method::GET, &path, None).await;
        (poll.body["state"] != "in progress").then_some(poll)
    })
    .await;
    // 410 would be an error for it.
    assert_eq!((end.status, &end.body["state"]), (200, &json!("succeeded")));
    // Where only asynchronous bindings are to be had, it is told so.
    let plan = suite.plan("async-bindings");
    suite.provisioned(&plan, "j", named()).await;
    let answer = send(Method::PUT, &binding("j", "b"), Some(plan.bind(reader()))).await;
    is_error(&answer, 422, "AsyncRequired");
}

#[tokio::test]
async fn kotlin_no_operation_is_in_progress_once_the_maximum_polling_duration_has_passed() {
    let mut broker = Broker::new(Setup::default());
    let bundle = broker.dir.path().join("bundles/endless");
    fs::create_dir_all(&bundle).unwrap();
    let from = root().join("examples/bundles/conformance/maintained");
    let text = fs::read_to_string(from.join("bundle.yml")).unwrap();
    let text = text.replace(
        "maximum_polling_duration: 60",
        "maximum_polling_duration: 4",
    );
    fs::write(
        bundle.join("bundle.yml"),
        text.replace("[./act]", "[sleep, '600']"),
    )
    .unwrap();
    broker.setup.bundles = vec![bundle];
    broker.boot().await;
    let suite = Suite::on(broker).await;
    let plan = suite.plan("maintained");
    let path = format!("{}?accepts_incomplete=true", instance("i"));
    let asked = Instant::now();
    let answer = suite.put(&path, plan.provision(named())).await;
    let path = format!("{}/last_operation?{}", instance("i"), plan.ids());
    assert_eq!(answer.status, 202, "{answer:?}");
    // In progress is told for the last time before the platform gives up.
    let mut last = asked;
    let end = loop {
        let poll = suite.get(&path).await;
        if poll.body["state"] != "in progress" {
            break poll;
        }
        last = Instant::now();
        assert!(asked.elapsed() < PATIENCE, "{poll:?}");
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(end.body["state"], "failed", "{end:?}");
    assert!(
        last - asked < Duration::from_secs(4),
        "told after {:?}",
        last - asked
    );
}
