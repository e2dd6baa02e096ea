//! Who comes in, who does not, and what it costs.

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

#[tokio::test]
async fn as_long_as_a_hash_is_to_be_paid_every_failure_pays_one_whatever_the_name() {
    let users = vec![plain("cf", "pw"), user("hashed", argon2id("slow"))];
    let platforms = Platforms::new(users).unwrap();
    let failures = ["hashed:no", "cf:no", "nobody:pw", "no body\u{1}:pw", ":"];
    // With no turn left nothing can be hashed, so who would have to pay is seen: it waits.
    let turns = platforms.slow.acquire_many(2).await.unwrap();
    let decoy = platforms.decoys.acquire().await.unwrap();
    tokio::time::pause();
    for failure in failures {
        let since = tokio::time::Instant::now();
        let denied = check(&platforms, failure).await.unwrap_err();
        assert!(since.elapsed() >= SLOW_WAIT, "{failure}");
        let proves = failure.starts_with("hashed:");
        let expected = if proves { Denied::Busy } else { Denied::Wrong };
        assert_eq!(denied, expected, "{failure}");
    }
    assert_eq!(check(&platforms, "cf:pw").await, Ok("cf".to_owned()));
    tokio::time::resume();
    drop(turns);
    // Those who only pass the time keep nobody waiting who has a password to prove.
    assert_eq!(check(&platforms, "hashed:no").await, Err(Denied::Wrong));
    drop(decoy);
    for failure in failures {
        assert_eq!(
            check(&platforms, failure).await,
            Err(Denied::Wrong),
            "{failure}"
        );
    }
    // Another user's password is none of one's own.
    assert_eq!(check(&platforms, "nobody:slow").await, Err(Denied::Wrong));
    assert_eq!(check(&platforms, "cf:slow").await, Err(Denied::Wrong));
    assert_eq!(
        check(&platforms, "hashed:slow").await,
        Ok("hashed".to_owned())
    );
    platforms.slow.close();
    platforms.decoys.close();
    for failure in failures {
        assert_eq!(
            check(&platforms, failure).await,
            Err(Denied::Wrong),
            "{failure}"
        );
    }
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
