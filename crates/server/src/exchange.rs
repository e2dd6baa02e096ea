//! One request and its answer, alike for both listeners: time limits, bounded bodies, panics,
//! the request identity and the line in the log.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use evenkeel_core::ids::Platform;
use evenkeel_osb::RequestIdentity;
use http_body_util::BodyExt as _;
use serde::Serialize;
use tokio::time::timeout;

use crate::panics::{self, Caught};

const REQUEST_IDENTITY: HeaderName = HeaderName::from_static("x-broker-api-request-identity");
/// What is read and thrown away after an answer that did not need the body. A socket closed with
/// bytes unread resets the connection, and the answer may be lost with it.
const DISCARD_BYTES: usize = 32 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// What a request may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLimits {
    /// Until its body is there: 408 after that.
    pub body_read: Duration,
    /// Until its answer: 503 after that. Platforms give up after 60 s.
    pub answer: Duration,
    /// Size of its body: 413 beyond that.
    pub body_bytes: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            body_read: Duration::from_secs(30),
            answer: Duration::from_secs(58),
            body_bytes: 1024 * 1024,
        }
    }
}

/// What went wrong with a request through nobody's doing outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Its handler panicked.
    Panicked,
    /// It took longer than [`RequestLimits::answer`].
    TooSlow,
}

/// What answers the requests of a listener.
pub(crate) trait Api: Send + Sync + 'static {
    /// The pattern of a path, for logs: ids stay out of them.
    fn pattern(path: &str) -> &'static str;
    /// Answers a request.
    fn handle(&self, request: &mut Incoming) -> impl Future<Output = Response> + Send;
    /// Answers for a request that could not be.
    fn fault(&self, fault: Fault) -> Response;
}

/// A request as handlers see it.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    // Never locked: a body is not `Sync`, and handlers share the rest of the request.
    body: Mutex<Option<Body>>,
    limits: RequestLimits,
    // Shared with the log line, which is also written when the handler panics.
    platform: Arc<Mutex<Option<Platform>>>,
}

/// Why there is no body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than {0} bytes, which is all that is read")]
    TooLarge(usize),
    #[error("the body did not arrive within {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("the body ended before it was whole")]
    Broken,
}

impl Incoming {
    fn new(request: Request, limits: RequestLimits) -> Self {
        let (parts, body) = request.into_parts();
        Self {
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            body: Mutex::new(Some(body)),
            limits,
            platform: Arc::default(),
        }
    }

    /// The bytes of a header, the first if there are several.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(HeaderValue::as_bytes)
    }

    /// The name that the platform gave to the request, for fault points and logs.
    pub(crate) fn identity(&self) -> Option<RequestIdentity> {
        RequestIdentity::of_request(self.header(REQUEST_IDENTITY.as_str()))
    }

    /// Notes for the log who asks.
    pub(crate) fn asked_by(&self, platform: &Platform) {
        let mut noted = self.platform.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = Some(platform.clone());
    }

    /// The whole body, once.
    pub(crate) async fn read_body(&mut self) -> Result<Bytes, BodyError> {
        let Self {
            body,
            limits,
            headers,
            ..
        } = self;
        let RequestLimits {
            body_read,
            body_bytes,
            ..
        } = *limits;
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > body_bytes as u64) {
            return Err(BodyError::TooLarge(body_bytes));
        }
        let body = body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(mut rest) = body.take() else {
            return Ok(Bytes::new());
        };
        let read = async {
            let mut bytes = Vec::new();
            while let Some(frame) = rest.frame().await {
                let frame = frame.map_err(|_| BodyError::Broken)?;
                let data = frame.into_data().unwrap_or_default();
                if bytes.len() + data.len() > body_bytes {
                    return Err(BodyError::TooLarge(body_bytes));
                }
                bytes.extend_from_slice(&data);
            }
            Ok(Bytes::from(bytes))
        };
        let result = timeout(body_read, read)
            .await
            .unwrap_or(Err(BodyError::TooSlow(body_read)));
        if matches!(result, Err(BodyError::TooLarge(_))) {
            *body = Some(rest);
        }
        result
    }

    /// Reads what nobody asked for, so that the answer arrives (see [`DISCARD_BYTES`]).
    async fn discard_body(&mut self) {
        // A client that waits for `100 Continue` has sent nothing yet, and reading would ask for it.
        if self.headers.contains_key(EXPECT) {
            return;
        }
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(mut rest) = body.take() else {
            return;
        };
        let discard = async {
            let mut room = DISCARD_BYTES;
            while let Some(Ok(frame)) = rest.frame().await {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(left) = room.checked_sub(bytes) else {
                    return;
                };
                room = left;
            }
        };
        timeout(DISCARD_TIME, discard).await.ok();
    }
}

/// Makes a router of an API. Paths are the API's own affair: axum's would be decoded by then.
pub(crate) fn router<A: Api>(api: Arc<A>, limits: RequestLimits) -> Router {
    panics::note_places();
    Router::new().fallback(move |request: Request| {
        let api = Arc::clone(&api);
        async move { exchange(&*api, Incoming::new(request, limits)).await }
    })
}

async fn exchange<A: Api>(api: &A, mut request: Incoming) -> Response {
    let began = Instant::now();
    let pattern = A::pattern(request.uri.path());
    let limit = request.limits.answer;
    let mut response = match timeout(limit, panics::caught(api.handle(&mut request))).await {
        Ok(Ok(response)) => response,
        Ok(Err(Caught { place, said })) => {
            tracing::error!(method = %request.method, route = pattern, place, said, "a request handler panicked");
            api.fault(Fault::Panicked)
        }
        Err(_) => api.fault(Fault::TooSlow),
    };
    request.discard_body().await;
    let identity = request.identity();
    let echo = identity
        .as_ref()
        .and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
    if let Some(echo) = echo {
        response.headers_mut().insert(REQUEST_IDENTITY, echo);
    }
    log(
        &request,
        pattern,
        identity.as_ref(),
        response.status(),
        began.elapsed(),
    );
    response
}

// One line a request; never a path (ids), a header or a body.
fn log(
    request: &Incoming,
    route: &'static str,
    identity: Option<&RequestIdentity>,
    status: StatusCode,
    took: Duration,
) {
    let platform = request
        .platform
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let platform = platform.as_ref().map(Platform::as_str);
    let identity = identity.map(ToString::to_string);
    let identity = identity.as_deref();
    let (method, status, millis) = (request.method.as_str(), status.as_u16(), took.as_millis());
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    if status >= 500 {
        tracing::warn!(method, route, status, millis, platform, identity, "request");
    } else {
        tracing::info!(method, route, status, millis, platform, identity, "request");
    }
}

/// An answer with a JSON body.
///
/// # Panics
/// With a status that HTTP does not have, or a body that JSON does not: both are the caller's
/// constants.
pub(crate) fn json(status: u16, body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).expect("wire types hold nothing that JSON has not");
    json_bytes(status, bytes.into())
}

/// An answer with a body that is JSON already.
///
/// # Panics
/// As [`json`].
pub(crate) fn json_bytes(status: u16, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status that HTTP has");
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The answer with one more header.
#[must_use]
pub(crate) fn with_header(mut response: Response, name: HeaderName, value: &str) -> Response {
    // Values are the broker's own and visible ASCII; one that is not is better left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}
