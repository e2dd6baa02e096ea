//! Waits for operations, and says how far they are.

use std::io::IsTerminal as _;
use std::time::Duration;

use evenkeel_osb::client::{Client, Target, WaitEnd, WaitOptions};
use evenkeel_osb::{Operation, OperationState, Query};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::client::{Offer, connect, failure};
use super::{LastOperation, Wait};
use crate::fail::{Exit, Failure};
use crate::output::{self, shown};

/// Between polls where the broker does not say how long.
const INTERVAL: Duration = Duration::from_millis(500);

/// A person waits: a broker that asks for more patience is asked all the same, at this rate.
const AT_MOST: Duration = Duration::from_secs(2);

/// How an operation stands when a command is done with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// It succeeded.
    Done,
    /// It goes on, under this name if it has one.
    InProgress(Option<Operation>),
}

impl Ended {
    /// As the wire says it.
    pub(super) fn state(&self) -> OperationState {
        match self {
            Self::Done => OperationState::Succeeded,
            Self::InProgress(_) => OperationState::InProgress,
        }
    }

    pub(super) fn operation(&self) -> Option<&Operation> {
        match self {
            Self::Done => None,
            Self::InProgress(operation) => operation.as_ref(),
        }
    }
}

/// What an accepted operation is about.
#[derive(Debug)]
pub(super) struct Accepted<'a> {
    /// As `provision of my-database`.
    pub(super) what: String,
    pub(super) target: Target<'a>,
    pub(super) offer: &'a Offer,
    pub(super) operation: Option<Operation>,
    /// Whether a 410 is what was wanted.
    pub(super) is_delete: bool,
}

/// Waits until it has ended, unless that is not wanted.
///
/// # Errors
/// It failed, it cannot be polled, or the wait is over.
pub(super) async fn end(
    client: &Client,
    accepted: Accepted<'_>,
    wait: &Wait,
) -> Result<Ended, Failure> {
    let Accepted {
        what,
        target,
        offer,
        operation,
        is_delete,
    } = accepted;
    let Some(limit) = wait.limit() else {
        return Ok(Ended::InProgress(operation));
    };
    let hints = Query {
        service_id: Some(offer.service_id.clone()),
        plan_id: Some(offer.plan_id.clone()),
        operation,
        accepts_incomplete: false,
    };
    let options = WaitOptions {
        interval: INTERVAL,
        at_least: INTERVAL,
        at_most: AT_MOST,
        give_up_after: limit,
    };
    let mut display = Display::new(&what);
    let end = client
        .wait(target, &hints, &options, |polled| match polled {
            Ok(operation) => display.tell(operation.description().unwrap_or("in progress")),
            Err(trouble) => display.tell(&format!("{trouble}; asking again")),
        })
        .await;
    display.finish();
    match end.map_err(|error| failure(&error))? {
        WaitEnd::Gone if is_delete => Ok(Ended::Done),
        WaitEnd::Gone => Err(Failure::new(
            Exit::NotFound,
            format!("{what}: the broker says that it is gone"),
        )),
        WaitEnd::Ended(operation) if operation.state() == OperationState::Succeeded => {
            Ok(Ended::Done)
        }
        WaitEnd::Ended(operation) => {
            let why = shown(
                operation
                    .description()
                    .unwrap_or("the broker does not say why"),
            );
            Err(Failure::new(Exit::Failed, format!("{what} failed: {why}")))
        }
    }
}

/// One line that changes on a terminal, a line for each change elsewhere.
struct Display {
    what: String,
    bar: Option<ProgressBar>,
    last: String,
}

impl Display {
    fn new(what: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self {
            what: shown(what),
            bar,
            last: String::new(),
        }
    }

    fn tell(&mut self, description: &str) {
        let text = format!("{}: {}", self.what, shown(description));
        if text == self.last {
            return;
        }
        match &self.bar {
            Some(bar) => bar.set_message(text.clone()),
            None => output::note(&text),
        }
        self.last = text;
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

pub(super) async fn last_operation(args: &LastOperation) -> Result<(), Failure> {
    let client = connect(&args.broker)?;
    let operation = args
        .operation
        .as_deref()
        .map(Operation::received)
        .transpose();
    let hints = Query {
        operation: operation.map_err(|error| Failure::usage(error.to_string()))?,
        ..Query::default()
    };
    let instance_id = args.instance.instance.as_str();
    let polled = match args.binding.as_deref() {
        None => client
            .poll_instance(instance_id, &hints)
            .await
            .map(|polled| polled.operation),
        Some(binding_id) => client
            .poll_binding(instance_id, binding_id, &hints)
            .await
            .map(|polled| polled.operation.into()),
    };
    let operation = polled.map_err(|error| failure(&error))?;
    if args.broker.format.json {
        return output::json(&json!(operation));
    }
    output::data(&match operation.description() {
        Some(description) => format!("{}: {}", operation.state(), shown(description)),
        None => operation.state().to_string(),
    })
}

/// Says how an operation stands where the answer does not.
pub(super) fn note(ended: &Ended) {
    output::note(&match ended {
        Ended::Done => "done".to_owned(),
        Ended::InProgress(Some(operation)) => {
            format!("in progress, as operation {}", shown(operation.as_str()))
        }
        Ended::InProgress(None) => "in progress".to_owned(),
    });
}
