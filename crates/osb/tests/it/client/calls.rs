use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_osb::client::{Client, ClientError, Mode};
use evenkeel_osb::{
    ApiVersion, BindAnswer, BindRequest, DeleteAnswer, NewBinding, Operation, OperationState,
    OriginatingIdentity, ProvisionAnswer, ProvisionRequest, Query, RequestIdentity, RetryAfter,
    UpdateAnswer, UpdateRequest,
};
use serde_json::json;

use super::broker::{reply, reply_with, talk};
use crate::object;

fn provision() -> ProvisionRequest {
    ProvisionRequest {
        service_id: "s".into(),
        plan_id: "p".into(),
        organization_guid: "o".into(),
        space_guid: "x".into(),
        ..ProvisionRequest::default()
    }
}

fn hints() -> Query {
    Query {
        service_id: Some("s".into()),
        plan_id: Some("p".into()),
        operation: Some(Operation::received("op 1/2").unwrap()),
        accepts_incomplete: false,
    }
}

#[tokio::test]
async fn every_request_has_the_version_the_user_and_the_identities() {
    let (catalog, requests) = talk(
        vec![reply(200, json!({ "services": [] }))],
        async |client| {
            let identity =
                OriginatingIdentity::new("cloudfoundry", object(json!({ "user_id": "u" })))
                    .unwrap();
            client
                .with_api_version(ApiVersion {
                    major: 2,
                    minor: 13,
                })
                .with_originating_identity(identity)
                .with_request_identity(RequestIdentity::of_request(Some(b"r-1")).unwrap())
                .catalog()
                .await
        },
    )
    .await;
    assert!(catalog.unwrap().services.is_empty());
    let request = &requests[0];
    assert_eq!(request.line(), "GET /v2/catalog");
    assert_eq!(request.header("X-Broker-API-Version"), Some("2.13"));
    assert_eq!(request.header("Accept"), Some("application/json"));
    let basic = format!("Basic {}", STANDARD.encode("platform:pass:wörd"));
    assert_eq!(request.header("Authorization"), Some(basic.as_str()));
    let identity = request.header("X-Broker-API-Originating-Identity").unwrap();
    assert_eq!(
        OriginatingIdentity::parse(identity.as_bytes())
            .unwrap()
            .user(),
        Some("u")
    );
    assert_eq!(request.header("X-Broker-API-Request-Identity"), Some("r-1"));
    assert!(!request.has_body() && request.header("Content-Type").is_none());
}

#[tokio::test]
async fn the_version_is_2_17_and_there_are_no_identities_unless_told() {
    let (_, requests) = talk(
        vec![reply(200, json!({ "services": [] }))],
        async |client| client.catalog().await.unwrap(),
    )
    .await;
    assert_eq!(requests[0].header("X-Broker-API-Version"), Some("2.17"));
    assert_eq!(
        requests[0].header("X-Broker-API-Originating-Identity"),
        None
    );
    assert_eq!(requests[0].header("X-Broker-API-Request-Identity"), None);
}

#[tokio::test]
async fn a_provision_is_created_exists_or_is_in_progress() {
    let replies = vec![
        reply(201, json!({ "dashboard_url": "https://d" })),
        reply(200, json!({})),
        reply(202, json!({ "operation": "op-1" })),
    ];
    let (answers, requests) = talk(replies, async |client| {
        [
            client
                .provision("a/b", &provision(), Mode::Synchronous)
                .await
                .unwrap(),
            client
                .provision("i", &provision(), Mode::AcceptsIncomplete)
                .await
                .unwrap(),
            client
                .provision("i", &provision(), Mode::AcceptsIncomplete)
                .await
                .unwrap(),
        ]
    })
    .await;
    let [
        ProvisionAnswer::Created(created),
        ProvisionAnswer::Exists(_),
        ProvisionAnswer::InProgress(progress),
    ] = answers
    else {
        panic!("{answers:?}")
    };
    assert_eq!(created.dashboard_url.as_deref(), Some("https://d"));
    assert_eq!(progress.operation, Some(Operation::new("op-1").unwrap()));
    assert_eq!(requests[0].line(), "PUT /v2/service_instances/a%2Fb");
    assert_eq!(
        requests[1].line(),
        "PUT /v2/service_instances/i?accepts_incomplete=true"
    );
    assert_eq!(requests[0].header("Content-Type"), Some("application/json"));
    assert_eq!(
        requests[0].json(),
        json!({ "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "x" })
    );
}

#[tokio::test]
async fn updates_and_deletes_ask_as_the_specification_says() {
    let replies = vec![
        reply(200, json!({})),
        reply(202, json!({ "operation": "u" })),
        reply(200, json!({})),
        reply(202, json!({ "operation": "d" })),
        reply(200, json!({ "anything": 1 })),
        reply(202, json!({})),
    ];
    let update = UpdateRequest {
        service_id: "s".into(),
        plan_id: Some("q".into()),
        ..UpdateRequest::default()
    };
    let (answers, requests) = talk(replies, async |client| {
        let updates = (
            client
                .update("i", &update, Mode::Synchronous)
                .await
                .unwrap(),
            client
                .update("i", &update, Mode::AcceptsIncomplete)
                .await
                .unwrap(),
        );
        let deletes = [
            client
                .deprovision("i", "s", "p", Mode::Synchronous)
                .await
                .unwrap(),
            client
                .deprovision("i", "s 1", "p&", Mode::AcceptsIncomplete)
                .await
                .unwrap(),
            client
                .unbind("i", "b", "s", "p", Mode::Synchronous)
                .await
                .unwrap(),
            client
                .unbind("i", "b", "s", "p", Mode::AcceptsIncomplete)
                .await
                .unwrap(),
        ];
        (updates, deletes)
    })
    .await;
    let ((updated, updating), [deprovisioned, deprovisioning, unbound, unbinding]) = answers;
    assert!(matches!(updated, UpdateAnswer::Updated(_)));
    assert!(matches!(updating, UpdateAnswer::InProgress(_)));
    assert_eq!(deprovisioned, DeleteAnswer::Deleted {});
    assert_eq!(deprovisioning.status(), 202);
    assert_eq!(unbound, DeleteAnswer::Deleted {});
    assert_eq!(unbinding.status(), 202);
    let lines: Vec<_> = requests.iter().map(super::broker::Request::line).collect();
    assert_eq!(
        lines,
        [
            "PATCH /v2/service_instances/i",
            "PATCH /v2/service_instances/i?accepts_incomplete=true",
            "DELETE /v2/service_instances/i?service_id=s&plan_id=p",
            "DELETE /v2/service_instances/i?accepts_incomplete=true&service_id=s%201&plan_id=p%26",
            "DELETE /v2/service_instances/i/service_bindings/b?service_id=s&plan_id=p",
            "DELETE /v2/service_instances/i/service_bindings/b?accepts_incomplete=true&service_id=s&plan_id=p",
        ]
    );
    assert_eq!(
        requests[0].json(),
        json!({ "service_id": "s", "plan_id": "q" })
    );
    assert!(!requests[2].has_body());
}

#[tokio::test]
async fn a_bind_is_created_exists_or_is_in_progress_and_can_be_fetched() {
    let binding = json!({ "credentials": { "uri": "u" } });
    let replies = vec![
        reply(201, binding.clone()),
        reply(200, binding.clone()),
        reply(202, json!({})),
        reply(200, binding),
    ];
    let request = NewBinding {
        service_id: "s".into(),
        plan_id: "p".into(),
        ..NewBinding::default()
    };
    let ((answers, fetched), requests) = talk(replies, async |client| {
        let request = BindRequest::New(request);
        let answers = [
            client
                .bind("i", "b/1", &request, Mode::AcceptsIncomplete)
                .await
                .unwrap(),
            client
                .bind("i", "b", &request, Mode::Synchronous)
                .await
                .unwrap(),
            client
                .bind("i", "b", &request, Mode::AcceptsIncomplete)
                .await
                .unwrap(),
        ];
        (
            answers,
            client
                .get_binding("i", "b", &Query::default())
                .await
                .unwrap(),
        )
    })
    .await;
    let [
        BindAnswer::Created(created),
        BindAnswer::Exists(existing),
        BindAnswer::InProgress(_),
    ] = answers
    else {
        panic!("{answers:?}")
    };
    assert_eq!(created, existing);
    assert_eq!(created, fetched.binding);
    assert_eq!(created.credentials.unwrap().expose()["uri"], json!("u"));
    assert_eq!(
        requests[0].line(),
        "PUT /v2/service_instances/i/service_bindings/b%2F1?accepts_incomplete=true"
    );
    assert_eq!(
        requests[0].json(),
        json!({ "service_id": "s", "plan_id": "p" })
    );
    assert_eq!(
        requests[3].line(),
        "GET /v2/service_instances/i/service_bindings/b"
    );
}

#[tokio::test]
async fn polls_and_fetches_carry_the_hints_and_polls_bring_retry_after() {
    let replies = vec![
        reply_with(200, "Retry-After: 7\r\n", r#"{"state":"in progress"}"#),
        reply_with(
            200,
            "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n",
            r#"{"state":"failed","description":"no"}"#,
        ),
        reply(200, json!({ "plan_id": "p" })),
    ];
    let ((instance, binding, fetched), requests) = talk(replies, async |client| {
        (
            client.poll_instance("i", &hints()).await.unwrap(),
            client.poll_binding("i", "b", &hints()).await.unwrap(),
            client
                .get_instance(
                    "i",
                    &Query {
                        operation: None,
                        ..hints()
                    },
                )
                .await
                .unwrap(),
        )
    })
    .await;
    assert_eq!(instance.retry_after, Some(RetryAfter::seconds(7)));
    assert_eq!(instance.operation.state(), OperationState::InProgress);
    assert_eq!(
        (binding.retry_after, binding.operation.description()),
        (None, Some("no"))
    );
    assert_eq!(fetched.plan_id.as_deref(), Some("p"));
    assert_eq!(
        requests[0].line(),
        "GET /v2/service_instances/i/last_operation?service_id=s&plan_id=p&operation=op%201%2F2"
    );
    assert_eq!(
        requests[1].line(),
        "GET /v2/service_instances/i/service_bindings/b/last_operation?service_id=s&plan_id=p&operation=op%201%2F2"
    );
    assert_eq!(
        requests[2].line(),
        "GET /v2/service_instances/i?service_id=s&plan_id=p"
    );
}

// H17
#[tokio::test]
async fn a_base_url_may_have_a_path_but_no_user_query_or_other_scheme() {
    let new = |url: &str| Client::new(url, "u", "p".into());
    for url in [
        "http://h",
        "http://h/",
        "https://h:1/prefix/",
        "http://[::1]:8080",
    ] {
        assert!(new(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "h",
        "ftp://h",
        "http://",
        "http://u:hunter2@h",
        "http://h/?a",
        "http://h/#a",
    ] {
        let error = new(url).unwrap_err();
        assert!(matches!(error, ClientError::BaseUrl { .. }), "{url}");
        assert!(!error.to_string().contains("hunter2"));
    }
}

#[tokio::test]
async fn an_id_that_would_reach_another_path_is_not_sent() {
    let client = Client::new("http://127.0.0.1:9", "u", "p".into()).unwrap();
    for id in ["", ".", ".."] {
        let error = client
            .deprovision(id, "s", "p", Mode::Synchronous)
            .await
            .unwrap_err();
        assert!(matches!(error, ClientError::Id(_)), "{error}");
        let error = client
            .get_binding("i", id, &Query::default())
            .await
            .unwrap_err();
        assert!(matches!(error, ClientError::Id(_)), "{error}");
    }
}

#[test]
fn the_password_does_not_show_in_debug_output() {
    let client = Client::new("http://h", "u", "hunter2".into()).unwrap();
    assert!(!format!("{client:?}").contains("hunter2"));
}
