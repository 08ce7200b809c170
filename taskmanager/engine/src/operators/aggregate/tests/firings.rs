//! Windows that give results more than once, against a naive model: what stands is what a window gives that fires once, over all rows
//! that were not late, whatever the triggers, restores, parallelisms and stores on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateFunction, AggregatePhase, AggregateSpec, FiringSpec, Trigger, WindowSpec, WindowTime};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, call, in_range, spec, store, tumbling};
use super::slices::{cumulate, sliding, windows_of};
use super::standing::Standing;
use super::store::{before, everything, memory, split_parts};
use super::windows::sorted;

pub(super) fn trigger(every_ms: Option<i64>, rows: Option<u32>) -> Trigger {
    Trigger { every_ms, rows }
}

pub(super) fn triggers() -> impl Strategy<Value = Option<Trigger>> {
    prop_oneof![
        Just(None),
        Just(Some(trigger(None, Some(1)))),
        (1i64..30).prop_map(|every| Some(trigger(Some(every), None))),
        (1u32..6).prop_map(|rows| Some(trigger(None, Some(rows)))),
        (1i64..30, 1u32..6).prop_map(|(every, rows)| Some(trigger(Some(every), Some(rows)))),
    ]
}

pub(super) fn firings() -> impl Strategy<Value = FiringSpec> {
    (triggers(), prop_oneof![Just(0), 1i64..60], triggers(), any::<bool>()).prop_map(|(early, lateness_ms, late, accumulate)| {
        let lateness_ms = if early.is_none() { lateness_ms.max(1) } else { lateness_ms };
        FiringSpec { early, lateness_ms, late: late.filter(|_| lateness_ms > 0), accumulate }
    })
}

pub(super) fn windows() -> impl Strategy<Value = WindowSpec> {
    prop_oneof![
        (1i64..30).prop_map(tumbling),
        (1i64..12, 0i64..20).prop_map(|(slide, more)| sliding(slide + more, slide, slide / 2)),
        (1i64..12, 1i64..4).prop_map(|(step, steps)| cumulate(step * steps, step, 0)),
        Just(WindowSpec::Global),
    ]
}

/// What a test does.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    Rows(Vec<Row>),
    Advance(i64),
    /// So much processing time passes.
    Wait(i64),
    /// A checkpoint, after which the operator goes on for a while, and a restore from it in so many subtasks.
    Restore(u32),
}

pub(super) fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let row = (0i64..12, -60i64..60, -9i64..9);
    let deed = prop_oneof![
        5 => prop::collection::vec(row, 1..40).prop_map(Deed::Rows),
        3 => (-70i64..70).prop_map(Deed::Advance),
        2 => (1i64..40).prop_map(Deed::Wait),
        1 => (1u32..4).prop_map(Deed::Restore),
    ];
    prop::collection::vec(deed, 1..30)
}

/// The operator in its subtasks.
pub(super) struct Subtasks<'a> {
    aggregate: &'a AggregateSpec,
    /// Bytes of overlays and how lazy stores are, where there are stores.
    memory: Option<(usize, u32)>,
    /// Whether restores take over databases, where there are any.
    keeps_databases: bool,
    rigs: Vec<(Rig, KeyGroupRange)>,
    late: u64,
    now: i64,
    watermark: i64,
}

impl<'a> Subtasks<'a> {
    pub(super) fn new(aggregate: &'a AggregateSpec, memory: Option<(usize, u32)>, keeps_databases: bool) -> Self {
        let rig = match memory {
            None => Rig::new(aggregate),
            Some(memory) => before(aggregate, memory, everything(), &Vec::new(), Vec::new()),
        };
        let rigs = vec![(rig, everything())];
        Self { aggregate, memory, keeps_databases, rigs, late: 0, now: 0, watermark: i64::MIN }
    }

    /// Goes on as this aggregation from the next restore on.
    pub(super) fn change_to(&mut self, aggregate: &'a AggregateSpec) {
        self.aggregate = aggregate;
    }

    /// Goes on in front of such a store, or on the heap, from the next restore on.
    pub(super) fn move_to(&mut self, memory: Option<(usize, u32)>) {
        self.memory = memory;
    }

    /// Does it, and takes what was given since the last time.
    pub(super) fn act(&mut self, deed: &Deed) -> Vec<String> {
        match deed {
            Deed::Rows(rows) => self.process(rows),
            Deed::Advance(to) => {
                self.watermark = self.watermark.max(*to);
                self.rigs.iter_mut().for_each(|(rig, _)| rig.advance(self.watermark));
            }
            Deed::Wait(ms) => {
                self.now += ms;
                self.rigs.iter_mut().for_each(|(rig, _)| {
                    rig.tick(self.now);
                });
            }
            Deed::Restore(parallelism) => return self.restore(*parallelism),
        }
        self.take()
    }

    fn process(&mut self, rows: &[Row]) {
        for (rig, range) in &mut self.rigs {
            rig.tick(self.now);
            let mine = if self.aggregate.keys.is_empty() { rows.to_vec() } else { in_range(rows, *range) };
            if !mine.is_empty() {
                rig.process(&mine);
            }
        }
    }

    fn take(&mut self) -> Vec<String> {
        self.rigs.iter_mut().flat_map(|(rig, _)| rig.take_rows()).collect()
    }

    fn restore(&mut self, parallelism: u32) -> Vec<String> {
        let (mut databases, mut restored) = (Vec::new(), Vec::new());
        for (rig, _) in &mut self.rigs {
            let (of_rig, others) = split_parts(rig.barrier(1));
            self.late += rig.late_rows();
            // What is done after the barrier is in no snapshot.
            rig.tick(self.now + 1000);
            rig.process(&[(1, self.watermark.clamp(-60, 60) + 3, 5), (2, 70, 5)]);
            rig.advance(self.watermark.max(40));
            while rig.background() {}
            if self.keeps_databases {
                databases.extend(of_rig.into_iter().map(|(_, database)| database));
                restored.extend(store(others, || rig.background()));
            } else {
                let of_rig = of_rig.into_iter().map(|(meta, database)| super::store::as_part(meta, database));
                restored.extend(store(of_rig.chain(others).collect(), || rig.background()));
            }
        }
        let parallelism = if self.aggregate.keys.is_empty() { 1 } else { parallelism };
        self.rigs = (0..parallelism)
            .map(|subtask| {
                let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
                let rig = match self.memory {
                    None => Rig::restored(self.aggregate, restored.clone(), range),
                    Some(memory) => before(self.aggregate, memory, range, &databases, restored.clone()),
                };
                (rig, range)
            })
            .collect();
        Vec::new()
    }

    /// The end of the data: what was given, and the number of late rows.
    pub(super) fn finish(mut self) -> (Vec<String>, u64, u64) {
        self.rigs.iter_mut().for_each(|(rig, _)| rig.finish());
        let given = self.take();
        let late = self.late + self.rigs.iter().map(|(rig, _)| rig.late_rows()).sum::<u64>();
        if self.aggregate.phase == AggregatePhase::Single {
            self.rigs.iter_mut().for_each(|(rig, _)| assert_eq!(rig.take_late().len() as u64, rig.late_rows()));
        }
        let keys = self.rigs.iter().map(|(rig, _)| rig.metrics.state_keys.load(Ordering::Relaxed)).sum();
        (given, late, keys)
    }
}

/// Windows as lists of rows.
struct Model<'a> {
    window: &'a WindowSpec,
    lateness_ms: i64,
    is_keyed: bool,
    /// Count, sum and maximum by end, start and key.
    groups: BTreeMap<(i64, i64, i64), (i64, i64, i64)>,
    late: u64,
    watermark: i64,
    /// What the clock shows, where windows go by it.
    now: Option<i64>,
}

impl Model<'_> {
    fn act(&mut self, deed: &Deed) {
        match (deed, self.now) {
            (Deed::Rows(rows), None) => rows.iter().for_each(|row| self.take(*row)),
            (Deed::Rows(rows), Some(now)) => rows.iter().for_each(|(key, _, value)| self.take((*key, now, *value))),
            (Deed::Advance(to), None) => self.watermark = self.watermark.max(*to),
            (Deed::Wait(ms), Some(now)) => (self.now, self.watermark) = (Some(now + ms), now + ms - 1),
            (Deed::Wait(_), None) | (Deed::Advance(_), Some(_)) | (Deed::Restore(_), _) => {}
        }
    }

    fn take(&mut self, (key, time, value): Row) {
        let mut windows = match self.window {
            WindowSpec::Global => vec![(0, i64::MAX)],
            WindowSpec::Tumbling { size_ms, .. } => {
                let start = time.div_euclid(*size_ms) * size_ms;
                vec![(start, start + size_ms)]
            }
            window => windows_of(window, time),
        };
        windows.retain(|(_, end)| end - 1 > self.watermark.saturating_sub(self.lateness_ms));
        self.late += u64::from(windows.is_empty());
        for (start, end) in windows {
            let group = self.groups.entry((end, start, if self.is_keyed { key } else { 0 })).or_insert((0, 0, i64::MIN));
            *group = (group.0 + 1, group.1 + value, group.2.max(value));
        }
    }

    /// What would stand of the windows that are over, or of all.
    fn standing(&self, over: bool) -> Standing {
        let groups = self.groups.iter().filter(|((end, ..), _)| !over || end - 1 <= self.watermark);
        let row = |((end, start, key), (n, sum, most)): (&(i64, i64, i64), &(i64, i64, i64))| {
            let key = self.is_keyed.then(|| key.to_string());
            match self.window {
                WindowSpec::Global => (key.into_iter().collect::<Vec<_>>().join(","), format!("{n},{sum},{most}")),
                _ => {
                    let key = key.into_iter().chain([start.to_string(), end.to_string()]).collect::<Vec<_>>().join(",");
                    (key, format!("{},{n},{sum},{most}", end - 1))
                }
            }
        };
        Standing { rows: groups.map(row).collect() }
    }
}

pub(super) fn counts(keys: &[&str], window: WindowSpec, firing: FiringSpec) -> AggregateSpec {
    let calls =
        vec![call("n", AggregateFunction::Count), call("total", AggregateFunction::Sum), call("most", AggregateFunction::Max)];
    AggregateSpec { firing: Some(firing), ..spec(keys, window, calls) }
}

/// With the rows that updates replace, where results replace any and it is asked for.
pub(super) fn in_full(full: bool, aggregate: AggregateSpec) -> AggregateSpec {
    AggregateSpec { changelog_full: full && aggregate.is_changelog(), ..aggregate }
}

fn check(
    aggregate: &AggregateSpec,
    deeds: &[Deed],
    memory: Option<(usize, u32)>,
    keeps_databases: bool,
) -> Result<(), TestCaseError> {
    let (firing, window, is_keyed) = (aggregate.firing.expect("it fires"), &aggregate.window, !aggregate.keys.is_empty());
    let mut subtasks = Subtasks::new(aggregate, memory, keeps_databases);
    let lateness_ms = firing.lateness_ms;
    let now = aggregate.time.processing.then_some(0);
    let mut model = Model { window, lateness_ms, is_keyed, groups: BTreeMap::new(), late: 0, watermark: i64::MIN, now };
    let key_columns = usize::from(is_keyed) + if *window == WindowSpec::Global { 0 } else { 2 };
    let mut standing = Standing::default();
    let full = aggregate.changelog_full;
    let add = |standing: &mut Standing, given| match firing.accumulate {
        true => standing.apply_changes(given, key_columns, full, &mut BTreeSet::new()),
        false => standing.add(given, key_columns),
    };
    for (at, deed) in deeds.iter().enumerate() {
        add(&mut standing, subtasks.act(deed));
        model.act(deed);
        if firing.late.is_none() {
            let expected = model.standing(true);
            let over = standing.only(|key| expected.rows.contains_key(key));
            prop_assert_eq!(over, expected, "windows that are over, after deed {}", at);
        }
        if firing.early.is_some_and(|early| early.rows == Some(1)) && firing.late.is_none_or(|late| late.rows == Some(1)) {
            prop_assert_eq!(&standing, &model.standing(false), "everything is given at once, after deed {}", at);
        }
    }
    let (given, late, keys) = subtasks.finish();
    add(&mut standing, given);
    let mut expected = model.standing(false);
    if *window == WindowSpec::Global && !is_keyed && firing.accumulate && expected.rows.is_empty() {
        expected.rows.insert(String::new(), "0,null,null".into());
    }
    prop_assert_eq!(standing, expected);
    prop_assert_eq!((late, keys), (model.late, 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_stands_is_what_the_model_gives(
        deeds in deeds(),
        window in windows(),
        mut firing in firings(),
        keyed in any::<bool>(),
        full in any::<bool>(),
    ) {
        if window == WindowSpec::Global {
            (firing.lateness_ms, firing.late) = (0, None);
        }
        check(&in_full(full, counts(if keyed { &["k"] } else { &[] }, window, firing)), &deeds, None, false)?;
    }

    #[test]
    fn a_store_behind_changes_nothing(
        deeds in deeds(),
        window in windows(),
        mut firing in firings(),
        memory in memory(),
        keeps_databases in any::<bool>(),
        full in any::<bool>(),
    ) {
        if window == WindowSpec::Global {
            (firing.lateness_ms, firing.late) = (0, None);
        }
        check(&in_full(full, counts(&["k"], window, firing)), &deeds, Some(memory), keeps_databases)?;
    }

    #[test]
    fn windows_of_processing_time_give_what_the_model_gives(
        deeds in deeds(),
        window in windows(),
        early in triggers(),
        accumulate in any::<bool>(),
        keyed in any::<bool>(),
        store in prop::option::of((memory(), any::<bool>())),
        full in any::<bool>(),
    ) {
        prop_assume!(window != WindowSpec::Global);
        let firing = FiringSpec { early, lateness_ms: 0, late: None, accumulate };
        let aggregate = counts(if keyed || store.is_some() { &["k"] } else { &[] }, window, firing);
        let aggregate = in_full(full, AggregateSpec { time: WindowTime::processing(), ..aggregate });
        let (memory, keeps_databases) = store.unzip();
        check(&aggregate, &deeds, memory, keeps_databases.unwrap_or_default())?;
    }

    #[test]
    fn two_phases_give_what_one_gives(
        deeds in deeds(),
        window in windows(),
        mut firing in firings(),
        keyed in any::<bool>(),
        full in any::<bool>(),
    ) {
        if window == WindowSpec::Global {
            (firing.lateness_ms, firing.late) = (0, None);
        }
        let aggregate = in_full(full, counts(if keyed { &["k"] } else { &[] }, window, firing));
        let mut single = Rig::new(&aggregate);
        let mut first = Rig::new(&AggregateSpec { phase: AggregatePhase::Partial, ..aggregate.clone() });
        let mut last = Rig::new(&AggregateSpec { phase: AggregatePhase::Final, ..aggregate.clone() });
        let (mut watermark, mut now) = (i64::MIN, 0);
        for deed in &deeds {
            match deed {
                Deed::Rows(rows) => {
                    single.process(rows);
                    first.process(rows);
                }
                Deed::Advance(to) => {
                    watermark = watermark.max(*to);
                    single.advance(watermark);
                    first.advance(watermark);
                }
                Deed::Wait(ms) => now += ms,
                Deed::Restore(_) => assert!(first.barrier(1).is_empty(), "a partial keeps nothing across a barrier"),
            }
            first.out.drain(..).for_each(|batch| last.process_batch(batch));
            single.tick(now);
            last.tick(now);
            last.advance(watermark);
        }
        for rig in [&mut first, &mut single] {
            rig.finish();
        }
        first.out.drain(..).for_each(|batch| last.process_batch(batch));
        last.finish();
        prop_assert_eq!(single.late_rows(), last.late_rows());
        let stands = |rows: Vec<String>| {
            let (mut standing, keys) = (Standing::default(), usize::from(keyed) + if aggregate.window == WindowSpec::Global { 0 } else { 2 });
            match firing.accumulate {
                true => standing.apply_changes(rows, keys, full, &mut BTreeSet::new()),
                false => standing.add(rows, keys),
            }
            standing
        };
        prop_assert_eq!(stands(single.take_rows()), stands(last.take_rows()));
    }

    #[test]
    fn triggers_may_come_and_go_with_a_restore(before_it in deeds(), after in deeds(), firing in firings(), keyed in any::<bool>()) {
        // What was given once stands, whatever the window says afterwards; what was not is given by the new rules.
        let firing = FiringSpec { accumulate: true, late: None, ..firing };
        let with = counts(if keyed { &["k"] } else { &[] }, tumbling(20), firing);
        let without = AggregateSpec { firing: None, ..with.clone() };
        let only = |deeds: &[Deed]| -> Vec<Deed> {
            deeds.iter().filter(|deed| matches!(deed, Deed::Rows(_) | Deed::Advance(_))).cloned().collect()
        };
        for (old, new) in [(&with, &without), (&without, &with)] {
            let mut model = Model {
                window: &with.window,
                lateness_ms: old.firing.map_or(0, |firing| firing.lateness_ms),
                is_keyed: keyed,
                groups: BTreeMap::new(),
                late: 0,
                watermark: i64::MIN,
                now: None,
            };
            let mut subtasks = Subtasks::new(old, None, false);
            for deed in only(&before_it) {
                subtasks.act(&deed);
                model.act(&deed);
            }
            subtasks.change_to(new);
            model.lateness_ms = new.firing.map_or(0, |firing| firing.lateness_ms);
            let over = model.standing(true);
            let mut given = subtasks.act(&Deed::Restore(2));
            for deed in only(&after) {
                given.extend(subtasks.act(&deed));
                model.act(&deed);
            }
            given.extend(subtasks.finish().0);
            if new.firing.is_some() {
                let mut standing = Standing::default();
                standing.apply(given, if keyed { 3 } else { 2 });
                let is_new = |key: &str| !over.rows.contains_key(key);
                prop_assert_eq!(standing.only(is_new), model.standing(false).only(is_new));
            } else {
                let expected = model.standing(false).rows.into_iter().filter(|(key, _)| !over.rows.contains_key(key));
                prop_assert_eq!(sorted(given), sorted(expected.map(|(key, row)| format!("{key},{row}")).collect()));
            }
        }
    }
}

fn lateness(lateness_ms: i64) -> FiringSpec {
    FiringSpec { early: None, lateness_ms, late: None, accumulate: true }
}

/// Case G22.
#[test]
fn a_late_row_updates_its_window_until_the_lateness_is_over() {
    let mut rig = Rig::new(&AggregateSpec {
        calls: vec![call("n", AggregateFunction::Count)],
        ..counts(&[], tumbling(10_000), lateness(5_000))
    });
    let mut latest = 0;
    for time in [1000, 9999, 10_000, 9000, 15_000, 9500] {
        rig.process(&[(1, time, 0)]);
        latest = latest.max(time);
        rig.advance(latest - 1);
    }
    rig.finish();
    assert_eq!(rig.take_rows(), ["0,0,10000,9999,2", "2,0,10000,9999,3", "0,10000,20000,19999,2"]);
    assert_eq!((rig.late_rows(), rig.take_late()), (1, vec![(9500, 1)]));
}

#[test]
fn early_results_come_by_time_and_by_rows() {
    let early = |every, rows| FiringSpec { early: Some(trigger(every, rows)), lateness_ms: 0, late: None, accumulate: true };
    let count =
        |firing| AggregateSpec { calls: vec![call("n", AggregateFunction::Count)], ..counts(&["k"], tumbling(100), firing) };
    let mut rig = Rig::new(&count(early(Some(10), None)));
    rig.tick(1000);
    rig.process(&[(1, 5, 0), (2, 6, 0)]);
    rig.tick(1009);
    assert!(rig.take_rows().is_empty());
    rig.tick(1010);
    assert_eq!(rig.take_rows(), ["0,1,0,100,99,1", "0,2,0,100,99,1"]);
    rig.process(&[(1, 5, 0)]);
    rig.tick(1019);
    rig.tick(1020);
    assert_eq!(rig.take_rows(), ["2,1,0,100,99,2"], "only what has changed");
    rig.tick(1030);
    rig.advance(99);
    assert!(rig.take_rows().is_empty(), "all of it was given");
    let mut rig = Rig::new(&count(early(None, Some(3))));
    rig.process(&[(1, 5, 0), (2, 6, 0), (1, 7, 0)]);
    assert!(rig.take_rows().is_empty());
    rig.process(&[(1, 5, 0), (1, 6, 0), (2, 7, 0)]);
    assert_eq!(rig.take_rows(), ["0,1,0,100,99,4"]);
    rig.process(&[(1, 5, 0), (1, 6, 0), (2, 7, 0)]);
    assert_eq!(rig.take_rows(), ["0,2,0,100,99,3"], "a group counts anew from when it was given");
    rig.finish();
    assert_eq!(rig.take_rows(), ["2,1,0,100,99,6"]);
}

/// What a global window had taken in and not given before a restore is given at the next moment, though no further row comes.
#[test]
fn a_restored_window_over_everything_gives_what_waited() {
    let early = FiringSpec { early: Some(trigger(Some(10), None)), lateness_ms: 0, late: None, accumulate: true };
    for keys in [&["k"][..], &[]] {
        let aggregate = counts(keys, WindowSpec::Global, early);
        let mut rig = Rig::new(&aggregate);
        rig.tick(1000);
        rig.process(&[(1, 5, 5), (2, 6, 6)]);
        let restored = store(rig.barrier(1), || rig.background());
        let mut rig = Rig::restored(&aggregate, restored, everything());
        rig.tick(2000);
        assert_eq!(rig.take_rows(), Vec::<String>::new());
        rig.tick(2010);
        assert_eq!(rig.take_rows().len(), if keys.is_empty() { 1 } else { 2 });
    }
}

#[test]
fn early_results_by_the_clock_come_between_rows_and_the_end() {
    let early = |every, rows| FiringSpec { early: Some(trigger(every, rows)), lateness_ms: 0, late: None, accumulate: true };
    let count = |firing| AggregateSpec {
        calls: vec![call("n", AggregateFunction::Count)],
        time: WindowTime::processing(),
        ..counts(&["k"], tumbling(100), firing)
    };
    let mut rig = Rig::new(&count(early(Some(30), None)));
    assert_eq!(rig.tick(1000), Some(1030));
    rig.process(&[(1, 5, 0), (2, -6, 0)]);
    rig.tick(1030);
    assert_eq!(rig.take_rows(), ["0,1,1000,1100,1099,1", "0,2,1000,1100,1099,1"]);
    rig.process(&[(1, 5, 0)]);
    rig.advance(5000);
    assert!(rig.take_rows().is_empty(), "event time says nothing here");
    assert_eq!(rig.tick(1080), Some(1100), "the end comes before the next moment");
    assert_eq!(rig.take_rows(), ["2,1,1000,1100,1099,2"]);
    rig.process(&[(2, 5, 0)]);
    assert_eq!(rig.tick(1100), Some(1110));
    assert_eq!(rig.take_rows(), ["2,2,1000,1100,1099,2"]);
    assert_eq!((rig.late_rows(), rig.metrics.state_keys.load(Ordering::Relaxed)), (0, 0));
    let mut rig = Rig::new(&count(early(None, Some(2))));
    assert_eq!(rig.tick(1000), None);
    rig.process(&[(1, 5, 0), (2, 6, 0), (1, 7, 0)]);
    assert_eq!(rig.take_rows(), ["0,1,1000,1100,1099,2"]);
    assert_eq!(rig.tick(1050), Some(1100));
    rig.finish();
    assert_eq!(rig.take_rows(), ["0,2,1000,1100,1099,1"]);
}

#[test]
fn parts_begin_anew_after_each_result() {
    let firing = FiringSpec { early: Some(trigger(Some(10), Some(2))), lateness_ms: 50, late: None, accumulate: false };
    let mut rig = Rig::new(&counts(&["k"], tumbling(100), firing));
    rig.tick(0);
    rig.process(&[(1, 5, 1), (1, 6, 2), (2, 7, 3)]);
    assert_eq!(rig.take_rows(), ["1,0,100,99,2,3,2"]);
    rig.process(&[(1, 8, 4), (3, 8, 5)]);
    rig.tick(10);
    assert_eq!(sorted(rig.take_rows()), ["1,0,100,99,1,4,4", "2,0,100,99,1,3,3", "3,0,100,99,1,5,5"]);
    rig.advance(99);
    assert!(rig.take_rows().is_empty());
    rig.process(&[(1, 9, 6)]);
    assert_eq!(rig.take_rows(), ["1,0,100,99,1,6,6"]);
    rig.advance(149);
    rig.process(&[(1, 9, 6)]);
    assert_eq!((rig.late_rows(), rig.metrics.state_keys.load(Ordering::Relaxed)), (1, 0));
}

#[test]
fn a_window_larger_than_memory_gives_its_changes_and_stays() {
    let aggregate = counts(&["k"], tumbling(1000), FiringSpec { early: Some(trigger(Some(10), None)), ..lateness(1) });
    let rows = |from: i64, to: i64| -> Vec<Row> { (from..to).map(|key| (key, key % 1000, key)).collect() };
    let mut rig = before(&aggregate, (256 << 10, 1), everything(), &Vec::new(), Vec::new());
    rig.tick(0);
    rows(0, 50_000).chunks(1000).for_each(|rows| rig.process(rows));
    assert!(rig.metrics.state_bytes.load(Ordering::Relaxed) <= 512 << 10);
    rig.tick(10);
    let given = rig.take_rows();
    assert_eq!(given.len(), 50_000);
    assert!(given.iter().all(|row| row.starts_with("0,") && row.contains(",999,1,")));
    rig.process(&rows(100, 200));
    rig.tick(20);
    let given = rig.take_rows();
    assert_eq!(given.len(), 100);
    assert!(given.iter().all(|row| row.starts_with("2,") && row.contains(",999,2,")));
    rig.advance(1000);
    assert!(rig.take_rows().is_empty(), "nothing has changed since");
    rig.finish();
    assert!(rig.take_rows().is_empty());
    assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 0);
}
