//! Windows whose keys give their rows each by itself, against a naive model that goes through rows and times one by one: sessions and
//! other windows, triggers, evictors, late rows, one input and two, over restores to other parallelisms.

mod by_clock;
mod cases;
pub(in crate::operators) mod model;
mod stored;

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::{Evict, FiringSpec, ProcessSpec, SessionGap, Trigger, WindowSpec};
use levada_common::types::LogicalType;
use levada_state::descriptor::{BindError, Binder, ReducingState, ReducingStateDescriptor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::function::{
    CoGroupFunction, FiredTimers, FunctionError, KeyedContext, MergedWindows, Namespace, Output, RegisteredFunction, Rows,
    TimerKind, TriggerResult, TriggerRows, WindowEvictor, WindowFunction, WindowGroup, WindowTrigger,
};
use crate::harness::{Harness, HarnessRun};
use model::{Model, Row, Setup};

/// Gives the ids of a window's rows, in their order.
struct Collect;

fn texts(rows: Rows<'_>) -> Result<String, FunctionError> {
    Ok(rows.column::<i64>("id")?.values().iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
}

impl WindowFunction for Collect {
    fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
        out.push((texts(rows)?, ""))
    }
}

impl CoGroupFunction for Collect {
    fn co_group(
        &mut self,
        _group: WindowGroup<'_>,
        first: Rows<'_>,
        second: Rows<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        out.push((texts(first)?, texts(second)?))
    }
}

/// Does what each row says, and counts rows.
struct Obedient {
    by_clock: bool,
}

impl Obedient {
    /// Sets a timer of the time that windows go by.
    fn set_timer(&self, ctx: &mut KeyedContext<'_>, time_ms: i64) -> Result<(), FunctionError> {
        if self.by_clock { ctx.set_processing_timer(time_ms) } else { ctx.set_event_timer(time_ms) }
    }
}

/// What the count of a window says of it when it is over.
fn at_end(count: i64) -> TriggerResult {
    match count % 4 {
        0 => TriggerResult::FireAndPurge,
        3 => TriggerResult::Continue,
        _ => TriggerResult::Fire,
    }
}

/// What a row that says this says of its window.
fn said(say: i64) -> TriggerResult {
    match say {
        1 => TriggerResult::Fire,
        2 => TriggerResult::Purge,
        3 => TriggerResult::FireAndPurge,
        _ => TriggerResult::Continue,
    }
}

impl WindowTrigger for Obedient {
    type States = ReducingState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ReducingStateDescriptor::new("count", |sum: &mut i64, next| *sum += next).per_window().bind(binder)
    }

    fn on_rows(
        &mut self,
        count: &Self::States,
        rows: TriggerRows<'_>,
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        let says = rows.rows().column::<i64>("say")?;
        for (row, answer) in answers.iter_mut().enumerate() {
            ctx.enter(row);
            count.add(ctx, 1)?;
            *answer = said(says.get(row));
            match says.get(row) {
                4 => self.set_timer(ctx, rows.windows()[row].start + 7)?,
                5 => ctx.set_processing_timer(ctx.processing_time_ms() + 5)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn on_timers(
        &mut self,
        count: &Self::States,
        timers: FiredTimers<'_>,
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        assert_eq!(timers.keys().len(), timers.len());
        for (row, answer) in answers.iter_mut().enumerate() {
            ctx.enter(row);
            *answer = TriggerResult::Fire;
            let is_own = self.by_clock || timers.kind() == TimerKind::Event;
            if is_own && *count.get(ctx)?.expect("there was a row") % 2 == 1 {
                self.set_timer(ctx, timers.times_ms()[row] + 11)?;
            }
        }
        Ok(())
    }

    fn on_end(
        &mut self,
        count: &Self::States,
        windows: &[Namespace],
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        for (row, (answer, window)) in answers.iter_mut().zip(windows).enumerate() {
            ctx.enter(row);
            *answer = at_end(*count.get(ctx)?.expect("there was a row"));
            self.set_timer(ctx, window.end + 3)?;
        }
        Ok(())
    }

    fn on_merge(
        &mut self,
        count: &Self::States,
        merged: MergedWindows<'_>,
        ctx: &mut KeyedContext<'_>,
    ) -> Result<(), FunctionError> {
        assert_eq!(ctx.namespace(), Some(merged.kept()));
        Ok(count.merge_namespaces(ctx, merged.kept(), merged.gone())?)
    }
}

/// Lets rows go by their ids.
struct ById;

impl WindowEvictor for ById {
    fn before(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, keep: &mut [bool]) -> Result<(), FunctionError> {
        keep.iter_mut().zip(rows.column::<i64>("id")?.values()).for_each(|(keep, id)| *keep = id % 3 != 0);
        Ok(())
    }

    fn after(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, keep: &mut [bool]) -> Result<(), FunctionError> {
        keep.iter_mut().zip(rows.column::<i64>("id")?.values()).for_each(|(keep, id)| *keep = id % 5 != 0);
        Ok(())
    }
}

fn function(two_inputs: bool) -> RegisteredFunction {
    let kind = if two_inputs { FunctionKind::CoGroup } else { FunctionKind::Window };
    let declaration = FunctionDeclaration::new("collect", kind)
        .input("at", LogicalType::Int64)
        .input("id", LogicalType::Int64)
        .output("first", LogicalType::String)
        .output("second", LogicalType::String);
    if !two_inputs {
        return RegisteredFunction::window(declaration, |_| Ok(Collect)).unwrap();
    }
    let declaration = declaration.second_input("time", LogicalType::Int64).second_input("id", LogicalType::Int64);
    RegisteredFunction::co_group(declaration, |_| Ok(Collect)).unwrap()
}

pub(in crate::operators) fn obedient(by_clock: bool) -> RegisteredFunction {
    let declaration = FunctionDeclaration::new("obedient", FunctionKind::Trigger).input("say", LogicalType::Int64);
    let declaration = declaration.processing_timers().merging();
    let declaration = if by_clock { declaration } else { declaration.event_timers() };
    RegisteredFunction::trigger(declaration, move |_| Ok(Obedient { by_clock })).unwrap()
}

fn by_id() -> RegisteredFunction {
    let declaration = FunctionDeclaration::new("by id", FunctionKind::Evictor).input("id", LogicalType::Int64);
    RegisteredFunction::evictor(declaration, |_| Ok(ById)).unwrap()
}

fn harness(setup: &Setup) -> Harness {
    let evict = if setup.evict_ms > 0 { Some(Evict::Time { ms: setup.evict_ms }) } else { None };
    let mut harness = Harness::new(function(setup.two_inputs))
        .key_pair("k", "key", LogicalType::Int64)
        .window(setup.window.clone(), evict)
        .allowed_lateness(setup.lateness_ms)
        .batch_rows(7);
    harness = if setup.by_clock { harness.by_clock() } else { harness.event_time("at").second_event_time("time") };
    if setup.has_trigger {
        harness = harness.trigger(obedient(setup.by_clock), Options::new());
    }
    if setup.has_evictor {
        harness = harness.evictor(by_id(), Options::new());
    }
    if let Some(firing) = setup.results {
        harness = harness.firing(firing);
    }
    harness
}

fn some_setup(rng: &mut StdRng) -> Setup {
    let slide_ms = rng.random_range(1..8);
    let window = match rng.random_range(0..5) {
        0 => WindowSpec::Tumbling { size_ms: rng.random_range(1..20), offset_ms: 0 },
        1 => WindowSpec::Sliding { size_ms: slide_ms + rng.random_range(0..15), slide_ms, offset_ms: 0 },
        2 => WindowSpec::Cumulate { size_ms: slide_ms * rng.random_range(1..4), step_ms: slide_ms, offset_ms: 0 },
        3 => WindowSpec::Session { gap: SessionGap::Column { name: "gap".into() } },
        _ => WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 10 } },
    };
    let is_session = matches!(window, WindowSpec::Session { .. });
    let (two_inputs, mut has_trigger) = (rng.random_bool(0.3), rng.random_bool(0.6));
    let has_evictor = !two_inputs && rng.random_bool(0.3);
    let lateness_ms = if rng.random_bool(0.5) { rng.random_range(1..30) } else { 0 };
    let evict_ms = if !two_inputs && !has_evictor && rng.random_bool(0.3) { rng.random_range(1..10) } else { 0 };
    let results = (!has_trigger && rng.random_bool(0.6)).then(|| {
        let mut trigger = || {
            let (every, rows) = (rng.random_range(1..10), rng.random_range(1..4));
            let [by_clock, by_rows] = rng.random::<[bool; 2]>();
            (by_clock || by_rows).then(|| Trigger { every_ms: by_clock.then_some(every), rows: by_rows.then_some(rows) })
        };
        let (early, late) = (trigger(), trigger().filter(|_| lateness_ms > 0));
        FiringSpec { early, lateness_ms, late, accumulate: rng.random_bool(0.6) }
    });
    let results =
        results.filter(|firing| firing.early.is_some() || (lateness_ms > 0 && (firing.late.is_some() || !firing.accumulate)));
    has_trigger |= !is_session && !has_evictor && lateness_ms == 0 && results.is_none();
    Setup { window, lateness_ms, results, two_inputs, has_trigger, has_evictor, evict_ms, by_clock: false }
}

fn push(run: &mut HarnessRun, setup: &Setup, input: usize, rows: &[Row]) {
    let json = |row: &Row| {
        let names = if input == 0 { ["k", "at"] } else { ["key", "time"] };
        let mut value = json!({ names[0]: row.key, names[1]: row.time, "id": row.id });
        if setup.has_trigger {
            value["say"] = row.say.into();
        }
        if matches!(&setup.window, WindowSpec::Session { gap: SessionGap::Column { .. } }) {
            value["gap"] = row.gap.into();
        }
        value
    };
    let rows: Vec<Value> = rows.iter().map(json).collect();
    if input == 0 { run.push(&rows).unwrap() } else { run.push_second(&rows).unwrap() }
}

/// What was given, and the ids of late rows.
fn found(run: &mut HarnessRun, setup: &Setup) -> (Vec<String>, Vec<i64>) {
    let ms = |value: &Value| {
        let text = value.as_str().expect("a time");
        let (minutes, seconds) = (&text[14..16], text[17..].parse::<f64>().expect("seconds"));
        let minutes: i64 = minutes.parse().expect("minutes");
        let ms = (seconds * 1000.0).round() as i64 + 60_000 * minutes;
        if text.starts_with("1969") { ms - 3_600_000 } else { ms }
    };
    let given = |row: &Value| {
        assert_eq!(ms(&row["window_time"]), ms(&row["window_end"]) - 1);
        let texts = [&row["first"], &row["second"]].map(|text| text.as_str().expect("a text").to_owned());
        format!("{} {}..{} [{}] [{}]", row["k"], ms(&row["window_start"]), ms(&row["window_end"]), texts[0], texts[1])
    };
    let rows = run.output().unwrap().iter().map(given).collect();
    let sides = if setup.by_clock {
        vec![]
    } else if setup.two_inputs {
        vec!["late_left", "late_right"]
    } else {
        vec!["late"]
    };
    let late = sides.into_iter().flat_map(|side| run.side_output(side).unwrap());
    (rows, late.map(|row| row["id"].as_i64().expect("a number")).collect())
}

/// What a window gave, with the ids of its rows in an order that does not say which came first.
fn in_any_order(given: &mut String) {
    let parts = given.split('[').map(|part| match part.split_once(']') {
        None => part.to_owned(),
        Some((ids, behind)) => {
            let mut ids: Vec<&str> = ids.split_whitespace().collect();
            ids.sort_unstable();
            format!("{}]{behind}", ids.join(" "))
        }
    });
    *given = parts.collect::<Vec<_>>().join("[");
}

fn check(run: &mut HarnessRun, model: &mut Model, what: &str) -> usize {
    let (mut rows, mut late) = found(run, &model.setup);
    let (mut expected, mut expected_late) = (std::mem::take(&mut model.given), std::mem::take(&mut model.late));
    if model.in_any_order {
        rows.iter_mut().chain(&mut expected).for_each(in_any_order);
    }
    rows.sort();
    expected.sort();
    late.sort_unstable();
    expected_late.sort_unstable();
    assert_eq!(rows, expected, "{what}: {:?}", model.setup);
    assert_eq!(late, expected_late, "{what}: {:?}", model.setup);
    rows.len() + late.len()
}

/// Where the rows of windows stand.
trait Standing {
    /// Where they do from now on.
    fn stand(&mut self, harness: Harness) -> Harness;

    /// What ran is over.
    fn look_back(&mut self, run: &HarnessRun);

    /// Whether rows of sessions that become one stand as they came, whatever was restored between.
    fn keeps_order(&self) -> bool {
        true
    }
}

/// On the heap.
struct OnHeap;

impl Standing for OnHeap {
    fn stand(&mut self, harness: Harness) -> Harness {
        harness
    }

    fn look_back(&mut self, _run: &HarnessRun) {}
}

#[test]
fn windows_give_their_rows_as_the_model_says() {
    let mut seen = BTreeMap::new();
    (0..200).for_each(|seed| check_windows(seed, &mut OnHeap, &mut seen));
    for (what, least) in [("rows", 1_500), ("watermarks", 1_500), ("clock", 30), ("restores", 150), ("ends", 150)] {
        let count = seen.get(what).copied().unwrap_or_default();
        assert!(count >= least, "the run is empty: {what} {count}");
    }
}

fn check_windows(seed: u64, standing: &mut impl Standing, seen: &mut BTreeMap<&str, usize>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let setup = some_setup(&mut rng);
    let harness = harness(&setup);
    let mut model = Model::new(setup.clone());
    model.in_any_order = !standing.keeps_order();
    let mut run = standing.stand(harness.clone().parallelism(rng.random_range(1..4))).start().unwrap();
    run.processing_time(0).unwrap();
    let (mut time, mut clock, mut id) = (0, 0, 0);
    for step in 0..rng.random_range(1..40) {
        let what = format!("seed {seed}, step {step}");
        match rng.random_range(0..10) {
            0..6 => {
                let mut row = || {
                    id += 1;
                    let (key, time) = (rng.random_range(0..4), time + rng.random_range(-25..30));
                    Row { key, time, id, say: rng.random_range(0..8), gap: rng.random_range(1..15) }
                };
                let rows: Vec<Row> = (0..6).map(|_| row()).collect();
                let input = usize::from(setup.two_inputs && rng.random_bool(0.4));
                // Without a trigger late rows are given with their batch, whatever that is.
                for rows in rows.chunks(if setup.has_trigger { rng.random_range(1..7) } else { 1 }) {
                    push(&mut run, &setup, input, rows);
                    model.take(input, rows);
                    *seen.entry("rows").or_default() += check(&mut run, &mut model, &what);
                }
            }
            6..8 => {
                time += rng.random_range(1..20);
                run.watermark(time).unwrap();
                model.advance(time);
                *seen.entry("watermarks").or_default() += check(&mut run, &mut model, &what);
            }
            8 => {
                clock += rng.random_range(1..8);
                run.processing_time(clock).unwrap();
                model.tick(clock);
                *seen.entry("clock").or_default() += check(&mut run, &mut model, &what);
            }
            _ => {
                let snapshot = run.snapshot().unwrap();
                // What is done to it afterwards is not in the snapshot.
                let row = Row { key: 1, time, id: 1_000_000, say: 3, gap: 5 };
                push(&mut run, &setup, 0, &[row, Row { key: 2, ..row }]);
                standing.look_back(&run);
                run = standing.stand(harness.clone().parallelism(rng.random_range(1..4))).restore(&snapshot).unwrap();
                run.processing_time(clock).unwrap();
                *seen.entry("restores").or_default() += 1;
                check(&mut run, &mut model, &what);
            }
        }
    }
    run.finish().unwrap();
    model.finish();
    *seen.entry("ends").or_default() += check(&mut run, &mut model, &format!("seed {seed}, end"));
    assert_nothing_left(&mut run, &format!("seed {seed}"));
    standing.look_back(&run);
}

/// No row is kept of what is over, wherever it stood.
fn assert_nothing_left(run: &mut HarnessRun, what: &str) {
    let snapshot = run.snapshot().unwrap();
    for (name, batches) in snapshot.states().filter(|(name, _)| ProcessSpec::WINDOW_ROWS.contains(name)) {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, 0, "{what}: state \"{name}\"");
    }
}
