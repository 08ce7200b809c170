//! Time zones: from what a zone's clocks show to the moment at which they do.

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
    fn an_unknown_zone_is_named() {
        let error = "Europe/Berlln".parse::<Zone>().unwrap_err();
        assert!(error.to_string().contains("\"Europe/Berlln\" is no time zone"), "{error}");
    }
}
