//! What is read, what is refused, and that what is shown reads as itself.

use super::*;

fn read(text: &str) -> Result<Config, String> {
    Config::parse(Some(Path::new("conf/evenkeel.toml")), text).map_err(|error| {
        let lines = error.problems.iter().map(|problem| match &problem.hint {
            Some(hint) => format!("{problem}\n  hint: {hint}"),
            None => problem.to_string(),
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

fn refusal(text: &str) -> String {
    read(text).expect_err("the configuration is wrong")
}

#[test]
fn the_effective_file_without_a_configuration_has_every_key() {
    insta::assert_snapshot!(Config::parse(None, "").unwrap().show().unwrap());
}

#[test]
fn what_is_shown_reads_as_itself() {
    let text = r#"
        data_dir = "/data"
        bundles = ["mine", "/srv/bundles"]
        namespace = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
        [osb]
        listen = "[::1]:1"
        sync_limit = "2s"
        deleted_as = "gone"
        isolate_platforms = true
        [[osb.users]]
        name = "cf"
        password_file = "secret"
        [admin]
        listen = "127.0.0.1:2"
        [store]
        url = "sqlite:/other/place.db"
        [jobs]
        concurrency = 5
        per_service = 4
        timeout = "3s"
        deadline = "4s"
        retention = "5s"
        [process]
        containment = "sweep"
        run_as = "12:34"
        grace = "6s"
        silent_after = "7s"
        [recovery]
        crash_limit = 7
        loss_limit = 8
        backoff_min = "9ms"
        backoff_max = "10ms"
        hold_after = 11
        hold_quiet = "12h"
        [serve]
        watchdog = "0s"
        restart_pause = "1s"
        [shutdown]
        on_shutdown = "drain"
        drain_limit = "13d"
    "#;
    let shown = read(text).unwrap().show().unwrap();
    insta::assert_snapshot!(shown);
    let again = Config::parse(Some(Path::new("evenkeel.toml")), &shown).unwrap();
    assert_eq!(again.show().unwrap(), shown);
}

#[test]
fn a_hash_is_hidden_wherever_a_configuration_is_shown() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo";
    let text = format!("[[osb.users]]\nname = 'cf'\npassword_hash = '{hash}'\n");
    let config = read(&text).unwrap();
    assert!(!config.show().unwrap().contains("argon2id"));
    assert!(!format!("{config:?}").contains("argon2id"));
}

#[test]
fn paths_are_relative_to_the_folder_of_the_file() {
    let config = read("").unwrap();
    assert_eq!(config.data_dir, Path::new("conf/evenkeel-data"));
    assert_eq!(config.bundles, [Path::new("conf/bundles")]);
    assert_eq!(config.store, Path::new("evenkeel.db"));
}

#[test]
fn a_service_may_take_a_quarter_of_the_slots_and_at_least_one() {
    for (concurrency, share) in [(32, 8), (3, 1), (1, 1)] {
        let config = read(&format!("[jobs]\nconcurrency = {concurrency}")).unwrap();
        assert_eq!(config.jobs.per_service.get(), share);
    }
}

#[test]
fn every_mistake_is_told_with_file_line_column_and_key() {
    let mistakes = [
        "data_dri = 'x'",
        "[jobs]\nconcurency = 3",
        "[jobz]\n",
        "[jobs]\nconcurrency = 0",
        "[jobs]\nconcurrency = -1",
        "[jobs]\nconcurrency = 100001",
        "[jobs]\nconcurrency = 'many'",
        "[jobs]\nconcurrency = 4\nper_service = 5",
        "[jobs]\ntimeout = '2d'",
        "[jobs]\ntimeout = '5'",
        "[jobs]\ntimeout = 50",
        "[jobs]\nretention = '0s'",
        "[recovery]\ncrash_limit = 0",
        "[recovery]\nbackoff_min = '1h'",
        "[osb]\nlisten = 'localhost'",
        "[osb]\nlisten = '127.0.0.1:8081'",
        "[osb]\ndeleted_as = 'deleted'",
        "[osb]\nsync_limit = '56s'",
        "[process]\ncontainment = 'cgruop'",
        "[process]\nrun_as = 'nobody-of-that-name'",
        "[process]\nsilent_after = '1s'",
        "[serve]\nwatchdog = '2s'",
        "[serve]\nrestart_pause = '6s'",
        "[store]\nurl = 'postgres://user:secret@host/db'",
        "[store]\nurl = 'mysql:x'",
        "[[osb.users]]\nname = 'a'",
        "[[osb.users]]\npassword_file = 'a'",
        "[[osb.users]]\nname = 'a:b'\npassword_file = 'a'",
        "[[osb.users]]\nname = 'a'\npassword_file = 'a'\n[[osb.users]]\nname = 'a'\npassword_file = 'b'",
        "[[osb.users]]\nname = 'a'\npassword_hash = 'plain'",
        "[[osb.users]]\nname = 'a'\npasword_file = 'x'",
        "namespace = 'x'",
        "[jobs\nconcurrency = 1",
        "[jobs]\nconcurrency = 1\nconcurrency = 2",
        "data_dir = ''",
    ];
    let told = mistakes.map(|text| format!("{text}\n=> {}\n", refusal(text)));
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn all_that_is_wrong_with_the_values_is_told_at_once() {
    let text = "[jobs]\nper_service = 99\n[osb]\nlisten = 'x'\n[store]\nurl = 'y'";
    assert_eq!(refusal(text).lines().count(), 3);
}
