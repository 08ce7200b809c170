//! The best rows of each key and window against sorted lists, in one run and across restores.

use std::sync::atomic::Ordering;

use arrow::array::TimestampMillisecondArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use levada_common::plan::{TopWindow, WindowSpec, WindowTime};
use levada_common::time::Watermark;

use super::*;

/// Length of windows.
const SIZE_MS: i64 = 10;

/// Key, time, what is ordered by, number of arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) key: i64,
    pub(super) time: i64,
    pub(super) value: Option<i64>,
    pub(super) id: i64,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Rows(Vec<Row>),
    Advance(i64),
}

/// What goes out: key, place, start and end of the window, id.
pub(super) type Given = (i64, i64, (i64, i64), i64);

pub(super) fn input() -> StreamSchema {
    let columns =
        [("k", LogicalType::Int64), ("t", LogicalType::Timestamp), ("n", LogicalType::Int64), ("id", LogicalType::Int64)];
    let bounds = ["window_start", "window_end"].map(|name| (name, LogicalType::Timestamp));
    let columns = columns.into_iter().chain(bounds).map(|(name, ty)| Column::new(name, ty, name == "n"));
    StreamSchema { event_time: Some("t".into()), ..StreamSchema::append(columns.collect()) }
}

fn start(time: i64) -> i64 {
    time.div_euclid(SIZE_MS) * SIZE_MS
}

pub(super) fn batch(rows: &[Row]) -> RecordBatch {
    let times =
        |of: &dyn Fn(&Row) -> i64| -> ArrayRef { Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(of))) };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.key))),
        times(&|row| row.time),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.value))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.id))),
        times(&|row| start(row.time)),
        times(&|row| start(row.time) + SIZE_MS),
    ];
    RecordBatch::try_new(super::windows::input().to_arrow(), columns).expect("columns match the schema")
}

pub(super) fn spec(top: &TopSpec) -> OperatorSpec {
    let given = ["k", "id"].map(|name| input().column(name).expect("it is one").clone());
    let place = Column::new("place", LogicalType::Int64, false);
    let window = ["window_start", "window_end", "window_time"].map(|name| Column::new(name, LogicalType::Timestamp, false));
    let columns = given.into_iter().chain([place]).chain(window).collect();
    let late = StreamSchema::append(vec![input().column("id").expect("it is one").clone()]);
    OperatorSpec {
        uid: Uid::new("best"),
        clause: "order_by".into(),
        kind: OperatorKind::Top(top.clone()),
        input: input(),
        output: StreamSchema { event_time: Some("window_time".into()), ..StreamSchema::append(columns) },
        sides: vec![SideOutput { name: SideOutput::LATE.into(), schema: late }],
        bad_records: BadRecordPolicy::Fail,
    }
}

pub(super) fn top(rng: &mut StdRng) -> TopSpec {
    let window = [TopWindow::Same, TopWindow::Tumbling { size_ms: SIZE_MS, offset_ms: 0, time: WindowTime::default() }]
        [rng.random_range(0..2)]
    .clone();
    TopSpec {
        keys: if rng.random_bool(0.8) { vec!["k".into()] } else { Vec::new() },
        order: vec![by("n", LogicalType::Int64, rng.random())],
        newest_wins: false,
        limit: rng.random_range(1..4),
        place: Some("place".into()),
        changelog_full: false,
        ttl_ms: None,
        window: Some(window),
        with_ties: rng.random(),
        local: false,
    }
}

/// In windows that overlap, of this time.
pub(super) fn overlapping(rng: &mut StdRng, time: WindowTime) -> TopWindow {
    let windows = [
        WindowSpec::Sliding { size_ms: 10, slide_ms: 4, offset_ms: 1 },
        WindowSpec::Sliding { size_ms: 6, slide_ms: 3, offset_ms: 0 },
        WindowSpec::Cumulate { size_ms: 12, step_ms: 4, offset_ms: 2 },
    ];
    TopWindow::Overlapping { windows: windows[rng.random_range(0..3)].clone(), time }
}

/// As `top`, or in windows that overlap.
pub(super) fn any_top(rng: &mut StdRng) -> TopSpec {
    let top = top(rng);
    match rng.random() {
        true => TopSpec { window: Some(overlapping(rng, WindowTime::default())), ..top },
        false => top,
    }
}

/// Start and end of each window that has a time.
fn windows_of(top: &TopSpec, time: i64) -> Vec<(i64, i64)> {
    let tumbling = |size: i64, offset: i64| {
        let start = (time - offset).div_euclid(size) * size + offset;
        (start, start + size)
    };
    match top.window.as_ref().expect("it is in windows") {
        TopWindow::Same => vec![tumbling(SIZE_MS, 0)],
        TopWindow::Tumbling { size_ms, offset_ms, .. } => vec![tumbling(*size_ms, *offset_ms)],
        TopWindow::Overlapping { windows: WindowSpec::Sliding { size_ms, slide_ms, offset_ms }, .. } => {
            let starts = (time - size_ms + 1..=time).filter(|start| (start - offset_ms).rem_euclid(*slide_ms) == 0);
            starts.map(|start| (start, start + size_ms)).collect()
        }
        TopWindow::Overlapping { windows: WindowSpec::Cumulate { size_ms, step_ms, offset_ms }, .. } => {
            let (start, end) = tumbling(*size_ms, *offset_ms);
            (1..)
                .map(|steps| (start, start + steps * step_ms))
                .take_while(|(_, to)| *to <= end)
                .filter(|(_, to)| *to > time)
                .collect()
        }
        TopWindow::Overlapping { windows, .. } => panic!("{windows:?} do not overlap"),
    }
}

pub(super) fn steps(rng: &mut StdRng, time: &mut i64, next: &mut i64) -> Vec<Step> {
    let count = rng.random_range(1..12);
    steps_of_keys(rng, time, next, (4, count))
}

/// So many steps, of so many keys.
pub(super) fn steps_of_keys(rng: &mut StdRng, time: &mut i64, next: &mut i64, (keys, count): (i64, usize)) -> Vec<Step> {
    let row = |rng: &mut StdRng, time: i64, next: &mut i64| {
        *next += 1;
        let value = rng.random_bool(0.9).then(|| rng.random_range(0..5));
        Row { key: rng.random_range(0..keys), time: time + rng.random_range(-15..25), value, id: *next }
    };
    let step = |rng: &mut StdRng, time: &mut i64, next: &mut i64| match rng.random_bool(0.3) {
        true => {
            *time += rng.random_range(1..15);
            Step::Advance(*time)
        }
        false => Step::Rows((0..rng.random_range(1..20)).map(|_| row(rng, *time, next)).collect()),
    };
    (0..count).map(|_| step(rng, time, next)).collect()
}

/// What windows that fire give, and the ids of late rows: every window is a list.
pub(super) fn expected(top: &TopSpec, steps: &[Step]) -> (Vec<Given>, Vec<i64>) {
    let (mut windows, mut late, mut watermark) = (BTreeMap::<((i64, i64), i64), Vec<Row>>::new(), Vec::new(), i64::MIN);
    for step in steps {
        match step {
            Step::Advance(to) => watermark = *to,
            Step::Rows(rows) => {
                for row in rows {
                    let mut open = windows_of(top, row.time);
                    open.retain(|(_, end)| end - 1 > watermark);
                    if open.is_empty() {
                        late.push(row.id);
                    }
                    let key = if top.keys.is_empty() { 0 } else { row.key };
                    open.into_iter().for_each(|window| windows.entry((window, key)).or_default().push(*row));
                }
            }
        }
    }
    let mut given = Vec::new();
    for ((window, _), mut rows) in windows {
        rows.sort_by_key(|row| row.id);
        rows.sort_by(
            |one, other| if top.order[0].descending { other.value.cmp(&one.value) } else { one.value.cmp(&other.value) },
        );
        for (at, row) in rows.iter().enumerate() {
            let better = rows.iter().position(|other| other.value == row.value).expect("it is there");
            let place = if top.with_ties { better } else { at };
            if place < top.limit as usize {
                given.push((row.key, place as i64 + 1, window, row.id));
            }
        }
    }
    given.sort_unstable();
    late.sort_unstable();
    (given, late)
}

pub(super) struct WindowRig {
    pub(super) operator: Box<dyn Operator>,
    pub(super) metrics: Arc<crate::metrics::NodeMetrics>,
    pub(super) given: Vec<Given>,
    pub(super) late: Vec<i64>,
    /// Most bytes that were held.
    pub(super) peak_bytes: u64,
}

impl WindowRig {
    pub(super) fn new(top: &TopSpec, restored: Vec<RestoredState>, key_groups: KeyGroupRange) -> Self {
        Self::before(top, restored, key_groups, None)
    }

    /// In front of a store, or none.
    pub(super) fn before(
        top: &TopSpec,
        restored: Vec<RestoredState>,
        key_groups: KeyGroupRange,
        cold: Option<Arc<dyn ColdStores>>,
    ) -> Self {
        let mut operator = build(&spec(top), top).expect("the plan is good");
        let context =
            OperatorContext { key_groups, max_parallelism: MAX_PARALLELISM, cold, ..crate::testing::context("best", 7) };
        operator.open(&context, restored).expect("it opens");
        Self { operator, metrics: context.metrics, given: Vec::new(), late: Vec::new(), peak_bytes: 0 }
    }

    pub(super) fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Rows(rows) => {
                    self.be_ready();
                    self.operator.process(0, batch(rows)).expect("rows are taken in");
                }
                Step::Advance(to) => drop(self.operator.advance(Watermark(*to)).expect("time goes on")),
            }
            self.drain();
        }
    }

    /// Waits until there is room.
    pub(super) fn be_ready(&mut self) {
        let mut asked = 0;
        while !self.operator.is_ready().expect("the store has no errors") {
            self.operator.background().expect("the store has no errors");
            asked += 1;
            assert!(asked < 1_000, "there is no room, and nothing makes any");
        }
    }

    /// Sends what is left of a snapshot.
    pub(super) fn settle(&mut self) {
        while self.operator.background().expect("the store has no errors") {}
    }

    /// Bytes that are held.
    pub(super) fn bytes(&self) -> u64 {
        self.metrics.state_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn process(&mut self, batch: RecordBatch) {
        self.operator.process(0, batch).expect("rows are taken in");
        self.drain();
    }

    /// Number of rows that went out.
    pub(super) fn given(&self) -> usize {
        self.given.len()
    }

    pub(super) fn drain(&mut self) {
        let number = |batch: &RecordBatch, at: usize, row: usize| {
            cast(batch.column(at), &DataType::Int64).expect("a number").as_primitive::<Int64Type>().value(row)
        };
        loop {
            self.be_ready();
            let Some(batch) = self.operator.poll().expect("output is polled") else { break };
            self.peak_bytes = self.peak_bytes.max(self.bytes());
            assert!((1..=7).contains(&batch.num_rows()));
            for row in 0..batch.num_rows() {
                let [key, id, place, start, end, time] = [0, 1, 2, 3, 4, 5].map(|at| number(&batch, at, row));
                assert_eq!(time, end - 1);
                self.given.push((key, place, (start, end), id));
            }
        }
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        while let Some((_, batch)) = self.operator.poll_side().expect("late rows are polled") {
            self.late.extend((0..batch.num_rows()).map(|row| number(&batch, 0, row)));
        }
    }

    pub(super) fn finish(&mut self) {
        self.operator.finish().expect("it ends");
        self.drain();
        assert_eq!(self.metrics.state_keys.load(Ordering::Relaxed), 0, "nothing is kept of windows that have fired");
    }

    pub(super) fn sorted(mut self) -> (Vec<Given>, Vec<i64>) {
        self.given.sort_unstable();
        self.late.sort_unstable();
        (self.given, self.late)
    }
}

#[test]
fn windows_give_the_best_rows_of_each_key() {
    let mut rows = 0;
    for seed in 0..500 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = any_top(&mut rng);
        let steps = steps(&mut rng, &mut 0, &mut 0);
        let mut rig = WindowRig::new(&top, Vec::new(), everything());
        rig.run(&steps);
        rig.finish();
        rows += rig.given.len();
        assert_eq!(rig.sorted(), expected(&top, &steps), "seed {seed}: {top:?}");
    }
    assert!(rows > 5_000, "the run is empty: {rows} rows");
}

#[test]
fn restored_windows_go_on_as_if_nothing_had_been() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = TopSpec { keys: vec!["k".into()], ..any_top(&mut rng) };
        let (mut time, mut next) = (0, 0);
        let (before, after) = (steps(&mut rng, &mut time, &mut next), steps(&mut rng, &mut time, &mut next));
        let mut rig = WindowRig::new(&top, Vec::new(), everything());
        rig.run(&before);
        let parts = rig.operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken");
        let mut all =
            WindowRig { given: rig.given.clone(), late: rig.late.clone(), ..WindowRig::new(&top, Vec::new(), everything()) };
        // What is done to it afterwards is not in the snapshot.
        rig.run(&after);
        rig.finish();
        let restored = stored(rig.operator.as_mut(), parts);
        let parallelism = rng.random_range(1..4);
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let mine = |step: &Step| match step {
                Step::Advance(to) => Some(Step::Advance(*to)),
                Step::Rows(rows) => {
                    let rows: Vec<Row> = rows.iter().filter(|row| range.contains(group_of(row.key))).copied().collect();
                    (!rows.is_empty()).then_some(Step::Rows(rows))
                }
            };
            let mut part = WindowRig::new(&top, restored.clone(), range);
            part.run(&after.iter().filter_map(mine).collect::<Vec<_>>());
            part.finish();
            all.given.extend(part.given);
            all.late.extend(part.late);
        }
        let steps: Vec<Step> = before.into_iter().chain(after).collect();
        assert_eq!(all.sorted(), expected(&top, &steps), "seed {seed}: {top:?}, parallelism {parallelism}");
    }
}

/// Memory is that of the best rows, however many come.
#[test]
fn rows_that_are_not_among_the_best_are_not_kept() {
    let top = TopSpec { limit: 3, with_ties: false, keys: vec!["k".into()], ..top(&mut StdRng::seed_from_u64(1)) };
    let mut rig = WindowRig::new(&top, Vec::new(), everything());
    for step in 0..200 {
        let row = |id: i64| Row { key: id % 4, time: 3, value: Some((id * 7_919 + step) % 100_000), id: step * 100 + id };
        rig.run(&[Step::Rows((0..100).map(row).collect())]);
    }
    assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 12);
}

/// Berlin is an hour ahead of UTC: its days begin at 23:00.
#[test]
fn windows_of_a_time_zone_begin_by_its_clocks() {
    const HOUR_MS: i64 = 3_600_000;
    let zone = WindowTime { time_zone: Some("Europe/Berlin".into()), ..WindowTime::default() };
    let days = |window| TopSpec {
        keys: vec!["k".into()],
        limit: 1,
        with_ties: false,
        window: Some(window),
        ..top(&mut StdRng::seed_from_u64(1))
    };
    let tumbling = TopWindow::Tumbling { size_ms: 24 * HOUR_MS, offset_ms: 0, time: zone.clone() };
    let windows = WindowSpec::Sliding { size_ms: 48 * HOUR_MS, slide_ms: 24 * HOUR_MS, offset_ms: 0 };
    let given = |window| {
        let mut rig = WindowRig::new(&days(window), Vec::new(), everything());
        let row = |(id, hours)| Row { key: 1, time: hours * HOUR_MS, value: None, id };
        rig.run(&[Step::Rows([(1, 22), (2, 23), (3, 46)].map(row).into())]);
        rig.finish();
        let hours = |(_, _, (start, end), id): &Given| (start / HOUR_MS, end / HOUR_MS, *id);
        rig.given.iter().map(hours).collect::<Vec<_>>()
    };
    assert_eq!(given(tumbling), [(-1, 23, 1), (23, 47, 2)]);
    assert_eq!(given(TopWindow::Overlapping { windows, time: zone }), [(-25, 23, 1), (-1, 47, 1), (23, 71, 2)]);
}
