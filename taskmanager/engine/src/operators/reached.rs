//! How far time had come in each subtask of a snapshot. A barrier comes to each at its own moment of processing time, and where it is
//! not aligned, or inputs were idle, of event time too; so a window may have been given by one and not by another: whose keys they
//! were says by which.

use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::operator::RestoredState;
use crate::task::entries;

/// What stands between a time and the key groups of the subtask that it is of.
const OF: &str = " of ";

/// The times of the subtasks, with their key groups. Milliseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Reached(Vec<(KeyGroupRange, i64)>);

impl Reached {
    /// The state `name`, taken out of `restored`, of a job with `max_parallelism` key groups now.
    ///
    /// Errors: `Restore` where it is no such time.
    pub(super) fn read(
        uid: &Uid,
        name: &str,
        max_parallelism: u32,
        restored: &mut Vec<RestoredState>,
    ) -> Result<Self, EngineError> {
        let found: Vec<RestoredState> = restored.extract_if(.., |state| state.name == name).collect();
        let refuse = |entry: &str| EngineError::Restore {
            uid: uid.clone(),
            state: name.into(),
            reason: format!("\"{entry}\" is not a whole number{OF}key groups{OF}so many"),
        };
        let read = |entry: String| parse(&entry, max_parallelism).ok_or_else(|| refuse(&entry));
        Ok(Self(entries::read(uid, name, &found)?.into_iter().map(read).collect::<Result<_, _>>()?))
    }

    /// The time of a subtask with these of so many key groups, for a snapshot's state `name`.
    pub(super) fn part(uid: &Uid, name: &str, (groups, max_parallelism): (KeyGroupRange, u32), time: i64) -> Vec<StatePart> {
        let entry = format!("{time}{OF}{}-{}{OF}{max_parallelism}", groups.start, groups.end);
        entries::part_of(uid, name, StateKind::OperatorUnion, vec![entry])
    }

    /// How far the furthest had come; the least where there was none.
    pub(super) fn latest(&self) -> i64 {
        self.0.iter().map(|(_, time)| *time).max().unwrap_or(i64::MIN)
    }

    /// How far all of these key groups had come, as far as that was saved.
    pub(super) fn earliest(&self, groups: KeyGroupRange) -> Option<i64> {
        self.0.iter().filter(|(of, _)| of.intersects(groups)).map(|(_, time)| *time).min()
    }

    /// Whether a subtask had come to a time of which this holds.
    pub(super) fn any(&self, holds: impl Fn(i64) -> bool) -> bool {
        self.0.iter().any(|(_, time)| holds(*time))
    }

    /// Whether the subtask with this key group had.
    pub(super) fn any_of(&self, group: u16, holds: impl Fn(i64) -> bool) -> bool {
        self.0.iter().any(|(of, time)| of.contains(group) && holds(*time))
    }
}

/// A time, and whose it is: where that is not said, everyone's. Key groups nest where their number was multiplied since.
fn parse(entry: &str, max_parallelism: u32) -> Option<(KeyGroupRange, i64)> {
    let Some((time, groups)) = entry.split_once(OF) else {
        return Some((KeyGroupRange::all(max_parallelism), entry.parse().ok()?));
    };
    let (groups, noted) = groups.split_once(OF)?;
    let (start, end) = groups.split_once('-')?;
    let (start, end, noted): (u32, u32, u32) = (start.parse().ok()?, end.parse().ok()?, noted.parse().ok()?);
    let factor = max_parallelism.checked_div(noted)?;
    let group = |group: u32| u16::try_from(group).ok();
    let range = KeyGroupRange {
        start: group(start.checked_mul(factor)?)?,
        end: group(end.checked_add(1)?.checked_mul(factor)?.checked_sub(1)?)?,
    };
    Some((range, time.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_group_has_the_time_of_its_subtask() {
        let groups = |start, end| KeyGroupRange { start, end };
        let reached = Reached(["9 of 0-7 of 16", "12 of 8-15 of 16"].map(|entry| parse(entry, 16).unwrap()).into());
        assert_eq!(reached.latest(), 12);
        assert_eq!([groups(0, 7), groups(8, 15), groups(7, 8)].map(|groups| reached.earliest(groups)), [9, 12, 9].map(Some));
        assert!(reached.any(|time| time >= 12) && !reached.any(|time| time > 12));
        assert_eq!([0, 7, 8, 15].map(|group| reached.any_of(group, |time| time >= 10)), [false, false, true, true]);
    }

    #[test]
    fn key_groups_nest_where_there_are_more_of_them_now() {
        let groups = |entry| parse(entry, 256).unwrap().0;
        assert_eq!(groups("9 of 0-63 of 128"), KeyGroupRange { start: 0, end: 127 });
        assert_eq!(groups("9 of 64-127 of 128"), KeyGroupRange { start: 128, end: 255 });
        assert_eq!(groups("9"), KeyGroupRange { start: 0, end: 255 });
    }

    #[test]
    fn what_was_saved_without_key_groups_is_of_all() {
        let reached = Reached(vec![parse("-3", 128).unwrap()]);
        assert_eq!((reached.latest(), reached.earliest(KeyGroupRange { start: 3, end: 5 })), (-3, Some(-3)));
        let bad = ["", "x", "3 of 4", "3 of 4-x of 8", "3 of 4-5", "3 of 4-5 of 0", "3 of 4-4294967295 of 8"];
        assert_eq!(bad.map(|entry| parse(entry, 8)), [None; 7]);
        assert_eq!(Reached::default().earliest(KeyGroupRange { start: 0, end: 1 }), None);
    }
}
