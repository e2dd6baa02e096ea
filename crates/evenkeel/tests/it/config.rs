//! `evenkeel config show` and `check`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::tool::evenkeel;

#[test]
fn show_prints_a_file_that_can_be_used_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let first = evenkeel(folder.path(), &["config", "show"]);
    assert_eq!((first.code, first.stderr.as_str()), (0, ""));
    fs::write(folder.path().join("evenkeel.toml"), &first.stdout).unwrap();
    // Now from the file: named, and found in the folder.
    for args in [
        &["config", "show"][..],
        &["config", "show", "--config", "evenkeel.toml"],
    ] {
        assert_eq!(evenkeel(folder.path(), args).stdout, first.stdout);
    }
}

#[test]
fn a_mistake_is_told_with_its_place_a_hint_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let text = "data_dir = 'here'\n\n[jobs]\nconcurency = 3\n";
    fs::write(folder.path().join("evenkeel.toml"), text).unwrap();
    let says = ["show", "check"].map(|verb| evenkeel(folder.path(), &["config", verb]).whole());
    assert_eq!(says[0], says[1]);
    insta::assert_snapshot!(says[0]);
    // It is the same for whoever else reads it.
    for args in [&["serve"][..], &["status"]] {
        assert_eq!(evenkeel(folder.path(), args).whole(), says[0]);
    }
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(
        evenkeel(folder.path(), &["config", "check", "--config", "none.toml"]).whole()
    );
}

#[test]
fn check_looks_at_what_the_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let text = "
        bundles = ['none']
        [osb]
        listen = '0.0.0.0:8080'
        [[osb.users]]
        name = 'open'
        password_file = 'open'
        [[osb.users]]
        name = 'missing'
        password_file = 'missing'
    ";
    fs::write(folder.path().join("evenkeel.toml"), text).unwrap();
    fs::write(folder.path().join("open"), "secret\n").unwrap();
    fs::set_permissions(folder.path().join("open"), Permissions::from_mode(0o644)).unwrap();
    let check = || evenkeel(folder.path(), &["config", "check"]).whole();
    insta::assert_snapshot!(check());
    // Warnings alone are no reason to fail.
    fs::write(folder.path().join("missing"), "secret\n").unwrap();
    fs::set_permissions(folder.path().join("missing"), Permissions::from_mode(0o600)).unwrap();
    insta::assert_snapshot!(check());
}

/// With a user whose password is `password`: `config check` and `serve` say the same, and nothing
/// is made.
fn refused_user(password: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("bundles = []\n[[osb.users]]\nname = 'cf'\n{password}\n");
    fs::write(folder.path().join("evenkeel.toml"), text).unwrap();
    fs::write(folder.path().join("empty"), "\nsecond line\n").unwrap();
    fs::set_permissions(folder.path().join("empty"), Permissions::from_mode(0o600)).unwrap();
    let check = evenkeel(folder.path(), &["config", "check"]);
    let serve = evenkeel(folder.path(), &["serve"]);
    assert_eq!((check.code, serve.code), (2, 2), "{check:?} {serve:?}");
    assert_eq!(check.stderr, serve.stderr);
    assert!(!folder.path().join("evenkeel-data").exists());
    check.stderr
}

#[test]
fn a_user_that_could_never_come_in_is_told_before_anything_is_started() {
    let said = refused_user("password_file = 'empty'");
    assert!(said.contains("its first line is empty"), "{said}");
    for (cost, why) in [
        ("m=99999999,t=1,p=1", "costs too much"),
        ("m=64,t=17,p=1", "costs too much"),
        ("m=1,t=1,p=1", "cannot be used"),
    ] {
        let hash = format!("$argon2id$v=19${cost}$c2FsdHNhbHQ$AAAAAAAAAAAAAAAAAAAAAA");
        let said = refused_user(&format!("password_hash = '{hash}'"));
        assert!(said.contains("evenkeel.toml:4:"), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!said.contains("c2FsdHNhbHQ"), "{said}");
    }
}
