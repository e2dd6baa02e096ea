//! How the broker stands: `/readyz`, status and catalog.

use std::time::{Duration, Instant};

use evenkeel_core::explain::Turn;
use evenkeel_engine::catalog::{Catalog, Pinned, Problem as Bundled};
use evenkeel_engine::{EngineStatus, LastDeath};
use evenkeel_store::seam;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::jobs::time;
use super::types::{
    About, CatalogReport, Counts, ErrorKind, Plan, Problem as BundleProblem, Ready, Reason,
    Service, Status,
};
use super::{AdminState, Problem, STORE_PATIENCE, hold, turn};

/// How long a finding about the store holds: anybody may ask `/readyz`, and the check writes.
const STORE_FINDING: Duration = Duration::from_secs(1);

/// The last finding about the store, one check at a time.
#[derive(Debug, Default)]
pub(super) struct StoreCheck(Mutex<Option<(Instant, Result<(), String>)>>);

impl AdminState {
    /// For anybody: of bundles only how many are left out, since their problems name folders of
    /// this host. Jobs and boots are named: what is asked of one wants the token or a platform's
    /// password, and who it is about is not told.
    pub(super) async fn ready(&self) -> Ready {
        let mut ready = self.readiness(&self.engine.status()).await;
        ready.reasons.extend(left_out(&self.engine.catalog()));
        ready
    }

    pub(super) async fn status(&self) -> Result<Status, Problem> {
        let counted = timeout(STORE_PATIENCE, self.engine.counts())
            .await
            .map_err(|_| {
                Problem::new(ErrorKind::Unavailable, "the broker cannot count its jobs")
            })?;
        let status = self.engine.status();
        let catalog = self.engine.catalog();
        let mut ready = self.readiness(&status).await;
        ready.reasons.extend(catalog_problems(&catalog));
        Ok(Status {
            version: self.settings.version.clone(),
            boot: status.boot,
            started_at: time(status.started_at),
            ready,
            driving: status.driving,
            concurrency: status.concurrency,
            counts: counted.as_ref().ok().map(counts),
            holds: status.holds.iter().map(hold::hold).collect(),
            isolation: self.turn(&status).as_ref().map(turn::isolation),
            services: u32::try_from(catalog.services.len()).unwrap_or(u32::MAX),
            last_death: status.last_death.as_ref().map(last_death),
        })
    }

    pub(super) fn catalog(&self) -> CatalogReport {
        let catalog = self.engine.catalog();
        let problems = catalog.problems.iter().map(|problem| BundleProblem {
            bundle: problem.bundle.clone(),
            fatal: problem.fatal,
            message: problem.message.clone(),
        });
        CatalogReport {
            loaded_at: time(catalog.loaded_at),
            services: catalog.services.values().map(service).collect(),
            problems: problems.collect(),
        }
    }

    /// Without the catalog's problems.
    async fn readiness(&self, status: &EngineStatus) -> Ready {
        let mut reasons = Vec::new();
        let mut reason = |about, blocking, message| {
            reasons.push(Reason {
                about,
                blocking,
                message,
            })
        };
        if let Err(message) = self.store_finding().await {
            reason(About::Store, true, message);
        }
        if !status.recovered {
            let text = "what an earlier process left behind has not been gone through yet";
            let text = match &status.unrecovered {
                None => text.to_owned(),
                Some(why) => format!("{text}: {why}"),
            };
            reason(About::Recovery, true, text);
        }
        if status.draining {
            reason(About::Draining, true, "the broker is ending".to_owned());
        }
        for held in &status.holds {
            reason(About::Held, false, hold::line(held));
        }
        if let (Some(why), []) = (&status.unclaimed, status.holds.as_slice()) {
            reason(About::Held, false, format!("no new run starts: {why}"));
        }
        if let Some(turn) = self.turn(status) {
            let line = turn.line(&turn::limit(&turn));
            reason(About::Isolation, false, line);
        }
        if self.engine.catalog().services.is_empty() {
            reason(About::Catalog, false, "no service is offered".to_owned());
        }
        let mut notes = self.settings.notes.clone();
        let last_death = status.last_death.as_ref();
        let told = |death| {
            format!(
                "the last end that nobody asked for (`evenkeel boots` has all): {}",
                self::last_death(death)
            )
        };
        notes.extend(last_death.map(told));
        let ready = !reasons.iter().any(|reason| reason.blocking);
        let blocking = reasons.iter().filter(|reason| reason.blocking);
        let blocking: Vec<_> = blocking.map(|reason| reason.message.as_str()).collect();
        let description = match blocking.as_slice() {
            [] => "requests are served".to_owned(),
            messages => format!("not ready: {}", messages.join("; ")),
        };
        Ready {
            ready,
            description,
            reasons,
            notes,
        }
    }

    fn turn(&self, status: &EngineStatus) -> Option<Turn> {
        let held = !status.holds.is_empty() || status.unclaimed.is_some();
        turn::turn(status.alone, held, self.engine.now())
    }

    async fn store_finding(&self) -> Result<(), String> {
        let mut last = self.store.0.lock().await;
        if let Some((at, finding)) = last.as_ref()
            && at.elapsed() < STORE_FINDING
        {
            return finding.clone();
        }
        let finding = match timeout(STORE_PATIENCE, self.engine.check_store()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!(
                "the store did not answer within {} s",
                STORE_PATIENCE.as_secs()
            )),
        };
        *last = Some((Instant::now(), finding.clone()));
        finding
    }
}

fn last_death(death: &LastDeath) -> String {
    let LastDeath {
        boot,
        at,
        how,
        named,
    } = death;
    let whose = match named.as_slice() {
        [] => String::new(),
        [one] => format!(", in a step of job {one}"),
        [one, more @ ..] => format!(", in steps of job {one} and {} more", more.len()),
    };
    format!("boot {boot} {how}, at {}{whose}", time(*at))
}

fn catalog_reason(message: String) -> Reason {
    Reason {
        about: About::Catalog,
        blocking: false,
        message,
    }
}

fn catalog_problems(catalog: &Catalog) -> impl Iterator<Item = Reason> {
    let fatal = catalog.problems.iter().filter(|problem| problem.fatal);
    fatal.map(
        |Bundled {
             bundle, message, ..
         }| { catalog_reason(format!("bundle {bundle} is left out: {message}")) },
    )
}

/// The same as a number.
fn left_out(catalog: &Catalog) -> Option<Reason> {
    let problems = catalog_problems(catalog).count();
    let text = match problems {
        0 => return None,
        1 => "1 problem keeps".to_owned(),
        _ => format!("{problems} problems keep"),
    };
    Some(catalog_reason(format!(
        "{text} bundles from being offered; `evenkeel status` names what"
    )))
}

fn counts(counts: &seam::Counts) -> Counts {
    Counts {
        queued: counts.queued,
        running: counts.running,
        backoff: counts.backoff,
        succeeded: counts.succeeded,
        failed: counts.failed,
        cancelled: counts.cancelled,
        quarantined: counts.quarantined,
        suspects: counts.suspects,
        instances: counts.instances,
        bindings: counts.bindings,
        leaks: counts.leaks,
    }
}

fn service(pinned: &Pinned) -> Service {
    let bundle = &pinned.bundle;
    let plans = bundle.plans.iter().map(|plan| Plan {
        id: plan.id.clone(),
        name: plan.name.clone(),
        description: plan.description.clone(),
        free: plan.free,
    });
    Service {
        id: bundle.service.id.clone(),
        name: bundle.service.name.clone(),
        description: bundle.service.description.clone(),
        bundle: pinned.digest,
        plans: plans.collect(),
        actions: bundle.actions.keys().copied().collect(),
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::ids::{BootId, JobId};
    use evenkeel_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_last_death_is_told_with_the_jobs_in_whose_steps_it_came() {
        let told = |named: &[u128]| {
            last_death(&LastDeath {
                boot: BootId(Uuid::from_u128(1)),
                at: Timestamp(0),
                how: "died".to_owned(),
                named: named.iter().map(|n| JobId(Uuid::from_u128(*n))).collect(),
            })
        };
        let alone = told(&[]);
        assert!(
            alone.ends_with("1 died, at 1970-01-01T00:00:00Z"),
            "{alone}"
        );
        let job = "in a step of job 00000000-0000-0000-0000-000000000002";
        assert_eq!(told(&[2]), format!("{alone}, {job}"));
        let many = job.replace("a step", "steps");
        assert_eq!(told(&[2, 3, 4]), format!("{alone}, {many} and 2 more"));
    }
}
