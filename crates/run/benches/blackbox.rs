//! What naming a driving step costs, against a floor taken in the same run: a mutex that nobody
//! else wants, locked and unlocked twice, which is what a step takes to keep others apart.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use criterion::Criterion;
use evenkeel_run::RunRoot;
use evenkeel_run::blackbox::{Alone, BlackBox, Wish};

fn step(alone: Option<bool>) -> Wish {
    Wish {
        attempt: [7; 16],
        alone: alone.map(|through| Alone {
            patience: Duration::from_secs(1),
            through,
        }),
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let dir = tempfile::tempdir().expect("a folder");
    let root = RunRoot::open(&dir.path().join("run"), "root").expect("a run root");
    let own = BlackBox::create(&root, "boot").expect("a black box");
    let mut group = criterion.benchmark_group("blackbox");
    let lock = Mutex::new(0_u32);
    group.bench_function("floor", |bencher| {
        bencher.iter(|| {
            for _ in 0..2 {
                *lock.lock().expect("nobody panics") += 1;
            }
        });
    });
    group.bench_function("step", |bencher| {
        bencher.iter(|| drop(black_box(own.enter(step(None)))));
    });
    for (name, through) in [("exclusive step", false), ("written through", true)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| drop(black_box(own.enter(step(Some(through))))));
        });
    }
    group.finish();
    criterion.final_summary();
}
