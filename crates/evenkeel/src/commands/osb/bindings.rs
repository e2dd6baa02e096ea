//! Service bindings.

use evenkeel_osb::client::{Mode, Target};
use evenkeel_osb::{
    BindAnswer, BindDetails, BindRequest, BindingDetails, DeleteAnswer, NewBinding, Query,
};
use serde_json::{Map, Value, json};

use super::client::{connect, failure, kind};
use super::waiting::{self, Accepted, Ended, end};
use super::{Bind, BindingArg, BrokerArgs, InstanceArg, Unbind};
use crate::fail::Failure;
use crate::output::{self, shown};

pub(super) async fn bind(args: &Bind) -> Result<(), Failure> {
    let parameters = args.parameters.read()?;
    let client = connect(&args.broker)?;
    let instance_id = args.instance.instance.as_str();
    let offer = kind(&client, instance_id, &args.kind).await?;
    let id = args.id.clone().unwrap_or_else(crate::ids::fresh);
    let app = args
        .app
        .iter()
        .map(|app| ("app_guid".to_owned(), Value::from(app.clone())));
    let request = BindRequest::New(NewBinding {
        service_id: offer.service_id.clone(),
        plan_id: offer.plan_id.clone(),
        details: BindDetails {
            bind_resource: app.collect::<Map<_, _>>().into(),
            parameters: parameters.into(),
            ..BindDetails::default()
        },
    });
    let answer = client
        .bind(instance_id, &id, &request, Mode::AcceptsIncomplete)
        .await
        .map_err(|error| failure(&error))?;
    output::note(&format!(
        "binding {} of instance {}",
        shown(&id),
        shown(instance_id)
    ));
    let binding = match answer {
        BindAnswer::Created(binding) | BindAnswer::Exists(binding) => json!(binding),
        BindAnswer::InProgress(progress) => {
            let accepted = Accepted {
                what: format!("bind of {id}"),
                target: Target::Binding {
                    instance_id,
                    binding_id: &id,
                },
                offer: &offer,
                broker: &args.broker,
                operation: progress.operation,
                is_delete: false,
            };
            let ended = end(&client, accepted, &args.wait).await?;
            if ended != Ended::Done {
                return answer_progress(&args.broker, &id, &ended);
            }
            // Credentials are handed out by a fetch, never by a poll.
            json!(fetch(&client, instance_id, &id).await?)
        }
    };
    answer_binding(&args.broker, &id, binding)
}

pub(super) async fn unbind(args: &Unbind) -> Result<(), Failure> {
    let client = connect(&args.broker)?;
    let instance_id = args.instance.instance.as_str();
    let id = args.binding.binding.as_str();
    let offer = kind(&client, instance_id, &args.kind).await?;
    let answer = client
        .unbind(
            instance_id,
            id,
            &offer.service_id,
            &offer.plan_id,
            Mode::AcceptsIncomplete,
        )
        .await
        .map_err(|error| failure(&error))?;
    let ended = match answer {
        DeleteAnswer::Deleted {} => Ended::Done,
        DeleteAnswer::InProgress(progress) => {
            let accepted = Accepted {
                what: format!("unbind of {id}"),
                target: Target::Binding {
                    instance_id,
                    binding_id: id,
                },
                offer: &offer,
                broker: &args.broker,
                operation: progress.operation,
                is_delete: true,
            };
            end(&client, accepted, &args.wait).await?
        }
    };
    answer_progress(&args.broker, id, &ended)
}

pub(super) async fn show(
    instance: &InstanceArg,
    binding: &BindingArg,
    broker: &BrokerArgs,
) -> Result<(), Failure> {
    let client = connect(broker)?;
    output::json(&fetch(&client, &instance.instance, &binding.binding).await?)
}

async fn fetch(
    client: &evenkeel_osb::client::Client,
    instance_id: &str,
    id: &str,
) -> Result<BindingDetails, Failure> {
    client
        .get_binding(instance_id, id, &Query::default())
        .await
        .map_err(|error| failure(&error))
}

/// With `--json` all that is known, else the credentials, which are JSON anyway.
fn answer_binding(broker: &BrokerArgs, id: &str, mut binding: Value) -> Result<(), Failure> {
    if broker.format.json {
        binding["binding_id"] = json!(id);
        binding["state"] = json!(Ended::Done.state());
        return output::json(&binding);
    }
    // A binding may be of something else, as a log drain or a route service.
    let Some(credentials) = binding.get("credentials") else {
        output::note("the binding has no credentials: this is what it has");
        return output::json(&binding);
    };
    output::json(credentials)
}

fn answer_progress(broker: &BrokerArgs, id: &str, ended: &Ended) -> Result<(), Failure> {
    if broker.format.json {
        let mut answer = json!({"binding_id": id, "state": ended.state()});
        if let Some(operation) = ended.operation() {
            answer["operation"] = json!(operation);
        }
        return output::json(&answer);
    }
    waiting::note(ended);
    output::data(&shown(id))
}
