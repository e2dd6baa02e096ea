//! Watching a run that may be anybody's child: by a descriptor of its shim's life, which costs no
//! thread, and by looking at its progress and heartbeat.

use std::time::Duration;

use evenkeel_core::ids::AttemptId;
use evenkeel_run::{RunError, RunFolder, ShimHandle};
use rustix::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::{Inner, ProcessExecutor, report};
use crate::executor::{ExecutorError, Probe, WatchEnd};

/// How often progress and heartbeat are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How soon to look again at a run whose lock is held by a shim that cannot be named: it has yet
/// to write its record, or is dead and a fork in flight still holds a copy of its lock.
const NAMELESS_PAUSE: Duration = Duration::from_millis(20);

/// What a look at a living run tells.
struct Sight {
    shim: Option<ShimHandle>,
    progress: Option<String>,
    silent: bool,
}

pub(super) async fn watch(
    executor: &ProcessExecutor,
    attempt: AttemptId,
    progress: mpsc::Sender<String>,
) -> Result<WatchEnd, ExecutorError> {
    let mut passed_on = None;
    loop {
        let probe = executor
            .on_folder(attempt, |_, folder| Ok(folder.probe()?))
            .await?;
        match report::probe(probe) {
            Probe::NeverStarted => return Ok(WatchEnd::NeverStarted),
            Probe::Lingering => return Ok(WatchEnd::Lingering),
            Probe::Exited(report) => return Ok(WatchEnd::Exited(report)),
            Probe::Vanished => return Ok(WatchEnd::Vanished),
            Probe::Alive => {}
        }
        let mut sight = executor.on_folder(attempt, look).await?;
        let Some(shim) = sight.shim.take() else {
            if sight.silent {
                return Ok(WatchEnd::Silent);
            }
            tokio::time::sleep(NAMELESS_PAUSE).await;
            continue;
        };
        let life = life_of(shim)?;
        loop {
            pass_on(&progress, &mut passed_on, sight.progress.take());
            if sight.silent {
                return Ok(WatchEnd::Silent);
            }
            if is_over_within(&life, LOOK_EVERY).await {
                break;
            }
            sight = executor.on_folder(attempt, look).await?;
            // Another way to learn of the end, should the descriptor fail to tell.
            if sight.shim.is_none() {
                break;
            }
        }
    }
}

/// The shim's life, as something to wait for.
#[expect(
    unsafe_code,
    reason = "registering a descriptor with the runtime has no safe form"
)]
fn life_of(shim: ShimHandle) -> Result<AsyncFd<OwnedFd>, ExecutorError> {
    // SAFETY: an `OwnedFd` is open and stays the same file until it is dropped; the `AsyncFd` owns
    // it, is dropped with it, and nothing here replaces it.
    unsafe { AsyncFd::register_with_interest(shim.pidfd, Interest::READABLE) }
        .map_err(|error| ExecutorError::CutOff(format!("cannot watch the shim: {error}")))
}

async fn is_over_within(life: &AsyncFd<OwnedFd>, time: Duration) -> bool {
    match tokio::time::timeout(time, life.readable()).await {
        Ok(_) => true,
        Err(_elapsed) => false,
    }
}

/// A line that finds the channel full is tried again, or overtaken, at the next look.
fn pass_on(channel: &mpsc::Sender<String>, passed_on: &mut Option<String>, line: Option<String>) {
    if let Some(line) = line
        && passed_on.as_ref() != Some(&line)
        && channel.try_send(line.clone()).is_ok()
    {
        *passed_on = Some(line);
    }
}

fn look(inner: &Inner, folder: RunFolder) -> Result<Sight, ExecutorError> {
    // The record that names the shim is torn for the moment in which it is written.
    let shim = match folder.shim() {
        Err(RunError::Record { .. }) => None,
        other => other?,
    };
    let age = folder.heartbeat_age()?;
    Ok(Sight {
        shim,
        progress: folder.last_progress()?,
        silent: age.is_some_and(|age| age >= inner.options.silent_after),
    })
}
