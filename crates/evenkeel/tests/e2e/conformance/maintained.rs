//! What came after the suites: rotation, maintenance and context updates of the bundle
//! `maintained`.

use serde_json::json;

use super::{Suite, binding, instance, is_error, named, reader};

#[tokio::test]
async fn a_binding_of_the_maintained_plan_is_rotated_and_both_stay() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("maintained");
    suite.provisioned(&plan, "i", named()).await;
    suite.bound(&plan, "i", "old", reader()).await;
    let rotation = json!({"predecessor_binding_id": "old"});
    let answer = suite.put(&binding("i", "new"), rotation.clone()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let again = suite.put(&binding("i", "new"), rotation.clone()).await;
    assert_eq!((again.status, &again.body), (200, &answer.body));
    let (old, new) = (
        suite.get(&binding("i", "old")).await,
        suite.get(&binding("i", "new")).await,
    );
    assert_eq!((old.status, new.status), (200, 200));
    assert_ne!(old.body["credentials"], new.body["credentials"]);
    assert_eq!(new.body["parameters"], reader(), "its predecessor's");
    // Elsewhere nothing can be rotated.
    let plan = suite.plan("sync");
    suite.provisioned(&plan, "j", named()).await;
    suite.bound(&plan, "j", "old", reader()).await;
    let answer = suite.put(&binding("j", "new"), rotation).await;
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[tokio::test]
async fn maintenance_and_a_new_name_of_the_instance_are_taken_by_the_maintained_plan() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("maintained");
    let at = instance("i");
    suite.provisioned(&plan, "i", named()).await;
    let later = format!("{at}?accepts_incomplete=true");
    let context = json!({"platform": "cloudfoundry", "instance_name": "renamed"});
    let renamed = json!({"service_id": plan.service, "context": context});
    let answer = suite.patch(&later, renamed).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let change = json!({
        "service_id": plan.service, "plan_id": plan.other, "parameters": {},
        "maintenance_info": {"version": "2.0.0"},
    });
    let answer = suite.patch(&later, change).await;
    let dashboard = "https://conformance.example/instances/i";
    assert_eq!(answer.body["dashboard_url"], dashboard, "{answer:?}");
    suite.over(&answer, &at, "operation=update").await;
    let fetched = suite.get(&at).await;
    assert_eq!(fetched.body["maintenance_info"]["version"], "2.0.0");
    assert_eq!(fetched.body["parameters"], named(), "{{}} changes nothing");
    let old = json!({"service_id": plan.service, "maintenance_info": {"version": "1.0.0"}});
    is_error(
        &suite.patch(&later, old).await,
        422,
        "MaintenanceInfoConflict",
    );
}
