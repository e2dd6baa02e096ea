//! What a run comes to, as its exit record says.

use super::results;
use super::supervise::{Main, Run};
use crate::proc;
use crate::record::{ExitRecord, Limit, RunEnd};
use crate::sys;

impl Run<'_> {
    pub(super) fn record(mut self, tree_ended: bool, host_oom_before: Option<u64>) -> ExitRecord {
        self.note_progress();
        let groups = &self.launched.groups;
        let own_oom_kills = groups.own_oom_kills();
        let host_oom_kills = proc::host_oom_kills()
            .zip(host_oom_before)
            .map_or(0, |(now, before)| now.saturating_sub(before));
        let used = sys::child_usage();
        let peak_own = self.usage.peak_memory.max(used.peak_bytes);
        let peak_memory = groups.peak_memory().unwrap_or(peak_own);
        let (output, output_error) = results::output(&self.out, self.spec.output_max_bytes);
        let (exit_code, signal, core_dumped) = match self.main {
            Some(Main::Exited(code)) => (Some(code), None, false),
            Some(Main::Signalled { signal, core }) => (None, Some(signal), core),
            None => (None, None, false),
        };
        let namespace_killed =
            self.main.is_none() && self.cause.is_none() && self.spawn_error.is_none();
        if tree_ended {
            self.launched.tree.remove_groups();
        }
        ExitRecord {
            exit_code,
            signal,
            core_dumped,
            namespace_killed,
            stopped_by: self.stopped_by.clone(),
            stop_wished: self.stop_wished,
            memory_limit_bytes: self.spec.limits.memory_bytes,
            started_at_ms: Some(self.launched.started_at_ms),
            containment: Some(self.launched.containment),
            peak_memory_bytes: Some(peak_memory),
            peak_own_bytes: Some(peak_own),
            cpu_ms: Some(used.cpu_ms),
            own_oom: own_oom_kills > 0,
            own_oom_kills,
            host_oom: host_oom_kills > own_oom_kills,
            output,
            output_error,
            stdout_bytes: self.stdout.total,
            stderr_bytes: self.stderr.total,
            log_lost_bytes: self.stdout.lost + self.stderr.lost,
            tree_ended,
            last_progress: self.last_progress.clone(),
            ..self.shim.blank_record(self.end(own_oom_kills > 0))
        }
    }

    /// Why the run is over: what we did to it, else what became of its main process.
    fn end(&self, own_oom: bool) -> RunEnd {
        const SIGKILL: i32 = 9;
        const SIGXCPU: i32 = 24;
        const SIGXFSZ: i32 = 25;
        if let Some(message) = &self.spawn_error {
            return RunEnd::SpawnFailed {
                message: message.clone(),
            };
        }
        if let Some(cause) = &self.cause {
            return cause.clone();
        }
        let limits = &self.spec.limits;
        match self.main {
            Some(Main::Exited(code)) => RunEnd::Exited { code },
            Some(Main::Signalled {
                signal: SIGKILL, ..
            }) if own_oom => RunEnd::OomKilled,
            Some(Main::Signalled {
                signal: SIGXCPU, ..
            }) if limits.cpu_secs.is_some() => RunEnd::Limit {
                limit: Limit::CpuTime,
            },
            Some(Main::Signalled {
                signal: SIGXFSZ, ..
            }) if limits.disk_bytes.is_some() => RunEnd::Limit { limit: Limit::Disk },
            Some(Main::Signalled { signal, .. }) => RunEnd::Signalled { signal },
            // The namespace's init was killed, and everything with it.
            None => RunEnd::Signalled { signal: SIGKILL },
        }
    }
}
