//! The catalog and service instances.

use evenkeel_osb::client::{Mode, Target};
use evenkeel_osb::{
    DeleteAnswer, InstanceInfo, ProvisionAnswer, ProvisionRequest, Query, UpdateAnswer,
    UpdateRequest,
};
use serde_json::json;

use super::client::{Offer, connect, failure, kind, plan, service};
use super::waiting::{Accepted, Ended, end};
use super::{BrokerArgs, Deprovision, InstanceArg, Provision, Update};
use crate::fail::Failure;
use crate::output::{self, shown};

pub(super) async fn catalog(broker: &BrokerArgs) -> Result<(), Failure> {
    let catalog = connect(broker)?
        .catalog()
        .await
        .map_err(|error| failure(&error))?;
    if broker.format.json {
        return output::json(&catalog);
    }
    let rows = catalog.services.iter().flat_map(|service| {
        service.plans.iter().map(|plan| {
            vec![
                service.name.clone(),
                plan.name.clone(),
                if plan.free { "yes" } else { "no" }.to_owned(),
                if service.is_bindable(plan) {
                    "yes"
                } else {
                    "no"
                }
                .to_owned(),
                plan.description.clone(),
            ]
        })
    });
    output::table(
        &["SERVICE", "PLAN", "FREE", "BINDABLE", "DESCRIPTION"],
        rows,
    )
}

pub(super) async fn provision(args: &Provision) -> Result<(), Failure> {
    let parameters = args.parameters.read()?;
    let client = connect(&args.broker)?;
    let catalog = client.catalog().await.map_err(|error| failure(&error))?;
    let service = service(&catalog, &args.service)?;
    let plan = plan(service, args.plan.as_deref())?;
    let offer = Offer {
        service_id: service.id.clone(),
        plan_id: plan.id.clone(),
    };
    let id = args.id.clone().unwrap_or_else(crate::ids::fresh);
    let request = ProvisionRequest {
        service_id: offer.service_id.clone(),
        plan_id: offer.plan_id.clone(),
        organization_guid: args.organization.clone(),
        space_guid: args.space.clone(),
        parameters: parameters.into(),
        ..ProvisionRequest::default()
    };
    let answer = client
        .provision(&id, &request, Mode::AcceptsIncomplete)
        .await
        .map_err(|error| failure(&error))?;
    // Told before the wait: whoever interrupts it knows what to ask for.
    output::note(&format!(
        "instance {} of {} {}",
        shown(&id),
        shown(&service.name),
        shown(&plan.name)
    ));
    let (info, ended) = match answer {
        ProvisionAnswer::Created(info) | ProvisionAnswer::Exists(info) => (info, Ended::Done),
        ProvisionAnswer::InProgress(progress) => {
            let accepted = Accepted {
                what: format!("provision of {id}"),
                target: Target::Instance { instance_id: &id },
                offer: &offer,
                broker: &args.broker,
                operation: progress.operation,
                is_delete: false,
            };
            (progress.info, end(&client, accepted, &args.wait).await?)
        }
    };
    answer_instance(&args.broker, &id, &info, &ended)
}

pub(super) async fn update(args: &Update) -> Result<(), Failure> {
    let parameters = args.parameters.read()?;
    let client = connect(&args.broker)?;
    let id = args.instance.instance.as_str();
    let (offer, plan_id) = changed(&client, args).await?;
    let request = UpdateRequest {
        service_id: offer.service_id.clone(),
        plan_id,
        parameters: parameters.into(),
        ..UpdateRequest::default()
    };
    let answer = client
        .update(id, &request, Mode::AcceptsIncomplete)
        .await
        .map_err(|error| failure(&error))?;
    let (info, ended) = match answer {
        UpdateAnswer::Updated(info) => (info, Ended::Done),
        UpdateAnswer::InProgress(progress) => {
            let accepted = Accepted {
                what: format!("update of {id}"),
                target: Target::Instance { instance_id: id },
                offer: &offer,
                broker: &args.broker,
                operation: progress.operation,
                is_delete: false,
            };
            (progress.info, end(&client, accepted, &args.wait).await?)
        }
    };
    answer_instance(&args.broker, id, &info, &ended)
}

/// What the instance is of now, and the plan that it is to get, if that is to change.
async fn changed(
    client: &evenkeel_osb::client::Client,
    args: &Update,
) -> Result<(Offer, Option<String>), Failure> {
    let fetch = || async {
        let asked = super::Kind {
            service: None,
            plan: None,
        };
        kind(client, &args.instance.instance, &asked).await
    };
    let Some(plan_named) = args.plan.as_deref() else {
        return Ok((fetch().await?, None));
    };
    let catalog = client.catalog().await.map_err(|error| failure(&error))?;
    let service = match &args.service {
        Some(named) => service(&catalog, named)?,
        None => service(&catalog, &fetch().await?.service_id)?,
    };
    let plan_id = plan(service, Some(plan_named))?.id.clone();
    let offer = Offer {
        service_id: service.id.clone(),
        plan_id: plan_id.clone(),
    };
    Ok((offer, Some(plan_id)))
}

pub(super) async fn deprovision(args: &Deprovision) -> Result<(), Failure> {
    let client = connect(&args.broker)?;
    let id = args.instance.instance.as_str();
    let offer = kind(&client, id, &args.kind).await?;
    let answer = client
        .deprovision(
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
                what: format!("deprovision of {id}"),
                target: Target::Instance { instance_id: id },
                offer: &offer,
                broker: &args.broker,
                operation: progress.operation,
                is_delete: true,
            };
            end(&client, accepted, &args.wait).await?
        }
    };
    answer_instance(&args.broker, id, &InstanceInfo::default(), &ended)
}

pub(super) async fn show(instance: &InstanceArg, broker: &BrokerArgs) -> Result<(), Failure> {
    let client = connect(broker)?;
    let found = client
        .get_instance(&instance.instance, &Query::default())
        .await
        .map_err(|error| failure(&error))?;
    // Parameters are any JSON: there is no better table of them.
    output::json(&found)
}

fn answer_instance(
    broker: &BrokerArgs,
    id: &str,
    info: &InstanceInfo,
    ended: &Ended,
) -> Result<(), Failure> {
    if broker.format.json {
        let mut answer = json!({"instance_id": id, "state": ended.state()});
        if let Some(operation) = ended.operation() {
            answer["operation"] = json!(operation);
        }
        if let Some(url) = &info.dashboard_url {
            answer["dashboard_url"] = json!(url);
        }
        return output::json(&answer);
    }
    if let Some(url) = &info.dashboard_url {
        output::note(&format!("dashboard: {}", shown(url)));
    }
    super::waiting::note(ended);
    output::data(&shown(id))
}
