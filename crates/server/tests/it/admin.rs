//! The admin API: what an operator sees and does.

use evenkeel_core::action::Action;
use evenkeel_server::admin::types::{
    About, Acted, CatalogReport, ErrorAnswer, ErrorKind, Explanation, JobDetail, JobList, JobLog,
    JobState, Outcome, Ready, Status,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::broker::{BASIC, Broker, Call, bind, bundle, provision};
use crate::runs::PASSWORD;

const INSTANCE: &str = "/v2/service_instances/i";

async fn get<T: DeserializeOwned>(broker: &Broker, path: &str) -> T {
    let answer = broker.ask(Call::admin("GET", path)).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_value(answer.body).unwrap()
}

async fn post(broker: &Broker, path: &str) -> (u16, Result<Acted, ErrorKind>) {
    let answer = broker.ask(Call::admin("POST", path)).await;
    let acted = serde_json::from_value(answer.body.clone()).map_err(|_| {
        serde_json::from_value::<ErrorAnswer>(answer.body)
            .unwrap()
            .error
    });
    (answer.status, acted)
}

#[tokio::test]
async fn only_the_token_opens_the_admin_api_and_health_needs_none() {
    let broker = Broker::start().await;
    for path in [
        "/admin/v1/status",
        "/admin/v1/jobs",
        "/admin/v1/nothing",
        "/",
        "/metrics",
    ] {
        for call in [
            Call::admin("GET", path).without("authorization"),
            Call::admin("GET", path).header("authorization", "Bearer wrong"),
            Call::admin("GET", path).header("authorization", BASIC),
        ] {
            let answer = broker.ask(call).await;
            assert_eq!(answer.status, 401, "{path}");
            assert!(answer.header("www-authenticate").starts_with("Bearer "));
        }
    }
    assert_eq!(
        broker
            .ask(Call::admin("GET", "/admin/v1/nothing"))
            .await
            .status,
        404
    );
    for path in ["/livez", "/readyz"] {
        let answer = broker
            .ask(Call::admin("GET", path).without("authorization"))
            .await;
        assert_eq!(answer.status, 200, "{path}");
    }
}

#[tokio::test]
async fn jobs_are_listed_page_by_page_newest_first_and_by_what_is_asked_for() {
    let broker = Broker::start().await;
    for n in 0..5 {
        assert_eq!(
            broker.provision(&format!("i{n}"), json!({})).await.status,
            201
        );
    }
    assert_eq!(
        broker
            .provision("bad", json!({"provision": "fail"}))
            .await
            .status,
        500
    );
    let all: JobList = get(&broker, "/admin/v1/jobs").await;
    let names: Vec<_> = all.jobs.iter().map(|job| job.instance.as_str()).collect();
    assert_eq!(names, ["bad", "i4", "i3", "i2", "i1", "i0"]);
    assert_eq!(all.next, None);
    let first: JobList = get(&broker, "/admin/v1/jobs?limit=3").await;
    assert_eq!(first.jobs, all.jobs[..3]);
    let rest: JobList = get(
        &broker,
        &format!("/admin/v1/jobs?limit=3&before={}", first.next.unwrap()),
    )
    .await;
    assert_eq!((rest.jobs.as_slice(), rest.next), (&all.jobs[3..], None));
    let failed: JobList = get(&broker, "/admin/v1/jobs?state=failed,quarantined").await;
    assert_eq!(failed.jobs, all.jobs[..1]);
    let one: JobList = get(&broker, "/admin/v1/jobs?instance=i2&service=db").await;
    assert_eq!(one.jobs, all.jobs[3..4]);
    assert_eq!(one.jobs[0].service_name.as_deref(), Some("db"));
    let answer = broker
        .ask(Call::admin("GET", "/admin/v1/jobs?state=done"))
        .await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn i16_a_job_is_shown_with_its_history_and_without_a_secret() {
    let broker = Broker::start().await;
    let secret = json!({"admin_password": "parameter-secret"});
    assert_eq!(broker.provision("i", secret.clone()).await.status, 201);
    assert_eq!(broker.bind("i", "b", secret).await.status, 201);
    let list: JobList = get(&broker, "/admin/v1/jobs").await;
    let job = &list.jobs[0];
    assert_eq!((job.action, job.state), (Action::Bind, JobState::Succeeded));
    assert_eq!(job.binding.as_ref().unwrap().as_str(), "b");
    let detail: JobDetail = get(&broker, &format!("/admin/v1/jobs/{}", job.id)).await;
    assert_eq!(detail.summary, *job);
    assert_eq!(detail.history.len(), 1);
    let attempt = &detail.history[0];
    assert_eq!(
        (attempt.ordinal, attempt.end.as_deref()),
        (1, Some("succeeded"))
    );
    assert_eq!(attempt.peak_memory_bytes, Some(4096));
    assert!(attempt.claimed_at >= job.created_at && attempt.ended_at.is_some());
    assert!(
        detail
            .audit
            .iter()
            .any(|line| line.actor == "platform:platform"),
        "{:?}",
        detail.audit
    );
    for path in [
        "",
        "?instance=i",
        &format!("/{}", job.id),
        &format!("/{}/explanation", job.id),
    ] {
        let answer = broker
            .ask(Call::admin("GET", &format!("/admin/v1/jobs{path}")))
            .await;
        let text = answer.body.to_string();
        for secret in [PASSWORD, "parameter-secret", "admin_password"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[tokio::test]
async fn a_jobs_story_is_told_with_its_end_its_log_and_what_can_be_done() {
    let broker = Broker::start().await;
    let answer = broker.provision("bad", json!({"provision": "fail"})).await;
    assert_eq!(answer.status, 500);
    let list: JobList = get(&broker, "/admin/v1/jobs").await;
    let id = list.jobs[0].id;
    let path = format!("/admin/v1/jobs/{id}/explanation");
    let told: Explanation = get(&broker, &path).await;
    let detail: JobDetail = get(&broker, &format!("/admin/v1/jobs/{id}")).await;
    assert_eq!(told.job, detail);
    assert_eq!(
        told.headline,
        "The provision of instance bad (db) failed after 1 attempt."
    );
    let attempts: Vec<_> = told.events.iter().map(|event| event.attempt).collect();
    assert_eq!(attempts, [None, Some(1), None]);
    assert!(told.events.is_sorted_by_key(|event| event.at));
    let log = format!("Its log is there: `evenkeel jobs logs {id} --attempt 1`.");
    assert_eq!(told.events[1].details.last(), Some(&log));
    assert!(told.told_at >= told.events[2].at);
    let commands: Vec<_> = told.advice.iter().map(|one| &one.command).collect();
    assert_eq!(
        commands,
        [
            &format!("evenkeel jobs logs {id}"),
            &format!("evenkeel jobs retry {id}")
        ]
    );
    assert_eq!(told.log.unwrap().ordinal, 1);
    assert!(told.beside.is_empty() && told.broker_deaths.is_empty());
    let nobody = "/admin/v1/jobs/018f6f2e-0000-7000-8000-000000000001/explanation";
    assert_eq!(broker.ask(Call::admin("GET", nobody)).await.status, 404);
}

#[tokio::test]
async fn the_end_of_a_log_is_read_as_far_as_it_is_asked_for() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let list: JobList = get(&broker, "/admin/v1/jobs").await;
    let path = format!("/admin/v1/jobs/{}/log", list.jobs[0].id);
    let log: JobLog = get(&broker, &format!("{path}?attempt=1&bytes=7")).await;
    assert_eq!(
        (log.stdout.text.as_str(), log.stdout.cut),
        ("xxxxxxx", true)
    );
    assert_eq!(
        (log.stderr.text.as_str(), log.ordinal),
        ("not UTF-8: \u{FFFD}", 1)
    );
    let log: JobLog = get(&broker, &path).await;
    assert_eq!(log.stdout.text.len(), 64 * 1024);
    let answer = broker
        .ask(Call::admin("GET", &format!("{path}?attempt=2")))
        .await;
    assert_eq!(answer.status, 404);
    let answer = broker
        .ask(Call::admin("GET", &format!("{path}?bytes=2000000")))
        .await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn an_operator_cancels_what_runs_and_retries_what_failed() {
    let broker = Broker::start().await;
    let put = Call::new("PUT", INSTANCE)
        .json(&provision(json!({"provision": "hold"})))
        .later();
    let job = broker.ask(put).await.text("operation");
    let path = format!("/admin/v1/jobs/{job}");
    crate::broker::until("the job runs", async || {
        let detail: JobDetail = get(&broker, &path).await;
        detail
            .history
            .iter()
            .any(|attempt| attempt.started_at.is_some())
    })
    .await;
    let (status, acted) = post(&broker, &format!("{path}/cancel")).await;
    assert_eq!((status, acted.unwrap().outcome), (202, Outcome::Asked));
    let answer = broker.polled(&format!("{INSTANCE}/last_operation")).await;
    assert_eq!(answer.text("state"), "failed");
    let detail: JobDetail = get(&broker, &path).await;
    assert_eq!(detail.summary.state, JobState::Cancelled);
    assert!(detail.summary.reason.unwrap().contains("operator"));
    let (status, acted) = post(&broker, &format!("{path}/cancel")).await;
    assert_eq!((status, acted), (409, Err(ErrorKind::NotApplicable)));
    let (status, acted) = post(&broker, &format!("{path}/discard")).await;
    assert_eq!((status, acted), (409, Err(ErrorKind::NotApplicable)));
    let (status, acted) = post(&broker, &format!("{path}/clear")).await;
    let acted = acted.unwrap();
    assert_eq!((status, acted.outcome), (200, Outcome::Already));
    assert!(
        acted.description.ends_with(" is not a suspect"),
        "{acted:?}"
    );

    let (status, acted) = post(&broker, &format!("{path}/retry")).await;
    let acted = acted.unwrap();
    assert_eq!((status, acted.outcome), (201, Outcome::Queued));
    assert_ne!(acted.job.to_string(), job);
    let (status, again) = post(&broker, &format!("{path}/retry")).await;
    assert_eq!((status, again), (409, Err(ErrorKind::Busy)));
    crate::broker::until("the retry is held", async || {
        broker.runs.release();
        let new: JobDetail = get(&broker, &format!("/admin/v1/jobs/{}", acted.job)).await;
        assert_eq!(new.retry_of.map(|id| id.to_string()), Some(job.clone()));
        new.summary.state == JobState::Succeeded
    })
    .await;
    assert_eq!(broker.ask(Call::new("GET", INSTANCE)).await.status, 200);
}

#[tokio::test]
async fn jobs_that_nobody_knows_are_not_found() {
    let broker = Broker::start().await;
    let unknown = "018f6f2e-0000-7000-8000-000000000001";
    for id in [unknown, "not-a-uuid"] {
        for what in ["", "/log"] {
            let call = Call::admin("GET", &format!("/admin/v1/jobs/{id}{what}"));
            assert_eq!(broker.ask(call).await.status, 404, "{id}{what}");
        }
        for what in ["retry", "discard", "cancel", "clear"] {
            let (status, acted) = post(&broker, &format!("/admin/v1/jobs/{id}/{what}")).await;
            assert_eq!(
                (status, acted),
                (404, Err(ErrorKind::NotFound)),
                "{id}/{what}"
            );
        }
    }
}

#[tokio::test]
async fn the_standing_of_the_broker_is_told_with_its_reasons() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let hold = bind(json!({"bind": "hold"}));
    let path = format!("{INSTANCE}/service_bindings/b");
    assert_eq!(
        broker
            .ask(Call::new("PUT", &path).json(&hold).later())
            .await
            .status,
        202
    );
    let status: Status = get(&broker, "/admin/v1/status").await;
    assert_eq!(
        (status.version.as_str(), status.services, status.concurrency),
        ("1.2.3", 4, 8)
    );
    let counts = status.counts.unwrap();
    assert_eq!(
        (
            counts.succeeded,
            counts.queued + counts.running,
            counts.instances
        ),
        (1, 1, 1)
    );
    let ready: Ready = get(&broker, "/readyz").await;
    assert!(ready.ready && ready.reasons.is_empty(), "{ready:?}");
    assert_eq!(ready.notes, ["runs go on at shutdown"]);
    assert_eq!(status.ready, ready);
    let catalog: CatalogReport = get(&broker, "/admin/v1/catalog").await;
    assert_eq!(catalog.services.len(), 4);
    assert_eq!(catalog.services[3].plans[0].name, "only");
    let answer = broker.ask(Call::admin("POST", "/admin/v1/reload")).await;
    let again: CatalogReport = serde_json::from_value(answer.body).unwrap();
    assert_eq!(again.services, catalog.services);
    assert!(again.loaded_at >= catalog.loaded_at);
}

#[tokio::test]
async fn what_is_wrong_with_a_bundle_is_for_operators_and_its_count_for_anybody() {
    let broker = Broker::start().await;
    let folder = broker.dir.path().join("bundles/wrong");
    bundle(&folder, "bundle: 1\nsurprise: true\n");
    let answer = broker.ask(Call::admin("POST", "/admin/v1/reload")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let call = Call::admin("GET", "/readyz").without("authorization");
    let answer = broker.ask(call).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let text = answer.body.to_string();
    for internal in ["wrong", "surprise", "bundle.yml", "/"] {
        assert!(!text.contains(internal), "{internal}: {text}");
    }
    let ready: Ready = serde_json::from_value(answer.body).unwrap();
    let status: Status = get(&broker, "/admin/v1/status").await;
    let [counted] = ready.reasons.as_slice() else {
        panic!("{ready:?}");
    };
    assert_eq!((counted.about, counted.blocking), (About::Catalog, false));
    let named = &status.ready.reasons;
    assert!(
        counted.message.starts_with(&named.len().to_string()),
        "{counted:?}"
    );
    let folder = folder.display().to_string();
    assert!(named.iter().all(|reason| reason.message.contains(&folder)));
    assert!(
        named
            .iter()
            .any(|reason| reason.message.contains("surprise"))
    );
}

#[tokio::test]
async fn a_broker_that_is_ending_is_not_ready_and_says_why() {
    let Broker { service, admin, .. } = Broker::start().await;
    service.shutdown().await;
    let answer = Call::admin("GET", "/readyz").send(admin.clone()).await;
    let ready: Ready = serde_json::from_value(answer.body).unwrap();
    assert_eq!((answer.status, ready.ready), (503, false));
    assert_eq!(ready.reasons[0].about, About::Draining);
    assert!(ready.reasons[0].blocking && ready.description.contains("ending"));
    assert_eq!(Call::admin("GET", "/livez").send(admin).await.status, 200);
}
