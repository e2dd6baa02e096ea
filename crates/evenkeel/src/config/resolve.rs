//! What the keys mean together.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{ConfigError, Locator, Problem};
use super::raw::{RawConfig, RawJobs, RawRecovery, RawUser};
use super::units::{Count, Time, TimeOrNone};
use super::{Config, Jobs, Osb, Password, Process, Recovery, RunAs, User};

/// Platforms wait for 60 s, and take an operation whose answer is later for lost.
const LONGEST_SYNC: Time = Time::from_secs(55);
/// Shims show themselves twice a second.
const LEAST_SILENCE: Time = Time::from_secs(2);

/// Brokers beat once a second.
const LEAST_WATCHDOG: Time = Time::from_secs(3);
/// Nobody is kept waiting longer for a broker that could be there.
const LONGEST_RESTART_PAUSE: Time = Time::from_secs(5);

/// Collects what is wrong, so that one reading tells it all.
struct Judge<'a> {
    locator: &'a Locator<'a>,
    /// What relative paths are relative to.
    folder: PathBuf,
    problems: Vec<Problem>,
}

pub(super) fn resolve(
    file: Option<&Path>,
    raw: RawConfig,
    locator: &Locator<'_>,
) -> Result<Config, ConfigError> {
    let folder = file
        .and_then(Path::parent)
        .unwrap_or(Path::new(""))
        .to_owned();
    let mut judge = Judge {
        locator,
        folder,
        problems: Vec::new(),
    };
    let data_dir = judge.folder.join(&raw.data_dir);
    if raw.data_dir.as_os_str().is_empty() {
        judge.wrong("data_dir", "must not be empty");
    }
    let bundles = match (&raw.bundles, file) {
        (Some(folders), _) => folders.iter().map(|path| judge.folder.join(path)).collect(),
        (None, Some(_)) => vec![judge.folder.join("bundles")],
        // With no configuration at all there still is something to try.
        (None, None) => vec![data_dir.join("examples")],
    };
    let osb_listen = judge.address("osb.listen", &raw.osb.listen);
    let admin_listen = judge.address("admin.listen", &raw.admin.listen);
    if osb_listen == admin_listen && osb_listen.port() != 0 {
        let key = if locator.has("admin.listen") {
            "admin.listen"
        } else {
            "osb.listen"
        };
        judge.wrong(
            key,
            "osb.listen and admin.listen have the same address: each needs its own",
        );
    }
    let store = judge.store(&raw.store.url);
    let config = Config {
        file: file.map(Path::to_owned),
        data_dir,
        bundles,
        namespace: raw.namespace,
        osb: Osb {
            listen: osb_listen,
            sync_limit: judge.sync_limit(raw.osb.sync_limit),
            deleted_as: raw.osb.deleted_as,
            isolate_platforms: raw.osb.isolate_platforms,
            users: judge.users(raw.osb.users),
        },
        admin_listen,
        store,
        jobs: judge.jobs(&raw.jobs),
        process: Process {
            containment: raw.process.containment,
            run_as: raw.process.run_as.and_then(|text| judge.run_as(text)),
            grace: raw.process.grace,
            silent_after: judge.silent_after(raw.process.silent_after),
        },
        recovery: judge.recovery(&raw.recovery),
        watchdog: judge.watchdog(raw.serve.watchdog),
        restart_pause: judge.restart_pause(raw.serve.restart_pause),
        on_shutdown: raw.shutdown.on_shutdown,
        drain_limit: raw.shutdown.drain_limit,
    };
    if judge.problems.is_empty() {
        Ok(config)
    } else {
        Err(ConfigError {
            problems: judge.problems,
        })
    }
}

impl Judge<'_> {
    fn wrong(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(self.locator.problem(key, message));
    }

    fn address(&mut self, key: &str, text: &str) -> SocketAddr {
        text.parse().unwrap_or_else(|_| {
            self.wrong(
                key,
                format!("{text:?} is not an address with a port such as \"127.0.0.1:8080\" or \"[::1]:8080\""),
            );
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    fn store(&mut self, url: &str) -> PathBuf {
        let path = url.strip_prefix("sqlite:").unwrap_or_default();
        if path.is_empty() {
            // The URL itself is not repeated: it may hold a password.
            let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
            self.wrong(
                "store.url",
                match scheme {
                    "sqlite" => "names no file: \"sqlite:evenkeel.db\"",
                    "postgres" | "postgresql" => {
                        "PostgreSQL is not served by this release: use \"sqlite:evenkeel.db\""
                    }
                    _ => "is not the URL of a store such as \"sqlite:evenkeel.db\"",
                },
            );
        }
        path.into()
    }

    fn users(&mut self, raw: Vec<RawUser>) -> Vec<User> {
        let mut names = BTreeSet::new();
        let mut users = Vec::new();
        for (index, user) in raw.into_iter().enumerate() {
            let key = |name: &str| format!("osb.users[{index}]{name}");
            if user.name.is_empty()
                || user.name.len() > 255
                || user.name.contains(|c: char| c == ':' || c.is_control())
            {
                // RFC 7617, section 2: a user-id with a colon cannot be sent.
                self.wrong(
                    &key(".name"),
                    "must have 1 to 255 bytes, without a colon or a control character",
                );
            }
            if !names.insert(user.name.clone()) {
                self.wrong(&key(".name"), format!("{:?} is there twice", user.name));
            }
            let password = match (user.password_file, user.password_hash) {
                (Some(path), None) => Password::File(self.folder.join(path)),
                (None, Some(hash)) => {
                    if let Err(why) = evenkeel_server::auth::check_hash(&hash) {
                        self.wrong(&key(".password_hash"), why.to_string());
                    }
                    Password::Hash(hash)
                }
                (Some(_), Some(_)) | (None, None) => {
                    self.wrong(&key(""), "needs either password_file or password_hash");
                    continue;
                }
            };
            users.push(User {
                name: user.name,
                password,
            });
        }
        users
    }

    fn jobs(&mut self, raw: &RawJobs) -> Jobs {
        let RawJobs {
            concurrency,
            per_service,
            timeout,
            deadline,
            retention,
        } = *raw;
        if per_service.is_some_and(|per_service| per_service > concurrency) {
            self.wrong(
                "jobs.per_service",
                format!(
                    "must not be more than jobs.concurrency, which is {}",
                    concurrency.get()
                ),
            );
        }
        if timeout > deadline {
            self.wrong(
                "jobs.timeout",
                format!("{timeout} is longer than jobs.deadline, which is {deadline}"),
            );
        }
        Jobs {
            concurrency,
            per_service: per_service.unwrap_or(Count::quarter_of(concurrency)),
            timeout,
            deadline,
            retention,
        }
    }

    fn recovery(&mut self, raw: &RawRecovery) -> Recovery {
        let RawRecovery {
            crash_limit,
            loss_limit,
            backoff_min,
            backoff_max,
            hold_after,
            hold_quiet,
        } = *raw;
        if backoff_min > backoff_max {
            self.wrong(
                "recovery.backoff_min",
                format!(
                    "{backoff_min} is longer than recovery.backoff_max, which is {backoff_max}"
                ),
            );
        }
        Recovery {
            crash_limit,
            loss_limit,
            backoff_min,
            backoff_max,
            hold_after,
            hold_quiet,
        }
    }

    fn sync_limit(&mut self, sync_limit: Time) -> Time {
        if sync_limit > LONGEST_SYNC {
            self.wrong(
                "osb.sync_limit",
                format!("{sync_limit} is longer than platforms wait: at most {LONGEST_SYNC}; what takes longer is asynchronous"),
            );
        }
        sync_limit
    }

    fn silent_after(&mut self, silent_after: Time) -> Time {
        if silent_after < LEAST_SILENCE {
            self.wrong(
                "process.silent_after",
                format!("{silent_after} is too short to tell a busy host from a supervisor that is stuck: at least {LEAST_SILENCE}"),
            );
        }
        silent_after
    }

    fn watchdog(&mut self, watchdog: TimeOrNone) -> Option<Duration> {
        let time = watchdog.get()?;
        if time < LEAST_WATCHDOG {
            self.wrong(
                "serve.watchdog",
                format!("{time} is too short to tell a busy broker from one that is stuck: at least {LEAST_WATCHDOG}, or \"0s\" for none"),
            );
        }
        Some(time.get())
    }

    fn restart_pause(&mut self, pause: Time) -> Time {
        if pause > LONGEST_RESTART_PAUSE {
            self.wrong(
                "serve.restart_pause",
                format!("{pause} is too long: at most {LONGEST_RESTART_PAUSE}"),
            );
        }
        pause
    }

    fn run_as(&mut self, text: String) -> Option<RunAs> {
        let numbers = text
            .split_once(':')
            .map(|(uid, gid)| (uid.parse(), gid.parse()));
        let found = match numbers {
            Some((Ok(uid), Ok(gid))) => Some((uid, gid)),
            Some(_) => None,
            None => passwd_entry(&text),
        };
        let Some((uid, gid)) = found else {
            self.wrong(
                "process.run_as",
                format!("{text:?} is neither a user of /etc/passwd nor UID:GID in numbers"),
            );
            return None;
        };
        Some(RunAs { text, uid, gid })
    }
}

/// User and group id of a user, by passwd(5).
fn passwd_entry(name: &str) -> Option<(u32, u32)> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (login, _password, uid, gid) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        (login == name).then_some((uid.parse().ok()?, gid.parse().ok()?))
    })
}
