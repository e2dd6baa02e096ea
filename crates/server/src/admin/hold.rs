//! Holds as an operator sees, makes and ends them.

use evenkeel_core::hold::MAX_REASON_CHARS;
use evenkeel_engine::Held;

use super::jobs::{second, time};
use super::types::{ErrorKind, Hold, HoldRequest, Holding, Outcome};
use super::{AdminState, Problem};
use crate::exchange::{BodyError, Incoming};

impl AdminState {
    pub(super) async fn hold(&self, request: &mut Incoming) -> Result<Holding, Problem> {
        let asked = asked(request).await?;
        let reason = asked.reason.unwrap_or_default();
        let done = self.engine.hold(&reason).await?;
        let text = if done {
            "no new run starts from now on; what runs goes on, and everything else is served"
        } else {
            "it was held before, for the same reason"
        };
        Ok(self.holding(done, text))
    }

    pub(super) async fn release(&self) -> Result<Holding, Problem> {
        let done = self.engine.release().await?;
        let text = if done {
            "new runs start again"
        } else {
            "nothing was held"
        };
        Ok(self.holding(done, text))
    }

    fn holding(&self, done: bool, description: &str) -> Holding {
        Holding {
            outcome: if done {
                Outcome::Done
            } else {
                Outcome::Already
            },
            description: description.to_owned(),
            holds: self.engine.holds().iter().map(hold).collect(),
        }
    }
}

/// No body at all is a wish without a reason.
async fn asked(request: &mut Incoming) -> Result<HoldRequest, Problem> {
    let body = request.read_body().await.map_err(|error| {
        let kind = match error {
            BodyError::TooLarge(_) => ErrorKind::PayloadTooLarge,
            BodyError::TooSlow(_) => ErrorKind::RequestTimeout,
            BodyError::Broken => ErrorKind::BadRequest,
        };
        Problem::new(kind, error.to_string())
    })?;
    if body.is_empty() {
        return Ok(HoldRequest::default());
    }
    let asked: HoldRequest = serde_json::from_slice(&body).map_err(|error| {
        let text = format!("the body is no JSON such as {{\"reason\": \"why\"}}: {error}");
        Problem::new(ErrorKind::BadRequest, text)
    })?;
    let chars = asked.reason.as_deref().unwrap_or_default().chars().count();
    if chars > MAX_REASON_CHARS {
        let text =
            format!("the reason has {chars} characters; at most {MAX_REASON_CHARS} are kept");
        return Err(Problem::new(ErrorKind::BadRequest, text));
    }
    Ok(asked)
}

pub(super) fn hold(held: &Held) -> Hold {
    Hold {
        cause: held.hold.cause,
        reason: held.hold.line(),
        actor: held.hold.actor.clone(),
        since: time(held.hold.since),
        ends_at: held.ends_at.map(time),
    }
}

/// Why no new run starts, and until when.
pub(super) fn line(held: &Held) -> String {
    let until = match held.ends_at {
        None => String::new(),
        Some(at) => format!("; until {} if nothing more goes wrong", second(at)),
    };
    format!(
        "no new run starts: {}{until}; `evenkeel release` ends it",
        held.hold.line()
    )
}
