//! A typed client for brokers.
//!
//! Redirects are not followed and proxies of the environment not used: both would hand the password to somebody else.
//! Every call has a time limit and every answer a size limit.
//!
//! A call ends in a typed answer or a [`ClientError`], which knows what a platform has to do next: whether the request
//! can be [repeated](ClientError::is_repeatable), and what may be [left](ClientError::orphan) at the broker.
//! [`Client::wait`] and [`Client::mitigate`] then do it as platforms do.
//!
//! ```no_run
//! use evenkeel_osb::client::{Client, Mode, Retries, Target, WaitEnd, WaitOptions};
//! use evenkeel_osb::{Action, BindAnswer, BindRequest, DeleteAnswer, NewBinding, Query, UpdateRequest};
//! use std::time::Duration;
//!
//! # async fn use_it(service_id: String, plan_id: String) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("https://broker.example", "platform", "secret".into())?
//!     .with_retries(Retries { repeats: 3, ..Retries::default() })
//!     .with_time_limit(Duration::from_secs(30));
//!
//! let change = UpdateRequest { service_id: service_id.clone(), plan_id: Some("large".into()), ..UpdateRequest::default() };
//! client.update("db-1", &change, Mode::Synchronous).await?;
//!
//! let request = BindRequest::New(NewBinding {
//!     service_id: service_id.clone(),
//!     plan_id: plan_id.clone(),
//!     ..NewBinding::default()
//! });
//! if let BindAnswer::Created(binding) = client.bind("db-1", "app-1", &request, Mode::Synchronous).await? {
//!     let credentials = binding.credentials.unwrap_or_default();
//!     println!("{} credentials", credentials.expose().len());
//! }
//!
//! let answer = client.unbind("db-1", "app-1", &service_id, &plan_id, Mode::AcceptsIncomplete).await?;
//! if let DeleteAnswer::InProgress(accepted) = answer {
//!     let target = Target::Binding { instance_id: "db-1", binding_id: "app-1" };
//!     let hints = Query { operation: accepted.operation, ..Query::default() };
//!     let end = client.wait(Action::Unbind, target, &hints, &WaitOptions::default(), |_| {}).await?;
//!     assert!(matches!(end, WaitEnd::Gone | WaitEnd::Ended(_)));
//! }
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use secrecy::SecretString;

use crate::headers::{ApiVersion, OriginatingIdentity, RequestIdentity};
use crate::uri::Query;

pub use error::{BrokerError, ClientError};
pub use mitigate::{Mitigated, Orphaned};
pub use requests::Polled;
pub use retry::Retries;
pub use wait::{Target, WaitEnd, WaitOptions};

mod call;
mod error;
mod mitigate;
mod requests;
mod retry;
mod wait;

/// Whether the broker may answer 202 and go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It may not: a plan that needs it answers `AsyncRequired`.
    Synchronous,
    /// It may: sends `accepts_incomplete=true`.
    AcceptsIncomplete,
}

/// A client for one broker. Cheap to clone; the `with_…` functions give a changed one.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base_url: String,
    user: String,
    password: SecretString,
    api_version: ApiVersion,
    originating_identity: Option<OriginatingIdentity>,
    request_identity: Option<RequestIdentity>,
    time_limit: Duration,
    size_limit: usize,
    retries: Retries,
}

impl Client {
    /// A client that speaks version 2.17, waits for 60 s, reads up to 16 MiB and asks once.
    ///
    /// `base_url` is what stands before `/v2`; a slash at its end does not matter.
    ///
    /// # Errors
    /// A base URL that is none, or has a query, a fragment or a user in it.
    pub fn new(
        base_url: &str,
        user: impl Into<String>,
        password: SecretString,
    ) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!(
                env!("CARGO_PKG_NAME"),
                "/",
                env!("CARGO_PKG_VERSION")
            ))
            .build()
            .map_err(ClientError::transport)?;
        Ok(Self {
            http,
            base_url: call::checked_base(base_url)?,
            user: user.into(),
            password,
            api_version: ApiVersion::V2_17,
            originating_identity: None,
            request_identity: None,
            time_limit: Duration::from_secs(60),
            size_limit: 16 * 1024 * 1024,
            retries: Retries::default(),
        })
    }

    /// Speaks another version.
    #[must_use]
    pub fn with_api_version(mut self, version: ApiVersion) -> Self {
        self.api_version = version;
        self
    }

    /// Says on whose behalf it asks.
    #[must_use]
    pub fn with_originating_identity(mut self, identity: OriginatingIdentity) -> Self {
        self.originating_identity = Some(identity);
        self
    }

    /// Gives its requests a name to be found by in the broker's log.
    #[must_use]
    pub fn with_request_identity(mut self, identity: RequestIdentity) -> Self {
        self.request_identity = Some(identity);
        self
    }

    /// How long a call may take, from connecting to the last byte.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Asks again what is [repeatable](ClientError::is_repeatable); every request of the API may be sent twice. Polls
    /// of a [wait](Self::wait) are repeated anyhow.
    #[must_use]
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// How many bytes of an answer are read.
    #[must_use]
    pub fn with_size_limit(mut self, bytes: usize) -> Self {
        self.size_limit = bytes;
        self
    }
}

impl Mode {
    fn query(self) -> Query {
        Query {
            accepts_incomplete: self == Self::AcceptsIncomplete,
            ..Query::default()
        }
    }
}
