//! Whether a source is too far ahead of the others of its group.
//!
//! Has no clock and knows no other source: how far it may go is told from outside. Invariant: a source that has said nothing
//! about time is never held, and neither is one that may go as far as it has come; so of all sources of a group the one that is
//! least far always reads on.

use levada_common::time::Watermark;

/// One source's pace.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The source's own watermark.
    reached: Watermark,
    /// How far it may be.
    limit: Watermark,
}

impl Pace {
    /// Of a source that has not heard of the others: it may say one watermark, and then waits for them.
    pub(crate) fn new() -> Self {
        Self { reached: Watermark::MIN, limit: Watermark::MIN }
    }

    /// The source has come to `watermark`.
    pub(crate) fn reached(&mut self, watermark: Watermark) {
        self.reached = watermark;
    }

    /// It may be as far as `limit`.
    pub(crate) fn limit(&mut self, limit: Watermark) {
        self.limit = limit;
    }

    /// Whether it is to read nothing for now.
    pub(crate) fn is_ahead(&self) -> bool {
        self.reached > self.limit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use levada_common::ids::{CheckpointId, Uid};
    use levada_common::plan::{AlignSpec, BadRecordPolicy, OperatorKind, OperatorSpec, TimeFormat, WatermarkRule, WatermarkSpec};

    use super::*;
    use crate::element::Barrier;
    use crate::source::SourcePoll;
    use crate::task::TaskEvent;
    use crate::testing::{Closures, TestTask, ints, plan, schema, sink, source, vertex};

    /// A source of a group, to a sink; it is idle after 50 ms.
    fn paced() -> TestTask {
        let watermark = WatermarkSpec {
            column: "n".into(),
            format: TimeFormat::Time,
            rule: WatermarkRule::Disorder { ms: 0 },
            step_ms: 0,
            idleness_ms: Some(50),
            future: None,
            align: Some(AlignSpec { group: "g".into(), max_drift_ms: 10 }),
        };
        let operator = OperatorSpec {
            uid: Uid::new("in"),
            clause: "watermark".into(),
            kind: OperatorKind::Watermark(watermark),
            input: schema(),
            output: schema(),
            sides: Vec::new(),
            bad_records: BadRecordPolicy::Fail,
        };
        let plan = plan(vec![vertex(1, Some(source("in")), vec![operator], Some(sink("out")))], vec![]);
        let test = TestTask::start(plan, 0, 0, Closures::default());
        for n in [100, 200, 300] {
            test.script.push(SourcePoll::Batch(ints([n])));
        }
        test
    }

    #[test]
    fn a_source_waits_for_those_behind_it() {
        let mut test = paced();
        test.settle();
        assert_eq!(test.log.rows(), [100], "it says one watermark, so that the others can wait for it");
        test.task.pace(Watermark(98));
        test.settle();
        assert_eq!(test.log.rows(), [100], "99 is ahead of 98");
        test.task.pace(Watermark(99));
        test.settle();
        assert_eq!(test.log.rows(), [100, 200]);
        test.task.pace(Watermark::MAX);
        test.settle();
        assert_eq!(test.log.rows(), [100, 200, 300]);
    }

    #[test]
    fn a_source_that_waits_takes_checkpoints_is_not_idle_and_can_be_drained() {
        let mut test = paced();
        test.settle();
        test.now_ms = 10_000;
        test.settle();
        test.now_ms = 20_000;
        test.settle();
        assert!(
            !test.metrics.idle.load(Ordering::Relaxed) && test.metrics.paused.load(Ordering::Relaxed),
            "what it may not read is not its silence"
        );
        test.task.trigger(Barrier::checkpoint(CheckpointId(1)));
        test.settle();
        assert_eq!(test.snapshots().len(), 1);
        test.task.end_source();
        test.settle();
        assert!(matches!(test.task.take_events()[..], [TaskEvent::Finishing]));
    }
}
