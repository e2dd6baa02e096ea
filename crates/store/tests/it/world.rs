//! A store with a clock and ids of its own: short words for what tests do over and over.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{DisruptionCause, End, FailReason};
use evenkeel_core::ids::{
    AttemptId, BindingId, BootId, BundleDigest, InstanceId, JobId, PlanId, Platform, RunRootId,
    ServiceId,
};
use evenkeel_core::job::Job;
use evenkeel_core::policy::Chance;
use evenkeel_core::request::{
    BindingInput, InstanceInput, JobBody, Named, Object, Outputs, PlanInput,
};
use evenkeel_core::time::Timestamp;
use evenkeel_store::seam::{
    CascadeUnbind, ClaimDue, Claimed, Fence, Finish, NewBoot, Owned, Store, Submission, Submitted,
};
use serde_json::json;
use uuid::Uuid;

/// A word that must never be found where nothing is sealed.
pub(crate) const SECRET: &str = "correct-horse-battery-staple";

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) boot: BootId,
    pub(crate) run_root: RunRootId,
    ids: AtomicU64,
    clock: AtomicI64,
}

impl World {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self::starting_at(store, 0)
    }

    /// Ids begin after `first`, for a second world over the same rows.
    pub(crate) fn starting_at(store: Arc<dyn Store>, first: u64) -> Self {
        Self {
            store,
            boot: BootId(Uuid::from_u128(0xB007 + u128::from(first))),
            run_root: RunRootId(Uuid::from_u128(0x4007)),
            ids: AtomicU64::new(first),
            clock: AtomicI64::new(1_000_000),
        }
    }

    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.ids.fetch_add(1, Ordering::SeqCst)) + 1)
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.clock.load(Ordering::SeqCst))
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, span: Duration) {
        let millis = i64::try_from(span.as_millis()).unwrap();
        self.clock.fetch_add(millis, Ordering::SeqCst);
    }

    pub(crate) fn submission(&self, action: Action, instance: &str) -> Submission {
        self.pass(Duration::from_millis(1));
        let parameters = object(json!({ "password": SECRET, "size": 1 }));
        let body = JobBody {
            action,
            service: Named {
                id: ServiceId::new("service").unwrap(),
                name: "service".into(),
            },
            plan: PlanInput {
                id: PlanId::new("small").unwrap(),
                name: "small".into(),
                values: Object::new(),
                maintenance_version: Some("1.0.0".into()),
            },
            instance: InstanceInput {
                id: instance.into(),
                parameters,
                context: object(json!({ "platform": "test" })),
                organization_guid: Some("org".into()),
                space_guid: Some("space".into()),
            },
            binding: None,
            previous: None,
            identity: None,
        };
        Submission {
            job: JobId(self.uuid()),
            action,
            platform: Platform::new("cf").unwrap(),
            instance: InstanceId::new(instance).unwrap(),
            new_instance_uid: evenkeel_core::ids::InstanceUid(self.uuid()),
            binding: None,
            service: ServiceId::new("service").unwrap(),
            plan: PlanId::new("small").unwrap(),
            bundle: BundleDigest([7; 32]),
            digest: self.store.digest(format!("{action} {instance}").as_bytes()),
            base: None,
            becomes: None,
            isolated: false,
            body,
            retries: 1,
            at: self.now(),
            deadline_at: self.now().plus(Duration::from_secs(86_400)),
            cascade: Vec::new(),
            cascade_without_jobs: false,
        }
    }

    /// The same request once more, as a job of its own.
    pub(crate) fn again(&self, submission: &Submission) -> Submission {
        Submission {
            job: JobId(self.uuid()),
            new_instance_uid: evenkeel_core::ids::InstanceUid(self.uuid()),
            at: self.now(),
            ..submission.clone()
        }
    }

    pub(crate) fn provision(&self, instance: &str) -> Submission {
        self.submission(Action::Provision, instance)
    }

    pub(crate) fn of_service(&self, service: &str, instance: &str) -> Submission {
        let mut submission = self.provision(instance);
        submission.service = ServiceId::new(service).unwrap();
        submission.body.service.id = submission.service.clone();
        submission
    }

    pub(crate) fn binding(&self, action: Action, instance: &str, binding: &str) -> Submission {
        let mut submission = self.submission(action, instance);
        submission.binding = Some((
            BindingId::new(binding).unwrap(),
            evenkeel_core::ids::BindingUid(self.uuid()),
        ));
        submission.digest = self
            .store
            .digest(format!("{action} {instance} {binding}").as_bytes());
        submission.body.binding = Some(BindingInput {
            id: binding.into(),
            parameters: object(json!({ "token": SECRET })),
            bind_resource: object(json!({ "app": "app" })),
            context: Object::new(),
            predecessor: None,
        });
        submission
    }

    pub(crate) fn bind(&self, instance: &str, binding: &str) -> Submission {
        self.binding(Action::Bind, instance, binding)
    }

    pub(crate) fn unbind(&self, instance: &str, binding: &str) -> Submission {
        self.binding(Action::Unbind, instance, binding)
    }

    pub(crate) fn deprovision(&self, instance: &str, bindings: &[&str]) -> Submission {
        let mut submission = self.submission(Action::Deprovision, instance);
        submission.cascade = bindings
            .iter()
            .map(|binding| {
                let unbind = self.unbind(instance, binding);
                CascadeUnbind {
                    job: unbind.job,
                    binding: BindingId::new(*binding).unwrap(),
                    body: unbind.body,
                    retries: 0,
                }
            })
            .collect();
        submission
    }

    pub(crate) async fn submit(&self, submission: &Submission) -> Submitted {
        self.store.submit(submission.clone()).await.unwrap()
    }

    /// Submits what has to be accepted.
    pub(crate) async fn accept(&self, submission: &Submission) -> Job {
        let submitted = self.submit(submission).await;
        let Submitted::Accepted { job, .. } = submitted else {
            panic!("not accepted: {submitted:?}")
        };
        *job
    }

    pub(crate) fn wish(&self, slots: usize) -> ClaimDue {
        ClaimDue {
            boot: self.boot,
            run_root: self.run_root,
            at: self.now(),
            attempts: (0..slots).map(|_| AttemptId(self.uuid())).collect(),
            per_service: 100,
            solo: false,
        }
    }

    pub(crate) async fn claim(&self, slots: usize) -> Vec<Claimed> {
        self.store.claim_due(self.wish(slots)).await.unwrap()
    }

    /// Claims the one job that is due.
    pub(crate) async fn claim_one(&self) -> Claimed {
        let mut claimed = self.claim(2).await;
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        claimed.remove(0)
    }

    pub(crate) fn finish(&self, end: End) -> Finish {
        let outputs = (end == End::Succeeded).then(|| Outputs {
            credentials: Some(object(json!({ "password": SECRET }))),
            dashboard_url: Some("https://dashboard.example".into()),
            data: Some(json!({ "private": SECRET })),
            ..Outputs::default()
        });
        Finish {
            by: self.boot,
            end,
            ran: Duration::from_secs(1),
            outputs,
            progress: Some("done".into()),
            usage: (Some(1 << 20), Some(10)),
            started: (None, None),
            forensics: None,
            at: self.now(),
            chance: Chance(0),
        }
    }

    pub(crate) async fn end(&self, fence: Fence, end: End) -> Job {
        let finish = self.finish(end);
        mine(self.store.finish_attempt(fence, finish).await.unwrap())
    }

    /// Submits, claims and ends one job while nothing else is due.
    pub(crate) async fn run(&self, submission: &Submission, end: End) -> Job {
        self.accept(submission).await;
        let claimed = self.claim_one().await;
        assert_eq!(claimed.job.id, submission.job);
        self.end(claimed.fence, end).await
    }

    /// An instance that is ready.
    pub(crate) async fn ready(&self, instance: &str) {
        self.run(&self.provision(instance), End::Succeeded).await;
    }

    pub(crate) async fn job(&self, id: JobId) -> Job {
        self.store.job(id).await.unwrap().expect("a job").job
    }

    pub(crate) async fn status(&self, instance: &str) -> evenkeel_core::instance::Status {
        let id = InstanceId::new(instance).unwrap();
        self.store
            .instance(&id)
            .await
            .unwrap()
            .expect("an instance")
            .status
    }

    pub(crate) async fn binding_status(
        &self,
        instance: &str,
        binding: &str,
    ) -> evenkeel_core::instance::Status {
        let instance = InstanceId::new(instance).unwrap();
        let binding = BindingId::new(binding).unwrap();
        let found = self.store.binding(&instance, &binding).await.unwrap();
        found.expect("a binding").status
    }

    pub(crate) fn new_boot(&self, id: BootId) -> NewBoot {
        NewBoot {
            id,
            run_root: self.run_root,
            at: self.now(),
            pid: 42,
            host_boot: "host".into(),
            version: "0.1.0".into(),
        }
    }
}

pub(crate) fn mine<T>(owned: Owned<T>) -> T {
    match owned {
        Owned::Mine(value) => value,
        Owned::Lost => panic!("no longer the owner"),
    }
}

pub(crate) fn object(value: serde_json::Value) -> Object {
    let serde_json::Value::Object(object) = value else {
        panic!("not an object: {value}")
    };
    object
}

pub(crate) fn failed() -> End {
    End::Failed {
        reason: FailReason::ExitCode { code: 1 },
        message: Some("no".into()),
    }
}

pub(crate) fn crashed() -> End {
    End::Crashed {
        evidence: Some(evenkeel_core::attempt::Evidence::OutOfMemory),
    }
}

pub(crate) fn disrupted() -> End {
    End::Disrupted {
        cause: DisruptionCause::Stopped,
    }
}

/// Long enough for any backoff.
pub(crate) const LATER: Duration = Duration::from_secs(601);
