//! The fuzzer's seeds, and what it once found, through the fuzzer's own functions
//! (`fuzz/README.md`).

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "there it is a crate")]
mod targets;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 7] = [
    ("provision", targets::provision),
    ("update", targets::update),
    ("bind", targets::bind),
    ("headers", targets::headers),
    ("uris", targets::uris),
    ("catalog", targets::catalog),
    ("last_operation", targets::last_operation),
];

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn every_seed_and_every_regression_of_the_fuzzer_holds() {
    for kind in ["seeds", "regressions"] {
        for folder in files(&fuzz().join(kind)) {
            let target = TARGETS.iter().find(|(target, _)| *target == name(&folder));
            let (_, target) =
                target.unwrap_or_else(|| panic!("no target for {}", folder.display()));
            let inputs = files(&folder);
            assert!(!inputs.is_empty(), "{} is empty", folder.display());
            for input in inputs {
                // Told where a panic would not say.
                println!("{}", input.display());
                target(&fs::read(input).unwrap());
            }
        }
    }
}

#[test]
fn every_target_has_seeds_that_are_small_and_a_binary() {
    for (target, _) in TARGETS {
        for seed in files(&fuzz().join("seeds").join(target)) {
            assert!(
                fs::metadata(&seed).unwrap().len() < 4096,
                "{}",
                seed.display()
            );
        }
        let binary = fs::read_to_string(fuzz().join(format!("fuzz_targets/{target}.rs"))).unwrap();
        assert!(
            binary.contains(&format!("evenkeel_fuzz::{target}(data)")),
            "{binary}"
        );
    }
    assert_eq!(files(&fuzz().join("fuzz_targets")).len(), TARGETS.len());
    assert_eq!(files(&fuzz().join("seeds")).len(), TARGETS.len());
}

/// A function that finds nothing would hold for every seed.
#[test]
fn seeds_reach_what_is_behind_the_first_check() {
    use evenkeel_osb::{
        BindRequest, Catalog, FromObject, OriginatingIdentity, ProvisionRequest, Query,
    };
    let seed =
        |target: &str, name: &str| fs::read(fuzz().join("seeds").join(target).join(name)).unwrap();
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
