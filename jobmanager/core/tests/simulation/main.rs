//! The core of the JobManager against simulated TaskManagers, network and storage, with faults from a seed.
//!
//! Each run has faults for a while, then heals; invariants (a file each) watch every event and effect, and look at the end.
//! A failing run prints its seed; `LEVADA_SIMULATION_SEED=<seed>` runs that one alone. Gates keep the runs from becoming empty.

mod dataflow;
mod faults;
mod invariants;
mod managers;
mod network;
mod plan;
mod shell;
mod tally;
mod task;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tally::Tally;
use world::World;

/// Runs in one test.
const SEEDS: u64 = 500;

fn run(seed: u64) -> Tally {
    match catch_unwind(AssertUnwindSafe(|| World::new(seed).run())) {
        Ok(tally) => tally,
        Err(panic) => {
            eprintln!("seed {seed}: run it alone with LEVADA_SIMULATION_SEED={seed}");
            resume_unwind(panic)
        }
    }
}

#[test]
fn invariants_hold_whatever_goes_wrong() {
    if let Ok(seed) = std::env::var("LEVADA_SIMULATION_SEED") {
        println!("{:#?}", run(seed.parse().expect("a seed is a number")));
        return;
    }
    let mut total = Tally::default();
    for seed in 0..SEEDS {
        total.add(&run(seed));
    }
    println!("{total:#?}");
    total.assert_not_empty(SEEDS);
}

#[test]
fn a_seed_is_a_run() {
    for seed in [3, 17] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
