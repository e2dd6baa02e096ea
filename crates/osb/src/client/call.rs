//! One call: build, send within the time limit, read within the size limit, sort by status.

use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, Url};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Client;
use super::error::{BrokerError, ClientError};
use crate::body::{BadRequest, parse_body};
use crate::fields::FromObject;
use crate::headers::{
    API_VERSION, ORIGINATING_IDENTITY, REQUEST_IDENTITY, RETRY_AFTER, RetryAfter,
};
use crate::uri::Query;

/// An answer below 400.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<RetryAfter>,
    body: Result<Map<String, Value>, BadRequest>,
}

impl Answer {
    pub(super) fn read<T: FromObject>(self) -> Result<T, ClientError> {
        let status = self.status;
        self.body
            .and_then(|object| T::from_object(&object))
            .map_err(|problem| ClientError::Malformed { status, problem })
    }

    pub(super) fn expect_only<T: FromObject>(self, status: u16) -> Result<T, ClientError> {
        if self.status == status {
            self.read()
        } else {
            Err(self.unexpected())
        }
    }

    pub(super) fn unexpected(&self) -> ClientError {
        ClientError::Unexpected {
            status: self.status,
        }
    }
}

/// The base URL without a slash at its end.
pub(super) fn checked_base(base_url: &str) -> Result<String, ClientError> {
    let bad = |reason: &str| ClientError::BaseUrl {
        reason: reason.to_owned(),
    };
    let url = Url::parse(base_url).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("it must start with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("user and password are given apart from it"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad("it must end before '?' and '#'"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

pub(super) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    query: &Query,
    body: Option<&impl Serialize>,
) -> Result<Answer, ClientError> {
    let mut repeat = 0;
    loop {
        let error = match once(client, method.clone(), path, query, body).await {
            Err(error) if error.is_repeatable() => error,
            end => return end,
        };
        let Some(pause) = client.retries.pause(repeat, error.retry_after()) else {
            return Err(error);
        };
        tokio::time::sleep(pause).await;
        repeat += 1;
    }
}

async fn once(
    client: &Client,
    method: Method,
    path: &str,
    query: &Query,
    body: Option<&impl Serialize>,
) -> Result<Answer, ClientError> {
    let query = query.encode();
    let mark = if query.is_empty() { "" } else { "?" };
    let mut request = client
        .http
        .request(method, format!("{}{path}{mark}{query}", client.base_url))
        .timeout(client.time_limit)
        .basic_auth(&client.user, Some(client.password.expose_secret()))
        .header(ACCEPT, "application/json")
        .header(API_VERSION, client.api_version.to_string());
    if let Some(identity) = &client.originating_identity {
        request = request.header(ORIGINATING_IDENTITY, identity.to_header());
    }
    if let Some(identity) = &client.request_identity {
        request = request.header(REQUEST_IDENTITY, identity.as_bytes());
    }
    if let Some(body) = body {
        request = request.json(body);
    }
    let lost = |error: reqwest::Error| {
        if error.is_timeout() {
            ClientError::TimedOut {
                limit: client.time_limit,
            }
        } else {
            ClientError::transport(error)
        }
    };
    let mut response = request.send().await.map_err(lost)?;
    let status = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(read_retry_after);
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        if bytes.len() + chunk.len() > client.size_limit {
            return Err(ClientError::TooLarge {
                status,
                limit: client.size_limit,
            });
        }
        bytes.extend_from_slice(&chunk);
    }
    let body = parse_body(&bytes);
    if status >= 400 {
        return Err(ClientError::Broker(BrokerError::new(
            status,
            retry_after,
            body.ok().as_ref(),
        )));
    }
    Ok(Answer {
        status,
        retry_after,
        body,
    })
}

fn read_retry_after(value: &HeaderValue) -> Option<RetryAfter> {
    value.to_str().ok()?.parse().ok()
}
