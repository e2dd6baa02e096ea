use std::time::Duration;

use evenkeel_osb::client::{Client, ClientError, Mode};
use evenkeel_osb::{Action, BindRequest, NewBinding, Orphan, ProvisionRequest, Query, RetryAfter};
use serde_json::json;
use tokio::net::TcpListener;

use super::broker::{Reply, reply, reply_with, talk};

/// What a provision that accepts 202 makes of a reply.
async fn provision(reply: Reply) -> ClientError {
    let request = ProvisionRequest::default();
    let ask = async |client: Client| {
        client
            .provision("i", &request, Mode::AcceptsIncomplete)
            .await
            .unwrap_err()
    };
    talk(vec![reply], ask).await.0
}

fn orphan(error: &ClientError) -> Option<Orphan> {
    error.orphan(Action::Provision)
}

#[tokio::test]
async fn an_error_body_is_read_and_shown() {
    let body = json!({
        "error": "ConcurrencyError", "description": "Another operation is running.", "instance_usable": true,
        "update_repeatable": false, "more": 1,
    });
    let error = provision(reply_with(422, "Retry-After: 9\r\n", &body.to_string())).await;
    assert_eq!(
        error.to_string(),
        "the broker answered 422 ConcurrencyError: Another operation is running."
    );
    let broker = error.broker().unwrap();
    assert_eq!(
        (broker.status, broker.error.as_deref()),
        (422, Some("ConcurrencyError"))
    );
    assert_eq!(
        (broker.instance_usable, broker.update_repeatable),
        (Some(true), Some(false))
    );
    assert_eq!(broker.retry_after, Some(RetryAfter::seconds(9)));
    assert_eq!(orphan(&error), None);
}

#[tokio::test]
async fn an_error_without_a_readable_body_is_an_error_all_the_same() {
    for body in ["", "<html>", "[]", r#"{"description": 5, "error": null}"#] {
        let error = provision(reply_with(502, "", body)).await;
        assert_eq!(
            error.to_string(),
            "the broker answered 502 without a description"
        );
        assert_eq!(orphan(&error), Some(Orphan::Instance));
    }
}

#[tokio::test]
async fn a_brokers_text_cannot_drive_a_terminal() {
    let error = provision(reply(
        400,
        json!({ "description": "\u{1b}[2Jgone\n\u{9b}2J" }),
    ))
    .await;
    assert_eq!(error.to_string(), "the broker answered 400:  [2Jgone  2J");
}

#[tokio::test]
async fn a_success_that_is_not_as_promised_is_malformed_and_says_where() {
    for (body, problem) in [
        ("", "the body is empty: send a JSON object"),
        ("[]", "the body must be a JSON object, not an array"),
        (r#"{"operation": 7}"#, "/operation: must be a string"),
        (
            r#"{"dashboard_url": {}}"#,
            "/dashboard_url: must be a string, not an object",
        ),
    ] {
        let error = provision(reply_with(202, "", body)).await;
        assert_eq!(
            error.to_string(),
            format!("the broker's answer 202 is malformed: {problem}")
        );
        assert_eq!(orphan(&error), Some(Orphan::Instance));
    }
    let long = provision(reply(202, json!({ "operation": "a".repeat(10_001) }))).await;
    assert!(long.to_string().contains("10001 characters"), "{long}");
}

#[tokio::test]
async fn a_status_that_the_request_does_not_have_is_unexpected_and_redirects_are_not_followed() {
    for (status, left) in [
        (204, Some(Orphan::Instance)),
        (203, Some(Orphan::Instance)),
        (304, None),
    ] {
        let error = provision(reply_with(status, "", "")).await;
        assert!(
            matches!(error, ClientError::Unexpected { status: seen } if seen == status),
            "{error}"
        );
        assert_eq!(orphan(&error), left);
    }
    let error = provision(reply_with(307, "Location: /elsewhere\r\n", "")).await;
    assert!(
        matches!(error, ClientError::Unexpected { status: 307 }),
        "{error}"
    );
}

// §1.13: the broker is at work on what the platform takes as refused.
#[tokio::test]
async fn a_202_that_was_not_asked_for_is_an_error_and_leaves_an_orphan() {
    let accepted = || vec![reply(202, json!({ "operation": "op" }))];
    let (deprovision, _) = talk(accepted(), async |client| {
        client
            .deprovision("i", "s", "p", Mode::Synchronous)
            .await
            .unwrap_err()
    })
    .await;
    let (provision, _) = talk(accepted(), async |client| {
        let request = ProvisionRequest::default();
        client
            .provision("i", &request, Mode::Synchronous)
            .await
            .unwrap_err()
    })
    .await;
    let (bind, _) = talk(accepted(), async |client| {
        let request = BindRequest::New(NewBinding::default());
        client
            .bind("i", "b", &request, Mode::Synchronous)
            .await
            .unwrap_err()
    })
    .await;
    for (error, action, left) in [
        (deprovision, Action::Deprovision, None),
        (provision, Action::Provision, Some(Orphan::Instance)),
        (bind, Action::Bind, Some(Orphan::Binding)),
    ] {
        assert!(
            matches!(error, ClientError::Unexpected { status: 202 }),
            "{error}"
        );
        assert_eq!(error.orphan(action), left, "{action:?}");
    }
}

#[tokio::test]
async fn an_answer_beyond_the_size_limit_is_not_read_to_its_end() {
    let limit = 1_000;
    // Chunked, so that no header tells the size, and without an end.
    let mut bytes = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..3 {
        bytes.extend_from_slice(b"190\r\n");
        bytes.extend_from_slice(&[b' '; 400]);
        bytes.extend_from_slice(b"\r\n");
    }
    let (error, _) = talk(vec![Reply::Stall(bytes)], async |client| {
        client.with_size_limit(limit).catalog().await.unwrap_err()
    })
    .await;
    assert_eq!(
        error.to_string(),
        "the broker's answer 200 has more than 1000 bytes"
    );
}

#[tokio::test]
async fn a_broker_that_does_not_answer_in_time_is_given_up() {
    let limit = Duration::from_millis(200);
    let partial = b"HTTP/1.1 201 X\r\nContent-Length: 50\r\n\r\n{".to_vec();
    for stalled in [Vec::new(), partial] {
        let request = ProvisionRequest::default();
        let (error, _) = talk(vec![Reply::Stall(stalled)], async |client| {
            client
                .with_time_limit(limit)
                .provision("i", &request, Mode::Synchronous)
                .await
                .unwrap_err()
        })
        .await;
        assert_eq!(error.to_string(), "the broker did not answer within 0.2 s");
        assert_eq!(orphan(&error), Some(Orphan::Instance));
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_the_platform_in_doubt() {
    for bytes in [&b""[..], b"HTTP/1.1 201 X\r\nContent-Length: 50\r\n\r\n{"] {
        let error = provision(Reply::Bytes(bytes.to_vec())).await;
        assert!(matches!(error, ClientError::Transport { .. }), "{error}");
        assert_eq!(orphan(&error), Some(Orphan::Instance));
    }
}

#[tokio::test]
async fn a_broker_that_is_not_there_was_not_asked_for_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::new(&url, "u", "p".into()).unwrap();
    let error = client
        .get_instance("i", &Query::default())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the broker cannot be reached: Connection refused"),
        "{error}"
    );
    assert_eq!(error.received(), None);
    assert!(error.is_transient());
}
