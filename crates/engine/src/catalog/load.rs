//! Reads bundle folders into a catalog. A broken bundle is reported and left out; it never keeps
//! another one, or the broker, from serving.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_core::bundle::{Bundle, FileFact, check_catalog};
use evenkeel_core::time::Timestamp;
use uuid::Uuid;

use super::{COPIES, Catalog, Pinned, Problem, SECRETS, content};

/// Bundles in one catalog.
const MAX_BUNDLES: usize = 1_000;
/// Folders without a `bundle.yml` that are named one by one.
const MAX_NAMED: usize = 20;

/// Reads all bundles of `roots`, each a bundle or a folder of bundles, and pins their content in
/// `data`.
pub(super) fn load(roots: &[PathBuf], data: &Path, namespace: Uuid, now: Timestamp) -> Catalog {
    let mut problems = Vec::new();
    let mut pinned: Vec<(String, Pinned)> = Vec::new();
    for folder in folders(roots, &mut problems) {
        let name = folder.display().to_string();
        match load_one(&folder, data, namespace) {
            Ok((bundle, warnings)) => {
                problems.extend(warnings.into_iter().map(|message| Problem {
                    bundle: name.clone(),
                    fatal: false,
                    message,
                }));
                pinned.push((name, bundle));
            }
            Err(messages) => problems.extend(messages.into_iter().map(|message| Problem {
                bundle: name.clone(),
                fatal: true,
                message,
            })),
        }
    }
    let named: Vec<(&str, &Bundle)> = pinned
        .iter()
        .map(|(name, pinned)| (name.as_str(), &*pinned.bundle))
        .collect();
    let (accepted, errors) = check_catalog(&named);
    problems.extend(errors.into_iter().map(|error| Problem {
        bundle: error.folder.clone(),
        fatal: true,
        message: error.to_string(),
    }));
    let services: BTreeMap<_, _> = accepted
        .into_iter()
        .map(|index| {
            let (_, pinned) = &pinned[index];
            (pinned.bundle.service.id.clone(), pinned.clone())
        })
        .collect();
    Catalog {
        services,
        problems,
        loaded_at: now,
    }
}

fn folders(roots: &[PathBuf], problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut others = Vec::new();
    for root in roots {
        if root.join("bundle.yml").is_file() {
            folders.push(root.clone());
            continue;
        }
        if root.join("bundle.yaml").is_file() {
            others.push(root.clone());
            continue;
        }
        match fs::read_dir(root) {
            Ok(items) => {
                let paths = items.filter_map(Result::ok).map(|item| item.path());
                let (bundles, rest): (Vec<_>, Vec<_>) =
                    paths.partition(|path| path.join("bundle.yml").is_file());
                folders.extend(bundles);
                others.extend(rest.into_iter().filter(|path| is_meant(path)));
            }
            Err(error) => problems.push(Problem {
                bundle: root.display().to_string(),
                fatal: true,
                message: format!("{}: {error}", root.display()),
            }),
        }
    }
    problems.extend(without_file(others));
    folders.sort();
    folders.dedup();
    if folders.len() > MAX_BUNDLES {
        problems.push(Problem {
            bundle: String::new(),
            fatal: true,
            message: format!(
                "only the first {MAX_BUNDLES} of {} bundles are read",
                folders.len()
            ),
        });
        folders.truncate(MAX_BUNDLES);
    }
    folders
}

/// A folder whose author may think that it is read: not a file, nor one as `.git`.
fn is_meant(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.is_dir()
}

fn without_file(mut folders: Vec<PathBuf>) -> Vec<Problem> {
    folders.sort();
    folders.dedup();
    let more = folders.len().saturating_sub(MAX_NAMED);
    folders.truncate(MAX_NAMED);
    let warning = |bundle: String, message: String| Problem {
        bundle,
        fatal: false,
        message,
    };
    let mut problems: Vec<_> = folders
        .iter()
        .map(|folder| {
            let name = folder.display().to_string();
            let found = if folder.join("bundle.yaml").is_file() {
                ": rename its bundle.yaml"
            } else {
                ""
            };
            let message = format!("{name} has no bundle.yml{found}");
            warning(name, message)
        })
        .collect();
    if more > 0 {
        problems.push(warning(
            String::new(),
            format!("{more} more folders have no bundle.yml"),
        ));
    }
    problems
}

fn load_one(
    folder: &Path,
    data: &Path,
    namespace: Uuid,
) -> Result<(Pinned, Vec<String>), Vec<String>> {
    let entries = content::read(folder).map_err(|message| vec![message])?;
    let file = folder.join("bundle.yml").display().to_string();
    let yaml = entries
        .iter()
        .find(|entry| entry.path == "bundle.yml")
        .ok_or_else(|| vec![format!("{file}: not a regular file")])?;
    let facts = |path: &str| {
        let found = entries
            .binary_search_by(|entry| entry.path.as_str().cmp(path))
            .ok()?;
        Some(FileFact {
            executable: entries[found].executable,
        })
    };
    let (bundle, warnings) = Bundle::parse(&yaml.bytes, namespace, &facts).map_err(|errors| {
        errors
            .into_iter()
            .map(|error| error.0.render(&file))
            .collect::<Vec<_>>()
    })?;
    let digest = content::digest(&entries).map_err(|message| vec![message])?;
    let copies = &data.join(COPIES);
    let place = content::keep(copies, digest, &entries, &bundle).map_err(|error| {
        vec![format!(
            "cannot copy {} to {}: {error}",
            folder.display(),
            copies.display()
        )]
    })?;
    let warnings = warnings.into_iter().map(|warning| warning.0.render(&file));
    let warnings = warnings
        .chain(not_served(&bundle, &file))
        .chain(missing_secrets(&bundle, &data.join(SECRETS)))
        .collect();
    Ok((
        Pinned {
            digest,
            bundle: Arc::new(bundle),
            folder: place,
        },
        warnings,
    ))
}

/// What the format has and this release does not do: accepted, so that a bundle can be shared
/// with a release that does, and never offered to platforms.
fn not_served(bundle: &Bundle, file: &str) -> Vec<String> {
    let context = bundle
        .service
        .allow_context_updates
        .then(|| "service.allow_context_updates".to_owned());
    let rotatable = bundle.plans.iter().filter(|plan| plan.binding_rotatable);
    context
        .into_iter()
        .chain(rotatable.map(|plan| format!("binding_rotatable of plan {}", plan.name)))
        .map(|what| {
            format!("{file}: {what}: this release does not serve it; platforms are told false")
        })
        .collect()
}

/// Secrets that are not there yet: no reason to leave the bundle out, since they are read anew for
/// each attempt, but every action fails without them.
fn missing_secrets(bundle: &Bundle, folder: &Path) -> Vec<String> {
    let missing = bundle.secrets.iter().filter_map(|(name, source)| {
        let path = folder.join(&source.file);
        (!path.is_file()).then(|| {
            format!(
                "secret {name}: there is no file {}; actions fail until there is",
                path.display()
            )
        })
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
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
        assert_eq!(itself.problems, catalog.problems[1..]);
    }

    #[test]
    fn folders_without_a_bundle_yml_are_not_named_without_end() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..MAX_NAMED + 7 {
            fs::create_dir_all(root.path().join("offers").join(number.to_string())).unwrap();
        }
        let problems = read(root.path()).problems;
        assert_eq!(problems.len(), MAX_NAMED + 1);
        assert_eq!(
            problems[MAX_NAMED].message,
            "7 more folders have no bundle.yml"
        );
    }

    #[test]
    fn what_this_release_does_not_serve_is_a_warning() {
        let root = tempfile::tempdir().unwrap();
        let folder = bundle(&root.path().join("offers"), "eager", "");
        let file = folder.join("bundle.yml");
        let yaml = fs::read_to_string(&file).unwrap();
        let yaml = yaml
            .replace("name: eager", "allow_context_updates: true, name: eager")
            .replace("name: small", "binding_rotatable: true, name: small");
        let yaml = format!("{yaml}  bind: {{command: [./run]}}\n  unbind: {{command: [./run]}}\n");
        fs::write(&file, yaml).unwrap();
        let catalog = read(root.path());
        assert_eq!(names(&catalog), ["eager"]);
        let named = |what: &str| {
            let found = catalog.problems.iter().filter(|problem| {
                !problem.fatal
                    && problem.message.contains(what)
                    && problem.message.contains("this release does not serve it")
            });
            found.count()
        };
        assert_eq!(
            named("service.allow_context_updates"),
            1,
            "{:?}",
            catalog.problems
        );
        assert_eq!(
            named("binding_rotatable of plan small"),
            1,
            "{:?}",
            catalog.problems
        );
    }

    #[test]
    fn a_missing_folder_is_a_problem_and_not_the_end() {
        let root = tempfile::tempdir().unwrap();
        let catalog = read(root.path());
        assert!(catalog.services.is_empty());
        assert!(catalog.problems[0].fatal);
    }
}
