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
    if services.is_empty() {
        problems.push(Problem {
            bundle: String::new(),
            fatal: false,
            message: "no service is offered: Cloud Foundry refuses an empty catalog".to_owned(),
        });
    }
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
mod tests;
