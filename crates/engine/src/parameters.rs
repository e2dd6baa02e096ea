//! Parameters against the plan's JSON schema, and the schema's defaults for what they leave out.

use evenkeel_core::action::Action;
use evenkeel_core::bundle::{BadSchema, Plan, Violation};
use evenkeel_core::request::Object;
use serde_json::Value;

use crate::ask::Refusal;

/// Checks what a request for `action` sent.
///
/// In an update a `null` removes what is there (RFC 7396), so it does not have to fit the schema
/// of what it removes: an update is good as it was sent, or without its `null`s.
///
/// # Errors
/// [`Refusal::Parameters`] at the first place that does not fit; [`Refusal::Unavailable`] where
/// the schema cannot be used, which a bundle of this release rules out.
pub(crate) fn check(plan: &Plan, action: Action, parameters: &Object) -> Result<(), Refusal> {
    let Some(schema) = plan.schemas.of(action) else {
        return Ok(());
    };
    let unusable = |error: BadSchema| {
        let place = &error.pointer;
        Refusal::Unavailable(format!(
            "plan {:?}, parameters of {action}, at {place:?}: {error}",
            plan.name
        ))
    };
    let violation = schema.violation(parameters).map_err(unusable)?;
    let violation = match violation {
        Some(_) if action == Action::Update => {
            let rest = without_nulls(parameters);
            schema.violation(&rest).map_err(unusable)?
        }
        other => other,
    };
    match violation {
        None => Ok(()),
        Some(Violation { pointer, message }) => Err(Refusal::Parameters { pointer, message }),
    }
}

/// What the action gets: `parameters`, and the defaults of the plan's schema for `action` where
/// they have nothing, if the bundle says so. Of an update these are the merged parameters.
pub(crate) fn with_defaults(plan: &Plan, action: Action, mut parameters: Object) -> Object {
    let schema = plan.schemas.of(action);
    if let Some(schema) = schema.filter(|_| plan.schemas.apply_defaults)
        && let Err(error) = schema.fill(&mut parameters)
    {
        tracing::warn!(plan = plan.name, %action, %error, "an action goes without defaults");
    }
    parameters
}

fn without_nulls(parameters: &Object) -> Object {
    let kept = parameters.iter().filter(|(_, value)| !value.is_null());
    let kept = kept.map(|(name, value)| {
        let value = match value {
            Value::Object(inner) => Value::Object(without_nulls(inner)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => value.clone(),
        };
        (name.clone(), value)
    });
    kept.collect()
}

#[cfg(test)]
mod tests;
