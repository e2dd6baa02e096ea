use std::str::FromStr;

use evenkeel_osb::headers::check_content_type;
use evenkeel_osb::{
    ApiVersion, BindRequest, BindingDetails, Catalog, FromObject, InstanceDetails,
    InstanceInProgress, InstanceLastOperation, OriginatingIdentity, Ports, ProvisionRequest, Query,
    RequestIdentity, RetryAfter, Timestamp, UpdateRequest, decode_segment, encode_segment,
    parse_body,
};
use proptest::prelude::*;
use serde_json::{Map, Value};

/// The names that the readers look for, so that random documents reach deep into them.
const NAMES: &[&str] = &[
    "service_id",
    "plan_id",
    "organization_guid",
    "space_guid",
    "context",
    "parameters",
    "maintenance_info",
    "version",
    "description",
    "previous_values",
    "bind_resource",
    "app_guid",
    "app_annotations",
    "predecessor_binding_id",
    "route",
    "services",
    "plans",
    "name",
    "id",
    "bindable",
    "tags",
    "requires",
    "schemas",
    "service_instance",
    "create",
    "dashboard_client",
    "maximum_polling_duration",
    "free",
    "state",
    "instance_usable",
    "operation",
    "dashboard_url",
    "metadata",
    "labels",
    "expires_at",
    "renew_before",
    "credentials",
    "volume_mounts",
    "device",
    "device_type",
    "endpoints",
    "host",
    "ports",
    "protocol",
    "a~/b",
];

fn json() -> impl Strategy<Value = Value> {
    let texts: &'static [&'static str] = &[
        "",
        "x",
        "shared",
        "rw",
        "tcp",
        "443",
        "9-1",
        "failed",
        "syslog_drain",
        "2030-01-31T00:00:00Z",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(texts).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            members(inner).prop_map(Value::from),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let member = (prop::sample::select(NAMES).prop_map(str::to_owned), value);
    prop::collection::vec(member, 0..10).prop_map(Map::from_iter)
}

/// Whatever is read is written and read again as the same; whatever is not has a pointer into the document.
fn reads_and_writes<T: FromObject + serde::Serialize + PartialEq + std::fmt::Debug>(
    document: &Map<String, Value>,
) -> Result<(), TestCaseError> {
    match T::from_object(document) {
        Ok(read) => {
            let written = serde_json::to_value(&read).unwrap();
            let again = T::from_object(written.as_object().expect("an object"));
            prop_assert_eq!(again.as_ref(), Ok(&read));
        }
        Err(error) => prop_assert!(error.pointer.starts_with('/'), "{}", error),
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_id_survives_encoding_and_decoding(id in ".+") {
        let segment = encode_segment(&id);
        prop_assert!(segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)));
        let decoded = decode_segment(&segment);
        prop_assert_eq!(decoded.as_deref(), Ok(id.as_str()));
    }

    #[test]
    fn every_id_survives_a_query(id in any::<String>().prop_filter("not empty", |id| !id.is_empty())) {
        let query = Query { service_id: Some(id.clone()), plan_id: Some(id), ..Query::default() };
        prop_assert_eq!(Query::parse(&query.encode()), query);
    }

    #[test]
    fn no_reader_panics_on_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let body = parse_body(&bytes);
        prop_assert_eq!(body.is_ok(), serde_json::from_slice::<Map<String, Value>>(&bytes).is_ok());
        let identity = OriginatingIdentity::parse(&bytes);
        prop_assert!(identity.is_err() || bytes.contains(&b' '));
        let version = ApiVersion::of_request(Some(&bytes));
        prop_assert!(version.is_err() || bytes.contains(&b'.'));
        let kept = RequestIdentity::of_request(Some(&bytes));
        prop_assert!(kept.is_none_or(|kept| kept.as_bytes() == bytes));
        prop_assert!(check_content_type(Some(&bytes)).is_err() || bytes.is_empty() || bytes.len() >= 16);
    }

    #[test]
    fn no_reader_panics_on_random_text(text in any::<String>()) {
        let query = Query::parse(&text);
        prop_assert_eq!(Query::parse(&query.encode()), query);
        prop_assert!(decode_segment(&text).is_ok() || text.is_empty() || text.contains('%'));
        if let Ok(ports) = Ports::from_str(&text) {
            prop_assert_eq!(Ports::from_str(&ports.to_string()), Ok(ports));
        }
        prop_assert!(RetryAfter::from_str(&text).is_err() || text.trim().bytes().all(|byte| byte.is_ascii_digit()));
        prop_assert!(Timestamp::from_str(&text).is_err() || text.ends_with('Z'));
    }

    #[test]
    fn timestamps_of_random_shape_are_read_as_themselves_or_refused(text in "[0-9]{4}-[0-9]{2}-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-9]{2}(\\.[0-9]{0,10})?Z") {
        if let Ok(time) = Timestamp::from_str(&text) {
            prop_assert_eq!(&time.as_str()[..19], &text[..19]);
            prop_assert_eq!(Timestamp::from_str(time.as_str()), Ok(time));
        }
    }

    #[test]
    fn every_query_is_the_same_after_writing(text in "((service_id|plan_id|operation|accepts_incomplete|x)=[a-z%+0-9&=]{0,9}&?){0,6}") {
        let query = Query::parse(&text);
        prop_assert_eq!(Query::parse(&query.encode()), query);
    }

    #[test]
    fn random_documents_are_read_and_written_faithfully_or_refused_with_a_pointer(document in members(json())) {
        reads_and_writes::<ProvisionRequest>(&document)?;
        reads_and_writes::<UpdateRequest>(&document)?;
        reads_and_writes::<BindRequest>(&document)?;
        reads_and_writes::<InstanceInProgress>(&document)?;
        reads_and_writes::<InstanceLastOperation>(&document)?;
        reads_and_writes::<InstanceDetails>(&document)?;
        reads_and_writes::<BindingDetails>(&document)?;
        reads_and_writes::<Catalog>(&document)?;
    }
}
