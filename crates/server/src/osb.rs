//! The Open Service Broker API v2.17: who may ask, in which version, for what.
//!
//! Every request passes the same gates in the same order, whatever else is wrong with it:
//! authentication (401), API version (412), route (404, 405); then its handler looks at the
//! body, the required ids, and hands it to the engine, whose order goes on from there.

use std::sync::Arc;

use axum::Router;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::Response;
use evenkeel_core::ids::{Platform, ServiceId};
use evenkeel_core::request::Object;
use evenkeel_engine::ask::Caller;
use evenkeel_engine::{Engine, faults};
use evenkeel_osb::headers::{API_VERSION, ORIGINATING_IDENTITY, check_content_type};
use evenkeel_osb::{
    ApiVersion, Context, ErrorBody, IdentityError, OriginatingIdentity, Query, RetryAfter,
    parse_body,
};
use serde_json::json;

use crate::auth::{AuthError, Denied, Platforms, User};
use crate::exchange::{self, Api, BodyError, Fault, Incoming, RequestLimits, with_header};

mod bindings;
mod catalog;
mod conditional;
mod instances;
mod offered;
mod outputs;
mod polls;
mod refusal;
mod route;

use route::{NoRoute, Route};

/// How much of a foreign text is logged.
const MAX_LOGGED_CHARS: usize = 64;

/// What a poll says after an asynchronous delete has ended. Platforms take both; conformance
/// suites disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeletedAs {
    /// 200 with the state `succeeded`.
    #[default]
    Succeeded,
    /// 410.
    Gone,
}

/// What is wanted of the OSB API.
#[derive(Clone, Copy, Debug)]
pub struct OsbSettings {
    /// See [`DeletedAs`].
    pub deleted_as: DeletedAs,
    /// When to poll, or to try again after a 503.
    pub retry_after: RetryAfter,
    /// What a request may take.
    pub limits: RequestLimits,
}

impl Default for OsbSettings {
    fn default() -> Self {
        Self {
            deleted_as: DeletedAs::default(),
            retry_after: RetryAfter::seconds(5),
            limits: RequestLimits::default(),
        }
    }
}

/// What [`osb_router`] needs.
#[derive(Debug)]
pub struct OsbState {
    engine: Engine,
    platforms: Platforms,
    settings: OsbSettings,
    catalog: catalog::Cache,
}

impl OsbState {
    /// An API over `engine` for these users.
    ///
    /// # Errors
    /// Users that cannot be told apart or authenticated.
    pub fn new(engine: Engine, users: Vec<User>, settings: OsbSettings) -> Result<Self, AuthError> {
        let platforms = Platforms::new(users)?;
        Ok(Self {
            engine,
            platforms,
            settings,
            catalog: catalog::Cache::default(),
        })
    }

    fn error(&self, error: &ErrorBody) -> Response {
        let response = exchange::json(error.status(), error);
        if error.status() == 503 {
            return self.try_later(response);
        }
        response
    }

    fn try_later(&self, response: Response) -> Response {
        with_header(
            response,
            RETRY_AFTER,
            &self.settings.retry_after.to_string(),
        )
    }
}

/// The OSB API, to be served on a listener of its own.
pub fn osb_router(state: OsbState) -> Router {
    let limits = state.settings.limits;
    exchange::router(Arc::new(state), limits)
}

/// A request that may be served: who asks, for whom, and how.
struct Ask<'a> {
    request: &'a mut Incoming,
    platform: Platform,
    query: Query,
}

impl Ask<'_> {
    fn identity(&self) -> Option<Result<OriginatingIdentity, IdentityError>> {
        let header = self.request.header(ORIGINATING_IDENTITY)?;
        Some(OriginatingIdentity::parse(header))
    }

    /// Notes for the log what of the identity is not as the profiles have it. It is served all
    /// the same: platforms differ, and the profiles are conventions.
    fn note_identity(&self, context: &Context) {
        let Some(Ok(identity)) = self.identity() else {
            return;
        };
        let (platform, of) = (&self.platform, identity.platform());
        let missing = identity.missing_properties();
        if !missing.is_empty() {
            tracing::info!(%platform, of, ?missing, "an originating identity lacks properties");
        }
        if let Some(other) = context.platform().filter(|context| *context != of) {
            // A foreign text of any length.
            let context: String = other.chars().take(MAX_LOGGED_CHARS).collect();
            tracing::info!(%platform, of, ?context, "an originating identity is of another platform than the context");
        }
    }

    /// The body, which has to be a JSON object.
    async fn body(&mut self) -> Result<Object, ErrorBody> {
        check_content_type(self.request.header("content-type"))?;
        let bytes = self
            .request
            .read_body()
            .await
            .map_err(|error| match error {
                BodyError::TooLarge(_) => ErrorBody::payload_too_large(error.to_string()),
                BodyError::TooSlow(_) => ErrorBody::request_timeout(error.to_string()),
                BodyError::Broken => ErrorBody::bad_request(error.to_string()),
            })?;
        Ok(parse_body(&bytes)?)
    }

    /// The offering that the query names, if it can be one.
    fn service(&self) -> Option<ServiceId> {
        ServiceId::new(self.query.service_id.clone()?).ok()
    }

    fn caller(&self) -> Caller {
        let identity = match self.identity() {
            Some(Ok(identity)) => {
                Some(json!({ "platform": identity.platform(), "value": identity.value() }))
            }
            Some(Err(error)) => {
                // The specification names no status for it, and no platform expects one.
                tracing::warn!(platform = %self.platform, %error, "an originating identity is ignored");
                None
            }
            None => None,
        };
        Caller {
            platform: self.platform.clone(),
            identity,
            accepts_incomplete: self.query.accepts_incomplete,
        }
    }
}

impl Api for OsbState {
    fn pattern(path: &str) -> &'static str {
        route::pattern(path)
    }

    async fn handle(&self, request: &mut Incoming) -> Response {
        match self.answer(request).await {
            Ok(response) => response,
            Err(error) => self.error(&error),
        }
    }

    fn fault(&self, fault: Fault) -> Response {
        self.error(&match fault {
            Fault::Panicked => ErrorBody::internal(
                "The broker failed at this request; its log says where. Other requests are not affected.",
            ),
            Fault::TooSlow => {
                ErrorBody::unavailable("The broker could not answer in time: try again later.")
            }
        })
    }
}

impl OsbState {
    async fn answer(&self, request: &mut Incoming) -> Result<Response, ErrorBody> {
        let platform = match self.platforms.check(request.header("authorization")).await {
            Ok(platform) => platform,
            Err(denied @ Denied::Busy) => return Err(ErrorBody::unavailable(denied.to_string())),
            Err(denied @ (Denied::Missing | Denied::Wrong)) => {
                let response = self.error(&ErrorBody::unauthorized(denied.to_string()));
                let challenge = r#"Basic realm="evenkeel", charset="UTF-8""#;
                return Ok(with_header(response, WWW_AUTHENTICATE, challenge));
            }
        };
        request.asked_by(&platform);
        ApiVersion::of_request(request.header(API_VERSION))?;
        let route = match Route::of(&request.method, request.uri.path()) {
            Ok(route) => route,
            Err(NoRoute::Path) => return Err(ErrorBody::not_found("There is no such route.")),
            Err(NoRoute::Id(error)) => return Err(error.into()),
            Err(NoRoute::Method { allowed }) => {
                let error = ErrorBody::method_not_allowed(format!("Possible here: {allowed}."));
                return Ok(with_header(self.error(&error), ALLOW, allowed));
            }
        };
        let about = request.identity().map(|identity| identity.to_string());
        faults::hit_about(route.fault_point(), about.as_deref().unwrap_or_default());
        let query = Query::parse(request.uri.query().unwrap_or_default());
        let ask = Ask {
            request,
            platform,
            query,
        };
        match route {
            Route::Catalog => Ok(self.catalog(&ask)),
            Route::Provision(instance) => self.provision(ask, instance).await,
            Route::Update(instance) => self.update(ask, instance).await,
            Route::Deprovision(instance) => self.deprovision(ask, instance).await,
            Route::Instance(instance) => self.instance(&ask, &instance).await,
            Route::InstancePoll(instance) => self.poll_instance(&ask, &instance).await,
            Route::Bind(instance, binding) => self.bind(ask, instance, binding).await,
            Route::Unbind(instance, binding) => self.unbind(ask, instance, binding).await,
            Route::Binding(instance, binding) => self.binding(&ask, &instance, &binding).await,
            Route::BindingPoll(instance, binding) => {
                self.poll_binding(&ask, &instance, &binding).await
            }
        }
    }
}
