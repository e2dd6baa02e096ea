//! The example bundles that the binary carries: those to learn from. The conformance bundles are
//! for tests of platforms, and nothing that a new user is to be offered.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use include_dir::{Dir, DirEntry, include_dir};

static EXAMPLES: [(&str, Dir<'_>); 2] = [
    (
        "hello",
        include_dir!("$CARGO_MANIFEST_DIR/../../examples/bundles/hello"),
    ),
    (
        "postgres",
        include_dir!("$CARGO_MANIFEST_DIR/../../examples/bundles/postgres"),
    ),
];

/// Writes them into `folder`, in place of what an earlier release wrote there.
pub(super) fn write(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::create_dir(folder)?;
    for (name, dir) in &EXAMPLES {
        let bundle = folder.join(name);
        fs::create_dir(&bundle)?;
        write_into(&bundle, dir)?;
    }
    Ok(())
}

fn write_into(folder: &Path, dir: &Dir<'_>) -> io::Result<()> {
    for entry in dir.entries() {
        let path = folder.join(entry.path());
        match entry {
            DirEntry::Dir(dir) => {
                fs::create_dir(&path)?;
                write_into(folder, dir)?;
            }
            DirEntry::File(file) => {
                fs::write(&path, file.contents())?;
                // The binary has the content only, not the mode.
                let mode = if file.contents().starts_with(b"#!") {
                    0o755
                } else {
                    0o644
                };
                fs::set_permissions(&path, Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_written_whole_with_its_programs_executable_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let examples = folder.path().join("examples");
        for _ in 0..2 {
            write(&examples).unwrap();
            let mode = |name: &str| {
                let meta = fs::metadata(examples.join("hello").join(name)).unwrap();
                meta.permissions().mode() & 0o777
            };
            assert_eq!(mode("provision"), 0o755);
            assert_eq!(mode("bundle.yml"), 0o644);
            let names = fs::read_dir(&examples).unwrap();
            let mut names: Vec<_> = names.map(|item| item.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["hello", "postgres"], "bundles to learn from only");
            fs::write(examples.join("left-over"), "").unwrap();
        }
        write(&examples).unwrap();
        assert!(!examples.join("left-over").exists());
    }
}
