//! Durations and sizes as people write them: `10s`, `1h30m`, `5MiB`. Job graphs and configuration share them.
//!
//! A duration always has a unit, so that no one has to know which one a bare number means; a size without one is in bytes.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct HumanDuration {
    ms: u64,
}

/// The units of a duration, longest first, in milliseconds.
const TIME_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl HumanDuration {
    /// The longest duration: a thousand years, so that no arithmetic on event time can overflow.
    pub const MAX_MS: u64 = 366_000 * 86_400_000;

    /// A duration of so many milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self { ms }
    }

    /// A duration of so many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self { ms: secs * 1_000 }
    }

    /// Milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.ms
    }
}

impl From<HumanDuration> for std::time::Duration {
    fn from(duration: HumanDuration) -> Self {
        Self::from_millis(duration.ms)
    }
}

/// The text is not a duration or a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuantity {
    /// A bare number where a duration belongs.
    #[error("\"{0}\" has no unit; write a duration such as {0}s or {0}ms")]
    NoUnit(String),
    /// No duration at all.
    #[error("\"{0}\" is not a duration; write one such as 10s, 100ms or 1h30m (units: ms, s, m, h, d)")]
    Duration(String),
    /// Longer than the longest duration.
    #[error("\"{0}\" is too long; a duration is at most 366000d")]
    TooLong(String),
    /// No size at all.
    #[error(
        "\"{0}\" is not a size; write one such as 5MiB, 20KiB or a number of bytes (units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)"
    )]
    Size(String),
    /// Larger than a 64-bit number of bytes.
    #[error("\"{0}\" is too large for a size")]
    TooLarge(String),
}

/// Cuts a number and the letters behind it off the front.
fn number_and_unit(text: &str) -> Option<(&str, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    (!number.is_empty()).then_some((number, unit, rest))
}

impl FromStr for HumanDuration {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let mut rest = text.trim();
        if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadQuantity::NoUnit(rest.into()));
        }
        let bad = || BadQuantity::Duration(text.into());
        let (mut total, mut longest) = (0u64, u64::MAX);
        while !rest.is_empty() || longest == u64::MAX {
            let (number, unit, behind) = number_and_unit(rest).ok_or_else(bad)?;
            let (_, unit_ms) = TIME_UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
            // Units fall: `30m1h` or `1s1s` is more likely a mistake than a wish.
            if unit_ms >= longest {
                return Err(bad());
            }
            longest = unit_ms;
            let number: Option<u64> = number.parse().ok();
            total = number
                .and_then(|number| number.checked_mul(unit_ms))
                .and_then(|ms| ms.checked_add(total))
                .filter(|ms| *ms <= Self::MAX_MS)
                .ok_or_else(|| BadQuantity::TooLong(text.into()))?;
            rest = behind.trim_start();
        }
        Ok(Self { ms: total })
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ms == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.ms;
        for (unit, unit_ms) in TIME_UNITS {
            if rest >= unit_ms {
                write!(f, "{}{unit}", rest / unit_ms)?;
                rest %= unit_ms;
            }
        }
        Ok(())
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = HumanDuration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with a unit, such as 10s or 100ms")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ByteSize {
    bytes: u64,
}

/// Units of a size in bytes; those of powers of 1024 first and largest first, since these are written.
const SIZE_UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl ByteSize {
    /// So many bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self { bytes }
    }

    /// So many times 1024 bytes.
    pub const fn from_kib(kib: u64) -> Self {
        Self { bytes: kib << 10 }
    }

    /// So many times 1024² bytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self { bytes: mib << 20 }
    }

    /// Bytes.
    pub const fn as_bytes(self) -> u64 {
        self.bytes
    }
}

impl FromStr for ByteSize {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let bad = || BadQuantity::Size(text.into());
        let (number, unit, rest) = number_and_unit(text.trim()).ok_or_else(bad)?;
        let (_, unit_bytes) = SIZE_UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(bad)?;
        if !rest.is_empty() {
            return Err(bad());
        }
        let number: Option<u64> = number.parse().ok();
        let bytes = number.and_then(|number| number.checked_mul(unit_bytes));
        bytes.map(Self::from_bytes).ok_or_else(|| BadQuantity::TooLarge(text.into()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |unit_bytes: u64| self.bytes >= unit_bytes && self.bytes.is_multiple_of(unit_bytes);
        let (unit, unit_bytes) = SIZE_UNITS.into_iter().find(|(_, bytes)| fits(*bytes)).unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.bytes / unit_bytes)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;
        impl Visitor<'_> for TextOrNumber {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 5MiB, or a number of bytes")
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Self::Value, E> {
                Ok(ByteSize { bytes })
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Self::Value, E> {
                u64::try_from(bytes).map(ByteSize::from_bytes).map_err(|_| E::custom(BadQuantity::Size(bytes.to_string())))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(TextOrNumber)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, ms) in
            [("10s", 10_000), ("100ms", 100), ("1h30m", 5_400_000), ("0s", 0), (" 2 d ", 172_800_000), ("1m 5s", 65_000)]
        {
            assert_eq!(text.parse(), Ok(HumanDuration::from_ms(ms)), "{text}");
        }
        assert_eq!("10".parse::<HumanDuration>(), Err(BadQuantity::NoUnit("10".into())));
        for text in ["", "s", "-5s", "1.5s", "5 parsecs", "1s1h", "1s1s", "10S"] {
            assert!(matches!(text.parse::<HumanDuration>(), Err(BadQuantity::Duration(_))), "{text}");
        }
        for text in ["99999999999999999999s", "366001d", "366000d1ms"] {
            assert!(matches!(text.parse::<HumanDuration>(), Err(BadQuantity::TooLong(_))), "{text}");
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in
            [("5MiB", 5 << 20), ("20 KiB", 20 << 10), ("1000", 1000), ("1000B", 1000), ("64kb", 64_000), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(ByteSize::from_bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "5XiB", "5MiB5", "1.5GiB"] {
            assert!(matches!(text.parse::<ByteSize>(), Err(BadQuantity::Size(_))), "{text}");
        }
        assert!(matches!("99999999TiB".parse::<ByteSize>(), Err(BadQuantity::TooLarge(_))));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ms in 0..=HumanDuration::MAX_MS, bytes: u64, shift in 0u32..44) {
            let duration = HumanDuration::from_ms(ms);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
            let size = ByteSize::from_bytes((bytes >> 44) << shift);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
