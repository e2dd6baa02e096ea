//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::jobs::JobsCommand;
use crate::commands::osb::OsbCommand;
use crate::output;

/// An Open Service Broker whose jobs survive the broker, and whose broker survives its jobs
#[derive(Debug, Parser)]
#[command(
    name = "evenkeel",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 not found, 4 broker not \
reached,\n5 not authorised, 6 does not apply, 7 still in progress; 10 to 15 of serve (docs/config.md)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the broker
    Serve(ServeArgs),
    /// Watch the promises kept: a real broker under load, killed again and again
    Demo(DemoArgs),
    /// Show how the broker stands; exit code 1 if it is not ready
    Status {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Start no new run; what runs goes on, and all requests are served
    Hold {
        /// Why, for whoever looks next
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Start runs again, whatever held them
    Release {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// List the lives of the broker, and how they ended
    Boots(BootsArgs),
    /// List, look into and decide about jobs
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Show or check the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Order from a broker as a platform does
    #[command(subcommand)]
    Osb(OsbCommand),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long orders stream in; the end takes a little longer
    #[arg(long, value_name = "SECONDS", default_value_t = 45, value_parser = clap::value_parser!(u64).range(10..=75))]
    pub(crate) seconds: u64,
    /// Keep the folder with the broker's data and log, also if all went well
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct BootsArgs {
    /// At most this many, newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    /// How long to wait for addresses and a data folder that another broker has, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) lock_wait: u64,
    /// Run the broker in this process, without a warden that restarts it: for hosts where
    /// something else does
    #[arg(long)]
    pub(crate) no_warden: bool,
    /// How to write the log to standard error; EVENKEEL_LOG says what (info, debug, evenkeel_engine=trace, …)
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people on a terminal, JSON otherwise
    Auto,
    /// Lines for people
    Human,
    /// One JSON object a line
    Json,
}

impl LogFormat {
    /// Whether the log is for people, as its stream is now.
    pub(crate) fn is_human(self) -> bool {
        match self {
            Self::Auto => output::is_terminal(),
            Self::Human => true,
            Self::Json => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the effective configuration, secrets hidden
    Show(ConfigArg),
    /// Check the configuration and what it names
    Check(ConfigArg),
}

/// Which configuration.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArg {
    /// The configuration file [default: evenkeel.toml in this folder, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Where a broker on this host can be found.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which broker")]
pub(crate) struct Local {
    /// The broker's configuration file, to find its data folder
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub(crate) config: Option<PathBuf>,
    /// The broker's data folder, to find its address and secret
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// How to reach the admin API, and how to answer.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which broker")]
pub(crate) struct AdminArgs {
    /// The admin API's URL, such as http://127.0.0.1:8081
    #[arg(long, value_name = "URL", env = "EVENKEEL_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// The admin API's token; others can read arguments: prefer the variable
    #[arg(
        long,
        value_name = "TOKEN",
        env = "EVENKEEL_TOKEN",
        hide_env_values = true
    )]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) local: Local,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// How to answer.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Format {
    /// Answer in JSON
    #[arg(long, help_heading = None::<&'static str>)]
    pub(crate) json: bool,
}
