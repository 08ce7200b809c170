//! Windows by the clocks of a time zone, restored and rescaled, against lists of rows between the moments at which a clock that is
//! watched shows the time at which a window begins.

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateSpec, WindowSpec, WindowTime};
use levada_common::time::calendar::parse_timestamp;
use levada_common::time::zone::Zone;
use proptest::prelude::*;

use super::restore::{go_on, watermark_of};
use super::rig::{MAX_PARALLELISM, Rig, spec, store, tumbling};
use super::slices::{cumulate, naive, naive_calls, sliding};
use super::windows::{Step, run, sorted, steps};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Zones and moments at which their clocks are set, all of which show every midnight once.
const SETTINGS: [(&str, &str); 4] = [
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Asia/Kolkata", "2026-10-25T01:00Z"),
];

/// Where windows of this length begin in the two weeks around a moment.
fn begins(zone: &Zone, around: i64, length_ms: i64) -> Vec<i64> {
    let (mut latest, mut begins) = (i64::MAX, Vec::new());
    for moment in (around - 14 * DAY_MS..around + 14 * DAY_MS).step_by(HOUR_MS as usize / 2) {
        let label = (moment + zone.ahead_ms(moment)).div_euclid(length_ms);
        if label > latest {
            begins.push(moment);
        }
        latest = if latest == i64::MAX { label } else { label.max(latest) };
    }
    begins
}

/// Start and end of each window around a moment, none of which is cut off.
fn all_windows(window: &WindowSpec, zone: &Zone, around: i64) -> Vec<(i64, i64)> {
    let begins = |length_ms| begins(zone, around, length_ms);
    match *window {
        WindowSpec::Tumbling { size_ms, .. } => begins(size_ms).windows(2).map(|pair| (pair[0], pair[1])).collect(),
        WindowSpec::Sliding { size_ms, slide_ms, .. } => {
            let days = begins(DAY_MS);
            let number = |start: i64| (start + zone.ahead_ms(start)).div_euclid(DAY_MS);
            let windows = days.windows((size_ms / DAY_MS) as usize + 1).map(|some| (some[0], some[some.len() - 1]));
            // Slides are counted from 1970.
            windows.filter(|(start, _)| number(*start) % (slide_ms / DAY_MS) == 0).collect()
        }
        WindowSpec::Cumulate { size_ms, step_ms, .. } => {
            let ends = begins(step_ms);
            let of_cycle = |pair: &[i64]| {
                let (start, end) = (pair[0], pair[1]);
                ends.iter().filter(|to| (start + 1..=end).contains(to)).map(|to| (start, *to)).collect::<Vec<_>>()
            };
            begins(size_ms).windows(2).flat_map(of_cycle).collect()
        }
        _ => panic!("{window:?} has no zone"),
    }
}

fn in_zone(window: WindowSpec, zone: &str) -> AggregateSpec {
    let time = WindowTime { processing: false, time_zone: Some(zone.into()) };
    AggregateSpec { time, ..spec(&["k"], window, naive_calls()) }
}

/// Steps by the hour, around a moment.
fn around(steps: Vec<Step>, moment: i64) -> Vec<Step> {
    let time = |hour: i64| moment + hour * HOUR_MS;
    let step = |step| match step {
        Step::Rows(rows) => Step::Rows(rows.into_iter().map(|(key, hour, value)| (key, time(hour), value)).collect()),
        Step::Advance(hour) => Step::Advance(time(hour)),
    };
    steps.into_iter().map(step).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn windows_of_a_zone_are_those_of_the_model(
        before in steps(),
        after in steps(),
        (zone, set) in prop::sample::select(SETTINGS.to_vec()),
        window in prop::sample::select(vec![
            tumbling(DAY_MS),
            tumbling(6 * HOUR_MS),
            sliding(3 * DAY_MS, DAY_MS, 0),
            sliding(3 * DAY_MS, 2 * DAY_MS, 0),
            cumulate(DAY_MS, 6 * HOUR_MS, 0),
        ]),
        parallelism in 1u32..4,
    ) {
        let set = parse_timestamp(set).expect("a time");
        let (before, after) = (around(before, set), around(after, set));
        let parsed: Zone = zone.parse().expect("a zone");
        let windows = all_windows(&window, &parsed, set);
        let windows_of = |time: i64| -> Vec<(i64, i64)> {
            windows.iter().copied().filter(|(start, end)| (*start..*end).contains(&time)).collect()
        };
        let all: Vec<Step> = before.iter().chain(&after).cloned().collect();
        let (expected, late) = naive(&all, windows_of, true);

        let aggregate = in_zone(window.clone(), zone);
        let mut rig = Rig::new(&aggregate);
        run(&mut rig, &before);
        let (mut rows, mut counted) = (rig.take_rows(), rig.late_rows());
        let parts = rig.barrier(1);
        let restored = store(parts, || rig.background());
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let mut part = Rig::restored(&aggregate, restored.clone(), range);
            go_on(&mut part, watermark_of(&before), &after, range);
            rows.extend(part.take_rows());
            counted += part.late_rows();
        }
        prop_assert_eq!(sorted(rows), sorted(expected), "{:?} in {}", window, zone);
        prop_assert_eq!(counted, late.len() as u64);
    }
}

#[test]
fn a_day_of_25_hours_has_25_windows_that_grow_by_the_hour() {
    let mut rig = Rig::new(&in_zone(cumulate(DAY_MS, HOUR_MS, 0), "Europe/Berlin"));
    let first = parse_timestamp("2026-10-24T22:00Z").expect("a time");
    rig.process(&[(1, first, 7)]);
    rig.finish();
    let rows = rig.take_rows();
    let (start, end) = (first, first + 25 * HOUR_MS);
    assert_eq!((rows.len(), &rows[24]), (25, &format!("1,{start},{end},{},1,7,7", end - 1)));
}

#[test]
fn slices_of_another_zone_are_refused() {
    let window = sliding(2 * DAY_MS, DAY_MS, 0);
    let mut rig = Rig::new(&in_zone(window.clone(), "Europe/Berlin"));
    rig.process(&[(1, 0, 0)]);
    let parts = rig.barrier(1);
    let restored = store(parts, || rig.background());
    let other = Rig::try_restored(&in_zone(window, "Asia/Kolkata"), restored, KeyGroupRange::all(MAX_PARALLELISM));
    let error = other.err().expect("its slices begin otherwise").to_string();
    assert!(error.contains("the slices of this window are 86400000 ms long, from 0 ms on, in a time zone"), "{error}");
}
