//! What never becomes a request: answered in JSON all the same, and the connection is closed.

use evenkeel_server::ConnectionLimits;
use serde_json::Value;

use crate::broker::{BASIC, Broker, Call, TOKEN};
use crate::listener::{Listening, get_catalog, head};

/// Status, head and body of the one answer on a connection that is closed after it.
fn only_answer(bytes: &[u8]) -> (u16, String, Value) {
    let text = std::str::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = format!("content-length: {}\r\n", body.len());
    let head = format!("{}\r\n", head.to_ascii_lowercase());
    assert!(head.contains(&length), "{text}");
    (status, head, serde_json::from_str(body).unwrap())
}

fn with_header(value: &str) -> Vec<u8> {
    head("GET", "/v2/catalog", BASIC, &format!("{value}\r\n")).into_bytes()
}

#[tokio::test]
async fn what_cannot_be_read_as_http_is_answered_in_json() {
    let broker = Broker::start().await;
    let listening = Listening::start(broker.osb.clone(), ConnectionLimits::default()).await;
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes();
    let many: Vec<_> = (0..110).map(|n| format!("x-{n}: y")).collect();
    for (request, status) in [
        (b"garbage\r\n\r\n".to_vec(), 400),
        (b"\0\x01\x02\xff\r\n\r\n".to_vec(), 400),
        (b"GE(T /v2/catalog HTTP/1.1\r\n\r\n".to_vec(), 400),
        (b"GET /v2/catalog HTTP/9.9\r\n\r\n".to_vec(), 400),
        (b"GET /v2 catalog HTTP/1.1\r\n\r\n".to_vec(), 400),
        (with_header("no colon"), 400),
        (with_header("content-length: x"), 400),
        (with_header("transfer-encoding: gzip"), 400),
        (with_header("a: \0"), 400),
        (get(&format!("/{}", "x".repeat(66_000))), 414),
        (with_header(&format!("x: {}", "y".repeat(512 * 1024))), 431),
        (with_header(&many.join("\r\n")), 431),
    ] {
        let mut client = listening.connect().await;
        client.send(&request).await;
        let (found, head, body) = only_answer(&client.rest().await);
        let shown = String::from_utf8_lossy(&request[..request.len().min(100)]).into_owned();
        assert_eq!(found, status, "{shown}");
        assert!(
            head.contains("content-type: application/json\r\n"),
            "{shown}: {head}"
        );
        assert!(
            !body["description"].as_str().unwrap().is_empty(),
            "{shown}: {body}"
        );
    }
    // Others are served, on the same connection up to the mistake, too.
    let mut client = listening.connect().await;
    client.send(get_catalog().as_bytes()).await;
    assert_eq!(client.answer().await.0, 200);
    client.send(b"garbage\r\n\r\n").await;
    assert_eq!(only_answer(&client.rest().await).0, 400);
    // Also where both came at once.
    let mut client = listening.connect().await;
    let both = format!("{}garbage\r\n\r\n", get_catalog().repeat(3));
    client.send(both.as_bytes()).await;
    for _ in 0..3 {
        assert_eq!(client.answer().await.0, 200);
    }
    assert_eq!(only_answer(&client.rest().await).0, 400);
}

#[tokio::test]
async fn the_operators_listener_tells_it_too() {
    let broker = Broker::start().await;
    let listening = Listening::start(broker.admin.clone(), ConnectionLimits::default()).await;
    let mut client = listening.connect().await;
    client.send(b"garbage\r\n\r\n").await;
    let (status, _, body) = only_answer(&client.rest().await);
    assert_eq!((status, body["description"].is_string()), (400, true));
}

#[tokio::test]
async fn the_largest_legal_head_is_served() {
    let broker = Broker::start().await;
    let listening = Listening::start(broker.osb.clone(), ConnectionLimits::default()).await;
    let mut client = listening.connect().await;
    let target = format!("/v2/catalog?x={}", "y".repeat(60_000));
    let identity = format!(
        "x-broker-api-originating-identity: cf {}\r\n",
        "x".repeat(60_000)
    );
    client
        .send(head("GET", &target, BASIC, &identity).as_bytes())
        .await;
    assert_eq!(client.answer().await.0, 200);
}

#[tokio::test]
async fn a_head_is_a_get_without_its_body() {
    let broker = Broker::start().await;
    let listening = Listening::start(broker.osb.clone(), ConnectionLimits::default()).await;
    for (path, status) in [
        ("/v2/catalog", 200),
        ("/v2/service_instances/i", 404),
        ("/v2/service_instances/i/last_operation", 404),
        ("/v2/service_instances/i/service_bindings/b", 404),
        (
            "/v2/service_instances/i/service_bindings/b/last_operation",
            404,
        ),
        ("/v2/nowhere", 404),
    ] {
        let mut client = listening.connect().await;
        client.send(head("GET", path, BASIC, "").as_bytes()).await;
        let (found, body) = client.answer().await;
        assert_eq!(found, status, "{path}");
        let close = "connection: close\r\nx-broker-api-request-identity: r\r\n";
        client
            .send(head("HEAD", path, BASIC, close).as_bytes())
            .await;
        let answer = String::from_utf8(client.rest().await)
            .unwrap()
            .to_ascii_lowercase();
        let (head, nothing) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with(&format!("http/1.1 {status} ")),
            "{path}: {head}"
        );
        assert_eq!(nothing, "", "{path}");
        let length = format!("content-length: {}", body.to_string().len());
        for line in [
            length.as_str(),
            "content-type: application/json",
            "x-broker-api-request-identity: r",
        ] {
            assert!(
                head.lines().any(|found| found == line),
                "{path}: {line}: {head}"
            );
        }
    }
    // Where there is no GET there is no HEAD; and it changes nothing on the operator's side either.
    let admin = Listening::start(broker.admin.clone(), ConnectionLimits::default()).await;
    let mut client = admin.connect().await;
    client
        .send(head("HEAD", "/admin/v1/jobs", TOKEN, "connection: close\r\n").as_bytes())
        .await;
    let answer = String::from_utf8(client.rest().await).unwrap();
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

/// Which the handler is told of, unlike what breaks the head.
#[tokio::test]
async fn a_body_that_breaks_is_a_bad_request_and_costs_the_connection() {
    let broker = Broker::start().await;
    let listening = Listening::start(broker.osb.clone(), ConnectionLimits::default()).await;
    let chunked = "transfer-encoding: chunked\r\ncontent-type: application/json\r\n";
    let put = |more: &str| head("PUT", "/v2/service_instances/i", BASIC, more);
    for (request, ends) in [
        (format!("{}zz\r\n{{}}\r\n0\r\n\r\n", put(chunked)), false),
        (format!("{}2\r\n{{}}!!0\r\n\r\n", put(chunked)), false),
        (format!("{}ffffffffffffffffff\r\n", put(chunked)), false),
        (format!("{}5\r\n{{", put(chunked)), true),
        (format!("{}{{", put("content-length: 10\r\n")), true),
    ] {
        let mut client = listening.connect().await;
        client.send(request.as_bytes()).await;
        if ends {
            client.end().await;
        }
        let (status, _, body) = only_answer(&client.rest().await);
        assert_eq!(status, 400, "{request}");
        assert!(body["description"].is_string(), "{request}");
    }
    let none = Call::new("GET", "/v2/service_instances/i/last_operation");
    assert_eq!(broker.ask(none).await.status, 404);
}
