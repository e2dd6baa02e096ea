//! Jobs that end their broker, the innocents beside them, and what becomes of both: shared by
//! the tests of the black box and of real deaths.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;

use crate::harness::{Broker, PATIENCE};
use crate::stage::{Offer, Order, Scene, Stage};

/// Two exposures make a suspect, three losses condemn.
pub(crate) const DEATHS: usize = 5;
/// Short waits; brokers that die in a row are what these tests are about.
pub(crate) const QUICK: &str =
    "[recovery]\nbackoff_min = \"1ms\"\nbackoff_max = \"2ms\"\nhold_after = 1000";
pub(crate) const FINAL: [&str; 4] = ["succeeded", "failed", "cancelled", "quarantined"];

/// A job of a broker that may not answer.
pub(crate) async fn try_job(broker: &Broker, id: &str) -> Option<Value> {
    let read = |name: &str| std::fs::read_to_string(broker.data().join(name)).ok();
    let url = format!("{}/admin/v1/jobs/{id}", read("admin-url")?.trim());
    let asked = broker
        .http
        .get(url)
        .bearer_auth(read("admin-token")?.trim());
    asked.send().await.ok()?.json().await.ok()
}

/// Whether the job comes to its end; `false` if the broker dies before.
pub(crate) async fn settles(stage: &mut Stage, order: &Order) -> bool {
    let began = Instant::now();
    loop {
        if !stage.broker.is_alive() {
            return false;
        }
        if let Some(job) = try_job(&stage.broker, &order.job).await
            && FINAL.iter().any(|state| job["state"] == *state)
        {
            return true;
        }
        // The brokers of one warden may take several patiences to die of it.
        assert!(began.elapsed() < 3 * PATIENCE, "{}", stage.broker.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts the broker again and again until it lives on and the job has come to its end; says how
/// often it died, each time in this way.
pub(crate) async fn deaths(
    stage: &mut Stage,
    order: &Order,
    faults: &str,
    so: impl Fn(ExitStatus) -> bool,
) -> usize {
    faults.clone_into(&mut stage.broker.setup.faults);
    let mut deaths = 0;
    loop {
        stage.broker.spawn();
        if settles(stage, order).await {
            stage.broker.ready().await;
            return deaths;
        }
        let status = stage.broker.died().await;
        assert!(so(status), "{status}: {faults}\n{}", stage.broker.log());
        deaths += 1;
        assert!(deaths <= 2 * DEATHS, "it never ends");
    }
}

pub(crate) async fn innocents(stage: &Stage, of: &Offer) -> Vec<(Scene, Order)> {
    let mut all = Vec::new();
    for number in 0..5 {
        let scene = stage.scene(&format!("innocent-{number}"));
        let order = stage.provision(&scene, of, "provision").await;
        all.push((scene, order));
    }
    all
}

pub(crate) fn charges(job: &Value) -> Vec<String> {
    let history = job["history"].as_array().unwrap();
    history
        .iter()
        .map(|attempt| attempt["charge"].as_str().unwrap_or("none").to_owned())
        .collect()
}

/// The poison is an update; everybody else's job is a provision.
pub(crate) async fn convicted(stage: &Stage, poison: &Order, others: &[(Scene, Order)]) {
    let job = stage.broker.job(&poison.job).await;
    assert_eq!(job["state"], "quarantined", "{job}");
    for (scene, order) in others {
        stage.succeeded(order).await;
        assert_eq!(scene.starts("provision"), 1, "{}", scene.instance);
        let charges = charges(&stage.broker.job(&order.job).await);
        assert!(
            !charges.iter().any(|charge| charge == "loss"),
            "{charges:?}"
        );
    }
    // It stays up, and what comes next is served.
    let of = stage.offer("ok").await;
    let next = stage.scene("next");
    next.open_gate();
    let order = stage.provision(&next, &of, "provision").await;
    stage.succeeded(&order).await;
    stage.broker.nothing_left().await;
}

/// An update whose run has started, five innocents beside it, and no broker.
pub(crate) struct Casualty {
    pub(crate) stage: Stage,
    pub(crate) scene: Scene,
    pub(crate) poison: Order,
    others: Vec<(Scene, Order)>,
}

impl Casualty {
    pub(crate) async fn running() -> Self {
        let (mut stage, scene, of) = staged().await;
        let others = innocents(&stage, &of).await;
        let poison = stage.order(&scene, &of, "update").await;
        scene.started("update", 1).await;
        stage.broker.kill();
        Self {
            stage,
            scene,
            poison,
            others,
        }
    }

    /// How often the broker dies of it, each time in this way: [`deaths`].
    pub(crate) async fn kills(&mut self, faults: &str, so: impl Fn(ExitStatus) -> bool) -> usize {
        deaths(&mut self.stage, &self.poison, faults, so).await
    }

    /// As [`Self::kills`], by the brokers of one warden: those that died, oldest first, as the
    /// list of boots tells of them.
    pub(crate) async fn kills_under_a_warden(&mut self, faults: &str) -> Vec<Value> {
        self.stage.broker.setup.warden = true;
        faults.clone_into(&mut self.stage.broker.setup.faults);
        self.stage.broker.spawn();
        let settled = settles(&mut self.stage, &self.poison).await;
        assert!(settled, "the warden died: {}", self.stage.broker.log());
        self.stage.broker.ready().await;
        let list = Method::GET;
        let list = self.stage.broker.admin(list, "/admin/v1/boots?limit=500");
        let list = list.await.body;
        let boots = list["boots"].as_array().unwrap().iter().rev();
        // The broker that the test killed had no warden, and has no record.
        let dead = boots.filter(|boot| !boot["death"].is_null());
        dead.cloned().collect()
    }

    /// It was started once and is set aside, and the innocents, who were still running, end well.
    pub(crate) async fn convicted(self) {
        assert_eq!(self.scene.starts("update"), 1, "its run lived on");
        self.others.iter().for_each(|(other, _)| other.open_gate());
        convicted(&self.stage, &self.poison, &self.others).await;
    }
}

/// A stage with an instance that is there and can be updated.
pub(crate) async fn staged() -> (Stage, Scene, Offer) {
    let stage = Stage::new(QUICK).await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("poison");
    stage.prepare(&scene, &of, "update").await;
    (stage, scene, of)
}

/// How often the audit of a job has this charge.
pub(crate) async fn charged(stage: &Stage, order: &Order, charge: &str) -> usize {
    let job = stage.broker.job(&order.job).await;
    let audit = job["audit"].as_array().unwrap().iter();
    let charges = audit.filter(|line| line["what"] == "charge");
    charges
        .filter(|line| line["detail"].as_str().unwrap().starts_with(charge))
        .count()
}
