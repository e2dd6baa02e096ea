//! The boundaries of DESIGN §3, read from `cargo metadata` and the sources: an edge that is not in
//! the table, a library on the wrong side of a boundary and a file that has grown too long fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use crate::harness::root;

/// No file is longer, in lines.
const MAX_LINES: usize = 600;

const HTTP: &[&str] = &["axum", "hyper", "hyper-util", "reqwest", "tower-http"];
const SQL: &[&str] = &["rusqlite", "libsqlite3-sys", "refinery", "tokio-postgres"];
const PROCESSES: &[&str] = &["process-wrap", "rlimit", "nix", "libc"];
const CLOCKS: &[&str] = &["jiff", "time", "chrono"];
const CHANCE: &[&str] = &["rand", "fastrand"];

/// A row of the table.
struct Boundary {
    name: &'static str,
    /// Which of our crates it may use.
    may: &'static [&'static str],
    /// What it never depends on, however far away.
    never: &'static [&'static [&'static str]],
    /// What it does not depend on itself; those that it may use do.
    never_directly: &'static [&'static [&'static str]],
    /// What its sources never say.
    never_said: &'static [&'static str],
}

const TABLE: &[Boundary] = &[
    Boundary {
        name: "evenkeel-osb",
        may: &[],
        never: &[SQL],
        never_directly: &[PROCESSES],
        never_said: &["std::process"],
    },
    Boundary {
        name: "evenkeel-core",
        may: &[],
        never: &[&["tokio"], HTTP, SQL, CLOCKS, CHANCE],
        never_directly: &[PROCESSES, &["rustix", "getrandom", "tempfile"]],
        never_said: &[
            "std::fs",
            "std::net",
            "std::process",
            "std::thread",
            "std::env",
            "SystemTime",
            "Instant",
            "now_v7",
            "new_v4",
        ],
    },
    Boundary {
        name: "evenkeel-run",
        may: &[],
        never: &[&["tokio"], HTTP, SQL, CLOCKS, CHANCE],
        never_directly: &[],
        never_said: &["std::net"],
    },
    Boundary {
        name: "evenkeel-executor",
        may: &["evenkeel-core", "evenkeel-run"],
        never: &[SQL, HTTP],
        never_directly: &[],
        never_said: &[],
    },
    Boundary {
        name: "evenkeel-store",
        may: &["evenkeel-core"],
        never: &[HTTP],
        never_directly: &[PROCESSES],
        never_said: &["process::Command", "std::net"],
    },
    Boundary {
        name: "evenkeel-engine",
        may: &["evenkeel-core", "evenkeel-store", "evenkeel-executor"],
        never: &[HTTP],
        never_directly: &[SQL],
        never_said: &["std::net", "SELECT ", "UPDATE "],
    },
    Boundary {
        name: "evenkeel-server",
        may: &[
            "evenkeel-osb",
            "evenkeel-core",
            "evenkeel-engine",
            "evenkeel-store",
        ],
        never: &[],
        never_directly: &[SQL, PROCESSES, &["rustix"]],
        // It reads through the seam and writes only through the engine.
        never_said: &[
            "std::process",
            "tokio::process",
            "SqliteStore",
            "seam::Store",
            "SELECT ",
        ],
    },
    Boundary {
        name: "evenkeel",
        may: &[
            "evenkeel-osb",
            "evenkeel-core",
            "evenkeel-run",
            "evenkeel-executor",
            "evenkeel-store",
            "evenkeel-engine",
            "evenkeel-server",
        ],
        never: &[],
        never_directly: &[SQL],
        never_said: &["SELECT "],
    },
];

/// The workspace as cargo sees it on a host like this one.
fn metadata() -> Metadata {
    let host = if cfg!(target_env = "musl") {
        "musl"
    } else {
        "gnu"
    };
    let host = format!("{}-unknown-linux-{host}", std::env::consts::ARCH);
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--locked".to_owned(), "--filter-platform".to_owned(), host])
        .exec()
        .unwrap()
}

fn package<'a>(metadata: &'a Metadata, name: &str) -> &'a Package {
    metadata
        .workspace_packages()
        .into_iter()
        .find(|package| package.name.as_str() == name)
        .unwrap_or_else(|| panic!("{name} is no crate of the workspace"))
}

/// What a crate asks for itself, for tests aside.
fn direct(package: &Package) -> BTreeSet<&str> {
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .map(|dependency| dependency.name.as_str())
        .collect()
}

/// All that is built into a crate, for tests aside, with a way that leads there.
fn built_into<'a>(metadata: &'a Metadata, from: &'a Package) -> BTreeMap<&'a str, String> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let names: BTreeMap<&PackageId, &str> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package.name.as_str()))
        .collect();
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::from([&from.id]);
    let mut next = vec![(&from.id, from.name.to_string())];
    while let Some((id, way)) = next.pop() {
        for dependency in &nodes[id].deps {
            let built = dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal);
            if built && seen.insert(&dependency.pkg) {
                let name = names[&dependency.pkg];
                let way = format!("{way} → {name}");
                found.insert(name, way.clone());
                next.push((&dependency.pkg, way));
            }
        }
    }
    found
}

#[test]
fn crates_have_the_edges_of_the_design_and_no_others() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = metadata
        .workspace_packages()
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let known: BTreeSet<&str> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(ours, known, "the crates of DESIGN §3");
    let mut wrong = Vec::new();
    for row in TABLE {
        let package = package(&metadata, row.name);
        for name in direct(package) {
            if ours.contains(name) && !row.may.contains(&name) {
                wrong.push(format!("{} may not use {name}", row.name));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn nothing_is_built_into_a_crate_that_its_boundary_excludes() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for row in TABLE {
        let package = package(&metadata, row.name);
        let built = built_into(&metadata, package);
        let direct = direct(package);
        for name in row.never.iter().copied().flatten() {
            wrong.extend(built.get(name).cloned());
        }
        for name in row.never_directly.iter().copied().flatten() {
            if direct.contains(name) {
                wrong.push(format!("{} → {name}", row.name));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // The search finds what is there.
    let server = built_into(&metadata, package(&metadata, "evenkeel-server"));
    assert!(server.contains_key("axum") && server.contains_key("rusqlite"));
}

#[test]
fn sources_do_not_reach_past_their_boundary() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for row in TABLE {
        let package = package(&metadata, row.name);
        let folder = package.manifest_path.parent().unwrap().join("src");
        let files = sources(folder.as_std_path());
        assert!(!files.is_empty(), "{folder} has sources");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                let code = line.trim_start();
                for word in row.never_said {
                    if !code.starts_with("//") && code.contains(word) {
                        wrong.push(format!("{}:{}: {word}", file.display(), number + 1));
                    }
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn no_file_is_longer_than_600_lines() {
    let mut long = Vec::new();
    let files = sources(&root());
    assert!(files.len() > 100, "the search finds the sources");
    for file in files {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        if lines > MAX_LINES {
            long.push(format!("{}: {lines} lines", file.display()));
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

/// Every `.rs` file below, what was built and what is hidden aside.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") {
                found.extend(sources(&path));
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    found
}

/// Names of tests and what stands in a module of each file: `(crate or "", file, name)`.
fn names_in_use() -> BTreeSet<(String, String, String)> {
    let mut found = BTreeSet::new();
    for file in sources(&root().join("crates")) {
        let text = fs::read_to_string(&file).unwrap();
        let below = file.strip_prefix(root().join("crates")).unwrap();
        let mut parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let owner = match parts.remove(0) {
            name if name == "evenkeel" => String::new(),
            name => name.into_owned(),
        };
        let module = file.file_stem().unwrap().to_string_lossy().into_owned();
        for line in text.lines() {
            let line = line.trim_start();
            let line = line.strip_prefix("async ").unwrap_or(line);
            // A function, or a case in the list of the conformance suite.
            let name = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once('('))
                .map(|(name, _)| name)
                .or_else(|| line.strip_suffix(',').or_else(|| line.strip_suffix(';')));
            if let Some(name) = name {
                found.insert((owner.clone(), module.clone(), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn every_known_fault_has_a_row_and_every_test_that_a_row_names_exists() {
    let names = names_in_use();
    let text = fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let mut rows = Vec::new();
    let mut lost = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let Ok(number) = cells[0].trim().parse::<u32>() else {
            continue;
        };
        rows.push(number);
        assert_eq!(cells.len(), 4, "row {number}");
        let shown: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        let excluded = cells[2].starts_with("By construction");
        assert!(excluded || !shown.is_empty(), "row {number} shows nothing");
        lost.extend(missing(&names, shown).map(|name| format!("{number}: {name}")));
    }
    assert_eq!(rows, (1..=42).collect::<Vec<u32>>());
    assert_eq!(lost, Vec::<String>::new());
}

/// Of tests as documents name them (`[crate/]module::test`), those that there are not.
fn missing<'a>(
    names: &BTreeSet<(String, String, String)>,
    shown: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = &'a str> {
    shown.into_iter().filter(|name| {
        let (module, test) = name.split_once("::").unwrap();
        let (owner, module) = match module.rsplit_once('/') {
            // A module within a module of the end-to-end tests.
            Some(("panics" | "platforms" | "conformance" | "crossings", module)) => ("", module),
            Some((owner, module)) => (owner, module),
            None => ("", module),
        };
        !names.contains(&(owner.to_owned(), module.to_owned(), test.to_owned()))
    })
}

#[test]
fn every_statement_of_the_api_has_a_test_and_every_test_that_a_row_names_exists() {
    let names = names_in_use();
    let text = fs::read_to_string(root().join("docs/osb-conformance.md")).unwrap();
    let (table, choices) = text
        .split_once("## Where the specification is silent")
        .unwrap();
    let mut lost = Vec::new();
    let mut rows = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        if cells[1].trim() == "statement" {
            continue;
        }
        rows += 1;
        assert_eq!(cells.len(), 3, "{row}");
        let shown: Vec<&str> = cells[2].split('`').skip(1).step_by(2).collect();
        assert!(!shown.is_empty(), "{row} shows nothing");
        let statement = cells[0].trim();
        lost.extend(missing(&names, shown).map(|name| format!("{statement}: {name}")));
    }
    assert!(rows > 80, "{rows} statements");
    assert!(choices.lines().count() > 10);
    assert_eq!(lost, Vec::<String>::new());
}
