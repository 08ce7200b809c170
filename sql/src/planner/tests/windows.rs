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

#[test]
fn the_heap_is_named_where_rocksdb_is_asked_for() {
    let transform = "  counts: { inputs: [bids], window: { session: { gap: 10s } }, aggregate: { n: count(*) } }";
    let document = bids("windows", "", transform, "counts")
        .replace("sources:", "settings: { state: { backend: rocksdb }, checkpoint: { dir: file:///ck } }\nsources:");
    let warnings = planned(&document, 1).warnings;
    assert!(warnings.iter().any(|warning| warning.contains("transform \"counts\": a session window")), "{warnings:?}");
}
