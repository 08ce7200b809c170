//! What aggregations hold of the memory of all heap states: to the byte, and given back.

use std::sync::Arc;

use levada_common::plan::{AggregateSpec, SessionGap, WindowSpec};
use levada_state::keyed::HeapBudget;

use super::rig::{Rig, Row, batch, calls, spec, tumbling};
use crate::error::EngineError;

/// An aggregation with each kind of window, the name of its state and a word of what makes it smaller.
fn kinds() -> Vec<(AggregateSpec, &'static str, &'static str)> {
    let of = |window| spec(&["k"], window, calls());
    vec![
        (of(WindowSpec::Running), "aggregate", "use the rocksdb backend, group by fewer keys"),
        (of(WindowSpec::Global), "aggregate", "use the rocksdb backend, group by fewer keys"),
        (of(tumbling(10)), "panes", "use the rocksdb backend, make the windows shorter"),
        (
            of(WindowSpec::Sliding { size_ms: 20, slide_ms: 10, offset_ms: 0 }),
            "slices",
            "use the rocksdb backend, make the windows shorter",
        ),
        (
            of(WindowSpec::Cumulate { size_ms: 20, step_ms: 10, offset_ms: 0 }),
            "slices",
            "use the rocksdb backend, make the windows shorter",
        ),
        (of(WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 5 } }), "sessions", "make the gap of the sessions shorter"),
    ]
}

fn rows() -> Vec<Row> {
    (0..3_000).map(|n| (n, n % 40, n)).collect()
}

#[test]
fn an_aggregation_may_hold_its_limit_and_fails_by_name_a_byte_above_it() {
    for (aggregate, state, remedy) in kinds() {
        let mut rig = Rig::within(&aggregate, HeapBudget::unlimited());
        rig.process(&rows());
        let used = rig.budget.used();
        assert!(used > 3_000 * 8, "{state}: {used} bytes");
        assert_eq!(used as u64, rig.metrics.state_bytes.load(std::sync::atomic::Ordering::Relaxed), "{state}");
        let budget = Arc::clone(&rig.budget);
        drop(rig);
        assert_eq!(budget.used(), 0, "{state}: it is given back");

        let fits = Rig::within(&aggregate, HeapBudget::new(used)).try_process(batch(&rows()));
        assert!(fits.is_ok(), "{state}: {fits:?}");
        match Rig::within(&aggregate, HeapBudget::new(used - 1)).try_process(batch(&rows())) {
            Err(error @ EngineError::OverBudget { .. }) => {
                let text = error.to_string();
                let start =
                    format!("node \"counts\": state \"{state}\" holds {used} bytes, and all states of this TaskManager hold ");
                assert!(text.starts_with(&start), "{text}");
                assert!(text.contains(&format!("{used} of {} bytes; {remedy}, raise", used - 1)), "{text}");
            }
            other => panic!("{state}: {other:?}"),
        }
    }
}

#[test]
fn what_fires_gives_its_memory_back() {
    for (aggregate, state, _) in kinds().into_iter().skip(2) {
        let mut rig = Rig::within(&aggregate, HeapBudget::unlimited());
        rig.process(&rows());
        let used = rig.budget.used();
        rig.advance(1_000);
        rig.process(&[(1, 2_000, 1)]);
        // The numbers of sessions are used again: their tables stay.
        assert!(rig.budget.used() < used || state == "sessions", "{state}: {} of {used}", rig.budget.used());
    }
}
