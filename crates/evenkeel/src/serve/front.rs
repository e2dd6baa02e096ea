//! What the listeners answer: until the broker has started that it has not, and why.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use evenkeel_osb::{ErrorBody, RequestIdentity, headers};
use evenkeel_server::admin::types::{About, ErrorAnswer, ErrorKind, Live, Ready, Reason};
use serde::Serialize;
use tower::ServiceExt as _;

use crate::fail::Failure;

/// When to ask again, in seconds, while the broker starts.
const RETRY_AFTER: &str = "1";

/// Two routers whose answers change once, when the broker has started.
#[derive(Clone, Debug, Default)]
pub(super) struct Front(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    osb: OnceLock<Router>,
    admin: OnceLock<Router>,
    /// What keeps the broker from starting, if anything does.
    setback: Mutex<Option<Failure>>,
}

impl Front {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// From now on requests are the broker's.
    pub(super) fn open(&self, osb: Router, admin: Router) {
        self.0.osb.get_or_init(|| osb);
        self.0.admin.get_or_init(|| admin);
    }

    /// Notes what keeps the broker from starting; says whether that is news.
    pub(super) fn tell(&self, failure: &Failure) -> bool {
        let mut setback = self
            .0
            .setback
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let news = setback.as_ref() != Some(failure);
        *setback = Some(failure.clone());
        news
    }

    /// What keeps the broker from starting.
    pub(super) fn setback(&self) -> Option<Failure> {
        self.0
            .setback
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn osb(&self) -> Router {
        let front = self.clone();
        Router::new().fallback(move |request: Request| async move {
            match front.0.osb.get() {
                Some(router) => ask(router, request).await,
                None => front.not_yet(&request),
            }
        })
    }

    pub(super) fn admin(&self) -> Router {
        let front = self.clone();
        Router::new().fallback(move |request: Request| async move {
            match front.0.admin.get() {
                Some(router) => ask(router, request).await,
                None => front.starting(request.uri().path()),
            }
        })
    }

    /// For platforms, whoever they are: nothing of this host is told.
    fn not_yet(&self, request: &Request) -> Response {
        let why = match self.setback() {
            None => "the broker is starting",
            Some(_) => "the broker is not ready: it cannot use its store",
        };
        let mut response = later(&ErrorBody::unavailable(why));
        let name = request.headers().get(headers::REQUEST_IDENTITY);
        if let Some(echo) = RequestIdentity::of_request(name.map(HeaderValue::as_bytes))
            .and_then(|identity| HeaderValue::from_bytes(identity.as_bytes()).ok())
        {
            let name = HeaderName::from_static("x-broker-api-request-identity");
            response.headers_mut().insert(name, echo);
        }
        response
    }

    /// For the operator, with paths and what to do.
    fn why(&self) -> String {
        match self.setback() {
            None => "the broker is starting: its store is being opened".to_owned(),
            Some(Failure {
                message,
                hint: None,
                ..
            }) => format!("the broker cannot start: {message}"),
            Some(Failure {
                message,
                hint: Some(hint),
                ..
            }) => {
                format!("the broker cannot start: {message} ({hint})")
            }
        }
    }

    fn starting(&self, path: &str) -> Response {
        let why = self.why();
        match path {
            "/livez" => json(StatusCode::OK, &Live { live: true }),
            "/readyz" => later(&Ready {
                ready: false,
                description: format!("not ready: {why}"),
                reasons: vec![Reason {
                    about: About::Store,
                    blocking: true,
                    message: why,
                }],
                notes: Vec::new(),
            }),
            _ => later(&ErrorAnswer {
                error: ErrorKind::Unavailable,
                description: why,
            }),
        }
    }
}

async fn ask(router: &Router, request: Request) -> Response {
    match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn later(body: &impl Serialize) -> Response {
    let mut response = json(StatusCode::SERVICE_UNAVAILABLE, body);
    let seconds = header::HeaderValue::from_static(RETRY_AFTER);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    (status, axum::Json(serde_json::json!(body))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fail::Exit;
    use axum::body::{Body, to_bytes};

    async fn get(router: &Router, path: &str) -> (u16, Option<String>, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let after = response.headers().get(header::RETRY_AFTER);
        let after = after.map(|value| value.to_str().unwrap().to_owned());
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, after, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn until_the_broker_has_started_every_route_says_that_it_has_not_and_why() {
        let front = Front::new();
        let (osb, admin) = (front.osb(), front.admin());
        for path in ["/v2/catalog", "/", "/v2/service_instances/x"] {
            let (status, after, body) = get(&osb, path).await;
            assert_eq!((status, after.as_deref()), (503, Some("1")));
            assert!(body.contains("starting"), "{body}");
        }
        assert_eq!(
            get(&admin, "/livez").await,
            (200, None, r#"{"live":true}"#.to_owned())
        );
        let wrong_key = Failure::new(Exit::WrongKey, "another key").hint("restore it");
        assert!(front.tell(&wrong_key));
        let (status, after, body) = get(&osb, "/v2/catalog").await;
        assert_eq!((status, after.as_deref()), (503, Some("1")));
        assert!(body.contains("cannot use its store"), "{body}");
        assert!(!body.contains("key") && !body.contains("restore"), "{body}");
        assert!(!front.tell(&wrong_key));
        for path in ["/readyz", "/admin/v1/jobs"] {
            let (status, after, body) = get(&admin, path).await;
            assert_eq!((status, after.as_deref()), (503, Some("1")));
            assert!(body.contains("another key (restore it)"), "{body}");
        }
        // The same routers serve the broker's answers as soon as there are some.
        let broker = Router::new().fallback(async || "broker");
        front.open(broker.clone(), broker);
        for router in [&osb, &admin] {
            assert_eq!(
                get(router, "/v2/catalog").await,
                (200, None, "broker".to_owned())
            );
        }
    }

    #[tokio::test]
    async fn a_platform_gets_the_name_of_its_request_back_from_the_start_on() {
        let osb = Front::new().osb();
        for (sent, echo) in [("a name", Some("a name")), ("", None)] {
            let request = Request::get("/v2/catalog")
                .header(headers::REQUEST_IDENTITY, sent)
                .body(Body::empty());
            let response = osb.clone().oneshot(request.unwrap()).await.unwrap();
            let back = response.headers().get(headers::REQUEST_IDENTITY);
            assert_eq!(back.map(|back| back.to_str().unwrap()), echo);
        }
    }
}
