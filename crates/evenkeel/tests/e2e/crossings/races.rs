//! Two requests within a few milliseconds of one another: whoever is first, both answers are true.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::{MODES, Mode, Target, is_busy};
use crate::harness::eventually;
use crate::stage::{Offer, Stage};

/// Both at the same instant, or nearly: whoever is first, both are answered and what they say is
/// so. Every run takes the instance's lock, so that two at once would be seen.
async fn crossed(stage: &Stage, of: &Offer, action: &str, modes: [Mode; 2], pause: i32) {
    let name = format!("{action}-{modes:?}-{pause}").replace(['[', ']', ',', ' '], "");
    let scene = stage.scene(&name);
    scene.open_gate();
    let instance = Target::instance(&scene, of);
    stage.prepare(&scene, of, action).await;
    let (method, target, parameters) = match action {
        "provision" => (Method::PUT, instance.clone(), scene.parameters(action)),
        "update" => (Method::PATCH, instance.clone(), json!({ "size": 2 })),
        _ => (Method::PUT, instance.binding(), json!({})),
    };
    let wait = |ahead: i32| {
        tokio::time::sleep(Duration::from_millis(u64::try_from(ahead.max(0)).unwrap()))
    };
    let (made, deleted) = tokio::join!(
        async {
            wait(-pause).await;
            target.ask(stage, method, modes[0], parameters).await
        },
        async {
            wait(pause).await;
            instance.delete(stage, modes[1]).await
        }
    );
    target.settled(stage, &made).await;
    instance.settled(stage, &deleted).await;
    eventually("every job of the instance is final", || async {
        let path = format!("/admin/v1/jobs?state=queued,running,backoff&instance={name}");
        let list = stage.broker.admin(Method::GET, &path).await.body;
        list["jobs"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    let say = || format!("{name}: {made:?} {deleted:?}\n{}", stage.broker.log());
    if deleted.status == 410 {
        // The delete was there before the create.
        assert_eq!(action, "provision", "{}", say());
        assert!(matches!(made.status, 201 | 202), "{}", say());
        assert_eq!(instance.get(stage).await.status, 200, "{}", say());
        assert_eq!(scene.starts("deprovision"), 0, "{}", say());
    } else {
        assert!(matches!(deleted.status, 200 | 202), "{}", say());
        let superseded = made.status == 500 && modes[0] == Mode::Sync;
        let too_late = made.status == 404 || is_busy(&made);
        let done = matches!(made.status, 200..=202);
        assert!(
            done || superseded || too_late && action != "provision",
            "{}",
            say()
        );
        instance.is_gone(stage).await;
        assert_eq!(scene.starts("deprovision"), 1, "{}", say());
    }
    assert!(scene.starts(action) <= 1, "{}", say());
    assert!(scene.starts("unbind") <= 1, "{}", say());
}

#[tokio::test]
async fn a_create_an_update_or_a_bind_that_crosses_a_delete_loses_nothing_and_leaves_nothing() {
    let stage = Arc::new(Stage::new("[jobs]\nconcurrency = 32\nper_service = 32").await);
    let ok = stage.offer("ok").await;
    for action in ["provision", "update", "bind"] {
        let mut tasks = JoinSet::new();
        for make in MODES {
            for delete in MODES {
                // Negative: the delete is sent first.
                for pause in [-5, 0, 1, 5, 30] {
                    let (stage, ok) = (Arc::clone(&stage), ok.clone());
                    tasks.spawn(async move {
                        crossed(&stage, &ok, action, [make, delete], pause).await;
                    });
                }
            }
        }
        tasks.join_all().await;
    }
}
