//! The catalog as platforms get it, and how they are spared getting it again.

use evenkeel_osb::{Catalog, FromObject as _};
use serde_json::{Value, json};

use crate::broker::{Broker, Call, bundle};

/// Says everything that a bundle can say of an offering.
const FULL: &str = r#"
bundle: 1
service:
  id: full
  name: full
  description: Everything
  tags: [sql, test]
  requires: [syslog_drain, route_forwarding]
  bindable: true
  plan_updateable: true
  metadata: {displayName: Full, shareable: true, longDescription: "Ünï"}
  dashboard_client: {id: full-dashboard, secret: s3cret, redirect_uri: "https://dashboard.example/auth"}
plans:
  - id: full-paid
    name: paid
    description: For money
    free: false
    bindable: false
    plan_updateable: false
    maximum_polling_duration: 3600
    maintenance_info: {version: 2.1.0-rc.1+build, description: New engine}
    metadata: {bullets: [a, b], costs: [{amount: {eur: 1.5}, unit: MONTH}]}
    schemas:
      provision: &any {$schema: 'http://json-schema.org/draft-04/schema#', type: object}
      update: *any
      bind: *any
  - {id: full-plain, name: plain, description: With defaults}
actions:
  provision: {command: [./act]}
  update: {command: [./act]}
  deprovision: {command: [./act]}
  bind: {command: [./act]}
  unbind: {command: [./act]}
"#;

const GET: &str = "/v2/catalog";

/// With bundle `full` beside those that every broker of the tests has.
async fn broker() -> Broker {
    let broker = Broker::start().await;
    bundle(&broker.dir.path().join("bundles/full"), FULL);
    reload(&broker).await;
    broker
}

async fn reload(broker: &Broker) {
    let reload = Call::admin("POST", "/admin/v1/reload");
    assert_eq!(broker.ask(reload).await.status, 200);
}

fn named(list: &Value, name: &str) -> Value {
    let mut all = list.as_array().unwrap().iter();
    all.find(|entry| entry["name"] == name).unwrap().clone()
}

// C2, C3, C8
#[tokio::test]
async fn what_a_bundle_says_of_its_offering_reaches_the_platform() {
    let broker = broker().await;
    let catalog = broker.ask(Call::new("GET", GET)).await.body;
    let full = named(&catalog["services"], "full");
    for (field, value) in [
        ("id", json!("full")),
        ("description", json!("Everything")),
        ("tags", json!(["sql", "test"])),
        ("requires", json!(["syslog_drain", "route_forwarding"])),
        ("bindable", json!(true)),
        ("plan_updateable", json!(true)),
        (
            "metadata",
            json!({"displayName": "Full", "shareable": true, "longDescription": "Ünï"}),
        ),
        (
            "dashboard_client",
            json!({"id": "full-dashboard", "secret": "s3cret", "redirect_uri": "https://dashboard.example/auth"}),
        ),
    ] {
        assert_eq!(full[field], value, "{field}");
    }
    let schema = json!({"parameters": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}});
    let paid = named(&full["plans"], "paid");
    for (field, value) in [
        ("id", json!("full-paid")),
        ("description", json!("For money")),
        ("free", json!(false)),
        ("bindable", json!(false)),
        ("plan_updateable", json!(false)),
        ("maximum_polling_duration", json!(3600)),
        (
            "maintenance_info",
            json!({"version": "2.1.0-rc.1+build", "description": "New engine"}),
        ),
        (
            "metadata",
            json!({"bullets": ["a", "b"], "costs": [{"amount": {"eur": 1.5}, "unit": "MONTH"}]}),
        ),
        (
            "schemas",
            json!({"service_instance": {"create": schema, "update": schema}, "service_binding": {"create": schema}}),
        ),
    ] {
        assert_eq!(paid[field], value, "{field}");
    }
    // A platform that reads it has nothing to say against any of it.
    let read = Catalog::from_object(catalog.as_object().unwrap()).unwrap();
    assert!(read.services.iter().any(|service| service.name == "full"));
    assert_eq!(read.problems(), []);
}

// C9
#[tokio::test]
async fn what_a_bundle_does_not_say_is_left_out_of_the_catalog() {
    let broker = broker().await;
    let catalog = broker.ask(Call::new("GET", GET)).await.body;
    let slow = named(&catalog["services"], "slow");
    for field in [
        "tags",
        "requires",
        "metadata",
        "dashboard_client",
        "plan_updateable",
    ] {
        assert_eq!(slow.get(field), None, "{field}");
    }
    let full = named(&catalog["services"], "full");
    let plain = named(&full["plans"], "plain");
    let fields: Vec<_> = plain.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["description", "id", "name"]);
    assert!(!catalog.to_string().contains("null"));
}

// C6
#[tokio::test]
async fn a_platform_that_remembers_the_catalog_gets_it_again_only_when_it_has_changed() {
    let broker = broker().await;
    let asked = async |conditions: &[(&'static str, &str)]| {
        let call = conditions
            .iter()
            .fold(Call::new("GET", GET), |call, (name, value)| {
                call.header(name, value)
            });
        let answer = broker.ask(call).await;
        let validators = ["etag", "last-modified"].map(|name| answer.header(name).to_owned());
        assert!(validators.iter().all(|text| !text.is_empty()), "{answer:?}");
        (answer.status, validators)
    };
    let (status, first) = asked(&[]).await;
    assert_eq!(status, 200);
    let [tag, time] = first.clone();
    let (tags, since) = ("if-none-match", "if-modified-since");
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (conditions, status) in [
        (&[(tags, tag.as_str())][..], 304),
        (&[(tags, "*")], 304),
        (&[(tags, "\"other\"")], 200),
        (&[(since, time.as_str())], 304),
        (&[(since, past)], 200),
        (&[(since, "yesterday")], 200),
        // The tag is more exact, and decides.
        (&[(tags, "\"other\""), (since, time.as_str())], 200),
        (&[(tags, tag.as_str()), (since, past)], 304),
    ] {
        assert_eq!(
            asked(conditions).await,
            (status, first.clone()),
            "{conditions:?}"
        );
    }
    // Read again, and the same.
    reload(&broker).await;
    assert_eq!(asked(&[(since, &time)]).await, (304, first.clone()));
    // Changed, however soon after.
    let changed = FULL.replace("Everything", "Anything");
    bundle(&broker.dir.path().join("bundles/full"), &changed);
    reload(&broker).await;
    for condition in [(tags, tag.as_str()), (since, time.as_str())] {
        let (status, [new_tag, new_time]) = asked(&[condition]).await;
        assert_eq!(status, 200, "{condition:?}");
        assert!(new_tag != tag && new_time != time, "{new_tag} {new_time}");
        assert_eq!(asked(&[(since, &new_time)]).await.0, 304);
    }
}

// Pipeline: nobody learns that nothing has changed who may not ask.
#[tokio::test]
async fn a_condition_is_looked_at_after_authentication_and_version_only() {
    let broker = broker().await;
    let known = Call::new("GET", GET).header("if-none-match", "*");
    assert_eq!(broker.ask(known.clone()).await.status, 304);
    let stranger = known.clone().without("authorization");
    assert_eq!(broker.ask(stranger).await.status, 401);
    let old = known.without("x-broker-api-version");
    assert_eq!(broker.ask(old).await.status, 412);
}
