//! The identity of a bundle.

use evenkeel_core::bundle::{DigestError, digest};
use sha2::{Digest as _, Sha256};

fn of(entries: &[(&str, bool, &str)]) -> String {
    digest(entries.iter().copied())
        .expect("in order")
        .to_string()
}

#[test]
fn the_canonical_form_is_the_documented_one() {
    let mut form = b"evenkeel-bundle/1\n".to_vec();
    form.extend([0, 0, 0, 0, 0, 0, 0, 4]);
    form.extend(b"bind\x01");
    form.extend([0, 0, 0, 0, 0, 0, 0, 2]);
    form.extend(b"hi");
    let expected: String = Sha256::digest(&form)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(of(&[("bind", true, "hi")]), expected);
}

#[test]
fn every_part_counts() {
    let all = [
        of(&[]),
        of(&[("a", false, "b")]),
        of(&[("a", true, "b")]),
        of(&[("a", false, "c")]),
        of(&[("b", false, "b")]),
        of(&[("ab", false, "")]),
        of(&[("a", false, ""), ("b", false, "")]),
        of(&[("a", false, "b"), ("b", false, "")]),
    ];
    let unique: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(unique.len(), all.len());
}

#[test]
fn entries_out_of_order_or_twice_are_refused() {
    let refused = |first: &str, second: &str| {
        let expected = DigestError {
            previous: first.to_owned(),
            path: second.to_owned(),
        };
        assert_eq!(
            digest([(first, true, "x"), (second, true, "x")]),
            Err(expected)
        );
    };
    refused("b", "a");
    refused("a", "a");
    refused("a/b", "a-b");
}
