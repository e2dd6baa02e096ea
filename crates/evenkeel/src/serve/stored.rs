//! Small things that are kept in the data folder from one start to the next, or for commands to
//! find. Written under the data lock, whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use evenkeel_engine::faults;
use evenkeel_engine::world::{RealWorld, World as _};
use secrecy::SecretString;
use uuid::Uuid;

use super::listen::{Addresses, url};
use crate::config::Config;
use crate::{files, secrets};

/// A secret of this broker.
#[derive(Debug)]
pub(super) struct Secret {
    pub(super) text: SecretString,
    /// Made just now.
    pub(super) new: bool,
}

/// The admin API's token.
pub(super) fn admin_token(data_dir: &Path) -> io::Result<SecretString> {
    Ok(secret(&data_dir.join(files::ADMIN_TOKEN))?.text)
}

/// The password of [`files::GENERATED_USER`].
pub(super) fn osb_password(data_dir: &Path) -> io::Result<Secret> {
    secret(&data_dir.join(files::OSB_PASSWORD))
}

/// What ids that bundles do not give are made from.
pub(super) fn namespace(config: &Config, data_dir: &Path) -> io::Result<Uuid> {
    if let Some(namespace) = config.namespace {
        return Ok(namespace);
    }
    let path = data_dir.join("namespace");
    match secrets::read_line(&path) {
        Ok(line) => Uuid::parse_str(&line)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
            .map_err(|error| about(&path, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let fresh = RealWorld.id();
            write(&path, &fresh.to_string(), 0o600)?;
            Ok(fresh)
        }
        Err(error) => Err(about(&path, error)),
    }
}

/// The folder for files that bundles name as their secrets.
pub(super) fn secrets_folder(data_dir: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir.join("secrets"))
}

/// Tells commands on this host where the broker listens.
pub(super) fn addresses(data_dir: &Path, addresses: &Addresses) -> io::Result<()> {
    let tell = |name, address: SocketAddr| write(&data_dir.join(name), &url(address), 0o644);
    tell(files::OSB_URL, addresses.osb)?;
    tell(files::ADMIN_URL, addresses.admin)
}

fn secret(path: &Path) -> io::Result<Secret> {
    match fs::metadata(path) {
        Ok(meta) => {
            if meta.mode() & 0o077 != 0 {
                tracing::warn!(path = %path.display(), "a secret was open to others: mode set to 0600");
                fs::set_permissions(path, Permissions::from_mode(0o600))?;
            }
            let text = secrets::read_line(path).map_err(|error| about(path, error))?;
            Ok(Secret {
                text: text.into(),
                new: false,
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; 24];
            getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            write(path, &text, 0o600)?;
            Ok(Secret {
                text: text.into(),
                new: true,
            })
        }
        Err(error) => Err(about(path, error)),
    }
}

/// A file with one line, durable.
fn write(path: &Path, line: &str, mode: u32) -> io::Result<()> {
    let draft = PathBuf::from(format!("{}.new", path.display()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&draft)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    faults::hit_about("serve.stored.before", &name);
    fs::rename(&draft, path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()?;
    faults::hit_about("serve.stored.after", &name);
    Ok(())
}

fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    #[test]
    fn a_secret_is_made_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let first = osb_password(folder.path()).unwrap();
        let again = osb_password(folder.path()).unwrap();
        assert!(first.new && !again.new);
        assert_eq!(first.text.expose_secret(), again.text.expose_secret());
        assert_eq!(first.text.expose_secret().len(), 48);
        let path = folder.path().join(files::OSB_PASSWORD);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        osb_password(folder.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_secret_that_is_empty_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(files::ADMIN_TOKEN), "\n").unwrap();
        let error = admin_token(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("admin-token") && error.contains("empty"),
            "{error}"
        );
    }
}
