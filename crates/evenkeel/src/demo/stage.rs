//! The demo's own folder: a bundle, a configuration, and a real `serve` that works in it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::cli::{AdminArgs, Format, Local};
use crate::commands::admin::AdminClient;
use crate::fail::{Exit, Failure};
use crate::output::shown;
use crate::{files, ids};

/// Charged crashes, and deaths in isolation, that set a job aside: the defaults.
pub(super) const CRASH_LIMIT: u32 = 3;
pub(super) const LOSS_LIMIT: u32 = 3;
/// Runs at once.
const CONCURRENCY: u32 = 16;
/// The demo's one service; each plan has its name as its id.
pub(super) const SERVICE: &str = "evenkeel-demo";
/// How the plans behave.
pub(super) const STEADY: &str = "steady";
pub(super) const CRASHES: &str = "crashes";
pub(super) const KILLS_ITS_BROKER: &str = "kills-its-broker";

/// A start on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A shutdown, its drain included.
const GONE_WITHIN: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The folder, and the warden that was started in it. Dropped, both are gone, unless it is kept.
#[derive(Debug)]
pub(super) struct Stage {
    folder: PathBuf,
    warden: Option<Child>,
    pub(super) keep: bool,
}

impl Stage {
    /// Makes the folder and starts a warden.
    ///
    /// # Errors
    /// No folder can be made, or no process started.
    pub(super) fn set() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("evenkeel-demo-{}", ids::fresh()));
        let trouble = |error: io::Error| {
            Failure::new(Exit::Failed, format!("{}: {error}", folder.display()))
                .hint("TMPDIR names another place for the demo's folder")
        };
        let mut stage = Self {
            folder: folder.clone(),
            warden: None,
            keep: false,
        };
        stage.write().map_err(trouble)?;
        let warden = stage.serve().map_err(trouble)?;
        fs::write(stage.file("warden"), format!("{}\n", warden.id())).map_err(trouble)?;
        stage.warden = Some(warden);
        Ok(stage)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(&self.folder)?;
        for name in ["bundle", "locks"] {
            fs::create_dir(self.file(name))?;
        }
        fs::write(self.file("bundle/bundle.yml"), bundle(&self.folder))?;
        let action = self.file("bundle/action");
        fs::write(&action, include_str!("action.sh"))?;
        fs::set_permissions(action, Permissions::from_mode(0o755))?;
        fs::write(self.file("evenkeel.toml"), config(&self.folder))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the demo starts the real program, as a person does"
    )]
    fn serve(&self) -> io::Result<Child> {
        let log = File::create(self.file("broker.log"))?;
        let mut command = Command::new("/proc/self/exe");
        // What a service manager means for the demo is not meant for its broker.
        for name in [
            "LISTEN_FDS",
            "LISTEN_PID",
            "LISTEN_FDNAMES",
            "NOTIFY_SOCKET",
            "WATCHDOG_PID",
            "WATCHDOG_USEC",
        ] {
            command.env_remove(name);
        }
        command
            .arg0("evenkeel")
            .arg("serve")
            .arg("--config")
            .arg(self.file("evenkeel.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A Ctrl-C is the demo's alone: it ends its broker itself.
            .process_group(0)
            .spawn()
    }

    pub(super) fn warden(&self) -> u32 {
        self.warden.as_ref().map_or(0, Child::id)
    }

    /// Waits until the broker serves; gives its OSB address, as `host:port`, and its password.
    ///
    /// # Errors
    /// It does not.
    pub(super) async fn ready(&mut self) -> Result<(String, String), Failure> {
        let data = self.file("data");
        let began = Instant::now();
        loop {
            if let (Ok(url), Ok(password), Ok(_)) = (
                fs::read_to_string(data.join(files::OSB_URL)),
                fs::read_to_string(data.join(files::OSB_PASSWORD)),
                fs::metadata(data.join(files::ADMIN_URL)),
            ) {
                let address = url.trim().trim_start_matches("http://").to_owned();
                return Ok((address, password.trim().to_owned()));
            }
            let ended = match &mut self.warden {
                Some(warden) => warden.try_wait().ok().flatten(),
                None => None,
            };
            if ended.is_some() || began.elapsed() > READY_WITHIN {
                self.keep = true;
                let log = self.file("broker.log");
                let text = fs::read_to_string(&log).unwrap_or_default();
                let last = shown(text.lines().last().unwrap_or("it says nothing"));
                return Err(Failure::new(
                    Exit::Failed,
                    format!("the broker does not start: {last}"),
                )
                .hint(format!("its log is {}", log.display())));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// A client of the admin API, as operators have one.
    ///
    /// # Errors
    /// What the broker left in its data folder is not there.
    pub(super) fn admin(&self) -> Result<AdminClient, Failure> {
        AdminClient::new(&AdminArgs {
            url: None,
            token: None,
            local: Local {
                config: None,
                data_dir: Some(self.file("data")),
            },
            format: Format { json: false },
        })
    }

    /// The lines that actions left under a name.
    pub(super) fn marks(&self, name: &str) -> Vec<String> {
        marks(&self.folder, name)
    }

    /// Keeps something beside the evidence.
    pub(super) fn write_beside(&self, name: &str, text: &str) {
        // The same is on the screen.
        drop(fs::write(self.file(name), text));
    }

    /// Ends the broker, and whatever it has started and not ended.
    fn strike_the_set(&mut self) {
        if let Some(mut warden) = self.warden.take() {
            let pid = warden.id();
            signal(pid, Signal::TERM);
            let ended = within(GONE_WITHIN, || {
                warden.try_wait().is_ok_and(|end| end.is_some())
            });
            if !ended {
                for broker in processes().filter(|id| parent(*id) == Some(pid)) {
                    signal(broker, Signal::KILL);
                }
                drop(warden.kill());
                drop(warden.wait());
            }
        }
        // Runs name the folder in their environment or command line, and nobody else does.
        let mut patience = 50;
        within(GONE_WITHIN, || {
            let left: Vec<_> = processes().filter(|id| names(*id, &self.folder)).collect();
            patience -= 1;
            if patience < 0 {
                left.iter().for_each(|id| signal(*id, Signal::KILL));
            }
            left.is_empty()
        });
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.strike_the_set();
        if !self.keep {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}

/// The lines that actions left under a name.
pub(super) fn marks(folder: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn bundle(folder: &Path) -> String {
    let mut text = format!(
        "bundle: 1\nservice: {{name: {SERVICE}, id: {SERVICE}, description: Orders of the demo, bindable: true}}\nplans:\n"
    );
    for plan in [STEADY, CRASHES, KILLS_ITS_BROKER] {
        text += &format!("  - {{name: {plan}, id: {plan}, description: A plan}}\n");
    }
    text += "actions:\n";
    for action in ["provision", "deprovision", "bind", "unbind"] {
        text += &format!("  {action}: {{command: [./action], timeout: 1m, async: required}}\n");
    }
    // A JSON string is a YAML string, whatever is in the path.
    text + &format!("env: {{DEMO: {}}}\n", serde_json::json!(folder))
}

/// With short pauses and, because the demo's kills explain themselves, without the hold that a
/// row of unexplained deaths is followed by.
fn config(folder: &Path) -> String {
    let path = |name: &str| toml::Value::from(folder.join(name).display().to_string());
    format!(
        "data_dir = {}\nbundles = [{}]\n\
         [osb]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [jobs]\nconcurrency = {CONCURRENCY}\nper_service = {CONCURRENCY}\n\
         [process]\ncontainment = \"sweep\"\n\
         [recovery]\ncrash_limit = {CRASH_LIMIT}\nloss_limit = {LOSS_LIMIT}\n\
         backoff_min = \"100ms\"\nbackoff_max = \"500ms\"\nhold_after = 100000\n\
         [serve]\nrestart_pause = \"50ms\"\n\
         [shutdown]\non_shutdown = \"drain\"\ndrain_limit = \"3s\"\n",
        path("data"),
        path("bundle"),
    )
}

fn within(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > limit {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    true
}

/// Ids of living processes.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The parent of a process; `None` if it is gone, or only waits to be reaped.
pub(super) fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}

fn names(id: u32, folder: &Path) -> bool {
    let folder = folder.as_os_str().as_encoded_bytes();
    let mentions = |file: &str| {
        fs::read(format!("/proc/{id}/{file}"))
            .is_ok_and(|bytes| bytes.windows(folder.len()).any(|window| window == folder))
    };
    id != std::process::id() && parent(id).is_some() && (mentions("environ") || mentions("cmdline"))
}

fn signal(id: u32, signal: Signal) {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // Who is gone need not be ended.
        kill_process(pid, signal).ok();
    }
}
