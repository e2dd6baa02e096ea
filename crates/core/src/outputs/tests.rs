use serde_json::json;

use super::*;

fn mount(change: &str, value: Value) -> Value {
    let mut mount = json!({
        "driver": "nfs", "container_dir": "/data", "mode": "rw", "device_type": "shared",
        "device": {"volume_id": "v", "mount_config": {"uid": 1}},
    });
    mount[change] = value;
    json!({ "volume_mounts": [mount] })
}

fn endpoint(change: &str, value: Value) -> Value {
    let mut endpoint = json!({"host": "db.example", "ports": ["443", "9000-9010"]});
    endpoint[change] = value;
    json!({ "endpoints": [endpoint] })
}

#[test]
fn every_field_of_the_contract_is_taken_over() {
    let mut document = endpoint("protocol", json!("udp"));
    document["volume_mounts"] = mount("mode", json!("r"))["volume_mounts"].clone();
    for (name, value) in [
        ("credentials", json!({"password": "p"})),
        ("dashboard_url", json!("https://d")),
        ("syslog_drain_url", json!("syslog://s")),
        ("route_service_url", json!("https://r")),
        ("metadata", json!({"labels": {"a": "b"}})),
        ("expires_at", json!("2030-01-31T23:59:59.0Z")),
        ("renew_before", json!("2030-01-31T23:59:59Z")),
        ("data", json!([3])),
    ] {
        document[name] = value;
    }
    let mut written = document.clone();
    written["error"] = json!({"message": "m"});
    let mut taken = serde_json::to_value(Outputs::checked(written).unwrap()).unwrap();
    let message = taken.as_object_mut().unwrap().remove("error_message");
    assert_eq!(message, Some(json!("m")));
    assert_eq!(taken, document);
}

#[test]
fn nothing_and_null_are_no_output() {
    for document in [
        json!({}),
        json!({"credentials": null, "endpoints": null, "error": null, "expires_at": null}),
    ] {
        assert!(Outputs::checked(document).unwrap() == Outputs::default());
    }
    for document in [
        mount("device", json!({"volume_id": "v", "mount_config": null})),
        endpoint("protocol", json!("")),
        json!({"route_service_url": "", "expires_at": "", "renew_before": ""}),
    ] {
        assert!(Outputs::checked(document).is_ok());
    }
}

#[test]
fn what_no_platform_can_use_is_named_and_not_shown() {
    let secret = "hunter2";
    for (document, name) in [
        (json!([secret]), "object"),
        (json!({"credential": secret}), "credential"),
        (json!({"credentials": secret}), "`credentials`"),
        (json!({"dashboard_url": [secret]}), "`dashboard_url`"),
        (json!({"error": secret}), "`error`"),
        (json!({"error": {"message": {secret: 1}}}), "`message`"),
        (json!({"metadata": [secret]}), "`metadata`"),
        (json!({"metadata": {"labels": secret}}), "`metadata.labels`"),
        (json!({"endpoints": secret}), "`endpoints`"),
        (json!({"endpoints": [secret]}), "`endpoints[0]`"),
        (endpoint("host", json!("")), "`host`"),
        (endpoint("host", json!(1)), "`host`"),
        (endpoint("ports", Value::Null), "`ports`"),
        (endpoint("ports", json!([])), "`ports`"),
        (endpoint("ports", json!([443])), "`ports`"),
        (endpoint("ports", json!([secret])), "`ports`"),
        (endpoint("ports", json!(["0"])), "`ports`"),
        (endpoint("ports", json!(["+1"])), "`ports`"),
        (endpoint("ports", json!(["2-1"])), "`ports`"),
        (endpoint("ports", json!(["65536"])), "`ports`"),
        (endpoint("protocol", json!(secret)), "`protocol`"),
        (json!({"volume_mounts": [secret]}), "`volume_mounts[0]`"),
        (mount("driver", Value::Null), "`driver`"),
        (mount("container_dir", json!([secret])), "`container_dir`"),
        (mount("mode", json!(secret)), "`mode`"),
        (mount("device_type", json!(secret)), "`device_type`"),
        (mount("device", json!(secret)), "`device`"),
        (mount("device", json!({})), "`volume_id`"),
        (
            mount("device", json!({"volume_id": "v", "mount_config": secret})),
            "`mount_config`",
        ),
        (
            json!({"route_service_url": "http://h"}),
            "`route_service_url`",
        ),
        (
            json!({"route_service_url": "https://:1/"}),
            "`route_service_url`",
        ),
        (json!({"expires_at": secret}), "`expires_at`"),
        (json!({"renew_before": 1}), "`renew_before`"),
        (
            json!({"expires_at": "2030-01-01T00:00:00Z", "renew_before": "2030-01-01T00:00:00.1Z"}),
            "`renew_before`",
        ),
    ] {
        let message = Outputs::checked(document.clone()).unwrap_err();
        assert!(message.contains(name), "{document}: {message}");
        assert!(!message.contains(secret), "{message}");
    }
}

#[test]
fn a_long_name_of_an_unknown_field_is_cut() {
    let name = "x".repeat(100_000);
    assert!(Outputs::checked(json!({ name: 1 })).unwrap_err().len() < 200);
}

#[test]
fn times_are_in_utc_and_exist() {
    for (text, good) in [
        ("2030-01-31T23:59:59Z", true),
        ("2030-01-31T23:59:60.123456789Z", true),
        ("2028-02-29T00:00:00.000Z", true),
        ("2030-02-29T00:00:00Z", false),
        ("2030-13-01T00:00:00Z", false),
        ("2030-01-31T24:00:00Z", false),
        ("2030-01-31T23:59:59+01:00", false),
        ("2030-01-31T23:59:59", false),
        ("2030-01-31 23:59:59Z", false),
        ("2030-01-31T23:59:59.Z", false),
        ("2030-01-31T23:59:59.1234567890Z", false),
        ("+030-01-31T23:59:59Z", false),
        ("2030-01-31T23:59:5éZ", false),
        ("é", false),
    ] {
        let read = Outputs::checked(json!({ "expires_at": text }));
        assert_eq!(read.is_ok(), good, "{text}");
    }
}

#[test]
fn what_platforms_cannot_take_whole_is_refused_at_the_end_of_the_run() {
    let text = |chars: usize| "ü".repeat(chars);
    let mounts = |bytes: usize| {
        let mount = mount("driver", json!("d"));
        let rest = json!(mount["volume_mounts"]).to_string().len();
        let mut mount = mount;
        mount["volume_mounts"][0]["driver"] = json!("d".repeat(1 + bytes - rest));
        mount
    };
    let metadata = |chars: usize| json!({"metadata": {"labels": {"a": text(chars - 19)}}});
    for (fits, exceeds, field) in [
        (
            json!({"dashboard_url": text(16_000)}),
            json!({"dashboard_url": text(16_001)}),
            "dashboard_url",
        ),
        (
            json!({"syslog_drain_url": text(10_000)}),
            json!({"syslog_drain_url": text(10_001)}),
            "syslog_drain_url",
        ),
        (mounts(65_535), mounts(65_536), "volume_mounts"),
        (metadata(4_096), metadata(4_097), "metadata"),
    ] {
        assert!(Outputs::checked(fits).is_ok(), "{field}");
        let error = Outputs::checked(exceeds).unwrap_err();
        assert!(error.starts_with(&format!("`{field}`")), "{error}");
        assert!(error.len() < 200, "no value is shown");
    }
}
