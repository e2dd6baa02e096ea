//! Admission, over every combination of action, standing and jobs under way.

use std::fmt::Write as _;

use evenkeel_core::action::Action;
use evenkeel_core::admit::{ActiveJob, Ask, BindingStanding, InstanceStanding, Verdict, admit};
use evenkeel_core::ids::{BindingUid, JobId, PlanId, RequestDigest, ServiceId};
use evenkeel_core::instance::Status;

use crate::fixtures::{instance_uid, job_id};

const SAME: RequestDigest = RequestDigest([1; 32]);
const DIFFERENT: RequestDigest = RequestDigest([2; 32]);

/// Jobs under way, as words and as they are: `x>y` is an x that a y has superseded.
type Lane = (&'static str, Vec<ActiveJob>);

/// Each action has one job of its own name.
fn name_of(action: Action) -> JobId {
    job_id(action as u64)
}

fn active(action: Action, superseded: bool) -> ActiveJob {
    ActiveJob {
        id: name_of(action),
        action,
        digest: SAME,
        superseded,
    }
}

fn lane(words: &'static str, create: Option<Action>, delete: Option<Action>) -> Lane {
    let create = create.map(|action| active(action, delete.is_some()));
    let delete = delete.map(|action| active(action, false));
    (words, create.into_iter().chain(delete).collect())
}

fn instance_lanes() -> Vec<Lane> {
    use Action::{Deprovision, Provision, Update};
    vec![
        lane("-", None, None),
        lane("provision", Some(Provision), None),
        lane("update", Some(Update), None),
        lane("deprovision", None, Some(Deprovision)),
        lane("provision>deprovision", Some(Provision), Some(Deprovision)),
        lane("update>deprovision", Some(Update), Some(Deprovision)),
    ]
}

fn binding_lanes() -> Vec<Lane> {
    use Action::{Bind, Unbind};
    vec![
        lane("-", None, None),
        lane("bind", Some(Bind), None),
        lane("unbind", None, Some(Unbind)),
        lane("bind>unbind", Some(Bind), Some(Unbind)),
    ]
}

/// Every standing of an instance, in words and as it is; `None` where there is none.
fn instances(other_bindings: &Lane) -> Vec<(String, Option<InstanceStanding>)> {
    let mut all = vec![("none".to_owned(), None)];
    for status in Status::ALL {
        for (words, active) in instance_lanes() {
            let standing = InstanceStanding {
                uid: instance_uid(1),
                service: ServiceId::new("service").expect("an id"),
                plan: PlanId::new("plan").expect("an id"),
                digest: SAME,
                status,
                active,
                active_bindings: other_bindings.1.clone(),
            };
            all.push((format!("{}, {words}", status.as_str()), Some(standing)));
        }
    }
    all
}

fn bindings() -> Vec<(String, Option<BindingStanding>)> {
    let mut all = vec![("none".to_owned(), None)];
    for status in Status::ALL {
        for (words, active) in binding_lanes() {
            let standing = BindingStanding {
                uid: BindingUid(instance_uid(2).0),
                digest: SAME,
                status,
                active,
            };
            all.push((format!("{}, {words}", status.as_str()), Some(standing)));
        }
    }
    all
}

fn verdict_words(verdict: &Verdict) -> String {
    let names = |ids: &[JobId]| {
        let words: Vec<_> = Action::ALL
            .into_iter()
            .filter(|action| ids.contains(&name_of(*action)))
            .map(Action::as_str)
            .collect();
        assert_eq!(
            words.len(),
            ids.len(),
            "only known jobs, each once: {ids:?}"
        );
        words.join("+")
    };
    match verdict {
        Verdict::Accept {
            supersedes,
            after,
            new_life,
        } => {
            let mut words = "accept".to_owned();
            if *new_life {
                words.push_str(" as new");
            }
            if !after.is_empty() {
                words.push_str(&format!(" after {}", names(after)));
            }
            if !supersedes.is_empty() {
                words.push_str(&format!(", stopping {}", names(supersedes)));
            }
            words
        }
        Verdict::Already => "already".to_owned(),
        Verdict::InProgress(id) => format!("in progress: {}", names(&[*id])),
        Verdict::Conflict => "conflict".to_owned(),
        Verdict::Busy(id, action) => {
            assert_eq!(*id, name_of(*action));
            format!("busy: {action}")
        }
        Verdict::NoInstance => "no instance".to_owned(),
        Verdict::NoBinding => "no binding".to_owned(),
        Verdict::Unusable(status) => format!("unusable: {}", status.as_str()),
    }
}

fn in_life(status: Option<Status>) -> bool {
    status != Some(Status::Deleted)
}

/// One question and its answer, over all there are.
struct Case {
    action: Action,
    same: bool,
    instance: Option<InstanceStanding>,
    binding: Option<BindingStanding>,
    verdict: Verdict,
}

impl Case {
    fn words(&self) -> String {
        format!(
            "{} ({}) of {:?} and {:?}: {:?}",
            self.action,
            if self.same { "same" } else { "different" },
            self.instance,
            self.binding,
            self.verdict
        )
    }

    /// The standings that are of lives which are not over.
    fn lives(&self) -> bool {
        let instance = self.instance.as_ref().map(|known| known.status);
        let binding = self.binding.as_ref().map(|known| known.status);
        let alive = |status: Option<Status>| status.is_some_and(|s| s != Status::Deleted);
        alive(instance) && (!self.action.is_for_binding() || alive(binding))
    }

    fn own_jobs(&self) -> &[ActiveJob] {
        if self.action.is_for_binding() {
            self.binding.as_ref().map_or(&[], |known| &known.active)
        } else {
            self.instance.as_ref().map_or(&[], |known| &known.active)
        }
    }
}

fn all_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for lane in binding_lanes() {
        for (_, instance) in instances(&lane) {
            for (_, binding) in bindings() {
                for action in Action::ALL {
                    for same in [true, false] {
                        let digest = if same { SAME } else { DIFFERENT };
                        let ask = Ask { action, digest };
                        let verdict = admit(ask, instance.as_ref(), binding.as_ref());
                        cases.push(Case {
                            action,
                            same,
                            instance: instance.clone(),
                            binding: binding.clone(),
                            verdict,
                        });
                    }
                }
            }
        }
    }
    cases
}

fn row(
    action: Action,
    instance: Option<&InstanceStanding>,
    binding: Option<&BindingStanding>,
) -> String {
    let answer = |digest| verdict_words(&admit(Ask { action, digest }, instance, binding));
    let (same, different) = (answer(SAME), answer(DIFFERENT));
    if same == different {
        same
    } else {
        format!("{same} | different: {different}")
    }
}

/// Lines of `answer: situations`, each answer once.
fn grouped(rows: Vec<(String, String)>) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (situation, answer) in rows {
        match groups.iter_mut().find(|(known, _)| *known == answer) {
            Some((_, situations)) => situations.push(situation),
            None => groups.push((answer, vec![situation])),
        }
    }
    let mut text = String::new();
    for (answer, situations) in groups {
        writeln!(text, "{answer}\n    {}", situations.join("; ")).expect("a string takes it");
    }
    text
}

#[test]
fn requests_for_an_instance_are_answered_like_this() {
    let mut text = String::new();
    for action in [Action::Provision, Action::Update, Action::Deprovision] {
        for lane in binding_lanes() {
            let rows = instances(&lane)
                .into_iter()
                .filter(|(_, known)| in_life(known.as_ref().map(|k| k.status)))
                .map(|(situation, instance)| (situation, row(action, instance.as_ref(), None)))
                .collect();
            writeln!(text, "## {action}, bindings: {}", lane.0).expect("a string takes it");
            text.push_str(&grouped(rows));
        }
    }
    insta::assert_snapshot!(text);
}

/// For each standing of the binding, the instance standings that lead to an answer; those that
/// give the same answers for all bindings are shown once. What is deleted is left out: it is as
/// good as nothing, see below.
#[test]
fn requests_for_a_binding_are_answered_like_this() {
    let mut text = String::new();
    for action in [Action::Bind, Action::Unbind] {
        let columns = instances(&binding_lanes()[0])
            .into_iter()
            .filter(|(_, known)| in_life(known.as_ref().map(|k| k.status)))
            .map(|(situation, instance)| {
                let rows = bindings()
                    .into_iter()
                    .filter(|(_, known)| in_life(known.as_ref().map(|k| k.status)))
                    .map(|(words, binding)| {
                        (words, row(action, instance.as_ref(), binding.as_ref()))
                    })
                    .collect();
                (situation, grouped(rows))
            });
        let mut blocks: Vec<(String, Vec<String>)> = Vec::new();
        for (situation, column) in columns {
            match blocks.iter_mut().find(|(known, _)| *known == column) {
                Some((_, situations)) => situations.push(situation),
                None => blocks.push((column, vec![situation])),
            }
        }
        for (column, situations) in blocks {
            writeln!(text, "## {action}, instance: {}", situations.join("; "))
                .expect("a string takes it");
            text.push_str(&column);
        }
    }
    insta::assert_snapshot!(text);
}

/// I12.
#[test]
fn a_delete_is_accepted_in_every_state() {
    for case in all_cases() {
        let delete = matches!(case.action, Action::Deprovision | Action::Unbind);
        if delete && case.lives() {
            let welcome = matches!(
                case.verdict,
                Verdict::Accept { .. } | Verdict::InProgress(_)
            );
            assert!(welcome, "{}", case.words());
        }
    }
}

/// I12: nothing may go on behind a delete's back, bindings included.
#[test]
fn a_delete_waits_for_all_that_runs_and_stops_what_it_makes_pointless() {
    for case in all_cases() {
        let Verdict::Accept {
            supersedes, after, ..
        } = &case.verdict
        else {
            continue;
        };
        let (Some(instance), binding) = (&case.instance, &case.binding) else {
            continue;
        };
        let of_binding = binding.iter().flat_map(|known| &known.active);
        let (waits_for, may_stop): (Vec<_>, Vec<_>) = match case.action {
            Action::Deprovision => {
                let all: Vec<_> = instance
                    .active
                    .iter()
                    .chain(&instance.active_bindings)
                    .collect();
                (all.clone(), all)
            }
            Action::Unbind => (
                of_binding.clone().chain(&instance.active).collect(),
                of_binding.collect(),
            ),
            Action::Provision | Action::Update | Action::Bind => continue,
        };
        for job in waits_for {
            assert!(after.contains(&job.id), "{}", case.words());
        }
        for job in may_stop {
            let create = !matches!(job.action, Action::Deprovision | Action::Unbind);
            let stopped = supersedes.contains(&job.id);
            assert_eq!(stopped, create && !job.superseded, "{}", case.words());
        }
        assert!(
            supersedes.iter().all(|id| after.contains(id)),
            "{}",
            case.words()
        );
    }
}

#[test]
fn an_identical_request_never_opens_a_second_job() {
    for case in all_cases().iter().filter(|case| case.same) {
        let twin = |job: &ActiveJob| job.action == case.action && !job.superseded;
        if case.lives() && case.own_jobs().iter().any(twin) {
            let accepted = matches!(case.verdict, Verdict::Accept { .. });
            assert!(!accepted, "{}", case.words());
        }
    }
}

#[test]
fn a_different_request_never_wins_over_one_that_runs() {
    for case in all_cases().iter().filter(|case| !case.same) {
        let create = !matches!(case.action, Action::Deprovision | Action::Unbind);
        let runs = !case.own_jobs().is_empty();
        if create && case.lives() && runs {
            let refused = matches!(case.verdict, Verdict::Conflict | Verdict::Busy(..));
            assert!(refused, "{}", case.words());
        }
    }
}

/// The unique index of DESIGN §5 has to hold: one instance job that is neither final nor
/// superseded.
#[test]
fn an_accepted_job_leaves_no_other_in_charge_of_its_target() {
    for case in all_cases() {
        let Verdict::Accept { supersedes, .. } = &case.verdict else {
            continue;
        };
        if case.lives() {
            let rival = |job: &&ActiveJob| !job.superseded && !supersedes.contains(&job.id);
            let left = case.own_jobs().iter().find(rival);
            assert_eq!(left, None, "{}", case.words());
        }
    }
}

#[test]
fn a_tombstone_is_as_good_as_nothing() {
    for (_, instance) in instances(&binding_lanes()[1]) {
        let buried = instance.filter(|known| known.status == Status::Deleted);
        for (_, binding) in bindings() {
            for action in Action::ALL {
                let ask = Ask {
                    action,
                    digest: DIFFERENT,
                };
                let answer = admit(ask, buried.as_ref(), binding.as_ref());
                assert_eq!(answer, admit(ask, None, binding.as_ref()));
            }
        }
    }
}

#[test]
fn a_new_life_begins_only_where_none_is() {
    for case in all_cases() {
        if let Verdict::Accept { new_life, .. } = &case.verdict {
            assert_eq!(*new_life, !case.lives(), "{}", case.words());
        }
    }
}
