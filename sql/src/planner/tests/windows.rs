//! Windows over event time, planned and refused.

use super::*;

#[test]
fn every_window_is_planned() {
    let counts = |window: &str| {
        format!(
            "  counts: {{ inputs: [bids], key_by: [bidder], window: {window}, aggregate: {{ n: count(*), most: max(price) }} }}"
        )
    };
    let windows = [
        "{ sliding: { size: 10s, slide: 4s, offset: 1s } }",
        "{ cumulate: { size: 1h, step: 10m } }",
        "{ session: { gap: 10s } }",
        "{ session: { gap: auction } }",
        "{ session: { gap: auction % 7 + 1 } }",
        "{ tumbling: { size: 1d, offset: 6h }, time_zone: Europe/Berlin }",
        "{ tumbling: { size: 10s }, time: processing }",
        "{ session: { gap: auction }, time: processing }",
    ];
    let mut text = String::new();
    for window in windows {
        for parallelism in [1, 2] {
            text.push_str(&explain(&planned(&bids("windows", "", &counts(window), "counts"), parallelism)));
            text.push('\n');
        }
    }
    golden("windows", &text);
}

#[test]
fn results_before_and_after_a_window_are_planned() {
    let counts = |window: &str| {
        format!(
            "  counts: {{ inputs: [bids], key_by: [bidder], window: {window}, aggregate: {{ n: count(*), mean: avg(price) }} }}"
        )
    };
    let windows = [
        "{ tumbling: { size: 1m }, early: { every: 10s, rows: 1000 }, allowed_lateness: 5m, late: { every: 1s, rows: 100 } }",
        "{ tumbling: { size: 1m }, allowed_lateness: 5m, accumulate: false }",
        "{ sliding: { size: 10s, slide: 4s }, early: { rows: 1 } }",
        "{ session: { gap: 10s }, allowed_lateness: 5m }",
        "{ cumulate: { size: 1h, step: 5m }, time: processing, early: { every: 10s }, accumulate: false }",
        "{ session: { gap: 10s }, time: processing, early: { rows: 1 } }",
        "{ global: {}, early: { every: 1s } }",
        "{ count: { size: 100, slide: 10 } }",
        "{ count: { size: 100 } }",
    ];
    let mut text = String::new();
    for window in windows {
        for parallelism in [1, 2] {
            text.push_str(&explain(&planned(&bids("windows", "", &counts(window), "counts"), parallelism)));
            text.push('\n');
        }
    }
    golden("firings", &text);
}

#[test]
fn results_that_make_no_sense_are_refused() {
    let refused = |transform: &str, expected: &str| {
        let message = planned_at(&bids("windows", "", transform, "counts"), 2).expect_err(transform);
        assert!(message.contains(expected), "{message}");
    };
    let of_window = |window: &str, expected: &str| {
        refused(&format!("  counts: {{ inputs: [bids], window: {window}, aggregate: {{ n: count(*) }} }}"), expected);
    };
    of_window("{ global: {}, allowed_lateness: 5m }", "counts.window.allowed_lateness: a global window is over at the end");
    of_window("{ session: { gap: 1s }, early: { rows: 1 }, accumulate: false }", "counts.window.accumulate: a session grows");
    of_window("{ count: { size: 10 }, early: { rows: 1 } }", "counts.window: a count window gives its result when");
    of_window("{ session: { gap: 1s }, time: processing, early: { rows: 1 }, accumulate: false }", "accumulate: a session grows");
    refused(
        "  counts: { inputs: [bids], window: { tumbling: { size: 1s }, early: { rows: 1 } }, aggregate: { firing.rows: count(*) } }",
        "\"firing.rows\" is what a window's own state is called",
    );
    refused(
        "  early: { inputs: [bids], window: { tumbling: { size: 1s }, early: { rows: 1 } }, aggregate: { n: count(*) } }\n  \
         counts: { inputs: [early], window: same, aggregate: { n: count(*) } }",
        "counts.window: a window over a changelog would count updates as rows",
    );
    refused(
        "  counts: { inputs: [bids], join: { with: [bids], on: [bidder] }, window: { tumbling: { size: 1s }, allowed_lateness: 1s } }",
        "counts.window: rows of a join meet once",
    );
    refused(
        "  counts: { inputs: [bids], join: { with: [bids], on: [bidder] }, window: { count: { size: 2 } } }",
        "counts.window: rows of two sides have no common count",
    );
    refused(
        "  pairs: { inputs: [bids], window: { count: { size: 2 } }, aggregate: { n: count(*) } }\n  \
         counts: { inputs: [pairs], window: { tumbling: { size: 1s } }, aggregate: { n: count(*) } }",
        "a window needs event time; transform \"pairs\" has a count window, and its results have no event time",
    );
}

#[test]
fn changes_of_windows_that_lose_their_key_are_full() {
    let early = "  early: { inputs: [bids], window: { session: { gap: 1s }, early: { rows: 1 } }, aggregate: { n: count(*) }, ";
    let selected = |select: &str| planned_at(&bids("windows", "", &format!("{early} select: {select} }}"), "early"), 2);
    let full = |select: &str| selected(select).expect(select).changelogs.values().all(|changes| changes.full);
    assert!(!full("{ n: n, window_start: window_start }"), "the start is the key of a session's changes");
    assert!(full("{ n: n, window_end: window_end }"));
}

#[test]
fn windows_without_time_and_gaps_without_number_are_refused() {
    let refused = |watermark: &str, window: &str| {
        let transform = format!("  counts: {{ inputs: [bids], window: {window}, aggregate: {{ n: count(*) }} }}");
        planned_at(&bids("windows", watermark, &transform, "counts"), 2).expect_err(window)
    };
    for window in ["{ sliding: { size: 10s, slide: 4s } }", "{ cumulate: { size: 1h, step: 10m } }", "{ session: { gap: 10s } }"]
    {
        let message = refused(", watermark: none", window);
        assert!(message.contains("transforms.counts.window: a window needs event time"), "{message}");
    }
    let message = refused("", "{ session: { gap: extra } }");
    assert!(
        message.contains("transforms.counts.window.session.gap: a gap is an integer, in milliseconds, and this one is STRING")
    );
    let message = refused("", "{ session: { gap: prize * 2 } }");
    assert!(message.contains("transforms.counts.window.session.gap") && message.contains("price"), "{message}");
}

/// What follows on windows of processing time has no event time, and is told why.
#[test]
fn windows_of_processing_time_need_no_event_time_and_give_none() {
    let counts = "  counts: { inputs: [bids], key_by: [bidder], window: { tumbling: { size: 10s }, time: processing }, aggregate: { n: count(*) } }";
    planned(&bids("windows", ", watermark: none", counts, "counts"), 2);
    let follows = |window: &str| {
        let transforms = format!("{counts}\n  most: {{ inputs: [counts], window: {window}, aggregate: {{ most: max(n) }} }}");
        planned_at(&bids("windows", "", &transforms, "most"), 2)
    };
    let why = "transform \"counts\" has windows of processing time, and their results have no event time";
    for window in ["same", "{ tumbling: { size: 1m } }"] {
        let message = follows(window).expect_err(window);
        assert!(message.contains("transforms.most.window: ") && message.contains(why), "{message}");
    }
    follows("{ tumbling: { size: 1m }, time: processing }").expect("it goes by when results come");
}

#[test]
fn no_window_stays_on_the_heap_where_rocksdb_is_asked_for() {
    for window in ["{ tumbling: { size: 10s } }", "{ sliding: { size: 10s, slide: 5s } }", "{ session: { gap: 10s } }"] {
        let transform = format!("  counts: {{ inputs: [bids], window: {window}, aggregate: {{ n: count(*) }} }}");
        let document = bids("windows", "", &transform, "counts")
            .replace("sources:", "settings: { state: { backend: rocksdb }, checkpoint: { dir: file:///ck } }\nsources:");
        assert_eq!(planned(&document, 1).warnings, Vec::<String>::new(), "{window}");
    }
}

#[test]
fn rows_by_key_stand_in_databases() {
    let warnings = |transform: &str| {
        let document = bids("windows", "", transform, "best")
            .replace("sources:", "settings: { state: { backend: rocksdb }, checkpoint: { dir: file:///ck } }\nsources:");
        planned(&document, 1).warnings
    };
    let of_windows = "window: { tumbling: { size: 10s } }, order_by: [price], limit: 3";
    for clauses in [of_windows, "order_by: [price], limit: 3", "deduplicate: first, ttl: 1h", "deduplicate: last"] {
        let transform = format!("  best: {{ inputs: [bids], key_by: [auction], {clauses} }}");
        assert_eq!(warnings(&transform), Vec::<String>::new(), "{clauses}");
    }
    let join = "  best: { inputs: [bids], join: { with: [bids], on: [auction], take: { other: price } }, ttl: 1h }";
    assert_eq!(warnings(join), Vec::<String>::new());
}
