//! A time to live by another clock than the one by which a snapshot's entries were stamped: their life begins anew.

use std::time::Duration;

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::BackendKind;
use levada_common::types::LogicalType;
use levada_engine::function::{FunctionError, KeyedContext, KeyedProcessFunction, Output, RegisteredFunction, Rows};
use levada_state::descriptor::{BindError, Binder, Ttl, ValueState, ValueStateDescriptor};

use super::rig::{Place, Rig};
use super::run::Feed;
use super::specs::function;

const BY_EVENT: &str = "remarks_by_event";
const BY_PROCESSING: &str = "remarks_by_processing";

const LIFE_MS: i64 = 5_000;

/// Says what was set for a row's key, and sets the row's value where it is not 0.
struct Remarks<const IN_EVENT_TIME: bool>;

impl<const IN_EVENT_TIME: bool> KeyedProcessFunction for Remarks<IN_EVENT_TIME> {
    type States = ValueState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        let life = Duration::from_millis(LIFE_MS as u64);
        let ttl = if IN_EVENT_TIME { Ttl::event(life) } else { Ttl::processing(life) };
        ValueStateDescriptor::new("remark").with_ttl(ttl).bind(binder)
    }

    fn process(
        &mut self,
        remark: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (k, v) = (rows.column::<str>("k")?, rows.column::<i64>("v")?);
        for row in 0..rows.len() {
            ctx.enter(row);
            out.push((k.get(row), remark.get(ctx)?.copied().unwrap_or(0)))?;
            if v.get(row) != 0 {
                remark.set(ctx, v.get(row))?;
            }
        }
        Ok(())
    }
}

/// The functions of this test.
pub fn registered() -> Vec<RegisteredFunction> {
    let declaration = |name: &str| {
        FunctionDeclaration::new(name, FunctionKind::KeyedProcess)
            .input("k", LogicalType::String)
            .input("v", LogicalType::Int64)
            .output("k", LogicalType::String)
            .output("v", LogicalType::Int64)
    };
    let registered = [
        RegisteredFunction::keyed_process(declaration(BY_EVENT), |_| Ok(Remarks::<true>)),
        RegisteredFunction::keyed_process(declaration(BY_PROCESSING), |_| Ok(Remarks::<false>)),
    ];
    registered.map(|function| function.expect("its declaration fits it")).into()
}

/// Rows are read at these times of both clocks, the first of them at the restore.
async fn lives(before: &str, after: &str, backends: [BackendKind; 2], place: Place) -> Vec<bool> {
    let mut rig = Rig::new(backends[0], place).await;
    rig.operators = vec![function("remarks", before, &["k"], None)];
    let mut run = rig.start(1, None).await.unwrap();
    run.feed(&Feed::of(&[("a", 7, 10)], 10, 1_000_000));
    let snapshot = rig.snapshot(&mut run, &[]).await;
    drop(run);
    (rig.backend, rig.operators) = (backends[1], vec![function("remarks", after, &["k"], None)]);
    let mut run = rig.start(2, Some(&snapshot)).await.unwrap();
    let times = [0, LIFE_MS - 1, LIFE_MS];
    let found = times.map(|passed| {
        // A row is looked at at the times that were told before it.
        run.feed(&Feed::of(&[], 20 + passed, 1_000_000 + passed));
        run.feed(&Feed::of(&[("a", 0, 20 + passed)], 20 + passed, 1_000_000 + passed));
        run.take() == ["remarks: a 7"]
    });
    found.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn stamps_of_another_clock_are_not_taken_for_its_own() {
    use BackendKind::{Fs, Memory, Rocksdb};
    for (before, after) in [(BY_EVENT, BY_PROCESSING), (BY_PROCESSING, BY_EVENT)] {
        for (backends, place) in [
            ([Memory, Memory], Place::Files),
            ([Fs, Rocksdb], Place::Files),
            ([Rocksdb, Fs], Place::Files),
            ([Rocksdb, Rocksdb], Place::Files),
            ([Rocksdb, Rocksdb], Place::Savepoint),
        ] {
            let lives = lives(before, after, backends, place).await;
            assert_eq!(lives, [true, true, false], "{before} to {after}, {backends:?}, {place:?}");
        }
    }
}
