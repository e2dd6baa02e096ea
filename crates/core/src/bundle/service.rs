//! The offering and its plans: what the catalog of the API will say.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};
use uuid::Uuid;

use super::field::{Field, Fields};
use super::names::{MAX_NAME_CHARS, is_cli_friendly, is_semver, plan_id, service_id, shown};
use super::{
    ActionSpec, DashboardClient, MaintenanceInfo, Plan, Requirement, Schemas, Service, schema,
    units,
};
use crate::action::Action;
use crate::ids::{PlanId, ServiceId};

const MAX_PLANS: usize = 200;
const MAX_TAGS: usize = 200;
/// What the Kubernetes service catalog takes as a name or an id.
const KUBERNETES_NAME_CHARS: usize = 63;
/// What Cloud Foundry takes.
const CF_DESCRIPTION_CHARS: usize = 10_000;
const CF_TAGS_CHARS: usize = 2048;
const CF_MAINTENANCE_INFO_CHARS: usize = 2000;
/// The longest polling duration, in seconds: Cloud Foundry's own bound of a week.
const MAX_POLLING_SECS: u64 = 7 * 24 * 3600;

pub(super) fn service(field: &Field<'_>, namespace: Uuid) -> Option<Service> {
    let fields = field.fields(&[
        "name",
        "description",
        "id",
        "tags",
        "bindable",
        "requires",
        "plan_updateable",
        "allow_context_updates",
        "metadata",
        "dashboard_client",
    ])?;
    let name = fields.need("name").and_then(|f| name(&f));
    let description = fields.need("description").and_then(|f| description(&f));
    let id = fields.maybe("id", id);
    let tags = fields.maybe("tags", tags);
    let requires = fields.maybe("requires", requires);
    let bindable = fields.maybe("bindable", Field::flag);
    let plan_updateable = fields.maybe("plan_updateable", Field::flag);
    let allow_context_updates = fields.maybe("allow_context_updates", Field::flag);
    let metadata = fields.maybe("metadata", metadata);
    let dashboard_client = fields.maybe("dashboard_client", dashboard_client);
    let name = name?;
    let id = id?.unwrap_or_else(|| service_id(namespace, &name).to_string());
    Some(Service {
        id: checked_id(field, ServiceId::new(id))?,
        name,
        description: description?,
        tags: tags?.unwrap_or_default(),
        requires: requires?.unwrap_or_default(),
        bindable: bindable?.unwrap_or(true),
        plan_updateable: plan_updateable?.unwrap_or(false),
        allow_context_updates: allow_context_updates?.unwrap_or(false),
        metadata: metadata?,
        dashboard_client: dashboard_client?,
    })
}

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
    let plans: Vec<_> = items
        .iter()
        .map(|item| plan(item, namespace, service))
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

fn plan(field: &Field<'_>, namespace: Uuid, service: &str) -> Option<Plan> {
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
    let metadata = fields.maybe("metadata", metadata);
    let maintenance_info = fields.maybe("maintenance_info", maintenance_info);
    let maximum_polling_duration = fields.maybe("maximum_polling_duration", polling_duration);
    let schemas = fields.maybe("schemas", schemas);
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

fn checked_id<T, E: std::fmt::Display>(field: &Field<'_>, id: Result<T, E>) -> Option<T> {
    id.map_err(|error| field.error(format!("bad id: {error}")))
        .ok()
}

fn name(field: &Field<'_>) -> Option<String> {
    let name = short_text(field)?;
    if !is_cli_friendly(&name) {
        field.warn(
            "is awkward on a command line",
            "use letters, digits, `.` and `-` only (the specification's CLI-friendly names)",
        );
    }
    warn_kubernetes(field, &name);
    Some(name)
}

fn id(field: &Field<'_>) -> Option<String> {
    let id = short_text(field)?;
    warn_kubernetes(field, &id);
    Some(id)
}

fn warn_kubernetes(field: &Field<'_>, text: &str) {
    if text.chars().count() > KUBERNETES_NAME_CHARS {
        field.warn(
            format!(
                "the Kubernetes service catalog takes at most {KUBERNETES_NAME_CHARS} characters"
            ),
            "choose a shorter one if the service is to be offered there",
        );
    }
}

/// A name, an id or a tag.
fn short_text(field: &Field<'_>) -> Option<String> {
    let text = field.text()?;
    let chars = text.chars().count();
    if chars > MAX_NAME_CHARS {
        field.error(format!(
            "has {chars} characters, more than the {MAX_NAME_CHARS} allowed"
        ));
        return None;
    }
    if text.chars().any(char::is_control) {
        field.error(format!("{text:?} must not hold control characters"));
        return None;
    }
    Some(text.to_owned())
}

fn description(field: &Field<'_>) -> Option<String> {
    let text = field.text()?;
    if text.chars().count() > CF_DESCRIPTION_CHARS {
        field.warn(
            format!("Cloud Foundry takes at most {CF_DESCRIPTION_CHARS} characters"),
            "move the long text to metadata.longDescription",
        );
    }
    Some(text.to_owned())
}

fn tags(field: &Field<'_>) -> Option<Vec<String>> {
    let items = field.list()?;
    if items.len() > MAX_TAGS {
        field.error(format!(
            "{} tags are more than the limit of {MAX_TAGS}",
            items.len()
        ));
        return None;
    }
    let tags: Vec<_> = items.iter().map(short_text).collect();
    let tags: Vec<String> = tags.into_iter().collect::<Option<_>>()?;
    if tags.iter().map(|tag| tag.chars().count()).sum::<usize>() > CF_TAGS_CHARS {
        field.warn(
            format!("Cloud Foundry takes at most {CF_TAGS_CHARS} characters of tags"),
            "use fewer or shorter tags",
        );
    }
    Some(tags)
}

fn requires(field: &Field<'_>) -> Option<Vec<Requirement>> {
    const WORDS: [(&str, Requirement); 3] = [
        ("syslog_drain", Requirement::SyslogDrain),
        ("route_forwarding", Requirement::RouteForwarding),
        ("volume_mount", Requirement::VolumeMount),
    ];
    let items = field.list()?;
    let wanted: Vec<_> = items.iter().map(|item| item.one_of(&WORDS)).collect();
    let wanted: BTreeSet<_> = wanted.into_iter().collect::<Option<_>>()?;
    Some(wanted.into_iter().collect())
}

fn metadata(field: &Field<'_>) -> Option<Map<String, Json>> {
    if let Some(shareable) = field.peek("shareable").filter(|f| !f.is_flag()) {
        shareable.warn(
            "Cloud Foundry demands true or false here",
            "write it without quotes",
        );
    }
    field.json_object()
}

fn dashboard_client(field: &Field<'_>) -> Option<DashboardClient> {
    let fields = field.fields(&["id", "secret", "redirect_uri"])?;
    let id = fields.need("id").and_then(|f| short_text(&f));
    let secret = fields.need("secret").and_then(|f| f.text());
    let redirect_uri = fields.maybe("redirect_uri", Field::text);
    if redirect_uri == Some(None) {
        field.warn(
            "Cloud Foundry demands `redirect_uri`",
            "add the dashboard's URL",
        );
    }
    Some(DashboardClient {
        id: id?,
        secret: secret?.to_owned(),
        redirect_uri: redirect_uri?.map(str::to_owned),
    })
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
    let chars = serde_json::to_string(&info).map_or(0, |json| json.chars().count());
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
        let range =
            std::time::Duration::from_secs(1)..=std::time::Duration::from_secs(MAX_POLLING_SECS);
        field.duration(range)?.as_secs()
    };
    u32::try_from(secs).ok()
}

fn schemas(field: &Field<'_>) -> Option<Schemas> {
    let fields = field.fields(&["service_instance", "service_binding"])?;
    let instance = fields.maybe("service_instance", |f| f.fields(&["create", "update"]))?;
    let binding = fields.maybe("service_binding", |f| f.fields(&["create"]))?;
    let provision = parameters(instance.as_ref(), "create");
    let update = parameters(instance.as_ref(), "update");
    let bind = parameters(binding.as_ref(), "create");
    Some(Schemas {
        provision: provision?,
        update: update?,
        bind: bind?,
    })
}

fn parameters(of: Option<&Fields<'_>>, verb: &str) -> Option<Option<Json>> {
    let Some(of) = of else { return Some(None) };
    let Some(fields) = of.maybe(verb, |f| f.fields(&["parameters"]))? else {
        return Some(None);
    };
    fields.maybe("parameters", schema::read)
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
    for plan in &plans {
        let schemas = plan.peek("schemas");
        let of = |resource: &str, verb: &str| schemas.as_ref()?.peek(resource)?.peek(verb);
        if let Some(field) = of("service_instance", "update").filter(|_| !has(Action::Update)) {
            field.warn(
                "there is no `update` action",
                "parameters for it will be refused",
            );
        }
        if let Some(field) = of("service_binding", "create").filter(|_| !has(Action::Bind)) {
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
