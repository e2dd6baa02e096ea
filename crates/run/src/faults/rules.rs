//! Rules: how they are written, where they apply and how often.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What is done at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// SIGKILL to itself.
    Kill,
    /// `abort(3)`.
    Abort,
    /// `exit(3)` with 0.
    Exit,
    /// A write where there is no memory.
    Segv,
    /// The stack is used up.
    Overflow,
    /// An allocation that fails where a limit refuses it.
    Alloc,
    /// Memory is taken, up to a bound.
    Oom,
    /// A panic.
    Panic,
    /// A panic in a destructor.
    DropPanic,
    /// A panic in a destructor while another panic unwinds.
    DoublePanic,
    /// A panic with a lock held.
    PanicLocked,
    /// SIGSTOP to itself.
    Stop,
    /// The point never returns.
    Wedge,
    /// The point waits for a file.
    Hold(PathBuf),
    /// The point takes this long.
    Delay(Duration),
    /// A call of the store is answered with an error of this kind.
    Error(String),
    /// A call of the store is answered like a COMMIT whose answer was lost.
    Lost,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) point: String,
    pub(super) fault: Fault,
    about: Option<String>,
    /// As a file's name.
    name: String,
    /// Times that do not count yet.
    skip: u32,
    times: Option<u32>,
    reached: AtomicU32,
}

/// The variable, understood.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) all: Vec<Rule>,
    /// Where times are counted over processes.
    pub(super) once: Option<PathBuf>,
}

impl Rules {
    /// # Panics
    /// A rule is not understood: a test that arms nothing would prove nothing.
    pub(super) fn parse(text: &str) -> Self {
        let (mut all, mut once) = (Vec::new(), None);
        let rules = text.split(';').map(str::trim);
        for rule in rules.filter(|rule| !rule.is_empty()) {
            match rule.strip_prefix("once=") {
                Some(folder) => once = Some(PathBuf::from(folder)),
                None => all.push(Rule::parse(rule)),
            }
        }
        Self { all, once }
    }
}

impl Rule {
    fn parse(rule: &str) -> Self {
        let (point, what) = rule
            .split_once('=')
            .unwrap_or_else(|| panic!("EVENKEEL_FAULTS: {rule:?} is not point=what"));
        let (point, about) = match point.split_once('~') {
            Some((point, about)) => (point, Some(about.to_owned())),
            None => (point, None),
        };
        let (what, times) = number_after(what, '@');
        let (what, from) = number_after(what, '+');
        Self {
            point: point.to_owned(),
            fault: fault(what).unwrap_or_else(|| {
                panic!("EVENKEEL_FAULTS: {what:?} at {point} is nothing that can be done")
            }),
            about,
            name: rule
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .take(150)
                .collect(),
            skip: from.unwrap_or(1).saturating_sub(1),
            times,
            reached: AtomicU32::new(0),
        }
    }

    pub(super) fn fits(&self, about: &str) -> bool {
        self.about
            .as_deref()
            .is_none_or(|text| match text.strip_prefix('^') {
                Some(start) => about.starts_with(start),
                None => about.contains(text),
            })
    }

    /// Counts one time that the point was reached; whether the rule applies to it.
    pub(super) fn takes_turn(&self, once: Option<&Path>) -> bool {
        // What comes after the last time that makes a difference is not counted any more.
        let last = self.skip.saturating_add(self.times.unwrap_or(0));
        let nth = match once {
            Some(folder) => self.count_in(folder, last),
            None => self
                .reached
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |reached| {
                    (reached < last).then_some(reached + 1)
                })
                .map_or(u32::MAX, |reached| reached + 1),
        };
        nth > self.skip && (nth <= last || self.times.is_none())
    }

    /// The first time up to `last` that no process has taken yet, else more.
    fn count_in(&self, folder: &Path, last: u32) -> u32 {
        for nth in self.reached.load(Ordering::SeqCst) + 1..=last {
            self.reached.fetch_max(nth, Ordering::SeqCst);
            let file = folder.join(format!("{}.{nth}", self.name));
            match File::create_new(&file) {
                Ok(_) => return nth,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("EVENKEEL_FAULTS: {}: {error}", file.display()),
            }
        }
        u32::MAX
    }
}

/// Takes a number off the end, if the mark and digits are there.
fn number_after(text: &str, mark: char) -> (&str, Option<u32>) {
    match text.rsplit_once(mark) {
        Some((before, digits)) => match digits.parse() {
            Ok(number) => (before, Some(number)),
            Err(_) => (text, None),
        },
        None => (text, None),
    }
}

fn fault(what: &str) -> Option<Fault> {
    if let Some((what, detail)) = what.split_once(':') {
        return match what {
            "hold" => Some(Fault::Hold(PathBuf::from(detail))),
            "delay" => Some(Fault::Delay(Duration::from_millis(detail.parse().ok()?))),
            "error" => Some(Fault::Error(detail.to_owned())),
            _ => None,
        };
    }
    Some(match what {
        "kill" => Fault::Kill,
        "abort" => Fault::Abort,
        "exit" => Fault::Exit,
        "segv" => Fault::Segv,
        "overflow" => Fault::Overflow,
        "alloc" => Fault::Alloc,
        "oom" => Fault::Oom,
        "panic" => Fault::Panic,
        "drop-panic" => Fault::DropPanic,
        "double-panic" => Fault::DoublePanic,
        "panic-locked" => Fault::PanicLocked,
        "stop" => Fault::Stop,
        "wedge" => Fault::Wedge,
        "lost" => Fault::Lost,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(rule: &Rule, once: Option<&Path>, times: usize) -> String {
        let turn = |_| if rule.takes_turn(once) { 'x' } else { '.' };
        (0..times).map(turn).collect()
    }

    #[test]
    fn a_rule_applies_to_its_subject_and_its_times() {
        let Rules { all: rules, once } = Rules::parse(
            "a~^bind=kill@2; b=hold:/tmp/a+b@c+2 ;c=delay:20+2@1;d=error:full;e~bind=panic;;",
        );
        assert_eq!(once, None);
        let faults: Vec<_> = rules.iter().map(|rule| rule.fault.clone()).collect();
        let wanted = [
            Fault::Kill,
            Fault::Hold("/tmp/a+b@c".into()),
            Fault::Delay(Duration::from_millis(20)),
            Fault::Error("full".to_owned()),
            Fault::Panic,
        ];
        assert_eq!(faults, wanted);
        assert!(rules[0].fits("bind x") && !rules[0].fits("unbind x") && !rules[0].fits(""));
        assert!(rules[4].fits("unbind x") && rules[1].fits(""));
        assert_eq!(turns(&rules[0], None, 4), "xx..");
        assert_eq!(turns(&rules[1], None, 4), ".xxx");
        assert_eq!(turns(&rules[2], None, 4), ".x..");
        assert_eq!(turns(&rules[3], None, 4), "xxxx");
    }

    #[test]
    fn a_rule_that_is_used_up_stays_so_in_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let once = Some(folder.path());
        let text = format!(
            "once={};a=kill@1;b=kill+2;c=kill+2@2",
            folder.path().display()
        );
        let parse = |text: &str| Rules::parse(text).all;
        assert_eq!(Rules::parse(&text).once.as_deref(), once);
        // Each parse is a process of its own as far as a rule can know.
        assert_eq!(turns(&parse(&text)[0], once, 2), "x.");
        assert_eq!(turns(&parse(&text)[0], once, 2), "..");
        assert_eq!(turns(&parse(&text)[1], once, 1), ".");
        assert_eq!(turns(&parse(&text)[1], once, 2), "xx");
        assert_eq!(turns(&parse(&text)[2], once, 2), ".x");
        assert_eq!(turns(&parse(&text)[2], once, 2), "x.");
    }

    #[test]
    #[should_panic(expected = "is nothing that can be done")]
    fn a_rule_that_is_not_understood_is_told() {
        Rules::parse("a=hodl:x");
    }
}
