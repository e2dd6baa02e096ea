//! `evenkeel demo`: in under two minutes, and in a folder of its own, a person watches what a
//! broker promises. Orders stream in; one job crashes whenever it is tried, one kills its broker,
//! and the broker is killed again and again on top of that. At the end stands a table, and an exit
//! code: a promise that broke is told, and the evidence kept.
//!
//! What is watched is the real thing: `serve` with its warden, started as a person would start it,
//! asked by the client of `evenkeel-osb` and judged by what its customers, its admin API and the
//! marks of its actions say ([`verdict`]).

mod customers;
mod ledger;
mod screen;
mod stage;
mod strikes;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::ids::JobId;
use evenkeel_osb::Action;
use evenkeel_server::admin::types::{BootList, JobDetail, JobList, JobState, JobSummary};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::DemoArgs;
use crate::commands::admin::AdminClient;
use crate::fail::{Exit, Failure};
use crate::output::{self, shown};
use customers::Platform;
use ledger::Ledger;
use screen::Screen;
use stage::{CRASHES, KILLS_ITS_BROKER, Stage};
use strikes::Door;
use verdict::{Facts, Report};

/// For what is under way when no more orders come.
const PATIENCE: Duration = Duration::from_secs(40);
/// For an answer about what happened, when nobody is killed any more.
const ASK_FOR: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(150);
/// Pages of jobs; each has 500.
const MOST_PAGES: usize = 20;

pub(crate) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    // Before anything is there that would have to be cleaned up.
    let mut ends = Ends::catch()?;
    let screen = Screen::new();
    introduce(&screen, args.seconds);
    let mut stage = Stage::set()?;
    let lasts = Duration::from_secs(args.seconds);
    let outcome = tokio::select! {
        outcome = show(&mut stage, &screen, lasts) => outcome,
        () = ends.asked() => Err(Failure::new(
            Exit::Failed,
            "ended before the end: nothing is left behind",
        )),
    };
    screen.close();
    let report = outcome?;
    stage.keep = args.keep || !report.kept;
    let text = serde_json::to_string_pretty(&report).unwrap_or_default();
    stage.write_beside("report.json", &text);
    let (folder, is_kept) = (stage.folder().display().to_string(), stage.keep);
    drop(stage);

    if args.format.json {
        output::json(&report)?;
    } else {
        table(&report)?;
    }
    if report.kept {
        if is_kept {
            output::note(&format!("kept: {folder}"));
        }
        return Ok(());
    }
    for what in &report.broken {
        output::note(&shown(what));
    }
    Err(Failure::new(Exit::Failed, "a promise broke").hint(format!(
        "the evidence is kept in {folder}: report.json, broker.log, and the store in data"
    )))
}

/// Signals that ask for the end.
struct Ends([Signal; 3]);

impl Ends {
    fn catch() -> Result<Self, Failure> {
        let on = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(Exit::Failed, format!("signal handlers: {error}")))
        };
        Ok(Self([
            on(SignalKind::interrupt())?,
            on(SignalKind::terminate())?,
            on(SignalKind::hangup())?,
        ]))
    }

    async fn asked(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

fn introduce(screen: &Screen, seconds: u64) {
    for line in [
        "A service broker is killed again and again, and its customers do not notice.".to_owned(),
        format!(
            "For {seconds} s orders stream in to a real broker in a temporary folder. Two are bad: one crashes"
        ),
        "whenever it is tried, one kills the broker that runs it. Watch what they cost the others.".to_owned(),
        "(Runs are held by `sweep` here, so that a job can reach its broker at all. By default a run has a".to_owned(),
        "PID namespace of its own where the host allows it, and its broker is out of its sight.)".to_owned(),
        String::new(),
    ] {
        screen.line(&line);
    }
}

/// The demo itself, from the broker's start to the verdict.
async fn show(stage: &mut Stage, screen: &Screen, lasts: Duration) -> Result<Report, Failure> {
    let (address, password) = stage.ready().await?;
    let door = Door {
        address,
        password,
        warden: stage.warden(),
    };
    screen.tell(&format!(
        "the broker serves on {}; its warden is process {}",
        door.address, door.warden
    ));
    let failed = |error| Failure::new(Exit::Failed, format!("no client: {error}"));
    let ledger = Arc::new(Ledger::default());
    let admin = Arc::new(stage.admin()?);
    let platform = Platform {
        client: door.client().map_err(failed)?,
        ledger: Arc::clone(&ledger),
    };

    let mut beside = JoinSet::new();
    let (prober, book) = (door.clone(), Arc::clone(&ledger));
    beside.spawn(async move { prober.probe(book).await });
    let (display, book) = (screen.clone(), Arc::clone(&ledger));
    beside.spawn(async move { display.keep_up(&book).await });

    let mut orders = JoinSet::new();
    for (plan, after) in [(CRASHES, lasts / 10), (KILLS_ITS_BROKER, lasts / 5)] {
        let (platform, admin, screen) = (platform.clone(), Arc::clone(&admin), screen.clone());
        orders.spawn(async move {
            tokio::time::sleep(after).await;
            bad_order(&platform, &admin, &screen, plan).await;
        });
    }
    screen.tell("orders stream in: provision, bind, unbind, deprovision");
    let customers = tokio::select! {
        customers = platform.stream(lasts) => customers,
        () = door.strike(&admin, &ledger, screen) => JoinSet::new(),
    };
    screen.tell("no more orders, no more kills: what is under way comes to its end");
    let everybody = async { tokio::join!(all(customers), all(orders)) };
    if tokio::time::timeout(PATIENCE, everybody).await.is_err() {
        screen.tell("something does not come to its end");
    }
    beside.shutdown().await;

    let counts = ledger.open().clone();
    let bad = |plan| counts.bad.get(plan).cloned().unwrap_or_default();
    let facts = Facts {
        poison: bad(CRASHES),
        killer: bad(KILLS_ITS_BROKER),
        jobs: patiently(async || jobs(&admin).await).await?,
        boots: patiently(async || boots(&admin).await).await?.boots,
        starts: stage.marks("starts"),
        doubles: stage.marks("doubles"),
        kills: stage.marks("kills"),
        counts,
    };
    Ok(verdict::judge(&facts))
}

async fn all(mut tasks: JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

/// Orders what is bad, and tells what its attempts come to.
async fn bad_order(platform: &Platform, admin: &AdminClient, screen: &Screen, plan: &'static str) {
    let job = match platform.accepted(Action::Provision, plan, plan).await {
        Ok(Some(operation)) => operation.as_str().to_owned(),
        Ok(None) => return,
        Err(error) => {
            let wrong = format!("provision of {plan}: {error}");
            platform.ledger.open().wrong.push(wrong);
            return;
        }
    };
    platform.ledger.open().bad.insert(plan, job.clone());
    screen.tell(&format!("ordered: the job that {}", meaning(plan)));
    let (mut told, mut suspect) = (0, false);
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        // Its broker may be dead just now.
        let Ok(detail) = admin
            .get::<JobDetail>(&["admin", "v1", "jobs", &job], &[])
            .await
        else {
            continue;
        };
        for attempt in detail
            .history
            .iter()
            .filter(|it| it.end.is_some())
            .skip(told)
        {
            told += 1;
            let why = attempt.reason.as_deref().unwrap_or("it ended");
            let alone = if attempt.solo { ", alone" } else { "" };
            screen.tell(&format!(
                "{plan}: attempt {}{alone}: {}",
                attempt.ordinal,
                shown(why)
            ));
        }
        if detail.summary.suspect && !suspect && !detail.summary.state.is_final() {
            suspect = true;
            screen.tell(&format!("{plan}: a suspect, so its next run is alone"));
        }
        if detail.summary.state.is_final() {
            let state = detail.summary.state;
            platform
                .ledger
                .told(&job, ledger::Told::Failed(state.to_string()));
            screen.tell(&if state == JobState::Quarantined {
                format!("{plan}: set aside for its operators; its customer is told that it failed")
            } else {
                format!("{plan}: {state}")
            });
            return;
        }
    }
}

fn meaning(plan: &str) -> &'static str {
    if plan == CRASHES {
        "crashes whenever it is tried"
    } else {
        "kills its broker whenever it is tried"
    }
}

/// Asks until there is an answer.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    };
    match tokio::time::timeout(ASK_FOR, asking).await {
        Ok(answer) => Ok(answer),
        Err(_) => ask().await,
    }
}

async fn boots(admin: &AdminClient) -> Result<BootList, Failure> {
    let query = [("limit", "500".to_owned())];
    admin.get(&["admin", "v1", "boots"], &query).await
}

async fn jobs(admin: &AdminClient) -> Result<BTreeMap<String, JobSummary>, Failure> {
    let mut jobs = BTreeMap::new();
    let mut before: Option<JobId> = None;
    for _ in 0..MOST_PAGES {
        let mut query = vec![("limit", "500".to_owned())];
        query.extend(before.map(|id| ("before", id.to_string())));
        let page: JobList = admin.get(&["admin", "v1", "jobs"], &query).await?;
        jobs.extend(page.jobs.into_iter().map(|job| (job.id.to_string(), job)));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok(jobs)
}

fn table(report: &Report) -> Result<(), Failure> {
    output::data("")?;
    output::table(&["PROMISE", "SEEN", ""], verdict::rows(report))?;
    let word = if report.kept {
        "All promises were kept."
    } else {
        "A promise broke."
    };
    output::data(&format!("\n{word}"))
}
