//! Who asks: basic authentication of platforms, the operator's bearer token.
//!
//! Nothing is ever compared as it was sent: both sides go through HMAC-SHA-256 under a key of
//! this process, and equal-length digests are compared in constant time. An argon2id hash is
//! meant to be slow, so it is paid until the first success of its user only; from then on the
//! digest of that one right password decides about every later one, right or wrong.

use std::collections::BTreeMap;
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
use subtle::ConstantTimeEq as _;
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
    /// Of the right password, as soon as it is known.
    digest: OnceLock<Digest>,
    hash: Option<SecretString>,
}

/// The platforms that may ask.
pub(crate) struct Platforms {
    key: Key,
    users: BTreeMap<Platform, Known>,
    slow: Semaphore,
}

impl Platforms {
    pub(crate) fn new(users: Vec<User>) -> Result<Self, AuthError> {
        if users.is_empty() {
            return Err(AuthError::NoUsers);
        }
        let key = Key::new()?;
        let mut known = BTreeMap::new();
        for User { name, password } in users {
            if name.as_str().contains(':') {
                return Err(AuthError::Colon(name.into()));
            }
            let entry = match password {
                Password::Plain(password) if password.expose_secret().is_empty() => {
                    return Err(AuthError::EmptyPassword(name.into()));
                }
                Password::Plain(password) => Known {
                    digest: key.digest(password.expose_secret().as_bytes()).into(),
                    hash: None,
                },
                Password::Argon2id(hash) => {
                    check_hash(hash.expose_secret()).map_err(|problem| AuthError::Hash {
                        user: name.to_string(),
                        problem,
                    })?;
                    Known {
                        digest: OnceLock::new(),
                        hash: Some(hash),
                    }
                }
            };
            if known.insert(name.clone(), entry).is_some() {
                return Err(AuthError::Twice(name.into()));
            }
        }
        Ok(Self {
            key,
            users: known,
            slow: Semaphore::new(SLOW_HASHES),
        })
    }

    /// The platform that an `Authorization` header proves.
    pub(crate) async fn check(&self, header: Option<&[u8]>) -> Result<Platform, Denied> {
        let (name, password) = basic(header).ok_or(Denied::Missing)?;
        let digest = self.key.digest(password.expose_secret().as_bytes());
        let Some((platform, known)) = Platform::new(name)
            .ok()
            .and_then(|name| self.users.get_key_value(&name))
        else {
            return Err(Denied::Wrong);
        };
        let right = match (known.digest.get(), &known.hash) {
            (Some(right), _) => bool::from(right.ct_eq(&digest)),
            (None, Some(hash)) => self.slowly(hash.clone(), password).await?,
            (None, None) => false,
        };
        if !right {
            return Err(Denied::Wrong);
        }
        known.digest.get_or_init(|| digest);
        Ok(platform.clone())
    }

    async fn slowly(&self, hash: SecretString, password: SecretString) -> Result<bool, Denied> {
        let turn = timeout(SLOW_WAIT, self.slow.acquire()).await;
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
        f.debug_list().entries(self.users.keys()).finish()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use argon2::PasswordHasher as _;
    use argon2::password_hash::SaltString;

    use super::*;

    fn user(name: &str, password: Password) -> User {
        User {
            name: Platform::new(name).unwrap(),
            password,
        }
    }

    fn plain(name: &str, password: &str) -> User {
        user(name, Password::Plain(password.into()))
    }

    fn hash(algorithm: Algorithm, password: &str) -> String {
        let cost = argon2::Params::new(64, 1, 1, None).unwrap();
        let salt = SaltString::encode_b64(b"a salt of the test").unwrap();
        let hasher = Argon2::new(algorithm, argon2::Version::V0x13, cost);
        hasher
            .hash_password(password.as_bytes(), &salt)
            .unwrap()
            .to_string()
    }

    fn argon2id(password: &str) -> Password {
        Password::Argon2id(hash(Algorithm::Argon2id, password).into())
    }

    fn header(credentials: &str) -> Vec<u8> {
        format!("Basic {}", BASE64.encode(credentials)).into_bytes()
    }

    async fn check(platforms: &Platforms, credentials: &str) -> Result<String, Denied> {
        let header = header(credentials);
        platforms.check(Some(&header)).await.map(String::from)
    }

    #[tokio::test]
    async fn each_user_comes_in_with_its_own_password_only() {
        let users = vec![
            plain("cf", "a:b:ü"),
            plain("k8s", "other"),
            user("hashed", argon2id("slow")),
        ];
        let platforms = Platforms::new(users).unwrap();
        assert_eq!(check(&platforms, "cf:a:b:ü").await, Ok("cf".to_owned()));
        assert_eq!(check(&platforms, "k8s:other").await, Ok("k8s".to_owned()));
        assert_eq!(
            check(&platforms, "hashed:slow").await,
            Ok("hashed".to_owned())
        );
        for wrong in [
            "cf:other",
            "cf:",
            "cf:a:b",
            "k8s:slow",
            "hashed:fast",
            "nobody:other",
            ":",
            "CF:a:b:ü",
        ] {
            assert_eq!(
                check(&platforms, wrong).await,
                Err(Denied::Wrong),
                "{wrong}"
            );
        }
    }

    #[tokio::test]
    async fn what_is_not_basic_authentication_is_missing() {
        let platforms = Platforms::new(vec![plain("cf", "pw")]).unwrap();
        let bearer = format!("Bearer {}", BASE64.encode("cf:pw"));
        for header in ["", "Basic", "Basic !!!", "Basic Y2Y=", &bearer, "cf:pw"] {
            assert_eq!(
                platforms.check(Some(header.as_bytes())).await,
                Err(Denied::Missing),
                "{header}"
            );
        }
        assert_eq!(platforms.check(None).await, Err(Denied::Missing));
        let unpadded = format!("bAsIc  {}", BASE64.encode("cf:pw").trim_end_matches('='));
        assert!(platforms.check(Some(unpadded.as_bytes())).await.is_ok());
    }

    #[tokio::test]
    async fn a_slow_hash_is_paid_until_the_first_success_only() {
        let platforms = Platforms::new(vec![user("cf", argon2id("pw"))]).unwrap();
        assert_eq!(check(&platforms, "cf:no").await, Err(Denied::Wrong));
        assert_eq!(check(&platforms, "cf:pw").await, Ok("cf".to_owned()));
        // With no turn left nothing can be hashed any more.
        platforms.slow.close();
        assert_eq!(check(&platforms, "cf:pw").await, Ok("cf".to_owned()));
        assert_eq!(check(&platforms, "cf:no").await, Err(Denied::Wrong));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_for_a_slow_hash_is_told_to_come_back() {
        let platforms = Platforms::new(vec![user("cf", argon2id("pw"))]).unwrap();
        let turns = platforms.slow.acquire_many(2).await.unwrap();
        assert_eq!(check(&platforms, "cf:pw").await, Err(Denied::Busy));
        drop(turns);
    }

    #[test]
    fn users_that_would_not_work_are_refused_with_the_reason() {
        let refused = |users: Vec<User>| Platforms::new(users).unwrap_err();
        assert_eq!(refused(vec![]), AuthError::NoUsers);
        assert_eq!(
            refused(vec![plain("a:b", "x")]),
            AuthError::Colon("a:b".to_owned())
        );
        assert_eq!(
            refused(vec![plain("a", "")]),
            AuthError::EmptyPassword("a".to_owned())
        );
        assert_eq!(
            refused(vec![plain("a", "x"), plain("a", "y")]),
            AuthError::Twice("a".to_owned())
        );
        for (text, problem) in [
            ("secret".to_owned(), "cannot be read"),
            (hash(Algorithm::Argon2i, "x"), "is of another algorithm"),
            (
                "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ".to_owned(),
                "has no salt or no hash",
            ),
            (
                hash(Algorithm::Argon2id, "x").replace("m=64", "m=4194304"),
                "costs too much",
            ),
        ] {
            let error = refused(vec![user("a", Password::Argon2id(text.clone().into()))]);
            let AuthError::Hash { problem: found, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(found.0, problem, "{text}");
            assert!(!error.to_string().contains(&text));
        }
    }

    #[test]
    fn the_admin_token_is_taken_as_a_bearer_token_only() {
        let token = Token::new(&"t0ken".into()).unwrap();
        assert!(token.check(Some(b"Bearer t0ken")));
        assert!(token.check(Some(b"bearer  t0ken ")));
        for wrong in ["t0ken", "Bearer", "Bearer ", "Bearer t0ke", "Basic t0ken"] {
            assert!(!token.check(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!token.check(None));
        assert_eq!(Token::new(&"".into()).err(), Some(AuthError::EmptyToken));
    }

    #[test]
    fn nothing_of_a_password_is_printed() {
        let users = vec![plain("cf", "hunter2")];
        assert!(!format!("{users:?}").contains("hunter2"));
        let platforms = Platforms::new(users).unwrap();
        assert!(!format!("{platforms:?}").contains("hunter2"));
    }
}
