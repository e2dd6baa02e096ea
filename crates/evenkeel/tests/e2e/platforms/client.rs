//! The wire as platforms use it: headers as each sends them, a patience that ends, connections
//! that break, requests that come twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tokio::time::timeout;

use super::dice::Dice;
use crate::harness::{Answer, PATIENCE};

/// How a platform introduces itself (OSB.md §3.2, §3.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    pub(crate) version: &'static str,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Headers that get a new name in each request.
    pub(crate) named: &'static [&'static str],
    /// Sent where a user is behind the request: not in the platform's own cleaning up.
    pub(crate) identity: &'static str,
}

/// Where the broker is, if it is anywhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Arc<RwLock<Option<(String, String)>>>);

impl Line {
    /// The broker listens there, with that password.
    pub(crate) fn up(&self, url: String, password: String) {
        *self.0.write().unwrap() = Some((url, password));
    }

    pub(crate) fn down(&self) {
        *self.0.write().unwrap() = None;
    }
}

/// What a platform wants to say.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Begins with `/v2`.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    pub(crate) for_user: bool,
}

/// What comes of it.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Answer(Answer),
    /// Nobody listens: it never arrived.
    Unreachable,
    /// The connection broke before the answer.
    Broken,
    /// The platform gave up.
    TimedOut,
}

impl Reply {
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Answer(answer) => Some(answer.status),
            Self::Unreachable | Self::Broken | Self::TimedOut => None,
        }
    }

    /// The body of an answer.
    pub(crate) fn body(&self) -> &Value {
        &self.answer().expect("an answer").body
    }

    /// The `operation` of a 202.
    pub(crate) fn operation(&self) -> String {
        self.answer().expect("an answer").operation()
    }

    pub(crate) fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Unreachable | Self::Broken | Self::TimedOut => None,
        }
    }

    /// Whether the request cannot have done anything.
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Unreachable)
            || self
                .status()
                .is_some_and(|status| (400..500).contains(&status) && status != 410)
    }

    /// What a platform is told of two copies: the second answer, but never "nothing has happened"
    /// where the first copy may have done it.
    fn of_two(first: Self, second: Self) -> Self {
        if second.is_nothing() && !first.is_nothing() {
            Self::Broken
        } else {
            second
        }
    }

    /// 422 with the word that says "not now".
    pub(crate) fn is_busy(&self) -> bool {
        self.answer().is_some_and(|answer| {
            answer.status == 422 && answer.body["error"] == "ConcurrencyError"
        })
    }

    /// Nothing that says anything about the request: no answer, or one of a broker in trouble.
    pub(crate) fn is_trouble(&self) -> bool {
        self.status().is_none_or(|status| status >= 500)
    }
}

/// How often each request was answered how.
pub(crate) type Tally = BTreeMap<String, u64>;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    line: Line,
    tally: Arc<Mutex<Tally>>,
    http: reqwest::Client,
    dialect: Dialect,
    /// Within this everything has to come to its end.
    pub(crate) patience: Duration,
    /// How often in a hundred times it does not wait for an answer.
    pub(crate) hasty: u64,
}

impl Client {
    pub(crate) fn new(line: Line, dialect: Dialect) -> Self {
        let http = reqwest::Client::builder().timeout(PATIENCE).build();
        Self {
            line,
            tally: Arc::default(),
            http: http.unwrap(),
            dialect,
            patience: PATIENCE,
            hasty: 8,
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally.lock().unwrap().clone()
    }

    /// Sends it with a patience that chance decides, and at times twice: one after the other or
    /// both at once, as a proxy that tries again does.
    pub(crate) async fn send(&self, dice: &mut Dice, request: &Request) -> Reply {
        let (mut one, mut two) = (dice.fork(), dice.fork());
        match dice.below(100) {
            0..5 => {
                let first = self.once(&mut one, request).await;
                Reply::of_two(first, self.once(&mut two, request).await)
            }
            5..10 => {
                let both = tokio::join!(self.once(&mut one, request), self.once(&mut two, request));
                Reply::of_two(both.0, both.1)
            }
            _ => self.once(&mut one, request).await,
        }
    }

    async fn once(&self, dice: &mut Dice, request: &Request) -> Reply {
        let reply = self.try_once(dice, request).await;
        let what = match &reply {
            Reply::Answer(answer) => answer.status.to_string(),
            Reply::Unreachable | Reply::Broken | Reply::TimedOut => format!("{reply:?}"),
        };
        let key = format!("{} {what}", request.method);
        *self.tally.lock().unwrap().entry(key).or_default() += 1;
        reply
    }

    async fn try_once(&self, dice: &mut Dice, request: &Request) -> Reply {
        let patience = if dice.chance(self.hasty) {
            dice.millis(150)
        } else {
            PATIENCE
        };
        let Some((url, password)) = self.line.0.read().unwrap().clone() else {
            // Nobody asks a dead broker without a pause.
            tokio::time::sleep(Duration::from_millis(20)).await;
            return Reply::Unreachable;
        };
        let identity = dice.guid();
        let built = self.build(&url, &password, &identity, dice, request);
        // Giving up drops the connection, with whatever is on its way.
        let answer = timeout(patience, async {
            let response = built.send().await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Ok::<_, reqwest::Error>((status, headers, response.bytes().await?))
        });
        let (status, headers, bytes) = match answer.await {
            Err(_) => return Reply::TimedOut,
            Ok(Err(error)) if error.is_connect() => return Reply::Unreachable,
            Ok(Err(_)) => return Reply::Broken,
            Ok(Ok(whole)) => whole,
        };
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            panic!(
                "{request:?}: {status}: {error}: {:?}",
                String::from_utf8_lossy(&bytes)
            )
        });
        let answer = Answer {
            status,
            body,
            headers,
        };
        self.check(request, &answer, &identity);
        Reply::Answer(answer)
    }

    fn build(
        &self,
        url: &str,
        password: &str,
        identity: &str,
        dice: &mut Dice,
        request: &Request,
    ) -> RequestBuilder {
        let dialect = &self.dialect;
        let mut built = self
            .http
            .request(request.method.clone(), format!("{url}{}", request.path))
            .basic_auth("platform", Some(password))
            .header("X-Broker-Api-Version", dialect.version)
            .header("X-Broker-API-Request-Identity", identity);
        for (name, value) in dialect.headers {
            built = built.header(*name, *value);
        }
        for name in dialect.named {
            built = built.header(*name, dice.guid());
        }
        if request.for_user {
            built = built.header("X-Broker-Api-Originating-Identity", dialect.identity);
        }
        match &request.body {
            Some(body) => built.json(body),
            None => built,
        }
    }

    /// What holds for every answer, whatever it says.
    fn check(&self, request: &Request, answer: &Answer, identity: &str) {
        let say = || format!("{request:?} got {answer:?}");
        assert!(answer.body.is_object(), "{}", say());
        let echo = answer.headers.get("X-Broker-API-Request-Identity");
        assert!(echo.is_some_and(|echo| echo == identity), "{}", say());
        if answer.status >= 400 {
            let told = answer.body["description"].as_str().unwrap_or_default();
            assert!(!told.is_empty(), "{}", say());
        }
        if answer.status == 202 {
            let operation = answer.body["operation"].as_str().unwrap_or_default();
            assert!((1..=10_000).contains(&operation.len()), "{}", say());
            assert!(answer.body.get("credentials").is_none(), "{}", say());
        }
    }
}
