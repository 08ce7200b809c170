//! The rows of each key, in an order that its owner makes: lists, linked by the rows' numbers.

use super::NO_ROW;

/// A row's neighbours in its list, and the list.
#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    key: u32,
}

/// Lists by key.
#[derive(Debug, Default)]
pub(in crate::operators) struct RowLists {
    /// Of each key: its first row.
    firsts: Vec<u32>,
    /// Of each key: how many rows it has.
    lens: Vec<u32>,
    links: Vec<Link>,
}

impl RowLists {
    /// Makes room for so many keys and for rows of numbers below `numbers`.
    pub(in crate::operators) fn resize(&mut self, keys: usize, numbers: usize) {
        self.firsts.resize(keys.max(self.firsts.len()), NO_ROW);
        self.lens.resize(keys.max(self.lens.len()), 0);
        let nowhere = Link { before: NO_ROW, after: NO_ROW, key: 0 };
        self.links.resize(numbers.max(self.links.len()), nowhere);
    }

    /// The key's first row, or `NO_ROW`.
    #[inline]
    pub(in crate::operators) fn first(&self, key: u32) -> u32 {
        self.firsts[key as usize]
    }

    /// Number of the key's rows.
    #[inline]
    pub(in crate::operators) fn len(&self, key: u32) -> u32 {
        self.lens[key as usize]
    }

    /// The row behind this one, or `NO_ROW`.
    #[inline]
    pub(in crate::operators) fn after(&self, row: u32) -> u32 {
        self.links[row as usize].after
    }

    /// The row before this one, or `NO_ROW`.
    pub(in crate::operators) fn before(&self, row: u32) -> u32 {
        self.links[row as usize].before
    }

    /// The key of a row.
    #[inline]
    pub(in crate::operators) fn key(&self, row: u32) -> u32 {
        self.links[row as usize].key
    }

    /// Puts a row behind another of its key, or first where that is `NO_ROW`.
    pub(in crate::operators) fn insert(&mut self, key: u32, behind: u32, row: u32) {
        let after = if behind == NO_ROW { self.firsts[key as usize] } else { self.links[behind as usize].after };
        self.links[row as usize] = Link { before: behind, after, key };
        self.join(key, behind, row);
        self.join(key, row, after);
        self.lens[key as usize] += 1;
    }

    /// Takes a row out.
    pub(in crate::operators) fn remove(&mut self, row: u32) {
        let Link { before, after, key } = self.links[row as usize];
        self.join(key, before, after);
        self.lens[key as usize] -= 1;
    }

    /// The row has another number now.
    pub(in crate::operators) fn renumber(&mut self, before: u32, now: u32) {
        let link = self.links[before as usize];
        self.links[now as usize] = link;
        self.join(link.key, link.before, now);
        self.join(link.key, now, link.after);
    }

    /// Bytes among those held that no row has, and none of the keys that are gone.
    pub(in crate::operators) fn idle_bytes(&self, rows: usize, keys: usize) -> usize {
        let idle_keys = self.firsts.len().saturating_sub(keys) * 2 * size_of::<u32>();
        idle_keys + self.links.len().saturating_sub(rows) * size_of::<Link>()
    }

    /// Bytes that the links of rows hold, among all.
    pub(in crate::operators) fn link_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        (self.firsts.capacity() + self.lens.capacity()) * size_of::<u32>() + self.links.capacity() * size_of::<Link>()
    }

    /// Makes `after` the one behind `before`; either may be none.
    #[inline]
    fn join(&mut self, key: u32, before: u32, after: u32) {
        match before {
            NO_ROW => self.firsts[key as usize] = after,
            row => self.links[row as usize].after = after,
        }
        if after != NO_ROW {
            self.links[after as usize].before = before;
        }
    }
}
