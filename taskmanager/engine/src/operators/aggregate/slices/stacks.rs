//! The windows over a row of slices, each merged of what is merged already: two stacks.
//!
//! The *front* has the older slices. It is built from the newest of them backwards: an entry is a key's state in a slice merged with
//! the key's entry before it, so that a key's newest entry is its state over all slices of the front. When the oldest slice leaves,
//! its keys go back to the entries before: nothing is taken apart, and nothing is merged again. The *back* is the running merge of
//! the slices that came since. A window is front and back, merged as it goes out. When the front cannot follow, since its slices
//! have all left, it is built anew of the slices that are there, and the back is empty.
//!
//! So a key of a slice is merged three times, and a row of a window once or twice, whatever the windows' size and slide. All of it
//! is derived from the slices: it is in no snapshot. Must never know which windows there are, nor when they fire.

use std::ops::Range;

use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;

use super::super::panes::{MergedRows, OpenPanes, Pane};
use super::super::shape::Shape;
use crate::aggregate::{AggregateSet, CallOverflow, Groups};
use crate::error::EngineError;
use crate::operators::window::Window;

/// No entry, no group.
const NONE: u32 = u32::MAX;

/// The slices of a window, merged.
#[derive(Debug)]
pub(super) struct Stacks {
    /// The keys of every slice since the front was built.
    directory: KeyIndex,
    front: Front,
    back: Back,
    /// Slices that end later are not in.
    until: i64,
    /// What goes out, merged.
    merged: AggregateSet,
    scratch: Scratch,
}

/// The older slices.
#[derive(Debug)]
struct Front {
    /// By entry.
    set: AggregateSet,
    /// The key of each entry.
    keys: Vec<u32>,
    /// The entry of the same key over the slices after this entry's.
    newer: Vec<u32>,
    /// By key: its entry over all slices of the front.
    heads: Vec<u32>,
    /// Start and entries of each slice, the oldest last.
    slices: Vec<(i64, Range<usize>)>,
}

/// The newer slices.
#[derive(Debug)]
struct Back {
    set: AggregateSet,
    /// The key of each group.
    keys: Vec<u32>,
    /// By key: its group.
    groups: Vec<u32>,
    /// Start of the oldest slice.
    start: Option<i64>,
}

/// Vectors that are filled anew each time.
#[derive(Debug, Default)]
struct Scratch {
    ids: Vec<u32>,
    targets: Vec<u32>,
    sources: Vec<u32>,
    keys: Vec<u32>,
    keys_of_back: Vec<u32>,
    both: Vec<u32>,
    from_back: Vec<u32>,
}

impl Stacks {
    /// Without slices.
    pub(super) fn new(shape: &Shape) -> Self {
        let set = || shape.plan.accumulators();
        Self {
            directory: KeyIndex::new(&shape.key_types),
            front: Front { set: set(), keys: Vec::new(), newer: Vec::new(), heads: Vec::new(), slices: Vec::new() },
            back: Back { set: set(), keys: Vec::new(), groups: Vec::new(), start: None },
            until: i64::MIN,
            merged: set(),
            scratch: Scratch::default(),
        }
    }

    /// Whether no slice was ever brought in.
    pub(super) fn is_new(&self) -> bool {
        self.until == i64::MIN
    }

    /// Whether a slice is in that ends then.
    pub(super) fn has(&self, slice_end: i64) -> bool {
        slice_end <= self.until
    }

    /// Brings in the slices of `window`, whose start and end are not before those of the last one, and lets older ones go.
    /// `is_stale`: slices that are in have changed.
    pub(super) fn move_to(
        &mut self,
        shape: &Shape,
        window: Window,
        slices: &OpenPanes,
        is_stale: bool,
    ) -> Result<(), EngineError> {
        if is_stale || self.back.start.is_some_and(|start| start < window.start) {
            self.clear();
            for slice in slices.ending(window.start, window.end).rev() {
                self.push_front(shape, slice)?;
            }
        } else {
            self.drop_before(window.start);
            for slice in slices.ending(self.until.max(window.start), window.end) {
                self.push_back(shape, slice)?;
            }
        }
        self.until = window.end;
        Ok(())
    }

    /// The next rows of the window, at most `rows_max`, from the key at `cursor` on; `None` when there is none.
    pub(super) fn next(&mut self, shape: &Shape, cursor: &mut usize, rows_max: usize) -> Result<Option<MergedRows>, EngineError> {
        let Scratch { keys, keys_of_back, both, from_back, sources, targets, .. } = &mut self.scratch;
        [&mut *keys, keys_of_back, both, from_back, sources, targets].into_iter().for_each(Vec::clear);
        // First the keys of the front, then those that only the back has: groups that are new to a merge come in order.
        while *cursor < self.directory.len() && keys.len() + keys_of_back.len() < rows_max {
            let (entry, group) = (self.front.heads[*cursor], self.back.groups[*cursor]);
            match (entry, group) {
                (NONE, NONE) => {}
                (NONE, group) => {
                    keys_of_back.push(*cursor as u32);
                    from_back.push(group);
                }
                (entry, group) => {
                    if group != NONE {
                        targets.push(keys.len() as u32);
                        both.push(group);
                    }
                    keys.push(*cursor as u32);
                    sources.push(entry);
                }
            }
            *cursor += 1;
        }
        let (of_front, rows) = (keys.len(), keys.len() + keys_of_back.len());
        if rows == 0 {
            return Ok(None);
        }
        keys.append(keys_of_back);
        let results = if both.is_empty() && of_front == rows {
            self.front.set.read(Rows::Ids(sources))
        } else if of_front == 0 {
            self.back.set.read(Rows::Ids(from_back))
        } else {
            self.merged.clear();
            self.merged.resize(of_front);
            let each: Vec<u32> = (0..of_front as u32).collect();
            let merged = self.merged.merge(Groups::Each(&each), &self.front.set.states(Rows::Ids(sources)));
            merged.map_err(|overflow| overflowed(shape, &self.directory, keys, &overflow))?;
            self.merged.resize(rows);
            targets.extend(of_front as u32..rows as u32);
            both.append(from_back);
            let merged = self.merged.merge(Groups::Each(targets), &self.back.set.states(Rows::Ids(both)));
            merged.map_err(|overflow| overflowed(shape, &self.directory, keys, &overflow))?;
            self.merged.read(Rows::first(rows))
        };
        Ok(Some(MergedRows { rows, keys: self.directory.keys(Rows::Ids(keys)), results }))
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let sets = [&self.front.set, &self.back.set, &self.merged].map(AggregateSet::memory_bytes);
        let ids = [&self.front.keys, &self.front.newer, &self.front.heads, &self.back.keys, &self.back.groups].map(Vec::capacity);
        self.directory.memory_bytes() + sets.iter().sum::<usize>() + ids.iter().sum::<usize>() * size_of::<u32>()
    }

    fn clear(&mut self) {
        self.directory.clear();
        self.front.set.clear();
        self.back.set.clear();
        let Front { keys, newer, heads, slices, .. } = &mut self.front;
        slices.clear();
        [keys, newer, heads, &mut self.back.keys, &mut self.back.groups].into_iter().for_each(Vec::clear);
        self.back.start = None;
    }

    /// Fills `ids` with the key of each group of the slice.
    fn intern(&mut self, slice: &Pane) {
        let groups = slice.groups.len();
        self.scratch.ids.clear();
        self.directory.intern(&slice.groups.keys(Rows::first(groups)), groups, &mut self.scratch.ids);
        self.front.heads.resize(self.directory.len(), NONE);
        self.back.groups.resize(self.directory.len(), NONE);
    }

    /// Puts a slice before those of the front.
    fn push_front(&mut self, shape: &Shape, slice: &Pane) -> Result<(), EngineError> {
        self.intern(slice);
        let Self { directory, front, scratch: Scratch { ids, targets, sources, .. }, .. } = self;
        let (first, groups) = (front.keys.len(), slice.groups.len());
        let entries = first as u32..(first + groups) as u32;
        front.keys.extend_from_slice(ids);
        front.newer.extend(ids.iter().map(|key| front.heads[*key as usize]));
        front.set.resize(first + groups);
        targets.clear();
        targets.extend(entries.clone());
        let states = slice.groups.states(Rows::first(groups));
        let merged = front.set.merge(Groups::Each(targets), &states);
        merged.map_err(|overflow| overflowed(shape, directory, &front.keys, &overflow))?;
        targets.clear();
        sources.clear();
        for (entry, key) in entries.zip(ids.iter()) {
            let head = &mut front.heads[*key as usize];
            if *head != NONE {
                targets.push(entry);
                sources.push(*head);
            }
            *head = entry;
        }
        let states = front.set.states(Rows::Ids(sources));
        let merged = front.set.merge(Groups::Each(targets), &states);
        merged.map_err(|overflow| overflowed(shape, directory, &front.keys, &overflow))?;
        front.slices.push((slice.window.start, first..first + groups));
        Ok(())
    }

    /// Lets the slices of the front go that start before `start`.
    fn drop_before(&mut self, start: i64) {
        let front = &mut self.front;
        while let Some((_, entries)) = front.slices.pop_if(|(slice, _)| *slice < start) {
            for entry in entries {
                front.heads[front.keys[entry] as usize] = front.newer[entry];
            }
        }
    }

    /// Merges a slice into the back.
    fn push_back(&mut self, shape: &Shape, slice: &Pane) -> Result<(), EngineError> {
        self.intern(slice);
        let Self { directory, back, scratch: Scratch { ids, targets, .. }, .. } = self;
        targets.clear();
        for key in ids.iter() {
            let group = &mut back.groups[*key as usize];
            if *group == NONE {
                *group = back.keys.len() as u32;
                back.keys.push(*key);
            }
            targets.push(*group);
        }
        back.set.resize(back.keys.len());
        let merged = back.set.merge(Groups::Each(targets), &slice.groups.states(Rows::first(slice.groups.len())));
        merged.map_err(|overflow| overflowed(shape, directory, &back.keys, &overflow))?;
        back.start.get_or_insert(slice.window.start);
        Ok(())
    }
}

/// A sum left its type in the group or entry at this place of `keys`.
fn overflowed(shape: &Shape, directory: &KeyIndex, keys: &[u32], overflow: &CallOverflow<'_>) -> EngineError {
    shape.overflow(overflow, &directory.keys(Rows::Ids(&keys[overflow.group..=overflow.group])))
}
