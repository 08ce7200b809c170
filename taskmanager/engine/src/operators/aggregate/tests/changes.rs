//! Running aggregates over a changelog, against a table that is aggregated anew after each batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array, Int8Array, Int64Array, StringArray};
use arrow::datatypes::Int8Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::{KeyGroupRange, key_groups};
use levada_common::plan::{
    AggregateCall, AggregateFunction, AggregatePhase, AggregateSpec, BadRecordPolicy, OperatorKind, OperatorSpec, WindowSpec,
    WindowTime,
};
use levada_common::types::{Column, LogicalType, RowKind, StreamSchema};
use levada_state::cold::memory::MemoryColdStores;
use levada_state::cold::{ColdStores, OverlayBudget};
use proptest::prelude::*;

use super::super::build;
use super::rig::{MAX_PARALLELISM, Rig, rows_of, store};
use super::store::{Databases, as_part, memory, split_parts};
use crate::function::Functions;
use crate::operator::RestoredState;
use crate::testing::Closures;

/// A row of the table: key, value, text.
type Row = (Option<i64>, Option<i64>, Option<String>);

/// The row of this number becomes this one, or goes.
type Change = (u8, Option<Row>);

/// Rows with what happens to them.
pub(super) type Signed = (RowKind, Row);

pub(super) fn changes() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let key = prop_oneof![1 => Just(None), 6 => (0i64..4).prop_map(Some)];
    let value = prop_oneof![1 => Just(None), 6 => (-4i64..5).prop_map(Some), 1 => prop_oneof![Just(i64::MIN), Just(i64::MAX)].prop_map(Some)];
    let text = prop_oneof![1 => Just(None), 5 => (0u8..6).prop_map(|n| Some("xyz"[..n as usize / 2].to_string()))];
    let row = prop_oneof![2 => Just(None), 5 => (key, value, text).prop_map(Some)];
    prop::collection::vec(prop::collection::vec((0u8..12, row), 1..20), 1..16)
}

/// Applies a batch of changes to the table; answers the rows of its changelog.
pub(super) fn apply(table: &mut BTreeMap<u8, Row>, changes: &[Change]) -> Vec<Signed> {
    let mut rows = Vec::new();
    for (number, row) in changes {
        let before = match row {
            Some(row) => table.insert(*number, row.clone()),
            None => table.remove(number),
        };
        match (before, row) {
            (None, None) => {}
            (None, Some(row)) => rows.push((RowKind::Insert, row.clone())),
            (Some(before), None) => rows.push((RowKind::Delete, before)),
            (Some(before), Some(row)) => rows.extend([(RowKind::UpdateBefore, before), (RowKind::UpdateAfter, row.clone())]),
        }
    }
    rows
}

/// `k`, `v`, `s`, and of `v`: half as FLOAT64 and hundredths as DECIMAL, where they are exact.
pub(super) fn input() -> StreamSchema {
    let column = |name, ty| Column::new(name, ty, true);
    let columns = vec![
        column("k", LogicalType::Int64),
        column("v", LogicalType::Int64),
        column("s", LogicalType::String),
        column("f", LogicalType::Float64),
        column("d", LogicalType::Decimal(20, 2)),
    ];
    StreamSchema { changelog: true, ..StreamSchema::append(columns) }
}

fn small(value: Option<i64>) -> Option<i64> {
    value.filter(|value| (-99..100).contains(value))
}

pub(super) fn batch(rows: &[Signed]) -> RecordBatch {
    let ops: ArrayRef = Arc::new(Int8Array::from_iter_values(rows.iter().map(|row| row.0 as i8)));
    let ints = |of: fn(&Row) -> Option<i64>| -> ArrayRef { Arc::new(Int64Array::from_iter(rows.iter().map(|row| of(&row.1)))) };
    let texts: ArrayRef = Arc::new(StringArray::from_iter(rows.iter().map(|row| row.1.2.clone())));
    let floats = rows.iter().map(|row| small(row.1.1).map(|value| value as f64 / 2.0));
    let decimals: Decimal128Array = rows.iter().map(|row| row.1.1.map(i128::from)).collect();
    let decimals = decimals.with_precision_and_scale(20, 2).expect("it fits");
    let columns =
        vec![ops, ints(|row| row.0), ints(|row| row.1), texts, Arc::new(Float64Array::from_iter(floats)), Arc::new(decimals)];
    RecordBatch::try_new(input().to_arrow(), columns).expect("columns match the schema")
}

fn call(name: &str, function: AggregateFunction, argument: Option<&str>) -> AggregateCall {
    let ty = argument.and_then(|name| input().column(name).map(|column| column.ty.clone()));
    let result = match (function, &ty) {
        (AggregateFunction::Count, _) | (_, None) => LogicalType::Int64,
        (AggregateFunction::Sum, Some(LogicalType::Decimal(_, scale))) => LogicalType::Decimal(38, *scale),
        (AggregateFunction::Sum, Some(LogicalType::Int64)) => LogicalType::Decimal(38, 0),
        (AggregateFunction::Avg, _) => LogicalType::Float64,
        (_, Some(ty)) => ty.clone(),
    };
    let argument_nullable = argument.is_some();
    let (name, argument) = (name.into(), argument.map(String::from));
    AggregateCall { name, function, argument, argument_type: ty, argument_nullable, order: Vec::new(), result, library: None }
}

fn aggregate(full: bool) -> AggregateSpec {
    use AggregateFunction::{Avg, Count, Max, Min, Sum};
    AggregateSpec {
        keys: vec!["k".into()],
        window: WindowSpec::Running,
        time: WindowTime::default(),
        phase: AggregatePhase::Single,
        calls: vec![
            call("n", Count, None),
            call("values", Count, Some("v")),
            call("total", Sum, Some("v")),
            call("hundredths", Sum, Some("d")),
            call("halves", Avg, Some("f")),
            call("least", Min, Some("v")),
            call("greatest", Max, Some("v")),
            call("first", Min, Some("s")),
            call("last", Max, Some("s")),
            call("most", Max, Some("d")),
            call("low", Min, Some("f")),
        ],
        changelog_full: full,
        firing: None,
        trigger: None,
        takes_changes: true,
        distinct: Vec::new(),
    }
}

fn rig(aggregate: &AggregateSpec, restored: Vec<RestoredState>, range: KeyGroupRange) -> Rig {
    rig_before(aggregate, None, restored, range)
}

fn rig_before(
    aggregate: &AggregateSpec,
    cold: Option<Arc<dyn ColdStores>>,
    restored: Vec<RestoredState>,
    range: KeyGroupRange,
) -> Rig {
    let keys = aggregate.keys.iter().map(|key| input().column(key).expect("a key").clone());
    let results = aggregate.calls.iter().map(|call| Column::new(&call.name, call.result.clone(), true));
    let spec = OperatorSpec {
        uid: Uid::new("counts"),
        clause: "aggregate".into(),
        kind: OperatorKind::Aggregate(aggregate.clone()),
        input: input(),
        output: StreamSchema { changelog: true, ..StreamSchema::append(keys.chain(results).collect()) },
        sides: Vec::new(),
        bad_records: BadRecordPolicy::Fail,
    };
    Rig::of(build(&spec, aggregate, &Closures::default(), &Functions::new()).expect("it is built"), cold, restored, range)
        .expect("it opens")
}

/// The calls that keep no values, by the number of which others are left out.
fn without_extremes(full: bool) -> (AggregateSpec, usize) {
    let mut aggregate = aggregate(full);
    aggregate.calls.truncate(5);
    (aggregate, 5)
}

/// Of rows of a key and the results of all calls, those of so many calls.
fn cut(rows: BTreeSet<String>, calls: usize) -> BTreeSet<String> {
    rows.into_iter().map(|row| row.split(',').take(1 + calls).collect::<Vec<_>>().join(",")).collect()
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or("null".into(), |value| value.to_string())
}

fn hundredths(value: i128) -> String {
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    format!("{sign}{}.{:02}", value / 100, value % 100)
}

/// The groups of a table, as the operator's rows.
fn aggregated(table: &BTreeMap<u8, Row>, keyed: bool) -> BTreeSet<String> {
    let mut groups: BTreeMap<Option<i64>, Vec<&Row>> = BTreeMap::new();
    table.values().for_each(|row| groups.entry(row.0.filter(|_| keyed)).or_default().push(row));
    let row = |(key, rows): (Option<i64>, Vec<&Row>)| {
        let values: Vec<i64> = rows.iter().filter_map(|row| row.1).collect();
        let texts: Vec<&String> = rows.iter().filter_map(|row| row.2.as_ref()).collect();
        let halves: Vec<f64> = values.iter().filter_map(|value| small(Some(*value))).map(|value| value as f64 / 2.0).collect();
        let sum = (!values.is_empty()).then(|| values.iter().map(|value| i128::from(*value)).sum::<i128>());
        let cells = [
            rows.len().to_string(),
            values.len().to_string(),
            text(sum),
            text(sum.map(hundredths)),
            text((!halves.is_empty()).then(|| format!("{:?}", halves.iter().sum::<f64>() / halves.len() as f64))),
            text(values.iter().min()),
            text(values.iter().max()),
            text(texts.iter().min()),
            text(texts.iter().max()),
            text(values.iter().max().map(|value| hundredths(i128::from(*value)))),
            text(halves.iter().copied().reduce(f64::min).map(|half| format!("{half:?}"))),
        ];
        let key = if keyed { vec![text(key)] } else { Vec::new() };
        key.into_iter().chain(cells).collect::<Vec<_>>().join(",")
    };
    groups.into_iter().map(row).collect()
}

/// Applies what an operator gave to the rows that stood, each under its key; every change must fit what stands.
fn accumulate(standing: &mut BTreeMap<String, String>, batches: &[RecordBatch], full: bool, keyed: bool) {
    let mut replaced: Option<String> = None;
    for batch in batches {
        let ops = batch.column(0).as_primitive::<Int8Type>();
        for (at, row) in rows_of(batch).into_iter().enumerate() {
            let (_, row) = row.split_once(',').expect("an operation");
            let key = if keyed { row.split(',').next().expect("a key").to_string() } else { String::new() };
            match RowKind::from_code(ops.value(at)).expect("a kind") {
                RowKind::Insert => assert_eq!(standing.insert(key, row.into()), None, "{row} is there already"),
                RowKind::UpdateBefore => {
                    assert!(full, "no one asked for {row}");
                    assert_eq!(standing.get(&key).map(String::as_str), Some(row), "it replaces another row");
                    replaced = Some(key);
                }
                RowKind::UpdateAfter => {
                    assert_eq!(replaced.take(), full.then(|| key.clone()), "{row} does not follow what it replaces");
                    assert!(standing.insert(key, row.into()).is_some(), "{row} replaces nothing");
                }
                RowKind::Delete => assert_eq!(standing.remove(&key).as_deref(), Some(row), "another row stands"),
            }
        }
    }
}

fn in_range(rows: &[Signed], range: KeyGroupRange) -> Vec<Signed> {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1.0)));
    let mut groups = Vec::new();
    key_groups(&[keys], MAX_PARALLELISM, &mut groups);
    rows.iter().zip(groups).filter(|(_, group)| range.contains(*group)).map(|(row, _)| row.clone()).collect()
}

/// Hands a batch over, as whole as it is, and adds up what comes of it.
fn step(rig: &mut Rig, rows: &[Signed], standing: &mut BTreeMap<String, String>, full: bool, keyed: bool) {
    if !rows.is_empty() {
        rig.process_batch(batch(rows));
        accumulate(standing, &std::mem::take(&mut rig.out), full, keyed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn changes_add_up_to_the_aggregated_table(changes in changes(), full in any::<bool>(), keyed in any::<bool>()) {
        let mut aggregate = aggregate(full);
        aggregate.keys.retain(|_| keyed);
        let mut rig = rig(&aggregate, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM));
        let (mut table, mut standing) = (BTreeMap::new(), BTreeMap::new());
        for batch in &changes {
            let rows = apply(&mut table, batch);
            step(&mut rig, &rows, &mut standing, full, keyed);
            prop_assert_eq!(standing.values().cloned().collect::<BTreeSet<_>>(), aggregated(&table, keyed));
        }
    }

    #[test]
    fn groups_and_values_are_restored_by_whoever_owns_them(
        before in changes(),
        between in changes(),
        after in changes(),
        parallelism in 1u32..4,
    ) {
        let aggregate = aggregate(true);
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        let mut rig = rig(&aggregate, Vec::new(), everything);
        let (mut table, mut standing) = (BTreeMap::new(), BTreeMap::new());
        for batch in &before {
            let rows = apply(&mut table, batch);
            step(&mut rig, &rows, &mut standing, true, true);
        }
        let parts = rig.barrier(1);
        // Groups that go and come while the snapshot runs are not in it.
        let (mut other, mut disturbed) = (table.clone(), standing.clone());
        for batch in &between {
            let rows = apply(&mut other, batch);
            step(&mut rig, &rows, &mut disturbed, true, true);
            rig.background();
        }
        let restored = store(parts, || rig.background());
        let ranges: Vec<KeyGroupRange> =
            (0..parallelism).map(|subtask| KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM)).collect();
        let mut rigs: Vec<Rig> = ranges.iter().map(|range| self::rig(&aggregate, restored.clone(), *range)).collect();
        for batch in &after {
            let rows = apply(&mut table, batch);
            for (rig, range) in rigs.iter_mut().zip(&ranges) {
                step(rig, &in_range(&rows, *range), &mut standing, true, true);
            }
            prop_assert_eq!(standing.values().cloned().collect::<BTreeSet<_>>(), aggregated(&table, true));
        }
    }
}

/// Where a state is: on the heap, or behind an overlay of so many bytes in a store that is so lazy.
type Place = Option<(usize, u32)>;

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![1 => Just(None), 4 => memory().prop_map(Some)]
}

fn stores(place: Place, databases: &Databases, range: KeyGroupRange) -> Option<Arc<dyn ColdStores>> {
    place.map(|(bytes, lag)| {
        let stores = MemoryColdStores::new(MAX_PARALLELISM, lag, OverlayBudget::new(bytes));
        Arc::new(stores.restored(databases.clone(), range)) as Arc<dyn ColdStores>
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn in_front_of_a_store_changes_add_up_and_are_restored(
        before in changes(),
        between in changes(),
        after in changes(),
        places in (place(), place()),
        full in any::<bool>(),
        keyed in prop_oneof![1 => Just(false), 4 => Just(true)],
        extremes in any::<bool>(),
        parallelism in 1u32..4,
        (as_rows, is_overtaken) in any::<(bool, bool)>(),
    ) {
        let (mut aggregate, calls) = if extremes { (aggregate(full), 11) } else { without_extremes(full) };
        aggregate.keys.retain(|_| keyed);
        let wanted = |table: &BTreeMap<u8, Row>| match keyed {
            true => cut(aggregated(table, true), calls),
            false => cut(aggregated(table, false).into_iter().map(|row| format!(",{row}")).collect(), calls),
        };
        let given = |standing: &BTreeMap<String, String>| -> BTreeSet<String> {
            standing.values().map(|row| if keyed { row.clone() } else { format!(",{row}") }).collect()
        };
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        let mut rig = rig_before(&aggregate, stores(places.0, &Vec::new(), everything), Vec::new(), everything);
        let (mut table, mut standing) = (BTreeMap::new(), BTreeMap::new());
        for (at, batch) in before.iter().enumerate() {
            let rows = apply(&mut table, batch);
            step(&mut rig, &rows, &mut standing, full, keyed);
            rig.background();
            prop_assert_eq!(given(&standing), wanted(&table));
            if at % 5 == 3 {
                // One that is given up leaves what was sent of it.
                drop(rig.barrier(at as u64 + 10));
                rig.give_up(at as u64 + 10);
            }
        }
        if is_overtaken {
            drop(rig.barrier(1));
        }
        let (in_databases, pieces) = split_parts(rig.barrier(2));
        let (mut other, mut disturbed) = (table.clone(), standing.clone());
        for batch in &between {
            let rows = apply(&mut other, batch);
            step(&mut rig, &rows, &mut disturbed, full, keyed);
            prop_assert_eq!(given(&disturbed), wanted(&other));
            rig.background();
        }
        let mut states = store(pieces, || rig.background());
        while rig.background() {}
        let mut databases = Databases::new();
        match as_rows || places.1.is_none() {
            true => states.extend(store(in_databases.into_iter().map(|(meta, part)| as_part(meta, part)).collect(), || false)),
            // All states are in one.
            false => databases.extend(in_databases.into_iter().map(|(_, database)| database).take(1)),
        }
        let parallelism = if keyed { parallelism } else { 1 };
        let ranges: Vec<KeyGroupRange> =
            (0..parallelism).map(|subtask| KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM)).collect();
        let rig = |range: &KeyGroupRange| {
            rig_before(&aggregate, stores(places.1, &databases, *range), states.clone(), *range)
        };
        let mut rigs: Vec<Rig> = ranges.iter().map(rig).collect();
        for batch in &after {
            let rows = apply(&mut table, batch);
            for (rig, range) in rigs.iter_mut().zip(&ranges) {
                let rows = if keyed { in_range(&rows, *range) } else { rows.clone() };
                step(rig, &rows, &mut standing, full, keyed);
                rig.background();
            }
            prop_assert_eq!(given(&standing), wanted(&table));
        }
    }
}

/// Groups that go leave the store too, with all that was known of their values, and their memory.
#[test]
fn groups_that_come_and_go_take_no_more_than_their_share() {
    for (aggregate, states) in [(without_extremes(false).0, 1), (aggregate(false), 5)] {
        let share = 512 << 10;
        let stores = MemoryColdStores::new(MAX_PARALLELISM, 1, OverlayBudget::new(share));
        let mut rig = rig_before(&aggregate, Some(Arc::new(stores)), Vec::new(), KeyGroupRange::all(MAX_PARALLELISM));
        let row = |n: i64| (Some(n), Some(n % 7), Some(format!("text {n}")));
        for round in 0..60 {
            let rows = |kind| (round * 1000..(round + 1) * 1000).map(|n| (kind, row(n))).collect::<Vec<Signed>>();
            rig.process_batch(batch(&rows(RowKind::Insert)));
            rig.process_batch(batch(&rows(RowKind::Delete)));
            rig.background();
            let bytes = rig.metrics.state_bytes.load(std::sync::atomic::Ordering::Relaxed);
            assert!(bytes <= 3 * share as u64, "{bytes} in round {round}");
        }
        let (databases, _) = split_parts(rig.barrier(1));
        while rig.background() {}
        assert_eq!(databases.len(), states);
        for (meta, database) in databases {
            let found = database.rows(&meta.name, &mut |rows| panic!("{} rows of {} are left", rows.num_rows(), meta.name));
            found.expect("it was completed");
        }
    }
}

/// The values of many groups are far more than memory holds, and the next best one is known all the same.
#[test]
fn values_are_more_than_memory_holds() {
    let aggregate = aggregate(false);
    let share = 1 << 20;
    let stores = MemoryColdStores::new(MAX_PARALLELISM, 1, OverlayBudget::new(share));
    let mut rig = rig_before(&aggregate, Some(Arc::new(stores)), Vec::new(), KeyGroupRange::all(MAX_PARALLELISM));
    let row = |key: i64, n: i64| (Some(key), Some(n), Some(format!("a text of some length {n}")));
    for key in 0..1_000 {
        rig.process_batch(batch(&(0..50).map(|n| (RowKind::Insert, row(key, n))).collect::<Vec<Signed>>()));
        rig.background();
    }
    let bytes = rig.metrics.state_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert!(bytes <= 2 * share as u64, "{bytes}");
    rig.out.clear();
    for key in (0..1_000).step_by(37) {
        rig.process_batch(batch(&[(RowKind::Delete, row(key, 49)), (RowKind::Delete, row(key, 0))]));
        let out = rig.take_rows();
        assert_eq!(out.len(), 1, "{out:?}");
        assert!(out[0].starts_with(&format!("2,{key},48,48,1176,")) && out[0].contains(",1,48,"), "{out:?}");
    }
    let hits = rig.metrics.store().expect("it has a store").hits;
    assert!(hits > 1_000, "{hits} entries came in");
}

#[test]
fn a_group_without_rows_leaves_nothing_behind() {
    let aggregate = aggregate(false);
    let mut rig = rig(&aggregate, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM));
    let row = |n: i64| (Some(n), Some(n % 7), Some(format!("text {n}")));
    let rows = |kind| (0..5000).map(|n| (kind, row(n))).collect::<Vec<Signed>>();
    rig.process_batch(batch(&rows(RowKind::Insert)));
    let keys = || rig.metrics.state_keys.load(std::sync::atomic::Ordering::Relaxed);
    let kinds = (aggregate.counted().len() + 1) as u64;
    assert_eq!((keys(), kinds), (5000 * kinds, 5), "groups, and values of v, s, d and f");
    rig.process_batch(batch(&rows(RowKind::Delete)));
    assert_eq!(rig.metrics.state_keys.load(std::sync::atomic::Ordering::Relaxed), 0);
    let parts = rig.barrier(1);
    let restored = store(parts, || rig.background());
    assert!(restored.iter().all(|state| state.batches.iter().all(|batch| batch.num_rows() == 0)));
    // Their places are used again, with nothing of what was there.
    rig.out.clear();
    rig.process_batch(batch(&[(RowKind::Insert, (Some(-1), None, None))]));
    let out = rig.take_rows();
    assert_eq!(out, ["0,-1,1,0,null,null,null,null,null,null,null,null,null"]);
}
