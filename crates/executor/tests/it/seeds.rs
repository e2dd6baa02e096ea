//! The fuzzer's seeds, and what it once found, through the fuzzer's own functions
//! (`fuzz/README.md`).

#[path = "../../../../fuzz/src/any_record.rs"]
#[expect(unreachable_pub, reason = "there it is a crate")]
mod any_record;
#[path = "../../../../fuzz/src/folders.rs"]
#[expect(unreachable_pub, reason = "there it is a crate")]
mod folders;
#[path = "../../../../fuzz/src/replay.rs"]
#[expect(unreachable_pub, reason = "there it is a crate")]
mod replay;
#[path = "../../../../fuzz/src/runs.rs"]
#[expect(unreachable_pub, reason = "there it is a crate")]
mod runs;

use evenkeel_run::{Kind, decode};
use replay::Folder;

#[test]
fn every_seed_and_every_regression_of_runs_holds() {
    Folder::of(env!("CARGO_MANIFEST_DIR")).replay("executor", &runs::TARGETS);
}

#[test]
fn every_target_is_known_everywhere_and_its_seeds_are_small() {
    Folder::of(env!("CARGO_MANIFEST_DIR")).check();
}

/// A function that finds nothing would hold for every seed.
#[test]
fn seeds_reach_what_is_behind_the_first_check() {
    let folder = Folder::of(env!("CARGO_MANIFEST_DIR"));
    let whole = folder.input("seeds/exit_record/ended-well");
    let json = decode(Kind::Exit, &whole).expect("it is whole");
    let json = json.expect("it is there");
    assert_eq!(json, folder.input("seeds/exit_record/ended-well-json"));
    assert!(decode(Kind::Exit, &folder.input("seeds/exit_record/torn")).is_err());
    for (input, answer) in [
        ("seeds/run_folder/ended-well", "exited"),
        ("seeds/run_folder/shim-killed", "vanished"),
        ("seeds/run_folder/prepared", "never started"),
        ("seeds/run_folder/exit-torn", "vanished"),
        ("regressions/run_folder/tree-lock-of-others", "vanished"),
        ("regressions/run_folder/lock-is-a-folder", "vanished"),
        ("regressions/run_folder/folder-is-a-link", "never started"),
    ] {
        let met = folders::run_folder(&folder.input(input));
        assert_eq!(met, answer, "{input}");
    }
}
