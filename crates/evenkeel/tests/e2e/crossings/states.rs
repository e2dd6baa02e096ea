//! What is sent again, or across something else, in each state that this can be in.

use reqwest::Method;
use serde_json::json;

use super::{MODES, Mode, Target, is_busy, jobs};
use crate::stage::Stage;

#[tokio::test]
async fn an_update_sent_again_while_it_runs_is_the_same_operation_and_another_one_is_busy() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("i");
    stage.prepare(&scene, &ok, "update").await;
    let instance = Target::instance(&scene, &ok);
    let update =
        |size: u32| instance.ask(&stage, Method::PATCH, Mode::Async, json!({ "size": size }));
    let operation = update(2).await.operation();
    assert_eq!(update(2).await.operation(), operation);
    scene.started("update", 1).await;
    assert_eq!(update(2).await.operation(), operation);
    assert!(is_busy(&update(3).await));
    let binding = instance.binding();
    let bind = binding
        .ask(&stage, Method::PUT, Mode::Async, json!({}))
        .await;
    assert!(is_busy(&bind), "{bind:?}");
    scene.open_gate();
    assert_eq!(instance.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(update(2).await.status, 200, "it has happened already");
    assert_eq!(scene.starts("update"), 1);
}

/// What a DELETE can find: each is asked to be deleted, in both ways, and is gone.
#[tokio::test]
async fn a_delete_crosses_a_create_wherever_that_stands() {
    // One slot, so that a job can be made to wait.
    let stage = Stage::new("[jobs]\nconcurrency = 1\nper_service = 1").await;
    let ok = stage.offer("ok").await;
    let fails = stage.offer("exit1").await;
    for mode in MODES {
        let name = |what: &str| format!("{what}-{mode:?}");
        // Before it: nobody is there, and the create that follows is untouched.
        let scene = stage.scene(&name("first"));
        scene.open_gate();
        let instance = Target::instance(&scene, &ok);
        assert_eq!(instance.delete(&stage, mode).await.status, 410);
        let made = instance
            .ask(
                &stage,
                Method::PUT,
                Mode::Sync,
                scene.parameters("provision"),
            )
            .await;
        assert_eq!(made.status, 201, "{made:?}");

        // While it waits for a slot, which another one holds.
        let holder = stage.scene(&name("holder"));
        let held = stage.order(&holder, &ok, "provision").await;
        holder.started("provision", 1).await;
        let scene = stage.scene(&name("queued"));
        let instance = Target::instance(&scene, &ok);
        let create = stage.order(&scene, &ok, "provision").await;
        let (deleted, ()) = tokio::join!(instance.delete(&stage, mode), async {
            // Superseded at once, before anybody runs: it never will.
            let (state, why) = instance.end(&stage, &create.job).await;
            assert_eq!(state, "failed", "{why}");
            assert!(why.contains("superseded by delete"), "{why}");
            holder.open_gate();
        });
        assert!(matches!(deleted.status, 200 | 202), "{deleted:?}");
        instance.settled(&stage, &deleted).await;
        stage.succeeded(&held).await;
        instance.is_gone(&stage).await;
        assert_eq!(
            (scene.starts("provision"), scene.starts("deprovision")),
            (0, 1)
        );

        // While it runs: its run is ended first.
        let scene = stage.scene(&name("running"));
        let instance = Target::instance(&scene, &ok);
        let create = stage.order(&scene, &ok, "provision").await;
        scene.started("provision", 1).await;
        let deleted = instance.delete(&stage, mode).await;
        assert!(matches!(deleted.status, 200 | 202), "{deleted:?}");
        instance.settled(&stage, &deleted).await;
        assert_eq!(instance.end(&stage, &create.job).await.0, "failed");
        instance.is_gone(&stage).await;
        assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 0));
        assert_eq!(scene.starts("deprovision"), 1);

        // After it, whether it went well or not.
        for (what, of) in [("ready", &ok), ("failed", &fails)] {
            let scene = stage.scene(&name(what));
            scene.open_gate();
            let instance = Target::instance(&scene, of);
            let create = stage.order(&scene, of, "provision").await;
            instance.end(&stage, &create.job).await;
            let deleted = instance.delete(&stage, mode).await;
            assert!(matches!(deleted.status, 200 | 202), "{deleted:?}");
            instance.settled(&stage, &deleted).await;
            instance.is_gone(&stage).await;
            assert_eq!(scene.starts("deprovision"), 1);
        }
    }
}

#[tokio::test]
async fn a_create_that_comes_during_a_delete_waits_and_one_after_it_is_a_new_life() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("i");
    stage.prepare(&scene, &ok, "deprovision").await;
    let instance = Target::instance(&scene, &ok);
    let same = || {
        instance.ask(
            &stage,
            Method::PUT,
            Mode::Async,
            scene.parameters("deprovision"),
        )
    };
    let deleted = instance.delete(&stage, Mode::Async).await.operation();
    for answer in [
        same().await,
        instance
            .ask(&stage, Method::PUT, Mode::Async, json!({}))
            .await,
        instance
            .ask(&stage, Method::PATCH, Mode::Async, json!({ "size": 9 }))
            .await,
        instance
            .binding()
            .ask(&stage, Method::PUT, Mode::Async, json!({}))
            .await,
    ] {
        assert!(is_busy(&answer), "{answer:?}");
    }
    scene.open_gate();
    assert_eq!(instance.end(&stage, &deleted).await.0, "succeeded");
    let anew = same().await;
    instance.settled(&stage, &anew).await;
    assert_eq!(instance.get(&stage).await.status, 200);
    // The former life is still told of.
    assert_eq!(instance.end(&stage, &deleted).await.0, "succeeded");
    assert_eq!(
        (scene.starts("provision"), scene.starts("deprovision")),
        (2, 1)
    );
}

#[tokio::test]
async fn a_delete_sent_again_is_the_same_operation_until_that_is_final() {
    // A backoff that is long enough to be seen.
    let stage = Stage::new("[recovery]\nbackoff_min = \"1s\"\nbackoff_max = \"1s\"").await;
    let later = stage.offer("later").await;
    let fails = stage.offer("exit1").await;

    // Behind a create that is being stopped, running, in backoff, running again, over.
    let scene = stage.scene("later");
    let instance = Target::instance(&scene, &later);
    stage.provision(&scene, &later, "deprovision").await;
    let operation = instance.delete(&stage, Mode::Async).await.operation();
    assert_eq!(
        instance.delete(&stage, Mode::Async).await.operation(),
        operation
    );
    scene.started("deprovision", 1).await;
    assert_eq!(
        instance.delete(&stage, Mode::Async).await.operation(),
        operation
    );
    let (waited, ()) = tokio::join!(instance.delete(&stage, Mode::Sync), async {
        scene.open_gate();
        stage.broker.job_is(&operation, "backoff").await;
        let again = instance.delete(&stage, Mode::Async).await;
        assert_eq!(again.operation(), operation);
    });
    assert_eq!(
        waited.status, 200,
        "who waits, waits with the first: {waited:?}"
    );
    assert_eq!(scene.starts("deprovision"), 3);
    instance.is_gone(&stage).await;
    assert_eq!(jobs(&stage, "later", "deprovision").await.len(), 1);

    // What has failed is final, and asking again is another operation.
    let scene = stage.scene("fails");
    scene.open_gate();
    let instance = Target::instance(&scene, &fails);
    let create = stage.provision(&scene, &fails, "deprovision").await;
    stage.succeeded(&create).await;
    let mut operations = Vec::new();
    for _ in 0..2 {
        let operation = instance.delete(&stage, Mode::Async).await.operation();
        assert_eq!(instance.end(&stage, &operation).await.0, "failed");
        operations.push(operation);
    }
    assert_ne!(operations[0], operations[1]);
    let failed = instance.delete(&stage, Mode::Sync).await;
    assert_eq!(failed.status, 500, "{failed:?}");
    assert_eq!(scene.starts("deprovision"), 3);
}

#[tokio::test]
async fn an_unbind_during_a_bind_stops_it_and_each_side_is_told() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    for (bind, unbind) in [
        (Mode::Async, Mode::Async),
        (Mode::Async, Mode::Sync),
        (Mode::Sync, Mode::Async),
        (Mode::Sync, Mode::Sync),
    ] {
        let scene = stage.scene(&format!("{bind:?}-{unbind:?}"));
        stage.prepare(&scene, &ok, "bind").await;
        let instance = Target::instance(&scene, &ok);
        let binding = instance.binding();
        let (bound, unbound) =
            tokio::join!(binding.ask(&stage, Method::PUT, bind, json!({})), async {
                scene.started("bind", 1).await;
                let answer = binding.delete(&stage, unbind).await;
                binding.settled(&stage, &answer).await;
                answer
            });
        assert_eq!(unbound.status, if unbind == Mode::Sync { 200 } else { 202 });
        match bind {
            Mode::Async => {
                let (state, why) = binding.end(&stage, &bound.operation()).await;
                assert_eq!(state, "failed", "{why}");
                assert!(why.contains("superseded by delete"), "{why}");
            }
            Mode::Sync => assert_eq!(bound.status, 500, "{bound:?}"),
        }
        // Without a name a poll tells of the latest: the delete.
        let latest = format!("{}/last_operation", binding.path());
        let latest = stage.broker.osb(Method::GET, &latest, None).await;
        assert_eq!(latest.body["state"], "succeeded", "{latest:?}");
        binding.is_gone(&stage).await;
        assert_eq!((scene.starts("bind"), scene.ends("bind")), (1, 0));
        assert_eq!(scene.starts("unbind"), 1);
        // The same name is free again, and the instance is none the worse.
        scene.open_gate();
        let again = binding
            .ask(&stage, Method::PUT, Mode::Sync, json!({}))
            .await;
        assert_eq!(again.status, 201, "{again:?}");
        assert_eq!(instance.get(&stage).await.status, 200);
    }
}

#[tokio::test]
async fn a_delete_during_a_create_is_answered_to_both_however_they_wait() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    for create in MODES {
        for delete in MODES {
            let scene = stage.scene(&format!("{create:?}-{delete:?}"));
            let instance = Target::instance(&scene, &ok);
            let (created, deleted) = tokio::join!(
                instance.ask(&stage, Method::PUT, create, scene.parameters("provision")),
                async {
                    scene.started("provision", 1).await;
                    let answer = instance.delete(&stage, delete).await;
                    instance.settled(&stage, &answer).await;
                    answer
                }
            );
            assert_eq!(deleted.status, if delete == Mode::Sync { 200 } else { 202 });
            match create {
                Mode::Async => {
                    assert_eq!(instance.end(&stage, &created.operation()).await.0, "failed");
                }
                Mode::Sync => assert_eq!(created.status, 500, "{created:?}"),
            }
            instance.is_gone(&stage).await;
            assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 0));
            assert_eq!(scene.starts("deprovision"), 1);
        }
    }
}

#[tokio::test]
async fn a_delete_during_an_update_or_a_bind_takes_everything_along() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    for action in ["update", "bind"] {
        for mode in MODES {
            let scene = stage.scene(&format!("{action}-{mode:?}"));
            stage.prepare(&scene, &ok, action).await;
            let instance = Target::instance(&scene, &ok);
            let order = stage.order(&scene, &ok, action).await;
            scene.started(action, 1).await;
            let deleted = instance.delete(&stage, mode).await;
            instance.settled(&stage, &deleted).await;
            assert!(matches!(deleted.status, 200 | 202), "{deleted:?}");
            assert!(stage.failed(&order).await.contains("superseded by delete"));
            instance.is_gone(&stage).await;
            assert_eq!((scene.starts(action), scene.ends(action)), (1, 0));
            // What was being bound is unbound before the instance goes.
            assert_eq!(scene.starts("unbind"), usize::from(action == "bind"));
            assert_eq!(scene.starts("deprovision"), 1);
            instance.binding().is_gone(&stage).await;
        }
    }
}

#[tokio::test]
async fn what_is_asked_of_an_instance_that_is_still_made_has_to_wait() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("i");
    let instance = Target::instance(&scene, &ok);
    let create = stage.order(&scene, &ok, "provision").await;
    scene.started("provision", 1).await;
    let binding = instance.binding();
    for mode in MODES {
        let patched = instance
            .ask(&stage, Method::PATCH, mode, json!({ "size": 2 }))
            .await;
        let bound = binding.ask(&stage, Method::PUT, mode, json!({})).await;
        for answer in [patched, bound] {
            assert!(is_busy(&answer), "{answer:?}");
        }
        // Nobody has bound it, so there is nothing to unbind.
        assert_eq!(binding.delete(&stage, mode).await.status, 410);
    }
    scene.open_gate();
    stage.succeeded(&create).await;
    assert_eq!((scene.starts("update"), scene.starts("bind")), (0, 0));
}

#[tokio::test]
async fn an_unbind_and_a_delete_that_cross_unbind_once_and_before_the_instance_goes() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    for unbind_first in [true, false] {
        let scene = stage.scene(&format!("unbind-first-{unbind_first}"));
        stage.prepare(&scene, &ok, "unbind").await;
        let instance = Target::instance(&scene, &ok);
        let binding = instance.binding();
        let (unbind, delete) = if unbind_first {
            let unbind = binding.delete(&stage, Mode::Async).await.operation();
            scene.started("unbind", 1).await;
            (
                unbind,
                instance.delete(&stage, Mode::Async).await.operation(),
            )
        } else {
            let delete = instance.delete(&stage, Mode::Async).await.operation();
            scene.started("unbind", 1).await;
            (
                binding.delete(&stage, Mode::Async).await.operation(),
                delete,
            )
        };
        // Both can be asked again, by who polls and by who waits.
        assert_eq!(
            binding.delete(&stage, Mode::Async).await.operation(),
            unbind
        );
        assert_eq!(
            instance.delete(&stage, Mode::Async).await.operation(),
            delete
        );
        let (unbound, deleted, ()) = tokio::join!(
            binding.delete(&stage, Mode::Sync),
            instance.delete(&stage, Mode::Sync),
            async {
                assert_eq!(scene.starts("deprovision"), 0, "it waits for the unbind");
                scene.open_gate();
            }
        );
        // Who asks after the end is told that it has gone.
        assert!(matches!(unbound.status, 200 | 410), "{unbound:?}");
        assert!(matches!(deleted.status, 200 | 410), "{deleted:?}");
        assert_eq!(binding.end(&stage, &unbind).await.0, "succeeded");
        assert_eq!(instance.end(&stage, &delete).await.0, "succeeded");
        assert_eq!(
            (scene.starts("unbind"), scene.starts("deprovision")),
            (1, 1)
        );
        instance.is_gone(&stage).await;
    }
}
