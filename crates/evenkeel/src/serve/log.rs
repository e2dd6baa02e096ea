//! The log: to standard error, for people on a terminal and as JSON otherwise.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::fail::{Exit, Failure};
use crate::output;

/// What is logged, in tracing-subscriber's words.
const VARIABLE: &str = "EVENKEEL_LOG";

/// The migrations name every step, and where their code lies.
const DEFAULT: &str = "info,refinery_core=warn";

pub(super) fn start(format: LogFormat) -> Result<(), Failure> {
    let wanted = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or(DEFAULT)).map_err(|error| {
        Failure::usage(format!(
            "{VARIABLE}={:?}: {error}",
            wanted.unwrap_or_default()
        ))
        .hint("as in EVENKEEL_LOG=info, or EVENKEEL_LOG=warn,evenkeel_engine=debug")
    })?;
    let human = format.is_human();
    let colour =
        output::is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(output::messages);
    let started = if human {
        log.with_ansi(colour).try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
    started.map_err(|error| Failure::usage(format!("no log: {error}")))
}

/// How long a thread that panics waits for its words to be written: it may be about to abort.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Has messages and the log go to `stream`, or to standard error, without anybody who logs ever
/// waiting for a reader.
pub(super) fn never_waits(stream: Option<File>) -> Result<(), Failure> {
    let stream = match stream {
        Some(stream) => Ok(stream),
        None => std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map(File::from),
    };
    let told = |lines| {
        tracing::warn!(
            lines,
            "the log was not read in time: so many lines were dropped"
        );
    };
    stream
        .and_then(|stream| output::through_queue(stream, told))
        .map_err(|error| Failure::new(Exit::Failed, format!("no log: {error}")))
}

/// Has every panic told to the log's stream, by way of its queue: where it was, and its words if
/// they are a literal of the sources. `raw_is_kept`: raw standard error is a file, which has all of
/// its words, which may hold what a request said, and its backtrace.
pub(super) fn keep_panics(raw_is_kept: bool) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if raw_is_kept {
            before(info);
        }
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        let place = info.location().map(ToString::to_string);
        let place = place.as_deref().unwrap_or("an unknown place");
        let said = info.payload().downcast_ref::<&'static str>();
        let said = said.map_or_else(String::new, |words| format!(": {words}"));
        let told = format!(
            "thread '{name}' panicked at {place}{said}
"
        );
        // The queue takes it, or counts it.
        output::messages().write_all(told.as_bytes()).ok();
        output::flush_within(LAST_WORDS);
    }));
}
