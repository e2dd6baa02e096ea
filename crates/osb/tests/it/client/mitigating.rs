use std::time::Duration;

use evenkeel_osb::client::{ClientError, Mitigated, Orphaned, Retries, Target};
use serde_json::json;

use super::broker::{Reply, Request, reply, reply_with, talk};

const INSTANCE: Target<'_> = Target::Instance { instance_id: "i/1" };
const BINDING: Target<'_> = Target::Binding {
    instance_id: "i/1",
    binding_id: "b",
};
const QUICK: Retries = Retries {
    repeats: 10,
    pause: Duration::from_micros(1),
    at_most: Duration::from_millis(2),
};

/// What became of it, what was told on the way, and what the broker was asked.
async fn mitigate(
    target: Target<'_>,
    replies: Vec<Reply>,
) -> (Result<Mitigated, ClientError>, Vec<String>, Vec<Request>) {
    let mut told = Vec::new();
    let left = Orphaned {
        target,
        service_id: "s",
        plan_id: "p",
    };
    let (end, requests) = talk(replies, async |client| {
        client
            .mitigate(left, &QUICK, |trouble| told.push(trouble.to_string()))
            .await
    })
    .await;
    (end, told, requests)
}

#[tokio::test]
async fn an_orphan_is_deleted_asynchronously_and_once_is_enough() {
    for (answer, end) in [
        (reply(200, json!({})), Mitigated::Deleted),
        (reply(410, json!({})), Mitigated::Gone),
        (reply(202, json!({})), Mitigated::InProgress(None)),
    ] {
        let (mitigated, told, requests) = mitigate(INSTANCE, vec![answer]).await;
        assert_eq!(mitigated.unwrap(), end);
        assert_eq!(told, Vec::<String>::new());
        assert_eq!(
            requests[0].line(),
            "DELETE /v2/service_instances/i%2F1?accepts_incomplete=true&service_id=s&plan_id=p"
        );
    }
    let accepted = vec![reply(202, json!({ "operation": "op" }))];
    let (mitigated, _, requests) = mitigate(BINDING, accepted).await;
    assert!(
        matches!(mitigated, Ok(Mitigated::InProgress(Some(operation))) if operation.as_str() == "op")
    );
    assert_eq!(
        requests[0].line(),
        "DELETE /v2/service_instances/i%2F1/service_bindings/b?accepts_incomplete=true&service_id=s&plan_id=p"
    );
}

#[tokio::test]
async fn whatever_a_broker_answers_it_is_asked_again_until_it_is_done() {
    let replies = vec![
        Reply::Bytes(Vec::new()),
        reply(
            422,
            json!({ "error": "ConcurrencyError", "description": "wait" }),
        ),
        reply(500, json!({})),
        reply(401, json!({})),
        reply(404, json!({})),
        reply_with(200, "", "<html>"),
        reply(204, json!({})),
        reply_with(503, "Retry-After: 3600\r\n", "{}"),
        reply(200, json!({})),
    ];
    let (mitigated, told, _) = mitigate(BINDING, replies).await;
    assert_eq!(mitigated.unwrap(), Mitigated::Deleted);
    assert_eq!(told.len(), 8, "{told:?}");
    assert!(told[1].contains("ConcurrencyError"), "{told:?}");
}

#[tokio::test]
async fn it_is_given_up_after_eleven_times_with_the_last_trouble() {
    let replies = (0..11).map(|n| reply(500, json!({ "description": format!("no {n}") })));
    let (mitigated, told, _) = mitigate(INSTANCE, replies.collect()).await;
    assert_eq!(
        mitigated.unwrap_err().to_string(),
        "the broker answered 500: no 10"
    );
    assert_eq!(told.len(), 10);
    assert_eq!(Retries::MITIGATION.repeats, QUICK.repeats);
}

#[tokio::test]
async fn an_id_that_no_url_can_carry_is_told_at_once() {
    let target = Target::Instance { instance_id: ".." };
    let (mitigated, told, _) = mitigate(target, Vec::new()).await;
    assert!(
        matches!(mitigated, Err(ClientError::Id(_))),
        "{mitigated:?}"
    );
    assert_eq!(told, Vec::<String>::new());
}
