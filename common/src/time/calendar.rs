//! Dates and times as ISO 8601 text, in the proleptic Gregorian calendar: texts to numbers.
//!
//! Must never know the zone of a text that names none: whoever asks says.

const DAY_MS: i64 = 86_400_000;

/// What a clock and a calendar show, and how far they are from UTC where the text says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// Milliseconds since 1970 as the clock shows them.
    pub ms: i64,
    /// Milliseconds east of UTC; `None` where the text has no zone.
    pub offset_ms: Option<i64>,
}

/// Days since 1970 of `2026-01-31`; `None` where the text is no date or out of range.
pub fn parse_date(text: &str) -> Option<i32> {
    let (days, rest) = take_date(text)?;
    if rest.is_empty() { i32::try_from(days).ok() } else { None }
}

/// Milliseconds since 1970 of `2026-01-31T12:00:00.5+01:00`, in UTC where it has no zone; `None` where the text is no time or
/// out of range.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    let local = parse_local_time(text)?;
    local.ms.checked_sub(local.offset_ms.unwrap_or(0))
}

/// The same, its zone apart.
pub fn parse_local_time(text: &str) -> Option<LocalTime> {
    let (days, rest) = take_date(text)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (hour, rest) = take_two(rest, 23)?;
    let (minute, rest) = take_two(rest.strip_prefix(':')?, 59)?;
    let (second, rest) = match rest.strip_prefix(':') {
        Some(rest) => take_two(rest, 59)?,
        None => (0, rest),
    };
    let (millisecond, rest) = match rest.strip_prefix('.') {
        Some(rest) => take_fraction(rest)?,
        None => (0, rest),
    };
    let offset_ms = if rest.is_empty() { None } else { Some(parse_offset(rest)? * 60_000) };
    let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + millisecond;
    Some(LocalTime { ms: days.checked_mul(DAY_MS)?.checked_add(of_day)?, offset_ms })
}

/// Year, month and day of so many days since 1970. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
pub fn civil(days: i64) -> (i64, u64, u64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u64, day as u64)
}

/// Days since 1970 of the date that `text` begins with, and what follows it.
fn take_date(text: &str) -> Option<(i64, &str)> {
    let (sign, body) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => (0, text),
    };
    let digits = body.bytes().take_while(u8::is_ascii_digit).count();
    let is_good = if sign == 0 { digits == 4 } else { (4..=9).contains(&digits) };
    if !is_good {
        return None;
    }
    let year: i64 = body[..digits].parse().ok()?;
    let year = if sign < 0 { -year } else { year };
    let (month, rest) = take_two(body[digits..].strip_prefix('-')?, 12)?;
    let (day, rest) = take_two(rest.strip_prefix('-')?, 31)?;
    if month == 0 || day == 0 || day > month_days(year, month) {
        return None;
    }
    Some((days_of(year, month, day), rest))
}

/// Two digits, at most `max`.
fn take_two(text: &str, max: i64) -> Option<(i64, &str)> {
    let digits = text.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let value: i64 = digits.parse().ok()?;
    (value <= max).then_some((value, &text[2..]))
}

/// One digit or more after the point, as milliseconds; finer digits are cut off.
fn take_fraction(text: &str) -> Option<(i64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let padded = text.bytes().take(digits).chain(std::iter::repeat(b'0')).take(3);
    Some((padded.fold(0, |value, digit| value * 10 + i64::from(digit - b'0')), &text[digits..]))
}

/// Minutes east of UTC: `Z`, `+01:00`, `+0100` or `+01`.
fn parse_offset(text: &str) -> Option<i64> {
    let (sign, body) = match text {
        "Z" | "z" => return Some(0),
        _ if text.starts_with('+') => (1, &text[1..]),
        _ if text.starts_with('-') => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, rest) = take_two(body, 18)?;
    let (minutes, rest) = match rest {
        "" => (0, ""),
        _ => take_two(rest.strip_prefix(':').unwrap_or(rest), 59)?,
    };
    rest.is_empty().then_some(sign * (hours * 60 + minutes))
}

fn month_days(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970. Source: as `civil`.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_fractions() {
        for (text, ms) in [
            ("1970-01-01T01:00:00+01:00", 0),
            ("1970-01-01 00:00:00", 0),
            ("1970-01-01T00:00Z", 0),
            ("1969-12-31T18:30:00.5-0530", 500),
            ("1970-01-01T00:00:00.123456789Z", 123),
            ("1970-01-01T00:00:00.1+00", 100),
            ("1969-12-31T23:59:59.9999Z", -1),
        ] {
            assert_eq!(parse_timestamp(text), Some(ms), "{text}");
        }
        for bad in [
            "25:61:61",
            "",
            "1970",
            "1970-01-01",
            "1970-13-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+19:00",
            "1970-01-01T00:00:00Zx",
            "12026-01-01T00:00:00Z",
            "1970-01-01T0:00:00Z",
            "+999999999-01-01T00:00:00Z",
            "1970-01-01T00:00:00+1",
            "ä970-01-01T00:00:00Z",
            "1970-01-0äT00:00:00Z",
        ] {
            assert_eq!(parse_timestamp(bad), None, "{bad}");
        }
        assert_eq!(parse_date("2026-01-31"), Some(20_484));
        assert_eq!(parse_date("2026-02-30"), None);
        assert_eq!(parse_date("2026-01-31T00:00:00Z"), None);
        assert_eq!(parse_date("+999999999-01-01"), None);
    }

    #[test]
    fn a_zone_that_is_not_written_is_not_made_up() {
        let local = |text| parse_local_time(text).map(|local| (local.ms, local.offset_ms));
        assert_eq!(local("1970-01-01T01:00:00"), Some((3_600_000, None)));
        assert_eq!(local("1970-01-01T01:00:00Z"), Some((3_600_000, Some(0))));
        assert_eq!(local("1970-01-01T01:00:00-02:00"), Some((3_600_000, Some(-7_200_000))));
    }
}
