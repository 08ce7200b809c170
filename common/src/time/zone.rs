//! Time zones: between what a zone's clocks show and the moments at which they do.

use std::str::FromStr;

use arrow::array::timezone::Tz;
use chrono::{DateTime, Offset, TimeZone};

/// A time zone of the IANA database (`Europe/Berlin`), or a fixed offset (`+02:00`).
#[derive(Debug, Clone, Copy)]
pub struct Zone(Tz);

/// The name is no zone's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no time zone; write a name of the IANA database such as Europe/Berlin, or an offset such as +02:00")]
pub struct UnknownZone(String);

impl FromStr for Zone {
    type Err = UnknownZone;

    fn from_str(name: &str) -> Result<Self, UnknownZone> {
        name.parse().map(Self).map_err(|_| UnknownZone(name.chars().take(60).collect()))
    }
}

impl Zone {
    /// The moment at which the zone's clocks show `local_ms`: the earlier of the two where they are put back, `None` where they
    /// are put forward past it, or it is out of every calendar's range.
    ///
    /// Units: milliseconds since 1970, those of the clocks and those of UTC.
    pub fn moment_of(&self, local_ms: i64) -> Option<i64> {
        let shown = DateTime::from_timestamp_millis(local_ms)?.naive_utc();
        let offset = self.0.offset_from_local_datetime(&shown).earliest()?;
        local_ms.checked_sub(i64::from(offset.fix().local_minus_utc()) * 1000)
    }
}

/// No zone's clocks are further from UTC than this, and they are set once within as much at most. Milliseconds.
const FURTHEST_MS: i64 = 16 * 3_600_000;

impl Zone {
    /// By how much the zone's clocks are ahead of UTC at a moment.
    ///
    /// Units: milliseconds; moments since 1970. Beyond every calendar's range it is 0.
    pub fn ahead_ms(&self, moment_ms: i64) -> i64 {
        let moment = DateTime::from_timestamp_millis(moment_ms);
        let offset = moment.map(|moment| self.0.offset_from_utc_datetime(&moment.naive_utc()).fix());
        offset.map_or(0, |offset| i64::from(offset.local_minus_utc()) * 1000)
    }

    /// The first moment at which the zone's clocks show `local_ms` or, where they are put forward past it, more.
    ///
    /// Units: as of `moment_of`. Never falls as `local_ms` grows.
    pub fn first_moment(&self, local_ms: i64) -> i64 {
        self.moment_of(local_ms).unwrap_or_else(|| {
            let (before, after) = (local_ms.saturating_sub(FURTHEST_MS), local_ms.saturating_add(FURTHEST_MS));
            first(before, after, |moment| moment.saturating_add(self.ahead_ms(moment)) >= local_ms)
        })
    }

    /// The moment after `before` and not after `after` at which the clocks are set to be as far from UTC as they are at `after`.
    ///
    /// Contract: they are set once in that time.
    pub fn set_between(&self, before_ms: i64, after_ms: i64) -> i64 {
        let ahead_ms = self.ahead_ms(after_ms);
        first(before_ms, after_ms, |moment| self.ahead_ms(moment) == ahead_ms)
    }
}

/// The first moment after `before`, at the latest `after`, from which on `is_so`.
fn first(mut before: i64, mut after: i64, is_so: impl Fn(i64) -> bool) -> i64 {
    while after.saturating_sub(before) > 1 {
        let middle = before + (after - before) / 2;
        if is_so(middle) {
            after = middle;
        } else {
            before = middle;
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::calendar::parse_timestamp;

    fn moment(zone: &str, shown: &str) -> Option<i64> {
        zone.parse::<Zone>().unwrap().moment_of(parse_timestamp(shown).unwrap())
    }

    #[test]
    fn clocks_show_moments() {
        for (zone, shown, utc) in [
            ("Europe/Berlin", "2026-01-31T12:00", "2026-01-31T11:00Z"),
            ("Europe/Berlin", "2026-07-31T12:00", "2026-07-31T10:00Z"),
            ("+05:30", "1969-12-31T00:00", "1969-12-30T18:30Z"),
            ("UTC", "2026-01-31T12:00", "2026-01-31T12:00Z"),
            // Shown twice: the first of them.
            ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30Z"),
            ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00Z"),
        ] {
            assert_eq!(moment(zone, shown), parse_timestamp(utc), "{zone} {shown}");
        }
    }

    #[test]
    fn a_time_that_no_clock_shows_is_none() {
        assert_eq!(moment("Europe/Berlin", "2026-03-29T02:30"), None);
        assert_eq!("UTC".parse::<Zone>().unwrap().moment_of(i64::MAX), None);
    }

    #[test]
    fn clocks_are_ahead_of_utc_and_set_at_a_moment() {
        let berlin: Zone = "Europe/Berlin".parse().unwrap();
        let at = |text| parse_timestamp(text).unwrap();
        let (winter, set) = (at("2026-03-28T00:00Z"), at("2026-03-29T01:00Z"));
        assert_eq!((berlin.ahead_ms(winter), berlin.ahead_ms(set)), (3_600_000, 7_200_000));
        assert_eq!(berlin.set_between(winter, at("2026-03-30T00:00Z")), set);
        assert_eq!(berlin.ahead_ms(i64::MIN), 0);
    }

    #[test]
    fn the_first_moment_is_the_first_showing_or_the_setting() {
        for (zone, shown, utc) in [
            ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30Z"),
            ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00Z"),
            ("Europe/Berlin", "2026-03-29T02:59:59.999", "2026-03-29T01:00Z"),
            ("Europe/Berlin", "2026-03-29T03:30", "2026-03-29T01:30Z"),
            // A whole day that no calendar there has.
            ("Pacific/Apia", "2011-12-30T00:00", "2011-12-30T10:00Z"),
            ("Pacific/Apia", "2011-12-31T00:00", "2011-12-30T10:00Z"),
            // At a minute past midnight the clocks were put back into the day before.
            ("America/St_Johns", "1990-10-28T00:00", "1990-10-28T02:30Z"),
        ] {
            let first = zone.parse::<Zone>().unwrap().first_moment(parse_timestamp(shown).unwrap());
            assert_eq!(Some(first), parse_timestamp(utc), "{zone} {shown}");
        }
    }

    #[test]
    fn an_unknown_zone_is_named() {
        let error = "Europe/Berlln".parse::<Zone>().unwrap_err();
        assert!(error.to_string().contains("\"Europe/Berlln\" is no time zone"), "{error}");
    }
}
