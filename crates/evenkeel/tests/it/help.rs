//! The help of every command, and what a wrong command line is told.

use crate::tool::evenkeel;

const COMMANDS: [&[&str]; 29] = [
    &[],
    &["serve"],
    &["demo"],
    &["status"],
    &["boots"],
    &["hold"],
    &["release"],
    &["config"],
    &["config", "show"],
    &["config", "check"],
    &["jobs"],
    &["jobs", "list"],
    &["jobs", "show"],
    &["jobs", "explain"],
    &["jobs", "logs"],
    &["jobs", "retry"],
    &["jobs", "discard"],
    &["jobs", "cancel"],
    &["jobs", "clear"],
    &["osb"],
    &["osb", "catalog"],
    &["osb", "provision"],
    &["osb", "update"],
    &["osb", "bind"],
    &["osb", "unbind"],
    &["osb", "deprovision"],
    &["osb", "instance"],
    &["osb", "binding"],
    &["osb", "last-operation"],
];

#[test]
fn every_command_explains_itself() {
    let folder = tempfile::tempdir().unwrap();
    for command in COMMANDS {
        let said = evenkeel(folder.path(), &[command, &["--help"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{command:?}");
        let name = [&["evenkeel"], command].concat().join("-");
        insta::assert_snapshot!(name, said.stdout);
    }
}

#[test]
fn no_command_is_without_a_snapshot_of_its_help() {
    let folder = tempfile::tempdir().unwrap();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    let mut found = 0;
    while let Some(command) = open.pop() {
        found += 1;
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        assert!(
            COMMANDS.contains(&words.as_slice()),
            "{words:?} is not in COMMANDS"
        );
        let help = evenkeel(folder.path(), &[&words, &["--help"][..]].concat()).stdout;
        let listed = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
        for line in listed.lines().take_while(|line| !line.is_empty()) {
            // A description that is wrapped goes on deeper in.
            if let Some(name) = line
                .strip_prefix("  ")
                .filter(|line| !line.starts_with(' '))
            {
                let name = name.split_whitespace().next().unwrap().to_owned();
                open.push([command.clone(), vec![name]].concat());
            }
        }
    }
    assert_eq!(found, COMMANDS.len());
}

#[test]
fn a_wrong_command_line_ends_with_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 6] = [
        &[],
        &["srve"],
        &["jobs", "show", "abc"],
        &["jobs", "list", "--state", "lost"],
        &["osb", "provision", "hello", "--param", "x"],
        &["serve", "--lock-wait", "soon"],
    ];
    for args in wrong {
        let said = evenkeel(folder.path(), args);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!said.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_command_without_a_broker_says_how_to_find_one() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["status"][..], &["jobs", "list"], &["osb", "catalog"]] {
        let said = evenkeel(folder.path(), args);
        assert_eq!((said.code, said.stdout.as_str()), (4, ""), "{args:?}");
        insta::assert_snapshot!(format!("no-broker-{}", args[0]), said.stderr);
    }
}

#[test]
fn a_broker_that_does_not_listen_is_told_from_one_that_refuses() {
    let folder = tempfile::tempdir().unwrap();
    // A port that is bound but never listens: nobody else can take it, and it refuses.
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    let said = evenkeel(folder.path(), &["status", "--url", &url, "--token", "x"]);
    assert_eq!((said.code, said.stdout.as_str()), (4, ""));
    assert!(said.stderr.contains("does not answer"), "{}", said.stderr);
}
