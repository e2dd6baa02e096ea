//! `evenkeel serve`: the broker itself, or first the warden that starts it.
//!
//! The order is fixed: configuration, log, listening sockets, and only then data folder, store
//! and recovery. From the sockets on every request is answered, if only by a 503 that says why.

use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_server::ConnectionLimits;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::ServeArgs;
use crate::commands;
use crate::config::{Config, Finding, Source};
use crate::fail::{Exit, Failure};
use crate::warden;
use activation::Given;
use front::Front;
use parent::Parent;
use seat::Seat;
use signals::{Asked, Signals};

mod activation;
mod banner;
mod examples;
pub(crate) mod folder;
mod front;
mod host;
pub(crate) mod listen;
mod log;
mod parent;
mod seat;
mod signals;
mod start;
mod stored;

/// How long requests under way may go on once the engine has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What still blocks a thread at the end (a store that waits for its lock) is not waited for any
/// longer.
const LAST_THREADS: Duration = Duration::from_secs(2);

/// How long a start goes on whose end was asked for when its boot was being registered.
const LAST_START: Duration = Duration::from_secs(10);

/// A server ends only when it is told to.
const LISTENER: &str = "a listener's task";

/// Runs the broker where its sockets were passed to it or no warden is wanted, else the warden,
/// which starts this program again.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    match activation::take()? {
        None if !args.no_warden => warden::run(args),
        given => broker(args, given.unwrap_or_default()).map(|()| ExitCode::SUCCESS),
    }
}

/// Whether the configuration is good for a broker, as far as that can be told before anything is
/// opened. Warnings are told by the broker.
pub(crate) fn judge(config: &Config) -> Result<(), Failure> {
    for finding in config.examine() {
        if let Finding::Error(text) = finding {
            return Err(Failure::usage(text));
        }
    }
    start::configured_users(config).map(drop)
}

fn broker(args: &ServeArgs, mut given: Given) -> Result<(), Failure> {
    let log = given.log.take();
    // A warden keeps raw standard error for what no code of ours can say.
    let raw_is_kept = log.is_some();
    log::never_waits(log)?;
    log::keep_panics(raw_is_kept);
    if raw_is_kept {
        // Started as /proc/self/exe, it would be known as "exe". Only a name: it may fail.
        rustix::thread::set_name(c"evenkeel").ok();
    }
    let config = match given.config.take() {
        Some(handed) => {
            let source = Source::from_file(handed).map_err(|error| {
                Failure::usage(format!(
                    "what a warden handed over is no configuration: {error}"
                ))
            })?;
            commands::config::understood(source.config())?
        }
        None => commands::config::load(args.config.config.as_deref())?,
    };
    log::start(args.log_format)?;
    for finding in config.examine() {
        match finding {
            Finding::Warning(text) => tracing::warn!("{text}"),
            // A warden has judged this: what has changed since then is told by the start.
            Finding::Error(_) if given.line.is_some() => {}
            Finding::Error(text) => return Err(Failure::usage(text)),
        }
    }
    let seat = Seat::new(given.line.is_some())?;
    let lock_wait = Duration::from_secs(args.lock_wait);
    let wait = listen::Wait {
        limit: lock_wait,
        tell: &|text| tracing::warn!("{text}"),
    };
    let sockets = listen::take_or_bind(&config, given.osb.take(), given.admin.take(), &wait)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("evenkeel")
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("no runtime: {error}")))?;
    let end = runtime.block_on(serve(&config, lock_wait, sockets, seat, given.line));
    runtime.shutdown_timeout(LAST_THREADS);
    end
}

async fn serve(
    config: &Config,
    lock_wait: Duration,
    sockets: listen::Sockets,
    mut seat: Seat,
    line: Option<UnixStream>,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let parent = Parent::new(line).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("the line to the warden cannot be used: {error}"),
        )
    })?;
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
    Parent::listening();

    // Whether this boot is in the store, or on its way there: then it has to end in order.
    let registers = AtomicBool::new(false);
    let has_warden = seat.has_warden;
    let restarts = seat.restarts;
    let mut starting = pin!(start::start(
        config, lock_wait, &addresses, &front, &mut seat, &registers
    ));
    let started = tokio::select! {
        broker = &mut starting => Ok(broker?),
        why = over(&mut signals, &parent, &mut servers) => Err(why),
    };
    let (broker, early) = match started {
        Ok(broker) => (broker, None),
        Err(why) => {
            if matches!(why, Why::Orphaned) {
                stop.send_replace(true);
            }
            if !registers.load(Ordering::Relaxed) {
                return why
                    .failure()
                    .or_else(|| front.setback())
                    .map_or(Ok(()), Err);
            }
            match tokio::time::timeout(LAST_START, starting).await {
                Ok(broker) => (broker?, Some(why)),
                Err(_) => {
                    return Err(why.failure().unwrap_or_else(|| {
                        Failure::new(
                            Exit::Store,
                            "the store did not take this boot before its end",
                        )
                    }));
                }
            }
        }
    };
    let why = match early {
        Some(why) => why,
        None => {
            front.open(broker.osb, broker.admin);
            let engine = broker.service.engine();
            tracing::info!(services = engine.catalog().services.len(), "ready");
            Parent::status("ready");
            if restarts == 0 {
                banner::print(config, &addresses, &engine.catalog(), broker.new_password);
            }
            loop {
                tokio::select! {
                    asked = signals.next() => match asked {
                        Asked::End => break Why::Asked,
                        Asked::Reload => engine.reload().await,
                    },
                    () = parent.gone() => break Why::Orphaned,
                    what = broker.service.broken() => break Why::Broken(what),
                    Some(_) = servers.join_next() => break Why::Broken(LISTENER),
                }
            }
        }
    };
    let failure = why.failure();
    if let Some(failure) = &failure {
        tracing::error!("handing over: {failure}");
    }
    Parent::stopping();
    let asked = tokio::time::Instant::now();
    tracing::info!("ending; a second signal ends at once");
    let orderly = async {
        // Polls are answered until the engine has ended. Where a warden stays, so do the runs.
        let ended = async {
            match why {
                Why::Broken(what) => broker.service.give_up(what, has_warden).await,
                Why::Asked | Why::Orphaned => broker.service.shutdown().await,
            }
        };
        tokio::select! {
            biased;
            // Also in the midst of a drain: another `serve` may wait for these addresses and for
            // the data folder, and will adopt what is under way.
            () = parent.gone() => {
                stop.send_replace(true);
                broker.service.hand_over().await;
            }
            () = ended => {}
        }
        stop.send_replace(true);
        while servers.join_next().await.is_some() {}
    };
    let again = async {
        if failure.is_some() {
            // Nobody has asked yet.
            signals.end().await;
            signals.end_again(tokio::time::Instant::now()).await;
        } else {
            signals.end_again(asked).await;
        }
    };
    tokio::select! {
        () = orderly => tracing::info!("ended"),
        () = again => {
            tracing::warn!("ended at once; the next start picks up what was under way");
            return Err(Failure::new(Exit::Failed, "ended at once by a second signal"));
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Until there is a reason to end a broker that has not started.
async fn over(signals: &mut Signals, parent: &Parent, servers: &mut JoinSet<usize>) -> Why {
    tokio::select! {
        () = signals.end() => Why::Asked,
        () = parent.gone() => Why::Orphaned,
        Some(_) = servers.join_next() => Why::Broken(LISTENER),
    }
}

/// Why a broker ends.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// Somebody asked for it.
    Asked,
    /// Its warden is dead.
    Orphaned,
    /// This has panicked, which all jobs share.
    Broken(&'static str),
}

impl Why {
    fn failure(self) -> Option<Failure> {
        match self {
            Self::Asked => None,
            Self::Orphaned => Some(orphaned()),
            Self::Broken(what) => Some(Failure::new(
                Exit::HandedOver,
                format!("{what} panicked, which all jobs share; the log has the place"),
            )),
        }
    }
}

/// Without its warden a broker would serve on sockets that no later `serve` could have.
fn orphaned() -> Failure {
    Failure::new(Exit::HandedOver, "the warden is dead")
        .hint("start `evenkeel serve` again; it picks up what is under way")
}
