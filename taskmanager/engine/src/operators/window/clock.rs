//! What windows go by: event time, as watermarks tell it, or processing time, as the task's clock does.
//!
//! Invariants: what has fired stays fired, over a restore too; and so processing time goes on from where a snapshot saw it. Where the
//! clock of another machine is behind that, windows go at half its pace until it has come there: none waits for longer than twice
//! its length, and none fires twice. What one subtask had given and another had not is known by the key groups of each.

use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::WindowTime;
use levada_common::planned_state::WATERMARK;
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::Window;
use super::reached::Reached;
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::event_time::{restored_time, time_part};

/// How far the time has come that windows go by.
#[derive(Debug)]
pub(in crate::operators) enum WindowClock {
    /// Event time: the watermark.
    Event(i64),
    /// Processing time.
    Processing(Box<ProcessingTime>),
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
        match time.processing {
            true => {
                // Nothing of it is saved before it is opened.
                Self::Processing(Box::new(ProcessingTime::new(Reached::default(), (KeyGroupRange::all(1), 1))))
            }
            false => Self::Event(i64::MIN),
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
        match self {
            Self::Event(watermark) => *watermark = restored_time(uid, WATERMARK, restored)?,
            Self::Processing(time) => {
                let (key_groups, max_parallelism) = (context.key_groups, context.max_parallelism);
                let reached = Reached::read(uid, max_parallelism, restored)?;
                **time = ProcessingTime::new(reached, (key_groups, max_parallelism));
            }
        }
        Ok(())
    }

    /// After a restore: the watermark at which every window that is due has been given, whoever's keys it has.
    pub(in crate::operators) fn all_given(&self) -> i64 {
        match self {
            Self::Event(watermark) => *watermark,
            Self::Processing(time) => time.reached.earliest(time.key_groups).saturating_sub(1),
        }
    }

    /// Whether this window was given of some keys in the snapshot, of which it must not be given again.
    pub(in crate::operators) fn was_given(&self, window: Window) -> bool {
        match self {
            Self::Event(_) => false,
            Self::Processing(time) => time.reached.has_given(window),
        }
    }

    /// Whether it was given of the keys of this group.
    pub(in crate::operators) fn was_given_to(&self, group: u16, window: Window) -> bool {
        match self {
            Self::Event(_) => false,
            Self::Processing(time) => time.reached.has_given_to(group, window),
        }
    }

    /// How far time has come, for a snapshot.
    pub(in crate::operators) fn parts(&self, uid: &Uid) -> Vec<StatePart> {
        match self {
            Self::Event(watermark) => time_part(uid, WATERMARK, *watermark),
            Self::Processing(time) => Reached::part(uid, (time.key_groups, time.max_parallelism), time.now),
        }
    }

    /// The greatest time of which no row comes any more: windows that have their last millisecond by then have fired.
    pub(in crate::operators) fn watermark(&self) -> i64 {
        match self {
            Self::Event(watermark) => *watermark,
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
        if let Self::Event(reached) = self {
            *reached = watermark.0.max(*reached);
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
            Self::Event(watermark) => *watermark = i64::MAX,
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
