//! From the bytes of a bundle to a checked bundle, or to errors that help.

use evenkeel_core::bundle::{Bundle, BundleError, FileFact, Warning};
use uuid::Uuid;

mod catalog;
mod dashboards;
mod digest;
mod folders;
mod good;
mod hostile;
mod mistakes;
mod parameters;
mod schemas;
mod warnings;

const NAMESPACE: Uuid = Uuid::from_u128(0x6ba7_b810_9dad_11d1_80b4_00c0_4fd4_30c8);

/// The smallest bundle there is.
const SMALLEST: &str = "\
bundle: 1
service: {name: db, description: A database}
plans:
  - {name: small, description: A small one}
actions:
  provision: {command: [./provision]}
  deprovision: {command: [./deprovision]}
";

/// A folder with every action as an executable, and `notes.txt`.
fn files(path: &str) -> Option<FileFact> {
    match path {
        "provision" | "update" | "bind" | "unbind" | "deprovision" | "bin/make" => {
            Some(FileFact { executable: true })
        }
        "notes.txt" => Some(FileFact { executable: false }),
        _ => None,
    }
}

type Parsed = Result<(Bundle, Vec<Warning>), Vec<BundleError>>;

fn parse(yaml: impl AsRef<[u8]>) -> Parsed {
    Bundle::parse(yaml.as_ref(), NAMESPACE, &files)
}

/// The bundle of a text that must be good; warnings aside.
fn good(yaml: &str) -> Bundle {
    parse(yaml)
        .unwrap_or_else(|errors| panic!("{}", render(&errors)))
        .0
}

/// The errors of a text, as an author sees them.
fn errors(yaml: impl AsRef<[u8]>) -> String {
    render(&parse(yaml).expect_err("the text must be refused"))
}

/// The warnings of a text that must be good, as an author sees them.
fn warnings(yaml: &str) -> String {
    let (_, warnings) = parse(yaml).unwrap_or_else(|errors| panic!("{}", render(&errors)));
    let lines: Vec<_> = warnings.iter().map(|w| w.0.render("bundle.yml")).collect();
    lines.join("\n")
}

fn render(errors: &[BundleError]) -> String {
    let lines: Vec<_> = errors.iter().map(|e| e.0.render("bundle.yml")).collect();
    lines.join("\n")
}
