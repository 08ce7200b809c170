//! Which keys leave memory: clean ones that are written and were not used since the hand last passed.

use levada_state::bits::Bits;
use levada_state::cold::Phase;

use super::{ByKey, Held, KeyedRowStore};
use crate::error::EngineError;
use crate::operators::behind::Due;

/// Keys that are looked at after a batch, at most, to find some that may go.
const LOOKS_MAX: usize = 65_536;

/// Of so many keys that were looked at one has to be clean and used lately for others to be looked at before a generation begins.
const SPARED_PART: usize = 4;

/// Least keys that are looked at between two looks at the memory, which go over all blocks of rows, and the part of all keys.
const LOOKS_AT_ONCE: usize = 256;
const LOOKS_PART: usize = 64;

impl KeyedRowStore {
    /// To be called after each batch: sends what is due, and lets keys go where memory is short.
    ///
    /// Contract: no row is on its way out.
    pub(in crate::operators) fn make_room(&mut self, rows: &mut impl ByKey) -> Result<(), EngineError> {
        let held_bytes = self.held_bytes(rows);
        let due = self.behind.due(held_bytes)?;
        if self.behind.write_back.phase() == Phase::Idle {
            rows.forget_written();
            self.drop_emptied(rows);
        }
        match due {
            Due::Nothing => return Ok(()),
            Due::Send => {}
            Due::Room => {
                // A small generation costs as much of compaction as a large one.
                let more_may_go = self.evict(rows) && !self.is_nearly_full(rows);
                if !self.is_short(rows) || more_may_go || !self.has_changed(rows) {
                    return Ok(());
                }
                self.begin_generation(rows)?;
            }
        }
        self.send_some(rows)
    }

    /// Whether the store has something otherwise; of keys that are gone already, it may be rows alone.
    fn has_changed(&self, rows: &mut impl ByKey) -> bool {
        self.dirty.count() > 0 || rows.has_gone()
    }

    /// Bytes that count: what is free for rows and keys to come does for a quarter of the share at most, or it would leave nothing
    /// to those that are there.
    pub(super) fn held_bytes(&self, rows: &impl ByKey) -> usize {
        let Held { bytes, idle_bytes } = rows.held();
        let idle_max = self.behind.write_back.share_bytes() / 4;
        bytes + self.memory_bytes() - idle_bytes.saturating_sub(idle_max).min(bytes)
    }

    /// Whether something should go.
    pub(super) fn is_short(&self, rows: &impl ByKey) -> bool {
        self.behind.is_short(self.held_bytes(rows))
    }

    /// Whether the next batches may not find room.
    fn is_nearly_full(&self, rows: &impl ByKey) -> bool {
        self.behind.write_back.is_nearly_full(self.held_bytes(rows))
    }

    /// Bytes held beside the rows.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        [&self.live, &self.used, &self.dirty, &self.emptied, &self.leaving].map(Bits::memory_bytes).iter().sum()
    }

    /// Forgets keys without rows of which everything is written: nothing is lost with them.
    fn drop_emptied(&mut self, rows: &mut impl ByKey) {
        for key in std::mem::take(&mut self.leaving).rows() {
            if self.live.get(key) && !self.dirty.get(key) && !rows.has_entries(key) {
                self.drop_key(rows, key);
            }
        }
    }

    pub(super) fn drop_key(&mut self, rows: &mut impl ByKey, key: u32) {
        if rows.has_one_key() {
            return;
        }
        self.live.clear(key);
        self.used.clear(key);
        rows.forget_key(key);
    }

    /// Lets keys go until there is room for some batches or enough were looked at. Answers whether many more are clean, and go when
    /// they are looked at again.
    ///
    /// Contract: nothing is being sent or written.
    pub(super) fn evict(&mut self, rows: &mut impl ByKey) -> bool {
        let target_bytes = self.behind.write_back.target_bytes();
        let looks = LOOKS_MAX.min(rows.key_count() * 2);
        let (mut looked, mut spared) = (0, 0);
        while looked < looks && self.held_bytes(rows) > target_bytes {
            let now = LOOKS_AT_ONCE.max(rows.key_count() / LOOKS_PART).min(looks - looked);
            looked += now;
            spared += (0..now).filter(|_| self.look_at_next_key(rows)).count();
        }
        spared * SPARED_PART >= looked
    }

    /// Lets the next key go if it is clean and was not used since it was looked at last. Answers whether it is clean and stays because
    /// it was used.
    fn look_at_next_key(&mut self, rows: &mut impl ByKey) -> bool {
        let (key, len) = (self.hand, rows.key_count());
        self.hand = if key as usize + 1 >= len { 0 } else { key + 1 };
        let was_used = self.used.take(key);
        if !self.live.get(key) || self.dirty.get(key) || rows.has_one_key() {
            return false;
        }
        if was_used {
            return true;
        }
        if rows.has_entries(key) {
            self.is_whole = false;
            // The view that is read would bring rows back that went.
            self.warming = None;
            rows.forget_entries(key);
        }
        if !rows.has_unsent(key) {
            self.drop_key(rows, key);
        }
        false
    }

    /// Lets go what the store has of these keys, where memory is short.
    ///
    /// Contract: no row is on its way out.
    pub(in crate::operators) fn let_go(&mut self, rows: &mut impl ByKey, keys: &[u32]) {
        if self.behind.write_back.phase() != Phase::Idle || !self.is_short(rows) {
            return;
        }
        for key in keys {
            if !self.dirty.get(*key) && rows.has_entries(*key) {
                self.is_whole = false;
                rows.forget_entries(*key);
            }
        }
    }
}
