//! Customers: each orders an instance, binds it, unbinds it and gives it back, and asks again
//! whenever the broker dies under its request, as platforms do.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_osb::client::{Client, ClientError, Mode, Target, WaitEnd, WaitOptions};
use evenkeel_osb::{
    Action, BindAnswer, BindRequest, DeleteAnswer, NewBinding, Operation, OperationState,
    ProvisionAnswer, ProvisionRequest, Query,
};
use tokio::task::JoinSet;

use super::ledger::{Ledger, Told};
use super::stage::{SERVICE, STEADY};

/// From one new customer to the next.
const EVERY: Duration = Duration::from_millis(500);
/// Customers at once: where the machine is slow the next one waits.
const AT_ONCE: usize = 16;
/// Before a request is sent again.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two polls.
const POLL: Duration = Duration::from_millis(250);

const STEPS: [Action; 4] = [
    Action::Provision,
    Action::Bind,
    Action::Unbind,
    Action::Deprovision,
];

/// Who orders.
#[derive(Clone, Debug)]
pub(super) struct Platform {
    pub(super) client: Client,
    pub(super) ledger: Arc<Ledger>,
}

/// What the broker said to a request.
enum Answer {
    Accepted(Option<Operation>),
    Done,
}

impl Platform {
    /// Lets customers in at a steady rate for so long; gives those who are not through yet.
    pub(super) async fn stream(&self, lasts: Duration) -> JoinSet<()> {
        let mut customers = JoinSet::new();
        let mut ticks = tokio::time::interval(EVERY);
        let doors = tokio::time::sleep(lasts);
        tokio::pin!(doors);
        let mut number = 0;
        loop {
            tokio::select! {
                () = &mut doors => return customers,
                _ = ticks.tick(), if customers.len() < AT_ONCE => {
                    number += 1;
                    let (platform, name) = (self.clone(), format!("customer-{number}"));
                    customers.spawn(async move { platform.live(&name).await });
                }
                Some(_) = customers.join_next() => {}
            }
        }
    }

    /// Orders, uses and gives back; a customer that is failed leaves.
    async fn live(&self, name: &str) {
        for action in STEPS {
            if self.order(action, name, STEADY).await != Told::Succeeded {
                return;
            }
        }
    }

    /// Orders one thing and waits for its end.
    pub(super) async fn order(&self, action: Action, name: &str, plan: &str) -> Told {
        match self.accepted(action, name, plan).await {
            Ok(Some(operation)) => self.end(action, name, plan, operation).await,
            Ok(None) => Told::Succeeded,
            Err(error) => {
                let text = format!("{} of {name}: {error}", word(action));
                self.ledger.open().wrong.push(text.clone());
                Told::Failed(text)
            }
        }
    }

    /// Orders one thing until the broker has an answer; gives what to poll, if there is something.
    ///
    /// # Errors
    /// An answer that this request must not have.
    pub(super) async fn accepted(
        &self,
        action: Action,
        name: &str,
        plan: &str,
    ) -> Result<Option<Operation>, ClientError> {
        loop {
            match self.request(action, name, plan).await {
                Ok(Answer::Accepted(Some(operation))) => {
                    let what = format!("{} of {name}", word(action));
                    self.ledger.accepted(operation.as_str(), &what);
                    return Ok(Some(operation));
                }
                Ok(Answer::Accepted(None) | Answer::Done) => return Ok(None),
                Err(error) if error.is_gone() => return Ok(None),
                Err(error) if error.is_transient() => {
                    if error.broker().is_none() {
                        self.ledger.open().broken_off += 1;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn request(&self, action: Action, name: &str, plan: &str) -> Result<Answer, ClientError> {
        let (client, mode) = (&self.client, Mode::AcceptsIncomplete);
        match action {
            Action::Provision => {
                let order = ProvisionRequest {
                    service_id: SERVICE.to_owned(),
                    plan_id: plan.to_owned(),
                    organization_guid: "demo".to_owned(),
                    space_guid: "demo".to_owned(),
                    ..ProvisionRequest::default()
                };
                Ok(match client.provision(name, &order, mode).await? {
                    ProvisionAnswer::InProgress(now) => Answer::Accepted(now.operation),
                    ProvisionAnswer::Created(_) | ProvisionAnswer::Exists(_) => Answer::Done,
                })
            }
            Action::Bind => {
                let order = BindRequest::New(NewBinding {
                    service_id: SERVICE.to_owned(),
                    plan_id: plan.to_owned(),
                    ..NewBinding::default()
                });
                Ok(match client.bind(name, "app", &order, mode).await? {
                    BindAnswer::InProgress(now) => Answer::Accepted(now.operation),
                    BindAnswer::Created(_) | BindAnswer::Exists(_) => Answer::Done,
                })
            }
            Action::Unbind => Ok(deleted(
                client.unbind(name, "app", SERVICE, plan, mode).await?,
            )),
            Action::Deprovision | Action::Update => Ok(deleted(
                client.deprovision(name, SERVICE, plan, mode).await?,
            )),
        }
    }

    /// Polls an accepted operation to its end.
    async fn end(&self, action: Action, name: &str, plan: &str, operation: Operation) -> Told {
        let target = match action {
            Action::Bind | Action::Unbind => Target::Binding {
                instance_id: name,
                binding_id: "app",
            },
            Action::Provision | Action::Deprovision | Action::Update => {
                Target::Instance { instance_id: name }
            }
        };
        let hints = Query {
            service_id: Some(SERVICE.to_owned()),
            plan_id: Some(plan.to_owned()),
            operation: Some(operation.clone()),
            accepts_incomplete: false,
        };
        let options = WaitOptions {
            interval: POLL,
            at_most: POLL,
            ..WaitOptions::default()
        };
        let end = self
            .client
            .wait(action, target, &hints, &options, |_| {})
            .await;
        let told = match end {
            Ok(WaitEnd::Gone) => Told::Succeeded,
            Ok(WaitEnd::Ended(last)) if last.state() == OperationState::Succeeded => {
                Told::Succeeded
            }
            Ok(WaitEnd::Ended(last)) => {
                Told::Failed(last.description().unwrap_or("without a word").to_owned())
            }
            Err(error) => Told::Failed(error.to_string()),
        };
        self.ledger.told(operation.as_str(), told.clone());
        told
    }
}

fn deleted(answer: DeleteAnswer) -> Answer {
    match answer {
        DeleteAnswer::InProgress(now) => Answer::Accepted(now.operation),
        DeleteAnswer::Deleted {} => Answer::Done,
    }
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Provision => "provision",
        Action::Update => "update",
        Action::Deprovision => "deprovision",
        Action::Bind => "bind",
        Action::Unbind => "unbind",
    }
}
