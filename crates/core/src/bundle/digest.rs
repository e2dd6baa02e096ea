//! The identity of a bundle: the digest of all that is in its folder.
//!
//! The canonical form is `evenkeel-bundle/1` and a line feed, then for each regular file in
//! ascending byte order of its path:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | length of the path, big-endian |
//! | … | the path, relative, with `/` between the parts |
//! | 1 | 1 if the file is executable, else 0 |
//! | 8 | length of the content, big-endian |
//! | … | the content |
//!
//! Every part is preceded by its length, so no two folders have the same form. Owners, times
//! and the rest of the mode do not count.

use sha2::{Digest as _, Sha256};

use crate::ids::BundleDigest;

const FORMAT: &[u8] = b"evenkeel-bundle/1\n";

/// One regular file of a bundle: path, whether it is executable, content.
pub type Entry<P, B> = (P, bool, B);

/// The entries came in another order than that of their paths, or a path came twice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the files of a bundle are digested in the order of their paths: {path:?} came after {previous:?}"
)]
pub struct DigestError {
    /// The path before.
    pub previous: String,
    /// The path that is out of order.
    pub path: String,
}

/// The digest over the files of a bundle's folder, in ascending byte order of their paths.
///
/// The content of an entry is dropped before the next one is asked for.
///
/// # Errors
/// [`DigestError`] if the entries are not strictly ascending.
pub fn digest<P: AsRef<str>, B: AsRef<[u8]>>(
    entries: impl IntoIterator<Item = Entry<P, B>>,
) -> Result<BundleDigest, DigestError> {
    let mut hash = Sha256::new();
    hash.update(FORMAT);
    let mut previous: Option<P> = None;
    for (path, executable, content) in entries {
        if let Some(previous) = previous.as_ref().filter(|p| (*p).as_ref() >= path.as_ref()) {
            let (previous, path) = (previous.as_ref().to_owned(), path.as_ref().to_owned());
            return Err(DigestError { previous, path });
        }
        update_with_length(&mut hash, path.as_ref().as_bytes());
        hash.update([u8::from(executable)]);
        update_with_length(&mut hash, content.as_ref());
        previous = Some(path);
    }
    Ok(BundleDigest(hash.finalize().into()))
}

fn update_with_length(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}
