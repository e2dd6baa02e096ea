//! Requests that are wrong, large, deep or odd: each gets a clear answer, and the broker goes on.

use reqwest::{Method, RequestBuilder};
use serde_json::{Map, Value, json};

use crate::harness::{Answer, Broker, Setup, root};

async fn hello() -> (Broker, (String, String)) {
    let broker = Broker::start(Setup {
        bundles: vec![root().join("examples/bundles/hello")],
        ..Setup::default()
    })
    .await;
    let plain = broker.ids("hello", "plain").await;
    (broker, plain)
}

/// A request without credentials and version.
fn bare(broker: &Broker, method: Method, path: &str) -> RequestBuilder {
    let url = format!("{}{path}", broker.url("osb-url"));
    broker.http.request(method, url)
}

/// A request as platforms send it, whose body is still open.
fn open(broker: &Broker, method: Method, path: &str) -> RequestBuilder {
    bare(broker, method, path)
        .basic_auth("platform", Some(broker.password()))
        .header("X-Broker-API-Version", "2.17")
        .header("Content-Type", "application/json")
}

async fn answer(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.bytes().await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{status}: {error}"));
    Answer {
        status,
        body,
        headers,
    }
}

/// Every error says what is wrong.
fn description(answer: &Answer) -> &str {
    let text = answer.body["description"].as_str();
    text.unwrap_or_else(|| panic!("no description: {answer:?}"))
}

/// Nothing was ordered, and the next one is served.
async fn serves_on(broker: &Broker) {
    let jobs = broker.admin(Method::GET, "/admin/v1/jobs").await;
    assert_eq!(jobs.body["jobs"], json!([]), "no job came of it");
    let catalog = broker.osb(Method::GET, "/v2/catalog", None).await;
    assert_eq!(catalog.status, 200, "{catalog:?}");
}

fn order(of: &(String, String)) -> Map<String, Value> {
    let order = json!({
        "service_id": of.0, "plan_id": of.1, "organization_guid": "org", "space_guid": "space",
    });
    order.as_object().unwrap().clone()
}

const INSTANCE: &str = "/v2/service_instances/i?accepts_incomplete=true";

#[tokio::test]
async fn a_wrong_or_missing_password_is_told_before_anything_else() {
    let (broker, _) = hello().await;
    let path = "/v2/catalog";
    let wrong = bare(&broker, Method::GET, path).basic_auth("platform", Some("guess"));
    let stranger = bare(&broker, Method::GET, path).basic_auth("stranger", Some(broker.password()));
    let token = bare(&broker, Method::GET, path).bearer_auth(broker.password());
    let nobody = bare(&broker, Method::GET, path);
    // No version, no route, a broken body: it does not matter to whom is not known.
    let put = bare(&broker, Method::PUT, "/v3/nowhere").body("{");
    for request in [wrong, stranger, token, nobody, put] {
        let answer = answer(request).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        let challenge = answer.headers["www-authenticate"].to_str().unwrap();
        assert!(challenge.starts_with("Basic "), "{challenge}");
        assert!(!description(&answer).is_empty(), "{answer:?}");
        assert!(!answer.body.to_string().contains("guess"), "{answer:?}");
    }
    serves_on(&broker).await;
}

#[tokio::test]
async fn a_version_that_is_not_served_is_told_which_one_is() {
    let (broker, _) = hello().await;
    for version in [
        None,
        Some("3.0"),
        Some("1.17"),
        Some("two"),
        Some("2"),
        Some(""),
    ] {
        let mut request = bare(&broker, Method::GET, "/v2/catalog")
            .basic_auth("platform", Some(broker.password()));
        if let Some(version) = version {
            request = request.header("X-Broker-API-Version", version);
        }
        let answer = answer(request).await;
        assert_eq!(answer.status, 412, "{version:?}: {answer:?}");
        assert!(description(&answer).contains('2'), "{answer:?}");
    }
    serves_on(&broker).await;
}

#[tokio::test]
async fn a_body_of_10_mb_is_refused_unread() {
    let (broker, plain) = hello().await;
    let mut body = order(&plain);
    body.insert(
        "parameters".to_owned(),
        json!({"greeting": "x".repeat(10_000_000)}),
    );
    let large = open(&broker, Method::PUT, INSTANCE).json(&body);
    let answer_of_large = answer(large).await;
    assert_eq!(answer_of_large.status, 413, "{answer_of_large:?}");
    assert!(description(&answer_of_large).contains("large"));
    serves_on(&broker).await;
}

#[tokio::test]
async fn ten_thousand_nested_arrays_are_a_bad_request() {
    let (broker, plain) = hello().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let mut body = order(&plain);
    body.insert("parameters".to_owned(), json!({"greeting": "here"}));
    let within = json!(body).to_string().replace("\"here\"", &deep);
    for body in [deep, within] {
        let answer = answer(open(&broker, Method::PUT, INSTANCE).body(body)).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(!description(&answer).is_empty());
    }
    serves_on(&broker).await;
}

#[tokio::test]
async fn what_is_no_json_object_is_a_bad_request() {
    let (broker, _) = hello().await;
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\"text\"",
        "{\"a\": 1} {}",
        "{\"a\": NaN}",
        "\u{feff}",
    ] {
        let answer = answer(open(&broker, Method::PUT, INSTANCE).body(body)).await;
        assert_eq!(answer.status, 400, "{body:?}: {answer:?}");
        assert!(!description(&answer).is_empty());
    }
    let bytes = b"{\"service_id\": \"\xff\xfe\"}".to_vec();
    let broken = answer(open(&broker, Method::PUT, INSTANCE).body(bytes)).await;
    assert_eq!(broken.status, 400, "{broken:?}");
    serves_on(&broker).await;
}

#[tokio::test]
async fn a_missing_or_mistyped_field_is_named() {
    let (broker, plain) = hello().await;
    let binding = "/v2/service_instances/i/service_bindings/b";
    let fields = ["service_id", "plan_id", "organization_guid", "space_guid"];
    for (path, fields) in [(INSTANCE, &fields[..]), (binding, &fields[..2])] {
        for field in fields {
            let mut missing = order(&plain);
            missing.remove(*field);
            let mut empty = order(&plain);
            empty.insert((*field).to_owned(), json!(""));
            let mut number = order(&plain);
            number.insert((*field).to_owned(), json!(7));
            for body in [missing, empty, number] {
                let answer = answer(open(&broker, Method::PUT, path).json(&body)).await;
                assert_eq!(answer.status, 400, "{body:?}: {answer:?}");
                assert!(description(&answer).contains(field), "{field}: {answer:?}");
            }
        }
    }
    for field in ["service_id", "plan_id"] {
        let other = if field == "plan_id" {
            "service_id"
        } else {
            "plan_id"
        };
        let path = format!("/v2/service_instances/i?accepts_incomplete=true&{other}=x");
        let answer = broker.osb(Method::DELETE, &path, None).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(description(&answer).contains(field), "{answer:?}");
    }
    let unknown = (plain.0.clone(), "no-such-plan".to_owned());
    let answer = broker.provision("i", &unknown, json!({})).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(description(&answer).contains("no-such-plan"), "{answer:?}");
    // Parameters are judged by the plan's schema, before anything starts.
    let answer = broker.provision("i", &plain, json!({"greeting": 5})).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(description(&answer).contains("greeting"), "{answer:?}");
    serves_on(&broker).await;
}

#[tokio::test]
async fn fields_and_query_parameters_of_the_future_are_ignored() {
    let (broker, plain) = hello().await;
    let mut body = order(&plain);
    body.insert("future".to_owned(), json!({"nested": [1, {"deep": null}]}));
    body.insert(
        "context".to_owned(),
        json!({"platform": "future", "galaxy_guid": 7}),
    );
    let path = format!("{INSTANCE}&colour=blue&colour=red&flag");
    let asked = answer(open(&broker, Method::PUT, &path).json(&body)).await;
    broker.succeeded("i", None, &asked.operation()).await;
    // The same order without them is the same order.
    let again = broker.provision("i", &plain, json!({})).await;
    assert_eq!(again.status, 200, "{again:?}");
}

/// As it stands in a path.
fn encoded(id: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    id.bytes().map(escaped).collect()
}

#[tokio::test]
async fn ids_of_any_characters_live_a_whole_life_each() {
    let (broker, plain) = hello().await;
    let ids = [
        "a/b",
        "a%2Fb",
        "with spaces",
        "emoji 🚢 größe",
        "q?a=b&c#d;e",
        "'\"$(id)`\\",
    ];
    // All at once: none is taken for another.
    for id in ids {
        let asked = broker
            .provision(
                &encoded(id),
                &plain,
                json!({"greeting": format!("Ahoy {id}")}),
            )
            .await;
        broker
            .succeeded(&encoded(id), None, &asked.operation())
            .await;
        let job = broker.job(&asked.operation()).await;
        assert_eq!(job["instance"], id);
    }
    for id in ids {
        let path = encoded(id);
        let fetched = broker
            .osb(Method::GET, &format!("/v2/service_instances/{path}"), None)
            .await;
        let greeting = format!("Ahoy {id}");
        assert_eq!(
            fetched.body["parameters"]["greeting"], greeting,
            "{fetched:?}"
        );
        let operation = broker
            .bind(&path, &path, &plain, json!({}))
            .await
            .operation();
        broker.succeeded(&path, Some(&path), &operation).await;
        let binding = format!("/v2/service_instances/{path}/service_bindings/{path}");
        let fetched = broker.osb(Method::GET, &binding, None).await;
        let message = format!("{greeting}, world.");
        assert_eq!(fetched.body["credentials"]["message"], message);
    }
    for id in ids {
        let path = encoded(id);
        let operation = broker.unbind(&path, &path, &plain).await.operation();
        broker.succeeded(&path, Some(&path), &operation).await;
        let operation = broker.deprovision(&path, &plain).await.operation();
        broker.succeeded(&path, None, &operation).await;
        let gone = broker.deprovision(&path, &plain).await;
        assert_eq!(gone.status, 410, "{gone:?}");
    }
    // The command line takes them as they are.
    for id in ids {
        let output = broker.cli(&["osb", "provision", "hello", "plain", "--id", id]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{id}\n"));
        let output = broker.cli(&["osb", "deprovision", id]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[tokio::test]
async fn ids_that_could_command_a_terminal_or_fill_a_disk_are_refused() {
    let (broker, plain) = hello().await;
    let long = "x".repeat(5000);
    for id in ["a%00b", "a%1B%5B31m", "a%0Ab", "%FF", long.as_str()] {
        let answer = broker.provision(id, &plain, json!({})).await;
        assert_eq!(answer.status, 400, "{id}: {answer:?}");
        assert!(description(&answer).contains("id"), "{answer:?}");
    }
    serves_on(&broker).await;
}
