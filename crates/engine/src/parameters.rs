//! Checks parameters against the plan's JSON schema. No reference leaves the schema: the
//! validator is built without any way to fetch one.

use evenkeel_core::action::Action;
use evenkeel_core::bundle::Plan;
use evenkeel_core::request::Object;
use serde_json::Value;

use crate::ask::Refusal;

/// # Errors
/// [`Refusal::Parameters`] at the first place that does not fit.
pub(crate) fn check(plan: &Plan, action: Action, parameters: &Object) -> Result<(), Refusal> {
    let Some(schema) = plan.schemas.of(action) else {
        return Ok(());
    };
    let bad_schema = |message: String| Refusal::BadRequest {
        message: format!(
            "the schema of plan {:?} cannot be used: {message}",
            plan.name
        ),
    };
    let validator =
        jsonschema::validator_for(schema).map_err(|error| bad_schema(error.to_string()))?;
    let value = Value::Object(parameters.clone());
    match validator.iter_errors(&value).next() {
        None => Ok(()),
        Some(error) => Err(Refusal::Parameters {
            pointer: error.instance_path().to_string(),
            // The masked form: a parameter may be a secret, the schema never is.
            message: error.masked().to_string(),
        }),
    }
}
