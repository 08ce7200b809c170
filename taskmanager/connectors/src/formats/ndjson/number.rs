//! JSON's numbers as exact values: no double in between.

use crate::formats::Reason;

/// Why a number is not the value wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misfit {
    /// It has digits that the type has no place for.
    Inexact,
    /// It is too large.
    OutOfRange,
}

/// Most digits that are looked at: 38 fit a DECIMAL.
const DIGITS_MAX: i64 = 38;

/// The value of `text` times 10^`scale`, which must be whole.
///
/// `text` is a number as JSON allows it, of any length.
pub(super) fn scaled(text: &str, scale: u32) -> Result<i128, Misfit> {
    let (is_negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text),
    };
    // The common case: few digits and nothing else.
    if body.len() <= 18
        && let Some(value) = plain(body)
        && scale == 0
    {
        return Ok(i128::from(if is_negative { -value } else { value }));
    }
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], parse_exponent(&body[at + 1..])),
        None => (body, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // The digits as one number D · 10^shift with neither leading nor trailing zeros.
    let digits = || whole.bytes().chain(fraction.bytes());
    let leading = digits().take_while(|digit| *digit == b'0').count();
    let all = whole.len() + fraction.len();
    if leading == all {
        return Ok(0);
    }
    let trailing = fraction.bytes().rev().chain(whole.bytes().rev()).take_while(|digit| *digit == b'0').count();
    let count = all - leading - trailing;
    let shift = exponent.saturating_add(i64::from(scale)).saturating_sub(fraction.len() as i64).saturating_add(trailing as i64);
    if shift < 0 {
        return Err(Misfit::Inexact);
    }
    if count as i64 + shift > DIGITS_MAX {
        return Err(Misfit::OutOfRange);
    }
    let value = digits().skip(leading).take(count).fold(0i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    let value = value * 10i128.pow(shift as u32);
    Ok(if is_negative { -value } else { value })
}

/// A whole number in `min..=max`.
#[inline]
pub(super) fn integer(text: &str, min: i128, max: i128, ty: &str) -> Result<i128, Reason> {
    match scaled(text, 0) {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        Ok(_) | Err(Misfit::OutOfRange) => Err(Reason::new(format!("{} is out of the range of {ty}", shown(text)))),
        Err(Misfit::Inexact) => Err(Reason::new(format!("{} is not a whole number, the column is {ty}", shown(text)))),
    }
}

/// A number of DECIMAL(precision, scale), times 10^scale.
pub(super) fn decimal(text: &str, precision: u8, scale: i8) -> Result<i128, Reason> {
    match scaled(text, u32::from(scale.unsigned_abs())) {
        Ok(value) if value.unsigned_abs() < 10u128.pow(u32::from(precision)) => Ok(value),
        Ok(_) | Err(Misfit::OutOfRange) => {
            Err(Reason::new(format!("{} is out of the range of DECIMAL({precision},{scale})", shown(text))))
        }
        Err(Misfit::Inexact) => {
            Err(Reason::new(format!("{} has more digits after the point than DECIMAL({precision},{scale})", shown(text))))
        }
    }
}

/// A double; rounded to the nearest, never to infinity.
pub(super) fn double(text: &str) -> Result<f64, Reason> {
    text.parse::<f64>()
        .ok()
        .filter(|value| value.is_finite())
        .ok_or_else(|| Reason::new(format!("{} is out of the range of FLOAT64", shown(text))))
}

/// A float; rounded to the nearest, never to infinity.
pub(super) fn single(text: &str) -> Result<f32, Reason> {
    text.parse::<f32>()
        .ok()
        .filter(|value| value.is_finite())
        .ok_or_else(|| Reason::new(format!("{} is out of the range of FLOAT32", shown(text))))
}

/// A value's text, shortened for a message.
pub(super) fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The value of at most 18 digits, if there is nothing else.
#[inline]
fn plain(digits: &str) -> Option<i64> {
    let mut value = 0i64;
    for byte in digits.bytes() {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(byte - b'0');
    }
    Some(value)
}

/// An exponent's value; beyond any that matters where it has many digits.
fn parse_exponent(text: &str) -> i64 {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = digits.bytes().fold(0i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    let value = value.min(i64::MAX / 4);
    if is_negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_exact_however_written() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("0.0e999999999999999999999", 0),
            ("9007199254740993", 9_007_199_254_740_993),
            ("1e3", 1000),
            ("2.0", 2),
            ("1200e-2", 12),
            ("0.5e1", 5),
            ("-9223372036854775808", i128::from(i64::MIN)),
            ("18446744073709551615", i128::from(u64::MAX)),
            ("1000000000000000000000000000000000000000000000000e-45", 1000),
        ] {
            assert_eq!(scaled(text, 0), Ok(value), "{text}");
        }
        for text in ["0.5", "1e-1", "1e-999999999999999999999", "12345e-3"] {
            assert_eq!(scaled(text, 0), Err(Misfit::Inexact), "{text}");
        }
        for text in ["1e39", "1e999999999999999999999", "1234567890123456789012345678901234567890"] {
            assert_eq!(scaled(text, 0), Err(Misfit::OutOfRange), "{text}");
        }
        assert!(integer("9223372036854775808", i128::from(i64::MIN), i128::from(i64::MAX), "INT64").is_err());
    }

    #[test]
    fn decimals_keep_every_digit() {
        assert_eq!(decimal("0.908", 38, 3), Ok(908));
        assert_eq!(decimal("-12.5", 10, 2), Ok(-1250));
        assert_eq!(
            decimal("99999999999999999999999999999999999999", 38, 0),
            Ok(99_999_999_999_999_999_999_999_999_999_999_999_999)
        );
        assert!(decimal("0.125", 10, 2).expect_err("a third digit").to_string().contains("DECIMAL(10,2)"));
        assert!(decimal("100", 2, 0).is_err());
        assert!(decimal("1e38", 38, 0).is_err());
    }

    #[test]
    fn floats_underflow_to_zero_and_do_not_overflow() {
        assert_eq!(double("1e-400"), Ok(0.0));
        assert_eq!(double("-0").map(f64::to_bits), Ok((-0.0f64).to_bits()));
        assert!(double("1e400").is_err() && single("1e39").is_err());
        assert_eq!(single("0.1"), Ok(0.1));
    }
}
