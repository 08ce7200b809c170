//! The merger against a model, and the cases that people met.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Time as the channels stand: (reached, everyone idle); `None` where all have ended.
fn reached(channels: &[(i64, Voice)]) -> Option<(i64, bool)> {
    let of = |voice| channels.iter().filter(move |(_, own)| *own == voice).map(|(time, _)| *time);
    match of(Voice::Active).min() {
        Some(least) => Some((least, false)),
        None => of(Voice::Idle).max().map(|greatest| (greatest, true)),
    }
}

#[test]
fn merged_time_is_as_the_model_says_and_never_falls() {
    let (mut watermarks, mut idles) = (0, 0);
    for seed in 0..3_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let count = rng.random_range(1..5);
        let mut merger = WatermarkMerger::new(count);
        let mut channels = vec![(i64::MIN, Voice::Active); count];
        let (mut said, mut idle) = (i64::MIN, false);
        for step in 0..60 {
            let channel = rng.random_range(0..count);
            if channels[channel].1 == Voice::Ended {
                continue;
            }
            let change = match rng.random_range(0..20) {
                0 => {
                    channels[channel].1 = Voice::Ended;
                    merger.end(channel)
                }
                1..5 => {
                    channels[channel].1 = Voice::Idle;
                    merger.idle(channel)
                }
                5..8 => {
                    channels[channel].1 = Voice::Active;
                    merger.rows(channel)
                }
                _ => {
                    let time = channels[channel].0.max(-50).saturating_add(rng.random_range(0..20));
                    channels[channel] = (time, Voice::Active);
                    merger.watermark(channel, Watermark(time))
                }
            };
            let Some((time, all_idle)) = reached(&channels) else { continue };
            let expected = Change {
                active: idle && !all_idle,
                watermark: (time > said).then_some(Watermark(time)),
                idle: all_idle && !idle,
            };
            assert_eq!(change, expected, "seed {seed}, step {step}");
            let least = channels.iter().filter(|(_, voice)| *voice == Voice::Active).map(|(time, _)| *time).min();
            assert_eq!(merger.holder().map(|holder| channels[holder].0), least, "seed {seed}, step {step}");
            assert!(merger.holder().is_none_or(|holder| channels[holder].1 == Voice::Active), "seed {seed}, step {step}");
            (said, idle) = (said.max(time), all_idle);
            watermarks += usize::from(change.watermark.is_some());
            idles += usize::from(change.idle);
        }
    }
    assert!(watermarks > 1_000 && idles > 1_000, "the run is empty: {watermarks} watermarks, {idles} times idle");
}

/// G25: one input alone moves nothing.
#[test]
fn a_channel_that_has_said_nothing_holds_time_back() {
    let mut merger = WatermarkMerger::new(2);
    assert_eq!(merger.watermark(0, Watermark(29_999)), Change::default());
    assert_eq!(merger.watermark(1, Watermark(-1)).watermark, Some(Watermark(-1)));
    assert_eq!(merger.watermark(1, Watermark(30_000)).watermark, Some(Watermark(29_999)));
}

/// G21: an idle one holds nothing back, and time does not fall when it speaks again.
#[test]
fn an_idle_channel_holds_nothing_back() {
    let mut merger = WatermarkMerger::new(2);
    merger.watermark(0, Watermark(58_999));
    merger.watermark(1, Watermark(499));
    assert_eq!(merger.idle(1).watermark, Some(Watermark(58_999)));
    assert_eq!(merger.rows(1), Change::default());
    assert_eq!(merger.watermark(1, Watermark(44_999)), Change::default());
    assert_eq!(merger.watermark(1, Watermark(59_999)), Change::default());
    assert_eq!(merger.watermark(0, Watermark(59_999)).watermark, Some(Watermark(59_999)));
}

/// G24: the end of time is said by the end of data alone, whoever is idle.
#[test]
fn the_end_of_time_is_left_to_the_end_of_data() {
    let mut merger = WatermarkMerger::new(2);
    merger.watermark(0, Watermark(10));
    assert_eq!(merger.idle(1), Change { watermark: Some(Watermark(10)), ..Change::default() });
    assert_eq!(merger.watermark(0, Watermark::MAX), Change::default());
    assert_eq!(merger.end(0), Change { idle: true, ..Change::default() });
    assert_eq!(merger.end(1), Change::default());
}
