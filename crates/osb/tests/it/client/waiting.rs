use std::time::{Duration, Instant};

use evenkeel_osb::client::{ClientError, Target, WaitEnd, WaitOptions};
use evenkeel_osb::{OperationState, Query};
use serde_json::json;

use super::broker::{Reply, reply, reply_with, talk};

const INSTANCE: Target<'_> = Target::Instance { instance_id: "i" };

fn quick() -> WaitOptions {
    WaitOptions {
        interval: Duration::from_millis(1),
        at_least: Duration::ZERO,
        at_most: Duration::from_millis(5),
        give_up_after: Duration::from_secs(20),
    }
}

/// Waits with a script; returns the end and what the callback was told.
async fn wait(
    target: Target<'_>,
    options: &WaitOptions,
    replies: Vec<Reply>,
) -> (Result<WaitEnd, ClientError>, Vec<String>) {
    let mut told = Vec::new();
    let (end, _) = talk(replies, async |client| {
        client
            .wait(target, &Query::default(), options, |poll| {
                told.push(match poll {
                    Ok(operation) => format!(
                        "{}: {}",
                        operation.state(),
                        operation.description().unwrap_or("-")
                    ),
                    Err(trouble) => trouble.to_string(),
                });
            })
            .await
    })
    .await;
    (end, told)
}

#[tokio::test]
async fn a_wait_tells_each_poll_and_ends_with_the_operation() {
    let progress = |text: &str| reply(200, json!({ "state": "in progress", "description": text }));
    let replies = vec![
        progress("one"),
        progress("two"),
        reply(200, json!({ "state": "succeeded" })),
    ];
    let (end, told) = wait(INSTANCE, &quick(), replies).await;
    let Ok(WaitEnd::Ended(operation)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(operation.state(), OperationState::Succeeded);
    assert_eq!(
        told,
        ["in progress: one", "in progress: two", "succeeded: -"]
    );
}

#[tokio::test]
async fn a_failure_ends_a_wait_too() {
    let binding = Target::Binding {
        instance_id: "i",
        binding_id: "b",
    };
    let replies = vec![reply(
        200,
        json!({ "state": "failed", "description": "no room" }),
    )];
    let (end, told) = wait(binding, &quick(), replies).await;
    let Ok(WaitEnd::Ended(operation)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(
        (operation.state(), operation.description()),
        (OperationState::Failed, Some("no room"))
    );
    assert_eq!(told, ["failed: no room"]);
}

#[tokio::test]
async fn gone_is_an_end_of_its_own() {
    let (end, told) = wait(INSTANCE, &quick(), vec![reply(410, json!({}))]).await;
    assert_eq!(end.unwrap(), WaitEnd::Gone);
    assert_eq!(told, Vec::<String>::new());
}

#[tokio::test]
async fn a_broker_that_restarts_does_not_end_a_wait() {
    let replies = vec![
        Reply::Bytes(Vec::new()),
        reply(503, json!({ "description": "starting" })),
        reply_with(200, "", "<html>"),
        reply(200, json!({ "state": "succeeded" })),
    ];
    let (end, told) = wait(INSTANCE, &quick(), replies).await;
    assert!(matches!(end, Ok(WaitEnd::Ended(_))), "{end:?}");
    assert_eq!(told.len(), 4);
    assert!(
        told[0].starts_with("the broker cannot be reached"),
        "{told:?}"
    );
    assert_eq!(told[1], "the broker answered 503: starting");
    assert!(told[2].contains("malformed"), "{told:?}");
}

#[tokio::test]
async fn a_refusal_ends_a_wait() {
    for status in [400, 401, 404, 412] {
        let (end, told) = wait(
            INSTANCE,
            &quick(),
            vec![reply(status, json!({ "description": "no" }))],
        )
        .await;
        let error = end.unwrap_err();
        assert_eq!(error.broker().unwrap().status, status);
        assert_eq!(told, Vec::<String>::new());
    }
}

#[tokio::test]
async fn retry_after_is_honoured_within_bounds() {
    let in_progress = |retry_after: &str| {
        reply_with(
            200,
            &format!("Retry-After: {retry_after}\r\n"),
            r#"{"state":"in progress"}"#,
        )
    };
    let timed = async |options: WaitOptions, first: Reply| {
        let started = Instant::now();
        let (end, _) = wait(
            INSTANCE,
            &options,
            vec![first, reply(200, json!({ "state": "succeeded" }))],
        )
        .await;
        end.unwrap();
        started.elapsed()
    };
    let hour = Duration::from_secs(3600);
    let second = Duration::from_secs(1);
    // Asked for one second, and the interval would be an hour.
    let asked = timed(
        WaitOptions {
            interval: hour,
            at_most: hour,
            ..quick()
        },
        in_progress("1"),
    )
    .await;
    assert!(asked >= second, "{asked:?}");
    // Asked for a day, and bounded to 5 ms: ends before the script's own deadline of 30 s.
    timed(
        WaitOptions {
            interval: hour,
            ..quick()
        },
        in_progress("86400"),
    )
    .await;
    // Asked for nothing, and bounded to a second.
    let raised = timed(
        WaitOptions {
            at_least: second,
            at_most: hour,
            ..quick()
        },
        in_progress("0"),
    )
    .await;
    assert!(raised >= second, "{raised:?}");
    // A 503 may ask too.
    let busy = reply_with(503, "Retry-After: 1\r\n", "{}");
    let asked = timed(
        WaitOptions {
            interval: hour,
            at_most: hour,
            ..quick()
        },
        busy,
    )
    .await;
    assert!(asked >= second, "{asked:?}");
}

#[tokio::test]
async fn a_wait_gives_up_when_its_time_is_over() {
    let options = WaitOptions {
        interval: Duration::from_secs(3600),
        give_up_after: Duration::from_millis(300),
        ..quick()
    };
    let (end, told) = wait(
        INSTANCE,
        &options,
        vec![reply(200, json!({ "state": "in progress" }))],
    )
    .await;
    let error = end.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the operation is still in progress after 0.3 s: it goes on at the broker"
    );
    assert_eq!(told, ["in progress: -"]);
    assert!(!error.is_transient());
}
