//! `evenkeel config show` and `check`.

use std::path::Path;

use crate::cli::{ConfigArg, ConfigCommand};
use crate::config::{Config, ConfigError, Finding};
use crate::fail::{Exit, Failure};
use crate::output;

pub(crate) fn run(command: &ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Show(ConfigArg { config }) => {
            let text = load(config.as_deref())?.show().map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    format!("the configuration cannot be written: {error}"),
                )
            })?;
            output::data(text.trim_end())
        }
        ConfigCommand::Check(ConfigArg { config }) => check(&load(config.as_deref())?),
    }
}

/// Reads the configuration.
pub(crate) fn load(named: Option<&Path>) -> Result<Config, Failure> {
    understood(Config::load(named))
}

/// All but the last of what is wrong with a configuration is told at once.
pub(crate) fn understood<T>(read: Result<T, ConfigError>) -> Result<T, Failure> {
    read.map_err(|ConfigError { problems }| {
        let mut failures: Vec<Failure> = problems
            .into_iter()
            .map(|problem| Failure {
                exit: Exit::Usage,
                message: problem.to_string(),
                hint: problem.hint,
            })
            .collect();
        let last = failures
            .pop()
            .unwrap_or_else(|| Failure::silent(Exit::Usage));
        failures.iter().for_each(output::failure);
        last
    })
}

fn check(config: &Config) -> Result<(), Failure> {
    let mut errors = 0;
    for finding in config.examine() {
        match finding {
            Finding::Warning(text) => output::warning(&text),
            Finding::Error(text) => {
                output::failure(&Failure::usage(text));
                errors += 1;
            }
        }
    }
    if errors > 0 {
        return Err(Failure::silent(Exit::Usage));
    }
    match &config.file {
        Some(file) => output::data(&format!("{} is fine", file.display())),
        None => output::data("no configuration file: the defaults apply"),
    }
}
