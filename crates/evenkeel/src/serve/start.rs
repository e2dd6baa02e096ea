//! From a configuration to a running broker.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use evenkeel_core::boot::DeathRecord;
use evenkeel_core::ids::{BootId, Platform, RunRootId};
use evenkeel_core::policy::Policy;
use evenkeel_engine::world::{RealWorld, World as _};
use evenkeel_engine::{BlackBoxes, Options, Service, faults};
use evenkeel_executor::{ContainmentWish, ProcessExecutor, ProcessOptions, RunAs, RunRoot};
use evenkeel_server::{
    AdminSettings, AdminState, DeletedAs, OsbSettings, OsbState, Password, RequestLimits, User,
};
use evenkeel_store::error::StoreError;
use evenkeel_store::{SqliteStore, StoreOptions};

use super::front::Front;
use super::listen::Addresses;
use super::parent::Parent;
use super::seat::Seat;
use super::{examples, folder, host, stored};
use crate::config::{self, Config};
use crate::fail::{Exit, Failure};
use crate::warden::files::Files;
use crate::{files, secrets};

/// Before the store is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Between two looks at jobs without a driver, deadlines and retention.
const RECONCILE: Duration = Duration::from_secs(2);

/// What an answer may take beyond the synchronous limit.
const ANSWER_MARGIN: Duration = Duration::from_secs(8);

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A broker that has started.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) service: Service,
    pub(super) osb: Router,
    pub(super) admin: Router,
    /// The generated password, if it was made just now.
    pub(super) new_password: Option<secrecy::SecretString>,
}

/// The death records that wardens leave.
#[derive(Debug)]
struct Deaths(Files);

impl evenkeel_engine::Deaths for Deaths {
    fn of(&self, boot: BootId) -> Option<DeathRecord> {
        self.0.death(boot).unwrap_or_else(|error| {
            tracing::warn!(%boot, %error, "the record of an earlier boot's death cannot be read");
            None
        })
    }
}

/// Why the broker has not started.
enum Setback {
    /// Somebody has to change the command line or the configuration.
    Final(Failure),
    /// It can be mended while the broker waits.
    Lasting(Failure),
}

/// Starts the broker; tries again for as long as what is wrong can be mended from outside, and
/// tells that to whoever asks `front`. While `registers` is set the boot may be in the store, and
/// this must not be dropped: what nobody ended in order has died.
pub(super) async fn start(
    config: &Config,
    lock_wait: Duration,
    addresses: &Addresses,
    front: &Front,
    seat: &mut Seat,
    registers: &AtomicBool,
) -> Result<Broker, Failure> {
    loop {
        let opened = open(config, lock_wait, addresses, seat, registers);
        match opened.await {
            Ok(broker) => return Ok(broker),
            Err(Setback::Final(failure)) => return Err(failure),
            Err(Setback::Lasting(failure)) => {
                registers.store(false, Ordering::Relaxed);
                if front.tell(&failure) {
                    tracing::error!(hint = failure.hint, "cannot start: {}", failure.message);
                    Parent::status(&format!("not ready: {}", failure.message));
                }
                // So that `evenkeel status` finds whom to ask why.
                if let Err(error) = stored::addresses(&config.data_dir, addresses) {
                    tracing::debug!(%error, "the addresses cannot be told");
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn open(
    config: &Config,
    lock_wait: Duration,
    addresses: &Addresses,
    seat: &mut Seat,
    registers: &AtomicBool,
) -> Result<Broker, Setback> {
    // Judged before anything is opened: a store must not be touched for a broker nobody can use.
    let configured = &configured_users(config).map_err(|failure| {
        if seat.has_warden {
            // It was right when the warden looked: a password's file is being changed.
            Setback::Lasting(failure.hint("mend it; the broker goes on by itself"))
        } else {
            Setback::Final(failure)
        }
    })?;
    let data_dir =
        &folder::usable(&config.data_dir).map_err(|error| io_setback(&config.data_dir, &error))?;
    let store = open_store(config, data_dir, lock_wait).await?;
    let in_folder = |error: io::Error| io_setback(data_dir, &error);
    stored::addresses(data_dir, addresses).map_err(in_folder)?;
    let namespace = stored::namespace(config, data_dir).map_err(in_folder)?;
    let token = stored::admin_token(data_dir).map_err(in_folder)?;
    let (users, new_password) = users(configured, data_dir)?;
    stored::secrets_folder(data_dir).map_err(in_folder)?;
    let bundles: Vec<_> = config
        .bundles
        .iter()
        .map(std::path::absolute)
        .collect::<io::Result<_>>()
        .map_err(in_folder)?;
    if config.bundles.contains(&config.examples()) {
        examples::write(&data_dir.join("examples")).map_err(in_folder)?;
    }
    let root = open_root(config, data_dir)?;
    seat.lock(&root).map_err(unusable_root)?;
    let (on_shutdown, note) = host::on_shutdown(config.on_shutdown, seat.has_warden);
    let mut notes = vec![note];
    let black_boxes = match BlackBoxes::create(&root, seat.boot) {
        Ok(boxes) => Some(boxes),
        Err(error) if is_full(&error) => return Err(unusable_root(error)),
        Err(error) => {
            let note = format!(
                "without a black box, a job that kills the broker would go unnoticed: {error}"
            );
            tracing::error!("{note}");
            notes.push(note);
            None
        }
    };
    tracing::info!("{}", notes[0]);
    let host_boot = host::boot_id().map_err(in_folder)?;
    registers.store(true, Ordering::Relaxed);
    let service = Service::start(Options {
        boot: seat.boot,
        run_root: root
            .id()
            .parse::<RunRootId>()
            .map_err(|error| Setback::Final(Failure::new(Exit::DataDir, error.to_string())))?,
        host_boot,
        version: VERSION.to_owned(),
        data_dir: data_dir.to_owned(),
        bundles,
        namespace,
        store: faults::store(Arc::new(store)),
        executor: Arc::new(ProcessExecutor::new(root, process_options(&config.process))),
        black_boxes,
        world: Arc::new(RealWorld),
        concurrency: config.jobs.concurrency.get(),
        per_service: config.jobs.per_service.get(),
        timeout: config.jobs.timeout.get(),
        deadline: config.jobs.deadline.get(),
        retention: config.jobs.retention.get(),
        sync_limit: config.osb.sync_limit.get(),
        isolate_platforms: config.osb.isolate_platforms,
        grace: config.process.grace.get(),
        reconcile_every: RECONCILE,
        hold_after: config.recovery.hold_after.get(),
        hold_quiet: config.recovery.hold_quiet.get(),
        on_shutdown,
        drain_limit: config.drain_limit.get(),
        deaths: Arc::new(Deaths(Files::of(data_dir))),
    })
    .await
    .map_err(|evenkeel_engine::StartError::Store(error)| store_setback(error))?;
    let usual = RequestLimits::default();
    let limits = RequestLimits {
        answer: usual
            .answer
            .max(config.osb.sync_limit.get() + ANSWER_MARGIN),
        ..usual
    };
    let osb = OsbState::new(
        service.engine(),
        users,
        OsbSettings {
            deleted_as: match config.osb.deleted_as {
                config::DeletedAs::Succeeded => DeletedAs::Succeeded,
                config::DeletedAs::Gone => DeletedAs::Gone,
            },
            limits,
            ..OsbSettings::default()
        },
    );
    let admin = AdminState::new(
        service.engine(),
        &token,
        AdminSettings {
            version: VERSION.to_owned(),
            notes,
            ..AdminSettings::default()
        },
    );
    let no_auth =
        |error: evenkeel_server::AuthError| Setback::Final(Failure::usage(error.to_string()));
    Ok(Broker {
        osb: evenkeel_server::osb_router(osb.map_err(no_auth)?),
        admin: evenkeel_server::admin_router(admin.map_err(no_auth)?),
        service,
        new_password,
    })
}

async fn open_store(
    config: &Config,
    data_dir: &Path,
    lock_wait: Duration,
) -> Result<SqliteStore, Setback> {
    let recovery = config.recovery;
    let options = StoreOptions {
        database: config.store.clone(),
        policy: Policy {
            crash_limit: recovery.crash_limit.get(),
            loss_limit: recovery.loss_limit.get(),
            backoff_min: recovery.backoff_min.get(),
            backoff_max: recovery.backoff_max.get(),
            ..Policy::default()
        },
        lock_wait,
        around_commit: [
            || faults::hit("store.commit.before"),
            || faults::hit("store.commit.after"),
        ],
        around_key: [
            || faults::hit("store.key.before"),
            || faults::hit("store.key.after"),
        ],
        ..StoreOptions::new(data_dir)
    };
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(options))
        .await
        .map_err(|_| {
            // What a panic says is for raw standard error alone.
            let text = "opening the store failed: the broker panicked over it, or is ending";
            Setback::Lasting(Failure::new(Exit::Store, text.to_owned()))
        })?
        .map_err(store_setback)?;
    if opened.key_created {
        tracing::info!("a key file was made: keep a copy of it, apart from the database's");
    }
    Ok(opened.store)
}

fn store_setback(error: StoreError) -> Setback {
    let text = error.to_string();
    let failed = |exit, hint: &str| Failure::new(exit, text.clone()).hint(hint);
    match error {
        StoreError::Locked(_) => Setback::Final(failed(
            Exit::Locked,
            "end that broker, or give this one a data_dir of its own: `fuser` names the process that holds the folder's file `lock`; one whose warden is dead and that does not end by itself hangs: SIGKILL, its runs go on. --lock-wait sets how long to wait",
        )),
        StoreError::WrongKey(_) => Setback::Lasting(failed(
            Exit::WrongKey,
            "put the right key file in its place; the broker goes on by itself. Nothing was changed",
        )),
        StoreError::NewerSchema { .. } => Setback::Lasting(failed(
            Exit::Store,
            "run the newer release. Nothing was changed",
        )),
        StoreError::Damaged(_) | StoreError::Unreadable(_) => Setback::Lasting(failed(
            Exit::Store,
            "restore the database from a backup; the broker goes on by itself",
        )),
        StoreError::Full(_) => Setback::Lasting(failed(
            Exit::Store,
            "make room on its disk; the broker goes on by itself",
        )),
        StoreError::Unavailable(_)
        | StoreError::Overloaded
        | StoreError::Unknown(_)
        | StoreError::Illegal(_)
        | StoreError::Panicked(_) => {
            Setback::Lasting(failed(Exit::Store, "the broker tries again by itself"))
        }
    }
}

fn io_setback(data_dir: &Path, error: &io::Error) -> Setback {
    let failure = folder::unusable(data_dir, error);
    if folder::is_final(error) {
        Setback::Final(failure)
    } else {
        Setback::Lasting(failure)
    }
}

/// The users that the configuration names; none where it leaves that to the broker.
pub(super) fn configured_users(config: &Config) -> Result<Vec<User>, Failure> {
    let users = config.osb.users.iter().map(|configured| {
        let password = match &configured.password {
            config::Password::Hash(hash) => Password::Argon2id(hash.clone().into()),
            config::Password::File(path) => {
                let line = secrets::read_line(path).map_err(|error| {
                    Failure::usage(format!("password file {}: {error}", path.display()))
                })?;
                Password::Plain(line.into())
            }
        };
        user(&configured.name, password)
    });
    users.collect()
}

/// Who may ask, and the generated password if it was made just now.
fn users(
    configured: &[User],
    data_dir: &Path,
) -> Result<(Vec<User>, Option<secrecy::SecretString>), Setback> {
    if !configured.is_empty() {
        return Ok((configured.to_vec(), None));
    }
    let secret = stored::osb_password(data_dir).map_err(|error| io_setback(data_dir, &error))?;
    let user = user(files::GENERATED_USER, Password::Plain(secret.text.clone()))
        .map_err(Setback::Final)?;
    Ok((vec![user], secret.new.then_some(secret.text)))
}

fn user(name: &str, password: Password) -> Result<User, Failure> {
    let name =
        Platform::new(name).map_err(|error| Failure::usage(format!("osb.users: {error}")))?;
    Ok(User { name, password })
}

fn open_root(config: &Config, data_dir: &Path) -> Result<RunRoot, Setback> {
    let path = data_dir.join("run");
    let root = RunRoot::open(&path, &RealWorld.id().to_string()).map_err(unusable_root)?;
    if config.process.run_as.is_some() {
        let (runs, state) = (path.join("runs"), data_dir.join("state"));
        for folder in [data_dir, &path, &runs, &state] {
            folder::let_pass(folder).map_err(|error| io_setback(data_dir, &error))?;
        }
    }
    Ok(root)
}

fn is_full(error: &evenkeel_run::RunError) -> bool {
    matches!(error, evenkeel_run::RunError::Io { source, .. } if folder::is_full(source))
}

fn unusable_root(error: evenkeel_run::RunError) -> Setback {
    let failure = Failure::new(Exit::DataDir, format!("cannot use the run root: {error}"));
    // All others say that the root is foreign, malformed, or where no lock proves a life.
    if let evenkeel_run::RunError::Io { source, .. } = &error
        && !folder::is_final(source)
    {
        let hint = if folder::is_full(source) {
            "make room on its disk; the broker goes on by itself"
        } else {
            "the broker tries again by itself"
        };
        return Setback::Lasting(failure.hint(hint));
    }
    Setback::Final(failure)
}

fn process_options(process: &config::Process) -> ProcessOptions {
    ProcessOptions {
        shim_env: faults::environment(),
        containment: match process.containment {
            config::Containment::Auto => ContainmentWish::Auto,
            config::Containment::Pidns => ContainmentWish::Pidns,
            config::Containment::Cgroup => ContainmentWish::Cgroup,
            config::Containment::Sweep => ContainmentWish::Sweep,
        },
        run_as: process.run_as.as_ref().map(|user| RunAs {
            uid: user.uid,
            gid: user.gid,
        }),
        silent_after: process.silent_after.get(),
        ..ProcessOptions::default()
    }
}
