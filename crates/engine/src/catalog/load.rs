//! Reads bundle folders into a catalog. A broken bundle is reported and left out; it never keeps
//! another one, or the broker, from serving.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_core::bundle::{Bundle, FileFact, check_catalog};
use evenkeel_core::time::Timestamp;
use uuid::Uuid;

use super::{Catalog, Pinned, Problem, content};

/// Bundles in one catalog.
const MAX_BUNDLES: usize = 1_000;

/// Reads all bundles of `roots`. Each root is a bundle, or holds bundles.
pub(super) fn load(roots: &[PathBuf], copies: &Path, namespace: Uuid, now: Timestamp) -> Catalog {
    let mut problems = Vec::new();
    let mut pinned: Vec<(String, Pinned)> = Vec::new();
    for folder in folders(roots, &mut problems) {
        let name = folder.display().to_string();
        match load_one(&folder, copies, namespace) {
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
    let named: Vec<(&str, &Bundle)> =
        pinned.iter().map(|(name, pinned)| (name.as_str(), &*pinned.bundle)).collect();
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
    Catalog { services, problems, loaded_at: now }
}

fn folders(roots: &[PathBuf], problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for root in roots {
        if root.join("bundle.yml").is_file() {
            folders.push(root.clone());
            continue;
        }
        match fs::read_dir(root) {
            Ok(items) => folders.extend(
                items
                    .filter_map(Result::ok)
                    .map(|item| item.path())
                    .filter(|path| path.join("bundle.yml").is_file()),
            ),
            Err(error) => problems.push(Problem {
                bundle: root.display().to_string(),
                fatal: true,
                message: format!("{}: {error}", root.display()),
            }),
        }
    }
    folders.sort();
    folders.dedup();
    if folders.len() > MAX_BUNDLES {
        problems.push(Problem {
            bundle: String::new(),
            fatal: true,
            message: format!("only the first {MAX_BUNDLES} of {} bundles are read", folders.len()),
        });
        folders.truncate(MAX_BUNDLES);
    }
    folders
}

fn load_one(
    folder: &Path,
    copies: &Path,
    namespace: Uuid,
) -> Result<(Pinned, Vec<String>), Vec<String>> {
    let entries = content::read(folder).map_err(|message| vec![message])?;
    let file = folder.join("bundle.yml").display().to_string();
    let yaml = entries
        .iter()
        .find(|entry| entry.path == "bundle.yml")
        .ok_or_else(|| vec![format!("{file}: not a regular file")])?;
    let facts = |path: &str| {
        let found = entries.binary_search_by(|entry| entry.path.as_str().cmp(path)).ok()?;
        Some(FileFact { executable: entries[found].executable })
    };
    let (bundle, warnings) = Bundle::parse(&yaml.bytes, namespace, &facts).map_err(|errors| {
        errors.into_iter().map(|error| error.0.render(&file)).collect::<Vec<_>>()
    })?;
    let digest = content::digest(&entries).map_err(|message| vec![message])?;
    let place = content::keep(copies, digest, &entries, &bundle)
        .map_err(|error| vec![format!("cannot copy {} to {}: {error}", folder.display(), copies.display())])?;
    let warnings = warnings.into_iter().map(|warning| warning.0.render(&file)).collect();
    Ok((Pinned { digest, bundle: Arc::new(bundle), folder: place }, warnings))
}
