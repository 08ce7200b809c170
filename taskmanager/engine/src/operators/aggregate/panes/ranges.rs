//! Several panes merged where a store has part of them: one range of key groups after the other.
//!
//! Of each pane what memory has of the range comes first, then what only the store has of it. A range is merged whole, goes out
//! and is forgotten; how wide it is follows from what the last ones took. The panes stay as they are: nothing comes into them.
//! Must never know which panes make a window. Invariant: a range takes at most `bytes_max`, unless it is one key group.

use arrow::array::ArrayRef;
use levada_common::keys::KeyGroupRange;
use levada_state::rows::Rows;

use super::super::group_table::GroupTable;
use super::super::shape::Shape;
use super::store::PaneStore;
use super::{OpenPanes, PIECE_ROWS};
use crate::error::EngineError;
use crate::operators::behind::failed;
use crate::operators::window::Window;

/// Most bytes that a range takes, however much memory there is: it is merged at once.
const RANGE_BYTES_MAX: usize = 16 << 20;

/// Part of the overlay's memory that a range may take.
const RANGE_PART: usize = 8;

/// Merged rows on their way out.
pub(in super::super) struct MergedRows {
    /// Number of rows, at least 1.
    pub(in super::super) rows: usize,
    /// Key columns.
    pub(in super::super) keys: Vec<ArrayRef>,
    /// A column per call.
    pub(in super::super) results: Vec<ArrayRef>,
}

/// What memory has of a pane, by key group.
#[derive(Debug)]
struct PaneRows {
    window: Window,
    /// Key group and group (high and low half), ascending.
    groups: Vec<u64>,
}

/// The panes that are being merged, and how far it is.
#[derive(Debug)]
pub(in super::super) struct Ranges {
    /// Key groups of the next range, as far as there are so many.
    width: u32,
    bytes_max: usize,
    panes: Vec<PaneRows>,
    /// The key groups that are to come, from the first up to, not including, the last.
    left: (u32, u32),
    merged: GroupTable,
    /// Next group of `merged`.
    cursor: usize,
}

impl Ranges {
    /// Nothing is merged.
    pub(in super::super) fn new(shape: &Shape) -> Self {
        Self { width: u32::MAX, bytes_max: 0, panes: Vec::new(), left: (0, 0), merged: GroupTable::new(shape), cursor: 0 }
    }

    /// Begins to merge the panes that end after `after` and not after `until`, in memory and beyond.
    pub(in super::super) fn begin(&mut self, panes: &mut OpenPanes, after: i64, until: i64) {
        let windows = panes.known(after, until);
        let OpenPanes { panes, store: Some(store), .. } = panes else { return };
        self.bytes_max = (store.behind.write_back.share_bytes() / RANGE_PART).min(RANGE_BYTES_MAX);
        self.left = (u32::from(store.key_groups.start), u32::from(store.key_groups.end) + 1);
        self.panes.clear();
        self.panes.extend(windows.into_iter().map(|window| {
            let groups = panes.get(&window).map_or_else(Vec::new, |pane| by_key_group(store, &pane.groups));
            PaneRows { window, groups }
        }));
    }

    /// The next rows, at most `rows_max`; `None` when everything is out.
    pub(in super::super) fn next(
        &mut self,
        shape: &Shape,
        panes: &mut OpenPanes,
        rows_max: usize,
    ) -> Result<Option<MergedRows>, EngineError> {
        while self.cursor == self.merged.len() {
            if self.left.0 == self.left.1 {
                self.panes = Vec::new();
                self.reset(shape);
                return Ok(None);
            }
            self.merge_next(shape, panes)?;
        }
        let (start, end) = (self.cursor, self.merged.len().min(self.cursor + rows_max));
        self.cursor = end;
        let rows = Rows::Span { start, end };
        Ok(Some(MergedRows { rows: rows.len(), keys: self.merged.keys(rows), results: self.merged.read(rows) }))
    }

    /// Bytes held.
    pub(in super::super) fn memory_bytes(&self) -> usize {
        let groups: usize = self.panes.iter().map(|pane| pane.groups.capacity() * size_of::<u64>()).sum();
        self.merged.memory_bytes() + groups
    }

    fn reset(&mut self, shape: &Shape) {
        (self.merged, self.cursor) = (GroupTable::new(shape), 0);
    }

    /// Merges the next range, of half as many key groups as often as it takes too much.
    fn merge_next(&mut self, shape: &Shape, panes: &mut OpenPanes) -> Result<(), EngineError> {
        let (first, end) = self.left;
        loop {
            let last = first + self.width.min(end - first) - 1;
            self.reset(shape);
            if self.merge(shape, panes, KeyGroupRange { start: first as u16, end: last as u16 })? {
                self.left.0 = last + 1;
                if self.merged.memory_bytes() < self.bytes_max / 4 {
                    self.width = self.width.saturating_mul(2);
                }
                return Ok(());
            }
            self.width = (last - first).div_ceil(2);
        }
    }

    /// Merges what all panes have in `range`; answers whether it takes no more than it may, and stops where it does.
    fn merge(&mut self, shape: &Shape, panes: &mut OpenPanes, range: KeyGroupRange) -> Result<bool, EngineError> {
        let Self { bytes_max, panes: rows, merged, .. } = self;
        let OpenPanes { panes, store: Some(store), .. } = panes else { return Ok(true) };
        let fits = |merged: &GroupTable| range.start == range.end || merged.memory_bytes() <= *bytes_max;
        for PaneRows { window, groups } in rows {
            let mut pane = panes.get_mut(window);
            if let Some(pane) = &pane {
                for some in in_range(groups, range).chunks(PIECE_ROWS) {
                    let ids: Vec<u32> = some.iter().map(|group| *group as u32).collect();
                    let rows = Rows::Ids(&ids);
                    merged.absorb(shape, &pane.groups.keys(rows), ids.len(), &pane.groups.states(rows))?;
                    if !fits(merged) {
                        return Ok(false);
                    }
                }
            }
            if !store.beyond.contains(window) {
                continue;
            }
            for batch in store.scan(*window, range)? {
                let mut stored = PaneStore::groups_of(shape, &batch.map_err(|source| failed(&shape.uid, source))?);
                if let Some(pane) = &mut pane {
                    stored = stored.absent_from(shape, &mut pane.groups)?;
                }
                merged.absorb(shape, &stored.keys, stored.rows, &stored.states)?;
                if !fits(merged) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// The groups of a table by key group.
fn by_key_group(store: &mut PaneStore, groups: &GroupTable) -> Vec<u64> {
    let mut found = Vec::with_capacity(groups.len());
    for start in (0..groups.len()).step_by(PIECE_ROWS) {
        let end = groups.len().min(start + PIECE_ROWS);
        let of_keys = store.groups_of_keys(&groups.keys(Rows::Span { start, end }), end - start);
        found.extend(of_keys.into_iter().zip(start as u64..).map(|(key_group, group)| u64::from(key_group) << 32 | group));
    }
    found.sort_unstable();
    found
}

/// Those of the groups whose key group is in `range`.
fn in_range(groups: &[u64], range: KeyGroupRange) -> &[u64] {
    let place = |key_group: u64| groups.partition_point(|group| group >> 32 < key_group);
    &groups[place(u64::from(range.start))..place(u64::from(range.end) + 1)]
}
