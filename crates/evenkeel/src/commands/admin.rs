//! A client of the admin API.

use std::time::Duration;

use evenkeel_server::admin::types::{ErrorAnswer, ErrorKind};
use reqwest::{Method, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::address;
use super::local::DataDir;
use crate::cli::AdminArgs;
use crate::fail::{Exit, Failure};
use crate::files;
use crate::output::shown;

/// For one request, from connecting to the last byte.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Of an answer; the largest, a log, has two streams of 1 MiB.
const SIZE_LIMIT_BYTES: usize = 32 << 20;

const ADDRESS: &str = "the admin API's address";

/// An answer that was understood.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Vec<u8>,
}

/// A client of one broker's admin API.
#[derive(Debug)]
pub(crate) struct AdminClient {
    http: reqwest::Client,
    base: Url,
    token: Option<SecretString>,
}

impl AdminClient {
    pub(crate) fn new(args: &AdminArgs) -> Result<Self, Failure> {
        args.url.as_deref().map_or(Ok(()), address::spoken)?;
        // What is given need not be found.
        let folder = match (&args.url, &args.token) {
            (Some(_), Some(_)) => None,
            _ => Some(DataDir::find(&args.local)?),
        };
        if let (Some(url), None, Some(folder)) = (&args.url, &args.token, &folder) {
            folder.vouch(files::ADMIN_URL, url, "--token or EVENKEEL_TOKEN")?;
        }
        let read = |given: &Option<String>, name, what, instead| match (given, &folder) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(folder)) => folder.line(name, what, instead),
            (None, None) => Ok(String::new()),
        };
        let url = read(&args.url, files::ADMIN_URL, ADDRESS, "--url and --token")?;
        let token = read(
            &args.token,
            files::ADMIN_TOKEN,
            "the admin API's token",
            "--token",
        )?;
        Self::at(&url, Some(token.into()))
    }

    /// For what is told to anybody.
    pub(super) fn without_token(args: &AdminArgs) -> Result<Self, Failure> {
        let url = match &args.url {
            Some(url) => url.clone(),
            None => {
                DataDir::find(&args.local)?.line(files::ADMIN_URL, ADDRESS, "--url and --token")?
            }
        };
        Self::at(&url, None)
    }

    fn at(url: &str, token: Option<SecretString>) -> Result<Self, Failure> {
        address::spoken(url)?;
        let base = Url::parse(url)
            .ok()
            .filter(|base| base.scheme() == "http" && base.has_host())
            .ok_or_else(|| {
                Failure::usage(format!(
                    "{:?} is not a URL such as http://127.0.0.1:8081",
                    shown(url)
                ))
            })?;
        // A redirect or a proxy of the environment would hand the token to somebody else.
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(TIME_LIMIT)
            .build()
            .map_err(|error| Failure::new(Exit::Failed, format!("no HTTP client: {error}")))?;
        Ok(Self { http, base, token })
    }

    /// Gets what the path and its query name.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T, Failure> {
        let answer = self.call(Method::GET, path, query).await?;
        if answer.status.is_success() {
            self.read(&answer)
        } else {
            Err(self.refusal(&answer))
        }
    }

    /// As [`Self::get`]; `None` where the broker is reached and cannot answer now.
    pub(super) async fn get_if_available<T: DeserializeOwned>(
        &self,
        path: &[&str],
    ) -> Result<Option<T>, Failure> {
        let answer = self.call(Method::GET, path, &[]).await?;
        match answer.status {
            StatusCode::SERVICE_UNAVAILABLE => Ok(None),
            status if status.is_success() => self.read(&answer).map(Some),
            _ => Err(self.refusal(&answer)),
        }
    }

    /// As [`Self::get`], whatever the status says.
    pub(super) async fn get_any<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Failure> {
        let answer = self.call(Method::GET, path, &[]).await?;
        self.read(&answer).map_err(|unreadable| {
            if answer.status.is_success() {
                unreadable
            } else {
                self.refusal(&answer)
            }
        })
    }

    /// Asks for something to be done.
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Failure> {
        self.done(self.call(Method::POST, path, &[]).await?)
    }

    /// As [`Self::post`], with what there is to say about it.
    pub(super) async fn post_with<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = self.request(Method::POST, path, &[]).json(body);
        self.done(self.send(request).await?)
    }

    fn done<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, Failure> {
        if answer.status.is_success() {
            self.read(&answer)
        } else {
            Err(self.refusal(&answer))
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Answer, Failure> {
        self.send(self.request(method, path, query)).await
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
    ) -> reqwest::RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(method, url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        request
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer, Failure> {
        let mut response = request
            .send()
            .await
            .map_err(|error| self.unreachable(error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.unreachable(error))?
        {
            body.extend_from_slice(&chunk);
            if body.len() > SIZE_LIMIT_BYTES {
                return Err(self.foreign("its answer is larger than 32 MiB"));
            }
        }
        Ok(Answer { status, body })
    }

    fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Failure> {
        serde_json::from_slice(&answer.body).map_err(|error| {
            self.foreign(&format!(
                "its answer {} is not understood: {error}",
                answer.status
            ))
        })
    }

    fn refusal(&self, answer: &Answer) -> Failure {
        let Ok(error) = serde_json::from_slice::<ErrorAnswer>(&answer.body) else {
            return self.foreign(&format!("it answered {}", answer.status));
        };
        let exit = match error.error {
            ErrorKind::BadRequest | ErrorKind::PayloadTooLarge => Exit::Usage,
            ErrorKind::Unauthorized => Exit::Refused,
            ErrorKind::NotFound => Exit::NotFound,
            ErrorKind::NotApplicable | ErrorKind::Busy | ErrorKind::TargetGone => {
                Exit::NotApplicable
            }
            ErrorKind::Unavailable => Exit::Unreachable,
            ErrorKind::MethodNotAllowed
            | ErrorKind::RequestTimeout
            | ErrorKind::Internal
            | ErrorKind::Unknown => Exit::Failed,
        };
        let failure = Failure::new(exit, shown(&error.description));
        if exit == Exit::Refused {
            return failure.hint(
                "the token is in the file admin-token of the broker's data folder; give it by EVENKEEL_TOKEN or --token",
            );
        }
        if exit == Exit::Unreachable {
            return failure.hint("try again in a moment; `evenkeel status` says why");
        }
        failure
    }

    fn foreign(&self, what: &str) -> Failure {
        Failure::new(Exit::Failed, format!("the admin API at {}: {what}", self.base))
            .hint("is that the admin API's address (by default http://127.0.0.1:8081), and of this release?")
    }

    fn unreachable(&self, error: reqwest::Error) -> Failure {
        Failure::new(
            Exit::Unreachable,
            format!(
                "the admin API at {} does not answer: {}",
                self.base,
                innermost(&error.without_url())
            ),
        )
        .hint("is the broker running? `evenkeel serve` starts it")
    }
}

/// The reason below all others, as "Connection refused".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
