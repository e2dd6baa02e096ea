//! Accepting a job: one transaction from the standing to the queue.

use std::collections::BTreeSet;

use evenkeel_core::action::Action;
use evenkeel_core::admit::{ActiveJob, Ask, BindingStanding, InstanceStanding, Verdict, admit};
use evenkeel_core::ids::{JobId, Token};
use evenkeel_core::instance::on_submit;
use evenkeel_core::job::{BindingTarget, Job, State, StopReason, Target};
use evenkeel_core::request::{CODEC_VERSION, JobBody};
use evenkeel_core::time::Timestamp;

use super::db::Db;
use super::rows::job::Desired;
use super::rows::{UNFINISHED, audit, binding, body, budget, instance, job};
use super::settle;
use crate::error::StoreError;
use crate::seam::{Base, CascadeUnbind, Submission, Submitted};

pub(super) fn submit(db: &Db<'_>, ordered: &Submission) -> Result<Submitted, StoreError> {
    // Asked again after an answer that got lost.
    if let Some(known) = job::load(db, ordered.job)? {
        return repeated(db, known);
    }
    let known = instance::standing(db, &ordered.instance)?;
    if let Some(life) = &known {
        if ordered.isolated && life.platform != ordered.platform {
            return Ok(Submitted::Refused(of_another_platform(ordered.action)));
        }
        let now = Base {
            uid: life.standing.uid,
            revision: life.revision,
        };
        if ordered.base.is_some_and(|base| base != now) {
            return Ok(Submitted::Stale);
        }
    }
    let standing = known.map(|life| life.standing);
    let binding = match (&standing, &ordered.binding) {
        (Some(instance), Some((id, _))) => binding::standing(db, &instance.uid.to_string(), id)?,
        _ => None,
    };
    let ask = Ask {
        action: ordered.action,
        digest: ordered.digest,
    };
    match admit(ask, standing.as_ref(), binding.as_ref()) {
        Verdict::Accept {
            supersedes,
            after,
            new_life,
        } => Accepting {
            db,
            ordered,
            stopped: Vec::new(),
        }
        .accept(
            standing.as_ref(),
            binding.as_ref(),
            &supersedes,
            after,
            new_life,
        ),
        refused @ (Verdict::Already
        | Verdict::InProgress(_)
        | Verdict::Conflict
        | Verdict::Busy(..)
        | Verdict::NoInstance
        | Verdict::NoBinding
        | Verdict::Unusable(_)) => Ok(Submitted::Refused(refused)),
    }
}

/// What another platform ordered does not exist for this one, and neither is its id free.
fn of_another_platform(action: Action) -> Verdict {
    match action {
        Action::Provision => Verdict::Conflict,
        Action::Update | Action::Deprovision | Action::Bind => Verdict::NoInstance,
        Action::Unbind => Verdict::NoBinding,
    }
}

fn repeated(db: &Db<'_>, known: Job) -> Result<Submitted, StoreError> {
    let stopped = db.all(
        "SELECT id FROM jobs WHERE state = 'running' AND (superseded_by = ?1 OR superseded_by IN
             (SELECT after_id FROM job_after WHERE job_id = ?1))",
        [known.id.to_string()],
        |row| super::db::parse(&row.get::<_, String>(0)?),
    )?;
    Ok(Submitted::Accepted {
        job: Box::new(known),
        stopped,
    })
}

struct Accepting<'a> {
    db: &'a Db<'a>,
    ordered: &'a Submission,
    stopped: Vec<JobId>,
}

impl Accepting<'_> {
    fn accept(
        mut self,
        standing: Option<&InstanceStanding>,
        known: Option<&BindingStanding>,
        supersedes: &[JobId],
        mut after: Vec<JobId>,
        new_life: bool,
    ) -> Result<Submitted, StoreError> {
        let (db, ordered) = (self.db, self.ordered);
        let deletes = ordered.action == Action::Deprovision;
        if let Some(instance) = standing.filter(|_| deletes)
            && !self.cascade_is_current(instance)?
        {
            return Ok(Submitted::Stale);
        }
        let target = self.target(standing, known, new_life)?;
        // First the unbinds, so that a bind under way is taken over by the one that cleans up.
        if let Some(instance) = standing.filter(|_| deletes && !ordered.cascade_without_jobs) {
            for unbind in &ordered.cascade {
                after.push(self.unbind(instance, unbind)?);
            }
        }
        for older in supersedes {
            self.supersede(*older, ordered.job)?;
        }
        let job = self.enqueue(&New {
            id: ordered.job,
            action: ordered.action,
            target,
            retries: ordered.retries,
            body: &ordered.body,
            after: &after,
        })?;
        audit::append(
            db,
            ordered.at,
            &format!("platform:{}", ordered.platform),
            "submit",
            (job.id, job.target.instance),
            ordered.action.as_str(),
        )?;
        Ok(Submitted::Accepted {
            job: Box::new(job),
            stopped: self.stopped,
        })
    }

    /// Finds or makes the rows that the job is about, with what is wanted of what is made.
    fn target(
        &self,
        standing: Option<&InstanceStanding>,
        known: Option<&BindingStanding>,
        new_life: bool,
    ) -> Result<Target, StoreError> {
        let (db, ordered) = (self.db, self.ordered);
        let instance = standing.map_or(ordered.new_instance_uid, |instance| instance.uid);
        let row = instance.to_string();
        let mut target = Target {
            instance,
            binding: None,
        };
        if ordered.action == Action::Provision {
            if new_life {
                instance::insert(db, ordered)?;
            }
            instance::apply(db, instance, ordered.bundle, &ordered.body, ordered.at)?;
        }
        if !ordered.action.is_for_binding() {
            return Ok(target);
        }
        let named = ordered.binding.as_ref().ok_or_else(|| {
            StoreError::Unreadable(format!(
                "a submission to {} names no binding",
                ordered.action
            ))
        })?;
        let uid = known
            .filter(|_| !new_life)
            .map_or(named.1, |known| known.uid);
        if ordered.action == Action::Bind {
            if new_life {
                binding::insert(db, ordered, &row, named)?;
            }
            if let Some(wanted) = &ordered.body.binding {
                binding::apply(db, uid, wanted, ordered.at)?;
            }
        }
        target.binding = Some(BindingTarget {
            uid,
            id: named.0.clone(),
        });
        Ok(target)
    }

    /// Inserts a job in its first state and brings its target there.
    fn enqueue(&self, new: &New<'_>) -> Result<Job, StoreError> {
        let (db, ordered) = (self.db, self.ordered);
        let budget = budget::load(db, &new.target, new.action)?;
        let job = Job {
            id: new.id,
            target: new.target.clone(),
            action: new.action,
            service: ordered.service.clone(),
            bundle: ordered.bundle,
            platform: ordered.platform.clone(),
            created_at: ordered.at,
            deadline_at: ordered.deadline_at,
            token: Token::default(),
            attempts: 0,
            tempfails: 0,
            retries: new.retries,
            superseded_by: None,
            retry_of: None,
            state: Job::first_state(&budget, db.policy),
            budget,
        };
        let desired = Desired {
            plan: new.body.plan.id.clone(),
            maintenance_version: new.body.plan.maintenance_version.clone(),
            digest: ordered.digest,
            becomes: ordered.becomes,
            base_revision: ordered.base.map(|base| base.revision),
            codec_version: CODEC_VERSION,
        };
        insert(
            db,
            &job,
            &desired,
            new.after,
            &new.body.encode(),
            ordered.at,
        )?;
        Ok(job)
    }

    fn supersede(&mut self, older: JobId, by: JobId) -> Result<(), StoreError> {
        let free: Option<i64> = self.db.value(
            &format!("SELECT 1 FROM jobs WHERE id = ?1 AND superseded_by IS NULL AND {UNFINISHED}"),
            [older.to_string()],
        )?;
        if free.is_none() {
            return Ok(());
        }
        let reason = StopReason::Superseded { job: by };
        self.stopped
            .extend(settle::stop(self.db, older, reason, self.ordered.at)?);
        Ok(())
    }

    /// Whether the unbinds that were prepared are for exactly the bindings that there are.
    fn cascade_is_current(&self, instance: &InstanceStanding) -> Result<bool, StoreError> {
        if self.ordered.cascade_without_jobs {
            return Ok(true);
        }
        let live = binding::live(self.db, &instance.uid.to_string())?;
        let live: BTreeSet<_> = live.iter().map(|(_, id)| id).collect();
        let named: BTreeSet<_> = self
            .ordered
            .cascade
            .iter()
            .map(|one| &one.binding)
            .collect();
        Ok(live == named && named.len() == self.ordered.cascade.len())
    }

    /// Queues the unbind of one binding; gives the job that is to be waited for.
    fn unbind(
        &mut self,
        instance: &InstanceStanding,
        unbind: &CascadeUnbind,
    ) -> Result<JobId, StoreError> {
        let (db, ordered) = (self.db, self.ordered);
        let known = binding::standing(db, &instance.uid.to_string(), &unbind.binding)?;
        let ask = Ask {
            action: Action::Unbind,
            digest: ordered.digest,
        };
        let (known, supersedes, after) = match (admit(ask, Some(instance), known.as_ref()), &known)
        {
            (
                Verdict::Accept {
                    supersedes, after, ..
                },
                Some(known),
            ) => (known, supersedes, after),
            (Verdict::InProgress(under_way), _) => return Ok(under_way),
            // Excluded by `cascade_is_current`, in this same transaction.
            (refused, _) => {
                return Err(StoreError::Unavailable(format!(
                    "binding {} cannot be removed: {refused:?}",
                    unbind.binding
                )));
            }
        };
        for older in &supersedes {
            self.supersede(*older, unbind.job)?;
        }
        let job = self.enqueue(&New {
            id: unbind.job,
            action: Action::Unbind,
            target: Target {
                instance: instance.uid,
                binding: Some(BindingTarget {
                    uid: known.uid,
                    id: unbind.binding.clone(),
                }),
            },
            retries: unbind.retries,
            body: &unbind.body,
            after: &after,
        })?;
        audit::append(
            db,
            ordered.at,
            &format!("platform:{}", ordered.platform),
            "submit",
            (job.id, job.target.instance),
            &format!("unbind, before deprovision {}", ordered.job),
        )?;
        Ok(job.id)
    }
}

/// A job that is to be queued.
struct New<'a> {
    id: JobId,
    action: Action,
    target: Target,
    retries: u32,
    body: &'a JobBody,
    after: &'a [JobId],
}

/// Writes a new job with its body; its target takes the status of the job's first state.
pub(super) fn insert(
    db: &Db<'_>,
    new: &Job,
    desired: &Desired,
    after: &[JobId],
    plain: &[u8],
    at: Timestamp,
) -> Result<(), StoreError> {
    job::insert(db, new, desired, after, at)?;
    body::insert(db, new.id, plain)?;
    if let Some(status) = on_submit(new.action) {
        settle::set_status(db, new, status, at)?;
    }
    if new.state != State::Queued {
        job::save(db, new, at)?;
        settle::end(db, new, None, false, at)?;
    }
    Ok(())
}

/// The first job under way.
pub(super) fn first(active: &[ActiveJob]) -> Option<JobId> {
    active.first().map(|job| job.id)
}
