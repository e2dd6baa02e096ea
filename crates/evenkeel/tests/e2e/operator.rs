//! What an operator sees and does, on real jobs: `status` and `jobs …` for people and programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use crate::harness::Broker;

/// Ends of jobs that need no patience: one crash is enough for quarantine.
pub(crate) const ONE_CRASH: &str =
    "[recovery]\ncrash_limit = 1\nbackoff_min = \"20ms\"\nbackoff_max = \"200ms\"\n";

/// A command's end.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn said(output: Output) -> Said {
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn run(broker: &Broker, arguments: &[&str]) -> Said {
    said(broker.cli(arguments))
}

/// A command that succeeds.
pub(crate) fn done(broker: &Broker, arguments: &[&str]) -> Said {
    let said = run(broker, arguments);
    assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
    said
}

/// A command that fails with this code: it prints nothing, and says why.
pub(crate) fn fails(broker: &Broker, arguments: &[&str], code: i32, word: &str) -> Said {
    let said = run(broker, arguments);
    assert_eq!(said.code, code, "{arguments:?}: {said:?}");
    assert_eq!(said.out, "", "{arguments:?}");
    assert!(
        said.err.contains("error: ") && said.err.contains(word),
        "{arguments:?}: {said:?}"
    );
    said
}

pub(crate) async fn start(toml: &str) -> Broker {
    Broker::patient(toml).await
}

/// Orders an instance; gives its job, which is under way.
pub(crate) async fn ordered(broker: &Broker, id: &str, plan: &str, parameters: Value) -> String {
    let of = broker.ids("faults", plan).await;
    broker.provision(id, &of, parameters).await.operation()
}

/// The same, and waits until the job is in this state.
pub(crate) async fn ended(broker: &Broker, id: &str, plan: &str, state: &str) -> String {
    let job = ordered(broker, id, plan, json!({})).await;
    broker.job_is(&job, state).await;
    job
}

pub(crate) fn gate(broker: &Broker) -> PathBuf {
    broker.dir.path().join("gate")
}

/// A bundle whose provision is this script; the other actions do nothing.
pub(crate) fn talker(broker: &Broker, script: &str) -> PathBuf {
    let folder = broker.dir.path().join("talker");
    fs::create_dir_all(&folder).unwrap();
    let yml = "bundle: 1\n\
        service: {name: talker, description: Says things}\n\
        plans: [{name: only, description: The only one}]\n\
        actions:\n  provision: {command: [./provision], timeout: 1m}\n  \
        deprovision: {command: ['true']}\n";
    fs::write(folder.join("bundle.yml"), yml).unwrap();
    let action = folder.join("provision");
    fs::write(&action, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&action, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[tokio::test]
async fn jobs_are_listed_for_people_and_for_programs() {
    let broker = start(ONE_CRASH).await;
    let none = done(&broker, &["jobs", "list"]);
    assert_eq!((none.out.as_str(), none.err.as_str()), ("", "no jobs\n"));
    let good = ended(&broker, "good", "ok", "succeeded").await;
    let bad = ended(&broker, "bad", "exit1-message", "failed").await;
    let crashed = ended(&broker, "worse", "abort", "quarantined").await;

    let list = done(&broker, &["jobs", "list"]).out;
    let lines: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0][..6],
        ["ID", "ACTION", "STATE", "TRIES", "SERVICE", "INSTANCE"]
    );
    let expected = [
        [&crashed, "provision", "quarantined", "1", "faults", "worse"],
        [&bad, "provision", "failed", "1", "faults", "bad"],
        [&good, "provision", "succeeded", "1", "faults", "good"],
    ];
    assert_eq!(lines.len(), 4, "{list}");
    for (line, expected) in lines[1..].iter().zip(expected) {
        assert_eq!(line[..6], expected, "newest first");
    }
    assert!(list.contains("Out of teapots."), "why it failed: {list}");

    let ids = |arguments: &[&str]| -> Vec<String> {
        let all = [&["jobs", "list", "--json"], arguments].concat();
        let page = done(&broker, &all).json();
        let id = |job: &Value| job["id"].as_str().unwrap().to_owned();
        page["jobs"].as_array().unwrap().iter().map(id).collect()
    };
    assert_eq!(ids(&[]), [crashed.clone(), bad.clone(), good.clone()]);
    assert_eq!(
        ids(&["--state", "failed,succeeded"]),
        [bad.clone(), good.clone()]
    );
    assert_eq!(
        ids(&["--instance", "worse"]),
        std::slice::from_ref(&crashed)
    );
    assert_eq!(ids(&["--service", "faults"]).len(), 3);
    assert_eq!(ids(&["--service", "other"]), Vec::<String>::new());
    assert_eq!(ids(&["--before", &bad]), [good]);
    let page = done(&broker, &["jobs", "list", "--limit", "1"]);
    assert!(
        page.out.contains(&crashed) && !page.out.contains(&bad),
        "{page:?}"
    );
    assert!(
        page.err.contains(&format!("--before {crashed}")),
        "{page:?}"
    );
    let wrong = run(&broker, &["jobs", "list", "--state", "lost"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("quarantined"),
        "it names the states: {wrong:?}"
    );
}

#[tokio::test]
async fn a_job_is_shown_by_its_id_or_the_start_of_it() {
    let broker = start(ONE_CRASH).await;
    let crashed = ended(&broker, "worse", "abort", "quarantined").await;
    let shown = done(&broker, &["jobs", "show", &crashed]).out;
    let fact = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {shown}"))[13..].to_owned()
    };
    assert_eq!(fact("job "), crashed);
    assert_eq!(fact("state "), "quarantined");
    assert_eq!(fact("instance "), "worse");
    assert!(fact("service ").starts_with("faults"));
    assert!(fact("charged ").starts_with("1 crashes, 0 losses"));
    // The attempt, with its end and why; who did what.
    assert!(
        shown.contains("crashed") && shown.contains("SIGABRT"),
        "{shown}"
    );
    assert!(
        shown.contains("platform:platform") && shown.contains("submit"),
        "{shown}"
    );

    assert_eq!(done(&broker, &["jobs", "show", &crashed[..23]]).out, shown);
    assert_eq!(
        done(&broker, &["jobs", "show", &crashed.to_uppercase()]).out,
        shown
    );
    let detail = done(&broker, &["jobs", "show", &crashed, "--json"]).json();
    assert_eq!(detail, broker.job(&crashed).await);
    assert_eq!(detail["history"][0]["end"], "crashed");

    // Ids that begin within a minute share their first 8 characters; a minute may end between
    // two of these, but not between all three.
    let mut ids = vec![crashed.clone()];
    for id in ["two", "three"] {
        ids.push(ended(&broker, id, "ok", "succeeded").await);
    }
    ids.sort();
    let shared = ids.windows(2).find(|pair| pair[0][..8] == pair[1][..8]);
    let shared = &shared.expect("two share their first 8 characters")[0][..8];
    fails(&broker, &["jobs", "show", shared], 2, "several jobs");

    let unknown = "01900000-0000-7000-8000-000000000000";
    for verb in ["show", "logs", "retry", "discard", "cancel", "clear"] {
        fails(&broker, &["jobs", verb, unknown], 3, unknown);
        fails(&broker, &["jobs", verb, "01900000"], 3, "01900000");
        for wrong in ["0190", "../status", "0190000z"] {
            assert_eq!(
                run(&broker, &["jobs", verb, wrong]).code,
                2,
                "{verb} {wrong}"
            );
        }
    }
}

#[tokio::test]
async fn the_log_of_a_job_is_what_its_action_printed() {
    let broker = start("").await;
    let failed = ended(&broker, "bad", "exit1-message", "failed").await;
    let log = done(&broker, &["jobs", "logs", &failed]);
    assert_eq!(log.out, "Out of teapots.\n");
    assert!(log.err.contains("attempt 1 ("), "{log:?}");
    assert!(log.err.contains("standard output") && log.err.contains("standard error"));
    let json = done(
        &broker,
        &["jobs", "logs", &failed, "--attempt", "1", "--json"],
    )
    .json();
    assert_eq!(json["job"], failed);
    assert_eq!(json["ordinal"], 1);
    assert_eq!(
        json["stderr"],
        json!({"text": "Out of teapots.\n", "cut": false})
    );
    assert_eq!(json["stdout"], json!({"text": "", "cut": false}));
    let tail = done(&broker, &["jobs", "logs", &failed, "--bytes", "9"]);
    assert_eq!(tail.out, "teapots.\n");
    assert!(tail.err.contains("the start is left out"), "{tail:?}");
    fails(
        &broker,
        &["jobs", "logs", &failed, "--attempt", "2"],
        3,
        "attempt",
    );
}
