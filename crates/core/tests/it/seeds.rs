//! The fuzzer's seeds, and what it once found, through the fuzzer's own functions
//! (`fuzz/README.md`).

use evenkeel_core::bundle::Bundle;
use uuid::Uuid;

#[path = "../../../../fuzz/src/bundles.rs"]
#[expect(unreachable_pub, reason = "there it is a crate")]
mod bundles;
#[cfg(test)]
#[path = "../../../../fuzz/src/replay.rs"]
#[expect(unreachable_pub, dead_code, reason = "there it is a crate")]
mod replay;

use replay::Folder;

#[test]
fn every_seed_and_every_regression_of_bundles_holds() {
    Folder::of(env!("CARGO_MANIFEST_DIR")).replay("core", &bundles::TARGETS);
}

/// A function that finds nothing would hold for every seed.
#[test]
fn seeds_reach_what_is_behind_the_first_check() {
    let folder = Folder::of(env!("CARGO_MANIFEST_DIR"));
    let parse = |name| {
        let yaml = folder.input(&format!("seeds/bundle/{name}"));
        Bundle::parse(&yaml, Uuid::nil(), &|_| {
            Some(evenkeel_core::bundle::FileFact { executable: true })
        })
    };
    let (bundle, _) = parse("full").expect("a good bundle");
    assert_eq!(bundle.plans.len(), 2);
    assert!(bundle.service.dashboard_client.is_some());
    assert!(parse("postgres").is_ok() && parse("multi-line").is_ok());
    let errors = parse("many-mistakes").expect_err("mistakes");
    assert!(!errors.is_empty());
}
