//! The admin API: what an operator sees and may do.
//!
//! Everything but `/livez` and `/readyz` needs the bearer token, and the token is asked for
//! before the route: who does not have it learns nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::Response;
use evenkeel_engine::{Engine, faults};
use evenkeel_store::error::StoreError;
use secrecy::SecretString;

use crate::auth::{AuthError, Token};
use crate::exchange::{self, Api, Fault, Incoming, RequestLimits, json, with_header};

mod actions;
mod boots;
mod explanation;
mod hold;
mod jobs;
mod route;
mod standing;
mod turn;
pub mod types;

use route::{NoRoute, Route};
use types::{ErrorAnswer, ErrorKind};

/// How long the store may take to say how it is.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// What is wanted of the admin API.
#[derive(Clone, Debug, Default)]
pub struct AdminSettings {
    /// This release, for `status`.
    pub version: String,
    /// What the configuration means here, for `/readyz` (as what becomes of runs at shutdown).
    pub notes: Vec<String>,
    /// What a request may take.
    pub limits: RequestLimits,
}

/// What [`admin_router`] needs.
#[derive(Debug)]
pub struct AdminState {
    engine: Engine,
    token: Token,
    settings: AdminSettings,
    store: standing::StoreCheck,
}

impl AdminState {
    /// An API over `engine` for whoever has the token.
    ///
    /// # Errors
    /// An empty token.
    pub fn new(
        engine: Engine,
        token: &SecretString,
        settings: AdminSettings,
    ) -> Result<Self, AuthError> {
        let token = Token::new(token)?;
        Ok(Self {
            engine,
            token,
            settings,
            store: standing::StoreCheck::default(),
        })
    }
}

/// The admin API, to be served on a listener of its own.
pub fn admin_router(state: AdminState) -> Router {
    let limits = state.settings.limits;
    exchange::router(Arc::new(state), limits)
}

/// An answer that is not what was asked for.
#[derive(Debug)]
struct Problem {
    kind: ErrorKind,
    description: String,
}

impl Problem {
    fn new(kind: ErrorKind, description: impl Into<String>) -> Self {
        Self {
            kind,
            description: description.into(),
        }
    }

    fn status(&self) -> u16 {
        match self.kind {
            ErrorKind::BadRequest => 400,
            ErrorKind::Unauthorized => 401,
            ErrorKind::NotFound => 404,
            ErrorKind::MethodNotAllowed => 405,
            ErrorKind::RequestTimeout => 408,
            ErrorKind::NotApplicable | ErrorKind::Busy | ErrorKind::TargetGone => 409,
            ErrorKind::PayloadTooLarge => 413,
            ErrorKind::Internal | ErrorKind::Unknown => 500,
            ErrorKind::Unavailable => 503,
        }
    }

    fn answer(self) -> Response {
        let status = self.status();
        let body = ErrorAnswer {
            error: self.kind,
            description: self.description,
        };
        let response = json(status, &body);
        if status == 503 {
            with_header(response, RETRY_AFTER, "5")
        } else {
            response
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(ErrorKind::Unavailable, error.to_string())
    }
}

impl Api for AdminState {
    fn pattern(path: &str) -> &'static str {
        route::pattern(path)
    }

    async fn handle(&self, request: &mut Incoming) -> Response {
        self.answer(request).await.unwrap_or_else(Problem::answer)
    }

    fn fault(&self, fault: Fault) -> Response {
        match fault {
            Fault::Panicked => Problem::new(
                ErrorKind::Internal,
                "the broker failed at this request; its log says where, look for \"panicked\"",
            ),
            Fault::TooSlow => Problem::new(
                ErrorKind::Unavailable,
                "the broker could not answer in time",
            ),
        }
        .answer()
    }
}

impl AdminState {
    async fn answer(&self, request: &mut Incoming) -> Result<Response, Problem> {
        let path = request.uri.path();
        let trusted = self.token.check(request.header("authorization"));
        if !trusted && !route::is_open(path) {
            let problem = Problem::new(
                ErrorKind::Unauthorized,
                "the admin token is missing or wrong: send it as \"Authorization: Bearer TOKEN\"; \
                 it is in the file admin-token of the data folder",
            );
            return Ok(with_header(
                problem.answer(),
                WWW_AUTHENTICATE,
                r#"Bearer realm="evenkeel admin""#,
            ));
        }
        let route = match Route::of(&request.method, path) {
            Ok(route) => route,
            Err(NoRoute::Path) => {
                return Err(Problem::new(ErrorKind::NotFound, "there is no such route"));
            }
            Err(NoRoute::Job) => {
                return Err(Problem::new(
                    ErrorKind::NotFound,
                    "there is no such job: the id in the path is not a UUID",
                ));
            }
            Err(NoRoute::Method { allowed }) => {
                let text = format!("possible here: {allowed}");
                let problem = Problem::new(ErrorKind::MethodNotAllowed, text);
                return Ok(with_header(problem.answer(), ALLOW, allowed));
            }
        };
        let about = request.identity().map(|identity| identity.to_string());
        faults::hit_about(route.fault_point(), about.as_deref().unwrap_or_default());
        let query = request.uri.query();
        match route {
            Route::Live => Ok(json(200, &types::Live { live: true })),
            Route::Ready => {
                let ready = self.ready().await;
                Ok(json(if ready.ready { 200 } else { 503 }, &ready))
            }
            Route::Status => Ok(json(200, &self.status().await?)),
            Route::Boots => Ok(json(200, &self.boots(query).await?)),
            Route::Catalog => Ok(json(200, &self.catalog())),
            Route::Reload => {
                self.engine.reload().await;
                Ok(json(200, &self.catalog()))
            }
            Route::Hold => Ok(json(200, &self.hold(request).await?)),
            Route::Release => Ok(json(200, &self.release().await?)),
            Route::Jobs => Ok(json(200, &self.jobs(query).await?)),
            Route::Job(job) => Ok(json(200, &self.job(job).await?)),
            Route::Log(job) => Ok(json(200, &self.log(job, query).await?)),
            Route::Explanation(job) => Ok(json(200, &self.explanation(job).await?)),
            Route::Act(act, job) => {
                let (status, acted) = self.act(act, job).await?;
                Ok(json(status, &acted))
            }
        }
    }
}
