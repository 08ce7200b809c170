//! Functions whose state is in a store: what leaves memory comes back, to rows and to timers; a store that is behind holds rows up.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::record_batch::RecordBatch;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::ids::CheckpointId;
use levada_common::types::LogicalType;
use levada_state::cold::memory::MemoryColdStores;
use levada_state::cold::{ColdMetrics, OverlayBudget};
use levada_state::keyed::HeapBudget;
use levada_state::snapshot::Contents;

use super::{Counter, obedient, said, told};
use crate::function::RegisteredFunction;
use crate::harness::{Harness, HarnessRun};
use crate::metrics::NodeMetrics;
use crate::operator::{Operator, OperatorContext};
use crate::operators;
use crate::testing::{Closures, context};

/// Enough keys that some thousand bytes do not hold them.
const KEYS: i64 = 5_000;

/// One verb for each key.
fn all(run: &mut HarnessRun, what: &str) {
    let rows: Vec<_> = (0..KEYS).map(|key| told(key, what)).collect();
    for part in rows.chunks(500) {
        run.push(part).unwrap();
    }
}

#[test]
fn what_left_memory_comes_back() {
    let mut run = obedient().store(20_000).start().unwrap();
    all(&mut run, "add 1");
    run.output().unwrap();
    all(&mut run, "add 2");
    let counts = said(&mut run);
    assert_eq!(counts.len(), KEYS as usize);
    assert!((0..KEYS).zip(&counts).all(|(key, said)| *said == format!("{key} count 3")), "{:?}", counts.first());
    all(&mut run, "notes");
    assert!(said(&mut run).iter().all(|said| said.ends_with(" 1,2 0")));
}

#[test]
fn timers_fire_for_keys_whose_values_left_memory() {
    let mut run = obedient().store(20_000).start().unwrap();
    all(&mut run, "add 7");
    all(&mut run, "event 10");
    all(&mut run, "no-event 11");
    run.output().unwrap();
    run.watermark(10).unwrap();
    let fired = said(&mut run);
    // A count of 7 makes the function wake itself once more.
    assert_eq!(fired.len(), 2 * KEYS as usize);
    let snapshot = run.snapshot().unwrap();
    for restored in [obedient(), obedient().store(20_000).parallelism(3)] {
        let mut run = restored.restore(&snapshot).unwrap();
        all(&mut run, "add 0");
        assert!(said(&mut run).iter().all(|said| said.ends_with(" count 8")));
    }
}

#[test]
fn timers_and_states_are_restored_from_a_store_to_the_heap_and_back() {
    let harnesses: [Harness; 3] = [obedient().store(1_000), obedient().parallelism(2), obedient().parallelism(3).store(50_000)];
    let mut run = harnesses[0].clone().start().unwrap();
    all(&mut run, "add 1");
    all(&mut run, "event 50");
    for harness in harnesses {
        let snapshot = run.snapshot().unwrap();
        run = harness.restore(&snapshot).unwrap();
    }
    run.output().unwrap();
    run.watermark(50).unwrap();
    assert_eq!(said(&mut run).len(), KEYS as usize);
    all(&mut run, "add 1");
    assert!(said(&mut run).iter().all(|said| said.ends_with(" count 2")));
}

/// The operator before a store in which a seal is written when it has been asked for `lag + 1` times.
fn operator(overlay_bytes: usize, lag: u32) -> (Box<dyn Operator>, Arc<NodeMetrics>) {
    let harness = obedient();
    let mut operator = operators::build(&harness.spec(), &Closures::default(), &harness.functions()).unwrap();
    let stores = MemoryColdStores::new(128, lag, OverlayBudget::new(overlay_bytes));
    let context = OperatorContext { cold: Some(Arc::new(stores)), ..context("obedient", 8192) };
    operator.open(&context, Vec::new()).unwrap();
    (operator, context.metrics)
}

fn give(operator: &mut dyn Operator, keys: std::ops::Range<i64>, what: &str) {
    let verbs: ArrayRef = Arc::new(StringArray::from_iter_values(keys.clone().map(|_| what)));
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
    let batch = RecordBatch::try_from_iter([("key", keys), ("what", verbs)]).unwrap();
    operator.process(0, batch).unwrap();
    while operator.poll().unwrap().is_some() {}
}

#[test]
fn a_store_that_is_behind_holds_rows_up_until_it_has_written() {
    let (mut operator, metrics) = operator(1 << 20, 10_000);
    let mut given = 0;
    while operator.is_ready().unwrap() {
        give(operator.as_mut(), given..given + 1_000, "add 1");
        operator.background().unwrap();
        given += 1_000;
        assert!(given < 1_000_000, "memory fills and nothing is held up");
    }
    let bytes = metrics.state_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert!(bytes < 3 << 20, "{bytes} bytes for a share of 1 MiB");
    // A barrier and what is beside the rows go on meanwhile.
    let parts = operator.snapshot(CheckpointId(1), false).unwrap();
    assert!(matches!(parts[0].contents, Contents::Database(_)));
    let (mut asked, mut behind) = (0_u64, true);
    while behind {
        behind = operator.background().unwrap() | !operator.is_ready().unwrap();
        asked += 1;
        assert!(asked < 10_000_000, "it is never ready again");
    }
    assert_eq!(metrics.store().unwrap().reads, 0, "nothing has left memory yet");
    // Further batches make others go.
    let mut round = 0;
    while metrics.store().unwrap().reads == 0 {
        while !operator.is_ready().unwrap() {
            operator.background().unwrap();
        }
        let first = round * 1_000 % given;
        give(operator.as_mut(), first..first + 1_000, "add 1");
        operator.background().unwrap();
        round += 1;
        assert!(round < 100, "nothing leaves memory");
    }
    let ColdMetrics { reads, hits, writes, entries, .. } = metrics.store().unwrap();
    assert!(reads > 0 && hits > 0 && writes > 0 && entries > 0, "{:?}", metrics.store());
}

#[test]
fn timers_are_charged_to_the_heap_whatever_is_behind_the_states() {
    let set = |budget: HeapBudget| {
        let harness = obedient();
        let mut operator = operators::build(&harness.spec(), &Closures::default(), &harness.functions()).unwrap();
        let stores = MemoryColdStores::new(128, 0, OverlayBudget::new(1 << 20));
        let context = context("obedient", 8192);
        let context = OperatorContext { cold: Some(Arc::new(stores)), heap_budget: Arc::new(budget), ..context };
        operator.open(&context, Vec::new()).unwrap();
        let verbs: ArrayRef = Arc::new(StringArray::from_iter_values((0..1_000).map(|_| "event 10")));
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000));
        let set = operator.process(0, RecordBatch::try_from_iter([("key", keys), ("what", verbs)]).unwrap());
        (set, context.heap_budget.used())
    };
    let (set_all, used) = set(HeapBudget::unlimited());
    assert!(set_all.is_ok() && used >= 1_000 * 16, "{set_all:?}, {used} bytes");
    assert!(set(HeapBudget::new(used)).0.is_ok(), "the limit itself is within it");
    let error = set(HeapBudget::new(used - 1)).0.unwrap_err().to_string();
    let start = format!("node \"obedient\": state \"_timers.event\" holds {used} bytes");
    assert!(error.starts_with(&start) && error.contains("set fewer timers"), "{error}");
}

#[test]
fn a_function_without_keyed_state_has_no_database() {
    let declaration = FunctionDeclaration::new("counter", FunctionKind::FlatMap).input("n", LogicalType::Int64);
    let declaration = declaration.output("rows", LogicalType::Int64).output("sum", LogicalType::Int64);
    let harness = Harness::new(RegisteredFunction::flat_map(declaration, |_| Ok(Counter::default())).unwrap());
    let mut operator = operators::build(&harness.spec(), &Closures::default(), &harness.functions()).unwrap();
    let budget = OverlayBudget::new(1 << 20);
    let stores = Arc::new(MemoryColdStores::new(128, 0, Arc::clone(&budget)));
    operator.open(&OperatorContext { cold: Some(stores), ..context("counter", 8192) }, Vec::new()).unwrap();
    assert_eq!(budget.share().bytes(), 1 << 20, "nobody else has a share");
}
