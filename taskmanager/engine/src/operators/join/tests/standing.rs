//! Regular joins: what their changes add up to is what nested loops over the rows that stand give, after every batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int8Array, Int64Array};
use arrow::datatypes::{Int8Type, Int64Type};
use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::{KeyGroupRange, key_groups};
use levada_common::plan::{BadRecordPolicy, JoinColumn, JoinKind, JoinScope, JoinSpec, OperatorKind, OperatorSpec};
use levada_common::types::{Column, LogicalType, RowKind, StreamSchema};
use levada_state::cold::ColdStores;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::build;
use super::rig::{MAX_PARALLELISM, stored};
use crate::metrics::NodeMetrics;
use crate::operator::{Operator, OperatorContext, RestoredState};

/// Key, number within the key, value.
pub(super) type Row = (Option<i64>, i64, i64);

/// What a row of the output says: left number and value, key, right number and value.
pub(super) type Out = [Option<i64>; 5];

#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) kind: JoinKind,
    /// Sides that are changelogs, with `-U` rows.
    pub(super) changelogs: [bool; 2],
    pub(super) ttl_ms: Option<i64>,
}

impl Case {
    fn is_changelog(&self) -> bool {
        self.changelogs != [false, false] || self.kind.keeps_left() || self.kind.keeps_right()
    }

    fn input(&self, side: usize) -> StreamSchema {
        let columns = [("k", true), ("u", false), ("v", false)];
        let columns = columns.map(|(name, nullable)| Column::new(name, LogicalType::Int64, nullable));
        StreamSchema { changelog: self.changelogs[side], ..StreamSchema::append(columns.to_vec()) }
    }

    pub(super) fn spec(&self) -> OperatorSpec {
        let unique = |side: usize| self.changelogs[side].then(|| vec!["k".to_string(), "u".to_string()]);
        let keys = vec!["k".to_string()];
        let mut columns = vec![JoinColumn::Left("u".into()), JoinColumn::Left("v".into())];
        columns.push(if self.kind.keeps_right() { JoinColumn::Key(0) } else { JoinColumn::Left("k".into()) });
        if self.kind.gives_pairs() {
            columns.extend([JoinColumn::Right("u".into()), JoinColumn::Right("v".into())]);
        }
        let output = (0..columns.len()).map(|at| Column::new(format!("c{at}"), LogicalType::Int64, true)).collect();
        let scope = JoinScope::Standing { ttl_ms: self.ttl_ms, left_unique: unique(0), right_unique: unique(1) };
        let (left_keys, right_keys) = (keys.clone(), keys);
        let join = JoinSpec { kind: self.kind, left_keys, right_keys, scope, right: self.input(1), columns };
        OperatorSpec {
            uid: Uid::new("standing"),
            clause: "join".into(),
            kind: OperatorKind::Join(Box::new(join)),
            input: self.input(0),
            output: StreamSchema { changelog: self.is_changelog(), ..StreamSchema::append(output) },
            sides: Vec::new(),
            bad_records: BadRecordPolicy::Fail,
        }
    }

    pub(super) fn batch(&self, side: usize, rows: &[(RowKind, Row)]) -> RecordBatch {
        let ops: ArrayRef = Arc::new(Int8Array::from_iter_values(rows.iter().map(|(op, _)| *op as i8)));
        let ints =
            |of: fn(&Row) -> Option<i64>| -> ArrayRef { Arc::new(Int64Array::from_iter(rows.iter().map(|(_, row)| of(row)))) };
        let columns = [ints(|row| row.0), ints(|row| Some(row.1)), ints(|row| Some(row.2))];
        let columns = self.changelogs[side].then_some(ops).into_iter().chain(columns).collect();
        RecordBatch::try_new(self.input(side).to_arrow(), columns).expect("columns match the schema")
    }

    /// The join of these rows by nested loops, as a multiset.
    pub(super) fn nested_loops(&self, [left, right]: &[Vec<Row>; 2]) -> BTreeMap<Out, i64> {
        let met = |one: &Row, other: &Row| one.0.is_some() && one.0 == other.0;
        let mut rows = BTreeMap::new();
        let mut give = |one: Option<&Row>, other: Option<&Row>| {
            let key = one.or(other).expect("there is a row").0;
            let row = [one.map(|row| row.1), one.map(|row| row.2), key, other.map(|row| row.1), other.map(|row| row.2)];
            *rows.entry(row).or_insert(0) += 1;
        };
        for one in left {
            let others: Vec<&Row> = right.iter().filter(|other| met(one, other)).collect();
            match self.kind {
                JoinKind::Semi | JoinKind::Anti if others.is_empty() == (self.kind == JoinKind::Anti) => give(Some(one), None),
                JoinKind::Semi | JoinKind::Anti => {}
                JoinKind::Left | JoinKind::Full if others.is_empty() => give(Some(one), None),
                _ => others.into_iter().for_each(|other| give(Some(one), Some(other))),
            }
        }
        if self.kind.keeps_right() {
            right.iter().filter(|other| !left.iter().any(|one| met(one, other))).for_each(|other| give(None, Some(other)));
        }
        rows
    }
}

pub(super) struct Rig {
    case: Case,
    pub(super) operator: Box<dyn Operator>,
    pub(super) metrics: Arc<NodeMetrics>,
    /// What the changes so far add up to.
    pub(super) sum: BTreeMap<Out, i64>,
}

impl Rig {
    fn new(case: Case, restored: Vec<RestoredState>, key_groups: KeyGroupRange) -> Self {
        Self::before(case, restored, key_groups, None)
    }

    /// In front of a store, or none.
    pub(super) fn before(
        case: Case,
        restored: Vec<RestoredState>,
        key_groups: KeyGroupRange,
        cold: Option<Arc<dyn ColdStores>>,
    ) -> Self {
        let spec = case.spec();
        let OperatorKind::Join(join) = &spec.kind else { panic!("it is a join") };
        let mut operator = build(&spec, join).expect("the plan is good");
        let base = crate::testing::context("standing", 7);
        let context = OperatorContext { key_groups, max_parallelism: MAX_PARALLELISM, cold, ..base };
        operator.open(&context, restored).expect("it opens");
        Self { case, operator, metrics: context.metrics, sum: BTreeMap::new() }
    }

    pub(super) fn process(&mut self, side: usize, rows: &[(RowKind, Row)]) {
        let mut asked = 0;
        while !self.operator.is_ready().expect("the store has no errors") {
            self.operator.background().expect("the store has no errors");
            asked += 1;
            assert!(asked < 1_000, "there is no room, and nothing makes any");
        }
        self.operator.process(side, self.case.batch(side, rows)).expect("rows are taken in");
        while let Some(batch) = self.operator.poll().expect("output is polled") {
            assert!((1..=7).contains(&batch.num_rows()));
            self.add_up(&batch);
        }
    }

    fn add_up(&mut self, batch: &RecordBatch) {
        let first = usize::from(self.case.is_changelog());
        for row in 0..batch.num_rows() {
            let op = if first == 1 { batch.column(0).as_primitive::<Int8Type>().value(row) } else { 0 };
            let mut out: Out = [None; 5];
            for (at, column) in batch.columns()[first..].iter().enumerate() {
                out[at] = column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row));
            }
            let count = self.sum.entry(out).or_insert(0);
            *count += if op == RowKind::Insert as i8 || op == RowKind::UpdateAfter as i8 { 1 } else { -1 };
            assert!(*count >= 0, "{:?}: {out:?} is taken back and was not there", self.case);
            if *count == 0 {
                self.sum.remove(&out);
            }
        }
    }

    fn snapshot(&mut self, more: impl FnOnce(&mut Self)) -> Vec<RestoredState> {
        let parts = self.operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken");
        more(self);
        while self.operator.background().expect("pieces are sent") {}
        parts.into_iter().map(stored).collect()
    }
}

fn changes(rng: &mut StdRng, case: &Case, side: usize, standing: &mut Vec<Row>) -> Vec<(RowKind, Row)> {
    changes_of(rng, case, side, standing, 4)
}

/// Changes of a side at random, of so many keys, applied to what stands there.
pub(super) fn changes_of(rng: &mut StdRng, case: &Case, side: usize, standing: &mut Vec<Row>, keys: i64) -> Vec<(RowKind, Row)> {
    let mut rows = Vec::new();
    for _ in 0..rng.random_range(1..12) {
        let key = rng.random_bool(0.9).then(|| rng.random_range(0..keys));
        let row: Row = (key, rng.random_range(0..3), rng.random_range(0..100));
        if !case.changelogs[side] {
            standing.push(row);
            rows.push((RowKind::Insert, row));
            continue;
        }
        match standing.iter_mut().find(|other| (other.0, other.1) == (row.0, row.1)) {
            None => {
                standing.push(row);
                rows.push((RowKind::Insert, row));
            }
            Some(other) if rng.random_bool(0.5) => {
                if rng.random_bool(0.5) {
                    rows.push((RowKind::UpdateBefore, *other));
                }
                *other = row;
                rows.push((RowKind::UpdateAfter, row));
            }
            Some(other) => {
                let gone = *other;
                standing.retain(|row| *row != gone);
                rows.push((RowKind::Delete, gone));
            }
        }
    }
    rows
}

pub(super) fn case(rng: &mut StdRng) -> Case {
    let kind = JoinKind::ALL[rng.random_range(0..JoinKind::ALL.len())];
    Case { kind, changelogs: [rng.random_bool(0.5), rng.random_bool(0.5)], ttl_ms: None }
}

#[test]
fn changes_add_up_to_nested_loops_after_every_batch() {
    for seed in 0..600 {
        let mut rng = StdRng::seed_from_u64(seed);
        let case = case(&mut rng);
        let (mut rig, mut standing) = (Rig::new(case, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM)), [Vec::new(), Vec::new()]);
        for step in 0..12 {
            let side = rng.random_range(0..2);
            let rows = changes(&mut rng, &case, side, &mut standing[side]);
            rig.process(side, &rows);
            assert_eq!(rig.sum, case.nested_loops(&standing), "seed {seed}, step {step}, {case:?}");
        }
    }
}

#[test]
fn a_restored_join_goes_on_as_if_nothing_had_been() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let case = case(&mut rng);
        let (mut rig, mut standing) = (Rig::new(case, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM)), [Vec::new(), Vec::new()]);
        for _ in 0..6 {
            let side = rng.random_range(0..2);
            let rows = changes(&mut rng, &case, side, &mut standing[side]);
            rig.process(side, &rows);
        }
        let sum = rig.sum.clone();
        let mut elsewhere = standing.clone();
        let restored = rig.snapshot(|rig| {
            // What is done to it afterwards is not in the snapshot.
            let rows = changes(&mut rng, &case, 0, &mut elsewhere[0]);
            rig.process(0, &rows);
        });
        let parallelism = rng.random_range(1..4);
        let ranges = (0..parallelism).map(|subtask| KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM));
        let mut parts: Vec<(KeyGroupRange, Rig)> = ranges.map(|range| (range, Rig::new(case, restored.clone(), range))).collect();
        // What each part takes back may have gone out before the restore.
        parts.iter_mut().for_each(|(_, part)| part.sum = sum.clone());
        for _ in 0..6 {
            let side = rng.random_range(0..2);
            let rows = changes(&mut rng, &case, side, &mut standing[side]);
            let keys: ArrayRef = Arc::new(Int64Array::from_iter(rows.iter().map(|(_, row)| row.0)));
            let mut groups = Vec::new();
            key_groups(&[keys], MAX_PARALLELISM, &mut groups);
            for (range, part) in &mut parts {
                let mine = rows.iter().zip(&groups).filter(|(_, group)| range.contains(**group)).map(|(row, _)| *row);
                let mine: Vec<_> = mine.collect();
                if !mine.is_empty() {
                    part.process(side, &mine);
                }
            }
        }
        let mut all = sum.clone();
        for (_, part) in parts {
            for row in part.sum.keys().chain(sum.keys()).copied().collect::<std::collections::BTreeSet<_>>() {
                let change = part.sum.get(&row).copied().unwrap_or(0) - sum.get(&row).copied().unwrap_or(0);
                *all.entry(row).or_insert(0) += change;
            }
        }
        all.retain(|_, count| *count != 0);
        assert_eq!(all, case.nested_loops(&standing), "seed {seed}, {case:?}, parallelism {parallelism}");
    }
}

/// Case G46.
#[test]
fn a_time_to_live_is_switched_on_and_off_across_restores() {
    let of_ttl = |ttl_ms| Case { kind: JoinKind::Inner, changelogs: [false, false], ttl_ms };
    let opened = |ttl_ms, restored| Rig::new(of_ttl(ttl_ms), restored, KeyGroupRange::all(MAX_PARALLELISM));
    let meets = |rig: &mut Rig, time: i64| {
        rig.sum.clear();
        rig.process(0, &[(RowKind::Insert, (Some(1), time, time))]);
        rig.sum.len()
    };
    let mut without = opened(None, Vec::new());
    without.process(1, &[(RowKind::Insert, (Some(1), 0, 20))]);
    let mut with = opened(Some(1_600), without.snapshot(|_| {}));
    with.operator.tick(1_000_000).unwrap();
    assert_eq!(meets(&mut with, 1), 1);
    with.operator.tick(1_001_500).unwrap();
    assert_eq!(meets(&mut with, 2), 1, "the row that was restored stands for its time");
    let mut again = opened(None, with.snapshot(|_| {}));
    assert_eq!(meets(&mut again, 3), 1, "it stands for good");
    with.operator.tick(1_001_700).unwrap();
    assert_eq!(meets(&mut with, 4), 0);
}

#[test]
fn rows_live_for_their_time_and_are_forgotten_without_a_word() {
    let case = Case { kind: JoinKind::Left, changelogs: [false, true], ttl_ms: Some(1_600) };
    let mut rig = Rig::new(case, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM));
    assert!(rig.operator.keeps_time());
    rig.operator.tick(0).unwrap();
    rig.process(0, &[(RowKind::Insert, (Some(1), 0, 10))]);
    rig.process(1, &[(RowKind::Insert, (Some(1), 0, 20))]);
    rig.operator.tick(1_599).unwrap();
    rig.process(0, &[(RowKind::Insert, (Some(1), 1, 11))]);
    assert_eq!(rig.sum.len(), 2, "both meet the right row: {:?}", rig.sum);
    let next = rig.operator.tick(1_700).unwrap().expect("it wants to hear the time");
    assert!((1_701..=1_800).contains(&next), "{next}");
    // The first left row and the right one are gone, of which nothing is said; what comes now finds the second left row only.
    assert_eq!(rig.sum.len(), 2);
    rig.process(0, &[(RowKind::Insert, (Some(1), 2, 12))]);
    assert_eq!(rig.sum.get(&[Some(2), Some(12), Some(1), None, None]), Some(&1));
    rig.process(1, &[(RowKind::Insert, (Some(1), 0, 21))]);
    assert_eq!(rig.sum.get(&[Some(1), Some(11), Some(1), Some(0), Some(21)]), Some(&1));
    assert_eq!(rig.sum.get(&[Some(0), Some(10), Some(1), Some(0), Some(21)]), None);
}
