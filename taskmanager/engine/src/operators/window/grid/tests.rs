//! Windows of a zone against a clock that is watched minute by minute, and days by name.

use levada_common::time::calendar::parse_timestamp;
use proptest::prelude::*;

use super::*;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// Zones and moments at which their clocks are set: by an hour, half an hour, two, over midnight, into the day before, by a day.
const SETTINGS: &[(&str, &str)] = &[
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("Europe/Berlin", "1945-05-24T00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("America/Havana", "2026-11-01T05:00Z"),
    ("America/Havana", "2026-03-08T05:00Z"),
    ("America/St_Johns", "1990-10-28T02:31Z"),
    ("America/St_Johns", "1990-04-01T03:31Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Pacific/Kwajalein", "1969-09-30T13:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00Z"),
    ("Asia/Kolkata", "2026-01-01T00:00Z"),
    ("+05:30", "2026-01-01T00:00Z"),
    ("UTC", "1970-01-01T00:00Z"),
];

const LENGTHS_MINUTES: &[i64] = &[1, 5, 15, 20, 30, 60, 90, 120, 180, 360, 720, 24 * 60, 2 * 24 * 60, 7 * 24 * 60];

fn at(text: &str) -> i64 {
    parse_timestamp(text).expect("a time")
}

fn zoned(length_ms: i64, offset_ms: i64, zone: &str) -> Grid {
    Grid::new(length_ms, offset_ms, Some(zone.parse().expect("a zone")))
}

/// Where windows begin between two moments: the clock is watched, and a window begins when it shows a later label than ever, or when
/// it is put back by the length of one.
fn watched(grid: &Grid, from: i64, to: i64) -> Vec<i64> {
    let zone = grid.zone.expect("a zone");
    let label = |shown: i64| (shown - grid.offset_ms).div_euclid(grid.length_ms);
    let mut starts = Vec::new();
    let mut shown = from + zone.ahead_ms(from);
    let mut latest = shown;
    for moment in (from + MINUTE_MS..=to).step_by(MINUTE_MS as usize) {
        let now = moment + zone.ahead_ms(moment);
        let put_back = shown + MINUTE_MS - now;
        if grid.length_ms < DAY_MS && put_back >= grid.length_ms {
            starts.push(moment);
            latest = now;
        } else if label(now) > label(latest) {
            starts.push(moment);
        }
        (shown, latest) = (now, latest.max(now));
    }
    starts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn windows_are_those_of_a_clock_that_is_watched(
        (zone, set) in prop::sample::select(SETTINGS),
        minutes in prop::sample::select(LENGTHS_MINUTES),
        offset in 0i64..7 * 24 * 60,
        (before, after) in (0i64..3000, 0i64..3000),
        milliseconds in prop::collection::vec(0i64..7 * DAY_MS, 1..40),
    ) {
        let length_ms = minutes * MINUTE_MS;
        let grid = zoned(length_ms, offset * MINUTE_MS % length_ms, zone);
        let days = length_ms.max(DAY_MS);
        // Long enough before the setting that a window has begun whatever it was.
        let (from, to) = (at(set) - 2 * days - before * MINUTE_MS, at(set) + 2 * days + after * MINUTE_MS);
        let starts = watched(&grid, from, to);
        for (start, end) in starts.iter().zip(&starts[1..]) {
            let window = Window { start: *start, end: *end };
            let inside = milliseconds.iter().map(|ms| start + ms % (end - start)).chain([*start, end - 1]);
            for time in inside {
                prop_assert_eq!(grid.window(time), window, "{} at {}", zone, time);
            }
            prop_assert_eq!((grid.ceil(*start), grid.ceil(start + 1)), (*start, *end));
            if length_ms >= DAY_MS {
                let label = grid.label(*start);
                prop_assert_eq!((grid.moment(label), grid.label(end - 1)), (*start, label));
            }
        }
    }

    /// What is not near a setting of the clocks, over the whole of time.
    #[test]
    fn every_time_is_in_one_window(
        (zone, _) in prop::sample::select(SETTINGS),
        minutes in prop::sample::select(LENGTHS_MINUTES),
        time in levada_common::time::EVENT_TIME_MIN_MS..levada_common::time::EVENT_TIME_MAX_MS,
    ) {
        let grid = zoned(minutes * MINUTE_MS, 0, zone);
        let window = grid.window(time);
        prop_assert!(window.has(time), "{window:?}");
        prop_assert_eq!(grid.window(window.start), window);
        prop_assert_eq!(grid.window(window.end - 1), window);
        prop_assert_eq!(grid.window(window.end).start, window.end);
        prop_assert_eq!(grid.window(window.start - 1).end, window.start);
    }
}

/// How long the windows are, in minutes, from the one that has a moment on.
fn lengths(grid: &Grid, first: &str, windows: usize) -> Vec<i64> {
    let mut at = at(first);
    (0..windows)
        .map(|_| {
            let window = grid.window(at);
            at = window.end;
            (window.end - window.start) / MINUTE_MS
        })
        .collect()
}

#[test]
fn days_are_as_long_as_their_clocks_say() {
    let days = |zone, first, count| -> Vec<i64> {
        lengths(&zoned(DAY_MS, 0, zone), first, count).iter().map(|minutes| minutes / 60).collect()
    };
    assert_eq!(days("Europe/Berlin", "2026-03-28T12:00Z", 3), [24, 23, 24]);
    assert_eq!(days("Europe/Berlin", "2026-10-24T12:00Z", 3), [24, 25, 24]);
    assert_eq!(days("America/Sao_Paulo", "2018-02-17T12:00Z", 2), [25, 24], "the clocks go back at midnight");
    assert_eq!(days("America/Sao_Paulo", "2018-11-03T12:00Z", 2), [24, 23], "there is no midnight");
    let start = zoned(DAY_MS, 0, "Pacific/Apia").window(at("2011-12-30T12:00Z")).start;
    assert_eq!(start, at("2011-12-30T10:00Z"), "the 31st follows the 29th");
    let week = zoned(7 * DAY_MS, 4 * DAY_MS, "Europe/Berlin").window(at("2026-10-25T12:00Z"));
    assert_eq!((week.start, week.end), (at("2026-10-18T22:00Z"), at("2026-10-25T23:00Z")), "from Monday to Monday");
}

#[test]
fn short_windows_come_twice_and_long_ones_take_in_what_is_shown_twice() {
    let berlin = |minutes, count| lengths(&zoned(minutes * MINUTE_MS, 0, "Europe/Berlin"), "2026-10-24T23:00Z", count);
    assert_eq!(berlin(60, 4), [60; 4], "1:00, 2:00, 2:00 again, 3:00");
    assert_eq!(berlin(30, 6), [30; 6]);
    assert_eq!(berlin(120, 3), [120, 180, 120], "0:00, 2:00 with what is shown twice, 4:00");
    assert_eq!(berlin(360, 2), [420, 360]);
    let forward = lengths(&zoned(2 * HOUR_MS, 0, "Europe/Berlin"), "2026-03-28T23:30Z", 3);
    assert_eq!(forward, [120, 60, 120], "0:00, what is left of 2:00, 4:00");
}
