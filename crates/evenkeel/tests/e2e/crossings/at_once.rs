//! Many at once: the same request is one job and one operation, of different ones one wins.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Mode, Target, is_busy, jobs};
use crate::harness::Answer;
use crate::stage::Stage;

const AT_ONCE: usize = 32;

/// Sends all of them at once.
async fn all_at_once(
    stage: &Stage,
    requests: impl IntoIterator<Item = (Method, String, Option<Value>)>,
) -> Vec<Answer> {
    let url = stage.broker.url("osb-url");
    let password = stage.broker.password();
    let start = Arc::new(Barrier::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (method, path, body) in requests {
        let http = stage.broker.http.clone();
        let (url, password) = (format!("{url}{path}"), password.clone());
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            let mut request = http
                .request(method, url)
                .basic_auth("platform", Some(password))
                .header("X-Broker-API-Version", "2.17");
            if let Some(body) = body {
                request = request.json(&body);
            }
            start.wait().await;
            let response = request.send().await.unwrap();
            Answer {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: response.json().await.unwrap(),
            }
        });
    }
    tasks.join_all().await
}

#[tokio::test]
async fn thirty_two_identical_requests_at_once_are_one_job_and_one_operation() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("same");
    let instance = Target::instance(&scene, &ok);

    let provision = instance.request(&Method::PUT, Mode::Async, scene.parameters("provision"));
    let answers = all_at_once(&stage, std::iter::repeat_n(provision, AT_ONCE)).await;
    let operation = answers[0].operation();
    assert!(answers.iter().all(|answer| answer.operation() == operation));
    scene.open_gate();
    assert_eq!(instance.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(jobs(&stage, "same", "provision").await.len(), 1);
    assert_eq!(scene.starts("provision"), 1);

    let update = instance.request(&Method::PATCH, Mode::Async, json!({ "when": "bind" }));
    let answers = all_at_once(&stage, std::iter::repeat_n(update, AT_ONCE)).await;
    // Whoever comes when it has happened already is told so.
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 202)),
        "{answers:?}"
    );
    let operation = accepted[0].operation();
    assert!(
        accepted
            .iter()
            .all(|answer| answer.operation() == operation)
    );
    assert_eq!(instance.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(scene.starts("update"), 1);

    let binding = instance.binding();
    let bind = binding.request(&Method::PUT, Mode::Async, json!({}));
    let answers = all_at_once(&stage, std::iter::repeat_n(bind, AT_ONCE)).await;
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 202)),
        "{answers:?}"
    );
    let operation = accepted[0].operation();
    assert!(
        accepted
            .iter()
            .all(|answer| answer.operation() == operation)
    );
    assert_eq!(binding.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(jobs(&stage, "same", "bind").await.len(), 1);
    assert_eq!(scene.starts("bind"), 1);

    for (target, action) in [(&binding, "unbind"), (&instance, "deprovision")] {
        let delete = target.request(&Method::DELETE, Mode::Async, json!({}));
        let answers = all_at_once(&stage, std::iter::repeat_n(delete, AT_ONCE)).await;
        let accepted: Vec<_> = answers
            .iter()
            .filter(|answer| answer.status == 202)
            .collect();
        assert!(
            answers
                .iter()
                .all(|answer| matches!(answer.status, 202 | 410)),
            "{answers:?}"
        );
        let operation = accepted[0].operation();
        assert!(
            accepted
                .iter()
                .all(|answer| answer.operation() == operation)
        );
        assert_eq!(target.end(&stage, &operation).await.0, "succeeded");
        assert_eq!(scene.starts(action), 1);
    }
}

#[tokio::test]
async fn thirty_two_identical_requests_that_wait_get_the_end_of_one_job() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("same");
    scene.open_gate();
    let instance = Target::instance(&scene, &ok);
    let provision = instance.request(&Method::PUT, Mode::Sync, scene.parameters("provision"));
    let answers = all_at_once(&stage, std::iter::repeat_n(provision, AT_ONCE)).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 201)),
        "{answers:?}"
    );
    assert_eq!(scene.starts("provision"), 1);

    let binding = instance.binding();
    let bind = binding.request(&Method::PUT, Mode::Sync, json!({}));
    let answers = all_at_once(&stage, std::iter::repeat_n(bind, AT_ONCE)).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 201)),
        "{answers:?}"
    );
    let credentials = &answers[0].body["credentials"];
    assert!(credentials.is_object(), "{answers:?}");
    assert!(
        answers
            .iter()
            .all(|answer| answer.body["credentials"] == *credentials)
    );
    assert_eq!(scene.starts("bind"), 1);

    for (target, action) in [(&binding, "unbind"), (&instance, "deprovision")] {
        let delete = target.request(&Method::DELETE, Mode::Sync, json!({}));
        let answers = all_at_once(&stage, std::iter::repeat_n(delete, AT_ONCE)).await;
        assert!(
            answers
                .iter()
                .all(|answer| matches!(answer.status, 200 | 410)),
            "{answers:?}"
        );
        assert!(
            answers.iter().any(|answer| answer.status == 200),
            "{answers:?}"
        );
        assert_eq!(scene.starts(action), 1);
    }
}

/// Exactly one is accepted, and what it asked for is what there is.
fn one_winner(answers: &[Answer]) -> String {
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    let conflicts = answers.iter().filter(|answer| answer.status == 409).count();
    assert_eq!((accepted.len(), conflicts), (1, AT_ONCE - 1), "{answers:?}");
    accepted[0].operation()
}

#[tokio::test]
async fn of_thirty_two_different_creates_at_once_one_wins_and_the_others_are_conflicts() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("other");
    let instance = Target::instance(&scene, &ok);
    let different = |target: &Target, base: Value| {
        let target = target.clone();
        (0..AT_ONCE).map(move |nth| {
            let mut parameters = base.clone();
            parameters["nth"] = nth.into();
            target.request(&Method::PUT, Mode::Async, parameters)
        })
    };

    let answers = all_at_once(&stage, different(&instance, scene.parameters("provision"))).await;
    let operation = one_winner(&answers);
    scene.open_gate();
    assert_eq!(instance.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(jobs(&stage, "other", "provision").await.len(), 1);
    assert_eq!(scene.starts("provision"), 1);

    let binding = instance.binding();
    let answers = all_at_once(&stage, different(&binding, json!({}))).await;
    let operation = one_winner(&answers);
    assert_eq!(binding.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(jobs(&stage, "other", "bind").await.len(), 1);
    assert_eq!(scene.starts("bind"), 1);
    // What won is what there is: it alone is "identical" from now on.
    let mut identical = 0;
    for nth in 0..AT_ONCE {
        let wish = json!({ "nth": nth });
        let answer = binding.ask(&stage, Method::PUT, Mode::Async, wish).await;
        assert!(matches!(answer.status, 200 | 409), "{answer:?}");
        identical += usize::from(answer.status == 200);
    }
    assert_eq!(identical, 1);
}

#[tokio::test]
async fn of_thirty_two_different_updates_at_once_those_that_do_not_run_are_told_to_wait() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("i");
    stage.prepare(&scene, &ok, "update").await;
    let instance = Target::instance(&scene, &ok);
    let updates = (0..AT_ONCE)
        .map(|nth| instance.request(&Method::PATCH, Mode::Async, json!({ "nth": nth })));
    let answers = all_at_once(&stage, updates).await;
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    let busy = answers.iter().filter(|answer| is_busy(answer)).count();
    assert_eq!((accepted.len(), busy), (1, AT_ONCE - 1), "{answers:?}");
    scene.open_gate();
    assert_eq!(
        instance.end(&stage, &accepted[0].operation()).await.0,
        "succeeded"
    );
    assert_eq!(scene.starts("update"), 1);
}
