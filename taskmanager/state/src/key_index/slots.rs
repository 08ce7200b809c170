//! An open-addressing table from hashes to row ids, which knows nothing of keys.
//!
//! A slot is 8 bytes: 32 bits of the hash, the *tag*, and the row's id plus one; 0 is empty. The place of a tag is its top bits,
//! so growing needs neither keys nor hashes: the old slots are read in order and the new ones written nearly in order.

/// Slots of a table that was never used.
const BITS_MIN: u32 = 6;

/// Rows that are hashed, then probed, in one go.
pub(super) const BLOCK: usize = 256;

/// Slots above which rows are touched ahead of the probe: below, they sit in the cache.
const TOUCH_SLOTS_MIN: usize = 1 << 16;

/// The tag of a hash.
#[inline]
pub(super) fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Where a probe ended.
pub(super) enum Probe {
    /// At the row of this id.
    Found(u32),
    /// At an empty slot, to be handed to `occupy`.
    Empty(usize),
}

/// The table.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<u64>,
    shift: u32,
    len: usize,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { slots: vec![0; 1 << BITS_MIN], shift: 32 - BITS_MIN, len: 0 }
    }

    /// Looks for the row with this tag for which `same` holds.
    #[inline]
    pub(super) fn probe(&self, tag: u32, mut same: impl FnMut(u32) -> bool) -> Probe {
        let mask = self.slots.len() - 1;
        let mut place = (tag >> self.shift) as usize;
        loop {
            let slot = self.slots[place];
            if slot == 0 {
                return Probe::Empty(place);
            }
            if (slot >> 32) as u32 == tag {
                let id = slot as u32 - 1;
                if same(id) {
                    return Probe::Found(id);
                }
            }
            place = (place + 1) & mask;
        }
    }

    /// Puts a row where its probe found an empty slot.
    #[inline]
    pub(super) fn occupy(&mut self, place: usize, tag: u32, id: u32) {
        assert!(id < u32::MAX, "a table has fewer than 2^32 - 1 rows");
        self.slots[place] = u64::from(tag) << 32 | u64::from(id + 1);
        self.len += 1;
        if self.len * 8 > self.slots.len() * 5 {
            self.grow();
        }
    }

    /// Reads the first slot of each tag of a large table, and hands the row in it to `read`, so that the probes that follow find
    /// both in the cache: the loads of loops without branches overlap, those of probes hardly.
    #[inline]
    pub(super) fn touch(&self, tags: impl Iterator<Item = u32>, read: impl Fn(usize) -> u64) {
        if self.slots.len() < TOUCH_SLOTS_MIN {
            return;
        }
        let mut ids = [0usize; BLOCK];
        for (id, tag) in ids.iter_mut().zip(tags) {
            *id = (self.slots[(tag >> self.shift) as usize] as u32).wrapping_sub(1) as usize;
        }
        std::hint::black_box(ids.iter().fold(0, |all, id| all ^ read(*id)));
    }

    /// Forgets every row and keeps the memory.
    pub(super) fn clear(&mut self) {
        if self.len > 0 {
            self.slots.fill(0);
            self.len = 0;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    #[cold]
    fn grow(&mut self) {
        assert!(self.shift > 0, "a table has at most 2^32 slots");
        let old = std::mem::take(&mut self.slots);
        self.shift -= 1;
        self.slots = vec![0; old.len() * 2];
        let mask = self.slots.len() - 1;
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let mut place = ((slot >> 32) as u32 >> self.shift) as usize;
            while self.slots[place] != 0 {
                place = (place + 1) & mask;
            }
            self.slots[place] = slot;
        }
    }
}
