//! Frozen rows against a table that is cloned at each barrier.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What a test does to a table.
#[derive(Debug, Clone)]
enum Step {
    /// Writes these rows, those beyond the end as new ones.
    Write(Vec<u32>),
    Background(usize),
    Barrier,
    /// A barrier for the rows whose number is divisible by this.
    BarrierOf(u32),
    Abandon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::collection::vec(0u32..300, 1..40).prop_map(Step::Write),
        6 => (1usize..60).prop_map(Step::Background),
        2 => Just(Step::Barrier),
        1 => (2u32..5).prop_map(Step::BarrierOf),
        1 => Just(Step::Abandon),
    ];
    prop::collection::vec(step, 1..80)
}

/// A table, its running snapshot, and what each snapshot should have had and had.
#[derive(Debug, Default)]
struct Table {
    values: Vec<i64>,
    frozen: FrozenRows,
    snapshots: Vec<(BTreeMap<u32, i64>, BTreeMap<u32, i64>)>,
}

impl Table {
    /// Saves these rows; each must come once.
    fn save(&mut self, ids: &[u32]) {
        for id in ids {
            let (_, saved) = self.snapshots.last_mut().expect("one is running");
            assert_eq!(saved.insert(*id, self.values[*id as usize]), None, "row {id} came twice");
        }
    }

    fn save_next(&mut self, rows: usize) {
        let mut ids = Vec::new();
        self.frozen.take_next(rows, &mut ids);
        self.save(&ids);
    }

    fn finish(&mut self) {
        while self.frozen.is_running() {
            self.save_next(64);
        }
    }

    fn barrier(&mut self, every: u32) {
        self.finish();
        let rows = self.values.iter().enumerate().map(|(id, value)| (id as u32, *value));
        let expected: BTreeMap<u32, i64> = rows.filter(|(id, _)| id % every == 0).collect();
        if every == 1 {
            self.frozen.freeze();
        } else {
            let mut words = vec![0; self.values.len().div_ceil(64)];
            expected.keys().for_each(|id| words[*id as usize / 64] |= 1 << (id % 64));
            self.frozen.freeze_these(&words);
        }
        self.snapshots.push((expected, BTreeMap::new()));
    }

    fn write(&mut self, ids: &[u32], value: i64) {
        let ids: Vec<u32> = ids.iter().map(|id| (*id).min(self.values.len() as u32)).collect();
        let mut unsaved = Vec::new();
        self.frozen.take_unsaved(&ids, &mut unsaved);
        self.save(&unsaved);
        for id in ids {
            if id as usize == self.values.len() {
                self.values.push(0);
            }
            self.values[id as usize] = value;
        }
        self.frozen.resize(self.values.len());
    }
}

proptest! {
    #[test]
    fn a_snapshot_is_the_table_at_its_barrier(steps in steps()) {
        let mut table = Table::default();
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Write(ids) => table.write(ids, at as i64),
                Step::Background(rows) => table.save_next(*rows),
                Step::Barrier => table.barrier(1),
                Step::BarrierOf(every) => table.barrier(*every),
                Step::Abandon => {
                    if table.frozen.is_running() {
                        table.frozen.abandon();
                        table.snapshots.pop();
                    }
                }
            }
        }
        table.finish();
        for (expected, saved) in table.snapshots {
            prop_assert_eq!(saved, expected);
        }
    }
}

#[test]
fn an_empty_table_is_frozen_and_finished() {
    let mut table = Table::default();
    table.barrier(1);
    assert!(!table.frozen.is_running(), "there is nothing to save");
}

#[test]
fn what_is_left_of_a_snapshot_is_handed_over() {
    let (mut rows, mut saved, mut rest) = (FrozenRows::new(), Vec::new(), vec![1]);
    rows.resize(200);
    rows.freeze();
    rows.take_next(70, &mut saved);
    assert!(rows.take(150));
    rows.resize(230);
    rows.take_rest(&mut rest);
    let left: Vec<usize> = (0..rest.len() * 64).filter(|row| rest[row / 64] >> (row % 64) & 1 == 1).collect();
    let expected: Vec<usize> = std::iter::once(0).chain(70..150).chain(151..200).collect();
    assert_eq!(left, expected);
    assert!(!rows.is_running() && !rows.is_unsaved(199));
}
