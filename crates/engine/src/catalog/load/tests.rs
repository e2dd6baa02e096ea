use std::os::unix::fs::PermissionsExt;

use super::*;

const NAMESPACE: Uuid = Uuid::from_u128(7);

fn bundle(root: &Path, name: &str, extra: &str) -> PathBuf {
    let folder = root.join(name);
    fs::create_dir_all(&folder).unwrap();
    let yaml = format!(
        "bundle: 1
service: {{name: {name}, description: A test}}
plans: [{{name: small, description: The only one}}]
actions:
  provision: {{command: [./run]}}
  deprovision: {{command: [./run]}}
{extra}"
    );
    fs::write(folder.join("bundle.yml"), yaml).unwrap();
    fs::write(folder.join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(folder.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn read(root: &Path) -> Catalog {
    load(&[root.join("offers")], root, NAMESPACE, Timestamp(0))
}

fn names(catalog: &Catalog) -> Vec<&str> {
    let mut names: Vec<_> = catalog
        .services
        .values()
        .map(|pinned| pinned.bundle.service.name.as_str())
        .collect();
    names.sort_unstable();
    names
}

/// What is said of a catalog without a service.
fn empty() -> Problem {
    Problem {
        bundle: String::new(),
        fatal: false,
        message: "no service is offered: Cloud Foundry refuses an empty catalog".to_owned(),
    }
}

#[test]
fn a_broken_bundle_is_reported_with_its_place_and_the_others_are_served() {
    let root = tempfile::tempdir().unwrap();
    let bundles = root.path().join("offers");
    bundle(&bundles, "good", "");
    bundle(&bundles, "bad", "surprise: true\n");
    let catalog = read(root.path());
    assert_eq!(names(&catalog), ["good"]);
    let problem = catalog
        .problems
        .iter()
        .find(|problem| problem.fatal)
        .unwrap();
    assert!(problem.bundle.ends_with("bad"), "{problem:?}");
    assert!(problem.message.contains("bundle.yml:7:"), "{problem:?}");
    assert!(problem.message.contains("surprise"), "{problem:?}");
}

#[test]
fn what_is_no_plain_file_makes_a_bundle_invalid() {
    let root = tempfile::tempdir().unwrap();
    let folder = bundle(&root.path().join("offers"), "linked", "");
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
    let catalog = read(root.path());
    assert!(catalog.services.is_empty());
    assert!(
        catalog.problems[0].message.contains("link"),
        "{:?}",
        catalog.problems
    );
}

#[test]
fn the_second_bundle_of_a_name_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    let bundles = root.path().join("offers");
    bundle(&bundles, "twin", "");
    fs::rename(bundles.join("twin"), bundles.join("a-twin")).unwrap();
    bundle(&bundles, "twin", "");
    let catalog = read(root.path());
    assert_eq!(names(&catalog), ["twin"]);
    let fatal: Vec<_> = catalog
        .problems
        .iter()
        .filter(|problem| problem.fatal)
        .collect();
    assert!(!fatal.is_empty());
    assert!(
        fatal
            .iter()
            .all(|problem| problem.bundle.ends_with("/twin")),
        "{fatal:?}"
    );
}

#[test]
fn a_copy_keeps_its_content_when_the_bundle_changes() {
    let root = tempfile::tempdir().unwrap();
    let folder = bundle(&root.path().join("offers"), "one", "");
    let before = read(root.path()).services.into_values().next().unwrap();
    fs::write(folder.join("run"), "#!/bin/sh\nexit 1\n").unwrap();
    let after = read(root.path()).services.into_values().next().unwrap();
    assert_ne!(before.digest, after.digest);
    assert_eq!(fs::read(before.folder.join("run")).unwrap(), b"#!/bin/sh\n");
    let mode = fs::metadata(before.folder.join("run"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o555);
    let snapshot = content::snapshot(&root.path().join(COPIES), before.digest).unwrap();
    assert_eq!(snapshot, *before.bundle);
}

#[test]
fn reading_again_gives_the_same_ids_and_the_same_digest() {
    let root = tempfile::tempdir().unwrap();
    bundle(&root.path().join("offers"), "one", "");
    let (first, second) = (read(root.path()), read(root.path()));
    assert_eq!(
        first.services.keys().collect::<Vec<_>>(),
        second.services.keys().collect::<Vec<_>>()
    );
    let digest = |catalog: &Catalog| catalog.services.values().next().unwrap().digest;
    assert_eq!(digest(&first), digest(&second));
}

#[test]
fn a_secret_that_is_not_there_is_a_warning_until_it_is() {
    let root = tempfile::tempdir().unwrap();
    bundle(
        &root.path().join("offers"),
        "secretive",
        "secrets: {KEY: {file: the-key}}\n",
    );
    let catalog = read(root.path());
    assert_eq!(names(&catalog), ["secretive"]);
    assert!(catalog.problems[0].message.contains("the-key"));
    assert!(!catalog.problems[0].fatal);
    fs::create_dir(root.path().join(SECRETS)).unwrap();
    fs::write(root.path().join(SECRETS).join("the-key"), "x").unwrap();
    assert_eq!(read(root.path()).problems, []);
}

#[test]
fn a_folder_without_a_bundle_yml_is_a_warning_unless_it_is_hidden() {
    let root = tempfile::tempdir().unwrap();
    let offers = root.path().join("offers");
    bundle(&offers, "good", "");
    for name in [".git", "drafts", "yaml"] {
        fs::create_dir(offers.join(name)).unwrap();
    }
    fs::write(offers.join("yaml").join("bundle.yaml"), "").unwrap();
    fs::write(offers.join("README"), "").unwrap();
    let catalog = read(root.path());
    assert_eq!(names(&catalog), ["good"]);
    let problem = |name: &str, message: &str| {
        let bundle = offers.join(name).display().to_string();
        Problem {
            message: format!("{bundle} {message}"),
            bundle,
            fatal: false,
        }
    };
    assert_eq!(
        catalog.problems,
        [
            problem("drafts", "has no bundle.yml"),
            problem("yaml", "has no bundle.yml: rename its bundle.yaml"),
        ]
    );
    let itself = load(&[offers.join("yaml")], root.path(), NAMESPACE, Timestamp(0));
    assert_eq!(itself.problems, [catalog.problems[1].clone(), empty()]);
}

#[test]
fn folders_without_a_bundle_yml_are_not_named_without_end() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..MAX_NAMED + 7 {
        fs::create_dir_all(root.path().join("offers").join(number.to_string())).unwrap();
    }
    let problems = read(root.path()).problems;
    assert_eq!(problems.len(), MAX_NAMED + 2);
    assert_eq!(problems[MAX_NAMED + 1], empty());
    assert_eq!(
        problems[MAX_NAMED].message,
        "7 more folders have no bundle.yml"
    );
}

#[test]
fn a_missing_folder_is_a_problem_and_not_the_end() {
    let root = tempfile::tempdir().unwrap();
    let catalog = read(root.path());
    assert!(catalog.services.is_empty());
    assert!(catalog.problems[0].fatal);
    assert_eq!(catalog.problems[1..], [empty()]);
}
