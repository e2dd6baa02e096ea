//! The story of a job, as an operator reads it: whole, and word by word.

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{
    Charge, Containment, DisruptionCause, End, Evidence, ExposureCause, FailReason, LimitKind,
};
use evenkeel_core::budget::Budget;
use evenkeel_core::explain::Turn;
use evenkeel_core::explain::story::{Act, AttemptFacts, Facts, Story, span, story};
use evenkeel_core::forensics::{
    Beside, BrokerDeath, Forensics, LogBytes, MemoryCause, Panic, Sender, Victim,
};
use evenkeel_core::ids::InstanceId;
use evenkeel_core::job::{Job, QuarantineReason, State, StopReason};
use evenkeel_core::policy::Policy;
use evenkeel_core::time::Timestamp;

use crate::fixtures::{NOON, boot_id, job, job_id, running};

const MB: u64 = 1 << 20;

fn at(millis: i64) -> Timestamp {
    Timestamp(NOON.0 + millis)
}

fn act(millis: i64, actor: &str, what: &str, detail: &str) -> Act {
    Act {
        at: at(millis),
        actor: actor.to_owned(),
        what: what.to_owned(),
        detail: detail.to_owned(),
    }
}

fn asked() -> Act {
    act(0, "platform:cf", "submit", "provision")
}

/// An attempt that was claimed at `from` and ended two seconds later.
fn attempt(ordinal: u32, from: i64, end: End, charge: Charge, known: Forensics) -> AttemptFacts {
    AttemptFacts {
        ordinal,
        boot: boot_id(1),
        solo: false,
        claimed_at: at(from),
        started_at: Some(at(from + 20)),
        containment: Some(Containment::Pidns),
        ended: Some((at(from + 2000), end, charge)),
        peak_memory: Some(12 * MB),
        cpu_millis: Some(340),
        forensics: Some(known),
        has_log: false,
    }
}

struct World {
    job: Job,
    finished_at: Option<Timestamp>,
    discarded: bool,
    attempts: Vec<AttemptFacts>,
    acts: Vec<Act>,
    beside: Vec<Beside>,
    deaths: Vec<BrokerDeath>,
    held: Option<&'static str>,
    turn: Option<Turn>,
}

impl World {
    fn of(job: Job) -> Self {
        Self {
            job,
            finished_at: None,
            discarded: false,
            attempts: Vec::new(),
            acts: vec![asked()],
            beside: Vec::new(),
            deaths: Vec::new(),
            held: None,
            turn: None,
        }
    }

    fn story(&self) -> Story {
        story(&Facts {
            job: &self.job,
            instance: "i-1",
            service: "postgres",
            now: at(60_000),
            finished_at: self.finished_at,
            discarded: self.discarded,
            attempts: &self.attempts,
            acts: &self.acts,
            beside: &self.beside,
            deaths: &self.deaths,
            policy: &Policy::default(),
            held: self.held,
            turn: self.turn.as_ref(),
        })
    }

    fn text(&self) -> String {
        let story = self.story();
        let mut text = format!("{}\n", story.headline);
        for event in &story.events {
            let after = event.at.as_millis() - NOON.as_millis();
            writeln!(text, "+{after} ms: {}", event.text).expect("a string takes it");
            for detail in &event.details {
                writeln!(text, "    {detail}").expect("a string takes it");
            }
        }
        for line in &story.standing {
            writeln!(text, "- {line}").expect("a string takes it");
        }
        for advice in &story.advice {
            writeln!(text, "$ {}  # {}", advice.command, advice.text).expect("a string takes it");
        }
        text
    }
}

fn crashed(evidence: Option<Evidence>) -> End {
    End::Crashed { evidence }
}

fn segfault() -> Forensics {
    Forensics {
        signal: Some(11),
        memory_limit: Some(64 * MB),
        progress: Some("creating the role".to_owned()),
        log: Some(LogBytes {
            stdout: 10,
            stderr: 0,
            lost: 2048,
        }),
        ..Forensics::default()
    }
}

#[test]
fn a_job_that_kills_itself_three_times_is_told_like_this() {
    let mut world = World::of(Job {
        attempts: 3,
        budget: Budget {
            crashes: 3,
            ..Budget::default()
        },
        state: State::Quarantined {
            reason: QuarantineReason::Crashes { count: 3 },
        },
        ..job()
    });
    let proof = || crashed(Some(Evidence::FatalSignal { signal: 11 }));
    for (ordinal, from) in [(1, 100), (2, 8_000), (3, 20_000)] {
        let mut one = attempt(ordinal, from, proof(), Charge::Crash, segfault());
        one.solo = ordinal == 3;
        one.has_log = ordinal != 2;
        world.attempts.push(one);
        world
            .acts
            .push(act(from + 2000, "broker", "charge", "crash"));
    }
    world.finished_at = Some(at(22_000));
    world.beside = vec![Beside {
        ordinal: 2,
        job: job_id(7),
        action: Action::Bind,
        instance: InstanceId::new("i-2").expect("an id"),
        at: at(9_700),
        charge: Charge::Crash,
        same_broker: false,
    }];
    insta::assert_snapshot!(world.text());
    world.discarded = true;
    let story = world.story();
    assert!(
        story
            .advice
            .iter()
            .all(|one| !one.command.contains("retry"))
    );
}

#[test]
fn a_job_near_the_deaths_of_brokers_is_told_like_this() {
    let mut world = World::of(Job {
        attempts: 2,
        budget: Budget {
            exposures: 2,
            suspect: true,
            longest_lost: Duration::from_secs(90),
            ..Budget::default()
        },
        state: State::Backoff {
            next_at: at(75_000),
        },
        ..job()
    });
    let exposed = |cause| End::Exposed { cause };
    let vanished = Forensics {
        victim: Some(Victim::Shim),
        last_sign: Some(at(1_500)),
        progress: Some("half".to_owned()),
        ..Forensics::default()
    };
    let mut first = attempt(
        1,
        100,
        exposed(ExposureCause::VanishedWithBroker),
        Charge::Exposure,
        vanished,
    );
    (first.peak_memory, first.cpu_millis) = (None, None);
    let mut second = attempt(
        2,
        30_000,
        exposed(ExposureCause::NamedByBlackBox),
        Charge::Exposure,
        Forensics::default(),
    );
    second.started_at = None;
    second.containment = None;
    (second.peak_memory, second.cpu_millis) = (None, None);
    second.boot = boot_id(2);
    world.attempts = vec![first, second];
    world.deaths = [(1, 1_900, false), (2, 31_000, true)]
        .map(|(boot, seen, named)| BrokerDeath {
            boot: boot_id(boot),
            at: at(seen),
            how: "died".to_owned(),
            named,
            exclusive: named,
            charge: named.then_some(Charge::Exposure),
        })
        .to_vec();
    world.beside = (0..7)
        .map(|n| Beside {
            ordinal: 1,
            job: job_id(10 + n),
            action: Action::Update,
            instance: InstanceId::new(format!("i-{n}")).expect("an id"),
            at: at(2_100),
            charge: Charge::Exposure,
            same_broker: true,
        })
        .collect();
    world.held = Some("3 unclean ends in a row");
    insta::assert_snapshot!(world.text());
}

#[test]
fn every_clue_is_told_in_these_words() {
    let sender = |pid, command: Option<&str>, of_run, broker| Sender {
        pid,
        uid: 1000,
        command: command.map(str::to_owned),
        of_run,
        broker,
    };
    let of_sender = |sender| Forensics {
        sender: Some(sender),
        ..Forensics::default()
    };
    let of_memory = |memory, victim| Forensics {
        memory: Some(memory),
        memory_limit: Some(64 * MB),
        victim,
        ..Forensics::default()
    };
    let stopped = || End::Disrupted {
        cause: DisruptionCause::Stopped,
    };
    let failed = |code| End::Failed {
        reason: FailReason::ExitCode { code },
        message: None,
    };
    let limit = crashed(Some(Evidence::Limit {
        limit: LimitKind::Memory,
    }));
    let panicked = Forensics {
        panic: Some(Panic {
            location: "crates/engine/src/attempt.rs:10:5".to_owned(),
            thread: Some("worker-1".to_owned()),
            said: Some("index out of bounds".to_owned()),
            backtrace: "evenkeel_engine::attempt::drive\ntokio::run".to_owned(),
        }),
        ..Forensics::default()
    };
    let unsaid = Forensics {
        panic: Some(Panic {
            location: "crates/engine/src/attempt.rs:10:5".to_owned(),
            thread: None,
            said: None,
            backtrace: String::new(),
        }),
        ..Forensics::default()
    };
    let by_panic = || {
        crashed(Some(Evidence::Panic {
            location: "crates/engine/src/attempt.rs:10:5".to_owned(),
        }))
    };
    let silent = Forensics {
        victim: Some(Victim::Shim),
        silent_ms: Some(31_500),
        ..Forensics::default()
    };
    let core = Forensics {
        signal: Some(6),
        core_dumped: true,
        ..Forensics::default()
    };
    let cases = [
        (
            stopped(),
            of_sender(sender(7, Some("systemctl"), false, false)),
        ),
        (
            stopped(),
            of_sender(sender(7, Some("provision"), true, false)),
        ),
        (stopped(), of_sender(sender(7, None, false, true))),
        (stopped(), of_sender(sender(0, None, false, false))),
        (limit, of_memory(MemoryCause::OwnLimit, None)),
        (
            failed(137),
            of_memory(MemoryCause::OwnCgroup, Some(Victim::Child)),
        ),
        (failed(1), of_memory(MemoryCause::NearLimit, None)),
        (
            crashed(None),
            of_memory(MemoryCause::Host, Some(Victim::Namespace)),
        ),
        (crashed(Some(Evidence::FatalSignal { signal: 6 })), core),
        (crashed(None), silent),
        (by_panic(), panicked),
        (by_panic(), unsaid),
    ];
    let mut text = String::new();
    for (end, known) in cases {
        let mut world = World::of(job());
        world.attempts = vec![attempt(1, 0, end, Charge::None, known)];
        let story = world.story();
        let told = story.events.iter().find(|event| event.attempt == Some(1));
        for detail in &told.expect("the attempt is told").details {
            writeln!(text, "{detail}").expect("a string takes it");
        }
        text.push('\n');
    }
    insta::assert_snapshot!(text);
}

#[test]
fn each_standing_and_what_follows_from_it_is_told_like_this() {
    let in_state = |state| Job {
        attempts: 1,
        state,
        ..job()
    };
    let suspect = |budget: Budget| Job {
        budget: Budget {
            suspect: true,
            ..budget
        },
        ..in_state(State::Queued)
    };
    let jobs = [
        job(),
        running(None),
        running(Some(Duration::from_secs(120))),
        in_state(State::Succeeded),
        in_state(State::Failed {
            reason: FailReason::Timeout,
            message: None,
        }),
        in_state(State::Cancelled {
            by: StopReason::Operator,
        }),
        in_state(State::Quarantined {
            reason: QuarantineReason::Losses { count: 3 },
        }),
        in_state(State::Quarantined {
            reason: QuarantineReason::BudgetSpent,
        }),
        in_state(State::Quarantined {
            reason: QuarantineReason::Unreadable {
                message: "Eof at byte 12".to_owned(),
            },
        }),
        suspect(Budget {
            losses: 1,
            ..Budget::default()
        }),
        suspect(Budget {
            disruptions: 5,
            ..Budget::default()
        }),
        suspect(Budget {
            crashes: 2,
            ..Budget::default()
        }),
    ];
    let mut text = String::new();
    for job in jobs {
        let mut world = World::of(job);
        world.acts.clear();
        writeln!(text, "{}", world.text()).expect("a string takes it");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn what_was_done_to_it_is_told_with_who_did_it() {
    let mut world = World::of(Job {
        retry_of: Some(job_id(9)),
        ..job()
    });
    world.acts = vec![
        act(0, "operator", "submit", "retry of job 9"),
        act(1, "operator", "clear", ""),
        act(2, "operator", "cancel", "{}"),
        act(3, "broker", "deadline", "failed"),
        act(4, "broker", "set_aside", "no such column"),
        act(5, "operator", "discard", "provision"),
        act(6, "operator", "retry", "job 1"),
        act(7, "platform:a\u{1b}[31m", "new_word", "x\u{202e}y"),
    ];
    insta::assert_snapshot!(world.text());
}

#[test]
fn nothing_that_an_action_says_commands_a_terminal() {
    let mut world = World::of(job());
    let known = Forensics {
        progress: Some("\u{1b}[2Jgone\u{7}".to_owned()),
        sender: Some(Sender {
            pid: 1,
            uid: 0,
            command: Some("\u{9b}kill".to_owned()),
            of_run: true,
            broker: false,
        }),
        ..Forensics::default()
    };
    let end = End::Failed {
        reason: FailReason::ExitCode { code: 1 },
        message: Some("\u{1b}[31mred".to_owned()),
    };
    world.attempts = vec![attempt(1, 0, end, Charge::None, known)];
    let text = world.text();
    assert!(text.contains("gone") && text.contains("kill") && text.contains("red"));
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
}

#[test]
fn spans_have_two_units_at_most() {
    for (millis, text) in [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_250, "1.2 s"),
        (59_999, "59 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (90_000_000, "1 d 1 h"),
    ] {
        assert_eq!(span(Duration::from_millis(millis)), text);
    }
}

#[test]
fn the_log_of_a_good_end_is_no_clue() {
    let mut world = World::of(job());
    let mut good = attempt(1, 0, End::Succeeded, Charge::None, Forensics::default());
    good.has_log = true;
    world.attempts = vec![good];
    assert!(!world.text().contains("--attempt"), "{}", world.text());
}

#[test]
fn whoever_waits_for_a_suspects_turn_is_told_whose_it_is_and_nobody_else_is() {
    let waits = |next_at| Job {
        attempts: 1,
        state: State::Backoff { next_at },
        ..job()
    };
    let ended = Job {
        attempts: 1,
        state: State::Succeeded,
        ..job()
    };
    let told = |job: &Job, owner, runs| {
        let mut world = World::of(job.clone());
        world.turn = Some(Turn {
            job: owner,
            runs,
            until: at(90_000),
        });
        let story = world.story();
        let line = story
            .standing
            .into_iter()
            .find(|line| line.contains("30 s at most"));
        let explains = format!("evenkeel jobs explain {owner}");
        let points = story.advice.iter().any(|one| one.command == explains);
        (line, points)
    };
    let other = job_id(7);
    let alone =
        format!("No other run starts: job {other} is a suspect and runs alone, for 30 s at most.");
    let first = format!(
        "No other run starts: job {other} is a suspect that is to run alone, and waits for the runs \
         under way to end, for 30 s at most."
    );
    let own = "Its turn has come, and it waits for the runs under way to end, for 30 s at most.";
    for held_up in [job(), waits(at(80_000))] {
        assert_eq!(told(&held_up, other, true), (Some(alone.clone()), true));
        assert_eq!(told(&held_up, other, false), (Some(first.clone()), true));
    }
    assert_eq!(told(&job(), job().id, false), (Some(own.to_owned()), false));
    for untouched in [running(None), ended, waits(at(90_000))] {
        assert_eq!(told(&untouched, other, true), (None, false));
    }
}
