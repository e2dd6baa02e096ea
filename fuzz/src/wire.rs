//! Every reader of `evenkeel-osb`: what platforms send to a broker, and brokers to a platform.

use std::fmt::Debug;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_osb::headers::check_content_type;
use evenkeel_osb::{
    ApiVersion, BadRequest, BindRequest, BindingDetails, Catalog, ErrorBody, FromObject,
    InstanceDetails, InstanceInProgress, InstanceLastOperation, LastOperation, MAX_DEPTH,
    MAX_OPERATION_CHARS, OriginatingIdentity, ProvisionRequest, Query, RequestIdentity, RetryAfter,
    UpdateRequest, decode_segment, encode_segment, parse_body,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::replay::Target;

/// The targets of this module.
pub const TARGETS: [Target; 7] = [
    ("provision", provision),
    ("update", update),
    ("bind", bind),
    ("headers", headers),
    ("uris", uris),
    ("catalog", catalog),
    ("last_operation", last_operation),
];

/// `PUT /v2/service_instances/:id`.
pub fn provision(data: &[u8]) {
    if let Some(request) = body::<ProvisionRequest>(data) {
        assert!(!request.service_id.is_empty() && !request.plan_id.is_empty());
        assert!(!request.organization_guid.is_empty() && !request.space_guid.is_empty());
        assert!(
            request
                .maintenance_info
                .is_none_or(|info| !info.version.is_empty())
        );
    }
}

/// `PATCH /v2/service_instances/:id`.
pub fn update(data: &[u8]) {
    if let Some(request) = body::<UpdateRequest>(data) {
        assert!(!request.service_id.is_empty());
        assert!(request.plan_id.is_none_or(|plan| !plan.is_empty()));
    }
}

/// `PUT …/service_bindings/:id`.
pub fn bind(data: &[u8]) {
    if let Some(request) = body::<BindRequest>(data) {
        let details = request.details();
        assert!(details.app_guid().is_none_or(|app| !app.is_empty()));
        assert!(
            details
                .bind_resource
                .route()
                .is_none_or(|route| !route.is_empty())
        );
        match request {
            BindRequest::New(new) => assert!(!new.service_id.is_empty() && !new.plan_id.is_empty()),
            BindRequest::Rotate(rotation) => assert!(!rotation.predecessor_binding_id.is_empty()),
        }
    }
}

/// A catalog as a platform reads it, and what is said of it.
pub fn catalog(data: &[u8]) {
    if let Some(catalog) = body::<Catalog>(data) {
        for problem in catalog.problems() {
            assert!(problem.pointer.starts_with("/services"), "{problem}");
            assert!(!problem.message.is_empty());
        }
    }
}

/// What a platform reads of operations, instances and bindings.
pub fn last_operation(data: &[u8]) {
    if let Some(operation) = body::<InstanceLastOperation>(data) {
        assert!(operation.description().is_none_or(|text| !text.is_empty()));
    }
    body::<LastOperation>(data);
    body::<InstanceInProgress>(data);
    body::<InstanceDetails>(data);
    body::<BindingDetails>(data);
}

/// Every header: the same bytes as a value of each.
pub fn headers(data: &[u8]) {
    match ApiVersion::of_request(Some(data)) {
        Ok(version) => {
            assert_eq!(version.major, 2);
            let again = version.to_string();
            assert_eq!(ApiVersion::of_request(Some(again.as_bytes())), Ok(version));
        }
        Err(error) => {
            let body = ErrorBody::from(error);
            assert_eq!(body.status(), 412);
            assert!(body.description().contains("2.17"), "{body}");
        }
    }
    identity(data);
    // The fuzzer cannot make base64 out of nothing, so its bytes are also taken as what is in it.
    identity(format!("cloudfoundry {}", STANDARD.encode(data)).as_bytes());
    if let Some(kept) = RequestIdentity::of_request(Some(data)) {
        assert_eq!(kept.as_bytes(), data);
        assert!(!data.contains(&b'\n') && !data.contains(&b'\r') && !data.contains(&0));
    }
    if let Err(error) = check_content_type(Some(data)) {
        assert!(!error.message.is_empty());
    }
    if let Some(Ok(after)) = std::str::from_utf8(data).ok().map(str::parse::<RetryAfter>) {
        assert_eq!(after.to_string().parse(), Ok(after));
    }
}

fn identity(header: &[u8]) {
    let Ok(identity) = OriginatingIdentity::parse(header) else {
        return;
    };
    assert!(
        identity
            .platform()
            .bytes()
            .all(|byte| byte.is_ascii_graphic())
    );
    // What base64 makes longer may not fit again.
    if let Ok(again) = OriginatingIdentity::parse(identity.to_header().as_bytes()) {
        assert_eq!(again, identity);
    }
    assert!(identity.missing_properties().len() <= 4);
}

/// A path's segment and a query.
pub fn uris(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match decode_segment(&text) {
        Ok(id) => {
            assert!(!id.is_empty());
            assert_eq!(decode_segment(&encode_segment(&id)), Ok(id));
        }
        Err(error) => assert!(text.is_empty() || text.contains('%'), "{error}"),
    }
    let query = Query::parse(&text);
    assert_eq!(Query::parse(&query.encode()), query);
    for value in [&query.service_id, &query.plan_id].into_iter().flatten() {
        assert!(!value.is_empty());
    }
    if let Some(operation) = &query.operation {
        assert!((1..=MAX_OPERATION_CHARS).contains(&operation.as_str().chars().count()));
    }
    assert!(!query.accepts_incomplete || text.contains("true") || text.contains('%'));
}

/// Whatever is read is written and read again as the same; whatever is not is told with a pointer
/// into the document, and without a word of it.
fn body<T: FromObject + Serialize + PartialEq + Debug>(data: &[u8]) -> Option<T> {
    let document = match parse_body(data) {
        Ok(document) => document,
        Err(error) => {
            assert_eq!(error.pointer, "");
            told(&error);
            let read = serde_json::from_slice::<Map<String, Value>>(data);
            assert!(read.is_err() || depth(data) > MAX_DEPTH, "{error}");
            return None;
        }
    };
    match T::from_object(&document) {
        Ok(read) => {
            let written = serde_json::to_value(&read).expect("it can be written");
            let written = written.as_object().expect("an object");
            assert!(!has_null(written, &document), "{written:?}");
            assert_eq!(T::from_object(written).as_ref(), Ok(&read));
            Some(read)
        }
        Err(error) => {
            assert!(error.pointer.starts_with('/'), "{error}");
            told(&error);
            None
        }
    }
}

fn told(error: &BadRequest) {
    assert!(!error.message.is_empty());
    let body = ErrorBody::from(error.clone());
    assert_eq!(body.status(), 400);
}

// A null of our own making: those inside of free objects were sent so.
fn has_null(written: &Map<String, Value>, sent: &Map<String, Value>) -> bool {
    written
        .iter()
        .any(|(name, value)| value.is_null() && !sent.contains_key(name))
}

fn depth(data: &[u8]) -> usize {
    let (mut deepest, mut depth) = (0_usize, 0_usize);
    for byte in data {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
