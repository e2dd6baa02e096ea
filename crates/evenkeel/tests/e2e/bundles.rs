//! Every plan of the fault bundle comes to the end that its README tells, costs itself, and
//! leaves nothing running.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Broker, Setup, eventually, marks, root};
use crate::stage::copy_faults;

/// How a plan ends: the job's state, the words for its attempts' ends, and what the reason of the
/// last one says.
type End = (&'static str, &'static [&'static str], &'static str);

const CRASHES: &[&str] = &["crashed", "crashed", "crashed"];
const NO_PROOF: &str = "nothing proves why";
const BAD_OUTPUT: &[End] = &[("failed", &["failed"], "what it wrote cannot be used")];
const TIMEOUT: &[End] = &[("failed", &["failed"], "longer than its timeout")];
const DONE: &[End] = &[("succeeded", &["succeeded"], "succeeded")];

/// The table "Ends" of tests/bundles/faults/README.md, where a run has a PID namespace of its
/// own. Several ends: it depends on the host's limits which one strikes first.
const ENDS: &[(&str, &[End])] = &[
    ("ok", DONE),
    ("exit1", &[("failed", &["failed"], "exit code 1")]),
    (
        "exit1-message",
        &[("failed", &["failed"], "Out of teapots.")],
    ),
    ("exit139", &[("failed", &["failed"], "exit code 139")]),
    (
        "later",
        &[(
            "succeeded",
            &["try_later", "try_later", "succeeded"],
            "succeeded",
        )],
    ),
    (
        "later-forever",
        &[(
            "failed",
            &["try_later", "try_later", "try_later", "try_later"],
            "exit code 75",
        )],
    ),
    ("abort", &[("quarantined", CRASHES, "SIGABRT")]),
    ("segfault", &[("quarantined", CRASHES, "SIGSEGV")]),
    ("segv-signal", &[("quarantined", CRASHES, "SIGSEGV")]),
    ("kill-self", &[("quarantined", CRASHES, NO_PROOF)]),
    ("term-self", &[("quarantined", CRASHES, NO_PROOF)]),
    ("kill-parent", DONE),
    ("kill-all", DONE),
    ("hang", TIMEOUT),
    ("ignore-term", TIMEOUT),
    ("stop-self", TIMEOUT),
    ("spin", &[("quarantined", CRASHES, "processor time")]),
    ("flood", DONE),
    ("flood-progress", DONE),
    (
        "memory",
        &[
            ("failed", &["failed"], "exit code 1"),
            ("quarantined", CRASHES, "memory"),
        ],
    ),
    (
        "memory-tree",
        &[
            ("quarantined", CRASHES, "memory"),
            ("failed", &["failed"], "exit code 137"),
        ],
    ),
    (
        "fork-bomb",
        &[
            ("failed", &["failed"], "longer than its timeout"),
            (
                "failed",
                &["failed"],
                "nothing caps the number of processes",
            ),
        ],
    ),
    (
        "disk",
        &[
            ("quarantined", CRASHES, "limit of disk"),
            ("failed", &["failed"], "longer than its timeout"),
        ],
    ),
    (
        "disk-unlinked",
        &[
            ("quarantined", CRASHES, "limit of disk"),
            ("quarantined", CRASHES, "SIGXFSZ"),
            ("failed", &["failed"], "longer than its timeout"),
        ],
    ),
    ("leave-children", DONE),
    ("escape", DONE),
    ("output-broken", BAD_OUTPUT),
    ("output-array", BAD_OUTPUT),
    ("output-type", BAD_OUTPUT),
    ("output-deep", BAD_OUTPUT),
    ("output-bytes", BAD_OUTPUT),
    ("output-huge", BAD_OUTPUT),
    (
        "output-sparse",
        &[
            ("failed", &["failed"], "exit code 153"),
            ("failed", &["failed"], "what it wrote cannot be used"),
        ],
    ),
    ("output-symlink", BAD_OUTPUT),
    ("output-fifo", BAD_OUTPUT),
    ("output-folder", BAD_OUTPUT),
    (
        "output-device",
        &[
            ("failed", &["failed"], "what it wrote cannot be used"),
            ("failed", &["failed"], "exit code 1"),
        ],
    ),
];

/// The most that was seen while plans ran.
#[derive(Default, Debug)]
struct Peaks {
    processes: usize,
    disk: u64,
    shim: u64,
}

/// Bytes that a folder takes on its disk.
fn disk_use(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.path(), fs::symlink_metadata(entry.path()).ok()?)))
        .map(|(path, meta)| {
            let inside = if meta.is_dir() { disk_use(&path) } else { 0 };
            inside + meta.blocks() * 512
        })
        .sum()
}

/// A line of /proc/PID/status, in bytes.
fn memory(pid: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line));
    let kib = found.map(|text| text.trim().trim_end_matches(" kB").parse::<u64>().unwrap());
    kib.unwrap_or(0) << 10
}

fn is_shim(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .any(|argument| argument == b"shim")
}

impl Peaks {
    fn look(&mut self, broker: &Broker) {
        let processes = broker.run_processes();
        self.processes = self.processes.max(processes.len());
        self.disk = self.disk.max(disk_use(&broker.data()));
        let shims = processes.into_iter().filter(|pid| is_shim(*pid));
        let largest = shims.map(|pid| memory(pid, "VmHWM:")).max();
        self.shim = self.shim.max(largest.unwrap_or(0));
    }

    /// Looks until it is told that it is over.
    fn watch(broker: &Broker, over: &AtomicBool) -> Self {
        let mut peaks = Self::default();
        while !over.load(Ordering::SeqCst) {
            peaks.look(broker);
            std::thread::sleep(std::time::Duration::from_millis(150));
        }
        peaks
    }
}

/// An instance of a plan, its job and its marks.
struct Ordered {
    id: String,
    job: String,
    of: (String, String),
}

async fn order(broker: &Broker, scratch: &Path, id: &str, plan: &str) -> Ordered {
    let folder = scratch.join(id);
    fs::create_dir(&folder).unwrap();
    let of = broker.ids("faults", plan).await;
    let parameters = json!({"marks": folder, "lock": folder.join("lock")});
    let job = broker.provision(id, &of, parameters).await.operation();
    Ordered {
        id: id.to_owned(),
        job,
        of,
    }
}

/// The job once it is final.
async fn ended(broker: &Broker, ordered: &Ordered) -> Value {
    eventually(&format!("{} ends", ordered.id), || async {
        let job = broker.job(&ordered.job).await;
        let state = job["state"].as_str().unwrap();
        let is_final = ["succeeded", "failed", "quarantined", "cancelled"].contains(&state);
        is_final.then_some(job)
    })
    .await
}

fn is_end(job: &Value, end: &End) -> bool {
    let (state, words, reason) = end;
    let history = job["history"].as_array().unwrap();
    let last = history
        .last()
        .and_then(|attempt| attempt["reason"].as_str());
    job["state"] == *state
        && history
            .iter()
            .map(|attempt| &attempt["end"])
            .eq(words.iter())
        && last.is_some_and(|text| text.contains(reason))
}

/// What is wrong with the end of a job, if anything.
fn mistakes(job: &Value, plan: &str, ends: &[End], marks: &[String]) -> Option<String> {
    let history = job["history"].as_array().unwrap();
    let mut wrong = Vec::new();
    if !ends.iter().any(|end| is_end(job, end)) {
        wrong.push("not an end that is documented");
    }
    let crashed = |attempt: &&Value| attempt["end"] == "crashed";
    if history
        .iter()
        .any(|attempt| crashed(&attempt) != (attempt["charge"] == "crash"))
    {
        wrong.push("charges do not fit");
    }
    if plan.ends_with("-self") && job["state"] == "quarantined" {
        let alone = history.last().is_some_and(|last| last["solo"] == true);
        if !alone {
            wrong.push("condemned without proof in company");
        }
    }
    // A success leaves a line in `ends` too, whether or not the broker could use its output.
    let starts = marks.iter().collect::<std::collections::BTreeSet<_>>();
    let starts = starts
        .iter()
        .filter(|mark| mark.starts_with("provision "))
        .count();
    if history.len() != starts {
        wrong.push("starts and attempts differ");
    }
    (!wrong.is_empty()).then(|| format!("{plan}: {wrong:?}\n{marks:#?}\n{job:#}"))
}

/// Plans that only the timeout of 20 s ends, or that hold on until somebody measures them.
const ENDLESS: [&str; 6] = [
    "hang",
    "ignore-term",
    "stop-self",
    "fork-bomb",
    "disk",
    "disk-unlinked",
];

type Plans = Vec<&'static (&'static str, &'static [End])>;

/// The plans that are, or are not, endless.
fn plans(endless: bool) -> Plans {
    let wanted = |plan: &&(&str, _)| ENDLESS.contains(&plan.0) == endless;
    ENDS.iter().filter(wanted).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_fault_comes_to_its_documented_end_within_bounds_and_its_neighbours_succeed() {
    let folder = tempfile::tempdir().unwrap();
    // No plan comes near this timeout, even on a busy machine.
    let bundle = folder.path().join("faults");
    copy_faults(&bundle, "5m");
    let setup = Setup {
        bundles: vec![bundle],
        ..Setup::default()
    };
    let scratch = tempfile::tempdir().unwrap();
    let (broker, jobs) = come_to_their_ends(setup, scratch.path(), plans(false)).await;
    let told = &jobs["exit1-message"].0;
    let path = format!(
        "/v2/service_instances/{}/last_operation?operation={}",
        told.id, told.job
    );
    let poll = broker.osb(Method::GET, &path, None).await;
    assert_eq!(poll.body["description"], "Out of teapots.");
    let flood = &jobs["flood"].0.job;
    let path = format!("/admin/v1/jobs/{flood}/log?bytes=1048576");
    let log = broker.admin(Method::GET, &path).await;
    for stream in ["stdout", "stderr"] {
        let text = log.body[stream]["text"].as_str().unwrap();
        assert!(
            !text.is_empty() && text.len() <= 64 << 10,
            "{stream}: {} bytes",
            text.len()
        );
        assert_eq!(log.body[stream]["cut"], true, "{stream}");
    }
    all_are_deleted(&broker, &jobs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_fault_without_an_end_is_ended_within_bounds_and_its_neighbours_succeed() {
    let scratch = tempfile::tempdir().unwrap();
    let setup = Setup::faults_bundle();
    let (broker, jobs) = come_to_their_ends(setup, scratch.path(), plans(true)).await;
    all_are_deleted(&broker, &jobs).await;
}

type Jobs = BTreeMap<String, (Ordered, Value)>;

/// Has these plans run side by side, with neighbours, and looks at what became of them, of the
/// broker and of the host.
async fn come_to_their_ends(setup: Setup, scratch: &Path, plans: Plans) -> (Broker, Jobs) {
    let setup = setup.with_toml(
        "[jobs]\nconcurrency = 24\nper_service = 24\n[process]\ncontainment = \"pidns\"",
    );
    let mut broker = Broker::start(setup).await;
    let pid = broker.pid();
    let over = AtomicBool::new(false);
    let (jobs, peaks) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| Peaks::watch(&broker, &over));
        let runtime = tokio::runtime::Handle::current();
        let jobs = tokio::task::block_in_place(|| {
            // Whatever happens, the watcher ends: the scope waits for it.
            let work = runtime.block_on(to_its_end(all_plans(&broker, scratch, &plans)));
            over.store(true, Ordering::SeqCst);
            work
        });
        (jobs, watching.join().unwrap())
    });
    let jobs = jobs.unwrap_or_else(|panic| std::panic::resume_unwind(panic));

    let mut wrong = Vec::new();
    for (plan, ends) in plans {
        let (ordered, job) = &jobs[*plan];
        let folder = scratch.join(&ordered.id);
        wrong.extend(mistakes(job, plan, ends, &marks(&folder)));
        if folder.join("DOUBLE").exists() {
            wrong.push(format!("{plan}: two runs at once\n{job:#}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(broker.is_alive());
    assert_eq!(broker.pid(), pid);

    // 24 at once, one of which is a fork bomb of 64 processes and the others a dozen at most.
    assert!(peaks.processes <= 64 + 24 * 12, "{peaks:?}");
    // 256 MiB at most may be written before a measurement finds them; twice, and all the rest.
    assert!(peaks.disk < 768 << 20, "{peaks:?}");
    assert!(peaks.shim < 64 << 20, "{peaks:?}");
    let memory = memory(pid, "VmHWM:");
    assert!(memory < 384 << 20, "the broker took {} MiB", memory >> 20);
    bounded_texts(&broker, &jobs).await;
    (broker, jobs)
}

async fn all_are_deleted(broker: &Broker, jobs: &Jobs) {
    let mut gone = Vec::new();
    for (ordered, _) in jobs.values() {
        let asked = broker.deprovision(&ordered.id, &ordered.of).await;
        gone.push((&ordered.id, asked.operation()));
    }
    for (id, operation) in gone {
        broker.succeeded(id, None, &operation).await;
    }
    broker.nothing_left().await;
    let left = disk_use(&broker.data().join("run"));
    assert!(
        left < 32 << 20,
        "{left} bytes are left of runs that have ended"
    );
}

/// Runs a future to its end or to its panic.
async fn to_its_end<T>(
    future: impl Future<Output = T>,
) -> Result<T, Box<dyn std::any::Any + Send>> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        let poll = std::panic::AssertUnwindSafe(|| future.as_mut().poll(context));
        match std::panic::catch_unwind(poll) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// Orders an instance of every plan and neighbours in between; gives all that is not a neighbour,
/// at its end.
async fn all_plans(broker: &Broker, scratch: &Path, plans: &Plans) -> Jobs {
    let mut ordered = Vec::new();
    let mut neighbours = Vec::new();
    for (n, (plan, _)) in plans.iter().enumerate() {
        ordered.push((*plan, order(broker, scratch, plan, plan).await));
        if n % 3 == 0 {
            let id = format!("neighbour-{n}");
            neighbours.push(order(broker, scratch, &id, "ok").await);
        }
    }
    for neighbour in &neighbours {
        let job = ended(broker, neighbour).await;
        assert_eq!(job["state"], "succeeded", "{job:#}");
        assert_eq!(job["attempts"], 1, "{job:#}");
        let marks = marks(&scratch.join(&neighbour.id));
        assert_eq!(marks.len(), 2, "one start and one end: {marks:?}");
    }
    // Those that have to run alone wait for all others, and so does this.
    ordered.sort_by_key(|(plan, _)| plan.ends_with("-self"));
    let mut jobs = BTreeMap::new();
    for (plan, order) in ordered {
        let job = ended(broker, &order).await;
        jobs.insert(plan.to_owned(), (order, job));
    }
    jobs
}

/// What platforms and operators are told is bounded, and says no more than it should.
async fn bounded_texts(broker: &Broker, jobs: &Jobs) {
    for (plan, (ordered, job)) in jobs {
        let path = format!(
            "/v2/service_instances/{}/last_operation?operation={}",
            ordered.id, ordered.job
        );
        let poll = broker.osb(Method::GET, &path, None).await;
        let text = poll.body["description"].as_str().unwrap().to_owned();
        assert!(
            text.len() < 4096,
            "{plan}: {} bytes of description",
            text.len()
        );
        match job["state"].as_str().unwrap() {
            "succeeded" => assert_eq!(poll.body["state"], "succeeded", "{plan}: {poll:?}"),
            _ => {
                assert_eq!(poll.body["state"], "failed", "{plan}: {poll:?}");
                let own = ["exit1-message", "fork-bomb", "output-device"].contains(&plan.as_str());
                assert!(own || text.contains(&ordered.job), "{plan}: {text}");
            }
        }
        assert!(
            job.to_string().len() < 32 << 10,
            "{plan}: {} bytes",
            job.to_string().len()
        );
    }
}

/// Where a run has no PID namespace of its own: children that were left, and a parent that is
/// the shim itself.
async fn weaker_containment(level: &str, plans: &[(&str, &[End])]) {
    let toml = format!("[process]\ncontainment = \"{level}\"");
    let mut broker = Broker::start(Setup::faults_bundle().with_toml(&toml)).await;
    let pid = broker.pid();
    let scratch = tempfile::tempdir().unwrap();
    let mut ordered = Vec::new();
    for (plan, ends) in plans {
        ordered.push((plan, ends, order(&broker, scratch.path(), plan, plan).await));
    }
    for (plan, ends, order) in ordered {
        let job = ended(&broker, &order).await;
        assert!(
            ends.iter().any(|end| is_end(&job, end)),
            "{level}: {plan}: {job:#}"
        );
        let held = &job["history"][0]["containment"];
        assert!(held == level || held.is_null(), "{level}: {plan}: {job:#}");
        let folder = scratch.path().join(plan);
        assert!(
            !folder.join("DOUBLE").exists(),
            "{level}: {plan}: two runs at once: {job:#}"
        );
    }
    broker.nothing_left().await;
    assert!(broker.is_alive());
    assert_eq!(broker.pid(), pid);
}

const PARENT_GONE: &[End] = &[("quarantined", CRASHES, NO_PROOF)];

#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_ends_what_a_run_leaves_behind_and_what_hides() {
    weaker_containment(
        "cgroup",
        &[
            ("ok", DONE),
            ("leave-children", DONE),
            ("escape", DONE),
            ("kill-parent", PARENT_GONE),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_ends_what_a_run_leaves_behind() {
    weaker_containment(
        "sweep",
        &[
            ("ok", DONE),
            ("leave-children", DONE),
            ("kill-parent", PARENT_GONE),
        ],
    )
    .await;
}

#[test]
fn every_plan_of_the_bundle_has_an_end_here() {
    let yaml = fs::read_to_string(root().join("tests/bundles/faults/bundle.yml")).unwrap();
    let plans = yaml
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- {name: "));
    let plans: Vec<_> = plans.map(|rest| rest.split(',').next().unwrap()).collect();
    let ends: Vec<_> = ENDS.iter().map(|(plan, _)| *plan).collect();
    assert_eq!(plans, ends);
}
