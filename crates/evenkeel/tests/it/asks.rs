//! What commands ask a broker, with whose secret, and what they make of its answers.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::fake::Fake;
use crate::tool::{Said, command, evenkeel};

/// What a broker on this host leaves in its data folder.
fn data_folder(folder: &Path, admin: &str, osb: &str) {
    let data = folder.join("evenkeel-data");
    fs::create_dir(&data).unwrap();
    for (name, line) in [
        ("admin-url", admin),
        ("admin-token", "local-token"),
        ("osb-url", osb),
        ("osb-password", "local-password"),
    ] {
        fs::write(data.join(name), format!("{line}\n")).unwrap();
    }
}

#[test]
fn a_secret_of_this_host_goes_to_the_broker_of_this_host_only() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = [(); 2]
        .map(|()| Fake::new(|_| (200, json!({"jobs": [], "services": []}).to_string())))
        .into();
    data_folder(folder.path(), &here.url(), &here.url());
    for (args, variable, hint) in [
        (
            ["jobs", "list"],
            "EVENKEEL_URL",
            "--token or EVENKEEL_TOKEN",
        ),
        (["osb", "catalog"], "EVENKEEL_OSB_URL", "--password-file"),
    ] {
        let by_argument = evenkeel(
            folder.path(),
            &[&args[..], &["--url", &there.url()]].concat(),
        );
        let by_variable = command(folder.path())
            .args(args)
            .env(variable, there.url())
            .output()
            .unwrap();
        assert_eq!((by_argument.code, by_variable.status.code()), (2, Some(2)));
        let says = String::from_utf8(by_variable.stderr).unwrap();
        for said in [by_argument.stderr, says] {
            assert!(said.contains("hint: ") && said.contains(hint), "{said}");
        }
        // The broker's own address may be written out.
        let own = format!("{}/", here.url());
        for url in [&[][..], &["--url", &own]] {
            let said = evenkeel(folder.path(), &[&args[..], url].concat());
            assert_eq!(said.code, 0, "{said:?}");
        }
    }
    assert!(there.asked().is_empty(), "{:?}", there.asked());
    assert_eq!(here.asked().len(), 4);
    // With a secret of its own any broker is asked.
    fs::write(folder.path().join("password"), "theirs\n").unwrap();
    for args in [
        &["jobs", "list", "--token", "theirs"][..],
        &["osb", "catalog", "--password-file", "password"],
    ] {
        let said = evenkeel(folder.path(), &[args, &["--url", &there.url()]].concat());
        assert_eq!(said.code, 0, "{said:?}");
    }
    let sent = there.asked();
    assert!(sent[0].headers.contains("bearer theirs"), "{sent:?}");
    assert!(
        sent[1].headers.contains("authorization: basic "),
        "{sent:?}"
    );
}

#[test]
fn https_is_refused_with_a_way_around() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["status", "--token", "x"][..],
        &["jobs", "list"],
        &["osb", "catalog"],
    ] {
        let url = ["--url", "https://broker.example"];
        let said = evenkeel(folder.path(), &[args, &url].concat());
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{said:?}");
        assert!(said.stderr.contains("plain HTTP only"), "{said:?}");
    }
}

/// Runs a command that asks a fake for everything.
pub(crate) fn asks(fake: &Fake, args: &[&str]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    data_folder(folder.path(), &fake.url(), &fake.url());
    evenkeel(folder.path(), args)
}

fn job(number: u64) -> Value {
    json!({
        "id": format!("019c0000-0000-7000-8000-{number:012}"),
        "action": "provision",
        "state": "succeeded",
        "instance": "i",
        "service": "s",
        "platform": "platform",
        "attempts": 1,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "deadline_at": "2026-01-02T00:00:00Z",
    })
}

#[test]
fn a_long_list_of_jobs_is_asked_for_in_pages_that_the_broker_grants() {
    let fake = Fake::new(|line| {
        let number = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            rest.split('&').next()?.parse::<u64>().ok()
        };
        let limit = number("limit=").unwrap();
        assert!(limit <= 500, "{line}");
        let jobs: Vec<_> = (0..limit).map(job).collect();
        let next = job(limit)["id"].clone();
        (200, json!({"jobs": jobs, "next": next}).to_string())
    });
    let said = asks(&fake, &["jobs", "list", "--limit", "1200", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let list: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(list["jobs"].as_array().unwrap().len(), 1200);
    let limits: Vec<_> = fake
        .asked()
        .iter()
        .map(|asked| asked.line.split(['=', '&']).nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(limits, ["500", "500", "200"]);
}

#[test]
fn status_of_a_broker_without_its_store_is_what_readyz_says() {
    let fake = Fake::new(|line| {
        let why = "the key file /x/store.key is missing (put it back)";
        let answer = if line == "GET /readyz" {
            let reason = json!({"about": "store", "blocking": true, "message": why});
            json!({"ready": false, "description": "not ready", "reasons": [reason]})
        } else {
            json!({"error": "unavailable", "description": why})
        };
        (503, answer.to_string())
    });
    let said = asks(&fake, &["status"]);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    assert_eq!(
        said.stdout,
        "evenkeel is not ready\nnot ready: store: the key file /x/store.key is missing (put it back)\n"
    );
    let said = asks(&fake, &["status", "--json"]);
    let ready: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &ready["ready"]), (1, &json!(false)), "{said:?}");
    // Before the first start is over there is no token yet.
    let folder = tempfile::tempdir().unwrap();
    data_folder(folder.path(), &fake.url(), &fake.url());
    fs::remove_file(folder.path().join("evenkeel-data/admin-token")).unwrap();
    let said = evenkeel(folder.path(), &["status"]);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    assert!(said.stdout.contains("store.key is missing"), "{said:?}");
    // Other commands name the one that says why.
    let said = asks(&fake, &["jobs", "list"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(
        said.stderr.contains("`evenkeel status` says why"),
        "{said:?}"
    );
}

#[test]
fn suspects_are_asked_for_by_name() {
    let fake = Fake::new(|_| (200, json!({"jobs": []}).to_string()));
    let said = asks(&fake, &["jobs", "list", "--suspect"]);
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (0, "no jobs\n"),
        "{said:?}"
    );
    let line = &fake.asked()[0].line;
    assert!(line.contains("suspect=true"), "{line}");
}

const OF: [&str; 4] = ["--service", "s", "--plan", "p"];

fn catalog() -> String {
    let plan = json!({"id": "p-id", "name": "p", "description": "."});
    let service = json!({
        "id": "s-id", "name": "s", "description": ".", "bindable": true, "plans": [plan],
    });
    json!({"services": [service]}).to_string()
}

#[test]
fn a_binding_without_credentials_is_shown_as_it_is() {
    for binding in [json!({}), json!({"syslog_drain_url": "syslog://x"})] {
        let answer = binding.to_string();
        let fake = Fake::new(move |line| match line {
            "GET /v2/catalog" => (200, catalog()),
            _ => (201, answer.clone()),
        });
        let said = asks(&fake, &[&["osb", "bind", "i"], &OF[..]].concat());
        assert_eq!(said.code, 0, "{said:?}");
        let shown: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(shown, binding);
        assert!(said.stderr.contains("no credentials"), "{said:?}");
    }
}

#[test]
fn a_failed_order_names_the_job_where_the_broker_is_that_of_this_host() {
    let fake = || {
        Fake::new(|line| match line {
            "GET /v2/catalog" => (200, catalog()),
            _ if line.contains("last_operation") => (
                200,
                json!({"state": "failed", "description": "no room"}).to_string(),
            ),
            _ => (202, json!({"operation": "the-job"}).to_string()),
        })
    };
    let order = ["osb", "provision", "s"];
    let said = asks(&fake(), &order);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("failed: no room"), "{said:?}");
    assert!(
        said.stderr
            .contains("hint: `evenkeel jobs show the-job` says more"),
        "{said:?}"
    );
    // Of another broker nothing but its answer is known.
    let other = fake();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("password"), "theirs\n").unwrap();
    let url = other.url();
    let there = ["--url", &url, "--user", "u", "--password-file", "password"];
    let said = evenkeel(folder.path(), &[&order[..], &there].concat());
    assert_eq!(said.code, 1, "{said:?}");
    assert!(!said.stderr.contains("jobs show"), "{said:?}");
}
