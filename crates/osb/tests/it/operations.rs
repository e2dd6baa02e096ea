use evenkeel_osb::{
    InstanceInProgress, InstanceLastOperation, LastOperation, MAX_OPERATION_CHARS, Operation,
    OperationError, OperationState,
};
use serde_json::{Value, json};

use crate::{read, written};

// L1
#[test]
fn a_last_operation_has_one_of_three_states_and_a_description_or_none() {
    assert_eq!(
        written(&LastOperation::new(OperationState::InProgress)),
        json!({ "state": "in progress" })
    );
    assert_eq!(
        written(&LastOperation::new(OperationState::Succeeded).describe("made it")),
        json!({ "state": "succeeded", "description": "made it" })
    );
    assert_eq!(
        written(&LastOperation::new(OperationState::Failed).describe(" ")),
        json!({ "state": "failed" })
    );
    let instance =
        InstanceLastOperation::from(LastOperation::new(OperationState::Failed).describe("no room"));
    assert_eq!(
        written(&instance),
        json!({ "state": "failed", "description": "no room" })
    );
}

// L1
#[test]
fn only_a_failed_update_or_deprovision_speaks_of_usability() {
    assert_eq!(
        written(&InstanceLastOperation::failed_update(
            "no",
            Some(true),
            Some(false)
        )),
        json!({ "state": "failed", "description": "no", "instance_usable": true, "update_repeatable": false })
    );
    assert_eq!(
        written(&InstanceLastOperation::failed_deprovision(
            "no",
            Some(false)
        )),
        json!({ "state": "failed", "description": "no", "instance_usable": false })
    );
}

// L1
#[test]
fn a_poll_is_read_leniently_but_its_state_exactly() {
    let failed =
        json!({ "state": "failed", "description": null, "instance_usable": false, "extra": 1 });
    let failed: InstanceLastOperation = read(failed).unwrap();
    assert_eq!(
        (failed.state(), failed.description()),
        (OperationState::Failed, None)
    );
    assert_eq!(
        (failed.instance_usable(), failed.update_repeatable()),
        (Some(false), None)
    );

    let running: InstanceLastOperation =
        read(json!({ "state": "in progress", "instance_usable": "?" })).unwrap();
    assert_eq!(running.instance_usable(), None);
    assert!(!running.state().is_final());

    for state in [
        json!("Succeeded"),
        json!("in-progress"),
        json!(""),
        Value::Null,
        json!(1),
    ] {
        assert_eq!(
            read::<LastOperation>(json!({ "state": state }))
                .unwrap_err()
                .pointer,
            "/state"
        );
    }
}

// P7, A4, H12
#[test]
fn an_operation_is_left_out_when_there_is_none_and_bounded_when_there_is_one() {
    assert_eq!(written(&InstanceInProgress::default()), json!({}));
    assert_eq!(Operation::new(""), Err(OperationError::Empty));
    assert!(Operation::new("a".repeat(MAX_OPERATION_CHARS)).is_ok());
    assert_eq!(
        Operation::new("a".repeat(MAX_OPERATION_CHARS + 1)),
        Err(OperationError::TooLong(MAX_OPERATION_CHARS + 1))
    );
    assert!(Operation::received("é".repeat(MAX_OPERATION_CHARS)).is_ok());
}

// H12
#[test]
fn a_broker_names_operations_in_unreserved_characters_only_but_any_are_read() {
    assert!(Operation::new("0198c0de-Az._~-9").is_ok());
    for (name, reserved) in [
        ("a b", ' '),
        ("a/b", '/'),
        ("a+b", '+'),
        ("a%b", '%'),
        ("é", 'é'),
    ] {
        assert_eq!(
            Operation::new(name),
            Err(OperationError::Reserved(reserved))
        );
        let read: InstanceInProgress = read(json!({ "operation": name })).unwrap();
        assert_eq!(read.operation.unwrap().as_str(), name);
    }
}
