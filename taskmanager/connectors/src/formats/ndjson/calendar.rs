//! Dates and times written as ISO 8601 text, in the proleptic Gregorian calendar and UTC.

use levada_common::time::calendar::civil;

use super::write::push_digits;

const DAY_MS: i64 = 86_400_000;

/// Appends `2026-01-31`.
pub(super) fn push_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil(days);
    if (0..=9999).contains(&year) {
        push_padded(out, year as u64, 4);
    } else {
        out.push(if year < 0 { b'-' } else { b'+' });
        push_padded(out, year.unsigned_abs(), 6);
    }
    out.push(b'-');
    push_padded(out, month, 2);
    out.push(b'-');
    push_padded(out, day, 2);
}

/// Appends `2026-01-31T12:00:00.000Z`.
pub(super) fn push_timestamp(out: &mut Vec<u8>, ms: i64) {
    push_date(out, ms.div_euclid(DAY_MS));
    let of_day = ms.rem_euclid(DAY_MS) as u64;
    for (mark, value, width) in
        [(b'T', of_day / 3_600_000, 2), (b':', of_day / 60_000 % 60, 2), (b':', of_day / 1000 % 60, 2), (b'.', of_day % 1000, 3)]
    {
        out.push(mark);
        push_padded(out, value, width);
    }
    out.push(b'Z');
}

fn push_padded(out: &mut Vec<u8>, value: u64, width: usize) {
    let digits = value.checked_ilog10().unwrap_or(0) as usize + 1;
    out.extend(std::iter::repeat_n(b'0', width.saturating_sub(digits)));
    push_digits(out, value);
}

#[cfg(test)]
mod tests {
    use levada_common::time::calendar::{parse_date, parse_timestamp};
    use proptest::prelude::*;

    use super::*;

    fn text(ms: i64) -> String {
        let mut out = Vec::new();
        push_timestamp(&mut out, ms);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn known_moments() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "+010000-01-01T00:00:00.000Z"),
            (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
            (-62_167_219_200_001, "-000001-12-31T23:59:59.999Z"),
            (-377_705_116_800_000, "-009999-01-01T00:00:00.000Z"),
            (i64::MAX, "+292278994-08-17T07:12:55.807Z"),
            (i64::MIN, "-292275055-05-16T16:47:04.192Z"),
        ] {
            assert_eq!(text(ms), expected);
            if ms != i64::MIN {
                assert_eq!(parse_timestamp(expected), Some(ms));
            }
        }
    }

    proptest! {
        #[test]
        fn a_time_is_its_text(ms in (i64::MIN + DAY_MS)..=i64::MAX, days: i32) {
            prop_assert_eq!(parse_timestamp(&text(ms)), Some(ms));
            let mut out = Vec::new();
            push_date(&mut out, i64::from(days));
            prop_assert_eq!(parse_date(std::str::from_utf8(&out).expect("ASCII")), Some(days));
        }
    }
}
