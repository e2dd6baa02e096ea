//! What to try next, printed once the broker has started: commands that work as they stand.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use evenkeel_engine::catalog::Catalog;
use secrecy::{ExposeSecret as _, SecretString};

use super::listen::{Addresses, url};
use crate::config::{Config, DEFAULT_FILE};
use crate::{files, output};

pub(super) fn print(
    config: &Config,
    addresses: &Addresses,
    catalog: &Catalog,
    new_password: Option<SecretString>,
) {
    // A log collector may read what no terminal shows: there the file's name has to do.
    let shown = new_password.filter(|_| std::io::stdout().is_terminal());
    let text = text(config, addresses, catalog, shown.as_ref());
    // Nobody reading it is no reason not to serve, nor to wait: for this thread nobody does.
    let print = std::thread::Builder::new().name("banner".to_owned());
    drop(print.spawn(move || output::data(&text)));
}

fn text(
    config: &Config,
    addresses: &Addresses,
    catalog: &Catalog,
    password: Option<&SecretString>,
) -> String {
    let (osb, admin) = (url(addresses.osb), url(addresses.admin));
    let folder = config.data_dir.display();
    let mut lines = vec![
        format!("Evenkeel {} is ready.", env!("CARGO_PKG_VERSION")),
        format!("  OSB API    {osb}"),
        format!(
            "  admin API  {admin}, token in {folder}/{}",
            files::ADMIN_TOKEN
        ),
    ];
    if config.osb.users.is_empty() {
        let user = files::GENERATED_USER;
        let file = format!("{folder}/{}", files::OSB_PASSWORD);
        lines.push(format!("  user       {user}, password in {file}"));
        lines.extend(password.map(|text| format!("  password   {}", text.expose_secret())));
    }
    let here = std::env::current_dir().unwrap_or_default();
    let (program, which) = (quoted(&program(&here)), which(config));
    let mut tries = vec![
        format!("cd {}", quoted(&here)),
        format!("{program} osb catalog{which}"),
    ];
    let has_hello = catalog
        .services
        .values()
        .any(|pinned| pinned.bundle.service.name == "hello");
    if has_hello {
        tries.extend([
            format!("{program} osb provision hello plain --id my-hello{which}"),
            format!("{program} osb bind my-hello --id my-binding --param name=Ada{which}"),
            format!("{program} jobs list{which}"),
            format!("{program} osb unbind my-hello my-binding{which}"),
            format!("{program} osb deprovision my-hello{which}"),
        ]);
    }
    tries.push(format!("{program} status{which}"));
    lines.extend([
        String::new(),
        "Try it in a second terminal:".to_owned(),
        String::new(),
    ]);
    lines.extend(tries.iter().map(|line| format!("  {line}")));
    lines.push(String::new());
    lines.join("\n")
}

/// How this program is called from `here`.
fn program(here: &Path) -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_else(|_| "evenkeel".into());
    let in_path = std::env::var_os("PATH").is_some_and(|path| {
        let found = std::env::split_paths(&path).map(|dir| dir.join("evenkeel"));
        found.filter_map(|file| file.canonicalize().ok()).next() == exe.canonicalize().ok()
    });
    if in_path {
        return "evenkeel".into();
    }
    exe.strip_prefix(here)
        .map_or_else(|_| exe.clone(), |below| Path::new(".").join(below))
}

/// The option that names this broker, where it is not the one that is found without.
fn which(config: &Config) -> String {
    match &config.file {
        None => String::new(),
        Some(file) if file == Path::new(DEFAULT_FILE) => String::new(),
        Some(file) => format!(" --config {}", quoted(file)),
    }
}

/// As a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_where_a_shell_would_take_them_apart() {
        for (path, text) in [
            ("/a/b-c.d", "/a/b-c.d"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(Path::new(path)), text);
        }
    }
}
