//! The fuzzer's seeds, and what it once found, through the fuzzer's own functions
//! (`fuzz/README.md`).

#[cfg(test)]
#[path = "../../../../fuzz/src/replay.rs"]
#[expect(unreachable_pub, dead_code, reason = "there it is a crate")]
mod replay;
#[path = "../../../../fuzz/src/wire.rs"]
#[expect(unreachable_pub, reason = "there it is a crate")]
mod wire;

use replay::Folder;

#[test]
fn every_seed_and_every_regression_of_the_fuzzer_holds() {
    Folder::of(env!("CARGO_MANIFEST_DIR")).replay("osb", &wire::TARGETS);
}

/// A function that finds nothing would hold for every seed.
#[test]
fn seeds_reach_what_is_behind_the_first_check() {
    use evenkeel_osb::{
        BindRequest, Catalog, FromObject, OriginatingIdentity, ProvisionRequest, Query,
    };
    let folder = Folder::of(env!("CARGO_MANIFEST_DIR"));
    let seed = |target: &str, name: &str| folder.input(&format!("seeds/{target}/{name}"));
    assert!(ProvisionRequest::from_body(&seed("provision", "cloud-foundry")).is_ok());
    assert!(ProvisionRequest::from_body(&seed("provision", "deep")).is_err());
    let rotation = BindRequest::from_body(&seed("bind", "rotation"));
    assert!(
        matches!(rotation, Ok(BindRequest::Rotate(_))),
        "{rotation:?}"
    );
    let catalog = Catalog::from_body(&seed("catalog", "full")).unwrap();
    assert_eq!(catalog.services[0].plans.len(), 1);
    assert!(
        !Catalog::from_body(&seed("catalog", "twice"))
            .unwrap()
            .problems()
            .is_empty()
    );
    assert!(OriginatingIdentity::parse(&seed("headers", "kubernetes")).is_ok());
    let query = Query::parse(std::str::from_utf8(&seed("uris", "encoded-names")).unwrap());
    assert!(query.accepts_incomplete && query.service_id.is_some());
}
