//! Whatever an action writes ends as a bounded record.

use std::fs;

use evenkeel_run::{ContainmentWish, OutputError, RunEnd};

use crate::harness::World;

const LEVEL: ContainmentWish = ContainmentWish::Auto;

#[test]
fn every_kind_of_bad_output_is_a_typed_error_and_the_end_stays() {
    let world = World::new();
    fs::write(world.path("real.json"), "{\"data\": \"of somebody else\"}").unwrap();
    let not_a_file = |error: &OutputError| matches!(error, OutputError::NotAFile { .. });
    let too_large = |error: &OutputError| matches!(error, OutputError::TooLarge { .. });
    let not_json = |error: &OutputError| matches!(error, OutputError::NotJson { .. });
    let no_object = |error: &OutputError| matches!(error, OutputError::NotAnObject { .. });
    type Check<'a> = &'a dyn Fn(&OutputError) -> bool;
    let cases: [(&str, Check<'_>); 12] = [
        ("ln -s $WORLD/real.json $EVENKEEL_OUTPUT", &not_a_file),
        ("ln -s /dev/zero $EVENKEEL_OUTPUT", &not_a_file),
        ("mkfifo $EVENKEEL_OUTPUT", &not_a_file),
        ("mkdir $EVENKEEL_OUTPUT", &not_a_file),
        ("mknod $EVENKEEL_OUTPUT c 1 5", &not_a_file),
        (
            "perl -MIO::Socket::UNIX -e 'chdir \"../out\"; IO::Socket::UNIX->new(Local => \"output.json\", Listen => 1) or die'",
            &not_a_file,
        ),
        ("head -c 2000000 /dev/zero > $EVENKEEL_OUTPUT", &too_large),
        ("truncate -s 1T $EVENKEEL_OUTPUT", &too_large),
        ("truncate -s 1000 $EVENKEEL_OUTPUT", &not_json),
        ("echo '{\"half' > $EVENKEEL_OUTPUT", &not_json),
        (
            "head -c 500000 /dev/zero | tr '\\0' '[' > $EVENKEEL_OUTPUT",
            &not_json,
        ),
        ("echo '[1]' > $EVENKEEL_OUTPUT", &no_object),
    ];
    for (script, check) in cases {
        let (record, _) = world.run(LEVEL, script);
        assert_eq!(record.end, RunEnd::Exited { code: 0 }, "{script}");
        assert_eq!(record.output, None, "{script}");
        let error = record
            .output_error
            .unwrap_or_else(|| panic!("{script}: no error"));
        assert!(check(&error), "{script}: {error}");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn no_output_and_an_empty_one_are_no_error() {
    let world = World::new();
    for script in [
        "exit 0",
        ": > $EVENKEEL_OUTPUT",
        "rm -rf ../out",
        "rm -rf ../out; ln -s / ../out",
    ] {
        let (record, _) = world.run(LEVEL, script);
        assert_eq!(
            (record.output, record.output_error),
            (None, None),
            "{script}"
        );
    }
}

#[test]
fn output_of_the_largest_size_fits_the_room_that_was_made_for_it() {
    let world = World::new();
    let script = "printf '{\"data\":\"' > $EVENKEEL_OUTPUT
        head -c $((1048576 - 11)) /dev/zero | tr '\\0' x >> $EVENKEEL_OUTPUT; printf '\"}' >> $EVENKEEL_OUTPUT
        head -c 100000 /dev/zero | tr '\\0' '\\001' >> $EVENKEEL_PROGRESS; echo >> $EVENKEEL_PROGRESS
        head -c 100000 /dev/zero | tr '\\0' '\"' >> $EVENKEEL_PROGRESS";
    let (record, folder) = world.run(LEVEL, script);
    assert_eq!(record.output_error, None);
    assert_eq!(
        record.output.unwrap().0["data"].as_str().unwrap().len(),
        1048576 - 11
    );
    assert_eq!(record.last_progress.unwrap().len(), 1024);
    let size = fs::metadata(folder.path().join("exit")).unwrap().len();
    assert!(size <= (1 << 20) + (32 << 10), "{size}");
}

#[test]
fn bad_progress_is_no_progress() {
    let world = World::new();
    for script in [
        "ln -s /etc/passwd $EVENKEEL_PROGRESS",
        "mkfifo $EVENKEEL_PROGRESS",
        "mkdir $EVENKEEL_PROGRESS",
        "printf '\\n\\r\\n \\t\\n' > $EVENKEEL_PROGRESS",
    ] {
        let (record, _) = world.run(LEVEL, script);
        assert_eq!(record.last_progress, None, "{script}");
    }
    let (record, _) = world.run(
        LEVEL,
        "truncate -s 1T $EVENKEEL_PROGRESS; printf '\\nend' >> $EVENKEEL_PROGRESS",
    );
    assert_eq!(record.last_progress.as_deref(), Some("end"));
}

#[test]
fn a_flood_of_output_takes_bounded_room_and_keeps_head_and_tail() {
    let world = World::new();
    let folder = world.fresh();
    let mut spec = world.script(
        &folder,
        "echo the first line; head -c 200000000 /dev/zero | tr '\\0' 'x'; echo; echo the last line",
    );
    spec.log_max_bytes = 100_000;
    let (record, folder) = world.run_spec(&folder, &spec);
    assert_eq!(record.end, RunEnd::Exited { code: 0 });
    assert_eq!(record.stdout_bytes, 200_000_000 + 15 + 1 + 14);
    let kept: u64 = fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_str().unwrap().starts_with("stdout"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!(kept <= 100_000, "{kept}");
    let text = folder.log_tail(1 << 20).unwrap().unwrap().stdout.text();
    assert!(text.starts_with("the first line\nxxx"), "{}", &text[..50]);
    assert!(text.ends_with("x\nthe last line\n"));
    assert!(text.contains(" bytes were not kept]\n"));
    let tail = folder.log_tail(20).unwrap().unwrap().stdout;
    assert_eq!(tail.text(), "xxxxx\nthe last line\n");
    assert!(tail.cut);
}
