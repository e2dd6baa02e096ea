//! `evenkeel serve`: the broker itself.
//!
//! The order is fixed: configuration, log, listening sockets, and only then data folder, store
//! and recovery. From the sockets on every request is answered, if only by a 503 that says why.

use std::time::Duration;

use evenkeel_server::ConnectionLimits;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::ServeArgs;
use crate::commands;
use crate::config::{Config, Finding};
use crate::fail::{Exit, Failure};
use front::Front;
use signals::{Asked, Signals};

mod banner;
mod examples;
mod folder;
mod front;
mod host;
mod listen;
mod log;
mod signals;
mod start;
mod stored;

/// How long requests under way may go on once the engine has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What still blocks a thread at the end (a store that waits for its lock) is not waited for any
/// longer.
const LAST_THREADS: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let config = commands::config::load(args.config.config.as_deref())?;
    log::start(args.log_format)?;
    for finding in config.examine() {
        match finding {
            Finding::Warning(text) => tracing::warn!("{text}"),
            Finding::Error(text) => return Err(Failure::usage(text)),
        }
    }
    let sockets = listen::bind(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("evenkeel")
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("no runtime: {error}")))?;
    let lock_wait = Duration::from_secs(args.lock_wait);
    let end = runtime.block_on(serve(&config, lock_wait, sockets));
    runtime.shutdown_timeout(LAST_THREADS);
    end
}

async fn serve(
    config: &Config,
    lock_wait: Duration,
    sockets: listen::Sockets,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let (osb, admin) = sockets.into_tokio()?;
    let addresses = listen::Addresses::of(&osb, &admin)?;
    let front = Front::new();
    let (stop, _) = watch::channel(false);
    let limits = ConnectionLimits {
        shutdown: LAST_ANSWERS,
        ..ConnectionLimits::default()
    };
    let mut servers = JoinSet::new();
    for (listener, router) in [(osb, front.osb()), (admin, front.admin())] {
        let mut stopped = stop.subscribe();
        let stopped = async move {
            // A sender that is gone says the same.
            stopped.wait_for(|stop| *stop).await.ok();
        };
        servers.spawn(evenkeel_server::serve(listener, router, stopped, limits));
    }
    tracing::info!(osb = %addresses.osb, admin = %addresses.admin, "listening");

    let broker = tokio::select! {
        broker = start::start(config, lock_wait, &addresses, &front) => broker?,
        () = signals.end() => return front.setback().map_or(Ok(()), Err),
        Some(_) = servers.join_next() => return Err(no_server()),
    };
    front.open(broker.osb, broker.admin);
    let engine = broker.service.engine();
    tracing::info!(services = engine.catalog().services.len(), "ready");
    banner::print(config, &addresses, &engine.catalog(), broker.new_password);

    loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::End => break,
                Asked::Reload => engine.reload().await,
            },
            Some(_) = servers.join_next() => return Err(no_server()),
        }
    }
    let asked = tokio::time::Instant::now();
    tracing::info!("ending; a second signal ends at once");
    let orderly = async {
        // Polls are answered until the engine has ended.
        broker.service.shutdown().await;
        stop.send_replace(true);
        while servers.join_next().await.is_some() {}
    };
    tokio::select! {
        () = orderly => tracing::info!("ended"),
        () = signals.end_again(asked) => {
            tracing::warn!("ended at once; the next start picks up what was under way");
            return Err(Failure::new(Exit::Failed, "ended at once by a second signal"));
        }
    }
    Ok(())
}

/// A server ends only when it is told to.
fn no_server() -> Failure {
    Failure::new(
        Exit::Failed,
        "a listener's task ended: its panic is in the log",
    )
}
