//! The functions of the keyed-state benchmark, as a user writes them, and the recount that their states are held against.
//!
//! Each takes `key` and `second`, changes the key's state, and gives (key, x) for each row; at the end it reads the states of
//! some keys back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int64Array};
use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_engine::function::{FunctionError, KeyedContext, KeyedProcessFunction, Output, Rows};
use levada_state::descriptor::{
    BindError, Binder, ListState, ListStateDescriptor, MapState, MapStateDescriptor, ReducingState, ReducingStateDescriptor,
    ValueState, ValueStateDescriptor,
};
use levada_taskmanager::Builder;

use crate::counting::add_up;
use crate::nodes::rmw::{key, second};

/// Kinds of state, by the names of their functions.
pub const KINDS: [&str; 5] = ["value", "list", "map", "reduce", "blob"];

/// Bytes of a blob.
const BLOB_BYTES: usize = 100;

/// Keys whose states are read back.
const SAMPLES: u64 = 1000;

/// What a key's state comes to: its number (value, blob), length and sum (list), sum (reduce), or counts by `second` (map).
pub type Reading = [i64; 4];

/// What the subtasks have read back, by key.
pub type Readings = Arc<Mutex<BTreeMap<i64, Reading>>>;

/// Keys to be read back, of `keys`.
pub fn samples(keys: u64) -> Vec<i64> {
    let count = SAMPLES.min(keys);
    (0..count).map(|sample| (sample * (keys / count)) as i64).collect()
}

/// The readings that there must be after records `0..end` over `keys` keys.
pub fn recount(kind: &str, keys: u64, end: u64) -> BTreeMap<i64, Reading> {
    let mut readings: BTreeMap<i64, Reading> = samples(keys).into_iter().map(|key| (key, [0; 4])).collect();
    for n in 0..end {
        let Some(reading) = readings.get_mut(&key(n, keys)) else { continue };
        match kind {
            "list" => (reading[0], reading[1]) = (reading[0] + 1, reading[1] + second(n)),
            "map" => reading[second(n) as usize] += 1,
            "reduce" => reading[0] += second(n),
            _ => reading[0] += 1,
        }
    }
    readings
}

/// Adds the function of `kind`, over `keys` keys.
pub fn register(builder: Builder, kind: &str, keys: u64, readings: &Readings) -> Builder {
    let back = ReadBack { keys: Arc::new(samples(keys)), readings: Arc::clone(readings) };
    let declaration = |seconds: bool| {
        let declaration = FunctionDeclaration::new(kind, FunctionKind::KeyedProcess).input("key", LogicalType::Int64);
        let declaration = if seconds { declaration.input("second", LogicalType::Int64) } else { declaration };
        declaration.output("key", LogicalType::Int64).output("x", LogicalType::Int64)
    };
    match kind {
        "value" => builder.keyed_process(declaration(false), move |_: &Options| Ok(Value(back.clone()))),
        "blob" => builder.keyed_process(declaration(false), move |_: &Options| Ok(Blob(back.clone()))),
        "list" => builder.keyed_process(declaration(true), move |_: &Options| Ok(List(back.clone()))),
        "map" => builder.keyed_process(declaration(true), move |_: &Options| Ok(Map(back.clone()))),
        _ => builder.keyed_process(declaration(true), move |_: &Options| Ok(Sum(back.clone()))),
    }
}

/// Reads states back at the end.
#[derive(Clone)]
struct ReadBack {
    keys: Arc<Vec<i64>>,
    readings: Readings,
}

impl ReadBack {
    /// Notes what `read` finds for each sampled key; one without state belongs to another subtask.
    fn run(
        &self,
        ctx: &mut KeyedContext<'_>,
        mut read: impl FnMut(&mut KeyedContext<'_>) -> Result<Option<Reading>, FunctionError>,
    ) -> Result<(), FunctionError> {
        let keys: ArrayRef = Arc::new(Int64Array::from(self.keys.as_ref().clone()));
        ctx.enter_keys(&[keys])?;
        let mut readings = self.readings.lock().expect("no holder panics");
        for (row, key) in self.keys.iter().enumerate() {
            ctx.enter(row);
            if let Some(reading) = read(ctx)? {
                readings.insert(*key, reading);
            }
        }
        Ok(())
    }
}

/// Gives (key, x) for each row.
fn give(out: &mut Output, rows: Rows<'_>, x: Vec<i64>) -> Result<(), FunctionError> {
    out.columns(vec![rows.array("key")?.clone(), Arc::new(Int64Array::from(x))])
}

struct Value(ReadBack);

impl KeyedProcessFunction for Value {
    type States = ValueState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ValueStateDescriptor::new("count").bind(binder)
    }

    fn process(
        &mut self,
        count: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let x = add_up(count, rows.len(), ctx, |_| 1)?;
        give(out, rows, x)
    }

    fn close(&mut self, count: &Self::States, ctx: &mut KeyedContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        self.0.run(ctx, |ctx| Ok(count.get(ctx)?.map(|count| [*count, 0, 0, 0])))
    }
}

struct Blob(ReadBack);

/// The number in a blob's first bytes.
fn number(blob: &[u8; BLOB_BYTES]) -> i64 {
    i64::from_le_bytes(*blob.first_chunk().expect("a blob is longer"))
}

impl KeyedProcessFunction for Blob {
    type States = ValueState<[u8; BLOB_BYTES]>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ValueStateDescriptor::new("blob").bind(binder)
    }

    fn process(
        &mut self,
        state: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let key = rows.column::<i64>("key")?;
        let mut x = Vec::with_capacity(rows.len());
        for row in 0..rows.len() {
            ctx.enter(row);
            let mut blob = state.get(ctx)?.copied().unwrap_or_else(|| {
                let mut blob = [key.get(row) as u8; BLOB_BYTES];
                blob[..8].fill(0);
                blob
            });
            let value = number(&blob) + 1;
            blob[..8].copy_from_slice(&value.to_le_bytes());
            state.set(ctx, blob)?;
            x.push(value);
        }
        give(out, rows, x)
    }

    fn close(&mut self, state: &Self::States, ctx: &mut KeyedContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        self.0.run(ctx, |ctx| Ok(state.get(ctx)?.map(|blob| [number(blob), 0, 0, 0])))
    }
}

struct List(ReadBack);

impl KeyedProcessFunction for List {
    type States = ListState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ListStateDescriptor::new("list").bind(binder)
    }

    fn process(
        &mut self,
        list: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let seconds = rows.column::<i64>("second")?.values();
        for (row, second) in seconds.iter().enumerate() {
            ctx.enter(row);
            list.add(ctx, *second)?;
        }
        out.columns(vec![rows.array("key")?.clone(), rows.array("second")?.clone()])
    }

    fn close(&mut self, list: &Self::States, ctx: &mut KeyedContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        self.0.run(ctx, |ctx| {
            let list = list.get(ctx)?;
            Ok((!list.is_empty()).then_some([list.len() as i64, list.iter().sum(), 0, 0]))
        })
    }
}

struct Map(ReadBack);

impl KeyedProcessFunction for Map {
    type States = MapState<i64, i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        MapStateDescriptor::new("map").bind(binder)
    }

    fn process(
        &mut self,
        map: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let seconds = rows.column::<i64>("second")?.values();
        let mut x = Vec::with_capacity(rows.len());
        for (row, second) in seconds.iter().enumerate() {
            ctx.enter(row);
            let value = map.get(ctx, second)?.copied().unwrap_or(0) + 1;
            map.put(ctx, second, value)?;
            x.push(value);
        }
        give(out, rows, x)
    }

    fn close(&mut self, map: &Self::States, ctx: &mut KeyedContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        self.0.run(ctx, |ctx| {
            let mut reading = [0; 4];
            for (second, count) in reading.iter_mut().enumerate() {
                *count = map.get(ctx, &(second as i64))?.copied().unwrap_or(0);
            }
            Ok((reading != [0; 4]).then_some(reading))
        })
    }
}

struct Sum(ReadBack);

impl KeyedProcessFunction for Sum {
    type States = ReducingState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ReducingStateDescriptor::new("sum", |sum: &mut i64, second| *sum += second).bind(binder)
    }

    fn process(
        &mut self,
        sum: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let seconds = rows.column::<i64>("second")?.values();
        for (row, second) in seconds.iter().enumerate() {
            ctx.enter(row);
            sum.add(ctx, *second)?;
        }
        out.columns(vec![rows.array("key")?.clone(), rows.array("second")?.clone()])
    }

    fn close(&mut self, sum: &Self::States, ctx: &mut KeyedContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        self.0.run(ctx, |ctx| Ok(sum.get(ctx)?.map(|sum| [*sum, 0, 0, 0])))
    }
}
