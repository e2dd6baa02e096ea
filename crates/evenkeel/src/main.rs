//! The one binary: arguments, configuration, wiring, operator commands.

mod cli;
mod commands;
mod config;
mod demo;
mod fail;
mod files;
mod ids;
mod output;
mod secrets;
mod serve;
mod warden;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::Parser as _;
use cli::{Cli, Command};
use fail::{Exit, Failure};

fn main() -> ExitCode {
    // A shim is single-threaded, small, and compatible across releases: it branches off before
    // any runtime, log or parser starts.
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() == Some(OsStr::new("shim")) {
        evenkeel_engine::faults::hit("shim.first");
        evenkeel_run::shim::main(args);
    }
    let code = match run(Cli::parse()) {
        Ok(code) => code,
        Err(failure) => {
            output::failure(&failure);
            failure.exit.into()
        }
    };
    output::flush();
    code
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let done = match cli.command {
        Command::Serve(args) => return serve::run(&args),
        Command::Demo(args) => alone(demo::run(&args)),
        Command::Config(command) => commands::config::run(&command),
        Command::Status { admin } => alone(commands::status::run(&admin)),
        Command::Hold { reason, admin } => alone(commands::hold::hold(reason, &admin)),
        Command::Release { admin } => alone(commands::hold::release(&admin)),
        Command::Boots(args) => alone(commands::boots::run(&args)),
        Command::Jobs(command) => alone(commands::jobs::run(command)),
        Command::Osb(command) => alone(commands::osb::run(command)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a command on this thread.
fn alone(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("no runtime: {error}")))?
        .block_on(command)
}
