//! Which groups have a value: none is written down as long as no null was seen.

use arrow::buffer::NullBuffer;
use levada_state::rows::Rows;

use super::Groups;

/// A flag per group, laid out only once a null came.
#[derive(Debug, Default)]
pub(super) struct Presence {
    groups: usize,
    /// Without flags: the groups before this one have a value.
    present: usize,
    flags: Option<Vec<bool>>,
}

impl Presence {
    pub(super) fn resize(&mut self, groups: usize) {
        self.groups = groups;
        if let Some(flags) = &mut self.flags {
            flags.resize(groups, false);
        }
    }

    /// The groups of the rows that are not null have a value now.
    pub(super) fn mark(&mut self, groups: Groups<'_>, nulls: Option<&NullBuffer>) {
        if nulls.is_none() && self.flags.is_none() {
            if groups.rows() > 0 {
                // Every new group is among these rows: that is the contract of an accumulator.
                self.present = self.groups;
            }
            return;
        }
        let flags = self.flags.get_or_insert_with(|| {
            let mut flags = vec![true; self.present];
            flags.resize(self.groups, false);
            flags
        });
        groups.each_valid(nulls, |_, group| flags[group] = true);
    }

    /// Each of these groups, of which every new one is there, has a value now, or has none where the row is null.
    pub(super) fn assign(&mut self, groups: &[u32], nulls: Option<&NullBuffer>) {
        self.mark(Groups::Each(groups), nulls);
        if let (Some(flags), Some(nulls)) = (&mut self.flags, nulls) {
            groups.iter().zip(nulls).for_each(|(group, valid)| flags[*group as usize] = valid);
        }
    }

    /// The groups without a value, as nulls.
    pub(super) fn nulls(&self, rows: Rows<'_>) -> Option<NullBuffer> {
        let present = match &self.flags {
            Some(flags) => rows.gather(flags),
            None if self.present == self.groups => return None,
            None => rows.map(|group| group < self.present),
        };
        present.contains(&false).then(|| NullBuffer::from(present))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.flags.as_ref().map_or(0, Vec::capacity)
    }
}
