//! Random histories: after each call the store holds what the pure functions say, and nothing
//! that the schema refuses was ever tried.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::admit::{Ask, Verdict, admit};
use evenkeel_core::attempt::{End, ExposureCause};
use evenkeel_core::budget::Budget;
use evenkeel_core::ids::{BindingId, BootId, InstanceId, JobId};
use evenkeel_core::instance::{Status, on_submit, settle};
use evenkeel_core::job::{Job, StopReason, Target};
use evenkeel_core::recovery::Exposure;
use evenkeel_core::transition::{Effect, Event, transition};
use evenkeel_store::seam::{
    Adoption, Exposing, Fence, Owned, Retried, Stopped, Submission, Submitted,
};
use proptest::prelude::*;
use uuid::Uuid;

use crate::world::{World, crashed, disrupted, failed};

#[derive(Clone, Debug)]
enum Call {
    Submit(Action),
    Claim { solo: bool },
    Finish(usize),
    StaleFinish,
    Adopt,
    Expose { again: bool, exclusive: bool },
    Stop(usize, bool),
    Expire(u64),
    Clear(usize),
    Retry(usize),
    SetAside(usize),
    Pass(u64),
}

fn call() -> impl Strategy<Value = Call> {
    let action = prop::sample::select(Action::ALL.to_vec());
    let expose = (any::<bool>(), any::<bool>())
        .prop_map(|(again, exclusive)| Call::Expose { again, exclusive });
    prop_oneof![
        12 => action.prop_map(Call::Submit),
        16 => any::<bool>().prop_map(|solo| Call::Claim { solo }),
        10 => (0..8_usize).prop_map(Call::Finish),
        6 => Just(Call::StaleFinish),
        8 => Just(Call::Adopt),
        8 => expose,
        2 => (any::<usize>(), any::<bool>()).prop_map(|(at, operator)| Call::Stop(at, operator)),
        1 => (0..200_000_u64).prop_map(Call::Expire),
        2 => any::<usize>().prop_map(Call::Clear),
        4 => any::<usize>().prop_map(Call::Retry),
        1 => any::<usize>().prop_map(Call::SetAside),
        12 => (1..700_u64).prop_map(Call::Pass),
    ]
}

fn end(nth: usize) -> End {
    match nth {
        0 | 1 => End::Succeeded,
        2 => failed(),
        3 => crashed(),
        4 => End::TryLater,
        5 => End::Exposed {
            cause: ExposureCause::VanishedWithBroker,
        },
        6 => End::Exposed {
            cause: ExposureCause::NamedByBlackBox,
        },
        _ => disrupted(),
    }
}

/// The account that a job is charged to.
type Account = (Uuid, Option<BindingId>, Action);

struct Model {
    world: World,
    jobs: BTreeMap<JobId, Job>,
    budgets: BTreeMap<Account, Budget>,
    /// Where each life stands, by its uid.
    statuses: BTreeMap<Uuid, Status>,
    owned: Option<Fence>,
    stale: Option<Fence>,
    heirs: u128,
}

fn account(target: &Target, action: Action) -> Account {
    let binding = target.binding.as_ref().map(|binding| binding.id.clone());
    (target.instance.0, binding, action)
}

fn life(job: &Job) -> Uuid {
    let binding = job.target.binding.as_ref();
    binding.map_or(job.target.instance.0, |binding| binding.uid.0)
}

impl Model {
    fn new(world: World) -> Self {
        Self {
            world,
            jobs: BTreeMap::new(),
            budgets: BTreeMap::new(),
            statuses: BTreeMap::new(),
            owned: None,
            stale: None,
            heirs: 0,
        }
    }

    fn budget(&self, job: &Job) -> Budget {
        let account = account(&job.target, job.action);
        self.budgets.get(&account).cloned().unwrap_or_default()
    }

    fn known(&self, id: JobId) -> Job {
        let mut job = self.jobs[&id].clone();
        job.budget = self.budget(&job);
        job
    }

    fn pick(&self, at: usize) -> Option<JobId> {
        let nth = at.checked_rem(self.jobs.len())?;
        self.jobs.keys().nth(nth).copied()
    }

    /// What the transition function makes of a job.
    fn apply(&mut self, id: JobId, event: Event) -> bool {
        let now = self.world.now();
        let policy = self.world.store.policy();
        let Ok((job, effects)) = transition(self.known(id), event, now, &policy) else {
            return false;
        };
        self.put(job, &effects);
        true
    }

    fn put(&mut self, job: Job, effects: &[Effect]) {
        let account = account(&job.target, job.action);
        self.budgets.insert(account, job.budget.clone());
        self.jobs.insert(job.id, job.clone());
        if effects.contains(&Effect::Settle) {
            self.settle(&job, effects.contains(&Effect::KeepOutputs));
        }
    }

    fn settle(&mut self, job: &Job, made: bool) {
        let Some(settlement) = settle(job.action, &job.state, made) else {
            return;
        };
        if settlement.bindings_gone {
            let instance = job.target.instance;
            let waiting: Vec<JobId> = self
                .jobs
                .values()
                .filter(|other| {
                    other.target.instance == instance
                        && other.target.binding.is_some()
                        && !other.state.is_final()
                })
                .map(|other| other.id)
                .collect();
            for id in waiting {
                let reason = StopReason::Superseded { job: job.id };
                assert!(self.apply(id, Event::Stop { reason }));
            }
            let lives: Vec<Uuid> = self
                .jobs
                .values()
                .filter(|other| other.target.instance == instance && other.target.binding.is_some())
                .map(life)
                .collect();
            for life in lives {
                self.statuses.insert(life, Status::Deleted);
            }
        }
        if let Some(status) = settlement.status.filter(|_| job.superseded_by.is_none()) {
            self.set_status(job, status);
        }
    }

    fn set_status(&mut self, job: &Job, status: Status) {
        let held = self.statuses.entry(life(job)).or_insert(status);
        if *held != Status::Deleted {
            *held = status;
        }
    }

    async fn call(&mut self, call: Call) {
        match call {
            Call::Submit(action) => self.submit(action).await,
            Call::Claim { solo } => self.claim(solo).await,
            Call::Finish(nth) => self.finish(end(nth)).await,
            Call::StaleFinish => self.stale_finish().await,
            Call::Adopt => self.adopt().await,
            Call::Expose { again, exclusive } => self.expose(again, exclusive).await,
            Call::Stop(at, operator) => self.stop(at, operator).await,
            Call::Expire(ahead) => self.expire(ahead).await,
            Call::Clear(at) => self.clear(at).await,
            Call::Retry(at) => self.retry(at).await,
            Call::SetAside(at) => self.set_aside(at).await,
            Call::Pass(seconds) => self.world.pass(Duration::from_secs(seconds)),
        }
        self.compare().await;
    }

    async fn submit(&mut self, action: Action) {
        let w = &self.world;
        let mut order = if action.is_for_binding() {
            w.binding(action, "i", "b")
        } else {
            w.submission(action, "i")
        };
        if action == Action::Deprovision {
            order = Submission {
                cascade_without_jobs: true,
                ..order
            };
        }
        let binding = order.binding.as_ref().map(|(id, _)| id);
        let standing = w.store.standing(&order.instance, binding).await.unwrap();
        let ask = Ask {
            action,
            digest: order.digest,
        };
        let verdict = admit(ask, standing.instance.as_ref(), standing.binding.as_ref());
        match (w.submit(&order).await, verdict) {
            (Submitted::Refused(said), verdict) => assert_eq!(said, verdict),
            (Submitted::Accepted { job, .. }, Verdict::Accept { supersedes, .. }) => {
                for older in supersedes {
                    let reason = StopReason::Superseded { job: job.id };
                    assert!(self.apply(older, Event::Stop { reason }));
                }
                self.accepted(*job);
            }
            (submitted, verdict) => panic!("{submitted:?}, {verdict:?}"),
        }
    }

    fn accepted(&mut self, job: Job) {
        let budget = self.budget(&job);
        assert_eq!(job.budget, budget);
        assert_eq!(
            job.state,
            Job::first_state(&budget, &self.world.store.policy())
        );
        self.jobs.insert(job.id, job.clone());
        if let Some(status) = on_submit(job.action) {
            self.set_status(&job, status);
        }
        if job.state.is_final() {
            self.settle(&job, false);
        }
    }

    async fn claim(&mut self, solo: bool) {
        if self.owned.is_some() {
            return;
        }
        let mut wish = self.world.wish(1);
        wish.solo = solo;
        let before: Vec<JobId> = self.jobs.keys().copied().collect();
        let attempt = wish.attempts[0];
        let claimed = self.world.store.claim_due(wish.clone()).await.unwrap();
        // Those that ended without an attempt, and the one that was claimed.
        for id in before {
            let now = self.world.job(id).await;
            if now.state != self.known(id).state {
                let event = Event::Claim {
                    attempt,
                    boot: wish.boot,
                    run_root: wish.run_root,
                };
                assert!(self.apply(id, event), "{now:?} was not due");
            }
        }
        if let Some(one) = claimed.into_iter().next() {
            assert_eq!(one.job, self.known(one.job.id));
            let alone = one.job.attempt().unwrap().solo.is_some();
            assert!(!alone || solo, "suspects are claimed when asked for");
            self.owned = Some(one.fence);
        }
    }

    async fn finish(&mut self, end: End) {
        let Some(fence) = self.owned.take() else {
            return;
        };
        self.stale = Some(fence);
        let finish = self.world.finish(end.clone());
        let event = Event::End {
            attempt: fence.attempt,
            end,
            ran: finish.ran,
            chance: finish.chance,
        };
        let mine = self.apply(fence.job, event);
        match self
            .world
            .store
            .finish_attempt(fence, finish)
            .await
            .unwrap()
        {
            Owned::Mine(job) => {
                assert!(mine);
                assert_eq!(job, self.known(job.id));
            }
            Owned::Lost => assert!(!mine, "set aside meanwhile"),
        }
    }

    async fn stale_finish(&mut self) {
        if let Some(stale) = self.stale {
            let finish = self.world.finish(End::Succeeded);
            let answer = self.world.store.finish_attempt(stale, finish).await;
            assert_eq!(answer.unwrap(), Owned::Lost);
        }
    }

    async fn expose(&mut self, again: bool, exclusive: bool) {
        let Some(fence) = self.owned else { return };
        self.heirs += u128::from(!again);
        let exposure = Exposure {
            boot: BootId(Uuid::from_u128(0xDEAD_0000 + self.heirs)),
            cause: ExposureCause::NamedByBlackBox,
            named: true,
            exclusive,
        };
        let ran = Duration::from_secs(2);
        let event = Event::Expose {
            attempt: fence.attempt,
            boot: exposure.boot,
            cause: exposure.cause,
            exclusive,
            ran,
        };
        let mine = self.apply(fence.job, event);
        let near = Exposing {
            exposure,
            ran,
            at: self.world.now(),
        };
        match self.world.store.expose(fence, near).await.unwrap() {
            Owned::Mine(job) => {
                assert!(mine);
                assert_eq!(job, self.known(fence.job));
            }
            Owned::Lost => assert!(!mine),
        }
    }

    async fn adopt(&mut self) {
        let Some(from) = self.owned else { return };
        self.heirs += 1;
        let adoption = Adoption {
            from,
            boot: BootId(Uuid::from_u128(0xE1F0_0000 + self.heirs)),
            at: self.world.now(),
        };
        let event = Event::Adopt {
            attempt: from.attempt,
            boot: adoption.boot,
        };
        let mine = self.apply(from.job, event);
        match self.world.store.adopt(adoption).await.unwrap() {
            Owned::Mine(claimed) => {
                assert!(mine);
                assert_eq!(claimed.job, self.known(from.job));
                self.stale = Some(from);
                self.owned = Some(claimed.fence);
            }
            Owned::Lost => assert!(!mine),
        }
    }

    async fn stop(&mut self, at: usize, operator: bool) {
        let Some(id) = self.pick(at) else { return };
        let reason = if operator {
            StopReason::Operator
        } else {
            StopReason::SyncLimit
        };
        let event = Event::Stop {
            reason: reason.clone(),
        };
        let applied = self.apply(id, event);
        let now = self.world.now();
        let stopped = self.world.store.stop_job(id, reason, "operator", now).await;
        match stopped.unwrap() {
            Stopped::Ended(job) => assert!(applied && *job == self.known(id)),
            Stopped::Asked(fence) => assert!(applied && Some(fence) == self.owned),
            Stopped::Final(job) => assert!(!applied && *job == self.known(id)),
            Stopped::Unknown => panic!("{id} is known"),
        }
    }

    async fn expire(&mut self, ahead: u64) {
        self.world.pass(Duration::from_secs(ahead / 10));
        let now = self.world.now();
        let late: Vec<JobId> = self
            .jobs
            .values()
            .filter(|job| !job.state.is_final() && job.stop().is_none() && job.deadline_at <= now)
            .map(|job| job.id)
            .collect();
        let asked = self.world.store.expire(now, 100).await.unwrap();
        assert!(asked.len() <= 1);
        for id in late {
            let reason = StopReason::Deadline;
            assert!(self.apply(id, Event::Stop { reason }));
        }
    }

    async fn clear(&mut self, at: usize) {
        let Some(id) = self.pick(at) else { return };
        let now = self.world.now();
        self.world
            .store
            .clear_suspicion(id, "operator", now)
            .await
            .unwrap();
        if !self.apply(id, Event::Clear) {
            let known = self.known(id);
            let account = account(&known.target, known.action);
            self.budgets.entry(account).or_default().lift_suspicion();
        }
    }

    async fn retry(&mut self, at: usize) {
        let Some(id) = self.pick(at) else { return };
        let new = JobId(self.world.uuid());
        let now = self.world.now();
        let deadline_at = now.plus(Duration::from_secs(3600));
        let retried = self
            .world
            .store
            .retry(id, new, "operator", now, deadline_at);
        if let Retried::Queued(job) = retried.await.unwrap() {
            let old = self.known(id);
            assert!(old.state.is_final());
            assert_eq!(job.retry_of, Some(id));
            let account = account(&old.target, old.action);
            self.budgets.insert(account, Budget::default());
            self.accepted(*job);
        }
    }

    async fn set_aside(&mut self, at: usize) {
        let Some(id) = self.pick(at) else { return };
        let mut job = self.known(id);
        let now = self.world.now();
        let text = id.to_string();
        self.world
            .store
            .set_aside(&text, "spoilt", now)
            .await
            .unwrap();
        if job.state.is_final() {
            return;
        }
        let message = "spoilt".to_owned();
        job.state = evenkeel_core::job::State::Quarantined {
            reason: evenkeel_core::job::QuarantineReason::Unreadable { message },
        };
        self.put(job, &[Effect::Settle]);
        if self.owned.is_some_and(|fence| fence.job == id) {
            self.stale = self.owned.take();
        }
    }

    async fn compare(&self) {
        for id in self.jobs.keys() {
            assert_eq!(self.world.job(*id).await, self.known(*id));
        }
        let store = &self.world.store;
        let (i, b) = (InstanceId::new("i").unwrap(), BindingId::new("b").unwrap());
        if let Some(view) = store.instance(&i).await.unwrap() {
            assert_eq!(Some(&view.status), self.statuses.get(&view.uid.0));
        }
        if let Some(view) = store.binding(&i, &b).await.unwrap() {
            assert_eq!(Some(&view.status), self.statuses.get(&view.uid.0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_holds_what_the_pure_functions_say(
        calls in prop::collection::vec(call(), 20..80)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (_folder, world) = crate::sqlite::fresh();
            let mut model = Model::new(world);
            for call in calls {
                model.call(call).await;
            }
        });
    }
}
