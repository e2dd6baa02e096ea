use evenkeel_osb::{
    BindAnswer, Binding, BindingDetails, BindingMetadata, BindingRule, DeleteAnswer, Endpoint,
    InProgress, InstanceDetails, InstanceInProgress, InstanceInfo, InstanceMetadata,
    MaintenanceInfo, MountMode, Operation, Ports, Protocol, ProvisionAnswer, Requires, Timestamp,
    UpdateAnswer, VolumeMount,
};
use serde_json::{Value, json};

use crate::{object, read, written};

fn operation() -> Option<Operation> {
    Some(Operation::new("op-1").unwrap())
}

fn info() -> InstanceInfo {
    InstanceInfo {
        dashboard_url: Some("https://d.example.com/1".into()),
        metadata: InstanceMetadata {
            labels: object(json!({ "engine": "pg" })),
            attributes: object(json!({ "size": "3" })),
        },
    }
}

fn info_json() -> Value {
    json!({
        "dashboard_url": "https://d.example.com/1",
        "metadata": { "labels": { "engine": "pg" }, "attributes": { "size": "3" } },
    })
}

// P2, P7
#[test]
fn a_provision_is_answered_with_201_200_or_202_and_only_202_has_an_operation() {
    for (answer, status) in [
        (ProvisionAnswer::Created(info()), 201),
        (ProvisionAnswer::Exists(info()), 200),
    ] {
        assert_eq!(answer.status(), status);
        assert_eq!(written(&answer), info_json());
    }
    let accepted = ProvisionAnswer::InProgress(InstanceInProgress {
        info: info(),
        operation: operation(),
    });
    let mut expected = info_json();
    expected["operation"] = json!("op-1");
    assert_eq!(accepted.status(), 202);
    assert_eq!(written(&accepted), expected);
}

// P7, H8, C9
#[test]
fn an_answer_with_nothing_to_say_is_an_empty_object_without_nulls() {
    assert_eq!(
        written(&ProvisionAnswer::Created(InstanceInfo::default())),
        json!({})
    );
    assert_eq!(
        written(&ProvisionAnswer::InProgress(InstanceInProgress::default())),
        json!({})
    );
    assert_eq!(
        written(&UpdateAnswer::Updated(InstanceInfo::default())),
        json!({})
    );
    assert_eq!(
        written(&UpdateAnswer::InProgress(InstanceInProgress::default())),
        json!({})
    );
    assert_eq!(written(&DeleteAnswer::Deleted {}), json!({}));
    assert_eq!(
        written(&DeleteAnswer::InProgress(InProgress::default())),
        json!({})
    );
    assert_eq!(written(&BindAnswer::Created(Binding::default())), json!({}));
    assert_eq!(
        written(&BindAnswer::InProgress(InProgress::default())),
        json!({})
    );
    assert_eq!(written(&InstanceDetails::default()), json!({}));
    assert_eq!(written(&BindingDetails::default()), json!({}));
}

// U3
#[test]
fn updates_and_deletes_are_answered_with_200_or_202() {
    let progress = InstanceInProgress {
        info: InstanceInfo::default(),
        operation: operation(),
    };
    assert_eq!(UpdateAnswer::Updated(info()).status(), 200);
    assert_eq!(UpdateAnswer::InProgress(progress.clone()).status(), 202);
    assert_eq!(
        written(&UpdateAnswer::InProgress(progress)),
        json!({ "operation": "op-1" })
    );
    assert_eq!(DeleteAnswer::Deleted {}.status(), 200);
    let progress = DeleteAnswer::InProgress(InProgress {
        operation: operation(),
    });
    assert_eq!(progress.status(), 202);
    assert_eq!(written(&progress), json!({ "operation": "op-1" }));
}

// F1
#[test]
fn a_fetched_instance_reads_and_writes_every_field() {
    let mut body = info_json();
    body["service_id"] = json!("s");
    body["plan_id"] = json!("p");
    body["parameters"] = json!({ "size": 3 });
    body["maintenance_info"] = json!({ "version": "1.0.0" });
    let details: InstanceDetails = read(body.clone()).unwrap();
    assert_eq!(details.info, info());
    assert_eq!(
        details.maintenance_info,
        Some(MaintenanceInfo {
            version: "1.0.0".into(),
            description: None
        })
    );
    assert_eq!(written(&details), body);
}

fn full_binding() -> Value {
    json!({
        "metadata": { "expires_at": "2030-02-01T00:00:00.0Z", "renew_before": "2030-01-31T12:00:00.25Z" },
        "credentials": { "uri": "postgres://u:hunter2@h/d" },
        "syslog_drain_url": "syslog://l.example.com:514",
        "route_service_url": "https://r.example.com",
        "volume_mounts": [{
            "driver": "nfs", "container_dir": "/data", "mode": "rw", "device_type": "shared",
            "device": { "volume_id": "v1", "mount_config": { "uid": 1000 } },
        }],
        "endpoints": [
            { "host": "db.example.com", "ports": ["5432", "9000-9010"] },
            { "host": "10.0.0.1", "ports": ["53"], "protocol": "udp" },
        ],
    })
}

// B4
#[test]
fn a_binding_reads_and_writes_every_field() {
    let binding: Binding = read(full_binding()).unwrap();
    assert_eq!(written(&binding), full_binding());
    assert_eq!(BindAnswer::Created(binding.clone()).status(), 201);
    assert_eq!(
        written(&BindAnswer::Exists(binding.clone())),
        full_binding()
    );
    assert_eq!(BindAnswer::Exists(binding.clone()).status(), 200);

    let mut fetched = full_binding();
    fetched["parameters"] = json!({ "role": "owner" });
    let details: BindingDetails = read(fetched.clone()).unwrap();
    assert_eq!(details.binding, binding);
    assert_eq!(written(&details), fetched);
}

// B2
#[test]
fn a_202_to_a_bind_holds_the_operation_and_nothing_else() {
    let answer = BindAnswer::InProgress(InProgress {
        operation: operation(),
    });
    assert_eq!(answer.status(), 202);
    assert_eq!(written(&answer), json!({ "operation": "op-1" }));
    // Whatever a broker puts there is not read either.
    let received: InProgress =
        read(json!({ "operation": "op-1", "credentials": { "a": 1 } })).unwrap();
    assert_eq!(written(&received), json!({ "operation": "op-1" }));
}

// B4
#[test]
fn credentials_may_be_empty_or_absent_and_do_not_show_in_debug_output() {
    assert_eq!(
        written(&read::<Binding>(json!({ "credentials": {} })).unwrap()),
        json!({ "credentials": {} })
    );
    assert_eq!(
        written(&read::<Binding>(json!({ "credentials": null })).unwrap()),
        json!({})
    );
    assert_eq!(
        read::<Binding>(json!({ "credentials": "x" }))
            .unwrap_err()
            .pointer,
        "/credentials"
    );
    assert!(!format!("{:?}", read::<Binding>(full_binding()).unwrap()).contains("hunter2"));
}

// B4
#[test]
fn times_are_utc_with_a_fraction() {
    let time = |text: &str| text.parse::<Timestamp>().map(|time| time.to_string());
    assert_eq!(
        time("2030-01-31T23:59:59.5Z").as_deref(),
        Ok("2030-01-31T23:59:59.5Z")
    );
    assert_eq!(
        time("2030-01-31T23:59:59Z").as_deref(),
        Ok("2030-01-31T23:59:59.0Z")
    );
    assert_eq!(
        time("2030-01-31T23:59:59.000Z").as_deref(),
        Ok("2030-01-31T23:59:59.0Z")
    );
    assert_eq!(
        time("2028-02-29T00:00:00.123456789Z").as_deref(),
        Ok("2028-02-29T00:00:00.123456789Z")
    );
    for text in [
        "",
        "2030-01-31",
        "2030-01-31T23:59:59",
        "2030-01-31T23:59:59.Z",
        "2030-01-31T23:59:59+00:00",
        "2030-01-31 23:59:59Z",
        "2030-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2030-13-01T00:00:00Z",
        "2030-00-01T00:00:00Z",
        "2030-04-31T00:00:00Z",
        "2030-01-00T00:00:00Z",
        "2030-01-31T24:00:00Z",
        "2030-01-31T23:60:00Z",
        "2030-01-31T23:59:61Z",
        "2030-01-31T23:59:59.0123456789Z",
        "2030-01-31T23:59:59.xZ",
        "é030-01-31T23:59:59Z",
        "2030-01-31T23:59:5é",
        "2030-01-31T23:59:59z",
    ] {
        assert!(time(text).is_err(), "{text}");
    }
}

// B4
#[test]
fn a_binding_is_renewed_before_it_expires() {
    let time = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    let (early, late) = (
        time("2030-01-31T23:59:59.49Z"),
        time("2030-01-31T23:59:59.5Z"),
    );
    assert!(early < late);
    assert!(BindingMetadata::new(late.clone(), early.clone()).is_some());
    assert!(BindingMetadata::new(early.clone(), early.clone()).is_some());
    assert!(BindingMetadata::new(early.clone(), late.clone()).is_none());
    assert!(BindingMetadata::new(None, late).is_some());
    let wrong = json!({ "metadata": { "expires_at": "2030-01-31T23:59:59Z", "renew_before": "2030-01-31T23:59:59.1Z" } });
    assert_eq!(
        read::<Binding>(wrong).unwrap_err().to_string(),
        "/metadata/renew_before: must not be after expires_at"
    );
    let wrong = json!({ "metadata": { "expires_at": "tomorrow" } });
    assert_eq!(
        read::<Binding>(wrong).unwrap_err().pointer,
        "/metadata/expires_at"
    );
}

// B5
#[test]
fn an_endpoint_has_a_host_and_at_least_one_port_written_as_a_string() {
    let ports = vec!["443".parse().unwrap(), Ports::range(9000, 9010).unwrap()];
    let endpoint = Endpoint::new("h", ports.clone(), Protocol::Tcp).unwrap();
    assert_eq!(
        written(&endpoint),
        json!({ "host": "h", "ports": ["443", "9000-9010"] })
    );
    let endpoint = Endpoint::new("h", ports, Protocol::All).unwrap();
    assert_eq!(written(&endpoint)["protocol"], json!("all"));
    assert!(Endpoint::new("h", vec![], Protocol::Tcp).is_none());
    assert!(Endpoint::new("", vec![Ports::one(1).unwrap()], Protocol::Tcp).is_none());
    for text in [
        "", "0", "65536", "-1", "+1", "1-", "2-1", "1-2-3", "a", "1 - 2",
    ] {
        assert!(text.parse::<Ports>().is_err(), "{text}");
    }
}

// B5
#[test]
fn a_wrong_endpoint_is_named_by_its_pointer() {
    let pointer = |endpoint: Value| {
        let endpoints = json!({ "endpoints": [{ "host": "h", "ports": ["1"] }, endpoint] });
        read::<Binding>(endpoints).unwrap_err().pointer
    };
    assert_eq!(pointer(json!({ "ports": ["1"] })), "/endpoints/1/host");
    assert_eq!(pointer(json!({ "host": "h" })), "/endpoints/1/ports");
    assert_eq!(
        pointer(json!({ "host": "h", "ports": [] })),
        "/endpoints/1/ports"
    );
    assert_eq!(
        pointer(json!({ "host": "h", "ports": ["1", 2] })),
        "/endpoints/1/ports/1"
    );
    assert_eq!(
        pointer(json!({ "host": "h", "ports": ["1", "x"] })),
        "/endpoints/1/ports/1"
    );
    assert_eq!(
        pointer(json!({ "host": "h", "ports": ["1"], "protocol": "sctp" })),
        "/endpoints/1/protocol"
    );
    assert_eq!(pointer(json!("h:1")), "/endpoints/1");
}

// B6
#[test]
fn a_volume_mount_is_shared_and_has_every_required_field() {
    let mount = VolumeMount {
        driver: "nfs".into(),
        container_dir: "/data".into(),
        mode: MountMode::Read,
        volume_id: "v".into(),
        mount_config: json!({}).as_object().cloned().unwrap().into(),
    };
    let body = json!({
        "driver": "nfs", "container_dir": "/data", "mode": "r", "device_type": "shared", "device": { "volume_id": "v" },
    });
    assert_eq!(written(&mount), body);
    assert_eq!(read::<VolumeMount>(body.clone()), Ok(mount));
    for name in ["driver", "container_dir", "mode", "device_type", "device"] {
        let mut without = object(body.clone());
        without.remove(name);
        assert_eq!(
            read::<VolumeMount>(Value::Object(without))
                .unwrap_err()
                .pointer,
            format!("/{name}")
        );
    }
    for (name, wrong, pointer) in [
        ("mode", json!("w"), "/mode"),
        ("device_type", json!("local"), "/device_type"),
        ("device", json!({ "volume_id": "" }), "/device"),
        (
            "device",
            json!({ "volume_id": null, "x": 1 }),
            "/device/volume_id",
        ),
        (
            "device",
            json!({ "volume_id": "v", "mount_config": [] }),
            "/device/mount_config",
        ),
    ] {
        let mut body = body.clone();
        body[name] = wrong;
        let error = read::<VolumeMount>(body).unwrap_err();
        assert!(error.pointer.starts_with(pointer), "{error}");
    }
}

// B6, B7
#[test]
fn a_binding_holds_only_what_its_service_requires() {
    let binding = |body: Value| read::<Binding>(body).unwrap();
    let all = [
        Requires::SyslogDrain,
        Requires::RouteForwarding,
        Requires::VolumeMount,
    ];
    assert_eq!(binding(full_binding()).check(&all), Ok(()));
    assert_eq!(Binding::default().check(&[]), Ok(()));
    assert_eq!(
        Binding::default().check(&[Requires::RouteForwarding, Requires::VolumeMount]),
        Ok(())
    );

    let drain = binding(json!({ "syslog_drain_url": "syslog://l" }));
    assert_eq!(drain.check(&[]), Err(BindingRule::SyslogDrainNotRequired));
    assert_eq!(drain.check(&[Requires::SyslogDrain]), Ok(()));
    assert_eq!(
        Binding::default().check(&[Requires::SyslogDrain]),
        Err(BindingRule::SyslogDrainMissing)
    );

    let volumes = binding(json!({ "volume_mounts": full_binding()["volume_mounts"] }));
    assert_eq!(volumes.check(&[]), Err(BindingRule::VolumeMountNotRequired));
    assert_eq!(volumes.check(&[Requires::VolumeMount]), Ok(()));

    let route = |url: &str| binding(json!({ "route_service_url": url }));
    assert_eq!(
        route("https://r").check(&[]),
        Err(BindingRule::RouteForwardingNotRequired)
    );
    for url in ["https://r", "https://r.example.com:8443/path?q"] {
        assert_eq!(
            route(url).check(&[Requires::RouteForwarding]),
            Ok(()),
            "{url}"
        );
    }
    for url in [
        "http://r",
        "https://",
        "https:///path",
        "https://:443",
        "https://?q",
        "r.example.com",
    ] {
        assert_eq!(
            route(url).check(&[Requires::RouteForwarding]),
            Err(BindingRule::RouteServiceUrl),
            "{url}"
        );
    }
}
