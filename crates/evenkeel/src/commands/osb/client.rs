//! A broker's client, and names of what it offers.

use std::path::Path;
use std::time::Duration;

use evenkeel_osb::client::{Client, ClientError};
use evenkeel_osb::{Catalog, Plan, Query, ServiceOffering};

use super::{BrokerArgs, Kind};
use crate::commands::address;
use crate::commands::local::DataDir;
use crate::config::Password;
use crate::fail::{Exit, Failure};
use crate::files;
use crate::output::shown;

/// A broker may take 60 s for a synchronous answer; a little more for the way.
const TIME_LIMIT: Duration = Duration::from_secs(65);

pub(super) fn connect(args: &BrokerArgs) -> Result<Client, Failure> {
    let given = std::env::var("EVENKEEL_OSB_PASSWORD")
        .ok()
        .filter(|text| !text.is_empty());
    // The file that was named on the command line is nearer than the variable.
    let password = match (&args.password_file, given) {
        (Some(path), _) => Some(secret_line(path)?),
        (None, given) => given,
    };
    args.url.as_deref().map_or(Ok(()), address::spoken)?;
    let folder = match (&args.url, &args.user, &password) {
        (Some(_), Some(_), Some(_)) => None,
        (_, _, _) => Some(DataDir::find(&args.local)?),
    };
    if let (Some(url), None, Some(folder)) = (&args.url, &password, &folder) {
        folder.vouch(
            files::OSB_URL,
            url,
            "--user, and --password-file or EVENKEEL_OSB_PASSWORD",
        )?;
    }
    let url = match (&args.url, &folder) {
        (Some(url), _) => url.clone(),
        (None, Some(folder)) => folder.line(
            files::OSB_URL,
            "the broker's address",
            "--url, --user and --password-file",
        )?,
        (None, None) => String::new(),
    };
    let (user, password) = match (&args.user, password, &folder) {
        (Some(user), Some(password), _) => (user.clone(), password),
        (user, password, folder) => local_user(folder.as_ref(), user.as_deref(), password)?,
    };
    let client = Client::new(&url, user, password.into()).map_err(|error| failure(&error))?;
    Ok(client.with_time_limit(TIME_LIMIT))
}

/// Who may use a broker of this host: the named or else the first configured user, or the one
/// with the generated password.
fn local_user(
    folder: Option<&DataDir>,
    named: Option<&str>,
    password: Option<String>,
) -> Result<(String, String), Failure> {
    let users = folder
        .and_then(|folder| folder.config.as_ref())
        .map(|config| config.osb.users.as_slice())
        .unwrap_or_default();
    if users.is_empty() {
        let user = named.unwrap_or(files::GENERATED_USER).to_owned();
        let password = match (password, folder) {
            (Some(password), _) => password,
            (None, Some(folder)) => folder.line(
                files::OSB_PASSWORD,
                "the password",
                "--user and --password-file",
            )?,
            (None, None) => String::new(),
        };
        return Ok((user, password));
    }
    let user = match named {
        Some(name) => users.iter().find(|user| user.name == name),
        None => users.first(),
    };
    match (user.map(|user| &user.password), password) {
        (_, Some(password)) => Ok((
            user.map_or(named.unwrap_or_default(), |user| &user.name)
                .to_owned(),
            password,
        )),
        (Some(Password::File(path)), None) => Ok((
            user.map_or("", |user| &user.name).to_owned(),
            secret_line(path)?,
        )),
        (Some(Password::Hash(_)) | None, None) => Err(Failure::usage(
            "the password is not known: the configuration has its hash only, or no such user",
        )
        .hint("give --password-file or EVENKEEL_OSB_PASSWORD")),
    }
}

fn secret_line(path: &Path) -> Result<String, Failure> {
    crate::secrets::read_line(path)
        .map_err(|error| Failure::usage(format!("password file {}: {error}", path.display())))
}

/// What a call that had no result means for a command.
pub(super) fn failure(error: &ClientError) -> Failure {
    let message = error.to_string();
    match error {
        ClientError::BaseUrl { .. } | ClientError::Id(_) => Failure::usage(message),
        ClientError::Broker(answer) => match answer.status {
            400 | 413 => Failure::usage(message),
            401 | 403 => Failure::new(Exit::Refused, message).hint(
                "the user or the password is wrong: --user, --password-file, EVENKEEL_OSB_PASSWORD",
            ),
            404 | 410 => Failure::new(Exit::NotFound, message),
            409 | 422 => Failure::new(Exit::NotApplicable, message),
            503 => Failure::new(Exit::Unreachable, message).hint("try again in a moment"),
            _ => Failure::new(Exit::Failed, message),
        },
        ClientError::Transport { .. } => Failure::new(Exit::Unreachable, message)
            .hint("is the broker running? `evenkeel serve` starts it"),
        ClientError::TimedOut { .. } => Failure::new(Exit::Unreachable, message),
        ClientError::GaveUp { .. } => Failure::new(Exit::StillInProgress, message),
        ClientError::Unexpected { .. }
        | ClientError::Malformed { .. }
        | ClientError::TooLarge { .. } => Failure::new(Exit::Failed, message),
    }
}

/// Ids of a service and one of its plans.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) service_id: String,
    pub(super) plan_id: String,
}

/// The service by its name or id.
pub(super) fn service<'a>(
    catalog: &'a Catalog,
    named: &str,
) -> Result<&'a ServiceOffering, Failure> {
    let offered = || catalog.services.iter().map(|service| service.name.as_str());
    let by_name = catalog
        .services
        .iter()
        .find(|service| service.name == named);
    by_name
        .or_else(|| catalog.services.iter().find(|service| service.id == named))
        .ok_or_else(|| unknown("service", named, offered()))
}

/// The plan by its name or id, or the only one.
pub(super) fn plan<'a>(
    service: &'a ServiceOffering,
    named: Option<&str>,
) -> Result<&'a Plan, Failure> {
    let offered = || service.plans.iter().map(|plan| plan.name.as_str());
    match (named, service.plans.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::usage(format!(
            "{} has several plans: name one",
            shown(&service.name)
        ))
        .hint(format!("plans: {}", list(offered())))),
        (Some(named), plans) => plans
            .iter()
            .find(|plan| plan.name == named)
            .or_else(|| service.plan(named))
            .ok_or_else(|| unknown("plan", named, offered())),
    }
}

fn unknown<'a>(what: &str, named: &str, offered: impl Iterator<Item = &'a str>) -> Failure {
    Failure::new(
        Exit::NotFound,
        format!("the catalog has no {what} {:?}", shown(named)),
    )
    .hint(format!("{what}s: {}", list(offered)))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(shown).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// What an instance is of: as the command line says, else as the broker says.
pub(super) async fn kind(
    client: &Client,
    instance_id: &str,
    kind: &Kind,
) -> Result<Offer, Failure> {
    let (Some(service_named), Some(plan_named)) = (&kind.service, &kind.plan) else {
        return fetched(client, instance_id).await;
    };
    let catalog = client.catalog().await.map_err(|error| failure(&error))?;
    let service = service(&catalog, service_named)?;
    let plan = plan(service, Some(plan_named))?;
    Ok(Offer {
        service_id: service.id.clone(),
        plan_id: plan.id.clone(),
    })
}

async fn fetched(client: &Client, instance_id: &str) -> Result<Offer, Failure> {
    let hint =
        "an instance that is being made, or failed, has to be described: --service and --plan";
    let instance = client
        .get_instance(instance_id, &Query::default())
        .await
        .map_err(|error| match error.broker().map(|answer| answer.status) {
            Some(404 | 422) => failure(&error).hint(hint),
            Some(_) | None => failure(&error),
        })?;
    match (instance.service_id, instance.plan_id) {
        (Some(service_id), Some(plan_id)) => Ok(Offer {
            service_id,
            plan_id,
        }),
        (_, _) => Err(Failure::new(
            Exit::Failed,
            "the broker does not say what the instance is of",
        )
        .hint("name it: --service and --plan")),
    }
}
