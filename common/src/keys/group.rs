//! Key groups: the unit in which keyed state is given to subtasks.
//!
//! A group is `floor(hash * max / 2^32)`, so groups nest when the maximum is multiplied, and a range of groups is a range of
//! hashes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Greatest max parallelism, which is the number of key groups.
pub const MAX_PARALLELISM_LIMIT: u32 = 32_768;

/// The max parallelism of a job that sets none: half as much again as its parallelism, as a power of two, at least 128.
pub fn default_max_parallelism(parallelism: u32) -> u32 {
    let wanted = parallelism.saturating_add(parallelism / 2).clamp(1, MAX_PARALLELISM_LIMIT);
    wanted.next_power_of_two().clamp(128, MAX_PARALLELISM_LIMIT)
}

/// The group of a key with this hash, below `max_parallelism`.
#[inline]
pub fn key_group(hash: u32, max_parallelism: u32) -> u16 {
    ((u64::from(hash) * u64::from(max_parallelism)) >> 32) as u16
}

/// The subtask of `parallelism` that owns `group`.
///
/// Contract: `0 < parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT` and `group < max_parallelism`.
#[inline]
pub fn owner_of_group(group: u16, parallelism: u32, max_parallelism: u32) -> u32 {
    (u64::from(group) * u64::from(parallelism) / u64::from(max_parallelism)) as u32
}

/// A range of key groups, from `start` up to and including `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyGroupRange {
    /// First group.
    pub start: u16,
    /// Last group.
    pub end: u16,
}

impl KeyGroupRange {
    /// Every group of a job with this max parallelism.
    ///
    /// Contract: `0 < max_parallelism <= MAX_PARALLELISM_LIMIT`.
    pub fn all(max_parallelism: u32) -> Self {
        Self::of_subtask(0, 1, max_parallelism)
    }

    /// The groups that subtask `subtask` of `parallelism` owns; never none.
    ///
    /// Contract: `subtask < parallelism`, `0 < parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT`.
    pub fn of_subtask(subtask: u32, parallelism: u32, max_parallelism: u32) -> Self {
        assert!(
            subtask < parallelism && parallelism <= max_parallelism && max_parallelism <= MAX_PARALLELISM_LIMIT,
            "subtask {subtask} of {parallelism} with {max_parallelism} key groups"
        );
        let (subtask, parallelism, max) = (u64::from(subtask), u64::from(parallelism), u64::from(max_parallelism));
        let start = (subtask * max).div_ceil(parallelism);
        let end = ((subtask + 1) * max - 1) / parallelism;
        Self { start: start as u16, end: end as u16 }
    }

    /// Whether `group` is in this range.
    #[inline]
    pub fn contains(self, group: u16) -> bool {
        (self.start..=self.end).contains(&group)
    }

    /// Whether a group is in both ranges.
    pub fn intersects(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The groups in both ranges.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let range = Self { start: self.start.max(other.start), end: self.end.min(other.end) };
        self.intersects(other).then_some(range)
    }

    /// The groups that these become when the max parallelism is multiplied by `factor`: g becomes `factor`·g and those up to the
    /// next one's.
    ///
    /// Contract: the multiplied max parallelism is at most `MAX_PARALLELISM_LIMIT`.
    #[must_use]
    pub fn scaled(self, factor: u32) -> Self {
        let group = |group: u32| u16::try_from(group).expect("groups of a max parallelism within the limit");
        Self { start: group(u32::from(self.start) * factor), end: group((u32::from(self.end) + 1) * factor - 1) }
    }

    /// Number of groups.
    pub fn count(self) -> u32 {
        u32::from(self.end) - u32::from(self.start) + 1
    }

    /// The groups, in order.
    pub fn groups(self) -> std::ops::RangeInclusive<u16> {
        self.start..=self.end
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_partition_the_groups_and_agree_with_the_owner() {
        for max in [1, 2, 3, 7, 127, 128, 200, 32_768] {
            for parallelism in (1..=max.min(130)).chain([max]) {
                let mut next = 0;
                for subtask in 0..parallelism {
                    let range = KeyGroupRange::of_subtask(subtask, parallelism, max);
                    assert_eq!(u32::from(range.start), next, "{subtask} of {parallelism}, {max} groups");
                    assert!(range.end >= range.start);
                    for group in [range.start, range.end] {
                        assert_eq!(owner_of_group(group, parallelism, max), subtask);
                    }
                    next = u32::from(range.end) + 1;
                }
                assert_eq!(next, max);
            }
        }
    }

    #[test]
    fn groups_nest_when_the_maximum_is_multiplied() {
        for hash in [0, 1, 0x1234_5678, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            assert_eq!(key_group(hash, 128), key_group(hash, 128 * 4) / 4);
        }
        for (old, factor) in [(1, 1), (4, 2), (128, 3), (128, 256), (1, 32_768)] {
            for hash in [0, 1, 0x1234_5678, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
                let group = key_group(hash, old);
                let nested = KeyGroupRange { start: group, end: group }.scaled(factor);
                assert!(nested.contains(key_group(hash, old * factor)), "{hash:x} of {old} times {factor}");
                assert_eq!(nested.count(), factor);
            }
            assert_eq!(KeyGroupRange::all(old).scaled(factor), KeyGroupRange::all(old * factor));
        }
        assert_eq!(key_group(u32::MAX, 32_768), 32_767);
        assert_eq!(key_group(0, 1), 0);
    }

    #[test]
    fn the_default_maximum_is_a_power_of_two_with_room() {
        for (parallelism, max) in
            [(1, 128), (85, 128), (86, 256), (128, 256), (20_000, 32_768), (32_768, 32_768), (u32::MAX, 32_768)]
        {
            assert_eq!(default_max_parallelism(parallelism), max, "{parallelism}");
        }
    }

    #[test]
    fn ranges_meet_where_they_share_a_group() {
        let range = KeyGroupRange { start: 10, end: 20 };
        assert_eq!(range.intersection(KeyGroupRange { start: 20, end: 30 }), Some(KeyGroupRange { start: 20, end: 20 }));
        assert_eq!(range.intersection(KeyGroupRange { start: 21, end: 30 }), None);
        assert!(range.contains(10) && range.contains(20) && !range.contains(21));
        assert_eq!((range.count(), KeyGroupRange::all(128).count()), (11, 128));
    }
}
