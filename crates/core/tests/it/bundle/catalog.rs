//! Several bundles in one catalog.

use evenkeel_core::bundle::{Bundle, check_catalog};
use insta::assert_snapshot;

use super::{SMALLEST, good};

fn bundle(service: &str, plan: &str) -> Bundle {
    good(
        &SMALLEST
            .replace("{name: db,", &format!("{{{service},"))
            .replace("{name: small,", &format!("{{{plan},")),
    )
}

fn check(bundles: &[(&str, Bundle)]) -> (Vec<usize>, String) {
    let bundles: Vec<_> = bundles
        .iter()
        .map(|(folder, bundle)| (*folder, bundle))
        .collect();
    let (accepted, errors) = check_catalog(&bundles);
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    (accepted, lines.join("\n"))
}

#[test]
fn bundles_that_share_nothing_are_all_accepted_in_folder_order() {
    let bundles = [
        ("b", bundle("name: b", "name: p")),
        ("a", bundle("name: a", "name: p")),
    ];
    assert_eq!(check(&bundles), (vec![1, 0], String::new()));
}

#[test]
fn the_first_folder_keeps_what_two_claim() {
    let client = "dashboard_client: {id: dash, secret: s, redirect_uri: https://x}";
    let bundles = [
        ("z-copy", bundle("name: db", "name: p")),
        (
            "a-first",
            bundle(&format!("name: db, id: one, {client}"), "name: p, id: plan"),
        ),
        ("b-id", bundle("name: other, id: one", "name: q")),
        ("c-plan", bundle("name: third", "name: p, id: plan")),
        (
            "d-client",
            bundle(&format!("name: fourth, {client}"), "name: p"),
        ),
        ("e-plain", bundle("name: fifth", "name: p")),
        ("f-plan", bundle("name: sixth", "name: p, id: one")),
    ];
    let (accepted, errors) = check(&bundles);
    assert_eq!(accepted, [1, 5]);
    assert_snapshot!(errors, @r##"
    bundle "b-id" is skipped: its service or plan id "one" belongs to bundle "a-first"
    bundle "c-plan" is skipped: its service or plan id "plan" belongs to bundle "a-first"
    bundle "d-client" is skipped: its dashboard client id "dash" belongs to bundle "a-first"
    bundle "f-plan" is skipped: its service or plan id "one" belongs to bundle "a-first"
    bundle "z-copy" is skipped: its service name "db" belongs to bundle "a-first"
    "##);
}

#[test]
fn what_a_refused_bundle_claims_stays_free() {
    let bundles = [
        ("a", bundle("name: a", "name: p")),
        ("b", bundle("name: a, id: b", "name: p, id: p")),
        ("c", bundle("name: c, id: b", "name: p, id: p")),
    ];
    let (accepted, errors) = check(&bundles);
    assert_eq!(accepted, [0, 2]);
    assert_snapshot!(errors, @r#"bundle "b" is skipped: its service name "a" belongs to bundle "a""#);
}
