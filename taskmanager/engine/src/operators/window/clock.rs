//! What windows go by: event time, as watermarks tell it, or processing time, as the task's clock does.
//!
//! Invariants: what has fired stays fired, over a restore too; and so processing time goes on from where a snapshot saw it. Where the
//! clock of another machine is behind that, windows go at half its pace until it has come there: none waits for longer than twice
//! its length, and none fires twice. What one subtask had given and another had not is known by the key groups of each.

use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::WindowTime;
use levada_common::planned_state::{PROCESSING_TIME, WATERMARK};
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::Window;
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::reached::Reached;

/// How far the time has come that windows go by.
#[derive(Debug)]
pub(in crate::operators) enum WindowClock {
    /// Event time.
    Event(EventTime),
    /// Processing time.
    Processing(Box<ProcessingTime>),
}

/// Event time, as windows see it: the watermark.
#[derive(Debug)]
pub(in crate::operators) struct EventTime {
    /// The key groups of which windows are, of so many.
    groups: (KeyGroupRange, u32),
    /// Where it was in the snapshot, by subtask.
    reached: Reached,
    watermark: i64,
}

/// Processing time, as windows see it. Milliseconds since 1970.
#[derive(Debug)]
pub(in crate::operators) struct ProcessingTime {
    /// The key groups of which windows are, of so many.
    key_groups: KeyGroupRange,
    max_parallelism: u32,
    /// Where it was in the snapshot, by subtask.
    reached: Reached,
    /// Where the furthest was; the least where there was none.
    restored: i64,
    /// What the clock showed first.
    since: Option<i64>,
    now: i64,
}

impl WindowClock {
    /// At a first start; `restore` follows.
    pub(in crate::operators) fn new(time: &WindowTime) -> Self {
        // Nothing of it is saved before it is opened.
        let groups = (KeyGroupRange::all(1), 1);
        match time.processing {
            true => Self::Processing(Box::new(ProcessingTime::new(Reached::default(), groups))),
            false => Self::Event(EventTime { groups, reached: Reached::default(), watermark: i64::MIN }),
        }
    }

    /// Takes how far time had come out of `restored`.
    ///
    /// Errors: `Restore` where that is no time.
    pub(in crate::operators) fn restore(
        &mut self,
        uid: &Uid,
        context: &OperatorContext,
        restored: &mut Vec<RestoredState>,
    ) -> Result<(), EngineError> {
        let groups = (context.key_groups, context.max_parallelism);
        match self {
            Self::Event(time) => {
                let reached = Reached::read(uid, WATERMARK, context.max_parallelism, restored)?;
                let watermark = reached.earliest(context.key_groups).unwrap_or(i64::MIN);
                *time = EventTime { groups, reached, watermark };
            }
            Self::Processing(time) => {
                let reached = Reached::read(uid, PROCESSING_TIME, context.max_parallelism, restored)?;
                **time = ProcessingTime::new(reached, groups);
            }
        }
        Ok(())
    }

    /// After a restore: the watermark at which every window that is due has been given, whoever's keys it has.
    pub(in crate::operators) fn all_given(&self) -> i64 {
        match self {
            Self::Event(time) => time.watermark,
            Self::Processing(time) => {
                let earliest = time.reached.earliest(time.key_groups);
                earliest.unwrap_or_else(|| time.reached.latest()).saturating_sub(1)
            }
        }
    }

    /// Whether this window was given of some keys in the snapshot, of which it must not be given again.
    pub(in crate::operators) fn was_given(&self, window: Window) -> bool {
        match self {
            Self::Event(time) => time.reached.any(|watermark| window.has_fired(watermark)),
            Self::Processing(time) => time.reached.any(|now| window.has_fired(now.saturating_sub(1))),
        }
    }

    /// Whether it was given of the keys of this group.
    pub(in crate::operators) fn was_given_to(&self, group: u16, window: Window) -> bool {
        match self {
            Self::Event(time) => time.reached.any_of(group, |watermark| window.has_fired(watermark)),
            Self::Processing(time) => time.reached.any_of(group, |now| window.has_fired(now.saturating_sub(1))),
        }
    }

    /// How far time has come, for a snapshot.
    pub(in crate::operators) fn parts(&self, uid: &Uid) -> Vec<StatePart> {
        match self {
            Self::Event(time) => Reached::part(uid, WATERMARK, time.groups, time.watermark),
            Self::Processing(time) => Reached::part(uid, PROCESSING_TIME, (time.key_groups, time.max_parallelism), time.now),
        }
    }

    /// The greatest time of which no row comes any more: windows that have their last millisecond by then have fired.
    pub(in crate::operators) fn watermark(&self) -> i64 {
        match self {
            Self::Event(time) => time.watermark,
            Self::Processing(time) => time.now.saturating_sub(1),
        }
    }

    /// Whether it is processing time, which is heard by `tick`.
    pub(in crate::operators) fn is_processing(&self) -> bool {
        matches!(self, Self::Processing(_))
    }

    /// The time of the rows that come now, where that is not in them.
    pub(in crate::operators) fn now(&self) -> Option<i64> {
        match self {
            Self::Event(_) => None,
            Self::Processing(time) => Some(time.now),
        }
    }

    /// Event time has come to `watermark`. Answers whether that is what windows go by. After a restore the sources' time starts
    /// anew, and this one stays where it was.
    pub(in crate::operators) fn advance(&mut self, watermark: Watermark) -> bool {
        if let Self::Event(time) = self {
            time.watermark = watermark.0.max(time.watermark);
        }
        !self.is_processing()
    }

    /// The clock shows `time_ms`.
    pub(in crate::operators) fn tick(&mut self, time_ms: i64) {
        if let Self::Processing(time) = self {
            time.tick(time_ms);
        }
    }

    /// What the clock will show when windows see `time_ms`.
    pub(in crate::operators) fn shows_at(&self, time_ms: i64) -> i64 {
        match self {
            Self::Event(_) => time_ms,
            Self::Processing(time) => time.shows_at(time_ms),
        }
    }

    /// Nothing comes any more: every window may fire.
    pub(in crate::operators) fn end(&mut self) {
        match self {
            Self::Event(time) => time.watermark = i64::MAX,
            Self::Processing(time) => time.now = i64::MAX,
        }
    }
}

impl ProcessingTime {
    fn new(reached: Reached, (key_groups, max_parallelism): (KeyGroupRange, u32)) -> Self {
        let restored = reached.latest();
        Self { key_groups, max_parallelism, reached, restored, since: None, now: restored }
    }

    fn tick(&mut self, time_ms: i64) {
        let since = *self.since.get_or_insert(time_ms);
        let behind = self.restored.saturating_add(time_ms.saturating_sub(since) / 2);
        self.now = time_ms.max(behind).max(self.now);
    }

    fn shows_at(&self, time_ms: i64) -> i64 {
        match self.since {
            Some(since) if self.restored > since => {
                let behind = time_ms.saturating_sub(self.restored).saturating_mul(2).saturating_add(since);
                behind.min(time_ms)
            }
            _ => time_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn restored(at: i64) -> ProcessingTime {
        ProcessingTime { restored: at, now: at, ..ProcessingTime::new(Reached::default(), (KeyGroupRange::all(2), 2)) }
    }

    fn restored_state(part: StatePart) -> RestoredState {
        let (meta, pieces) = part.into_pieces().expect("it is no database");
        let batches = pieces.map(|batch| batch.expect("sent")).collect();
        RestoredState { name: meta.name, kind: meta.kind, batches }
    }

    /// Barriers that are not aligned come to subtasks at watermarks of their own.
    #[test]
    fn each_subtask_goes_on_from_the_watermark_of_its_keys() {
        let uid = Uid::new("w");
        let open = |subtask: u32, parallelism: u32, restored: &[RestoredState]| {
            let key_groups = KeyGroupRange::of_subtask(subtask, parallelism, 8);
            let context = OperatorContext { key_groups, max_parallelism: 8, ..crate::testing::context("w", 7) };
            let mut clock = WindowClock::new(&WindowTime::default());
            clock.restore(&uid, &context, &mut restored.to_vec()).expect("a time");
            clock
        };
        let mut restored = Vec::new();
        for (subtask, watermark) in [(0, 500), (1, 100)] {
            let mut clock = open(subtask, 2, &[]);
            clock.advance(Watermark(watermark));
            restored.extend(clock.parts(&uid).into_iter().map(restored_state));
        }
        let watermarks =
            |parallelism| (0..parallelism).map(|subtask| open(subtask, parallelism, &restored).all_given()).collect::<Vec<_>>();
        assert_eq!(watermarks(2), [500, 100]);
        assert_eq!(watermarks(4), [500, 500, 100, 100]);
        assert_eq!(watermarks(1), [100], "the one behind had not given what the other had");
        let (both, window) = (open(0, 1, &restored), Window { start: 100, end: 200 });
        assert!(both.was_given(window) && both.was_given_to(3, window) && !both.was_given_to(4, window));
    }

    #[test]
    fn a_clock_that_is_right_is_followed() {
        let mut time = restored(i64::MIN);
        time.tick(1_000);
        assert_eq!((time.now, time.shows_at(5_000)), (1_000, 5_000));
        let mut time = restored(900);
        time.tick(1_000);
        assert_eq!((time.now, time.shows_at(5_000)), (1_000, 5_000));
    }

    #[test]
    fn a_clock_that_is_behind_is_waited_for_at_half_its_pace() {
        let mut time = restored(10_000);
        time.tick(4_000);
        assert_eq!(time.now, 10_000);
        time.tick(5_000);
        assert_eq!(time.now, 10_500);
        assert_eq!(time.shows_at(11_000), 6_000);
        time.tick(16_000);
        assert_eq!((time.now, time.shows_at(16_001)), (16_000, 16_001), "it has come there");
    }

    proptest! {
        #[test]
        fn time_never_goes_back_and_comes_when_it_is_said(
            at in -100i64..100,
            ticks in prop::collection::vec(0i64..50, 1..30),
            ahead in 1i64..200,
        ) {
            let (mut time, mut shown) = (restored(at), -50);
            for tick in ticks {
                shown += tick;
                let before = time.now;
                time.tick(shown);
                prop_assert!(time.now >= before.max(shown).max(at));
                let (wanted, mut then) = (time.now + ahead, restored(at));
                let shows = time.shows_at(wanted);
                prop_assert!(shows > shown);
                then.since = time.since;
                then.tick(shows - 1);
                prop_assert!(then.now < wanted, "not before {wanted}");
                then.tick(shows);
                prop_assert!(then.now >= wanted);
            }
        }
    }
}
