use evenkeel_osb::{
    ApiVersion, BadRequest, DeprovisionError, ErrorBody, ErrorCode, MAX_DESCRIPTION_BYTES,
    UpdateError,
};
use serde_json::{Value, json};

use crate::written;

fn every_error(description: &str) -> Vec<ErrorBody> {
    vec![
        ErrorBody::bad_request(description),
        ErrorBody::unauthorized(description),
        ErrorBody::not_found(description),
        ErrorBody::method_not_allowed(description),
        ErrorBody::request_timeout(description),
        ErrorBody::conflict(description),
        ErrorBody::gone(description),
        ErrorBody::precondition_failed(description),
        ErrorBody::payload_too_large(description),
        ErrorBody::unprocessable(description),
        ErrorBody::async_required(),
        ErrorBody::concurrency(description),
        ErrorBody::requires_app(),
        ErrorBody::maintenance_info_conflict(description),
        ErrorBody::internal(description),
        ErrorBody::unavailable(description),
    ]
}

// H9, H10, H16
#[test]
fn error_bodies_are_these() {
    let bodies: Vec<Value> = every_error("")
        .iter()
        .map(|error| json!([error.status(), written(error)]))
        .collect();
    insta::assert_json_snapshot!(bodies);
}

// H8, H9
#[test]
fn every_error_body_is_an_object_with_a_description_that_is_not_empty() {
    for error in every_error("")
        .into_iter()
        .chain(every_error(" \n"))
        .chain(every_error("why"))
    {
        let body = written(&error);
        assert!(
            body["description"]
                .as_str()
                .is_some_and(|text| !text.trim().is_empty()),
            "{body}"
        );
        assert!(body.get("instance_usable").is_none() && body.get("update_repeatable").is_none());
        assert!(body.get("status").is_none());
    }
    assert_eq!(ErrorBody::gone("why").description(), "why");
}

// H10
#[test]
fn the_fixed_words_come_with_422() {
    for (error, word) in [
        (ErrorBody::async_required(), "AsyncRequired"),
        (ErrorBody::concurrency(""), "ConcurrencyError"),
        (ErrorBody::requires_app(), "RequiresApp"),
        (
            ErrorBody::maintenance_info_conflict(""),
            "MaintenanceInfoConflict",
        ),
    ] {
        assert_eq!(error.status(), 422);
        assert_eq!(error.code().map(ErrorCode::as_str), Some(word));
    }
}

// H9
#[test]
fn a_word_of_the_brokers_own_is_a_single_one() {
    assert_eq!(
        ErrorCode::custom("QuotaExceeded").unwrap().as_str(),
        "QuotaExceeded"
    );
    for word in [
        "",
        "two words",
        "snake_case",
        "9Lives",
        "é",
        &"a".repeat(256),
    ] {
        assert_eq!(ErrorCode::custom(word), None, "{word}");
    }
    let error = ErrorBody::bad_request("Only 3 are allowed.")
        .with_code(ErrorCode::custom("QuotaExceeded").unwrap());
    assert_eq!(
        written(&error),
        json!({ "error": "QuotaExceeded", "description": "Only 3 are allowed." })
    );
    assert_eq!(error.to_string(), "400 QuotaExceeded: Only 3 are allowed.");
}

// H9
#[test]
fn usability_is_told_only_after_a_failed_update_or_deprovision() {
    let update = UpdateError::from(ErrorBody::unprocessable("no"))
        .instance_usable(true)
        .update_repeatable(false);
    assert_eq!(
        written(&update),
        json!({ "description": "no", "instance_usable": true, "update_repeatable": false })
    );
    assert_eq!(update.body().status(), 422);
    let deprovision = DeprovisionError::from(ErrorBody::internal("no")).instance_usable(false);
    assert_eq!(
        written(&deprovision),
        json!({ "description": "no", "instance_usable": false })
    );
    // Unsaid is left out: both default to true.
    assert_eq!(
        written(&UpdateError::from(ErrorBody::gone("no"))),
        json!({ "description": "no" })
    );
}

#[test]
fn an_endless_description_is_cut_between_characters() {
    let error = ErrorBody::internal("é".repeat(MAX_DESCRIPTION_BYTES));
    assert_eq!(error.description().len(), MAX_DESCRIPTION_BYTES);
    let error = ErrorBody::internal(format!("a{}", "é".repeat(MAX_DESCRIPTION_BYTES)));
    assert_eq!(error.description().len(), MAX_DESCRIPTION_BYTES - 1);
}

#[test]
fn what_is_wrong_with_a_request_becomes_a_400_and_with_a_version_a_412() {
    let error = ErrorBody::from(BadRequest::new("/plan_id", "is missing"));
    assert_eq!(
        (error.status(), error.description()),
        (400, "/plan_id: is missing")
    );
    let error = UpdateError::from(BadRequest::new("", "the body is empty"));
    assert_eq!(
        (error.body().status(), error.body().description()),
        (400, "the body is empty")
    );
    let error = ErrorBody::from(ApiVersion::of_request(None).unwrap_err());
    assert_eq!(error.status(), 412);
}
