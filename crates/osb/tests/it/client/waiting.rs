use std::time::{Duration, Instant};

use evenkeel_osb::client::{ClientError, Target, WaitEnd, WaitOptions};
use evenkeel_osb::{Action, OperationState, Orphan, Plan, Query};
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
    wait_after(Action::Provision, target, options, replies).await
}

async fn wait_after(
    action: Action,
    target: Target<'_>,
    options: &WaitOptions,
    replies: Vec<Reply>,
) -> (Result<WaitEnd, ClientError>, Vec<String>) {
    let mut told = Vec::new();
    let (end, _) = talk(replies, async |client| {
        client
            .wait(action, target, &Query::default(), options, |poll| {
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

// §3.4: after anything but a delete a platform goes on.
#[tokio::test]
async fn gone_is_the_end_of_a_delete_and_of_nothing_else() {
    for action in [Action::Deprovision, Action::Unbind] {
        let replies = vec![reply(410, json!({}))];
        let (end, told) = wait_after(action, INSTANCE, &quick(), replies).await;
        assert_eq!(end.unwrap(), WaitEnd::Gone);
        assert_eq!(told, Vec::<String>::new());
    }
    for action in [Action::Provision, Action::Update, Action::Bind] {
        let replies = vec![
            reply(410, json!({})),
            reply(200, json!({ "state": "succeeded" })),
        ];
        let (end, told) = wait_after(action, INSTANCE, &quick(), replies).await;
        assert!(matches!(end, Ok(WaitEnd::Ended(_))), "{end:?}");
        assert_eq!(told.len(), 2, "{told:?}");
    }
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

// §3.4
#[tokio::test]
async fn a_400_ends_a_wait_and_nothing_else_that_a_broker_can_answer_does() {
    let refused = vec![reply(400, json!({ "description": "no" }))];
    let (end, told) = wait(INSTANCE, &quick(), refused).await;
    assert_eq!(end.unwrap_err().broker().unwrap().status, 400);
    assert_eq!(told, Vec::<String>::new());
    let statuses = [
        201, 202, 204, 302, 401, 403, 404, 408, 412, 422, 429, 500, 502, 503,
    ];
    let mut replies: Vec<_> = statuses
        .iter()
        .map(|status| reply(*status, json!({ "state": "succeeded" })))
        .collect();
    replies.push(reply(200, json!({ "state": "done" })));
    replies.push(reply(200, json!({ "state": "failed" })));
    let (end, told) = wait(INSTANCE, &quick(), replies).await;
    let Ok(WaitEnd::Ended(operation)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(operation.state(), OperationState::Failed);
    assert_eq!(told.len(), statuses.len() + 2, "{told:?}");
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
    // A platform takes it as failed, and cleans up.
    assert_eq!(error.orphan(Action::Provision), Some(Orphan::Instance));
    assert_eq!(error.orphan(Action::Update), None);
}

#[test]
fn a_plan_can_shorten_a_wait_and_not_lengthen_it() {
    let plan = |seconds| Plan {
        maximum_polling_duration_secs: seconds,
        ..Plan::default()
    };
    let limit = |seconds| {
        WaitOptions::default()
            .for_plan(&plan(seconds))
            .give_up_after
    };
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    assert_eq!(limit(None), week);
    assert_eq!(limit(Some(90)), Duration::from_secs(90));
    assert_eq!(limit(Some(u64::MAX)), week);
}
