//! What can go wrong with a call.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::body::BadRequest;
use crate::fields::Fields;
use crate::headers::RetryAfter;
use crate::mitigation::Received;

/// An error answer of a broker. What its body does not say, or says in the wrong type, is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerError {
    /// 400 to 599.
    pub status: u16,
    /// The word for programs, as `AsyncRequired`.
    pub error: Option<String>,
    /// The text for users.
    pub description: Option<String>,
    /// Whether the instance can still be used after a failed update or deprovision.
    pub instance_usable: Option<bool>,
    /// Whether the same update can work later.
    pub update_repeatable: Option<bool>,
    /// When to try again.
    pub retry_after: Option<RetryAfter>,
}

impl BrokerError {
    pub(super) fn new(
        status: u16,
        retry_after: Option<RetryAfter>,
        body: Option<&Map<String, Value>>,
    ) -> Self {
        let fields = body.map(Fields::new);
        let text = |name| {
            fields
                .as_ref()
                .and_then(|fields| fields.text(name).ok().flatten())
        };
        let flag = |name| {
            fields
                .as_ref()
                .and_then(|fields| fields.flag(name).ok().flatten())
        };
        Self {
            status,
            error: text("error"),
            description: text("description"),
            instance_usable: flag("instance_usable"),
            update_repeatable: flag("update_repeatable"),
            retry_after,
        }
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A foreign text goes to terminals and logs: no control characters.
        let shown = |text: &str| text.replace(|c: char| c.is_control(), " ");
        write!(f, "the broker answered {}", self.status)?;
        if let Some(error) = &self.error {
            write!(f, " {}", shown(error))?;
        }
        match &self.description {
            Some(description) => write!(f, ": {}", shown(description)),
            None => f.write_str(" without a description"),
        }
    }
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The client cannot be made.
    #[error("the broker's URL cannot be used: {reason}")]
    BaseUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// An id that no URL can carry.
    #[error("{0:?} cannot be used as an id: it must not be empty, \".\" or \"..\"")]
    Id(String),
    /// The broker answered with an error.
    #[error("{0}")]
    Broker(BrokerError),
    /// A status that this request does not have: a redirect, or a 202 that was not asked for.
    #[error(
        "the broker answered {status}, which this request does not have: is the URL that of a broker?"
    )]
    Unexpected {
        /// Below 400.
        status: u16,
    },
    /// A body that is not what the status promises.
    #[error("the broker's answer {status} is malformed: {problem}")]
    Malformed {
        /// Below 400.
        status: u16,
        /// What is wrong, and where.
        problem: BadRequest,
    },
    /// A body beyond the size limit.
    #[error("the broker's answer {status} has more than {limit} bytes")]
    TooLarge {
        /// Any.
        status: u16,
        /// In bytes.
        limit: usize,
    },
    /// No complete answer within the time limit.
    #[error("the broker did not answer within {} s", .limit.as_secs_f64())]
    TimedOut {
        /// Of a call.
        limit: Duration,
    },
    /// The broker was not reached, or the connection broke.
    #[error("the broker cannot be reached: {reason}")]
    Transport {
        /// The innermost reason, as "Connection refused".
        reason: String,
        /// All of it.
        #[source]
        source: reqwest::Error,
    },
    /// An operation was still in progress when the wait was over. After the plan's `maximum_polling_duration` a
    /// platform takes it as failed.
    #[error("the operation is still in progress after {} s: it goes on at the broker", .after.as_secs_f64())]
    GaveUp {
        /// Of the wait.
        after: Duration,
    },
}

impl ClientError {
    pub(super) fn transport(error: reqwest::Error) -> Self {
        let source = error.without_url();
        let mut reason = source.to_string();
        let mut cause = source.source();
        while let Some(inner) = cause {
            reason = inner.to_string();
            cause = inner.source();
        }
        Self::Transport { reason, source }
    }

    /// The broker's error answer, if that is what it is.
    pub fn broker(&self) -> Option<&BrokerError> {
        match self {
            Self::Broker(error) => Some(error),
            Self::BaseUrl { .. }
            | Self::Id(_)
            | Self::Unexpected { .. }
            | Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::TimedOut { .. }
            | Self::Transport { .. }
            | Self::GaveUp { .. } => None,
        }
    }

    /// Whether the broker says 410: what was to be deleted is not there.
    pub fn is_gone(&self) -> bool {
        self.broker().is_some_and(|error| error.status == 410)
    }

    /// What the broker's side of the call was, for [`orphan_mitigation`](crate::orphan_mitigation); none when the
    /// request cannot have arrived.
    pub fn received(&self) -> Option<Received> {
        match self {
            Self::Broker(error) => Some(Received::Answer {
                status: error.status,
                well_formed: true,
            }),
            // What was not asked for is not well-formed: a 202 to a synchronous create is an orphan in the making.
            Self::Unexpected { status }
            | Self::Malformed { status, .. }
            | Self::TooLarge { status, .. } => Some(Received::Answer {
                status: *status,
                well_formed: false,
            }),
            Self::TimedOut { .. } => Some(Received::Nothing),
            Self::Transport { source, .. } if source.is_connect() || source.is_builder() => None,
            Self::Transport { .. } => Some(Received::Nothing),
            Self::GaveUp { .. } => Some(Received::OperationFailed),
            Self::BaseUrl { .. } | Self::Id(_) => None,
        }
    }

    /// Whether a platform stops polling at this answer: a 400 says that the poll itself is wrong. Everything else
    /// (404, 401, 5xx, silence, what cannot be read) may pass, and only time ends it.
    pub fn ends_a_wait(&self) -> bool {
        match self {
            Self::Broker(error) => error.status == 400,
            // A request that cannot be built will not be.
            Self::Transport { source, .. } => source.is_builder(),
            Self::BaseUrl { .. } | Self::Id(_) | Self::GaveUp { .. } => true,
            Self::Unexpected { .. }
            | Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::TimedOut { .. } => false,
        }
    }

    /// Whether this is likely to pass soon: the broker restarts, is busy, or somebody between garbled it. For whoever
    /// has a person waiting; platforms are [more patient](Self::ends_a_wait).
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Broker(error) => matches!(error.status, 408 | 422 | 425 | 429 | 500..=599),
            Self::Transport { source, .. } => !source.is_builder(),
            Self::Malformed { .. } | Self::TimedOut { .. } => true,
            Self::BaseUrl { .. }
            | Self::Id(_)
            | Self::Unexpected { .. }
            | Self::TooLarge { .. }
            | Self::GaveUp { .. } => false,
        }
    }
}
