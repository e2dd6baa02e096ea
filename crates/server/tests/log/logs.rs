//! I16: what is written to the log.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use crate::broker::{BASIC, Broker, Call, TOKEN, WRONG_BASIC};
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

// One thread, so that all tasks of the broker write to this test's log.
#[tokio::test]
async fn i16_the_log_has_a_line_for_each_request_and_no_secret() {
    let written = Written::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(Level::TRACE)
        .with_writer(written.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
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
    let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let credentials = [BASIC, TOKEN, WRONG_BASIC].map(|header| header.split(' ').nth(1).unwrap());
    for secret in credentials
        .into_iter()
        .chain([PASSWORD, "parameter-secret", "query-secret"])
    {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let fields: Vec<Value> = lines.map(|mut line| line["fields"].take()).collect();
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
