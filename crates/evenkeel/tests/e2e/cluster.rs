//! A PostgreSQL server of a test's own: in a temporary folder, on a free port of 127.0.0.1 and a
//! Unix socket, run by the user `postgres` because `initdb` refuses root, ended by its pid.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Broker, PATIENCE, pid};

/// Needs every kind of quoting: URIs, password files, shells.
pub(crate) const ADMIN_PASSWORD: &str = "s3cr:et/ü @%MARKER";
/// The same as a URI says it.
pub(crate) const ADMIN_PASSWORD_IN_URI: &str = "s3cr%3aet%2F%c3%bc%20%40%25MARKER";

const ADMIN: &str = "admin";

/// A running server.
#[derive(Debug)]
pub(crate) struct Cluster {
    dir: TempDir,
    port: u16,
    server: Child,
}

/// Somebody who can log in.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) database: String,
}

impl Login {
    /// From the credentials of a binding.
    pub(crate) fn of(credentials: &Value) -> Self {
        let text = |name: &str| {
            credentials[name]
                .as_str()
                .unwrap_or_else(|| panic!("no {name} in the credentials"))
                .to_owned()
        };
        Self {
            host: text("host"),
            port: u16::try_from(credentials["port"].as_u64().unwrap()).unwrap(),
            user: text("username"),
            password: text("password"),
            database: text("database"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test starts a real server")]
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    // Variables of PostgreSQL's own that the tester happens to have do not count.
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).stdin(Stdio::null());
    command
}

/// What user `postgres` starts. It is interrupted when the test's thread ends in any way.
fn as_postgres(program: &Path) -> Command {
    let mut command = command("setpriv");
    command
        .args([
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--init-groups",
        ])
        .args(["--pdeathsig", "INT"])
        .arg(program);
    command
}

/// The newest release that Debian has installed.
fn programs() -> PathBuf {
    let releases = Path::new("/usr/lib/postgresql");
    let newest = fs::read_dir(releases)
        .expect("PostgreSQL is installed (Debian: postgresql)")
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok())
        .max()
        .expect("a release of PostgreSQL is installed");
    releases.join(newest.to_string()).join("bin")
}

fn ids_of_postgres() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .expect("there is a user postgres");
    let field = |number: usize| line.split(':').nth(number).unwrap().parse().unwrap();
    (field(2), field(3))
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("evenkeel-postgres-")
            .tempdir()
            .unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let (user, group) = ids_of_postgres();
        let home = dir.path().join("pg");
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&home, Some(user), Some(group)).unwrap();
        let password = home.join("password");
        fs::write(&password, format!("{ADMIN_PASSWORD}\n")).unwrap();
        chown(&password, Some(user), Some(group)).unwrap();
        let made = as_postgres(&programs().join("initdb"))
            .arg("-D")
            .arg(home.join("data"))
            .args([
                "-U",
                ADMIN,
                "-A",
                "scram-sha-256",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "-N",
            ])
            .arg(format!("--pwfile={}", password.display()))
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {made:?}");
        let (port, server) = Self::launch(dir.path(), &home);
        let cluster = Self { dir, port, server };
        cluster.write_pass_file("admin", &cluster.admin());
        cluster
    }

    /// Starts the server on a free port. Between the look and the use somebody else may take the
    /// port: then it ends at once, and another is tried.
    fn launch(dir: &Path, home: &Path) -> (u16, Child) {
        let log = dir.join("server.log");
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let out = fs::File::create(&log).unwrap();
            let mut server = as_postgres(&programs().join("postgres"))
                .arg("-D")
                .arg(home.join("data"))
                .arg("-k")
                .arg(home)
                .args(["-h", "127.0.0.1", "-p", &port.to_string()])
                .args(["-c", "fsync=off", "-c", "log_statement=all"])
                .stdout(out.try_clone().unwrap())
                .stderr(out)
                .spawn()
                .unwrap();
            let started = Instant::now();
            while server.try_wait().unwrap().is_none() {
                let ready = command(programs().join("pg_isready"))
                    .args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()])
                    .status()
                    .unwrap();
                if ready.success() {
                    return (port, server);
                }
                assert!(started.elapsed() < PATIENCE, "the server does not start");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        panic!(
            "PostgreSQL does not start: {}",
            fs::read_to_string(log).unwrap_or_default()
        );
    }

    fn admin(&self) -> Login {
        Login {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            user: ADMIN.to_owned(),
            password: ADMIN_PASSWORD.to_owned(),
            database: "postgres".to_owned(),
        }
    }

    /// As the secret of the bundle names it.
    pub(crate) fn admin_url(&self) -> String {
        format!(
            "postgresql://{ADMIN}:{ADMIN_PASSWORD_IN_URI}@127.0.0.1:{}/postgres",
            self.port
        )
    }

    /// Puts the admin URL where the bundle looks for it.
    pub(crate) fn introduce_to(&self, broker: &Broker) {
        let secrets = broker.data().join("secrets");
        fs::create_dir_all(&secrets).unwrap();
        let mut file = fs::File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(secrets.join("postgres-admin-url"))
            .unwrap();
        writeln!(file, "{}", self.admin_url()).unwrap();
    }

    fn write_pass_file(&self, name: &str, login: &Login) -> PathBuf {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
        let line = format!(
            "{}:{}:*:{}:{}\n",
            escaped(&login.host),
            login.port,
            escaped(&login.user),
            escaped(&login.password)
        );
        let path = self.dir.path().join(format!("pgpass-{name}"));
        // Renamed into place: another psql may be about to read it.
        let beside = path.with_extension("new");
        fs::write(&beside, line).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(beside, &path).unwrap();
        path
    }

    /// psql as somebody. The password is in no argument and no variable.
    fn psql(&self, login: &Login) -> Command {
        let pass = self.write_pass_file(&login.user, login);
        let mut psql = command("psql");
        psql.env("PGPASSFILE", pass)
            .args(["-XAtqw", "-v", "ON_ERROR_STOP=1", "-h", &login.host])
            .args([
                "-p",
                &login.port.to_string(),
                "-U",
                &login.user,
                "-d",
                &login.database,
            ]);
        psql
    }

    /// Runs SQL as somebody.
    ///
    /// # Errors
    /// What psql says.
    pub(crate) fn run(&self, login: &Login, sql: &str) -> Result<String, String> {
        let output = self.psql(login).args(["-c", sql]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Runs SQL as the administrator.
    pub(crate) fn query(&self, sql: &str) -> String {
        self.run(&self.admin(), sql).unwrap()
    }

    /// Databases and roles that the bundle has made.
    pub(crate) fn made(&self) -> Vec<String> {
        let sql = "SELECT 'database ' || datname FROM pg_database WHERE datname LIKE 'ek\\_%'
                   UNION ALL SELECT 'role ' || rolname FROM pg_roles WHERE rolname LIKE 'ek\\_%'
                   ORDER BY 1";
        self.query(sql).lines().map(str::to_owned).collect()
    }

    /// How many sessions of actions wait for a lock on the server.
    pub(crate) fn waiting_actions(&self) -> u32 {
        let sql = "SELECT count(*) FROM pg_stat_activity
                   WHERE application_name LIKE 'ek\\_%' AND wait_event_type = 'Lock'";
        self.query(sql).parse().unwrap()
    }

    /// Makes whoever wants to change roles wait, until what is given back is dropped.
    pub(crate) fn hold_roles(&self) -> Held {
        let mut psql = self
            .psql(&self.admin())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = psql.stdin.take().unwrap();
        writeln!(input, "BEGIN; LOCK TABLE pg_authid IN EXCLUSIVE MODE;").unwrap();
        let held = Held {
            psql,
            input: Some(input),
        };
        let sql = "SELECT count(*) FROM pg_locks
                   WHERE relation = 'pg_authid'::regclass AND mode = 'ExclusiveLock' AND granted";
        let started = Instant::now();
        while self.query(sql) != "1" {
            assert!(started.elapsed() < PATIENCE, "the lock is not taken");
            std::thread::sleep(Duration::from_millis(10));
        }
        held
    }

    /// What the server has logged, every statement included.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Fast shutdown: sessions are ended.
        kill_process(pid(self.server.id()), Signal::INT).ok();
        drop(self.server.wait());
    }
}

/// A session that holds a lock.
#[derive(Debug)]
pub(crate) struct Held {
    psql: Child,
    input: Option<ChildStdin>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // End of input ends psql, and that the transaction.
        self.input = None;
        drop(self.psql.wait());
    }
}
