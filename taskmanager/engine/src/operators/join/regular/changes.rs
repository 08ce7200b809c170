//! The changes of a batch, one after the other, applied to the side that they are of.

use levada_common::plan::JoinSide;
use levada_common::types::RowKind;

use super::side::Standing;
use crate::operators::rows::NO_ROW;

/// A batch that was put into its side's heap.
pub(super) struct Changes {
    pub(super) side: JoinSide,
    /// Of each row, on a changelog: what it does.
    pub(super) ops: Option<Vec<i8>>,
    /// Of each row: its key.
    pub(super) keys: Vec<u32>,
    /// Of each row, where there are any: whether its key has no null.
    pub(super) meets: Option<Vec<bool>>,
    /// Of each row, on a changelog: its unique key.
    pub(super) uniques: Vec<u32>,
    /// Of each row: its number in the heap; `NO_ROW` where it brings no row.
    pub(super) numbers: Vec<u32>,
    pub(super) next: usize,
}

/// What a change did to its side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A row came; `is_first` of its key.
    Insert { row: u32, is_first: bool },
    /// A row went; it `was_last` of its key.
    Delete { row: u32, was_last: bool },
    /// A row took another's place.
    Update { before: u32, after: u32 },
}

/// A change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) key: u32,
    /// The key has no null: rows of the other side may have it.
    pub(super) meets: bool,
    pub(super) what: What,
}

impl Changes {
    /// Applies the next change that there is to its side.
    pub(super) fn next(&mut self, own: &mut Standing) -> Option<Change> {
        while self.next < self.keys.len() {
            let row = self.next;
            self.next += 1;
            let (key, meets) = (self.keys[row], self.meets.as_ref().is_none_or(|meets| meets[row]));
            let op = self.ops.as_ref().map_or(RowKind::Insert as i8, |ops| ops[row]);
            let unique = self.uniques.get(row).copied();
            let standing = unique.map_or(NO_ROW, |unique| own.of_unique(unique));
            let what = if op == RowKind::Insert as i8 || op == RowKind::UpdateAfter as i8 {
                own.stand(key, meets, unique, standing, self.numbers[row])
            } else if op == RowKind::Delete as i8 && standing != NO_ROW {
                own.fall(standing)
            } else {
                // A row that an update replaces goes when its successor comes; one that is not there has lived its time.
                own.note_emptied(key, unique);
                continue;
            };
            return Some(Change { key, meets, what });
        }
        None
    }
}
