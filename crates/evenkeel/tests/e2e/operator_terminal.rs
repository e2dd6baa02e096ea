//! What reaches an operator's terminal: how the broker stands, that it is away, and nothing that an
//! action could command the terminal with.

use std::fs;

use serde_json::json;

use crate::harness::{Broker, Setup, eventually};
use crate::operator::{Said, done, fails, gate, ordered, run, start, talker};

#[tokio::test]
async fn status_says_how_the_broker_stands_while_it_recovers_too() {
    let mut broker = start("").await;
    let status = done(&broker, &["status"]).out;
    assert!(
        status.starts_with("evenkeel ") && status.contains(" is ready\n"),
        "{status}"
    );
    let json = done(&broker, &["status", "--json"]).json();
    assert_eq!(json["ready"], true, "{json}");
    assert_eq!(json["services"], 1, "{json}");
    assert_eq!(json["counts"]["running"], 0, "{json}");

    let parameters = json!({"gate": gate(&broker)});
    let job = ordered(&broker, "slow", "ok", parameters).await;
    broker.job_is(&job, "running").await;
    broker.kill();
    let hold = broker.dir.path().join("hold");
    broker.setup.faults = format!("recovery.action=hold:{}", hold.display());
    broker.spawn();
    let reached = hold.with_extension("reached");
    eventually("recovery has begun", || {
        std::future::ready(reached.exists().then_some(()))
    })
    .await;
    let said = run(&broker, &["status"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.out.contains("is not ready") && said.out.contains("recovery"),
        "{said:?}"
    );
    let json = run(&broker, &["status", "--json"]);
    assert_eq!(json.code, 1, "{json:?}");
    assert_eq!(json.json()["ready"], false);
    fs::write(&hold, "").unwrap();
    broker.ready().await;
    fs::write(gate(&broker), "").unwrap();
    broker.succeeded("slow", None, &job).await;
}

#[tokio::test]
async fn a_broker_that_is_away_or_does_not_take_the_token_is_told_apart() {
    let mut broker = start("").await;
    for command in [&["status"][..], &["jobs", "list"]] {
        let refused = [command, &["--token", "guess"]].concat();
        let said = fails(&broker, &refused, 5, "token");
        assert!(
            said.err.contains("hint: ") && !said.err.contains("guess"),
            "{said:?}"
        );
        // The OSB listener is no admin API.
        let osb = broker.url("osb-url");
        let elsewhere = [command, &["--url", &osb]].concat();
        let said = run(&broker, &elsewhere);
        assert!(said.code != 0 && said.err.contains("hint: "), "{said:?}");
    }
    let url = broker.url("admin-url");
    let other = fails(&broker, &["osb", "catalog", "--user", "nobody"], 5, "401");
    assert!(other.err.contains("hint: "), "{other:?}");
    broker.terminate();
    for command in [&["status"][..], &["jobs", "list"]] {
        let away = [command, &["--url", &url]].concat();
        let said = fails(&broker, &away, 4, "does not answer");
        assert!(said.err.contains("hint: "), "{said:?}");
        // Nor is its address known any more, or it is and nobody listens.
        assert_eq!(run(&broker, command).code, 4);
    }
    assert_eq!(run(&broker, &["osb", "catalog"]).code, 4);
}

#[tokio::test]
async fn control_characters_of_an_action_never_reach_a_terminal_raw() {
    let mut broker = Broker::new(Setup::default());
    // Colours, the bell, the window's title, a carriage return, a right-to-left override.
    let text = r"\033[31mred\007\033]0;title\033\\over\rwritten\342\200\256txt";
    let gate = gate(&broker);
    let script = format!(
        "printf '{text}\\n'; printf '{text}\\n' >&2; printf '{text}\\n' >>\"$EVENKEEL_PROGRESS\"
         until [ -e {gate} ]; do sleep 0.02; done
         printf '{{\"error\": {{\"message\": \"\\\\u001b[31mred\\\\u202etxt\"}}}}' >\"$EVENKEEL_OUTPUT\"
         exit 1",
        gate = gate.display()
    );
    broker.setup.bundles = vec![talker(&broker, &script)];
    broker.boot().await;
    let order = ["osb", "provision", "talker", "--id", "i"];
    let asked = [&order[..], &["--no-wait", "--json"]].concat();
    let job = done(&broker, &asked).json()["operation"]
        .as_str()
        .unwrap()
        .to_owned();

    // JSON escapes control characters; what turns the direction of writing is data there.
    let tame = |said: &Said, json: bool| {
        let raw = |c: char| (c.is_control() && c != '\n') || (c == '\u{202e}' && !json);
        assert!(
            !said.out.contains(raw) && !said.err.contains(raw),
            "{said:?}"
        );
    };
    let shows = |arguments: &[&str]| {
        let said = run(&broker, arguments);
        tame(&said, arguments.contains(&"--json"));
        format!("{}{}", said.out, said.err)
    };
    eventually("the progress is shown", || async {
        // What follows the carriage return.
        let shown = shows(&["jobs", "show", &job]);
        shown.contains("written").then_some(())
    })
    .await;
    for arguments in [
        &["jobs", "show", &job][..],
        &["jobs", "logs", &job],
        &["osb", "last-operation", "i"],
        // The same order again waits for the same operation.
        &[&order[..], &["--wait-limit", "5"]].concat(),
    ] {
        let text = shows(arguments);
        assert!(text.contains("written"), "{arguments:?}: {text}");
    }
    fs::write(&gate, "").unwrap();
    broker.job_is(&job, "failed").await;
    for arguments in [
        &["jobs", "list"][..],
        &["jobs", "show", &job],
        &["osb", "last-operation", "i"],
        &["jobs", "show", &job, "--json"],
        &["jobs", "logs", &job, "--json"],
    ] {
        let text = shows(arguments);
        assert!(text.contains("red"), "{arguments:?}: {text}");
    }
    // What a platform shows is nobody's to check but ours.
    let end = broker.finished("i", None, &job).await;
    let description = end["description"].as_str().unwrap();
    assert!(description.contains("red"), "{end}");
    assert!(!description.contains(char::is_control), "{end}");
    let log = broker.log();
    assert!(!log.contains('\u{1b}'), "the broker's log has no escapes");
}
