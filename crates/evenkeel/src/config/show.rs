//! The effective configuration as a file: every key with the value that it has, secrets hidden.

use super::raw::{
    RawAdmin, RawConfig, RawJobs, RawOsb, RawProcess, RawRecovery, RawServe, RawShutdown, RawStore,
    RawUser,
};
use super::{Config, Password};

/// What stands for a secret.
const HIDDEN: &str = "(hidden)";

impl Config {
    /// As TOML.
    pub(crate) fn show(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&self.to_raw())
    }

    fn to_raw(&self) -> RawConfig {
        RawConfig {
            data_dir: self.data_dir.clone(),
            bundles: Some(self.bundles.clone()),
            namespace: self.namespace,
            osb: RawOsb {
                listen: self.osb.listen.to_string(),
                sync_limit: self.osb.sync_limit,
                deleted_as: self.osb.deleted_as,
                isolate_platforms: self.osb.isolate_platforms,
                users: self.osb.users.iter().map(user).collect(),
            },
            admin: RawAdmin {
                listen: self.admin_listen.to_string(),
            },
            store: RawStore {
                url: format!("sqlite:{}", self.store.display()),
            },
            jobs: RawJobs {
                concurrency: self.jobs.concurrency,
                per_service: Some(self.jobs.per_service),
                timeout: self.jobs.timeout,
                deadline: self.jobs.deadline,
                retention: self.jobs.retention,
            },
            process: RawProcess {
                containment: self.process.containment,
                run_as: self.process.run_as.as_ref().map(|user| user.text.clone()),
                grace: self.process.grace,
                silent_after: self.process.silent_after,
            },
            recovery: RawRecovery {
                crash_limit: self.recovery.crash_limit,
                loss_limit: self.recovery.loss_limit,
                backoff_min: self.recovery.backoff_min,
                backoff_max: self.recovery.backoff_max,
                hold_after: self.recovery.hold_after,
                hold_quiet: self.recovery.hold_quiet,
            },
            serve: RawServe {
                watchdog: self.watchdog.into(),
                restart_pause: self.restart_pause,
            },
            shutdown: RawShutdown {
                on_shutdown: self.on_shutdown,
                drain_limit: self.drain_limit,
            },
        }
    }
}

fn user(user: &super::User) -> RawUser {
    let (password_file, password_hash) = match &user.password {
        Password::File(path) => (Some(path.clone()), None),
        Password::Hash(_) => (None, Some(HIDDEN.to_owned())),
    };
    RawUser {
        name: user.name.clone(),
        password_file,
        password_hash,
    }
}
