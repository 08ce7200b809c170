//! Aggregates of a library: their states move and are found again, and what the library says is said with names.

use std::collections::BTreeMap;

use levada_common::keys::KeyGroupRange;
use levada_common::plan::WindowSpec;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng};

use super::rig::{MAX_PARALLELISM, Rig, Row, batch, spec, store, tumbling};
use super::sessions::session;
use crate::error::EngineError;
use crate::testing::collect;

#[test]
fn states_of_many_groups_are_found_though_they_move() {
    for seed in 0..3 {
        let aggregate = spec(&["k"], WindowSpec::Global, vec![collect("all")]);
        let (mut rig, mut rng) = (Rig::new(&aggregate), StdRng::seed_from_u64(seed));
        let mut model = BTreeMap::<i64, i64>::new();
        for round in 0..40 {
            if round == 20 {
                let parts = rig.barrier(1);
                let restored = store(parts, || rig.background());
                rig = Rig::restored(&aggregate, restored, KeyGroupRange::all(MAX_PARALLELISM));
            }
            let rows: Vec<Row> = (0..2000).map(|_| (rng.random_range(0..20_000), 0, rng.random_range(-9..9))).collect();
            rows.iter().for_each(|row| *model.entry(row.0).or_default() += 1000 + row.2);
            rig.process(&rows);
        }
        rig.finish();
        let mut found = rig.take_rows();
        let mut expected: Vec<String> = model.into_iter().map(|(key, result)| format!("{key},{result}")).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn what_a_library_cannot_take_fails_by_name() {
    let mut rig = Rig::new(&spec(&["k"], WindowSpec::Running, vec![collect("all")]));
    match rig.try_process(batch(&[(1, 0, i64::MAX)])) {
        Err(error @ EngineError::LibraryAggregate { .. }) => assert_eq!(
            error.to_string(),
            "node \"counts\": collect \"all\" cannot be computed: it has no room for the greatest number"
        ),
        other => panic!("{other:?}"),
    }
}

/// The call of a library that cannot give a result out fails the task, whoever reads it.
#[test]
fn what_a_library_cannot_give_out_fails_by_name() {
    for window in [WindowSpec::Running, tumbling(10), WindowSpec::Count { size: 1, slide: 1 }, session(10)] {
        let mut rig = Rig::new(&spec(&["k"], window.clone(), vec![collect("all")]));
        let given = rig.try_process(batch(&[(1, 0, i64::MIN)])).and_then(|()| rig.try_finish());
        let error = given.expect_err("it cannot be read");
        assert_eq!(
            error.to_string(),
            "node \"counts\": collect \"all\" cannot be computed: it cannot give the least number out",
            "{window:?}"
        );
    }
}
