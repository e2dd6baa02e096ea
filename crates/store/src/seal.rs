//! Sealing: XChaCha20-Poly1305 with the place of a blob as associated data, so that a blob is
//! worth nothing anywhere but where it was put.
//!
//! A blob is `1 | key id (8 bytes) | nonce (24) | ciphertext and tag`.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use evenkeel_core::ids::RequestDigest;
use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretBox};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;

use crate::error::StoreError;
use crate::key::Master;

const FORMAT: u8 = 1;
const KEY_ID: usize = 8;
const NONCE: usize = 24;
const HEAD: usize = 1 + KEY_ID + NONCE;

/// Where a blob stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) table: &'static str,
    pub(crate) row: &'a str,
    pub(crate) column: &'static str,
}

impl Place<'_> {
    fn bytes(self) -> Vec<u8> {
        [self.table, self.row, self.column].join("\0").into_bytes()
    }
}

/// Holds the keys that are derived from the key file.
pub(crate) struct Sealer {
    cipher: XChaCha20Poly1305,
    digest_key: SecretBox<[u8; 32]>,
    key_id: [u8; KEY_ID],
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl Sealer {
    pub(crate) fn new(master: &Master) -> Self {
        let seal_key = SecretBox::new(Box::new(mac(
            master.expose_secret(),
            b"evenkeel/1 sealing of rows",
        )));
        let name = mac(master.expose_secret(), b"evenkeel/1 name of the key");
        let mut key_id = [0; KEY_ID];
        key_id.copy_from_slice(&name[..KEY_ID]);
        Self {
            cipher: XChaCha20Poly1305::new(seal_key.expose_secret().into()),
            digest_key: SecretBox::new(Box::new(mac(
                master.expose_secret(),
                b"evenkeel/1 digest of requests",
            ))),
            key_id,
        }
    }

    /// Tells requests apart without giving them away.
    pub(crate) fn digest(&self, canonical: &[u8]) -> RequestDigest {
        RequestDigest(mac(self.digest_key.expose_secret(), canonical))
    }

    pub(crate) fn seal(&self, place: Place<'_>, plain: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce)
            .map_err(|error| StoreError::Unavailable(format!("no randomness: {error}")))?;
        let payload = Payload {
            msg: plain,
            aad: &place.bytes(),
        };
        let sealed = self
            .cipher
            .encrypt(XNonce::from_slice(&nonce), payload)
            .map_err(|_| {
                StoreError::Unavailable(format!("{} bytes are too many to be sealed", plain.len()))
            })?;
        let mut blob = Vec::with_capacity(HEAD + sealed.len());
        blob.push(FORMAT);
        blob.extend_from_slice(&self.key_id);
        blob.extend_from_slice(&nonce);
        blob.extend_from_slice(&sealed);
        Ok(blob)
    }

    /// # Errors
    /// `WrongKey` where another key sealed it, `Damaged` where it does not authenticate.
    pub(crate) fn open(&self, place: Place<'_>, blob: &[u8]) -> Result<Vec<u8>, StoreError> {
        let what = || format!("{}.{} of {}", place.table, place.column, place.row);
        if blob.len() < HEAD || blob[0] != FORMAT {
            return Err(StoreError::Damaged(format!("{} is not sealed", what())));
        }
        if blob[1..=KEY_ID] != self.key_id {
            return Err(StoreError::WrongKey(format!(
                "{} was sealed with another key",
                what()
            )));
        }
        let payload = Payload {
            msg: &blob[HEAD..],
            aad: &place.bytes(),
        };
        self.cipher
            .decrypt(XNonce::from_slice(&blob[1 + KEY_ID..HEAD]), payload)
            .map_err(|_| StoreError::Damaged(format!("{} does not authenticate", what())))
    }

    pub(crate) fn seal_json(
        &self,
        place: Place<'_>,
        value: &impl Serialize,
    ) -> Result<Vec<u8>, StoreError> {
        let plain = serde_json::to_vec(value).map_err(|error| unreadable(place, &error))?;
        self.seal(place, &plain)
    }

    /// # Errors
    /// Besides those of [`Self::open`]: `Unreadable` where it authenticates but is not what it
    /// should be.
    pub(crate) fn open_json<T: DeserializeOwned>(
        &self,
        place: Place<'_>,
        blob: &[u8],
    ) -> Result<T, StoreError> {
        let plain = self.open(place, blob)?;
        serde_json::from_slice(&plain).map_err(|error| unreadable(place, &error))
    }
}

// Names kind and position only: serde_json's own text may quote what it read.
fn unreadable(place: Place<'_>, error: &serde_json::Error) -> StoreError {
    StoreError::Unreadable(format!(
        "{}.{} of {}: {:?} at byte {}",
        place.table,
        place.column,
        place.row,
        error.classify(),
        error.column()
    ))
}

fn mac(key: &[u8; 32], text: &[u8]) -> [u8; 32] {
    let mut mac =
        <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(byte: u8) -> Sealer {
        Sealer::new(&SecretBox::new(Box::new([byte; 32])))
    }

    const HERE: Place<'static> = Place {
        table: "jobs",
        row: "1",
        column: "body",
    };

    #[test]
    fn a_blob_opens_only_where_it_was_put() {
        let sealer = sealer(1);
        let blob = sealer.seal(HERE, b"secret").unwrap();
        assert_eq!(sealer.open(HERE, &blob).unwrap(), b"secret");
        for elsewhere in [
            Place { row: "2", ..HERE },
            Place {
                column: "data",
                ..HERE
            },
            Place {
                table: "other",
                ..HERE
            },
        ] {
            assert!(matches!(
                sealer.open(elsewhere, &blob),
                Err(StoreError::Damaged(_))
            ));
        }
    }

    #[test]
    fn a_flipped_bit_is_damage_and_another_key_is_a_wrong_key() {
        let blob = sealer(1).seal(HERE, b"secret").unwrap();
        let mut flipped = blob.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert!(matches!(
            sealer(1).open(HERE, &flipped),
            Err(StoreError::Damaged(_))
        ));
        assert!(matches!(
            sealer(2).open(HERE, &blob),
            Err(StoreError::WrongKey(_))
        ));
        assert!(matches!(
            sealer(1).open(HERE, b"short"),
            Err(StoreError::Damaged(_))
        ));
    }

    #[test]
    fn what_authenticates_but_is_no_json_is_unreadable_and_not_quoted() {
        let sealer = sealer(1);
        let blob = sealer.seal(HERE, b"hunter2 {").unwrap();
        let error = sealer
            .open_json::<serde_json::Value>(HERE, &blob)
            .unwrap_err();
        assert!(matches!(error, StoreError::Unreadable(_)));
        assert!(!error.to_string().contains("hunter2"));
        assert!(!format!("{sealer:?}").contains("01, 01"));
    }
}
