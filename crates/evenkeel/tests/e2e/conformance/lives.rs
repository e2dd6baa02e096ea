//! A whole life of an instance and its binding, for each bundle and each way to tell of a delete.

use evenkeel_osb::{Catalog, FromObject as _};
use serde_json::{Value, json};

use super::{BUNDLES, Plan, Suite, binding, instance, named, reader, shapes};
use crate::harness::Answer;

/// How a bundle's actions are answered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// 422 unless incomplete answers are accepted.
    Asynchronous,
    Synchronous,
    /// As the platform asks.
    Either,
}

/// Instances, bindings, and whether they can be fetched.
fn modes(bundle: &str) -> (Mode, Mode, bool) {
    match bundle {
        "async-instances" => (Mode::Asynchronous, Mode::Synchronous, false),
        "async-bindings" => (Mode::Asynchronous, Mode::Asynchronous, true),
        "sync" => (Mode::Synchronous, Mode::Synchronous, true),
        "maintained" => (Mode::Asynchronous, Mode::Either, true),
        other => panic!("{other} is no conformance bundle"),
    }
}

/// A life in which each request is sent once more while and after it is served.
struct Life<'a> {
    suite: &'a Suite,
    plan: Plan,
    id: &'a str,
    fetched: bool,
    deleted_as: &'a str,
}

fn is_async_required(answer: &Answer) -> bool {
    answer.status == 422 && answer.body["error"] == "AsyncRequired"
}

impl Life<'_> {
    /// The last answer to a request that is sent without accepting incomplete answers, if the
    /// bundle allows it, and with.
    fn ways(mode: Mode) -> [(&'static str, bool); 2] {
        let refused = mode == Mode::Asynchronous;
        [("", refused), ("?accepts_incomplete=true", false)]
    }

    /// Sends a PUT both ways; the first that is not refused makes it, and the other finds it.
    async fn made(&self, mode: Mode, path: &str, body: Value) -> Answer {
        let mut made = 0;
        let mut last = None;
        for (query, is_refused) in Self::ways(mode) {
            let answer = self
                .suite
                .put(&format!("{path}{query}"), body.clone())
                .await;
            if is_refused {
                assert!(is_async_required(&answer), "{answer:?}");
                continue;
            }
            let asynchronous = mode == Mode::Asynchronous;
            let expected = match (made, asynchronous) {
                (0, true) => 202,
                (0, false) => 201,
                (_, _) => 200,
            };
            assert_eq!(answer.status, expected, "{answer:?}");
            made += 1;
            self.succeeded(&answer, path).await;
            last = Some(answer);
        }
        let again = self
            .suite
            .put(&format!("{path}?accepts_incomplete=true"), body)
            .await;
        assert_eq!(
            again.status, 200,
            "suites ask so once it is made: {again:?} {last:?}"
        );
        again
    }

    async fn succeeded(&self, answer: &Answer, path: &str) {
        for query in ["", "operation=", &self.plan.ids(), "operation=provision"] {
            let end = self.suite.over(answer, path, query).await;
            if answer.status == 202 {
                assert_eq!((end.status, &end.body["state"]), (200, &json!("succeeded")));
            }
        }
    }

    async fn whole(&self, instances: Mode, bindings: Mode) {
        let (at, bound_at) = (instance(self.id), binding(self.id, "b"));
        let order = self.plan.provision(named());
        self.made(instances, &at, order).await;
        let conflict = self
            .suite
            .put(
                &format!("{at}?accepts_incomplete=true"),
                self.plan.provision(json!({"name": "m"})),
            )
            .await;
        assert_eq!(conflict.status, 409, "{conflict:?}");
        self.fetch(&at, &self.plan.id, "n").await;

        let made = self
            .made(bindings, &bound_at, self.plan.bind(reader()))
            .await;
        assert_eq!(
            made.body["credentials"]["username"], "conformance",
            "{made:?}"
        );
        let other = self.plan.bind(json!({"role": "writer"}));
        let conflict = self
            .suite
            .put(&format!("{bound_at}?accepts_incomplete=true"), other)
            .await;
        assert_eq!(conflict.status, 409, "{conflict:?}");
        let fetched = self.suite.get(&bound_at).await;
        if self.fetched {
            assert_eq!(fetched.status, 200, "{fetched:?}");
            assert_eq!(fetched.body["credentials"], made.body["credentials"]);
            assert_eq!(fetched.body["parameters"], reader());
        } else {
            assert_eq!(fetched.status, 404, "{fetched:?}");
        }

        self.updated(instances, &at).await;
        self.fetch(&at, &self.plan.other, "o").await;

        self.deleted(bindings, &bound_at).await;
        self.deleted(instances, &at).await;
        assert_eq!(self.suite.get(&bound_at).await.status, 404);
        assert_eq!(self.suite.get(&at).await.status, 404);
    }

    async fn fetch(&self, at: &str, plan: &str, name: &str) {
        let fetched = self.suite.get(at).await;
        if !self.fetched {
            assert_eq!(fetched.status, 404, "{fetched:?}");
            return;
        }
        assert_eq!(fetched.status, 200, "{fetched:?}");
        assert_eq!(fetched.body["service_id"], self.plan.service);
        assert_eq!(fetched.body["plan_id"], plan);
        assert_eq!(fetched.body["parameters"], json!({ "name": name }));
    }

    /// Plan and parameters change together.
    async fn updated(&self, mode: Mode, at: &str) {
        let body = json!({
            "service_id": self.plan.service, "plan_id": self.plan.other,
            "parameters": {"name": "o"},
            "previous_values": {"plan_id": self.plan.id, "service_id": self.plan.service,
                "organization_id": "org", "space_id": "space"},
        });
        for (query, is_refused) in Self::ways(mode) {
            let answer = self
                .suite
                .patch(&format!("{at}{query}"), body.clone())
                .await;
            if is_refused {
                assert!(is_async_required(&answer), "{answer:?}");
                continue;
            }
            self.succeeded(&answer, at).await;
        }
    }

    async fn deleted(&self, mode: Mode, at: &str) {
        let ids = self.plan.ids();
        if mode == Mode::Asynchronous {
            let refused = self.suite.delete(&format!("{at}?{ids}")).await;
            assert!(is_async_required(&refused), "{refused:?}");
        }
        let path = format!("{at}?{ids}&accepts_incomplete=true");
        let answer = self.suite.delete(&path).await;
        if mode == Mode::Synchronous {
            assert_eq!((answer.status, &answer.body), (200, &json!({})));
        } else {
            assert_eq!(answer.status, 202, "{answer:?}");
        }
        for query in ["operation=deprovision", "", &ids] {
            let poll = self.suite.over(&answer, at, query).await;
            if answer.status == 202 && self.deleted_as == "gone" {
                assert_eq!(poll.status, 410, "{poll:?}");
            } else if answer.status == 202 {
                assert_eq!(
                    (poll.status, &poll.body["state"]),
                    (200, &json!("succeeded"))
                );
            }
        }
        assert_eq!(self.suite.delete(&path).await.status, 410);
    }
}

async fn every_bundle(deleted_as: &str) {
    let suite = Suite::start(deleted_as).await;
    for bundle in BUNDLES {
        let (instances, bindings, fetched) = modes(bundle);
        let life = Life {
            suite: &suite,
            plan: suite.plan(bundle),
            id: bundle,
            fetched,
            deleted_as,
        };
        life.whole(instances, bindings).await;
    }
}

#[tokio::test]
async fn every_conformance_bundle_lives_a_whole_life_and_a_finished_delete_is_told_as_succeeded() {
    every_bundle("succeeded").await;
}

#[tokio::test]
async fn every_conformance_bundle_lives_a_whole_life_and_a_finished_delete_is_told_as_gone() {
    every_bundle("gone").await;
}

#[tokio::test]
async fn the_catalog_has_the_fields_of_the_version_that_a_bundle_is_for() {
    let suite = Suite::start("succeeded").await;
    let catalog = Catalog::from_object(suite.catalog.as_object().unwrap()).unwrap();
    assert_eq!(catalog.problems(), [], "no platform refuses it");
    let offering =
        |bundle: &str| Value::Object(suite.service(&format!("conformance-{bundle}")).clone());
    assert_eq!(
        shapes::newer_than("2.13", &offering("async-instances")),
        [""; 0]
    );
    let flags = ["instances_retrievable", "bindings_retrievable"];
    for bundle in ["async-bindings", "sync"] {
        assert_eq!(shapes::newer_than("2.14", &offering(bundle)), [""; 0]);
        let mut newer = shapes::newer_than("2.13", &offering(bundle));
        newer.sort();
        assert_eq!(newer, ["bindings_retrievable", "instances_retrievable"]);
        assert!(flags.iter().all(|flag| offering(bundle)[*flag] == true));
    }
    let maintained = offering("maintained");
    assert_eq!(maintained["allow_context_updates"], true);
    let plan = &maintained["plans"][0];
    assert_eq!(plan["binding_rotatable"], true);
    assert_eq!(plan["maximum_polling_duration"], 60);
    assert_eq!(
        plan["maintenance_info"],
        json!({"version": "1.0.0", "description": "The first"})
    );
    let schema = &plan["schemas"]["service_instance"]["create"]["parameters"];
    assert_eq!(schema["required"], json!(["name"]), "as written: {schema}");
}
