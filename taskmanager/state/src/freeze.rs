//! Freezing a dense table without a pause: *save before first change*.
//!
//! The task owns the table and goes on writing to it. One bit per row says "already in this snapshot"; a barrier only flips what
//! the bit means. A row is saved before the first write to it after the barrier, and a cursor saves the rest piece by piece
//! beside the work. Rows added after the barrier are not in the snapshot. Must never know what a row holds, nor where it is
//! saved: whoever owns the table reads the rows out.
//!
//! One bit allows one running snapshot. A second barrier while one runs finishes the first at once, in the barrier's own time:
//! the coordinator runs one checkpoint at a time, so this happens only after one that was given up without word.

/// Which rows of a table are still to be saved for the running snapshot.
#[derive(Debug, Default)]
pub struct FrozenRows {
    /// A bit per row, in words of 64.
    bits: Vec<u64>,
    /// XORed to a word of `bits`, a one says "saved".
    meaning: u64,
    /// Rows that have a bit.
    rows: usize,
    /// Rows that the running snapshot covers; 0 when none runs.
    end: usize,
    /// Rows before this one are saved.
    cursor: usize,
}

impl FrozenRows {
    /// A table without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// The table has `rows` rows now: the new ones are in no running snapshot.
    pub fn resize(&mut self, rows: usize) {
        if rows <= self.rows {
            return;
        }
        self.bits.resize(rows.div_ceil(64), !self.meaning);
        self.rows = rows;
    }

    /// Starts a snapshot of the rows that the table has now.
    ///
    /// Contract: none is running.
    pub fn freeze(&mut self) {
        assert!(!self.is_running(), "one bit allows one running snapshot");
        self.meaning = !self.meaning;
        if let Some(last) = self.bits.last_mut().filter(|_| !self.rows.is_multiple_of(64)) {
            // Bits behind the last row belong to rows to come, which are not in this snapshot.
            let behind = u64::MAX << (self.rows % 64);
            *last = (*last & !behind) | (!self.meaning & behind);
        }
        self.end = self.rows;
        self.cursor = 0;
    }

    /// Starts a snapshot of those of the table's rows whose bit is set in `rows`, words of 64.
    ///
    /// Contract: none is running.
    pub fn freeze_these(&mut self, rows: &[u64]) {
        self.freeze();
        for (at, word) in self.bits.iter_mut().enumerate() {
            // A row that is not meant counts as saved.
            *word = !rows.get(at).copied().unwrap_or(0) ^ self.meaning;
        }
    }

    /// Whether rows may still be unsaved.
    pub fn is_running(&self) -> bool {
        self.end > 0
    }

    /// Appends those of `ids` that must be saved before they change, each once, and counts them as saved.
    pub fn take_unsaved(&mut self, ids: &[u32], unsaved: &mut Vec<u32>) {
        if !self.is_running() {
            return;
        }
        unsaved.extend(ids.iter().copied().filter(|id| self.take(*id)));
    }

    /// Whether the row must be saved before it changes.
    #[inline]
    pub fn is_unsaved(&self, id: u32) -> bool {
        let row = id as usize;
        row < self.end && (self.bits[row / 64] ^ self.meaning) >> (row % 64) & 1 == 0
    }

    /// Counts the row as saved; answers whether it had to be.
    #[inline]
    pub fn take(&mut self, id: u32) -> bool {
        let is_unsaved = self.is_unsaved(id);
        if is_unsaved {
            self.bits[id as usize / 64] ^= 1 << (id % 64);
        }
        is_unsaved
    }

    /// The next unsaved row, which counts as saved from now on; `None` ends the snapshot.
    pub fn take_one(&mut self) -> Option<u32> {
        while self.cursor < self.end {
            let word = self.cursor / 64;
            let ahead = u64::MAX << (self.cursor % 64);
            let open = !(self.bits[word] ^ self.meaning) & ahead;
            if open == 0 {
                self.cursor = (word + 1) * 64;
                continue;
            }
            let bit = open.trailing_zeros() as usize;
            self.bits[word] ^= 1 << bit;
            self.cursor = word * 64 + bit + 1;
            return Some((word * 64 + bit) as u32);
        }
        self.end = 0;
        None
    }

    /// Appends the next unsaved rows, at most `rows_max`, and counts them as saved. Ends the snapshot after the last one.
    pub fn take_next(&mut self, rows_max: usize, unsaved: &mut Vec<u32>) {
        for _ in 0..rows_max {
            match self.take_one() {
                Some(id) => unsaved.push(id),
                None => return,
            }
        }
        if self.cursor >= self.end {
            self.end = 0;
        }
    }

    /// Gives the running snapshot up, and sets the bits of the rows that it had still to save in `rows`, words of 64.
    pub fn take_rest(&mut self, rows: &mut Vec<u64>) {
        let words = self.end.div_ceil(64);
        if rows.len() < words {
            rows.resize(words, 0);
        }
        for (word, bits) in rows.iter_mut().zip(&self.bits[..words]) {
            *word |= !(bits ^ self.meaning);
        }
        self.abandon();
    }

    /// Gives the running snapshot up.
    pub fn abandon(&mut self) {
        self.bits.fill(!self.meaning);
        self.end = 0;
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.bits.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests;
