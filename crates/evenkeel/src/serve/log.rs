//! The log: to standard error, for people on a terminal and as JSON otherwise.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::fail::Failure;

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
    let terminal = stderr().is_terminal();
    let human = match format {
        LogFormat::Auto => terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr);
    let started = if human {
        log.with_ansi(colour).try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
    started.map_err(|error| Failure::usage(format!("no log: {error}")))
}
