//! Platforms that ask all the time around the death of a broker, and what becomes of each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder};
use serde_json::json;
use tokio::task::JoinSet;

use super::Death;
use crate::harness::{Broker, eventually};

/// What is asked, and by how many connections.
const KINDS: [(Kind, usize); 3] = [(Kind::Catalog, 4), (Kind::Poll, 2), (Kind::Order, 2)];
/// Who was not served waits for so long; a platform waits longer (`Retry-After`).
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// GET of the catalog.
    Catalog,
    /// Poll of an operation that is under way.
    Poll,
    /// PUT of an instance, answered when it is on disk.
    Order,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::Poll => "poll",
            Self::Order => "order (PUT)",
        }
    }

    fn status(self) -> u16 {
        match self {
            Self::Catalog | Self::Poll => 200,
            Self::Order => 202,
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Served,
    /// 503: the next broker was not ready.
    NotYet,
    /// The connection ended without an answer, or within one.
    Reset,
    Refused,
}

const FATES: [Fate; 4] = [Fate::Served, Fate::NotYet, Fate::Reset, Fate::Refused];

/// One request.
pub(super) struct Asked {
    kind: Kind,
    began: Instant,
    ended: Instant,
    fate: Fate,
}

/// Connections that ask, each one request after the other.
pub(super) struct Asking {
    over: Arc<AtomicBool>,
    tasks: JoinSet<Vec<Asked>>,
}

/// What platforms know of a broker.
pub(super) struct Platform {
    url: String,
    password: String,
    /// Service and plan.
    of: (String, String),
    /// The path of an operation that is under way for as long as anybody asks.
    poll: String,
}

impl Platform {
    pub(super) async fn of(broker: &Broker) -> Self {
        let of = broker.ids("bench", "only").await;
        let job = broker.provision("runs", &of, json!({})).await.operation();
        eventually("it runs", || async {
            let now = broker.job(&job).await;
            (now["state"] == "running").then_some(())
        })
        .await;
        Self {
            url: broker.url("osb-url"),
            password: broker.password(),
            of,
            poll: format!("/v2/service_instances/runs/last_operation?operation={job}"),
        }
    }

    pub(super) fn catalog(&self, client: &Client) -> RequestBuilder {
        self.signed(client.get(format!("{}/v2/catalog", self.url)))
    }

    fn request(&self, kind: Kind, client: &Client, new: &str) -> RequestBuilder {
        let url = &self.url;
        match kind {
            Kind::Catalog => self.catalog(client),
            Kind::Poll => self.signed(client.get(format!("{url}{}", self.poll))),
            Kind::Order => {
                let path = format!("/v2/service_instances/{new}?accepts_incomplete=true");
                self.signed(client.put(format!("{url}{path}")))
                    .json(&json!({
                        "service_id": self.of.0, "plan_id": self.of.1,
                        "organization_guid": "org", "space_guid": "space",
                    }))
            }
        }
    }

    fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        request
            .basic_auth("platform", Some(&self.password))
            .header("X-Broker-API-Version", "2.17")
    }
}

impl Asking {
    /// What is ordered has names unlike those of other rounds.
    pub(super) fn begin(platform: &Arc<Platform>, round: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (kind, connections) in KINDS {
            for connection in 0..connections {
                let (platform, over) = (Arc::clone(platform), Arc::clone(&over));
                tasks.spawn(async move {
                    let client = Client::new();
                    let mut all = Vec::new();
                    while !over.load(Ordering::SeqCst) {
                        let new = format!("i-{round}-{connection}-{}", all.len());
                        let asked = ask(kind, platform.request(kind, &client, &new)).await;
                        let pause = asked.fate != Fate::Served;
                        all.push(asked);
                        if pause {
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    all
                });
            }
        }
        Self { over, tasks }
    }

    pub(super) async fn end(self) -> Vec<Asked> {
        self.over.store(true, Ordering::SeqCst);
        let all = self.tasks.join_all().await;
        all.into_iter().flatten().collect()
    }
}

/// # Panics
/// The answer is neither the one that serves nor 503.
async fn ask(kind: Kind, request: RequestBuilder) -> Asked {
    let began = Instant::now();
    let answer = request.send().await;
    let read = match answer {
        Ok(answer) => {
            let status = answer.status().as_u16();
            answer.text().await.map(|body| (status, body))
        }
        Err(error) => Err(error),
    };
    let ended = Instant::now();
    let fate = match read {
        Ok((status, _)) if status == kind.status() => Fate::Served,
        Ok((503, _)) => Fate::NotYet,
        Ok((status, body)) => panic!("{}: {status}: {body}", kind.name()),
        Err(error) if error.is_connect() => Fate::Refused,
        Err(_) => Fate::Reset,
    };
    Asked {
        kind,
        began,
        ended,
        fate,
    }
}

/// What became of requests, by kind and fate.
#[derive(Default)]
pub(super) struct Counts {
    /// Those that were under way while a broker died.
    in_flight: [[u64; FATES.len()]; KINDS.len()],
    /// Those that were sent after that, before the next one served.
    meanwhile: [[u64; FATES.len()]; KINDS.len()],
    /// Those that met a broker that was there; served, all of them.
    other: u64,
}

impl Counts {
    /// Since `served` the next broker serves. Connections end between the two instants of a death.
    ///
    /// # Panics
    /// A request failed though a broker was there.
    pub(super) fn add(&mut self, all: &[Asked], death: &Death, served: Instant) {
        for asked in all {
            let when = if asked.ended <= death.killed || asked.began > served {
                let (kind, fate) = (asked.kind.name(), asked.fate);
                assert_eq!(fate, Fate::Served, "{kind}: a broker is there");
                self.other += 1;
                continue;
            } else if asked.began <= death.dead {
                &mut self.in_flight
            } else {
                &mut self.meanwhile
            };
            let kind = KINDS.iter().position(|(kind, _)| *kind == asked.kind);
            let fate = FATES.iter().position(|fate| *fate == asked.fate);
            when[kind.expect("it is one of them")][fate.expect("it is one of them")] += 1;
        }
    }

    pub(super) fn print(&self) {
        println!(
            "            requests                      sent   served      503    reset  refused"
        );
        let both = [
            ("in flight", &self.in_flight),
            ("meanwhile", &self.meanwhile),
        ];
        for (when, counts) in both {
            for ((kind, connections), counts) in KINDS.iter().zip(counts) {
                let [served, not_yet, reset, refused] = counts;
                let sent: u64 = counts.iter().sum();
                let what = format!("{} x{connections}", kind.name());
                println!(
                    "            {when}  {what:14} {sent:8} {served:8} {not_yet:8} {reset:8} {refused:8}"
                );
            }
        }
        println!("            all others {:23} {:8}", self.other, self.other);
    }
}
