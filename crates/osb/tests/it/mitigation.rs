use evenkeel_osb::{Action, Orphan, Received, orphan_mitigation};

const ACTIONS: [Action; 5] = [
    Action::Provision,
    Action::Update,
    Action::Deprovision,
    Action::Bind,
    Action::Unbind,
];

/// The mitigation after the same answer to each action, in the order of `ACTIONS`.
fn row(received: Received) -> [Option<Orphan>; 5] {
    ACTIONS.map(|action| orphan_mitigation(action, received))
}

fn answer(status: u16, well_formed: bool) -> [Option<Orphan>; 5] {
    row(Received::Answer {
        status,
        well_formed,
    })
}

const NONE: [Option<Orphan>; 5] = [None; 5];
const INSTANCE: Option<Orphan> = Some(Orphan::Instance);
const BINDING: Option<Orphan> = Some(Orphan::Binding);

#[test]
fn a_well_formed_success_leaves_no_orphan() {
    for status in [200, 201, 202] {
        assert_eq!(answer(status, true), NONE);
    }
}

#[test]
fn a_malformed_200_leaves_no_orphan_but_a_malformed_201_or_202_to_a_create_does() {
    assert_eq!(answer(200, false), NONE);
    for status in [201, 202] {
        assert_eq!(answer(status, false), [INSTANCE, None, None, BINDING, None]);
    }
}

#[test]
fn an_operation_that_failed_leaves_one_unless_it_was_an_update() {
    assert_eq!(
        row(Received::OperationFailed),
        [INSTANCE, None, INSTANCE, BINDING, BINDING]
    );
}

#[test]
fn another_2xx_and_every_5xx_leave_one_unless_it_was_an_update() {
    for status in [203, 204, 299, 500, 502, 503, 599] {
        for well_formed in [true, false] {
            assert_eq!(
                answer(status, well_formed),
                [INSTANCE, None, INSTANCE, BINDING, BINDING],
                "{status}"
            );
        }
    }
}

#[test]
fn a_refusal_leaves_none() {
    for status in [400, 401, 404, 408, 409, 410, 412, 422, 429, 499] {
        assert_eq!(answer(status, true), NONE, "{status}");
        assert_eq!(answer(status, false), NONE, "{status}");
    }
}

#[test]
fn silence_after_a_create_leaves_one() {
    assert_eq!(
        row(Received::Nothing),
        [INSTANCE, None, None, BINDING, None]
    );
}
