//! Cases in which public suites and old clients are particular, each named after who asks so:
//! the suite in JavaScript for 2.13 ("Node"), the ones in Go and Kotlin for 2.14 and 2.15, and
//! eden, a command-line client of version 2.13.

use reqwest::Method;
use serde_json::{Value, json};

use super::{BUNDLES, Suite, binding, instance, is_error, named, reader};

const VERSIONS: [&str; 5] = ["2.13", "2.14", "2.15", "2.16", "2.17"];

/// Every route that suites try without rights or version.
fn routes() -> [(Method, String); 9] {
    let (at, bound_at) = (instance("i"), binding("i", "b"));
    [
        (Method::GET, "/v2/catalog".to_owned()),
        (Method::PUT, at.clone()),
        (Method::PATCH, at.clone()),
        (Method::DELETE, at.clone()),
        (Method::GET, at.clone()),
        (Method::GET, format!("{at}/last_operation")),
        (Method::PUT, bound_at.clone()),
        (Method::DELETE, bound_at.clone()),
        (Method::GET, format!("{bound_at}/last_operation")),
    ]
}

#[tokio::test]
async fn kotlin_a_wrong_user_is_401_also_with_a_version_that_is_garbage_and_any_body() {
    let suite = Suite::start("succeeded").await;
    for (method, path) in routes() {
        for password in [None, Some("wrong")] {
            let ask = suite.ask(method.clone(), &path).password(password);
            for ask in [
                ask.clone(),
                ask.clone().body(json!({})),
                ask.clone().version(Some("garbage")),
                ask.version(None).content_type(None),
            ] {
                let answer = suite.send(ask).await;
                assert_eq!(answer.status, 401, "{answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn all_a_version_that_is_missing_or_go_empty_is_412_without_body_and_content_type() {
    let suite = Suite::start("succeeded").await;
    for (method, path) in routes() {
        for version in [None, Some(""), Some("garbage"), Some("3.0")] {
            let ask = suite.ask(method.clone(), &path).version(version);
            let answer = suite.send(ask.content_type(None)).await;
            assert_eq!(answer.status, 412, "{version:?}: {answer:?}");
        }
    }
    for version in VERSIONS {
        let ask = suite.ask(Method::GET, "/v2/catalog");
        assert_eq!(suite.send(ask.version(Some(version))).await.status, 200);
    }
}

#[tokio::test]
async fn node_a_synchronous_request_without_the_required_parameters_is_async_required() {
    let suite = Suite::start("succeeded").await;
    for bundle in ["async-instances", "async-bindings", "maintained"] {
        let plan = suite.plan(bundle);
        let at = instance(bundle);
        let answer = suite.put(&at, plan.provision(json!({}))).await;
        is_error(&answer, 422, "AsyncRequired");
        suite.provisioned(&plan, bundle, named()).await;
        let mut update = plan.bind(json!({}));
        update["plan_id"] = json!(plan.other);
        let answer = suite.patch(&at, update).await;
        is_error(&answer, 422, "AsyncRequired");
    }
    let plan = suite.plan("async-bindings");
    let answer = suite
        .put(&binding("async-bindings", "b"), plan.bind(json!({})))
        .await;
    is_error(&answer, 422, "AsyncRequired");
}

#[tokio::test]
async fn kotlin_a_maintenance_version_that_no_plan_has_is_a_conflict_before_parameters_are_missed()
{
    let suite = Suite::start("succeeded").await;
    for bundle in BUNDLES {
        let plan = suite.plan(bundle);
        for id in [&plan.id, &plan.other] {
            let mut body = plan.provision(json!({}));
            body["plan_id"] = json!(id);
            body["maintenance_info"] = json!({"version": "Invalid"});
            let path = format!("{}?accepts_incomplete=true", instance("i"));
            let answer = suite.put(&path, body).await;
            is_error(&answer, 422, "MaintenanceInfoConflict");
        }
    }
}

#[tokio::test]
async fn all_required_fields_are_missed_also_with_a_context() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("async-bindings");
    let path = format!("{}?accepts_incomplete=true", instance("i"));
    let mut whole = plan.provision(named());
    whole["context"] = json!({
        "platform": "cloudfoundry", "organization_guid": "org", "space_guid": "space",
    });
    for field in ["service_id", "plan_id", "organization_guid", "space_guid"] {
        for empty in [None, Some(Value::Null), Some(json!(""))] {
            let mut body = whole.clone();
            match empty {
                None => drop(body.as_object_mut().unwrap().remove(field)),
                Some(empty) => body[field] = empty,
            }
            let answer = suite.put(&path, body).await;
            assert_eq!(answer.status, 400, "{field}: {answer:?}");
        }
    }
    for field in ["service_id", "plan_id"] {
        let mut body = whole.clone();
        body[field] = json!("nobody knows it");
        assert_eq!(suite.put(&path, body).await.status, 400);
    }
    suite.provisioned(&plan, "i", named()).await;
    let path = format!("{}?accepts_incomplete=true", binding("i", "b"));
    for field in ["service_id", "plan_id"] {
        let mut body = plan.bind(reader());
        body.as_object_mut().unwrap().remove(field);
        assert_eq!(suite.put(&path, body).await.status, 400);
    }
    let answer = suite
        .patch(&instance("i"), json!({"plan_id": plan.id}))
        .await;
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[tokio::test]
async fn all_parameters_that_do_not_fit_are_400_and_shown_to_nobody() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("async-bindings");
    let path = format!("{}?accepts_incomplete=true", instance("i"));
    for parameters in [
        json!({}),
        json!({"name": ["s3cret"]}),
        json!({"name": "n", "more": "s3cret"}),
    ] {
        let answer = suite.put(&path, plan.provision(parameters)).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(!answer.body.to_string().contains("s3cret"), "{answer:?}");
    }
    suite.provisioned(&plan, "i", named()).await;
    let path = format!("{}?accepts_incomplete=true", binding("i", "b"));
    let answer = suite.put(&path, plan.bind(json!({"role": "owner"}))).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        answer.body["description"]
            .as_str()
            .unwrap()
            .contains("/role"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn kotlin_the_same_id_in_another_organization_and_space_is_a_conflict() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("sync");
    suite.provisioned(&plan, "i", named()).await;
    for fields in [
        &["organization_guid", "space_guid"][..],
        &["organization_guid"],
        &["space_guid"],
    ] {
        let mut body = plan.provision(named());
        for field in fields {
            body[*field] = json!("another");
        }
        let answer = suite.put(&instance("i"), body).await;
        assert_eq!(answer.status, 409, "{answer:?}");
    }
}

#[tokio::test]
async fn kotlin_and_node_a_bind_again_with_another_valid_service_or_plan_is_a_conflict() {
    let suite = Suite::start("succeeded").await;
    for bundle in ["sync", "async-bindings"] {
        let (plan, foreign) = (suite.plan(bundle), suite.plan("maintained"));
        suite.provisioned(&plan, bundle, named()).await;
        suite.bound(&plan, bundle, "b", reader()).await;
        let path = format!("{}?accepts_incomplete=true", binding(bundle, "b"));
        for (service, id) in [
            (&foreign.service, &foreign.id),
            (&plan.service, &plan.other),
        ] {
            let mut body = plan.bind(reader());
            body["service_id"] = json!(service);
            body["plan_id"] = json!(id);
            let answer = suite.put(&path, body).await;
            assert_eq!(answer.status, 409, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn kotlin_a_delete_of_an_unknown_instance_misses_its_ids_first() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("async-bindings");
    let at = instance("unknown");
    for query in [
        "accepts_incomplete=true".to_owned(),
        format!("accepts_incomplete=true&plan_id={}", plan.id),
        format!("accepts_incomplete=true&service_id={}", plan.service),
        format!("accepts_incomplete=true&service_id=&plan_id={}", plan.id),
    ] {
        let answer = suite.delete(&format!("{at}?{query}")).await;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    let path = format!("{at}?accepts_incomplete=true&{}", plan.ids());
    assert_eq!(suite.delete(&path).await.status, 410);
}

#[tokio::test]
async fn kotlin_a_synchronous_delete_of_what_a_refused_provision_never_made_is_async_required() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("async-bindings");
    let answer = suite.put(&instance("i"), plan.provision(named())).await;
    is_error(&answer, 422, "AsyncRequired");
    let answer = suite
        .delete(&format!("{}?{}", instance("i"), plan.ids()))
        .await;
    is_error(&answer, 422, "AsyncRequired");
}

#[tokio::test]
async fn kotlin_an_unbind_of_the_unknown_is_gone_and_node_and_go_of_the_known_misses_its_ids() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("async-bindings");
    suite.provisioned(&plan, "i", named()).await;
    suite.bound(&plan, "i", "known", reader()).await;
    for query in [
        "accepts_incomplete=true".to_owned(),
        format!("accepts_incomplete=true&plan_id={}", plan.id),
        format!("accepts_incomplete=true&service_id={}", plan.service),
    ] {
        let unknown = suite
            .delete(&format!("{}?{query}", binding("i", "unknown")))
            .await;
        assert_eq!(unknown.status, 410, "{unknown:?}");
        let known = suite
            .delete(&format!("{}?{query}", binding("i", "known")))
            .await;
        assert_eq!(known.status, 400, "{known:?}");
    }
    // Asynchronous only, also of what nobody knows.
    let unknown = suite
        .delete(&format!("{}?{}", binding("i", "unknown"), plan.ids()))
        .await;
    is_error(&unknown, 422, "AsyncRequired");
}

#[tokio::test]
async fn kotlin_an_unbind_may_name_its_service_twice() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("async-bindings");
    suite.provisioned(&plan, "i", named()).await;
    suite.bound(&plan, "i", "b", reader()).await;
    let at = binding("i", "b");
    let path = format!(
        "{at}?{0}&service_id={1}&accepts_incomplete=true",
        plan.ids(),
        plan.service
    );
    let answer = suite.delete(&path).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    suite.over(&answer, &at, "").await;
    assert_eq!(suite.delete(&path).await.status, 410);
}

#[tokio::test]
async fn kotlin_a_content_type_may_name_its_charset_and_eden_a_get_or_delete_may_have_one() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("sync");
    for content_type in ["application/json", "application/json; charset=UTF-8"] {
        let put = suite
            .ask(Method::PUT, &instance("i"))
            .body(plan.provision(named()));
        let answer = suite.send(put.content_type(Some(content_type))).await;
        assert!([200, 201].contains(&answer.status), "{answer:?}");
        for path in ["/v2/catalog".to_owned(), instance("i")] {
            let get = suite
                .ask(Method::GET, &path)
                .content_type(Some(content_type));
            assert_eq!(suite.send(get).await.status, 200);
        }
    }
    let path = format!("{}?{}", instance("i"), plan.ids());
    let delete = suite
        .ask(Method::DELETE, &path)
        .content_type(Some("application/json"));
    assert_eq!(suite.send(delete).await.status, 200);
    let put = suite
        .ask(Method::PUT, &instance("i"))
        .body(plan.provision(named()));
    let answer = suite.send(put.content_type(Some("text/plain"))).await;
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[tokio::test]
async fn go_empty_objects_of_clients_that_cannot_leave_them_out_are_absent() {
    let suite = Suite::start("succeeded").await;
    let plan = suite.plan("sync");
    let mut body = plan.provision(named());
    body["maintenance_info"] = json!({});
    body["context"] = json!({});
    assert_eq!(suite.put(&instance("i"), body).await.status, 201);
    let update = json!({
        "service_id": plan.service, "parameters": {}, "maintenance_info": {},
        "previous_values": {"maintenance_info": {}}, "context": {},
    });
    assert_eq!(suite.patch(&instance("i"), update).await.status, 200);
    let mut body = plan.bind(reader());
    body["bind_resource"] = json!({});
    assert_eq!(suite.put(&binding("i", "b"), body).await.status, 201);
    assert_eq!(
        suite
            .put(&binding("i", "b"), plan.bind(reader()))
            .await
            .status,
        200
    );
}
