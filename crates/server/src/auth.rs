//! Who asks: basic authentication of platforms, the operator's bearer token.
//!
//! Nothing is ever compared as it was sent: both sides go through HMAC-SHA-256 under a key of
//! this process, and equal-length digests are compared in constant time, names with all names. An
//! argon2id hash is meant to be slow, so it is paid until the first success of its user only; from
//! then on the digest of that one right password decides about every later one, right or wrong.
//! As long as any user's hash is still to be paid, every failure pays one: else the time would
//! tell which names there are.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use argon2::password_hash::PasswordHash;
use argon2::{Algorithm, Argon2, PasswordVerifier as _};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use evenkeel_core::ids::Platform;
use hmac::{Hmac, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Slow hashes at once: each takes a processor and its memory for a while.
const SLOW_HASHES: usize = 2;
/// How long a request waits for its turn to be hashed: 503 after that.
const SLOW_WAIT: Duration = Duration::from_secs(5);
/// The most memory that a hash may ask for, in KiB (256 MiB).
const MAX_HASH_KIB: u32 = 256 * 1024;
/// The most passes that a hash may ask for.
const MAX_HASH_PASSES: u32 = 16;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A platform that may ask.
#[derive(Clone, Debug)]
pub struct User {
    /// Its user name.
    pub name: Platform,
    /// What it has to know.
    pub password: Password,
}

/// What a platform's password is checked against.
#[derive(Clone, Debug)]
pub enum Password {
    /// The password.
    Plain(SecretString),
    /// An argon2id hash of it, as `$argon2id$v=19$m=…,t=…,p=…$SALT$HASH`.
    Argon2id(SecretString),
}

/// Why users or a token cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Nobody could ask anything.
    #[error("there are no users: at least one is needed")]
    NoUsers,
    /// Basic authentication ends the name at the first colon.
    #[error("the user name {0:?} has a colon, which basic authentication cannot carry")]
    Colon(String),
    /// Two passwords for one name.
    #[error("the user {0:?} is there twice")]
    Twice(String),
    /// Anybody could be it.
    #[error("the password of user {0:?} is empty")]
    EmptyPassword(String),
    /// Not a hash, or one that costs too much.
    #[error("the password hash of user {user:?} {problem}")]
    Hash {
        /// Whose.
        user: String,
        /// What is wrong with it.
        problem: HashError,
    },
    /// Anybody could have it.
    #[error("the admin token is empty")]
    EmptyToken,
    /// The kernel gave no random numbers.
    #[error("no random numbers for a key: {0}")]
    Random(String),
}

/// Why a request is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Denied {
    #[error("the Authorization header is missing or is not basic authentication")]
    Missing,
    #[error("user name or password are wrong")]
    Wrong,
    #[error("too many passwords are being checked: try again later")]
    Busy,
}

type Digest = [u8; 32];

/// Makes digests that mean nothing outside this process.
struct Key([u8; 32]);

impl Key {
    fn new() -> Result<Self, AuthError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| AuthError::Random(error.to_string()))?;
        Ok(Self(key))
    }

    fn digest(&self, secret: &[u8]) -> Digest {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key");
        mac.update(secret);
        mac.finalize().into_bytes().into()
    }
}

struct Known {
    name: Platform,
    name_digest: Digest,
    /// Of the right password, as soon as it is known.
    digest: OnceLock<Digest>,
    hash: Option<SecretString>,
}

/// The platforms that may ask.
pub(crate) struct Platforms {
    key: Key,
    /// At least one.
    users: Vec<Known>,
    slow: Semaphore,
    /// Turns of those who have no password to prove: they keep nobody waiting who has.
    decoys: Semaphore,
}

impl Platforms {
    pub(crate) fn new(users: Vec<User>) -> Result<Self, AuthError> {
        if users.is_empty() {
            return Err(AuthError::NoUsers);
        }
        let key = Key::new()?;
        let mut names = BTreeSet::new();
        let mut known = Vec::new();
        for User { name, password } in users {
            if name.as_str().contains(':') {
                return Err(AuthError::Colon(name.into()));
            }
            if !names.insert(name.clone()) {
                return Err(AuthError::Twice(name.into()));
            }
            let (digest, hash) = match password {
                Password::Plain(password) if password.expose_secret().is_empty() => {
                    return Err(AuthError::EmptyPassword(name.into()));
                }
                Password::Plain(password) => {
                    (key.digest(password.expose_secret().as_bytes()).into(), None)
                }
                Password::Argon2id(hash) => {
                    check_hash(hash.expose_secret()).map_err(|problem| AuthError::Hash {
                        user: name.to_string(),
                        problem,
                    })?;
                    (OnceLock::new(), Some(hash))
                }
            };
            known.push(Known {
                name_digest: key.digest(name.as_str().as_bytes()),
                name,
                digest,
                hash,
            });
        }
        Ok(Self {
            key,
            users: known,
            slow: Semaphore::new(SLOW_HASHES),
            decoys: Semaphore::new(1),
        })
    }

    /// The platform that an `Authorization` header proves.
    pub(crate) async fn check(&self, header: Option<&[u8]>) -> Result<Platform, Denied> {
        let (name, password) = basic(header).ok_or(Denied::Missing)?;
        let digest = self.key.digest(password.expose_secret().as_bytes());
        let known = self.named(&name);
        let right = match known.map(|known| (known.digest.get(), &known.hash)) {
            Some((Some(right), _)) => bool::from(right.ct_eq(&digest)),
            Some((None, Some(hash))) => {
                let right = slowly(&self.slow, hash.clone(), password).await?;
                return self.decided(known, digest, right);
            }
            Some((None, None)) | None => false,
        };
        if !right && let Some(hash) = self.unpaid() {
            // For its time only; where that is too long to wait for, the answer stands.
            slowly(&self.decoys, hash.clone(), password).await.ok();
        }
        self.decided(known, digest, right)
    }

    fn decided(
        &self,
        known: Option<&Known>,
        digest: Digest,
        right: bool,
    ) -> Result<Platform, Denied> {
        let known = known.filter(|_| right).ok_or(Denied::Wrong)?;
        known.digest.get_or_init(|| digest);
        Ok(known.name.clone())
    }

    /// Looks at every user, whichever it is.
    fn named(&self, name: &str) -> Option<&Known> {
        let sought = self.key.digest(name.as_bytes());
        let (mut place, mut found) = (0_u64, Choice::from(0));
        for (at, known) in (0..).zip(&self.users) {
            let same = known.name_digest.ct_eq(&sought);
            place.conditional_assign(&at, same);
            found |= same;
        }
        let known = self.users.get(usize::try_from(place).ok()?)?;
        bool::from(found).then_some(known)
    }

    /// A hash that nobody has given the password of yet.
    fn unpaid(&self) -> Option<&SecretString> {
        let unpaid = |known: &&Known| known.digest.get().is_none();
        self.users.iter().find(unpaid)?.hash.as_ref()
    }
}

async fn slowly(
    turns: &Semaphore,
    hash: SecretString,
    password: SecretString,
) -> Result<bool, Denied> {
    let turn = timeout(SLOW_WAIT, turns.acquire()).await;
    let turn = turn.map_err(|_| Denied::Busy)?.map_err(|_| Denied::Busy)?;
    let verified = tokio::task::spawn_blocking(move || {
        let hash = PasswordHash::new(hash.expose_secret());
        hash.is_ok_and(|hash| {
            Argon2::default()
                .verify_password(password.expose_secret().as_bytes(), &hash)
                .is_ok()
        })
    })
    .await;
    drop(turn);
    // A check that panicked proved nothing.
    Ok(verified.unwrap_or(false))
}

/// The operator's token.
pub(crate) struct Token {
    key: Key,
    digest: Digest,
}

impl Token {
    pub(crate) fn new(token: &SecretString) -> Result<Self, AuthError> {
        if token.expose_secret().is_empty() {
            return Err(AuthError::EmptyToken);
        }
        let key = Key::new()?;
        let digest = key.digest(token.expose_secret().as_bytes());
        Ok(Self { key, digest })
    }

    /// Whether an `Authorization` header carries it.
    pub(crate) fn check(&self, header: Option<&[u8]>) -> bool {
        let sent = header.and_then(|header| of_scheme("bearer", header));
        sent.is_some_and(|sent| self.key.digest(sent.as_bytes()).ct_eq(&self.digest).into())
    }
}

fn basic(header: Option<&[u8]>) -> Option<(String, SecretString)> {
    let credentials = BASE64.decode(of_scheme("basic", header?)?).ok()?;
    let text = SecretString::from(String::from_utf8(credentials).ok()?);
    let (name, password) = text.expose_secret().split_once(':')?;
    Some((name.to_owned(), SecretString::from(password)))
}

fn of_scheme<'a>(scheme: &str, header: &'a [u8]) -> Option<&'a str> {
    let (found, rest) = std::str::from_utf8(header).ok()?.trim().split_once(' ')?;
    found.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

/// What is wrong with a password hash, which is not repeated: it is a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0}: it has to be argon2id as $argon2id$v=19$m=…,t=…,p=…$SALT$HASH, with m up to \
     {MAX_HASH_KIB} and t up to {MAX_HASH_PASSES}"
)]
pub struct HashError(&'static str);

/// Whether the server takes a password hash.
///
/// # Errors
/// It does not.
pub fn check_hash(text: &str) -> Result<(), HashError> {
    let hash = PasswordHash::new(text).map_err(|_| HashError("cannot be read"))?;
    if Algorithm::try_from(hash.algorithm) != Ok(Algorithm::Argon2id) {
        return Err(HashError("is of another algorithm"));
    }
    if hash.hash.is_none() || hash.salt.is_none() {
        return Err(HashError("has no salt or no hash"));
    }
    let cost = argon2::Params::try_from(&hash)
        .map_err(|_| HashError("has parameters that cannot be used"))?;
    if cost.m_cost() > MAX_HASH_KIB || cost.t_cost() > MAX_HASH_PASSES {
        return Err(HashError("costs too much"));
    }
    Ok(())
}

impl std::fmt::Debug for Platforms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.users.iter().map(|known| &known.name);
        f.debug_list().entries(names).finish()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token([redacted])")
    }
}

#[cfg(test)]
mod tests;
