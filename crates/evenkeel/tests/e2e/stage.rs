//! A broker with the fault bundle, and a folder per instance in which its actions leave marks,
//! wait at a gate and hold a lock (`tests/bundles/faults/README.md`).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Broker, Setup, eventually, root};

/// The five actions, in an order in which no name is a part of the next one's.
pub(crate) const ACTIONS: [&str; 5] = ["provision", "update", "bind", "unbind", "deprovision"];

/// Service and plan.
pub(crate) type Offer = (String, String);

/// A broker, and what its actions are given.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) broker: Broker,
    folder: TempDir,
}

/// What is asked for an instance or its binding, and the job that does it.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) job: String,
    pub(crate) instance: String,
    pub(crate) binding: Option<&'static str>,
}

impl Stage {
    /// With settings as whole tables; actions may take five minutes.
    pub(crate) async fn new(toml: &str) -> Self {
        Self::with_timeout(toml, "5m").await
    }

    pub(crate) async fn with_timeout(toml: &str, timeout: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("evenkeel-stage-")
            .tempdir()
            .unwrap();
        let bundle = folder.path().join("bundles/faults");
        copy_faults(&bundle, timeout);
        let setup = Setup {
            bundles: vec![bundle],
            ..Setup::default()
        };
        let broker = Broker::start(setup.with_toml(toml)).await;
        Self { broker, folder }
    }

    /// A file of the test's own.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn offer(&self, plan: &str) -> Offer {
        self.broker.ids("faults", plan).await
    }

    /// A new instance's folder.
    pub(crate) fn scene(&self, instance: &str) -> Scene {
        let folder = self.folder.path().join(instance);
        fs::create_dir_all(folder.join("marks")).unwrap();
        Scene {
            instance: instance.to_owned(),
            folder,
        }
    }

    /// Kills the broker as a power cut would, and starts it again with these fault points.
    pub(crate) async fn reboot(&mut self, faults: &str) {
        self.broker.kill();
        self.boot(faults).await;
    }

    /// Starts a broker that is down.
    pub(crate) async fn boot(&mut self, faults: &str) {
        faults.clone_into(&mut self.broker.setup.faults);
        self.broker.boot().await;
    }

    /// Does all that has to be there before `action` can be asked for. Its own run, and nothing
    /// before it, will wait at the scene's gate.
    pub(crate) async fn prepare(&self, scene: &Scene, of: &Offer, action: &str) {
        if action == "provision" {
            return;
        }
        let order = self.provision(scene, of, action).await;
        self.succeeded(&order).await;
        if action == "unbind" {
            let order = self.order(scene, of, "bind").await;
            self.succeeded(&order).await;
        }
    }

    pub(crate) async fn provision(&self, scene: &Scene, of: &Offer, when: &str) -> Order {
        let parameters = scene.parameters(when);
        let answer = self.broker.provision(&scene.instance, of, parameters).await;
        scene.order(answer.operation(), None)
    }

    /// Asks for an action on an instance that is prepared for it.
    pub(crate) async fn order(&self, scene: &Scene, of: &Offer, action: &str) -> Order {
        let id = &scene.instance;
        let (answer, binding) = match action {
            "provision" => return self.provision(scene, of, action).await,
            "update" => {
                let answer = self.broker.update(id, of, json!({"size": 2})).await;
                (answer, None)
            }
            "bind" => (self.broker.bind(id, "b", of, json!({})).await, Some("b")),
            "unbind" => (self.broker.unbind(id, "b", of).await, Some("b")),
            "deprovision" => (self.broker.deprovision(id, of).await, None),
            other => panic!("{other} is no action"),
        };
        scene.order(answer.operation(), binding)
    }

    pub(crate) async fn succeeded(&self, order: &Order) {
        self.broker
            .succeeded(&order.instance, order.binding, &order.job)
            .await;
    }

    /// The last poll of an order that failed: what the platform is told.
    pub(crate) async fn failed(&self, order: &Order) -> String {
        let poll = self
            .broker
            .finished(&order.instance, order.binding, &order.job)
            .await;
        assert_eq!(poll["state"], "failed", "{poll}\n{}", self.broker.log());
        poll["description"].as_str().unwrap().to_owned()
    }

    /// The job's attempts, as the admin API shows them.
    pub(crate) async fn attempts(&self, order: &Order) -> Vec<Value> {
        let job = self.broker.job(&order.job).await;
        job["history"].as_array().unwrap().clone()
    }
}

/// The folder of one instance.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) instance: String,
    folder: PathBuf,
}

impl Scene {
    fn order(&self, job: String, binding: Option<&'static str>) -> Order {
        Order {
            job,
            instance: self.instance.clone(),
            binding,
        }
    }

    /// Parameters with which the fault and the gate are for `when`, and every run takes the lock.
    pub(crate) fn parameters(&self, when: &str) -> Value {
        json!({
            "when": when,
            "marks": self.folder.join("marks"),
            "gate": self.gate(),
            "lock": self.folder.join("lock"),
        })
    }

    pub(crate) fn gate(&self) -> PathBuf {
        self.folder.join("gate")
    }

    /// Lets every run pass from now on.
    pub(crate) fn open_gate(&self) {
        fs::write(self.gate(), "").unwrap();
    }

    fn lines(&self, file: &str, first_word: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("marks").join(file)).unwrap_or_default();
        text.lines()
            .filter(|line| line.split(' ').next() == Some(first_word))
            .map(str::to_owned)
            .collect()
    }

    /// How often an action was started. Two runs at once, of whatever action, fail the test.
    pub(crate) fn starts(&self, action: &str) -> usize {
        let double = self.folder.join("marks/DOUBLE");
        assert!(
            !double.exists(),
            "two runs at once: {:?}",
            fs::read_to_string(double)
        );
        self.lines("starts", action).len()
    }

    /// How often an action came to its good end.
    pub(crate) fn ends(&self, action: &str) -> usize {
        self.lines("ends", action).len()
    }

    /// Waits until an action has been started so often.
    pub(crate) async fn started(&self, action: &str, times: usize) {
        let what = format!("{action} of {} starts for time {times}", self.instance);
        eventually(&what, || {
            std::future::ready((self.starts(action) == times).then_some(()))
        })
        .await;
    }
}

/// The fault bundle with another timeout.
pub(crate) fn copy_faults(to: &Path, timeout: &str) {
    fs::create_dir_all(to).unwrap();
    let from = root().join("tests/bundles/faults");
    for name in ["action", "faults.sh"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let text = fs::read_to_string(from.join("bundle.yml")).unwrap();
    let patient = text.replace("timeout: 20s", &format!("timeout: {timeout}"));
    assert_ne!(text, patient, "the bundle names its timeouts otherwise");
    fs::write(to.join("bundle.yml"), patient).unwrap();
}

/// Waits until a point that holds has been reached.
pub(crate) async fn reached(hold: &Path) {
    let reached = PathBuf::from(format!("{}.reached", hold.display()));
    eventually(&format!("{} is reached", hold.display()), || {
        std::future::ready(reached.exists().then_some(()))
    })
    .await;
}
