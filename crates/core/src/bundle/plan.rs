//! The plans of an offering, and what they promise.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value as Json, to_string};
use uuid::Uuid;

use super::field::{Field, Fields};
use super::names::{is_semver, plan_id, shown};
use super::schema::Seen;
use super::service::{checked_id, description, id, metadata, name};
use super::{
    ActionSpec, AsyncMode, MaintenanceInfo, ParameterSchema, Plan, Schemas, Service, schema, units,
};
use crate::action::Action;
use crate::ids::PlanId;

const MAX_PLANS: usize = 200;
/// What Cloud Foundry takes.
const CF_MAINTENANCE_INFO_CHARS: usize = 2000;
/// The longest polling duration, in seconds: Cloud Foundry's own bound of a week.
const MAX_POLLING_SECS: u64 = 7 * 24 * 3600;

pub(super) fn plans(field: &Field<'_>, namespace: Uuid, service: &str) -> Option<Vec<Plan>> {
    let items = field.list()?;
    if items.is_empty() {
        field.error("must have at least one plan");
        return None;
    }
    if items.len() > MAX_PLANS {
        field.error(format!(
            "{} plans are more than the limit of {MAX_PLANS}",
            items.len()
        ));
        return None;
    }
    let seen = Seen::default();
    let plans: Vec<_> = items
        .iter()
        .map(|item| plan(item, namespace, service, &seen))
        .collect();
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ids: BTreeMap<&PlanId, usize> = BTreeMap::new();
    let mut unique = true;
    for (index, (item, plan)) in items.iter().zip(&plans).enumerate() {
        let Some(plan) = plan else { continue };
        let mut clash = |first: usize, what: &str| {
            let place = item.peek(what).unwrap_or_else(|| item.clone());
            place.error(format!("plans[{first}] has the same {what}"));
            unique = false;
        };
        match names.get(plan.name.as_str()) {
            // Equal names have equal derived ids: said once.
            Some(first) => clash(*first, "name"),
            None => {
                if let Some(first) = ids.get(&plan.id) {
                    clash(*first, "id");
                }
            }
        }
        names.entry(&plan.name).or_insert(index);
        ids.entry(&plan.id).or_insert(index);
    }
    plans
        .into_iter()
        .collect::<Option<Vec<_>>>()
        .filter(|_| unique)
}

fn plan(field: &Field<'_>, namespace: Uuid, service: &str, seen: &Seen) -> Option<Plan> {
    let fields = field.fields(&[
        "name",
        "description",
        "id",
        "free",
        "bindable",
        "binding_rotatable",
        "plan_updateable",
        "metadata",
        "maintenance_info",
        "maximum_polling_duration",
        "schemas",
        "values",
    ])?;
    let name = fields.need("name").and_then(|f| name(&f));
    let description = fields.need("description").and_then(|f| description(&f));
    let id = fields.maybe("id", id);
    let free = fields.maybe("free", Field::flag);
    let bindable = fields.maybe("bindable", Field::flag);
    let binding_rotatable = fields.maybe("binding_rotatable", Field::flag);
    let plan_updateable = fields.maybe("plan_updateable", Field::flag);
    let metadata = fields.maybe("metadata", plan_metadata);
    let maintenance_info = fields.maybe("maintenance_info", maintenance_info);
    let maximum_polling_duration = fields.maybe("maximum_polling_duration", polling_duration);
    let schemas = fields.maybe("schemas", |field| schemas(field, seen));
    let values = fields.maybe("values", Field::json_object);
    let name = name?;
    let id = id?.unwrap_or_else(|| plan_id(namespace, service, &name).to_string());
    Some(Plan {
        id: checked_id(field, PlanId::new(id))?,
        name,
        description: description?,
        free: free?.unwrap_or(true),
        bindable: bindable?,
        binding_rotatable: binding_rotatable?.unwrap_or(false),
        plan_updateable: plan_updateable?,
        metadata: metadata?,
        maintenance_info: maintenance_info?,
        maximum_polling_duration: maximum_polling_duration?,
        schemas: schemas?.unwrap_or_default(),
        values: values?.unwrap_or_default(),
    })
}

/// `displayName`, `bullets` and `costs` as marketplaces read them (profile.md).
fn plan_metadata(field: &Field<'_>) -> Option<Map<String, Json>> {
    let read = metadata(field, &["displayName"])?;
    let texts = |value: &Json| {
        value
            .as_array()
            .is_some_and(|all| all.iter().all(Json::is_string))
    };
    let costs = |value: &Json| {
        value.as_array().is_some_and(|all| {
            all.iter().all(|cost| {
                cost.get("amount")
                    .and_then(Json::as_object)
                    .is_some_and(|amount| amount.values().all(Json::is_number))
                    && cost.get("unit").is_some_and(Json::is_string)
            })
        })
    };
    let place = |name: &str, fits: &dyn Fn(&Json) -> bool| {
        let wrong = read.get(name).is_some_and(|value| !fits(value));
        field.peek(name).filter(|_| wrong)
    };
    if let Some(place) = place("bullets", &texts) {
        place.warn(
            "marketplaces expect a list of texts here",
            "write it as [Ten connections, Daily backup]",
        );
    }
    if let Some(place) = place("costs", &costs) {
        place.warn(
            "marketplaces expect amounts with a unit here",
            "write it as [{amount: {eur: 9.5}, unit: MONTHLY}]",
        );
    }
    Some(read)
}

fn maintenance_info(field: &Field<'_>) -> Option<MaintenanceInfo> {
    let fields = field.fields(&["version", "description"])?;
    let version = fields.need("version").and_then(|f| {
        let text = f.text()?;
        if !is_semver(text) {
            let message = format!("{:?} is no semantic version such as 1.4.0", shown(text));
            f.error_with(message, "see https://semver.org/spec/v2.0.0.html");
            return None;
        }
        Some(text.to_owned())
    });
    let description = fields.maybe("description", Field::text);
    let info = MaintenanceInfo {
        version: version?,
        description: description?.map(str::to_owned),
    };
    let chars = to_string(&info).map_or(0, |json| json.chars().count());
    if chars > CF_MAINTENANCE_INFO_CHARS {
        field.warn(
            format!("Cloud Foundry takes at most {CF_MAINTENANCE_INFO_CHARS} characters as JSON"),
            "shorten the description",
        );
    }
    Some(info)
}

/// Whole seconds, as the specification has it, or a duration with units.
fn polling_duration(field: &Field<'_>) -> Option<u32> {
    let secs = if field.is_number() {
        field.whole(1..=MAX_POLLING_SECS)?
    } else {
        let range = Duration::from_secs(1)..=Duration::from_secs(MAX_POLLING_SECS);
        field.duration(range)?.as_secs()
    };
    u32::try_from(secs).ok()
}

fn schemas(field: &Field<'_>, seen: &Seen) -> Option<Schemas> {
    let fields = field.fields(&["provision", "update", "bind", "apply_defaults"])?;
    let read = |field: &Field<'_>| schema::read(field, seen);
    let provision = fields.maybe("provision", read);
    let update = fields.maybe("update", read);
    let bind = fields.maybe("bind", read);
    let apply_defaults = fields.maybe("apply_defaults", Field::flag);
    let schemas = Schemas {
        provision: provision?,
        update: update?,
        bind: bind?,
        apply_defaults: apply_defaults?.unwrap_or(false),
    };
    if schemas.apply_defaults {
        let check = |name: &str, schema: &Option<ParameterSchema>| {
            let (field, schema) = (fields.get(name), schema.as_ref());
            let both = field.zip(schema);
            both.map_or(Some(()), |(field, schema)| {
                schema::check_defaults(&field, schema)
            })
        };
        let all = [
            check("provision", &schemas.provision),
            check("update", &schemas.update),
            check("bind", &schemas.bind),
        ];
        all.into_iter().collect::<Option<()>>()?;
    }
    Some(schemas)
}

/// An offering and a plan may not share an id: ids are unique over both.
pub(super) fn check_ids(top: &Fields<'_>, service: &Service, plans: &[Plan]) {
    let items = top.get("plans").and_then(|field| field.list());
    for (item, plan) in items.unwrap_or_default().iter().zip(plans) {
        if plan.id.as_str() == service.id.as_str() {
            let place = item.peek("id").unwrap_or_else(|| item.clone());
            place.error("the service has the same id");
        }
    }
}

/// What offering and plans promise must fit the actions that are there.
pub(super) fn check_against_actions(top: &Fields<'_>, actions: &BTreeMap<Action, ActionSpec>) {
    let has = |action: Action| actions.contains_key(&action);
    let service = top.get("service");
    let plans = top
        .get("plans")
        .and_then(|field| field.list())
        .unwrap_or_default();
    let promised = service
        .iter()
        .chain(&plans)
        .filter_map(|f| f.peek("plan_updateable"));
    for field in promised.filter(|f| f.is_true() && !has(Action::Update)) {
        field.error_with(
            "plans cannot be changed without an `update` action",
            "add actions.update, or leave plan_updateable out",
        );
    }
    if let Some(field) = service.iter().find_map(|f| f.peek("bindings_retrievable"))
        && field.is_false()
        && actions
            .get(&Action::Bind)
            .is_some_and(|bind| bind.async_mode != AsyncMode::Unsupported)
    {
        field.warn(
            "a binding that is made asynchronously can only be handed out when it is fetched",
            "Cloud Foundry refuses it otherwise: write true, or actions.bind.async: unsupported",
        );
    }
    for plan in &plans {
        let schema = |action: &str| plan.peek("schemas")?.peek(action);
        if let Some(field) = schema("update").filter(|_| !has(Action::Update)) {
            field.warn(
                "there is no `update` action",
                "parameters for it will be refused",
            );
        }
        if let Some(field) = schema("bind").filter(|_| !has(Action::Bind)) {
            field.warn(
                "there is no `bind` action",
                "a binding hands out the credentials of provision, whatever its parameters are",
            );
        }
        if let Some(field) = plan.peek("binding_rotatable").filter(Field::is_true)
            && !has(Action::Bind)
        {
            field.warn(
                "there is no `bind` action",
                "every binding has the credentials of provision, so rotation changes nothing",
            );
        }
        if let Some(field) = plan.peek("maximum_polling_duration") {
            check_polling(&field, actions);
        }
    }
}

/// A platform that stops polling takes the operation as failed while the action still runs.
fn check_polling(field: &Field<'_>, actions: &BTreeMap<Action, ActionSpec>) {
    let Some(secs) = polling_duration(field) else {
        return;
    };
    let longer = actions.iter().find_map(|(action, spec)| {
        let timeout = spec
            .timeout
            .filter(|time| time.as_secs() > u64::from(secs))?;
        Some((action, units::spoken(timeout)))
    });
    if let Some((action, timeout)) = longer {
        field.warn(
            format!("is shorter than the timeout of `{action}` ({timeout})"),
            "the platform gives an operation up before the action does: shorten the timeout",
        );
    }
}
