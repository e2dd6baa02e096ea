//! The offering: what the catalog of the API will say of it.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};
use uuid::Uuid;

use super::field::Field;
use super::names::{MAX_NAME_CHARS, is_cli_friendly, service_id};
use super::{DashboardClient, INSTANCE_ID, Requirement, Service};
use crate::ids::ServiceId;

const MAX_TAGS: usize = 200;
/// What the Kubernetes service catalog takes as a name or an id.
const KUBERNETES_NAME_CHARS: usize = 63;
/// What Cloud Foundry takes.
const CF_DESCRIPTION_CHARS: usize = 10_000;
const CF_TAGS_CHARS: usize = 2048;
/// With an id in it, a dashboard's URL is far from the 16,000 characters that platforms take.
const MAX_DASHBOARD_URL_BYTES: usize = 2048;
/// Keys of an offering's metadata that marketplaces show as text (profile.md).
const CONVENTIONS: [&str; 6] = [
    "displayName",
    "imageUrl",
    "longDescription",
    "providerDisplayName",
    "documentationUrl",
    "supportUrl",
];

pub(super) fn service(field: &Field<'_>, namespace: Uuid) -> Option<Service> {
    let fields = field.fields(&[
        "name",
        "description",
        "id",
        "tags",
        "bindable",
        "requires",
        "plan_updateable",
        "instances_retrievable",
        "bindings_retrievable",
        "allow_context_updates",
        "metadata",
        "dashboard_client",
        "dashboard_url",
    ])?;
    let name = fields.need("name").and_then(|f| name(&f));
    let description = fields.need("description").and_then(|f| description(&f));
    let id = fields.maybe("id", id);
    let tags = fields.maybe("tags", tags);
    let requires = fields.maybe("requires", requires);
    let bindable = fields.maybe("bindable", Field::flag);
    let plan_updateable = fields.maybe("plan_updateable", Field::flag);
    let instances_retrievable = fields.maybe("instances_retrievable", Field::flag);
    let bindings_retrievable = fields.maybe("bindings_retrievable", Field::flag);
    let allow_context_updates = fields.maybe("allow_context_updates", Field::flag);
    let metadata = fields.maybe("metadata", |field| metadata(field, &CONVENTIONS));
    let dashboard_client = fields.maybe("dashboard_client", dashboard_client);
    let dashboard_url = fields.maybe("dashboard_url", dashboard_url);
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
        instances_retrievable: instances_retrievable?.unwrap_or(true),
        bindings_retrievable: bindings_retrievable?.unwrap_or(true),
        allow_context_updates: allow_context_updates?.unwrap_or(false),
        metadata: metadata?,
        dashboard_client: dashboard_client?,
        dashboard_url: dashboard_url?,
    })
}

pub(super) fn checked_id<T, E: std::fmt::Display>(
    field: &Field<'_>,
    id: Result<T, E>,
) -> Option<T> {
    id.map_err(|error| field.error(format!("bad id: {error}")))
        .ok()
}

pub(super) fn name(field: &Field<'_>) -> Option<String> {
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

pub(super) fn id(field: &Field<'_>) -> Option<String> {
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

pub(super) fn description(field: &Field<'_>) -> Option<String> {
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

/// Reads metadata; `texts` are the keys whose values marketplaces show as text (profile.md).
pub(super) fn metadata(field: &Field<'_>, texts: &[&str]) -> Option<Map<String, Json>> {
    if let Some(shareable) = field.peek("shareable").filter(|f| !f.is_flag()) {
        shareable.warn(
            "Cloud Foundry demands true or false here",
            "write it without quotes",
        );
    }
    for place in texts.iter().filter_map(|name| field.peek(name)) {
        if place.as_text().is_none() {
            place.warn(
                "marketplaces expect a text here",
                "put the value into quotes",
            );
        }
    }
    field.json_object()
}

/// Where an instance's dashboard is.
fn dashboard_url(field: &Field<'_>) -> Option<String> {
    let url = field.text()?;
    let rest = url.replace(INSTANCE_ID, "");
    let hint = format!("write it as https://dash.example.com/instances/{INSTANCE_ID}");
    if !["https://", "http://"].iter().any(|s| url.starts_with(s)) {
        field.error_with("must begin with https:// or http://", hint);
        return None;
    }
    if rest.contains(['{', '}']) || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
        field.error_with(
            format!("may hold no braces but {INSTANCE_ID}, and no white space"),
            hint,
        );
        return None;
    }
    if url.len() > MAX_DASHBOARD_URL_BYTES {
        field.error(format!(
            "has {} bytes, more than the limit of {MAX_DASHBOARD_URL_BYTES}",
            url.len()
        ));
        return None;
    }
    if !url.contains(INSTANCE_ID) {
        field.warn("is the same for every instance", hint);
    }
    Some(url.to_owned())
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
