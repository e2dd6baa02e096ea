//! `evenkeel osb …`: orders from any broker as a platform does.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::cli::{Format, Local};
use crate::fail::Failure;

mod bindings;
mod client;
mod instances;
mod parameters;
mod waiting;

#[derive(Debug, Subcommand)]
pub(crate) enum OsbCommand {
    /// List what can be ordered
    Catalog {
        #[command(flatten)]
        broker: BrokerArgs,
    },
    /// Order a service instance; prints its id
    Provision(Provision),
    /// Change an instance's plan or parameters
    Update(Update),
    /// Order a binding; prints its credentials as JSON
    Bind(Bind),
    /// Delete a binding
    Unbind(Unbind),
    /// Delete a service instance
    Deprovision(Deprovision),
    /// Show a service instance
    Instance {
        #[command(flatten)]
        instance: InstanceArg,
        #[command(flatten)]
        broker: BrokerArgs,
    },
    /// Show a binding, with its credentials, as JSON
    Binding {
        #[command(flatten)]
        instance: InstanceArg,
        #[command(flatten)]
        binding: BindingArg,
        #[command(flatten)]
        broker: BrokerArgs,
    },
    /// Show how far an operation is
    LastOperation(LastOperation),
}

#[derive(Debug, Args)]
pub(crate) struct Provision {
    /// The service offering, by its name or id
    #[arg(value_name = "SERVICE")]
    service: String,
    /// The plan, by its name or id; may be left out where the service has one only
    #[arg(value_name = "PLAN")]
    plan: Option<String>,
    /// The new instance's id [default: a fresh UUID]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The organization that orders
    #[arg(long, value_name = "GUID", default_value = "evenkeel-cli")]
    organization: String,
    /// The space that orders
    #[arg(long, value_name = "GUID", default_value = "evenkeel-cli")]
    space: String,
    #[command(flatten)]
    parameters: Parameters,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    broker: BrokerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Update {
    #[command(flatten)]
    instance: InstanceArg,
    /// The plan to change to, by its name or id
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    /// The instance's service, by its name or id [default: as the broker says]
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    #[command(flatten)]
    parameters: Parameters,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    broker: BrokerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Bind {
    #[command(flatten)]
    instance: InstanceArg,
    /// The new binding's id [default: a fresh UUID]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The application to bind
    #[arg(long, value_name = "GUID")]
    app: Option<String>,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    parameters: Parameters,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    broker: BrokerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Unbind {
    #[command(flatten)]
    instance: InstanceArg,
    #[command(flatten)]
    binding: BindingArg,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    broker: BrokerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Deprovision {
    #[command(flatten)]
    instance: InstanceArg,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    broker: BrokerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LastOperation {
    #[command(flatten)]
    instance: InstanceArg,
    /// The binding, if it is about one
    #[arg(long, value_name = "ID")]
    binding: Option<String>,
    /// Which operation [default: the latest]
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    #[command(flatten)]
    broker: BrokerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceArg {
    /// The service instance's id
    #[arg(value_name = "INSTANCE")]
    instance: String,
}

#[derive(Debug, Args)]
pub(crate) struct BindingArg {
    /// The binding's id
    #[arg(value_name = "BINDING")]
    binding: String,
}

/// What an instance is of; platforms know, people ask the broker.
#[derive(Debug, Args)]
pub(crate) struct Kind {
    /// The instance's service, by its name or id [default: as the broker says]
    #[arg(long, value_name = "SERVICE", requires = "plan")]
    service: Option<String>,
    /// The instance's plan, by its name or id [default: as the broker says]
    #[arg(long, value_name = "PLAN", requires = "service")]
    plan: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Parameters {
    /// A parameter; the value is read as JSON if it is JSON, and is a text otherwise
    #[arg(short, long = "param", value_name = "NAME=VALUE", value_parser = parameters::pair)]
    param: Vec<(String, serde_json::Value)>,
    /// A file with a JSON object of parameters, or - for standard input; the place for secrets
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct Wait {
    /// Do not wait for the end of the operation
    #[arg(long)]
    no_wait: bool,
    /// Give up waiting after this many seconds (exit code 7); the operation goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    wait_limit: u64,
}

impl Wait {
    fn limit(&self) -> Option<Duration> {
        (!self.no_wait).then(|| Duration::from_secs(self.wait_limit))
    }
}

/// How to reach a broker, and how to answer.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which broker")]
pub(crate) struct BrokerArgs {
    /// The broker's URL, such as http://127.0.0.1:8080
    #[arg(
        long,
        value_name = "URL",
        env = "EVENKEEL_OSB_URL",
        hide_env_values = true
    )]
    url: Option<String>,
    /// The user
    #[arg(
        long,
        value_name = "NAME",
        env = "EVENKEEL_OSB_USER",
        hide_env_values = true
    )]
    user: Option<String>,
    /// The file with the user's password; or give the password itself by EVENKEEL_OSB_PASSWORD
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    local: Local,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(command: OsbCommand) -> Result<(), Failure> {
    match command {
        OsbCommand::Catalog { broker } => instances::catalog(&broker).await,
        OsbCommand::Provision(args) => instances::provision(&args).await,
        OsbCommand::Update(args) => instances::update(&args).await,
        OsbCommand::Deprovision(args) => instances::deprovision(&args).await,
        OsbCommand::Instance { instance, broker } => instances::show(&instance, &broker).await,
        OsbCommand::Bind(args) => bindings::bind(&args).await,
        OsbCommand::Unbind(args) => bindings::unbind(&args).await,
        OsbCommand::Binding {
            instance,
            binding,
            broker,
        } => bindings::show(&instance, &binding, &broker).await,
        OsbCommand::LastOperation(args) => waiting::last_operation(&args).await,
    }
}
