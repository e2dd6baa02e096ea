//! The text of a configuration as it was read once: a warden hands it to each of its brokers, so
//! that an edit, or half of one, takes effect when somebody starts `serve` and at no other time.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

use super::{Config, ConfigError, DEFAULT_FILE, Problem};

/// A larger file is no configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// A longer path names no file (PATH_MAX).
const MAX_PATH_BYTES: u64 = 4096;

/// What was read, and from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    /// None: no file, and so the defaults.
    file: Option<PathBuf>,
    text: String,
}

impl Source {
    /// Reads the named file; without one `evenkeel.toml` of the current folder, or, if there is
    /// none, the defaults.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self, ConfigError> {
        let default = Path::new(DEFAULT_FILE);
        let file = named.or_else(|| default.exists().then_some(default));
        Ok(Self {
            file: file.map(Path::to_owned),
            text: file.map(read).transpose()?.unwrap_or_default(),
        })
    }

    /// What it says.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        Config::parse(self.file.as_deref(), &self.text)
    }

    /// For another process: a file in memory with the path, a zero byte and the text.
    pub(crate) fn to_file(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create("evenkeel.toml", MemfdFlags::CLOEXEC)?);
        let path = self.file.as_deref().map(|path| path.as_os_str().as_bytes());
        file.write_all(path.unwrap_or_default())?;
        file.write_all(&[0])?;
        file.write_all(self.text.as_bytes())?;
        file.rewind()?;
        Ok(file)
    }

    /// What another process made by [`Self::to_file`].
    pub(crate) fn from_file(file: File) -> io::Result<Self> {
        let bytes = bounded(file, MAX_PATH_BYTES + 1 + MAX_FILE_BYTES)?;
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let zero = bytes.iter().position(|byte| *byte == 0);
        let (path, text) = bytes.split_at(zero.ok_or_else(malformed)?);
        let text = std::str::from_utf8(&text[1..]).map_err(|_| malformed())?;
        let path = (!path.is_empty()).then(|| OsString::from_vec(path.to_vec()).into());
        Ok(Self {
            file: path,
            text: text.to_owned(),
        })
    }
}

/// At most so many bytes.
fn bounded(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read(file: &Path) -> Result<String, ConfigError> {
    let problem = |message: String, hint: Option<&str>| ConfigError {
        problems: vec![Problem {
            file: Some(file.to_owned()),
            at: None,
            key: String::new(),
            message,
            hint: hint.map(str::to_owned),
        }],
    };
    let bytes = File::open(file)
        .and_then(|opened| bounded(opened, MAX_FILE_BYTES + 1))
        .map_err(|error| {
            let hint = (error.kind() == std::io::ErrorKind::NotFound)
                .then_some("`evenkeel config show` prints a whole file to start from");
            problem(format!("cannot be read: {error}"), hint)
        })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(problem("is larger than 1 MiB".to_owned(), None));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        problem(format!("is not UTF-8 at byte {at}"), None)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_has_the_same_source() {
        for (file, text) in [
            (None, ""),
            (Some("conf/evenkeel.toml"), ""),
            (
                Some("conf/evenkeel.toml"),
                "[jobs]\n# h\u{f6}chstens\nconcurrency = 2\n",
            ),
        ] {
            let source = Source {
                file: file.map(PathBuf::from),
                text: text.to_owned(),
            };
            let handed = source.to_file().unwrap();
            assert_eq!(Source::from_file(handed).unwrap(), source);
        }
        let empty = File::open("/dev/null").unwrap();
        assert!(Source::from_file(empty).is_err());
    }
}
