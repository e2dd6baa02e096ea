//! Whether an answer is one that the description has for the request.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::description::{Description, Operation};
use super::wire::{Reply, Request};

/// Gives the operation that was answered.
///
/// # Errors
/// What is not as the description says.
pub(super) fn check<'a>(
    description: &'a Description,
    request: &Request,
    reply: &Reply,
) -> Result<&'a str, String> {
    let status = reply.status;
    if status >= 500 {
        return Err(format!("{status}"));
    }
    if reply.header("x-broker-api-request-identity") != request.identity.as_deref() {
        return Err("the request identity is another one".to_owned());
    }
    let is_head = request.method == "HEAD";
    if status != 304 && reply.header("content-type") != Some(b"application/json") {
        return Err("the content type is not application/json".to_owned());
    }
    let body = match is_head || status == 304 {
        true if reply.body.is_empty() => None,
        true => return Err("a body where there must be none".to_owned()),
        false => Some(
            serde_json::from_slice::<Value>(&reply.body)
                .map_err(|error| format!("not JSON: {error}"))?,
        ),
    };
    if body.as_ref().is_some_and(|body| !body.is_object()) {
        return Err("not an object".to_owned());
    }
    let operations = description.at(&request.target);
    let method = if is_head {
        "GET"
    } else {
        request.method.as_str()
    };
    let operation = operations.and_then(|operations| operations.get(method));
    // What the gates say is known beforehand, whatever else is wrong.
    let gate = match (operations, operation) {
        _ if !request.authorized => Some(401),
        _ if !request.versioned => Some(412),
        (None, _) => Some(404),
        (Some(operations), None) => {
            allowed(operations, reply)?;
            Some(405)
        }
        (Some(_), Some(_)) => None,
    };
    if let Some(status) = gate.filter(|status| reply.status != *status) {
        return Err(format!("{} instead of {status}", reply.status));
    }
    if let Some(operation) = operation {
        as_declared(operation, reply, body.as_ref())?;
        return Ok(&operation.id);
    }
    // No operation declares this; it looks as any error does.
    let any = description
        .operations()
        .next()
        .expect("there are operations");
    let like = if reply.status == 401 { 401 } else { 412 };
    shaped(any, like, reply, body.as_ref())?;
    Ok("no operation")
}

fn allowed(operations: &BTreeMap<String, Operation>, reply: &Reply) -> Result<(), String> {
    let allow = String::from_utf8_lossy(reply.header("allow").unwrap_or_default());
    let found: BTreeSet<_> = allow.split(", ").collect();
    let mut wanted: BTreeSet<_> = operations.keys().map(String::as_str).collect();
    if wanted.contains("GET") {
        wanted.insert("HEAD");
    }
    if found == wanted {
        Ok(())
    } else {
        Err(format!("Allow is {allow:?}, not {wanted:?}"))
    }
}

fn as_declared(operation: &Operation, reply: &Reply, body: Option<&Value>) -> Result<(), String> {
    if !operation.responses.contains_key(&reply.status) {
        return Err(format!(
            "{} does not declare {}",
            operation.id, reply.status
        ));
    }
    shaped(operation, reply.status, reply, body)?;
    let in_progress = body.is_some_and(|body| body["state"] == "in progress");
    let asked = reply.header("retry-after").is_some();
    if body.is_some() && reply.status == 200 && asked != in_progress {
        return Err("Retry-After does not go with the state".to_owned());
    }
    Ok(())
}

fn shaped(
    operation: &Operation,
    status: u16,
    reply: &Reply,
    body: Option<&Value>,
) -> Result<(), String> {
    let declared = &operation.responses[&status];
    for (name, validator) in &declared.headers {
        let value = reply
            .header(name)
            .ok_or_else(|| format!("{name} is missing"))?;
        let text = String::from_utf8_lossy(value);
        // A header is text; where the schema wants a number, the text has to be one.
        let number = text.parse::<u64>().map(Value::from);
        let fits = validator.is_valid(&Value::from(text.as_ref()))
            || number.is_ok_and(|number| validator.is_valid(&number));
        if !fits {
            return Err(format!("{name} is {text:?}"));
        }
    }
    match (&declared.body, body) {
        (Some(validator), Some(body)) => {
            let error = validator.iter_errors(body).next();
            error.map_or(Ok(()), |error| {
                Err(format!("body{}: {error}", error.instance_path()))
            })
        }
        (None, Some(_)) => Err("a body that is not declared".to_owned()),
        (_, None) => Ok(()),
    }
}
