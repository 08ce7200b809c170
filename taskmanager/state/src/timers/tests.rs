//! Timers against a set that is cloned at each barrier, out and back.

use std::collections::BTreeSet;
use std::path::PathBuf;

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type, TimestampMillisecondType};
use levada_common::ids::Uid;
use levada_common::state_schema::StateDeclaration;
use levada_common::types::{Column, LogicalType};
use proptest::prelude::*;

use super::*;
use crate::format::{SizeLimit, decode, encode};
use crate::key_index::KeyIndex;
use crate::rows::Rows;
use crate::snapshot::StateMeta;

/// Timers and the keys that they are of: key `n` of a test is the number `n * 10`.
struct Operator {
    keys: KeyIndex,
    timers: Timers,
}

impl Operator {
    fn new() -> Self {
        let column = Column::new("id", LogicalType::Int64, true);
        Self { keys: KeyIndex::new(&[DataType::Int64]), timers: Timers::new(&[column]) }
    }

    fn ids(&mut self, keys: impl IntoIterator<Item = i64>) -> Vec<u32> {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
        let mut ids = Vec::new();
        self.keys.intern(std::slice::from_ref(&column), column.len(), &mut ids);
        ids
    }

    fn key(&self, id: u32) -> i64 {
        self.keys.keys(Rows::Ids(&[id]))[0].as_primitive::<Int64Type>().value(0)
    }

    fn id(&mut self, key: u8) -> u32 {
        self.ids([i64::from(key) * 10])[0]
    }

    fn freeze(&mut self) -> PieceReader {
        let Self { keys, timers } = self;
        timers.freeze(|ids| keys.keys(Rows::Ids(ids)))
    }

    fn advance(&mut self, rows: usize) -> bool {
        let Self { keys, timers } = self;
        timers.advance(rows, |ids| keys.keys(Rows::Ids(ids)))
    }

    fn flush(&mut self, rows: usize) {
        let Self { keys, timers } = self;
        timers.flush(rows, |ids| keys.keys(Rows::Ids(ids)));
    }

    fn fire(&mut self, up_to: i64, max: usize) -> (Vec<(i64, i64)>, bool) {
        let mut fired = Fired::default();
        let more = self.timers.fire(up_to, max, &mut fired);
        let keys = fired.keys.iter().map(|id| self.key(*id));
        (fired.times.iter().copied().zip(keys).collect(), more)
    }

    fn restore(&mut self, pieces: &[RecordBatch]) {
        let key_of = |piece: &RecordBatch| piece.column(0).as_primitive::<Int64Type>().values().to_vec();
        let ids: Vec<Vec<u32>> = pieces.iter().map(|piece| self.ids(key_of(piece))).collect();
        self.timers.restore(ids.iter().map(Vec::as_slice).zip(pieces)).expect("they are timers");
    }
}

/// The timers of pieces, as (time, key); each must come once.
fn read(pieces: &[RecordBatch]) -> BTreeSet<(i64, i64)> {
    let mut timers = BTreeSet::new();
    for piece in pieces {
        assert_eq!(piece.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["key.id", "time"]);
        let keys = piece.column(0).as_primitive::<Int64Type>().values();
        let times = piece.column(1).as_primitive::<TimestampMillisecondType>().values();
        for (key, time) in keys.iter().zip(times) {
            assert!(timers.insert((*time, *key)), "({time}, {key}) came twice");
        }
    }
    timers
}

#[derive(Debug, Clone)]
enum Step {
    Register(u8, i64),
    Delete(u8, i64),
    Fire(i64, usize),
    Advance(usize),
    Flush(usize),
    Barrier,
    Abandon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = || -20..60i64;
    let step = prop_oneof![
        12 => (0..12u8, time()).prop_map(|(key, time)| Step::Register(key, time)),
        5 => (0..12u8, time()).prop_map(|(key, time)| Step::Delete(key, time)),
        4 => (time(), 0..9usize).prop_map(|(time, max)| Step::Fire(time, max)),
        6 => (0..9usize).prop_map(Step::Advance),
        2 => (0..4usize).prop_map(Step::Flush),
        2 => Just(Step::Barrier),
        1 => Just(Step::Abandon),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn they_fire_in_order_and_a_snapshot_is_what_they_were(steps in steps()) {
        let (mut operator, mut model) = (Operator::new(), BTreeSet::<(i64, i64)>::new());
        let mut snapshots: Vec<(PieceReader, BTreeSet<(i64, i64)>)> = Vec::new();
        for step in steps {
            match step {
                Step::Register(key, time) => {
                    let id = operator.id(key);
                    let is_new = operator.timers.register(id, (), time);
                    prop_assert_eq!(is_new, model.insert((time, i64::from(key) * 10)));
                }
                Step::Delete(key, time) => {
                    let id = operator.id(key);
                    let was = operator.timers.delete(id, (), time);
                    prop_assert_eq!(was, model.remove(&(time, i64::from(key) * 10)));
                }
                Step::Fire(up_to, max) => {
                    let (fired, more) = operator.fire(up_to, max);
                    let due: Vec<_> = model.iter().copied().take_while(|(time, _)| *time <= up_to).collect();
                    prop_assert_eq!(fired.len(), due.len().min(max));
                    prop_assert_eq!(more, due.len() > max);
                    prop_assert!(fired.is_sorted_by_key(|(time, _)| *time));
                    for timer in fired {
                        prop_assert!(model.remove(&timer), "{:?} fired", timer);
                    }
                    prop_assert!(!more || model.first().is_some_and(|(time, _)| *time <= up_to));
                }
                Step::Advance(rows) => {
                    operator.advance(rows);
                }
                Step::Flush(rows) => operator.flush(rows),
                Step::Barrier => snapshots.push((operator.freeze(), model.clone())),
                Step::Abandon => {
                    if operator.timers.sender.is_some() {
                        let (reader, _) = snapshots.pop().expect("one runs");
                        operator.timers.abandon();
                        prop_assert!(reader.last().is_some_and(|piece| piece.is_err()), "an abandoned snapshot says so");
                    }
                }
            }
            prop_assert_eq!(operator.timers.next_time(), model.first().map(|(time, _)| *time));
            prop_assert_eq!(operator.timers.len(), model.len());
            for key in 0..12u8 {
                let id = operator.id(key);
                let has = model.iter().any(|(_, of)| *of == i64::from(key) * 10);
                prop_assert!(!has || operator.timers.has_timers(id));
                prop_assert!(has || operator.timers.sender.is_some() || !operator.timers.has_timers(id));
            }
        }
        while operator.advance(5) {
            if operator.timers.sender.as_ref().is_some_and(PieceSender::is_full) {
                drop(operator.freeze());
                operator.timers.abandon();
            }
        }
        for (reader, expected) in snapshots {
            let pieces: Vec<_> = reader.map(|piece| piece.expect("it was finished")).collect();
            prop_assert_eq!(read(&pieces), expected.clone());
            let mut back = Operator::new();
            back.ids((0..5).map(|n| n * 30));
            back.restore(&pieces);
            let all: BTreeSet<_> = back.fire(i64::MAX, usize::MAX).0.into_iter().collect();
            prop_assert_eq!(all, expected);
        }
    }
}

#[test]
fn a_key_keeps_its_id_while_a_snapshot_needs_it() {
    let mut operator = Operator::new();
    let id = operator.id(1);
    operator.timers.register(id, (), 7);
    let reader = operator.freeze();
    assert_eq!(operator.fire(7, 10), (vec![(7, 10)], false));
    assert!(operator.timers.has_timers(id), "it is not saved yet");
    let mut emptied = Vec::new();
    operator.timers.drain_emptied(&mut emptied);
    assert!(emptied.is_empty());
    operator.flush(2);
    assert!(operator.timers.has_timers(id), "one is fewer than two");
    operator.flush(1);
    operator.timers.drain_emptied(&mut emptied);
    assert_eq!((emptied, operator.timers.has_timers(id)), (vec![id], false));
    while operator.advance(8) {}
    assert_eq!(read(&reader.map(|piece| piece.expect("finished")).collect::<Vec<_>>()), BTreeSet::from([(7, 10)]));
}

#[test]
fn times_may_be_anything() {
    let mut operator = Operator::new();
    let id = operator.id(0);
    for time in [i64::MAX, 0, i64::MIN] {
        assert!(operator.timers.register(id, (), time));
        assert!(!operator.timers.register(id, (), time));
    }
    assert_eq!(operator.fire(i64::MIN, 5), (vec![(i64::MIN, 0)], false));
    assert_eq!(operator.fire(i64::MAX, 1), (vec![(0, 0)], true));
    assert_eq!(operator.fire(i64::MAX - 1, 5), (vec![], false));
    assert_eq!(operator.fire(i64::MAX, 1), (vec![(i64::MAX, 0)], false));
    assert_eq!(operator.timers.next_time(), None);
}

#[test]
fn restoring_twice_fires_once() {
    let mut operator = Operator::new();
    let ids = operator.ids([10, 20]);
    ids.iter().for_each(|id| assert!(operator.timers.register(*id, (), 1)));
    let reader = operator.freeze();
    while operator.advance(1) {}
    let pieces: Vec<_> = reader.map(|piece| piece.expect("finished")).collect();
    let mut back = Operator::new();
    back.restore(&pieces);
    back.restore(&pieces);
    assert_eq!(back.fire(1, 9).0, [(1, 10), (1, 20)]);
    assert!(ids.iter().all(|id| !back.timers.has_timers(*id)));
}

#[test]
fn what_is_no_timer_is_refused() {
    let mut operator = Operator::new();
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("key.id", Arc::clone(&keys)), ("time", keys)]).expect("a batch");
    let error = operator.timers.restore([([0].as_slice(), &batch)]).expect_err("refused").to_string();
    assert_eq!(error, "a snapshot's timers have Int64 as column \"time\", which is TIMESTAMP NOT NULL");
    let nameless = batch.project(&[0]).expect("one column");
    let error = operator.timers.restore([([0].as_slice(), &nameless)]).expect_err("refused").to_string();
    assert!(error.contains("have nothing as column \"time\""), "{error}");
    assert!(operator.timers.is_empty());
}

#[test]
fn their_declarations_are_what_snapshots_hold() {
    let names = TimerKind::ALL.map(|kind| kind.declaration::<()>().name);
    assert_eq!(names, ["_timers.event", "_timers.processing"]);
    let declaration = TimerKind::Event.declaration::<()>();
    assert_eq!((declaration.schema.shape.name(), declaration.schema.windowed), ("timers", false));
}

#[test]
fn the_golden_file_of_timers_is_read_and_written_alike() {
    let mut operator = Operator::new();
    for (at, id) in operator.ids([10, -20, 10, 30]).into_iter().enumerate() {
        operator.timers.register(id, (), 1_767_225_600_000 + at as i64);
    }
    let reader = operator.freeze();
    while operator.advance(100) {}
    let StateDeclaration { name, kind, .. } = TimerKind::Event.declaration::<()>();
    let schema = TimerKind::Event.declaration::<()>().schema(&[Column::new("id", LogicalType::Int64, true)]);
    let meta = StateMeta { uid: Uid::new("alerts"), name, kind, schema: Arc::new(schema) };
    let mut bytes = Vec::new();
    encode(&meta, 128, reader, SizeLimit { bytes_max: None }, &mut bytes).expect("encoded");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/keyed-timers-v1.arrow");
    if std::env::var_os("LEVADA_WRITE_GOLDEN").is_some() && !path.exists() {
        std::fs::write(&path, &bytes).expect("a file");
    }
    let golden = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(golden == bytes, "the format has changed; raise FORMAT_VERSION and keep reading the old one");
    let back = decode(golden.into()).expect("it is read");
    assert_eq!(back.meta, meta);
    let pieces: Vec<_> = back.batches.iter().map(|batch| batch.project(&[1, 2]).expect("key and time")).collect();
    let mut operator = Operator::new();
    operator.restore(&pieces);
    let (fired, _) = operator.fire(i64::MAX, 9);
    assert_eq!(fired.iter().map(|(_, key)| *key).collect::<Vec<_>>(), [10, -20, 10, 30]);
}

#[test]
fn memory_grows_and_shrinks_with_them() {
    let mut operator = Operator::new();
    let ids = operator.ids(0..1000);
    let before = operator.timers.memory_bytes();
    ids.iter().for_each(|id| assert!(operator.timers.register(*id, (), 1)));
    let full = operator.timers.memory_bytes();
    assert!(full >= before + 1000 * 20, "{full}");
    operator.fire(1, usize::MAX);
    assert!(operator.timers.memory_bytes() + 1000 * 20 <= full);
}
