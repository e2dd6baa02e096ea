//! What a bundle says of its service beyond its actions: what can be fetched, where the
//! dashboard is, and which parameters its actions get.

use serde_json::{Value, json};

use crate::broker::{Answer, Broker, Call, bundle};

/// Bundle `own`: says about everything something else than a bundle that is silent.
const OWN: &str = r"
bundle: 1
service:
  id: own
  name: own
  description: Says everything itself
  instances_retrievable: false
  bindings_retrievable: false
  dashboard_url: https://own.example/{instance_id}
plans:
  - id: own-only
    name: only
    description: The only one
    binding_rotatable: true
actions:
  provision: {command: [./act]}
  bind: {command: [./act], async: unsupported}
  unbind: {command: [./act], async: unsupported}
  deprovision: {command: [./act]}
";

/// Bundle `filled`: its actions get defaults.
const FILLED: &str = r"
bundle: 1
service: {id: filled, name: filled, description: Has defaults}
plans:
  - id: filled-only
    name: only
    description: The only one
    schemas:
      apply_defaults: true
      provision: &instance
        $schema: http://json-schema.org/draft-04/schema#
        properties:
          size: {type: integer, default: 5}
          note: {type: string}
          disk: {type: object, properties: {kind: {type: string, default: ssd}}}
      update: *instance
      bind:
        $schema: http://json-schema.org/draft-04/schema#
        properties: {role: {enum: [reader, writer], default: reader}}
actions:
  provision: {command: [./act]}
  update: {command: [./act]}
  bind: {command: [./act]}
  unbind: {command: [./act]}
  deprovision: {command: [./act]}
";

async fn broker() -> Broker {
    let broker = Broker::start().await;
    for (name, yaml) in [("own", OWN), ("filled", FILLED)] {
        bundle(&broker.dir.path().join("bundles").join(name), yaml);
    }
    broker.engine.reload().await;
    broker
}

const INSTANCE: &str = "/v2/service_instances/i%2F1";
const BINDING: &str = "/v2/service_instances/i%2F1/service_bindings/b";

async fn send(broker: &Broker, method: &str, of: &str, parameters: Value, later: bool) -> Answer {
    let body = json!({
        "service_id": of, "plan_id": format!("{of}-only"), "organization_guid": "org",
        "space_guid": "space", "parameters": parameters,
    });
    let (method, path) = match method {
        "BIND" => ("PUT", BINDING),
        other => (other, INSTANCE),
    };
    let call = Call::new(method, path).json(&body);
    broker.ask(if later { call.later() } else { call }).await
}

async fn get(broker: &Broker, path: &str) -> Answer {
    broker.ask(Call::new("GET", path)).await
}

#[tokio::test]
async fn what_a_bundle_says_cannot_be_fetched_is_not_offered_and_not_found() {
    let broker = broker().await;
    let catalog = get(&broker, "/v2/catalog").await.body;
    let services = catalog["services"].as_array().unwrap();
    let own = services.iter().find(|one| one["id"] == "own").unwrap();
    for absent in [
        "instances_retrievable",
        "bindings_retrievable",
        "allow_context_updates",
    ] {
        assert!(own.get(absent).is_none(), "false is left out: {own}");
    }
    assert_eq!(own["plans"][0]["binding_rotatable"], true);

    assert_eq!(
        send(&broker, "PUT", "own", json!({}), false).await.status,
        201
    );
    assert_eq!(
        send(&broker, "BIND", "own", json!({}), false).await.status,
        201
    );
    for (path, flag) in [
        (INSTANCE, "instances_retrievable"),
        (BINDING, "bindings_retrievable"),
    ] {
        let answer = get(&broker, path).await;
        assert_eq!(answer.status, 404);
        assert!(answer.text("description").contains(flag), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_dashboard_that_is_known_beforehand_is_in_every_answer_until_the_action_says_better() {
    let broker = broker().await;
    let hold = json!({"provision": "hold"});
    for _ in 0..2 {
        let answer = send(&broker, "PUT", "own", hold.clone(), true).await;
        assert_eq!(answer.status, 202);
        assert_eq!(answer.text("dashboard_url"), "https://own.example/i%2F1");
    }
    broker.run_is_held().await;
    broker.runs.release();
    broker.polled(&format!("{INSTANCE}/last_operation")).await;
    let answer = send(&broker, "PUT", "own", hold, true).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text("dashboard_url"), "https://dashboard/only");
}

#[tokio::test]
async fn an_action_gets_defaults_and_a_request_is_compared_as_it_was_sent() {
    let broker = broker().await;
    let sent = json!({"disk": {}});
    assert_eq!(
        send(&broker, "PUT", "filled", sent.clone(), false)
            .await
            .status,
        201
    );
    let applied = json!({"disk": {"kind": "ssd"}, "size": 5});
    let told = || broker.runs.last_request()["instance"]["parameters"].clone();
    assert_eq!(told(), applied);
    assert_eq!(get(&broker, INSTANCE).await.body["parameters"], sent);
    assert_eq!(
        send(&broker, "PUT", "filled", sent.clone(), false)
            .await
            .status,
        200
    );
    assert_eq!(
        send(&broker, "PUT", "filled", applied, false).await.status,
        409
    );

    // What is removed has its default again; what was set stays.
    let patch = json!({"disk": {"kind": "hdd"}, "size": 7});
    assert_eq!(
        send(&broker, "PATCH", "filled", patch, false).await.status,
        200
    );
    let patch = json!({"note": "n", "size": null});
    assert_eq!(
        send(&broker, "PATCH", "filled", patch, false).await.status,
        200
    );
    assert_eq!(
        get(&broker, INSTANCE).await.body["parameters"],
        json!({"disk": {"kind": "hdd"}, "note": "n"})
    );
    assert_eq!(
        told(),
        json!({"disk": {"kind": "hdd"}, "note": "n", "size": 5})
    );
    // The order for what it is now is the same, without the defaults that nobody sent.
    let now = json!({"disk": {"kind": "hdd"}, "note": "n"});
    assert_eq!(send(&broker, "PUT", "filled", now, false).await.status, 200);

    assert_eq!(
        send(&broker, "BIND", "filled", json!({}), false)
            .await
            .status,
        201
    );
    let told = broker.runs.last_request();
    assert_eq!(told["binding"]["parameters"], json!({"role": "reader"}));
    assert!(get(&broker, BINDING).await.body.get("parameters").is_none());
    assert_eq!(
        send(&broker, "BIND", "filled", json!({}), false)
            .await
            .status,
        200
    );
    let wrong = send(
        &broker,
        "PATCH",
        "filled",
        json!({"disk": {"kind": 1}}),
        false,
    )
    .await;
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.text("description").contains("/disk/kind"),
        "{}",
        wrong.body
    );
}
