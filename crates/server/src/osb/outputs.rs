//! What actions wrote, as platforms see it.

use evenkeel_core::request::{Object, Outputs};
use evenkeel_osb::{BadRequest, Binding, ErrorBody, FromObject as _, InstanceInfo};
use serde_json::Value;

/// Dashboard and metadata of an instance. Metadata of the wrong shape is left out: it decides
/// nothing, and platforms take a malformed one as a failure.
pub(super) fn instance_info(outputs: &Outputs) -> InstanceInfo {
    let mut object = Object::new();
    insert(
        &mut object,
        "dashboard_url",
        outputs.dashboard_url.clone().map(Value::from),
    );
    let bare = object.clone();
    insert(
        &mut object,
        "metadata",
        outputs.metadata.clone().map(Value::from),
    );
    InstanceInfo::from_object(&object)
        .or_else(|_| InstanceInfo::from_object(&bare))
        .unwrap_or_default()
}

/// Why what an action wrote is no binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub(super) struct BadBinding(#[from] BadRequest);

impl From<BadBinding> for ErrorBody {
    fn from(error: BadBinding) -> Self {
        Self::internal(format!(
            "The service made a binding that no platform can use: {error}."
        ))
    }
}

/// What a binding hands out. That its offering may hand it out was checked when its bind ended.
///
/// # Errors
/// It was kept by an older release, which did not check the shapes at the end of the run.
pub(super) fn binding(outputs: &Outputs) -> Result<Binding, BadBinding> {
    let mut metadata = Object::new();
    insert(
        &mut metadata,
        "expires_at",
        outputs.expires_at.clone().map(Value::from),
    );
    insert(
        &mut metadata,
        "renew_before",
        outputs.renew_before.clone().map(Value::from),
    );
    let mut object = Object::new();
    insert(&mut object, "metadata", Some(Value::from(metadata)));
    insert(
        &mut object,
        "credentials",
        outputs.credentials.clone().map(Value::from),
    );
    insert(
        &mut object,
        "syslog_drain_url",
        outputs.syslog_drain_url.clone().map(Value::from),
    );
    insert(
        &mut object,
        "route_service_url",
        outputs.route_service_url.clone().map(Value::from),
    );
    insert(
        &mut object,
        "volume_mounts",
        outputs.volume_mounts.clone().map(Value::from),
    );
    insert(
        &mut object,
        "endpoints",
        outputs.endpoints.clone().map(Value::from),
    );
    Ok(Binding::from_object(&object)?)
}

fn insert(object: &mut Object, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_osb::Requires;
    use serde_json::json;

    fn outputs(value: Value) -> Outputs {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_binding_says_what_its_action_wrote_and_nothing_private() {
        let outputs = outputs(json!({
            "credentials": {"password": "p"},
            "endpoints": [{"host": "h", "ports": ["443"]}],
            "expires_at": "2030-01-31T23:59:59.0Z",
            "data": {"private": true},
            "error_message": "private",
        }));
        let written = serde_json::to_value(binding(&outputs).unwrap()).unwrap();
        assert_eq!(
            written,
            json!({
                "credentials": {"password": "p"},
                "endpoints": [{"host": "h", "ports": ["443"]}],
                "metadata": {"expires_at": "2030-01-31T23:59:59.0Z"},
            })
        );
    }

    #[test]
    fn a_binding_that_platforms_would_refuse_is_an_error_with_its_reason() {
        let misshapen = outputs(json!({"endpoints": [{"host": "h", "ports": [443]}]}));
        let error = ErrorBody::from(binding(&misshapen).unwrap_err());
        assert!(error.description().contains("ports"), "{error:?}");
    }

    /// Where the wire is stricter than the check at the end of the run, each answer about a
    /// binding that "succeeded" would be an error.
    #[test]
    fn what_is_kept_of_a_run_is_a_binding_on_the_wire_and_nothing_else_is() {
        let mount = |device: Value| {
            json!({"volume_mounts": [{
                "driver": "nfs", "container_dir": "/d", "mode": "r", "device_type": "shared",
                "device": device,
            }]})
        };
        let endpoint = |ports: Value| json!({"endpoints": [{"host": "h", "ports": ports}]});
        let until = |text: &str| json!({ "expires_at": text });
        for written in [
            mount(json!({"volume_id": "v"})),
            mount(json!({"volume_id": "v", "mount_config": null})),
            mount(json!({"volume_id": "v", "mount_config": [1]})),
            mount(json!({})),
            mount(Value::Null),
            endpoint(json!(["1", "65535", "2-3"])),
            endpoint(json!(["0"])),
            endpoint(json!(["1-"])),
            endpoint(json!([""])),
            endpoint(json!(["65536"])),
            endpoint(json!(["+1"])),
            endpoint(json!([])),
            endpoint(Value::Null),
            json!({"endpoints": [null]}),
            json!({"endpoints": [{"ports": ["1"]}]}),
            json!({"endpoints": [{"host": "h", "ports": ["1"], "protocol": "sctp"}]}),
            until("2028-02-29T23:59:60Z"),
            until("2030-02-29T23:59:59Z"),
            until("2030-01-31T23:59:59.100000000Z"),
            until("2030-01-31T23:59:59.Z"),
            until("2030-01-31T23:59:59+00:00"),
            until(""),
            json!({"expires_at": "2030-01-01T00:00:00.10Z", "renew_before": "2030-01-01T00:00:00.1Z"}),
            json!({"expires_at": "2030-01-01T00:00:00Z", "renew_before": "2030-01-01T00:00:01Z"}),
            json!({"route_service_url": "https://h:1?q"}),
            json!({"route_service_url": "https://?q"}),
            json!({"route_service_url": "http://h"}),
        ] {
            let kept = Outputs::checked(written.clone());
            let granted = [Requires::VolumeMount, Requires::RouteForwarding];
            let on_the_wire = binding(&outputs(written.clone()));
            let is_taken = on_the_wire.is_ok_and(|made| made.check(&granted).is_ok());
            assert_eq!(kept.is_ok(), is_taken, "{written}: {kept:?}");
        }
    }

    #[test]
    fn metadata_of_the_wrong_shape_does_not_take_the_dashboard_with_it() {
        let outputs = outputs(json!({"dashboard_url": "https://d", "metadata": {"labels": 1}}));
        assert_eq!(
            instance_info(&outputs).dashboard_url.as_deref(),
            Some("https://d")
        );
    }
}
