//! An executor whose runs do what the request's parameters say: `{"<action>": "hold" | "fail"}`,
//! of the instance or of the binding, or succeed at once. `{"write": {…}}` is written as well.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use evenkeel_core::attempt::{Containment, RunEnd, RunReport};
use evenkeel_core::forensics::Forensics;
use evenkeel_core::ids::AttemptId;
use evenkeel_core::request::Outputs;
use evenkeel_core::time::Timestamp;
use evenkeel_executor::{
    Executor, ExecutorError, Handle, LogTail, Probe, RunSpec, Standing, StartError, StreamTail,
    WatchEnd,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

pub(crate) const PASSWORD: &str = "hunter2-of-the-binding";

#[derive(Debug, Default)]
pub(crate) struct Runs(Mutex<HashMap<AttemptId, Run>>, AtomicUsize, Mutex<Value>);

#[derive(Debug)]
struct Run {
    held: Option<Outputs>,
    end: watch::Sender<Option<RunReport>>,
}

impl Runs {
    /// Lets every held run succeed.
    pub(crate) fn release(&self) {
        for run in self.0.lock().unwrap().values_mut() {
            if let Some(outputs) = run.held.take() {
                run.end
                    .send_replace(Some(report(RunEnd::Exited { code: 0 }, outputs)));
            }
        }
    }

    /// The request that the last run was given.
    pub(crate) fn last_request(&self) -> Value {
        self.2.lock().unwrap().clone()
    }

    /// Runs that were started so far.
    pub(crate) fn count(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }

    /// Runs that wait to be released.
    pub(crate) fn held(&self) -> usize {
        let runs = self.0.lock().unwrap();
        runs.values().filter(|run| run.held.is_some()).count()
    }

    fn end_of(&self, attempt: AttemptId) -> Option<watch::Receiver<Option<RunReport>>> {
        self.0
            .lock()
            .unwrap()
            .get(&attempt)
            .map(|run| run.end.subscribe())
    }
}

fn report(end: RunEnd, outputs: Outputs) -> RunReport {
    RunReport {
        end,
        started_at: Some(Timestamp(0)),
        ended_at: Timestamp(1),
        containment: Some(Containment::Sweep),
        peak_memory: Some(4096),
        cpu_millis: Some(2),
        host_oom_grew: false,
        outputs: Ok(outputs),
        progress: Some("all was done".to_owned()),
        forensics: Forensics::default(),
    }
}

fn outputs(request: &Value) -> Outputs {
    let text = |pointer: &str| {
        request
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let written = match text("/action") {
        "provision" => json!({
            "dashboard_url": format!("https://dashboard/{}", text("/plan/name")),
            "metadata": {"labels": {"made": "by a test"}},
            "data": {"private": PASSWORD},
        }),
        "bind" => json!({
            "credentials": {"user": text("/binding/id"), "password": PASSWORD},
            "endpoints": [{"host": "db.example", "ports": ["5432"]}],
            "data": {"made": text("/binding/id")},
        }),
        _ => json!({}),
    };
    let mut written = written;
    if let Some(predecessor) = request.pointer("/binding/predecessor") {
        written["credentials"]["predecessor"] = predecessor.clone();
        written["credentials"]["parameters"] = request["binding"]["parameters"].clone();
        written["credentials"]["bind_resource"] = request["binding"]["bind_resource"].clone();
    }
    // Whatever else a test wants to be written.
    if let Some(more) = request
        .pointer("/binding/parameters/write")
        .or_else(|| request.pointer("/instance/parameters/write"))
    {
        for (name, value) in more.as_object().unwrap() {
            written[name] = value.clone();
        }
    }
    serde_json::from_value(written).unwrap()
}

#[async_trait]
impl Executor for Runs {
    async fn start(&self, spec: RunSpec) -> Result<Handle, StartError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let request: Value = serde_json::from_slice(&spec.request).unwrap();
        self.2.lock().unwrap().clone_from(&request);
        let action = request["action"].as_str().unwrap();
        let of = |target: &str| request[target]["parameters"][action].as_str();
        let made = outputs(&request);
        let (held, end) = match of("binding").or_else(|| of("instance")) {
            Some("hold") => (Some(made), None),
            Some("fail") => {
                let said = Outputs {
                    error_message: Some(format!("no {action} today")),
                    ..Outputs::default()
                };
                (None, Some(report(RunEnd::Exited { code: 1 }, said)))
            }
            Some(other) => panic!("{other:?} is not what a run of these tests can do"),
            None => (None, Some(report(RunEnd::Exited { code: 0 }, made))),
        };
        let run = Run {
            held,
            end: watch::Sender::new(end),
        };
        self.0.lock().unwrap().entry(spec.attempt).or_insert(run);
        Ok(Handle {
            containment: Some(Containment::Sweep),
        })
    }

    async fn standing(&self, attempt: AttemptId) -> Result<Standing, ExecutorError> {
        Ok(match self.probe(attempt).await? {
            Probe::Alive => Standing::Alive,
            Probe::Lingering => Standing::Lingering,
            Probe::NeverStarted | Probe::Exited(_) | Probe::Vanished => Standing::Over,
        })
    }

    async fn is_lost(&self, attempt: AttemptId) -> Result<bool, ExecutorError> {
        Ok(matches!(self.probe(attempt).await?, Probe::Vanished))
    }

    async fn probe(&self, attempt: AttemptId) -> Result<Probe, ExecutorError> {
        Ok(match self.end_of(attempt).map(|end| end.borrow().clone()) {
            None => Probe::NeverStarted,
            Some(None) => Probe::Alive,
            Some(Some(report)) => Probe::Exited(Box::new(report)),
        })
    }

    async fn watch(
        &self,
        attempt: AttemptId,
        progress: mpsc::Sender<String>,
    ) -> Result<WatchEnd, ExecutorError> {
        let Some(mut end) = self.end_of(attempt) else {
            return Ok(WatchEnd::NeverStarted);
        };
        progress.try_send("half of it is done".to_owned()).ok();
        Ok(match end.wait_for(Option::is_some).await {
            Ok(report) => WatchEnd::Exited(Box::new(report.clone().unwrap())),
            Err(_) => WatchEnd::Vanished,
        })
    }

    async fn stop(&self, attempt: AttemptId, _grace: Duration) -> Result<(), ExecutorError> {
        if let Some(run) = self.0.lock().unwrap().get_mut(&attempt)
            && run.held.take().is_some()
        {
            run.end
                .send_replace(Some(report(RunEnd::Stopped, Outputs::default())));
        }
        Ok(())
    }

    async fn end_silent(&self, _attempt: AttemptId) -> Result<bool, ExecutorError> {
        Ok(false)
    }

    async fn sweep(&self, _attempt: AttemptId) -> Result<bool, ExecutorError> {
        Ok(true)
    }

    async fn conclude(&self, attempt: AttemptId) -> Result<(), ExecutorError> {
        self.0.lock().unwrap().remove(&attempt);
        Ok(())
    }

    async fn runs(&self) -> Result<Vec<AttemptId>, ExecutorError> {
        Ok(self.0.lock().unwrap().keys().copied().collect())
    }

    async fn log(&self, _: AttemptId, max_bytes: usize) -> Result<Option<LogTail>, ExecutorError> {
        let stdout = StreamTail {
            bytes: vec![b'x'; max_bytes],
            cut: true,
        };
        let stderr = StreamTail {
            bytes: b"not UTF-8: \xFF".to_vec(),
            cut: false,
        };
        Ok(Some(LogTail { stdout, stderr }))
    }

    async fn forget_logs(&self, _before: Timestamp) -> Result<(), ExecutorError> {
        Ok(())
    }

    async fn disk_low(&self) -> bool {
        false
    }
}
