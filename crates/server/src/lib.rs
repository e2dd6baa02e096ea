//! Speaks for Evenkeel: the OSB listener for platforms and the admin listener for operators.
//!
//! [`osb_router`] and [`admin_router`] make the two services over one [`evenkeel_engine::Engine`],
//! [`serve`] puts one of them behind a listening socket. Whatever a request does — a wrong
//! password, a body without end, a panic in its handler — costs that request and no other:
//! every answer is a JSON object, comes within its time limit and carries back the request's
//! `X-Broker-API-Request-Identity`.

pub mod admin;
pub mod auth;
mod exchange;
pub mod listen;
mod osb;
mod panics;
mod query;

pub use admin::{AdminSettings, AdminState, admin_router};
pub use auth::{AuthError, Password, User};
pub use exchange::RequestLimits;
pub use listen::{ConnectionLimits, serve};
pub use osb::{DeletedAs, OsbSettings, OsbState, osb_router};
