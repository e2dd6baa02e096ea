//! I16: what is written to the log.

use std::io;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use crate::broker::{BASIC, Broker, Call, TOKEN, WRONG_BASIC, provision};
use crate::runs::PASSWORD;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Written {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What is logged from now on, by this thread.
fn listen(level: Level) -> (Written, tracing::subscriber::DefaultGuard) {
    let written = Written::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(level)
        .with_writer(written.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    (written, guard)
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The fields of each line.
    fn fields(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|mut line| line["fields"].take()).collect()
    }
}

// One thread, so that all tasks of the broker write to this test's log.
#[tokio::test]
async fn i16_the_log_has_a_line_for_each_request_and_no_secret() {
    let (written, _guard) = listen(Level::TRACE);
    let broker = Broker::start().await;
    let secret = json!({"admin_password": "parameter-secret"});
    assert_eq!(broker.provision("i", secret.clone()).await.status, 201);
    assert_eq!(broker.bind("i", "b", secret).await.status, 201);
    let call = Call::new("GET", "/v2/service_instances/i?operation=query-secret");
    assert_eq!(broker.ask(call.clone()).await.status, 200);
    let wrong = call.clone().header("authorization", WRONG_BASIC);
    assert_eq!(broker.ask(wrong).await.status, 401);
    let boom = call.header("x-broker-api-request-identity", "boom");
    assert_eq!(broker.ask(boom).await.status, 500);
    assert_eq!(
        broker
            .ask(Call::admin("GET", "/admin/v1/jobs"))
            .await
            .status,
        200
    );
    let log = written.text();
    let credentials = [BASIC, TOKEN, WRONG_BASIC].map(|header| header.split(' ').nth(1).unwrap());
    for secret in credentials
        .into_iter()
        .chain([PASSWORD, "parameter-secret", "query-secret"])
    {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    let fields = written.fields();
    let requests = fields
        .iter()
        .filter(|fields| fields["message"] == "request");
    let requests: Vec<_> = requests
        .filter(|fields| fields["route"] != "/readyz")
        .collect();
    let told: Vec<_> = requests
        .iter()
        .map(|line| {
            (
                line["method"].as_str().unwrap(),
                line["status"].as_u64().unwrap(),
                &line["platform"],
            )
        })
        .collect();
    let (platform, nobody) = (json!("platform"), Value::Null);
    assert_eq!(
        told,
        [
            ("PUT", 201, &platform),
            ("PUT", 201, &platform),
            ("GET", 200, &platform),
            ("GET", 401, &nobody),
            ("GET", 500, &platform),
            ("GET", 200, &nobody),
        ]
    );
    assert_eq!(requests[0]["route"], "/v2/service_instances/{instance_id}");
    assert_eq!(requests[0]["identity"], "request 1/2");
    let panicked = fields
        .iter()
        .find(|fields| fields["message"] == "a request handler panicked");
    let place = panicked.unwrap()["place"].as_str().unwrap();
    assert!(place.contains("/osb.rs:"), "{place}");
}

// H4
#[tokio::test]
async fn what_is_odd_about_an_originating_identity_is_logged_and_never_its_values() {
    let (written, _guard) = listen(Level::INFO);
    let broker = Broker::start().await;
    let identity =
        |platform: &str, value: Value| format!("{platform} {}", STANDARD.encode(value.to_string()));
    let put = async |id: &str, identity: &str, context: &str| {
        let mut body = provision(json!({}));
        body["context"] = json!({ "platform": context });
        let call = Call::new("PUT", &format!("/v2/service_instances/{id}"));
        let call = call.header("x-broker-api-originating-identity", identity);
        assert_eq!(broker.ask(call.json(&body)).await.status, 201, "{id}");
    };
    let user = json!({"user_id": "user-secret"});
    put(
        "right",
        &identity("cloudfoundry", user.clone()),
        "cloudfoundry",
    )
    .await;
    put("other", &identity("cloudfoundry", user), "kubernetes").await;
    let some = json!({"username": "user-secret", "uid": "1"});
    put("lacks", &identity("kubernetes", some), "kubernetes").await;
    put("broken", "cloudfoundry user-secret", "cloudfoundry").await;
    let told: Vec<_> = written
        .fields()
        .into_iter()
        .filter(|fields| {
            fields["message"]
                .as_str()
                .unwrap()
                .contains("originating identity")
        })
        .collect();
    let [differs, lacks, broken] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!(
        (&differs["of"], &differs["context"]),
        (&json!("cloudfoundry"), &json!("\"kubernetes\""))
    );
    assert_eq!(lacks["missing"], "[\"groups\", \"extra\"]");
    assert!(
        broken["error"].as_str().unwrap().contains("base64"),
        "{broken}"
    );
    assert!(!written.text().contains("user-secret"));
}
