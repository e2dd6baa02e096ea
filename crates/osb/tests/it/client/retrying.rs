use std::time::{Duration, Instant};

use evenkeel_osb::client::{Client, ClientError, Mode, Retries};
use evenkeel_osb::{Action, Orphan, ProvisionAnswer, ProvisionRequest, Query};
use serde_json::json;
use tokio::net::TcpListener;

use super::broker::{Reply, Request, reply, reply_with, talk};

const QUICK: Retries = Retries {
    repeats: 2,
    pause: Duration::from_millis(1),
    at_most: Duration::from_millis(5),
};

async fn provision(
    retries: Retries,
    replies: Vec<Reply>,
) -> (Result<ProvisionAnswer, ClientError>, Vec<Request>) {
    let request = ProvisionRequest {
        service_id: "s".into(),
        ..ProvisionRequest::default()
    };
    talk(replies, async |client| {
        client
            .with_retries(retries)
            .provision("i", &request, Mode::AcceptsIncomplete)
            .await
    })
    .await
}

#[tokio::test]
async fn a_request_is_sent_again_as_it_was_while_the_broker_says_not_now() {
    let replies = vec![
        reply(503, json!({ "description": "starting" })),
        reply_with(429, "Retry-After: 86400\r\n", "{}"),
        reply(202, json!({ "operation": "op" })),
    ];
    let (answer, requests) = provision(QUICK, replies).await;
    assert!(
        matches!(answer, Ok(ProvisionAnswer::InProgress(_))),
        "{answer:?}"
    );
    for request in &requests {
        assert_eq!(
            request.line(),
            "PUT /v2/service_instances/i?accepts_incomplete=true"
        );
        assert_eq!(request.json(), requests[0].json());
    }
}

#[tokio::test]
async fn the_last_answer_counts_when_there_are_no_more_repeats() {
    let busy = || reply(503, json!({ "description": "busy" }));
    for (retries, asked) in [(Retries::default(), 1), (QUICK, 3)] {
        let (answer, requests) = provision(retries, (0..asked).map(|_| busy()).collect()).await;
        let error = answer.unwrap_err();
        assert_eq!(error.broker().unwrap().status, 503);
        assert_eq!(requests.len(), asked);
        // The broker may have taken it on all the same.
        assert_eq!(error.orphan(Action::Provision), Some(Orphan::Instance));
    }
}

#[tokio::test]
async fn what_the_broker_may_have_acted_on_or_refused_is_not_sent_again() {
    for status in [400, 401, 404, 408, 409, 410, 412, 422, 500, 502, 504] {
        let (answer, _) = provision(QUICK, vec![reply(status, json!({}))]).await;
        let error = answer.unwrap_err();
        assert_eq!(error.broker().unwrap().status, status);
        assert!(!error.is_repeatable());
    }
    for broken in [
        Reply::Bytes(Vec::new()),
        reply_with(201, "", "[]"),
        reply(204, json!({})),
    ] {
        let (answer, _) = provision(QUICK, vec![broken]).await;
        assert!(!answer.unwrap_err().is_repeatable());
    }
}

#[tokio::test]
async fn a_broker_that_asks_for_time_gets_it() {
    let retries = Retries {
        at_most: Duration::from_secs(10),
        ..QUICK
    };
    let replies = vec![
        reply_with(503, "Retry-After: 1\r\n", "{}"),
        reply(201, json!({})),
    ];
    let began = Instant::now();
    let (answer, _) = provision(retries, replies).await;
    assert!(
        matches!(answer, Ok(ProvisionAnswer::Created(_))),
        "{answer:?}"
    );
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_looked_for_so_often_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::new(&url, "u", "p".into()).unwrap();
    let retries = Retries {
        repeats: 3,
        pause: Duration::from_millis(100),
        at_most: Duration::from_secs(1),
    };
    let began = Instant::now();
    let error = client
        .with_retries(retries)
        .get_instance("i", &Query::default())
        .await
        .unwrap_err();
    assert!(error.is_repeatable(), "{error}");
    // 100, 200 and 400 ms.
    assert!(began.elapsed() >= Duration::from_millis(700));
}
