//! What is known of an attempt's bad end, in sentences.

use crate::attempt::{Charge, Death, End, ExposureCause, FailReason};
use crate::forensics::{Forensics, MemoryCause, Sender, Victim};
use crate::time::Timestamp;

use super::{signal_text, spoken, story::span};

/// Frames of a backtrace that are told; the attempt's record has the rest.
const MAX_FRAMES: usize = 8;

/// Something that is known of an attempt's bad end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clue {
    /// What it is about, in a word or two; the same word twice: a further line of it.
    pub about: &'static str,
    /// What is known, in a sentence; of a backtrace a function, set in.
    pub text: String,
}

/// What an exit code says that people may not know.
pub(super) fn of_end(end: &End) -> Option<String> {
    let End::Failed {
        reason: FailReason::ExitCode { code },
        ..
    } = end
    else {
        return None;
    };
    let signal = code
        .checked_sub(128)
        .filter(|signal| (1..=64).contains(signal))?;
    Some(format!(
        "a shell says so of a command that was ended by {}.",
        signal_text(signal)
    ))
}

/// All that is known of an attempt's bad end beside the end itself, for operators.
pub fn clues_of(known: &Forensics, claimed_at: Timestamp) -> Vec<Clue> {
    let mut clues = Vec::new();
    let mut clue = |about, text: Option<String>| {
        clues.extend(text.map(|text| Clue { about, text }));
    };
    let signal = known.signal;
    clue(
        "signal",
        signal.map(|signal| main_process(signal, known.core_dumped)),
    );
    clue(
        "hit",
        match known.silent_ms {
            // What became of the shim is no riddle.
            Some(silent) => Some(ended_for_silence(silent)),
            None => known.victim.and_then(victim).map(str::to_owned),
        },
    );
    clue("sender", known.sender.as_ref().map(sender));
    clue("memory", known.memory.and_then(memory).map(str::to_owned));
    let last_sign = known.last_sign.map(|sign| {
        let after = span(sign.since(claimed_at));
        format!("its last sign of life came {after} after it was claimed.")
    });
    clue("last sign", last_sign);
    let progress = known.progress.as_deref().and_then(spoken);
    clue(
        "progress",
        progress.map(|line| format!("its last line of progress: \"{line}\"")),
    );
    let lost = known.log.map(|log| log.lost).filter(|lost| *lost > 0);
    let lost = lost.map(|lost| {
        let lost = bytes(lost);
        format!("{lost} of its log could not be stored for want of room.")
    });
    clue("log", lost);
    if let Some(panic) = &known.panic {
        let thread = panic.thread.as_deref().and_then(spoken);
        let thread = thread.map_or_else(String::new, |name| format!(" in thread {name}"));
        let said = said(panic.said.as_deref());
        clue("panic", Some(format!("the panic came{thread}{said}.")));
        let frames = panic.backtrace.lines().take(MAX_FRAMES);
        for frame in frames.filter_map(spoken) {
            clue("panic", Some(format!("  in {frame}")));
        }
    }
    clues
}

/// The death of a broker that is counted against an attempt, and as what, for operators.
pub fn death_line(death: &Death) -> String {
    let how = match death.cause {
        ExposureCause::NamedByBlackBox if death.exclusive => {
            "died in a step for this job that no other shared"
        }
        ExposureCause::NamedByBlackBox => "died in a step for this job",
        ExposureCause::VanishedWithBroker => "died, and the run vanished with it",
        ExposureCause::HostLost => "died with its host",
    };
    let boot = death.boot;
    format!(
        "boot {boot} {how}; counted as {}.",
        counted_as(death.charge)
    )
}

/// What the death of a broker is counted as.
pub(super) fn counted_as(charge: Charge) -> &'static str {
    match charge {
        Charge::Loss => "a loss: nothing but this job was at work",
        Charge::None | Charge::Crash | Charge::Exposure | Charge::Disruption => "an exposure",
    }
}

fn said(literal: Option<&str>) -> String {
    match literal.and_then(spoken) {
        Some(words) => format!(" and said \"{words}\""),
        None => ", and what it said is on the broker's raw standard error only".to_owned(),
    }
}

fn main_process(signal: i32, core_dumped: bool) -> String {
    let core = if core_dumped {
        ", and the kernel kept a core"
    } else if dumps_core(signal) {
        "; no core was written, since runs may not write any"
    } else {
        ""
    };
    format!(
        "its main process was ended by {}{core}.",
        signal_text(signal)
    )
}

/// Signals that would write a core, signal(7).
fn dumps_core(signal: i32) -> bool {
    matches!(signal, 3..=8 | 11 | 24 | 25 | 31)
}

fn ended_for_silence(silent_ms: u64) -> String {
    let silent = span(std::time::Duration::from_millis(silent_ms));
    format!(
        "its supervisor was silent for {silent} and was ended by the broker that drove it, with what \
         remained of its tree."
    )
}

fn victim(victim: Victim) -> Option<&'static str> {
    match victim {
        Victim::Child => Some("a child was hit, not the main process."),
        Victim::Namespace => {
            Some("the whole tree was killed at once, by something outside of the run.")
        }
        Victim::Shim => {
            Some("its shim vanished without a record: what remained of its tree was ended.")
        }
        Victim::Unknown => None,
    }
}

fn sender(sender: &Sender) -> String {
    let command = sender.command.as_deref().and_then(spoken);
    let user = sender.uid;
    let who = match (sender.pid, command) {
        (0, _) => format!("a process of user {user} that cannot be seen from here"),
        (pid, Some(command)) => format!("process {pid} (\"{command}\") of user {user}"),
        (pid, None) => format!("process {pid} of user {user}, which was gone already"),
    };
    let whose = if sender.of_run {
        "; it belongs to the run itself"
    } else if sender.broker {
        "; a broker had asked for the stop"
    } else {
        ""
    };
    format!("the signal to stop came from {who}{whose}.")
}

fn memory(cause: MemoryCause) -> Option<&'static str> {
    match cause {
        MemoryCause::OwnLimit => Some("memory: its tree went over the limit of its own."),
        MemoryCause::OwnCgroup => {
            Some("memory: the kernel ended a process of it for the limit of its own cgroup.")
        }
        MemoryCause::NearLimit => Some(
            "memory: it had used nearly all that it was allowed, so that an allocation may \
             have been refused.",
        ),
        MemoryCause::Host => Some(
            "memory: the host ran out meanwhile and ended processes, this run probably among them.",
        ),
        MemoryCause::Unknown => None,
    }
}

/// What a run used, of what it was allowed, for operators: bytes, bytes and milliseconds.
pub fn usage_line(
    peak: Option<u64>,
    limit: Option<u64>,
    cpu_millis: Option<u64>,
) -> Option<String> {
    let memory = peak.map(|peak| match limit {
        Some(limit) => format!(
            "{} of memory at most, of {} allowed",
            bytes(peak),
            bytes(limit)
        ),
        None => format!("{} of memory at most", bytes(peak)),
    });
    let cpu = cpu_millis.map(|cpu| {
        let time = span(std::time::Duration::from_millis(cpu));
        format!("{time} of processor time")
    });
    let parts: Vec<String> = [memory, cpu].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("it used {}.", parts.join(", and ")))
}

/// Bytes for people.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => {
            let tenths = (bytes >> 20).saturating_mul(10) >> 10;
            format!("{}.{} GiB", tenths / 10, tenths % 10)
        }
    }
}
