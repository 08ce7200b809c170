//! Values that are told apart, against sets: over rows, in windows, and over a changelog.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int8Type, Int64Type};
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{
    AggregateCall, AssignSpec, BadRecordPolicy, DistinctSpec, OperatorKind, OperatorSpec, WindowSpec, WindowTime,
};
use levada_common::types::{Column, LogicalType, RowKind, StreamSchema};
use levada_state::cold::memory::MemoryColdStores;
use levada_state::cold::{ColdStores, OverlayBudget};
use proptest::prelude::*;

use super::super::distinct::build;
use super::changes::{self, apply};
use super::rig::{self, MAX_PARALLELISM, Rig, Row, in_range, store, tumbling};
use super::store::{Databases, memory, split_parts};
use super::windows::{Step, steps};
use crate::operator::RestoredState;
use crate::testing::Closures;

fn opened(input: StreamSchema, distinct: &DistinctSpec, restored: Vec<RestoredState>, range: KeyGroupRange) -> Rig {
    opened_before(None, input, distinct, restored, range)
}

fn opened_before(
    cold: Option<Arc<dyn ColdStores>>,
    input: StreamSchema,
    distinct: &DistinctSpec,
    restored: Vec<RestoredState>,
    range: KeyGroupRange,
) -> Rig {
    let spec = OperatorSpec {
        uid: Uid::new("counts"),
        clause: "aggregate".into(),
        kind: OperatorKind::Distinct(distinct.clone()),
        output: distinct.output(&input),
        input,
        sides: Vec::new(),
        bad_records: BadRecordPolicy::Fail,
    };
    Rig::of(build(&spec, distinct).expect("it is built"), cold, restored, range).expect("it opens")
}

/// The values of `v` by key `k`.
fn values(keyed: bool, window: WindowSpec) -> DistinctSpec {
    DistinctSpec {
        keys: keyed.then(|| "k".to_string()).into_iter().collect(),
        window,
        time: WindowTime::default(),
        lateness_ms: 0,
        values: vec!["v".into()],
    }
}

/// Time, key and marked value of each row that was given.
fn marks(batches: &[RecordBatch]) -> Vec<(Row, Option<i64>)> {
    let column = |batch: &RecordBatch, name: &str| batch.column_by_name(name).expect(name).as_primitive::<Int64Type>().clone();
    let rows = |batch: &RecordBatch| {
        let [k, t, v, marked] = ["k", "t", "v", "distinct(v)"].map(|name| column(batch, name));
        let row = |at: usize| ((k.value(at), t.value(at), v.value(at)), marked.is_valid(at).then(|| marked.value(at)));
        (0..batch.num_rows()).map(row).collect::<Vec<_>>()
    };
    batches.iter().flat_map(rows).collect()
}

/// Does the steps, at a time that never goes back, with the rows of `range`.
fn go(rig: &mut Rig, steps: &[Step], watermark: &mut i64, range: KeyGroupRange) {
    for step in steps {
        match step {
            Step::Rows(rows) => {
                let rows = in_range(rows, range);
                if !rows.is_empty() {
                    rig.try_process_whole(rig::batch(&rows));
                }
            }
            Step::Advance(to) => {
                *watermark = (*watermark).max(*to);
                rig.advance(*watermark);
            }
        }
    }
}

/// What a model of sets says of the rows of `steps`.
#[derive(Default)]
struct Model {
    sets: BTreeMap<(i64, i64), BTreeSet<i64>>,
    watermark: Option<i64>,
}

impl Model {
    fn go(&mut self, steps: &[Step], size: Option<i64>, keyed: bool) -> Vec<(Row, Option<i64>)> {
        let mut marks = Vec::new();
        for step in steps {
            match step {
                Step::Advance(to) => self.watermark = self.watermark.max(Some(*to)),
                Step::Rows(rows) => {
                    for row in rows {
                        let start = size.map_or(0, |size| row.1.div_euclid(size) * size);
                        let is_over = size.is_some_and(|size| self.watermark.is_some_and(|time| start + size - 1 <= time));
                        let set = self.sets.entry((start, if keyed { row.0 } else { 0 })).or_default();
                        marks.push((*row, (!is_over && set.insert(row.2)).then_some(row.2)));
                    }
                }
            }
        }
        marks
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn each_value_is_marked_once_though_it_was_restored(
        before in steps(),
        after in steps(),
        size in prop_oneof![Just(None), (5i64..40).prop_map(Some)],
        keyed in any::<bool>(),
        parallelism in 1u32..4,
    ) {
        let distinct = values(keyed, size.map_or(WindowSpec::Running, tumbling));
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        let (mut model, mut watermark) = (Model::default(), i64::MIN);
        let mut rig = opened(rig::input_schema(), &distinct, Vec::new(), everything);
        go(&mut rig, &before, &mut watermark, everything);
        prop_assert_eq!(marks(&rig.out), model.go(&before, size, keyed));

        let parts = rig.barrier(1);
        let mut ahead = watermark;
        go(&mut rig, &after, &mut ahead, everything);
        let restored = store(parts, || rig.background());
        let ranges: Vec<KeyGroupRange> = match keyed {
            true => (0..parallelism).map(|subtask| KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM)).collect(),
            false => vec![everything],
        };
        let mut found = Vec::new();
        for range in ranges {
            let mut rig = opened(rig::input_schema(), &distinct, restored.clone(), range);
            let mut watermark = watermark;
            rig.advance(watermark);
            go(&mut rig, &after, &mut watermark, range);
            found.extend(marks(&rig.out));
        }
        let mut expected = model.go(&after, size, keyed);
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn over_a_changelog_values_go_with_their_last_row(changes in changes::changes(), restores_at in 0usize..16) {
        let distinct = values(true, WindowSpec::Running);
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        let mut rig = opened(changes::input(), &distinct, Vec::new(), everything);
        let (mut table, mut counts) = (BTreeMap::new(), BTreeMap::<Option<i64>, i64>::new());
        for (at, batch) in changes.iter().enumerate() {
            if at == restores_at {
                let parts = rig.barrier(1);
                let restored = store(parts, || rig.background());
                rig = opened(changes::input(), &distinct, restored, everything);
            }
            let rows = apply(&mut table, batch);
            if rows.is_empty() {
                continue;
            }
            rig.try_process_whole(changes::batch(&rows));
            for batch in std::mem::take(&mut rig.out) {
                let (ops, keys) = (batch.column(0).as_primitive::<Int8Type>(), batch.column(1).as_primitive::<Int64Type>());
                let marked = batch.column_by_name("distinct(v)").expect("a mark");
                for row in (0..batch.num_rows()).filter(|row| marked.is_valid(*row)) {
                    let kind = RowKind::from_code(ops.value(row)).expect("a kind");
                    let comes = matches!(kind, RowKind::Insert | RowKind::UpdateAfter);
                    *counts.entry(keys.is_valid(row).then(|| keys.value(row))).or_default() += if comes { 1 } else { -1 };
                }
            }
            counts.retain(|_, count| *count != 0);
            let mut sets: BTreeMap<Option<i64>, BTreeSet<i64>> = BTreeMap::new();
            for (key, value, _) in table.values() {
                if let Some(value) = value {
                    sets.entry(*key).or_default().insert(*value);
                }
            }
            let expected: BTreeMap<Option<i64>, i64> = sets.into_iter().map(|(key, set)| (key, set.len() as i64)).collect();
            prop_assert_eq!(&counts, &expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// In front of a store that holds nearly everything a value goes with its last row all the same.
    #[test]
    fn in_front_of_a_store_the_same_rows_are_marked(changes in changes::changes(), restores_at in 0usize..16, memory in (memory(), memory())) {
        let distinct = values(true, WindowSpec::Running);
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        let stores = |memory: (usize, u32), databases: &Databases| -> Option<Arc<dyn ColdStores>> {
            let stores = MemoryColdStores::new(MAX_PARALLELISM, memory.1, OverlayBudget::new(memory.0));
            Some(Arc::new(stores.restored(databases.clone(), everything)))
        };
        let mut heap = opened(changes::input(), &distinct, Vec::new(), everything);
        let mut rig = opened_before(stores(memory.0, &Vec::new()), changes::input(), &distinct, Vec::new(), everything);
        let mut table = BTreeMap::new();
        for (at, batch) in changes.iter().enumerate() {
            if at == restores_at {
                let (databases, _) = split_parts(rig.barrier(1));
                while rig.background() {}
                let databases = databases.into_iter().map(|(_, database)| database).collect();
                rig = opened_before(stores(memory.1, &databases), changes::input(), &distinct, Vec::new(), everything);
            }
            let rows = apply(&mut table, batch);
            if !rows.is_empty() {
                heap.try_process_whole(changes::batch(&rows));
                rig.try_process_whole(changes::batch(&rows));
                rig.background();
                prop_assert_eq!(std::mem::take(&mut heap.out), std::mem::take(&mut rig.out), "batch {}", at);
            }
        }
    }
}

#[test]
fn windows_that_are_over_leave_nothing_behind() {
    let distinct = values(true, tumbling(10));
    let mut rig = opened(rig::input_schema(), &distinct, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM));
    let rows: Vec<Row> = (0..5000).map(|n| (n, n % 30, n)).collect();
    rig.try_process_whole(rig::batch(&rows));
    let parts = rig.barrier(1);
    rig.advance(19);
    let keys = rig.metrics.state_keys.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(keys, rows.iter().filter(|row| row.1 >= 20).count() as u64);
    let restored = store(parts, || rig.background());
    let saved: usize = restored.iter().flat_map(|state| &state.batches).map(RecordBatch::num_rows).sum();
    assert_eq!(saved, 5000, "what was open at the barrier is in the snapshot");
}

/// Assigns windows, tells values apart in them and counts those: operator by operator, as they are chained.
struct Chained {
    rigs: [Rig; 3],
}

impl Chained {
    fn new(window: WindowSpec) -> Self {
        let spec = |kind, input: StreamSchema, output| OperatorSpec {
            uid: Uid::new("counts"),
            clause: "aggregate".into(),
            kind,
            input,
            output,
            sides: Vec::new(),
            bad_records: BadRecordPolicy::Fail,
        };
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        let assign = AssignSpec { window, time: WindowTime::default(), lateness_ms: 0 };
        let assigned = assign.output(&rig::input_schema());
        let distinct = values(true, WindowSpec::Same);
        let marked = distinct.output(&assigned);
        let argument = Some(DistinctSpec::output_name("v"));
        let call = AggregateCall { argument, argument_nullable: true, ..AggregateCall::count("n") };
        let counts = rig::spec(&["k"], WindowSpec::Same, vec![call]);
        let column = |name: &str, ty| Column::new(name, ty, false);
        let bounds = ["window_start", "window_end", "window_time"].map(|name| column(name, LogicalType::Timestamp));
        let results = [column("k", LogicalType::Int64)].into_iter().chain(bounds).chain([column("n", LogicalType::Int64)]);
        let output = StreamSchema::append(results.collect());
        let first = spec(OperatorKind::Assign(assign.clone()), rig::input_schema(), assigned.clone());
        let last = spec(OperatorKind::Aggregate(counts.clone()), marked, output);
        let first = super::super::assign::build(&first, &assign).expect("it is built");
        let last =
            super::super::build(&last, &counts, &Closures::default(), &crate::function::Functions::new()).expect("it is built");
        let of = |operator| Rig::of(operator, None, Vec::new(), everything).expect("it opens");
        Self { rigs: [of(first), opened(assigned, &distinct, Vec::new(), everything), of(last)] }
    }

    fn go(&mut self, step: &Step, watermark: &mut i64) {
        match step {
            Step::Rows(rows) => {
                self.rigs[0].process(rows);
                for at in 0..2 {
                    let batches = std::mem::take(&mut self.rigs[at].out);
                    batches.into_iter().for_each(|batch| self.rigs[at + 1].try_process_whole(batch));
                }
            }
            Step::Advance(to) => {
                *watermark = (*watermark).max(*to);
                self.rigs.iter_mut().for_each(|rig| rig.advance(*watermark));
            }
        }
    }
}

/// Every window of a time: sliding ones of this size and slide.
fn sliding_windows(time: i64, size: i64, slide: i64) -> impl Iterator<Item = i64> {
    let last = time.div_euclid(slide) * slide;
    (0..).map(move |n| last - n * slide).take_while(move |start| start + size > time)
}

proptest! {
    #[test]
    fn overlapping_windows_have_their_own_values(steps in steps(), slide in 1i64..12, more in 0i64..20) {
        let size = slide + more;
        let mut chained = Chained::new(WindowSpec::Sliding { size_ms: size, slide_ms: slide, offset_ms: 0 });
        let (mut time, mut model, mut late) = (i64::MIN, BTreeMap::<(i64, i64), BTreeSet<i64>>::new(), 0);
        for step in steps.iter().chain([&Step::Advance(i64::MAX - 1)]) {
            if let Step::Rows(rows) = step {
                for row in rows {
                    let open: Vec<i64> =
                        sliding_windows(row.1, size, slide).filter(|start| start + size - 1 > time).collect();
                    late += u64::from(open.is_empty());
                    for start in open {
                        model.entry((start + size, row.0)).or_default().insert(row.2);
                    }
                }
            }
            chained.go(step, &mut time);
        }
        let mut found = chained.rigs[2].take_rows();
        let row = |((end, key), set): (&(i64, i64), &BTreeSet<i64>)| format!("{key},{},{end},{},{}", end - size, end - 1, set.len());
        let mut expected: Vec<String> = model.iter().map(row).collect();
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(chained.rigs[2].late_rows(), late);
    }
}
