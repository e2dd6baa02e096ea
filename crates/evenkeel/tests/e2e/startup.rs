//! What keeps a broker from starting, or one bundle from being offered: a clear message, and the
//! exit code that docs/config.md promises.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Broker, PATIENCE, Setup, eventually, root};

/// A folder with a configuration of its own.
struct Folder(TempDir);

/// How `serve` ended.
struct End {
    code: Option<i32>,
    said: String,
}

impl Folder {
    fn new(toml: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("evenkeel-startup-")
            .tempdir()
            .unwrap();
        fs::write(dir.path().join("evenkeel.toml"), toml).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `serve` here until it ends by itself. `before` are words in front of the command line.
    fn serve(&self, before: &[&str], after: &[&str]) -> End {
        let mut words: Vec<&str> = before.to_vec();
        words.extend([env!("CARGO_BIN_EXE_evenkeel"), "serve"]);
        words.extend(after);
        let out = fs::File::create(self.path("out")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test runs the real binary")]
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let started = Instant::now();
        loop {
            let said = || fs::read_to_string(self.path("out")).unwrap();
            if let Some(status) = child.try_wait().unwrap() {
                return End {
                    code: status.code(),
                    said: said(),
                };
            }
            if started.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("serve goes on:\n{}", said());
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

const FREE_PORTS: &str = "[osb]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn a_key_that_does_not_exist_is_told_with_file_line_and_column() {
    let toml = "data_dir = \"data\"\n\n[osb]\nlisten = \"127.0.0.1:0\"\n  lissten = \"x\"\n";
    let folder = Folder::new(toml);
    let end = folder.serve(&[], &[]);
    assert_eq!(end.code, Some(2), "{}", end.said);
    let place = "evenkeel.toml:5:3";
    for word in ["error: ", place, "lissten"] {
        assert!(end.said.contains(word), "{word} is not in {}", end.said);
    }
    assert!(!folder.path("data").exists(), "nothing was begun");
}

#[test]
fn a_value_that_is_out_of_range_or_of_the_wrong_kind_is_told_with_its_place() {
    for (toml, words) in [
        (
            "[jobs]\nconcurrency = 0\n",
            ["evenkeel.toml:2:15", "jobs.concurrency", "1 to 100000"],
        ),
        (
            "[jobs]\n\ntimeout = \"soon\"\n",
            ["evenkeel.toml:3:11", "jobs.timeout", "soon"],
        ),
        (
            "[recovery]\ncrash_limit = -1\n",
            ["evenkeel.toml:2:15", "recovery.crash_limit", "-1"],
        ),
        (
            "[process]\ncontainment = \"jail\"\n",
            ["evenkeel.toml:2:15", "process.containment", "jail"],
        ),
    ] {
        let folder = Folder::new(&format!("{toml}{FREE_PORTS}"));
        let end = folder.serve(&[], &[]);
        assert_eq!(end.code, Some(2), "{}", end.said);
        for word in words {
            assert!(end.said.contains(word), "{word} is not in {}", end.said);
        }
    }
}

#[test]
fn a_file_that_is_not_there_or_no_toml_is_told() {
    let folder = Folder::new("data_dir = ");
    let end = folder.serve(&[], &[]);
    assert_eq!(end.code, Some(2), "{}", end.said);
    assert!(end.said.contains("evenkeel.toml:1:"), "{}", end.said);
    let end = folder.serve(&[], &["--config", "nowhere.toml"]);
    assert_eq!(end.code, Some(2), "{}", end.said);
    assert!(end.said.contains("nowhere.toml"), "{}", end.said);
}

#[test]
fn a_port_that_is_taken_is_told_by_its_own_exit_code() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for toml in [
        format!("[osb]\nlisten = \"{address}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n"),
        format!("[osb]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"{address}\"\n"),
    ] {
        let folder = Folder::new(&format!("data_dir = \"data\"\n{toml}"));
        let end = folder.serve(&[], &["--lock-wait", "1"]);
        assert_eq!(end.code, Some(10), "{}", end.said);
        let waited = format!("{address} is in use; waiting up to 1 s");
        assert!(end.said.contains(&waited), "{}", end.said);
        let told = format!("cannot listen on {address}");
        assert!(end.said.contains(&told), "{}", end.said);
        assert!(!folder.path("data").exists(), "nothing was begun");
    }
}

#[test]
fn a_data_folder_that_is_read_only_is_told_by_its_own_exit_code() {
    // A mount of this process's own, gone with it.
    let folder = Folder::new(&format!("data_dir = \"mounted/data\"\n{FREE_PORTS}"));
    fs::create_dir(folder.path("mounted")).unwrap();
    let script = "mount -t tmpfs -o size=1m none mounted && mkdir mounted/data &&
        mount -o remount,ro mounted && exec \"$@\"";
    let end = folder.serve(&["unshare", "--mount", "sh", "-c", script, "sh"], &[]);
    assert_eq!(end.code, Some(11), "{}", end.said);
    for word in ["error: ", "mounted/data", "ead-only"] {
        assert!(end.said.contains(word), "{word} is not in {}", end.said);
    }
}

#[test]
fn a_data_folder_that_is_a_file_is_told_by_its_own_exit_code() {
    let folder = Folder::new(&format!("data_dir = \"data\"\n{FREE_PORTS}"));
    fs::write(folder.path("data"), "").unwrap();
    let end = folder.serve(&[], &[]);
    assert_eq!(end.code, Some(11), "{}", end.said);
    assert!(end.said.contains("data"), "{}", end.said);
}

#[tokio::test]
async fn a_second_broker_on_one_data_folder_is_told_and_the_first_goes_on() {
    let broker = Broker::start(Setup::faults_bundle()).await;
    let data = broker.data().display().to_string();
    let folder = Folder::new(&format!("data_dir = {data:?}\n{FREE_PORTS}"));
    let before = broker.url("osb-url");
    let end = folder.serve(&[], &["--lock-wait", "0"]);
    assert_eq!(end.code, Some(12), "{}", end.said);
    assert!(end.said.contains(&data), "{}", end.said);
    assert_eq!(broker.url("osb-url"), before, "commands find the first one");
    let ok = broker.ids("faults", "ok").await;
    let asked = broker.provision("i", &ok, json!({})).await;
    broker.succeeded("i", None, &asked.operation()).await;
}

#[tokio::test]
async fn a_broker_that_waits_for_the_data_folder_answers_and_takes_over_when_it_is_free() {
    let mut first = Broker::start(Setup::faults_bundle()).await;
    let ok = first.ids("faults", "ok").await;
    let asked = first.provision("i", &ok, json!({})).await;
    let operation = asked.operation();
    first.succeeded("i", None, &operation).await;

    let mut second = Broker::new(Setup {
        data: Some(first.data()),
        ..Setup::faults_bundle()
    });
    second.spawn();
    let osb = eventually("the second one listens", || {
        let log = second.log();
        std::future::ready(log.lines().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == "listening").then(|| line["osb"].as_str().unwrap().to_owned())
        }))
    })
    .await;
    let catalog = format!("http://{osb}/v2/catalog");
    let answer = second.http.get(catalog).send().await.unwrap();
    assert_eq!(answer.status(), 503, "{answer:?}");
    assert!(answer.headers().contains_key("retry-after"), "{answer:?}");
    assert!(second.is_alive());

    assert!(first.terminate().success());
    second.ready().await;
    second.succeeded("i", None, &operation).await;
}

/// A bundle like hello, with another name and one line that is wrong.
fn broken_hello(folder: &Path) -> usize {
    fs::create_dir_all(folder).unwrap();
    for entry in fs::read_dir(root().join("examples/bundles/hello")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    let file = folder.join("bundle.yml");
    let text = fs::read_to_string(&file).unwrap();
    let wrong = text.replace("  bindable: true\n", "  bindable: true\n  colour: blue\n");
    let line = wrong
        .lines()
        .position(|line| line.contains("colour"))
        .unwrap()
        + 1;
    fs::write(file, wrong).unwrap();
    line
}

#[tokio::test]
async fn a_bundle_with_an_unknown_field_is_told_with_its_place_and_the_others_are_served() {
    let mut broker = Broker::new(Setup::faults_bundle());
    let folder = broker.dir.path().join("bundles/broken");
    let line = broken_hello(&folder);
    broker.setup.bundles.push(folder.clone());
    broker.boot().await;

    let catalog = broker.osb(Method::GET, "/v2/catalog", None).await.body;
    let names: Vec<_> = catalog["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|service| service["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["faults"]);
    let place = format!("bundle.yml:{line}:");
    let report = broker.admin(Method::GET, "/admin/v1/catalog").await.body;
    let problem = &report["problems"][0];
    assert_eq!(problem["fatal"], true, "{report}");
    assert_eq!(problem["bundle"], folder.display().to_string(), "{report}");
    let message = problem["message"].as_str().unwrap();
    assert!(
        message.contains(&place) && message.contains("colour"),
        "{message}"
    );
    // Everybody who looks is told: status, /readyz (which stays 200) and the log.
    let status = broker.cli(&["status"]);
    let told = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.status.code(), Some(0), "{told}");
    for text in [told, broker.log()] {
        assert!(text.contains(&place) && text.contains("colour"), "{text}");
    }
    let ready = broker.admin(Method::GET, "/readyz").await;
    assert_eq!(ready.status, 200, "{ready:?}");
    assert!(ready.body.to_string().contains("catalog"), "{ready:?}");

    let ok = broker.ids("faults", "ok").await;
    let asked = broker.provision("i", &ok, json!({})).await;
    broker.succeeded("i", None, &asked.operation()).await;

    // Mended and read again: offered, without a restart.
    let pid = broker.pid();
    fs::copy(
        root().join("examples/bundles/hello/bundle.yml"),
        folder.join("bundle.yml"),
    )
    .unwrap();
    let reloaded = broker.admin(Method::POST, "/admin/v1/reload").await;
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    assert_eq!(reloaded.body["problems"], json!([]), "{reloaded:?}");
    broker.ids("hello", "plain").await;
    assert_eq!(broker.pid(), pid);
    assert!(broker.is_alive());
}
