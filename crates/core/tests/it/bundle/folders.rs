//! The bundles that come with the project.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use evenkeel_core::bundle::{Bundle, FileFact, check_catalog};

use super::NAMESPACE;

/// Every folder with a `bundle.yml` below `under`, a path in the repository.
fn bundles(under: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(under);
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(folder) = open.pop() {
        if folder.join("bundle.yml").is_file() {
            found.push(folder.clone());
        }
        let entries = fs::read_dir(&folder).expect("the folder of bundles");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        open.extend(paths.filter(|path| path.is_dir() && !path.is_symlink()));
    }
    found.sort();
    found
}

fn parse(folder: &Path) -> Bundle {
    let files = |path: &str| {
        let facts = fs::symlink_metadata(folder.join(path))
            .ok()
            .filter(fs::Metadata::is_file)?;
        Some(FileFact {
            executable: facts.permissions().mode() & 0o111 != 0,
        })
    };
    let yaml = fs::read(folder.join("bundle.yml")).expect("bundle.yml");
    match Bundle::parse(&yaml, NAMESPACE, &files) {
        Ok((bundle, warnings)) => {
            assert_eq!(warnings, [], "{}", folder.display());
            bundle
        }
        Err(errors) => {
            let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
            panic!("{}:\n{}", folder.display(), lines.join("\n"));
        }
    }
}

fn make_one_catalog(under: &str, at_least: usize) {
    let folders = bundles(under);
    assert!(folders.len() >= at_least, "found only {folders:?}");
    let parsed: Vec<_> = folders.iter().map(|folder| parse(folder)).collect();
    let names: Vec<_> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    let all: Vec<_> = names.iter().map(String::as_str).zip(&parsed).collect();
    let (accepted, errors) = check_catalog(&all);
    assert_eq!(errors, []);
    assert_eq!(accepted.len(), folders.len());
}

#[test]
fn the_example_bundles_are_good_and_make_one_catalog() {
    make_one_catalog("examples/bundles", 6);
}

#[test]
fn the_fault_bundles_are_good_and_make_one_catalog() {
    make_one_catalog("tests/bundles", 1);
}
