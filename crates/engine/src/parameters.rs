//! Checks parameters against the plan's JSON schema. No reference leaves the schema: the
//! validator is built without any way to fetch one.

use evenkeel_core::action::Action;
use evenkeel_core::bundle::Plan;
use evenkeel_core::request::Object;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
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
            message: told(&error, &value),
        }),
    }
}

fn told(error: &ValidationError<'_>, parameters: &Value) -> String {
    // `additionalProperties: false` where there are no `properties`: the validator does not name
    // what it met.
    let place = parameters.pointer(error.instance_path().as_str());
    if let (ValidationErrorKind::FalseSchema, Some(Value::Object(met))) = (error.kind(), place) {
        let names: Vec<_> = met.keys().map(|name| format!("{name:?}")).collect();
        return format!("nothing is taken here, not {}", names.join(", "));
    }
    // The masked form: a parameter may be a secret, the schema never is.
    error.masked().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(schema: &Value, parameters: &Value) -> String {
        let validator = jsonschema::validator_for(schema).unwrap();
        let error = validator.iter_errors(parameters).next().unwrap();
        told(&error, parameters)
    }

    #[test]
    fn a_parameter_that_is_not_taken_is_named_and_its_value_is_not() {
        let parameters = json!({"size": "s3cret"});
        let none = json!({"type": "object", "additionalProperties": false});
        let others = json!({"additionalProperties": false, "properties": {"colour": {}}});
        let number = json!({"properties": {"size": {"type": "number"}}});
        for (schema, word) in [(none, "size"), (others, "size"), (number, "number")] {
            let text = refusal(&schema, &parameters);
            assert!(text.contains(word), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}
