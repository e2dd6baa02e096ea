//! The first step of an attempt: everything its run needs, before anything runs.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{End, FailReason};
use evenkeel_core::bundle::SecretSource;
use evenkeel_core::request::{JobBody, Object, Outputs};
use evenkeel_executor::RunSpec;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::{Claimed, Inputs, InstanceView, Owned};
use tokio::time::timeout;

use super::{Outcome, Step};
use crate::catalog::{Pinned, SECRETS};
use crate::drivers::Place;
use crate::service::{Shared, step_blocking};
use crate::{faults, parameters, state_folders};

/// How long preparing may take: a secret may lie on a disk that does not answer.
const PREPARE_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of one secret.
const MAX_SECRET_BYTES: u64 = 1 << 20;

/// What preparing came to.
#[derive(Debug)]
pub(super) enum Prepared {
    /// A run is to be started.
    Run(Box<RunSpec>),
    /// There is nothing to run.
    Ended(Box<Outcome>),
}

pub(super) async fn prepare(
    shared: &Arc<Shared>,
    claimed: &Claimed,
    place: &Place,
) -> Step<Prepared> {
    let ended = |end| Step::On(Prepared::Ended(Box::new(Outcome::of(end, Duration::ZERO))));
    if place.stop.is_cancelled() {
        return ended(End::Stopped);
    }
    let fence = claimed.fence;
    // An unreadable record is an answer, not a failure of the store: the canary has proved the
    // key, so that what does not open with it has been changed since it was written.
    let inputs = super::until_done(shared, "inputs", || async move {
        match shared.options.store.inputs(fence).await {
            Err(
                StoreError::Unreadable(message)
                | StoreError::Damaged(message)
                | StoreError::WrongKey(message),
            ) => Ok(Err(message)),
            other => other.map(Ok),
        }
    });
    let inputs = match inputs.await {
        Some(Ok(Owned::Mine(inputs))) => inputs,
        Some(Ok(Owned::Lost)) | None => return Step::Leave,
        Some(Err(message)) => return ended(End::Unreadable { message }),
    };
    let planned = timeout(PREPARE_LIMIT, plan_run(shared, claimed, inputs));
    let planned = planned.await.unwrap_or_else(|_| {
        Err(format!(
            "not prepared within {} seconds",
            PREPARE_LIMIT.as_secs()
        ))
    });
    match planned {
        Ok(prepared) => Step::On(prepared),
        Err(message) => ended(End::Failed {
            reason: FailReason::NotPrepared { message },
            message: None,
        }),
    }
}

async fn plan_run(
    shared: &Arc<Shared>,
    claimed: &Claimed,
    inputs: Inputs,
) -> Result<Prepared, String> {
    let job = &claimed.job;
    let digest = job.bundle;
    let (keeper, about) = (Arc::clone(shared), super::about(job));
    let pinned = step_blocking(move || {
        faults::hit_about("engine.bundle", &about);
        keeper.catalog.pinned(digest)
    });
    let pinned = pinned
        .await
        .map_err(|error| format!("the pinned copy of bundle {digest} cannot be read: {error}"))?;
    let Some(action) = pinned.bundle.actions.get(&job.action).cloned() else {
        return without_action(shared, job.action, &inputs)
            .await
            .map(Prepared::Ended);
    };
    let secrets = {
        let sources = pinned.bundle.secrets.clone();
        let folder = shared.options.data_dir.join(SECRETS);
        let about = super::about(job);
        let read = step_blocking(move || {
            faults::hit_about("engine.secrets", &about);
            read_secrets(&folder, &sources)
        });
        read.await?
    };
    let state = state_folders::make(shared, job.target.instance).await?;
    let attempt = claimed.fence.attempt;
    let request =
        with_defaults(&inputs.body, &pinned).request_document(job.id, job.attempts, &inputs.data);
    Ok(Prepared::Run(Box::new(RunSpec {
        attempt,
        env: environment(claimed, &inputs, &pinned),
        command: action.command,
        bundle_dir: pinned.folder.clone(),
        state_dir: state,
        state_read_only: job.action.is_for_binding(),
        request: request.to_string().into_bytes(),
        secrets,
        limits: pinned.bundle.limits,
        timeout: action.timeout.unwrap_or(shared.options.timeout),
        deadline: job.deadline_at,
        grace: shared.options.grace,
    })))
}

/// A bundle without a `bind` action hands out what provision wrote; without an `update` or
/// `unbind` action there is nothing to do.
async fn without_action(
    shared: &Arc<Shared>,
    action: Action,
    inputs: &Inputs,
) -> Result<Box<Outcome>, String> {
    let mut outcome = Outcome::of(End::Succeeded, Duration::ZERO);
    if action == Action::Bind {
        let id = inputs
            .body
            .instance
            .id
            .parse()
            .map_err(|error| format!("instance: {error}"))?;
        let instance = shared
            .options
            .store
            .instance(&id)
            .await
            .map_err(|error| error.to_string())?;
        let provided = match instance {
            Some(InstanceView {
                damage: Some(damage),
                ..
            }) => return Err(damage),
            known => known.map(|known| known.outputs).unwrap_or_default(),
        };
        outcome.outputs = Some(Outputs {
            credentials: provided.credentials,
            endpoints: provided.endpoints,
            volume_mounts: provided.volume_mounts,
            syslog_drain_url: provided.syslog_drain_url,
            route_service_url: provided.route_service_url,
            ..Outputs::default()
        });
    }
    Ok(Box::new(outcome))
}

/// What the action is told: the parameters as they were sent, and merged, with the defaults of the
/// plan's schemas where the bundle wants them filled in.
fn with_defaults(body: &JobBody, pinned: &Pinned) -> JobBody {
    let mut body = body.clone();
    let Some(plan) = pinned.plan(&body.plan.id) else {
        return body;
    };
    let of_instance = match body.action {
        Action::Update => Action::Update,
        Action::Provision | Action::Deprovision | Action::Bind | Action::Unbind => {
            Action::Provision
        }
    };
    let fill = |action, parameters: &mut Object| {
        *parameters = parameters::with_defaults(plan, action, std::mem::take(parameters));
    };
    fill(of_instance, &mut body.instance.parameters);
    if let Some(binding) = &mut body.binding {
        fill(Action::Bind, &mut binding.parameters);
    }
    body
}

fn environment(claimed: &Claimed, inputs: &Inputs, pinned: &Pinned) -> BTreeMap<String, String> {
    let body = &inputs.body;
    let mut env = pinned.bundle.env.clone();
    let own = [
        ("ACTION", body.action.to_string()),
        ("SERVICE", body.service.name.clone()),
        ("PLAN", body.plan.name.clone()),
        ("INSTANCE_ID", body.instance.id.clone()),
        ("JOB_ID", claimed.job.id.to_string()),
        ("ATTEMPT", claimed.job.attempts.to_string()),
        ("ATTEMPT_ID", claimed.fence.attempt.to_string()),
    ];
    env.extend(own.map(|(name, value)| (format!("EVENKEEL_{name}"), value)));
    if let Some(binding) = &body.binding {
        env.insert("EVENKEEL_BINDING_ID".to_owned(), binding.id.clone());
    }
    env
}

/// Reads the secrets that the bundle names: absolute paths, or names in the data folder's
/// `secrets`.
fn read_secrets(
    folder: &Path,
    sources: &BTreeMap<String, SecretSource>,
) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let read = |name: &String, source: &SecretSource| {
        let path: PathBuf = folder.join(&source.file);
        let fail = |what: String| format!("secret {name}: {}: {what}", path.display());
        // A pipe must not be waited for.
        let plain = fs::metadata(&path)
            .map_err(|error| fail(error.to_string()))?
            .is_file();
        if !plain {
            return Err(fail("not a regular file".to_owned()));
        }
        let file = fs::File::open(&path).map_err(|error| fail(error.to_string()))?;
        let mut bytes = Vec::new();
        file.take(MAX_SECRET_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| fail(error.to_string()))?;
        if bytes.len() as u64 > MAX_SECRET_BYTES {
            return Err(fail(format!("larger than {MAX_SECRET_BYTES} bytes")));
        }
        Ok((name.clone(), bytes))
    };
    sources
        .iter()
        .map(|(name, source)| read(name, source))
        .collect()
}
