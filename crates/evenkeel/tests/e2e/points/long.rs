//! Pairs and triples: a sample in the suite, all pairs by `./scripts/prove points`: about an hour on
//! two quiet processors.
//!
//! The two of a pair are reached one after the other, both: but for those of which `reach.rs` says
//! that they cannot be, and then the second is not reached.

use std::collections::BTreeMap;
use std::fs;

use super::life::{Life, side_by_side};
use super::reach::{self, RECOVERY, Run, SWEEP};
use super::{BROKER, SHIM, kill, killed_at, singles, warden};
use crate::stage::ACTIONS;

/// Pairs in the short form, and triples in the long one, for each seed.
const SAMPLE: usize = 6;
const TRIPLES: usize = 300;

/// All that a provision passes by.
fn path() -> Vec<&'static str> {
    BROKER
        .into_iter()
        .chain(SHIM.iter().map(|shim| shim.point))
        .collect()
}

/// Points of a provision at which brokers and shims die.
#[derive(Clone, Debug)]
struct Kills {
    points: Vec<&'static str>,
    /// Armed when a broker has died: boots pass it anyway.
    later: Option<&'static str>,
    /// What the next broker finds of a run that the first death leaves alive.
    run: Run,
    /// Without a namespace of its own: what a shim leaves has to be swept.
    swept: bool,
}

impl Kills {
    fn at(points: Vec<&'static str>) -> Self {
        Self {
            points,
            later: None,
            run: Run::Either,
            swept: false,
        }
    }

    fn pair(first: &'static str, second: &'static str) -> Self {
        let run = match second {
            "engine.watch" | "engine.ended" => Run::Alive,
            "engine.exited" => Run::Ended,
            _ => Run::Either,
        };
        let of = Self {
            run,
            ..Self::at(vec![first])
        };
        if RECOVERY.contains(&second) {
            return Self {
                later: Some(second),
                ..of
            };
        }
        Self {
            points: vec![first, second],
            swept: SWEEP.contains(&second),
            ..of
        }
    }

    fn reachable(&self) -> usize {
        let later: Vec<_> = self.later.into_iter().collect();
        reach::reached(&self.points, &later, self.run)
    }

    fn second(&self) -> &'static str {
        let second = self.points.get(1).copied();
        second.or(self.later).expect("it is a pair")
    }

    fn all(&self) -> usize {
        self.points.len() + usize::from(self.later.is_some())
    }

    /// As rules. The same point again is the same rule, for so many times.
    fn rules(&self) -> Vec<String> {
        let mut times = BTreeMap::new();
        for point in &self.points {
            *times.entry(point).or_insert(0) += 1;
        }
        let rule = |(point, times)| format!("{point}~^provision=kill@{times}");
        times.into_iter().map(rule).collect()
    }

    /// What is about a boot has no job for its subject.
    fn later_rule(&self) -> Option<String> {
        let later = self.later?;
        let of_boot = later == "recovery.deaths" || later.starts_with("store.close_boot");
        Some(if of_boot {
            format!("{later}=kill@1")
        } else {
            kill(later, "provision")
        })
    }

    /// Whether the run has to be alive when the first broker has died, or its tree when its shim has.
    fn waits_at_the_gate(&self) -> bool {
        // Where no run is left alive there is none to wait for.
        let left = reach::left_at(self.points[0], Run::Alive);
        let alive = matches!(
            left,
            Some(reach::Left::Held {
                run: Run::Alive,
                ..
            })
        );
        self.swept || (self.run == Run::Alive && alive)
    }

    /// A provision with these deaths, and the end of its instance. How many there were.
    async fn happen(self) -> usize {
        let shims: Vec<_> = self
            .points
            .iter()
            .filter_map(|point| SHIM.iter().find(|shim| shim.point == *point))
            .collect();
        let most = 1 + shims.iter().map(|shim| shim.starts.1 - 1).sum::<usize>();
        let crashes = shims.iter().filter(|shim| shim.charge == Some("crash"));
        let crashes = crashes.count();
        let toml = if self.swept {
            "[process]\ncontainment = \"sweep\""
        } else {
            ""
        };
        let mut life = Life::begin(self.rules(), toml).await;
        life.later = self.later_rule();
        life.run_ends_first = self.run == Run::Ended;
        if self.waits_at_the_gate() {
            fs::remove_file(life.victim.gate()).unwrap();
            let poll = life.order("provision").await.expect("it waits at its gate");
            if self.swept {
                life.dies(self.reachable()).await;
            } else {
                life.has_died_once().await;
                life.settled().await;
            }
            life.victim.open_gate();
            life.succeeds(&poll, life.company_ends_after).await;
        } else {
            life.does("provision").await;
        }
        let starts = life.victim.starts("provision");
        assert!((1..=most).contains(&starts), "{starts} starts: {self:?}");
        life.does("deprovision").await;
        // Housekeeping comes by after all that.
        let reachable = self.reachable();
        life.dies(reachable).await;
        life.settled().await;
        let reached = life.used_up();
        assert!(reached > 0, "{self:?}");
        let end = life.end_as_far_as_it_came().await;
        end.all_succeeded();
        let charges = end.charges("provision");
        let charged = |what: &str| charges.iter().filter(|charge| *charge == what).count();
        assert!(charged("crash") <= crashes, "{charges:?}: {self:?}");
        // A suspect after two deaths; what comes then is in isolation.
        let losses = self.all().saturating_sub(2);
        assert!(charged("loss") <= losses, "{charges:?}: {self:?}");
        reached
    }
}

/// Two deaths, as far as the rule has them.
async fn both(pair: Kills) -> usize {
    let (told, reachable) = (format!("{pair:?}"), pair.reachable());
    let reached = pair.happen().await;
    assert_eq!(reached, reachable, "the rule of reach.rs is wrong: {told}");
    reached
}

/// Three deaths, or more of them than the rule has, which leaves open what it cannot know.
async fn all_three(triple: Kills) -> usize {
    let (told, reachable) = (format!("{triple:?}"), triple.reachable());
    let reached = triple.happen().await;
    assert!(
        reached >= reachable,
        "the rule of reach.rs is wrong: {told}"
    );
    reached
}

/// All pairs of points that a provision passes, in both orders that there are of two that are one;
/// after the death of a broker, each with all points of recovery; and what is swept where a run has
/// no namespace. A broker whose shim dies lives on, and has nothing to recover.
fn pairs() -> Vec<Kills> {
    let path = path();
    let mut pairs = Vec::new();
    for (number, first) in path.iter().enumerate() {
        pairs.extend(
            path[number..]
                .iter()
                .map(|second| Kills::pair(first, second)),
        );
        if BROKER.contains(first) {
            pairs.extend(RECOVERY.iter().map(|second| Kills::pair(first, second)));
        }
    }
    pairs.extend(
        SWEEP
            .iter()
            .map(|second| Kills::pair("shim.go.after", second)),
    );
    pairs
}

/// Says which pairs cannot both be reached, by what their first point leaves.
#[expect(clippy::print_stdout, reason = "the figures of the proof")]
fn tell_unreachable(pairs: &[Kills]) {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for pair in pairs.iter().filter(|pair| pair.reachable() < pair.all()) {
        let left = reach::left_at(pair.points[0], Run::Either);
        let reason = left.map_or("the shim has written its record", reach::Left::never);
        let told = reasons.entry(reason).or_default();
        told.push(format!("{} then {}", pair.points[0], pair.second()));
    }
    let count = reasons.values().map(Vec::len).sum::<usize>();
    println!("{} pairs, {count} of them not both", pairs.len());
    for (reason, which) in reasons {
        println!(
            "not both, {} pairs ({reason}): {}",
            which.len(),
            which.join(", ")
        );
    }
}

/// SplitMix64: a sample that a seed names.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

/// The figures of lives that have gone as they should.
#[expect(clippy::print_stdout, reason = "the figures of the proof")]
fn tell(lives: &[Kills], reached: &[usize]) {
    let whole = lives.iter().filter(|life| life.reachable() == life.all());
    let most = lives.iter().map(Kills::all).max().unwrap_or_default();
    let counted = (0..=most).map(|deaths| reached.iter().filter(|all| **all == deaths).count());
    println!(
        "seed {}: {} lives; with 0, 1, … deaths: {:?}; all points to be reached by the rule: {}",
        seed(),
        lives.len(),
        counted.collect::<Vec<_>>(),
        whole.count(),
    );
}

/// `EVENKEEL_SEED`, else always the same.
fn seed() -> u64 {
    std::env::var("EVENKEEL_SEED").map_or(4, |seed| seed.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_i3_brokers_and_shims_killed_at_a_sample_of_pairs_of_steps_change_nothing() {
    let (pairs, mut dice) = (pairs(), Dice(seed()));
    let sample = (0..SAMPLE).map(|_| pairs[dice.below(pairs.len())].clone());
    side_by_side(sample.collect::<Vec<_>>().into_iter().map(both)).await;
}

#[test]
fn most_pairs_are_reached_both_and_each_point_is_in_one_that_is() {
    let pairs = pairs();
    let both = pairs.iter().filter(|pair| pair.reachable() == pair.all());
    let both: Vec<_> = both.collect();
    tell_unreachable(&pairs);
    assert!(pairs.iter().all(|pair| pair.reachable() > 0));
    assert!(
        4 * both.len() > 3 * pairs.len(),
        "{} of {}",
        both.len(),
        pairs.len()
    );
    for point in BROKER {
        assert!(both.iter().any(|pair| pair.points[0] == point), "{point}");
    }
    for point in path().into_iter().chain(RECOVERY).chain(SWEEP) {
        assert!(both.iter().any(|pair| pair.second() == point), "{point}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes: ./scripts/prove points sample"]
async fn long_each_step_as_the_first_and_as_the_second_of_some_pair() {
    let (pairs, mut dice) = (pairs(), Dice(seed()));
    let mut chosen = Vec::new();
    for point in path().iter().chain(&RECOVERY).chain(&SWEEP) {
        let first = |pair: &&Kills| pair.points[0] == *point;
        let second = |pair: &&Kills| pair.second() == *point;
        for some in [
            pairs.iter().filter(first).collect::<Vec<_>>(),
            pairs.iter().filter(second).collect(),
        ] {
            if !some.is_empty() {
                chosen.push(some[dice.below(some.len())].clone());
            }
        }
    }
    tell(
        &chosen,
        &side_by_side(chosen.clone().into_iter().map(both)).await,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ./scripts/prove points"]
async fn long_every_step_of_every_action() {
    let lives = (0..ACTIONS.len()).flat_map(singles);
    side_by_side(lives.map(killed_at)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ./scripts/prove points"]
async fn long_every_step_of_every_action_with_the_warden_killed_over_its_record() {
    // Each action meets each point, and each point of the broker one of the warden's.
    let lives = (0..BROKER.len()).map(|first| {
        let all = BROKER.into_iter().cycle().skip(first);
        all.take(ACTIONS.len()).collect()
    });
    side_by_side(lives.map(warden::killed_with_its_broker)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ./scripts/prove points"]
async fn long_every_pair_of_steps_of_a_provision() {
    let pairs = pairs();
    tell_unreachable(&pairs);
    tell(
        &pairs,
        &side_by_side(pairs.clone().into_iter().map(both)).await,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ./scripts/prove points"]
async fn long_a_sample_of_triples_of_steps_of_a_provision() {
    let (path, mut dice) = (path(), Dice(seed()));
    let triples: Vec<_> = (0..TRIPLES)
        .map(|_| Kills::at((0..3).map(|_| path[dice.below(path.len())]).collect()))
        .collect();
    tell(
        &triples,
        &side_by_side(triples.clone().into_iter().map(all_three)).await,
    );
}
