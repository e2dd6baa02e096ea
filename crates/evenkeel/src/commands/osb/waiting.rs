//! Waits for operations, and says how far they are.

use std::io::IsTerminal as _;
use std::time::Duration;

use evenkeel_osb::client::{Client, ClientError, Target};
use evenkeel_osb::{InstanceLastOperation, Operation, OperationState, Query};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::client::{Offer, connect, failure};
use super::{BrokerArgs, LastOperation, Wait};
use crate::fail::{Exit, Failure};
use crate::output::{self, shown};

/// Before the first polls: most of what is quick is done by then.
const FIRST_PAUSES: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// Before every other poll. A person waits: a broker that asks for more patience is asked all the
/// same, at this rate.
const PAUSE: Duration = Duration::from_secs(2);

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
    pub(super) broker: &'a BrokerArgs,
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
        broker,
        operation,
        is_delete,
    } = accepted;
    let Some(limit) = wait.limit() else {
        return Ok(Ended::InProgress(operation));
    };
    let hints = Query {
        service_id: Some(offer.service_id.clone()),
        plan_id: Some(offer.plan_id.clone()),
        operation: operation.clone(),
        accepts_incomplete: false,
    };
    let mut display = Display::new(&what);
    let polls = polled_to_the_end(client, target, &hints, &mut display);
    let end = tokio::time::timeout(limit, polls).await;
    display.finish();
    let end = end.unwrap_or(Err(ClientError::GaveUp { after: limit }));
    match end.map_err(|error| failure(&error))? {
        None if is_delete => Ok(Ended::Done),
        None => Err(Failure::new(
            Exit::NotFound,
            format!("{what}: the broker says that it is gone"),
        )),
        Some(last) if last.state() == OperationState::Succeeded => Ok(Ended::Done),
        Some(last) => {
            let why = shown(last.description().unwrap_or("the broker does not say why"));
            let failed = Failure::new(Exit::Failed, format!("{what} failed: {why}"));
            Err(match operation {
                // The admin API of this folder knows the job, whose id the operation is.
                Some(job) if broker.url.is_none() => failed.hint(format!(
                    "`evenkeel jobs show {}` says more",
                    shown(job.as_str())
                )),
                Some(_) | None => failed,
            })
        }
    }
}

/// How the operation ended; `None` if the broker says that what it is about is gone. What may pass
/// by itself is told and asked again.
async fn polled_to_the_end(
    client: &Client,
    target: Target<'_>,
    hints: &Query,
    display: &mut Display,
) -> Result<Option<InstanceLastOperation>, ClientError> {
    let mut pauses = FIRST_PAUSES.into_iter();
    loop {
        tokio::time::sleep(pauses.next().unwrap_or(PAUSE)).await;
        match poll(client, target, hints).await {
            Ok(operation) => {
                display.tell(operation.description().unwrap_or("in progress"));
                if operation.state().is_final() {
                    return Ok(Some(operation));
                }
            }
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) if error.is_transient() => display.tell(&format!("{error}; asking again")),
            Err(error) => return Err(error),
        }
    }
}

async fn poll(
    client: &Client,
    target: Target<'_>,
    hints: &Query,
) -> Result<InstanceLastOperation, ClientError> {
    match target {
        Target::Instance { instance_id } => client
            .poll_instance(instance_id, hints)
            .await
            .map(|polled| polled.operation),
        Target::Binding {
            instance_id,
            binding_id,
        } => client
            .poll_binding(instance_id, binding_id, hints)
            .await
            .map(|polled| polled.operation.into()),
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
    let target = match args.binding.as_deref() {
        None => Target::Instance { instance_id },
        Some(binding_id) => Target::Binding {
            instance_id,
            binding_id,
        },
    };
    let polled = poll(&client, target, &hints).await;
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
