//! Readers of what lies in a run folder never panic, whatever lies there.

use std::fs;

use evenkeel_run::{ContainmentWish, Kind, Probe, RunError, SilentEnd, decode, encode};
use proptest::prelude::*;

use crate::harness::World;

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![
        Just(Kind::Lock),
        Just(Kind::Started),
        Just(Kind::Exit),
        Just(Kind::Heartbeat)
    ];
    let framed = (kinds, proptest::collection::vec(any::<u8>(), 0..300))
        .prop_map(|(kind, payload)| encode(kind, &payload));
    let broken = (framed.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(
        |(mut bytes, at, byte)| {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        },
    );
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        framed,
        broken
    ]
}

proptest! {
    #[test]
    fn any_bytes_decode_to_what_was_encoded_or_to_a_typed_error(bytes in any_bytes()) {
        for kind in [Kind::Lock, Kind::Started, Kind::Exit, Kind::Progress, Kind::Heartbeat] {
            if let Ok(Some(payload)) = decode(kind, &bytes) {
                let again = encode(kind, payload);
                prop_assert_eq!(decode(kind, &again), Ok(Some(payload)));
            }
        }
    }

}

#[test]
fn any_files_in_a_run_folder_are_answers_or_typed_errors() {
    let world = World::new();
    let names = [
        "lock",
        "started",
        "exit",
        "heartbeat",
        "last-progress",
        "spec.json",
        "stop",
    ];
    proptest!(ProptestConfig::with_cases(100), |(files in proptest::collection::vec(any_bytes(), 7))| {
        let folder = world.fresh();
        fs::create_dir(folder.path()).unwrap();
        for (name, bytes) in names.iter().zip(&files) {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let errors = [
            folder.lock_record().err(),
            folder.started_record().err(),
            folder.exit_record().err(),
            folder.spec().err(),
            folder.heartbeat_age().err(),
            folder.last_progress().err(),
        ];
        for error in errors.into_iter().flatten() {
            let typed = matches!(error, RunError::Record { .. } | RunError::Content { .. });
            prop_assert!(typed, "{:?}", error);
            prop_assert!(error.to_string().contains(folder.attempt_id()), "it names the file");
        }
        prop_assert_eq!(folder.end_silent(std::time::Duration::ZERO).unwrap(), SilentEnd::NotAlive);
        // Nothing lives in there, so there must be a final answer, and it stays.
        let answer = folder.probe().unwrap();
        prop_assert!(!matches!(answer, Probe::Alive | Probe::Lingering));
        prop_assert_eq!(folder.probe().unwrap(), answer);
    });
}

#[test]
fn any_tombstone_keeps_shims_away() {
    let world = World::new();
    proptest!(ProptestConfig::with_cases(50), |(bytes in proptest::collection::vec(any::<u8>(), 0..100))| {
        let folder = world.fresh();
        fs::create_dir(folder.path()).unwrap();
        fs::write(folder.path().join("tombstone"), bytes).unwrap();
        let spec = world.script(&folder, "exit 0");
        let begun = folder.begin(&spec, b"{}", &Default::default());
        let refused = matches!(begun, Err(RunError::Tombstone { .. }));
        prop_assert!(refused);
    });
}

#[test]
fn files_of_another_kind_are_refused_and_not_waited_for() {
    let world = World::new();
    let (_, folder) = world.run(ContainmentWish::Auto, "exit 0");
    for name in ["lock", "started", "exit", "spec.json"] {
        let path = folder.path().join(name);
        fs::remove_file(&path).unwrap();
        let made = crate::harness::command("mkfifo")
            .arg(&path)
            .status()
            .unwrap();
        assert!(made.success());
    }
    assert!(matches!(
        folder.lock_record(),
        Err(RunError::NotPlain { .. })
    ));
    assert!(matches!(
        folder.started_record(),
        Err(RunError::NotPlain { .. })
    ));
    assert!(matches!(
        folder.exit_record(),
        Err(RunError::NotPlain { .. })
    ));
    assert!(matches!(folder.spec(), Err(RunError::NotPlain { .. })));
}
