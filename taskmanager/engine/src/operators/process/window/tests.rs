//! Functions over whole windows against a naive model: every window is a list of rows. Restored in the middle, at any parallelism.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::{Evict, WindowSpec};
use levada_common::types::LogicalType;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::function::{
    CoGroupFunction, FoldFunction, FunctionError, Output, ReduceFunction, RegisteredFunction, Rows, WindowFunction, WindowGroup,
};
use crate::harness::{Harness, HarnessRun};

/// A row: key, time, number.
type Row = (i64, i64, i64);

#[derive(Debug, Clone)]
enum Step {
    /// Rows of an input.
    Rows(usize, Vec<Row>),
    Advance(i64),
}

fn texts(ids: &mut [i64]) -> String {
    ids.sort_unstable();
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
}

/// Gives a row for every other group, two for every third, with the ids of its rows.
struct Collect;

/// How many rows `Collect` gives for a group with this key.
fn times(key: i64) -> usize {
    [1, 0, 2][key as usize % 3]
}

impl WindowFunction for Collect {
    fn process(&mut self, group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
        let key = group.key().column::<i64>("k")?.get(0);
        let text = texts(&mut rows.column::<i64>("id")?.values().to_vec());
        out.side("seen")?.push((group.start_ms(),))?;
        (0..times(key)).try_for_each(|_| out.push((rows.len() as i64, text.as_str())))
    }
}

/// Gives the ids of both inputs.
struct Pair;

impl CoGroupFunction for Pair {
    fn co_group(
        &mut self,
        group: WindowGroup<'_>,
        first: Rows<'_>,
        second: Rows<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        assert!(group.end_ms() > group.start_ms() && first.len() + second.len() > 0);
        let [first, second] = [first, second].map(|rows| rows.column::<i64>("id").map(|ids| texts(&mut ids.values().to_vec())));
        out.push((first?, second?))
    }
}

fn collect() -> RegisteredFunction {
    let declaration = FunctionDeclaration::new("collect", FunctionKind::Window)
        .input("at", LogicalType::Int64)
        .input("id", LogicalType::Int64)
        .output("n", LogicalType::Int64)
        .output("ids", LogicalType::String)
        .side_output("seen", "start", LogicalType::Int64);
    RegisteredFunction::window(declaration, |_| Ok(Collect)).unwrap()
}

fn pair() -> RegisteredFunction {
    let declaration = FunctionDeclaration::new("pair", FunctionKind::CoGroup)
        .input("at", LogicalType::Int64)
        .input("id", LogicalType::Int64)
        .second_input("time", LogicalType::Int64)
        .second_input("id", LogicalType::Int64)
        .output("first", LogicalType::String)
        .output("second", LogicalType::String);
    RegisteredFunction::co_group(declaration, |_| Ok(Pair)).unwrap()
}

fn windows_of(window: &WindowSpec, time: i64) -> Vec<(i64, i64)> {
    let grid = |size: i64, offset: i64| (time - offset).div_euclid(size) * size + offset;
    match *window {
        WindowSpec::Tumbling { size_ms, offset_ms } => vec![(grid(size_ms, offset_ms), grid(size_ms, offset_ms) + size_ms)],
        WindowSpec::Sliding { size_ms, slide_ms, offset_ms } => {
            let starts = (0..).map(|n| grid(slide_ms, offset_ms) - n * slide_ms).take_while(|start| start + size_ms > time);
            starts.map(|start| (start, start + size_ms)).collect()
        }
        WindowSpec::Cumulate { size_ms, step_ms, offset_ms } => {
            let start = grid(size_ms, offset_ms);
            (1..=size_ms / step_ms).map(|n| (start, start + n * step_ms)).filter(|(_, end)| time < *end).collect()
        }
        _ => panic!("{window:?} is not tested here"),
    }
}

/// By window (end, start) and key: the rows of both inputs.
type Windows = BTreeMap<(i64, i64, i64), [Vec<Row>; 2]>;

/// Every window with its rows, and how many rows are late.
fn naive(window: &WindowSpec, steps: &[Step]) -> (Windows, usize) {
    let (mut open, mut late, mut watermark) = (Windows::new(), 0, i64::MIN);
    for step in steps {
        match step {
            Step::Advance(to) => watermark = *to,
            Step::Rows(input, rows) => {
                for row in rows {
                    let mut windows = windows_of(window, row.1);
                    windows.retain(|(_, end)| end - 1 > watermark);
                    late += usize::from(windows.is_empty());
                    for (start, end) in windows {
                        open.entry((end, start, row.0)).or_default()[*input].push(*row);
                    }
                }
            }
        }
    }
    (open, late)
}

fn some_window(rng: &mut StdRng) -> WindowSpec {
    let slide_ms = rng.random_range(1..8);
    match rng.random_range(0..3) {
        0 => WindowSpec::Tumbling { size_ms: rng.random_range(1..20), offset_ms: 0 },
        1 => WindowSpec::Sliding {
            size_ms: slide_ms + rng.random_range(0..15),
            slide_ms,
            offset_ms: rng.random_range(0..slide_ms),
        },
        _ => WindowSpec::Cumulate { size_ms: slide_ms * rng.random_range(1..4), step_ms: slide_ms, offset_ms: 0 },
    }
}

fn steps(rng: &mut StdRng, inputs: usize, time: &mut i64, next: &mut i64) -> Vec<Step> {
    let mut step = |rng: &mut StdRng| {
        if rng.random_bool(0.3) {
            *time += rng.random_range(1..12);
            return Step::Advance(*time);
        }
        let mut row = |rng: &mut StdRng| {
            *next += 1;
            (rng.random_range(0..5), *time + rng.random_range(-15..25), *next)
        };
        Step::Rows(rng.random_range(0..inputs), (0..rng.random_range(1..20)).map(|_| row(rng)).collect())
    };
    let count = rng.random_range(1..12);
    (0..count).map(|_| step(rng)).collect()
}

fn run(run: &mut HarnessRun, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Rows(0, rows) => {
                let rows: Vec<Value> = rows.iter().map(|(k, at, id)| json!({"k": k, "at": at, "id": id})).collect();
                run.push(&rows).unwrap();
            }
            Step::Rows(_, rows) => {
                let rows: Vec<Value> = rows.iter().map(|(k, at, id)| json!({"key": k, "time": at, "id": id})).collect();
                run.push_second(&rows).unwrap();
            }
            Step::Advance(to) => run.watermark(*to).unwrap(),
        }
    }
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// A row as a function over windows gives it, with these columns of its own.
fn given(row: &Value, own: &[&str]) -> String {
    assert_eq!(row["window_time"].as_str().map(|_| ()), Some(()), "{row}");
    let own: Vec<&Value> = own.iter().map(|name| &row[*name]).collect();
    json!([row["k"], row["window_start"], row["window_end"], own]).to_string()
}

/// Such a row of the model.
fn expected(key: i64, start: i64, end: i64, own: Value) -> String {
    let text = |ms: i64| {
        let (seconds, millis) = (ms.div_euclid(1_000), ms.rem_euclid(1_000));
        let day = if seconds < 0 { "1969-12-31T23:59:" } else { "1970-01-01T00:00:" };
        let seconds = seconds.rem_euclid(60);
        if millis == 0 { format!("{day}{seconds:02}") } else { format!("{day}{seconds:02}.{millis:03}") }
    };
    json!([key, text(start), text(end), own]).to_string()
}

/// What `Collect` gives of these windows.
fn collected(windows: Windows, evict: Option<Evict>) -> Vec<String> {
    let mut model = Vec::new();
    for ((end, start, key), [mut group, _]) in windows {
        match evict {
            None => {}
            Some(Evict::Rows { rows }) => drop(group.drain(..group.len().saturating_sub(rows as usize))),
            Some(Evict::Time { ms }) => {
                let last = group.iter().map(|row| row.1).max().unwrap();
                group.retain(|row| row.1 > last - ms);
            }
        }
        let text = texts(&mut group.iter().map(|row| row.2).collect::<Vec<_>>());
        model.extend((0..times(key)).map(|_| expected(key, start, end, json!([group.len(), text]))));
    }
    model
}

/// Runs all steps, restored in the middle at another parallelism; answers what came out.
fn restored_in_the_middle(harness: &Harness, rng: &mut StdRng, steps: &[Vec<Step>; 2]) -> (Vec<Value>, HarnessRun) {
    // On the heap, or in front of a store.
    let mut somewhere = || match rng.random_range(0..4) {
        0 => harness.clone(),
        at => harness.clone().store([0, 3_000, 100_000][at - 1]),
    };
    let harnesses = [somewhere(), somewhere()];
    let [at_first, then] = harnesses.map(|harness| harness.parallelism(rng.random_range(1..4)));
    let mut before = at_first.start().unwrap();
    run(&mut before, &steps[0]);
    let snapshot = before.snapshot().unwrap();
    let mut rows = before.output().unwrap();
    // What is done to it afterwards is not in the snapshot.
    run(&mut before, &steps[1]);
    let mut after = then.restore(&snapshot).unwrap();
    run(&mut after, &steps[1]);
    after.finish().unwrap();
    rows.extend(after.output().unwrap());
    (rows, after)
}

fn both(rng: &mut StdRng, inputs: usize) -> ([Vec<Step>; 2], Vec<Step>) {
    let (mut time, mut next) = (0, 0);
    let steps = [steps(rng, inputs, &mut time, &mut next), steps(rng, inputs, &mut time, &mut next)];
    let all = steps.concat();
    (steps, all)
}

#[test]
fn a_function_gets_the_rows_of_each_key_and_window() {
    let mut rows = 0;
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let window = some_window(&mut rng);
        let evict = match rng.random_range(0..3) {
            0 => None,
            1 => Some(Evict::Rows { rows: rng.random_range(1..4) }),
            _ => Some(Evict::Time { ms: rng.random_range(1..10) }),
        };
        // Which rows came last is not known across a restore or slices.
        let evict = evict.filter(|evict| matches!(evict, Evict::Time { .. }) || matches!(window, WindowSpec::Tumbling { .. }));
        let harness =
            Harness::new(collect()).key("k", LogicalType::Int64).event_time("at").window(window.clone(), evict).batch_rows(7);
        let (steps, all) = both(&mut rng, 1);
        let (given_rows, _) = restored_in_the_middle(&harness, &mut rng, &steps);
        let model = collected(naive(&window, &all).0, evict);
        rows += model.len();
        let found = given_rows.iter().map(|row| given(row, &["n", "ids"])).collect();
        assert_eq!(sorted(found), sorted(model), "seed {seed}: {window:?} {evict:?}");
    }
    assert!(rows > 5_000, "the run is empty: {rows} rows");
}

#[test]
fn a_co_group_gets_the_rows_of_both_inputs() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let window = some_window(&mut rng);
        let harness = Harness::new(pair())
            .key_pair("k", "key", LogicalType::Int64)
            .event_time("at")
            .second_event_time("time")
            .window(window.clone(), None)
            .batch_rows(7);
        let (steps, all) = both(&mut rng, 2);
        let (rows, _) = restored_in_the_middle(&harness, &mut rng, &steps);
        let model = naive(&window, &all).0.into_iter().map(|((end, start, key), inputs)| {
            let [first, second] = inputs.map(|rows| texts(&mut rows.iter().map(|row| row.2).collect::<Vec<_>>()));
            expected(key, start, end, json!([first, second]))
        });
        let found = rows.iter().map(|row| given(row, &["first", "second"])).collect();
        assert_eq!(sorted(found), sorted(model.collect()), "seed {seed}: {window:?}");
    }
}

/// Rows by how much the clock goes on before them; each has a time of its own that no one may go by.
type Timed = (i64, Vec<Row>);

fn timed(rng: &mut StdRng, next: &mut i64) -> Vec<Timed> {
    let mut row = |rng: &mut StdRng| {
        *next += 1;
        (rng.random_range(0..5), -1, *next)
    };
    let count = rng.random_range(1..12);
    (0..count).map(|_| (rng.random_range(0..12), (0..rng.random_range(1..20)).map(|_| row(rng)).collect())).collect()
}

/// Runs the steps by a clock that begins at `clock`, and says what they would be by event time; windows that were restored at `ahead`
/// see them at that time or later.
fn run_by_clock(by_clock: &mut HarnessRun, steps: &[Timed], mut clock: i64, ahead: Option<i64>) -> Vec<Step> {
    let begun = clock + steps[0].0;
    let mut seen = Vec::new();
    for (on, rows) in steps {
        clock += on;
        let now = ahead.map_or(clock, |ahead| clock.max(ahead + (clock - begun) / 2));
        by_clock.processing_time(clock).unwrap();
        run(by_clock, &[Step::Rows(0, rows.clone())]);
        seen.extend([Step::Advance(now - 1), Step::Rows(0, rows.iter().map(|(key, _, id)| (*key, now, *id)).collect())]);
    }
    seen
}

#[test]
fn windows_of_processing_time_have_the_rows_that_come_in_them() {
    let mut rows = 0;
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let window = some_window(&mut rng);
        let evict = rng.random_bool(0.3).then(|| Evict::Time { ms: rng.random_range(1..10) });
        let harness = Harness::new(collect()).key("k", LogicalType::Int64).window(window.clone(), evict).by_clock().batch_rows(7);
        let mut next = 0;
        let steps = [timed(&mut rng, &mut next), timed(&mut rng, &mut next)];
        let mut somewhere = || match rng.random_range(0..4) {
            0 => harness.clone(),
            at => harness.clone().store([0, 3_000, 100_000][at - 1]),
        };
        let harnesses = [somewhere(), somewhere()];
        let [at_first, then] = harnesses.map(|harness| harness.parallelism(rng.random_range(1..4)));
        let mut before = at_first.start().unwrap();
        let mut all = run_by_clock(&mut before, &steps[0], 5, None);
        let reached = 5 + steps[0].iter().map(|(on, _)| on).sum::<i64>();
        let snapshot = before.snapshot().unwrap();
        let mut given_rows = before.output().unwrap();
        let mut after = then.restore(&snapshot).unwrap();
        all.extend(run_by_clock(&mut after, &steps[1], reached + rng.random_range(-40..40), Some(reached)));
        after.finish().unwrap();
        given_rows.extend(after.output().unwrap());
        let (groups, late) = naive(&window, &all);
        assert_eq!(late, 0);
        let model = collected(groups, evict);
        rows += model.len();
        let found = given_rows.iter().map(|row| given(row, &["n", "ids"])).collect();
        assert_eq!(sorted(found), sorted(model), "seed {seed}: {window:?} {evict:?}");
    }
    assert!(rows > 3_000, "the run is empty: {rows} rows");
}

/// A barrier comes to each instance at a moment of its own, so that one may have given a window that another one has not.
#[test]
fn instances_whose_barriers_are_apart_lose_nothing_and_repeat_nothing() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let window = some_window(&mut rng);
        let harness = Harness::new(collect()).key("k", LogicalType::Int64).window(window.clone(), None).by_clock();
        let mut next = 0;
        let steps = [timed(&mut rng, &mut next), timed(&mut rng, &mut next)];
        let width = rng.random_range(1..4);
        let mut before = harness.clone().parallelism(width).start().unwrap();
        let mut all = run_by_clock(&mut before, &steps[0], 5, None);
        let reached = 5 + steps[0].iter().map(|(on, _)| on).sum::<i64>();
        let ahead: Vec<i64> = (0..width).map(|_| reached + rng.random_range(0..20)).collect();
        ahead.iter().enumerate().for_each(|(instance, to)| before.processing_time_of(instance, *to).unwrap());
        let snapshot = before.snapshot().unwrap();
        let mut given_rows = before.output().unwrap();
        let reached = ahead.into_iter().max().expect("there is an instance");
        let mut after = harness.parallelism(rng.random_range(1..4)).restore(&snapshot).unwrap();
        all.extend(run_by_clock(&mut after, &steps[1], reached + rng.random_range(0..40), Some(reached)));
        after.finish().unwrap();
        given_rows.extend(after.output().unwrap());
        let model = collected(naive(&window, &all).0, None);
        let found = given_rows.iter().map(|row| given(row, &["n", "ids"])).collect();
        assert_eq!(sorted(found), sorted(model), "seed {seed}: {window:?}");
    }
}

#[test]
fn a_co_group_has_the_rows_of_both_inputs_that_come_in_its_window() {
    let sliding = WindowSpec::Sliding { size_ms: 10, slide_ms: 5, offset_ms: 0 };
    let harness = Harness::new(pair()).key_pair("k", "key", LogicalType::Int64).window(sliding, None).by_clock();
    let mut co_group = harness.start().unwrap();
    co_group.processing_time(3).unwrap();
    run(&mut co_group, &[Step::Rows(0, vec![(1, 900, 1), (2, 0, 2)]), Step::Rows(1, vec![(1, -900, 3)])]);
    co_group.processing_time(7).unwrap();
    run(&mut co_group, &[Step::Rows(1, vec![(1, 0, 4)]), Step::Advance(1_000)]);
    let given_now = |co_group: &mut HarnessRun| {
        let rows = co_group.output().unwrap();
        sorted(rows.iter().map(|row| given(row, &["first", "second"])).collect())
    };
    let first = [expected(1, -5, 5, json!(["1", "3"])), expected(2, -5, 5, json!(["2", ""]))];
    assert_eq!(given_now(&mut co_group), first, "event time does not fire it");
    co_group.processing_time(10).unwrap();
    assert_eq!(given_now(&mut co_group), [expected(1, 0, 10, json!(["1", "3 4"])), expected(2, 0, 10, json!(["2", ""]))]);
    co_group.finish().unwrap();
    assert_eq!(given_now(&mut co_group), [expected(1, 5, 15, json!(["", "4"]))]);
}

/// Overlapping windows of more rows than memory holds: slices stay in the store until the last window that has them.
#[test]
fn windows_of_more_rows_than_memory_holds_are_handed_out_range_by_range() {
    let window = WindowSpec::Sliding { size_ms: 30, slide_ms: 10, offset_ms: 0 };
    let harness = Harness::new(collect()).key("k", LogicalType::Int64).event_time("at").window(window, None);
    let mut runs = [harness.clone().start().unwrap(), harness.store(256 << 10).start().unwrap()];
    let mut most = 0;
    for time in (0..60).step_by(10) {
        for part in 0..10 {
            let row = |key: i64| json!({"k": key % 500, "at": time + key % 10, "id": part * 1_000 + key});
            let rows: Vec<Value> = (0..1_000).map(row).collect();
            for run in &mut runs {
                run.push(&rows).unwrap();
            }
            most = most.max(runs[1].metrics().state_bytes.load(Ordering::Relaxed));
        }
        runs.iter_mut().for_each(|run| run.watermark(time + 9).unwrap());
        let [expected, found] = runs.each_mut().map(|run| sorted(run.output().unwrap().iter().map(Value::to_string).collect()));
        assert!(found == expected, "at {time}");
    }
    assert!(most <= 512 << 10, "{most} bytes were held");
    runs.iter_mut().for_each(|run| run.finish().unwrap());
    let [expected, found] = runs.each_mut().map(|run| sorted(run.output().unwrap().iter().map(Value::to_string).collect()));
    assert!(found == expected && !found.is_empty());
    assert!(runs[1].snapshot().unwrap().states().all(|(_, rows)| rows.iter().all(|rows| rows.num_rows() < 2)));
}

/// Rows come in the order in which they came, and every group is seen, whatever it gives.
#[test]
fn rows_keep_their_order_and_side_outputs_go_out() {
    struct InOrder;
    impl WindowFunction for InOrder {
        fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
            assert!(rows.column::<i64>("id")?.values().is_sorted());
            out.push((rows.len() as i64,))
        }
    }
    let declaration = FunctionDeclaration::new("in order", FunctionKind::Window)
        .keyed(false)
        .input("at", LogicalType::Int64)
        .input("id", LogicalType::Int64)
        .output("n", LogicalType::Int64);
    let tumbling = WindowSpec::Tumbling { size_ms: 10, offset_ms: 0 };
    let harness = Harness::new(RegisteredFunction::window(declaration, |_| Ok(InOrder)).unwrap());
    let mut run_in_order = harness.event_time("at").window(tumbling.clone(), None).start().unwrap();
    for step in 0..20 {
        let row = |id: i64| json!({"at": (id * 7) % 30, "id": step * 100 + id});
        run_in_order.push(&(0..100).map(row).collect::<Vec<_>>()).unwrap();
    }
    run_in_order.finish().unwrap();
    let counts: Vec<Value> = run_in_order.output().unwrap().iter().map(|row| row["n"].clone()).collect();
    assert_eq!(counts.iter().filter_map(Value::as_i64).sum::<i64>(), 2_000);
    assert_eq!(counts.len(), 3, "a group without a key for each window");

    let mut seen = Harness::new(collect()).key("k", LogicalType::Int64).event_time("at").window(tumbling, None).start().unwrap();
    run(&mut seen, &[Step::Rows(0, (0..30).map(|n| (n % 6, n, n)).collect())]);
    seen.finish().unwrap();
    assert_eq!(seen.side_output("seen").unwrap().len(), 18);
}

struct Sum;

impl ReduceFunction for Sum {
    type Value = i64;

    fn reduce(so_far: &mut i64, next: i64) {
        *so_far += next;
    }
}

struct Count;

impl FoldFunction for Count {
    type Input = i64;
    type Accumulator = i64;

    fn initial() -> i64 {
        0
    }

    fn fold(so_far: &mut i64, _next: i64) {
        *so_far += 1;
    }
}

#[test]
fn a_reduce_and_a_fold_give_a_row_for_each_key_and_window() {
    let tumbling = || WindowSpec::Tumbling { size_ms: 10, offset_ms: 0 };
    let declare =
        |name: &str, kind| FunctionDeclaration::new(name, kind).input("at", LogicalType::Int64).output("x", LogicalType::Int64);
    let sum = RegisteredFunction::reduce::<Sum>(declare("sum", FunctionKind::Reduce)).unwrap();
    let count = RegisteredFunction::fold::<Count>(declare("count", FunctionKind::Fold)).unwrap();
    for (function, expected) in [(sum, [3, 25, 4]), (count, [2, 2, 1])] {
        let mut run =
            Harness::new(function).key("k", LogicalType::Int64).event_time("at").window(tumbling(), None).start().unwrap();
        let rows = [(1, 1), (1, 2), (2, 4), (1, 12), (1, 13)].map(|(k, at)| json!({"k": k, "at": at}));
        run.push(&rows).unwrap();
        run.finish().unwrap();
        let mut rows: Vec<(i64, String, i64)> = run
            .output()
            .unwrap()
            .iter()
            .map(|row| (row["k"].as_i64().unwrap(), row["window_start"].to_string(), row["x"].as_i64().unwrap()))
            .collect();
        rows.sort();
        assert_eq!(rows.iter().map(|row| row.2).collect::<Vec<_>>(), expected);
    }
}
