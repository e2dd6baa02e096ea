//! What a finished job makes of its instance or binding.

use std::fmt::Write as _;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::FailReason;
use evenkeel_core::instance::{on_submit, settle};
use evenkeel_core::job::{QuarantineReason, State, StopReason};

use crate::fixtures::{NOON, job_id, running};

fn finals() -> Vec<(&'static str, State)> {
    let by = |by| State::Cancelled { by };
    vec![
        ("succeeded", State::Succeeded),
        (
            "failed",
            State::Failed {
                reason: FailReason::Timeout,
                message: None,
            },
        ),
        ("cancelled by operator", by(StopReason::Operator)),
        ("cancelled by sync limit", by(StopReason::SyncLimit)),
        ("superseded", by(StopReason::Superseded { job: job_id(2) })),
        (
            "quarantined",
            State::Quarantined {
                reason: QuarantineReason::BudgetSpent,
            },
        ),
    ]
}

#[test]
fn the_settlement_of_every_action_and_end_is_this() {
    let mut table = String::new();
    for action in Action::ALL {
        let at_first = on_submit(action).map_or("as it was", |status| status.as_str());
        writeln!(table, "{action}: {at_first} when accepted").expect("a string takes it");
        for (words, state) in finals() {
            for made in [false, true] {
                let settled = settle(action, &state, made).expect("the state is final");
                let mut notes = vec![
                    settled
                        .status
                        .map_or("as the delete set it", |s| s.as_str()),
                ];
                for (is, note) in [
                    (settled.apply_desired, "desired is applied"),
                    (settled.keep_outputs, "outputs kept"),
                    (settled.bindings_gone, "bindings gone"),
                ] {
                    if is {
                        notes.push(note);
                    }
                }
                let made = if made { " with outputs" } else { "" };
                writeln!(
                    table,
                    "  {:<38}-> {}",
                    format!("{words}{made}"),
                    notes.join(", ")
                )
                .expect("a string takes it");
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn nothing_is_settled_before_the_end() {
    let unfinished = [
        State::Queued,
        State::Backoff { next_at: NOON },
        running(None).state,
    ];
    for state in unfinished {
        for action in Action::ALL {
            assert_eq!(settle(action, &state, true), None);
        }
    }
}
