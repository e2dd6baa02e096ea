//! How the broker stands: `/readyz`, status and catalog.

use std::time::{Duration, Instant};

use evenkeel_engine::EngineStatus;
use evenkeel_engine::catalog::{Catalog, Pinned, Problem as Bundled};
use evenkeel_store::seam;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::jobs::time;
use super::types::{
    About, CatalogReport, Counts, ErrorKind, Plan, Problem as BundleProblem, Ready, Reason,
    Service, Status,
};
use super::{AdminState, Problem, STORE_PATIENCE};

/// How long a finding about the store holds: anybody may ask `/readyz`, and the check writes.
const STORE_FINDING: Duration = Duration::from_secs(1);

/// The last finding about the store, one check at a time.
#[derive(Debug, Default)]
pub(super) struct StoreCheck(Mutex<Option<(Instant, Result<(), String>)>>);

impl AdminState {
    /// For anybody: of bundles only how many are left out, since their problems name folders of
    /// this host.
    pub(super) async fn ready(&self) -> Ready {
        let status = timeout(STORE_PATIENCE, self.engine.status()).await.ok();
        let mut ready = self.readiness(status.as_ref()).await;
        ready.reasons.extend(left_out(&self.engine.catalog()));
        ready
    }

    pub(super) async fn status(&self) -> Result<Status, Problem> {
        let status = timeout(STORE_PATIENCE, self.engine.status())
            .await
            .map_err(|_| {
                Problem::new(
                    ErrorKind::Unavailable,
                    "the broker does not say how it stands",
                )
            })?;
        let catalog = self.engine.catalog();
        let mut ready = self.readiness(Some(&status)).await;
        ready.reasons.extend(catalog_problems(&catalog));
        Ok(Status {
            version: self.settings.version.clone(),
            boot: status.boot,
            started_at: time(status.started_at),
            ready,
            driving: status.driving,
            concurrency: status.concurrency,
            counts: status.counts.as_ref().ok().map(counts),
            services: u32::try_from(catalog.services.len()).unwrap_or(u32::MAX),
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

    /// Without the catalog's problems. `status` is `None` where the engine did not say in time.
    async fn readiness(&self, status: Option<&EngineStatus>) -> Ready {
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
        match status {
            None => reason(
                About::Store,
                true,
                "the broker cannot count its jobs".to_owned(),
            ),
            Some(status) => {
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
                if let Some(why) = &status.held {
                    reason(About::Held, false, format!("no new run starts: {why}"));
                }
            }
        }
        if self.engine.catalog().services.is_empty() {
            reason(About::Catalog, false, "no service is offered".to_owned());
        }
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
            notes: self.settings.notes.clone(),
        }
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
