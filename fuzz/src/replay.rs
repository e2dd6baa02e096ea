//! Seeds and regressions through the fuzzer's own functions, for the tests of the crates that the
//! functions read with.

use std::fs;
use std::path::{Path, PathBuf};

/// A target: its name, as of its folders and its binary, and what it does with any bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, and the crate whose tests replay it.
const ALL: [(&str, &str); 12] = [
    ("bind", "osb"),
    ("bundle", "core"),
    ("catalog", "osb"),
    ("exit_record", "executor"),
    ("headers", "osb"),
    ("last_operation", "osb"),
    ("output", "executor"),
    ("progress", "executor"),
    ("provision", "osb"),
    ("run_folder", "executor"),
    ("update", "osb"),
    ("uris", "osb"),
];

/// The largest seed, in bytes.
const MAX_SEED_BYTES: u64 = 4096;

/// The inputs of one target, from a crate two folders below the repository's.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// `krate` is the crate's own folder.
    pub fn of(krate: &str) -> Self {
        Self(Path::new(krate).join("../../fuzz"))
    }

    /// One input, such as `seeds/TARGET/NAME`.
    pub fn input(&self, path: &str) -> Vec<u8> {
        let path = self.0.join(path);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Gives every seed and every regression of these targets to them, and checks that these are
    /// all targets that `krate` (its name without `evenkeel-`) has to replay.
    pub fn replay(&self, krate: &str, targets: &[Target]) {
        let mut names: Vec<_> = targets.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        let mine = ALL.iter().filter(|(_, owner)| *owner == krate);
        assert_eq!(names, mine.map(|(name, _)| *name).collect::<Vec<_>>());
        for (name, target) in targets {
            let seeds = files(&self.0.join("seeds").join(name));
            assert!(!seeds.is_empty(), "{name} has no seeds");
            let regressions = self.0.join("regressions").join(name);
            let regressions = regressions.exists().then(|| files(&regressions));
            for input in seeds.into_iter().chain(regressions.into_iter().flatten()) {
                // Told where a panic would not say.
                println!("{}", input.display());
                let bytes = fs::read(&input);
                target(&bytes.unwrap_or_else(|error| panic!("{}: {error}", input.display())));
            }
        }
    }

    /// Checks that folders, binaries and the script know the same targets, and that seeds are
    /// small.
    pub fn check(&self) {
        let all: Vec<_> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names(&self.0.join("seeds")), all);
        let binaries: Vec<_> = all.iter().map(|name| format!("{name}.rs")).collect();
        assert_eq!(names(&self.0.join("fuzz_targets")), binaries);
        for name in names(&self.0.join("regressions")) {
            assert!(all.contains(&name), "regressions of no target: {name}");
        }
        let script = text(&self.0.join("../scripts/fuzz"));
        let manifest = text(&self.0.join("Cargo.toml"));
        for name in &all {
            let binary = text(&self.0.join("fuzz_targets").join(format!("{name}.rs")));
            assert!(binary.contains(&format!("::{name}(data)")), "{binary}");
            assert!(
                manifest.contains(&format!("name = \"{name}\"")),
                "fuzz/Cargo.toml has no {name}"
            );
            let known = script.split_whitespace().any(|word| word == name);
            assert!(known, "scripts/fuzz has no {name}");
            for seed in files(&self.0.join("seeds").join(name)) {
                let bytes = fs::metadata(&seed).map_or(u64::MAX, |meta| meta.len());
                assert!(bytes < MAX_SEED_BYTES, "{}", seed.display());
            }
        }
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn names(folder: &Path) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name()?.to_str().map(str::to_owned);
    files(folder).iter().filter_map(name).collect()
}
