//! An open-addressing table from hashes to row ids, which knows nothing of keys.
//!
//! A slot is 8 bytes: 32 bits of the hash, the *tag*, and the row's id plus one; 0 is empty. A large table is cut into segments
//! by the tag's top bits, and each grows by itself: growing needs neither keys nor hashes, and moves some thousand slots and not
//! all of them while rows wait. Within a segment the place of a tag is its next bits.

/// Slots of a table that was never used.
const BITS_MIN: u32 = 6;

/// Slots above which a table is cut into segments.
const WHOLE_BITS_MAX: u32 = 16;

/// Segments of a large table, as a power of two.
const SEGMENT_BITS: u32 = 10;

/// Rows that are hashed, then probed, in one go.
pub(super) const BLOCK: usize = 256;

/// Slots above which rows are touched ahead of the probe: below, they sit in the cache.
const TOUCH_SLOTS_MIN: usize = 1 << 16;

/// The tag of a hash.
#[inline]
pub(crate) fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Where a probe ended.
pub(crate) enum Probe {
    /// At the row of this id.
    Found(u32),
    /// At an empty slot, to be handed to `occupy`.
    Empty(Place),
}

/// A slot, until the table changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    segment: usize,
    slot: usize,
}

/// What stands where a probe begins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FirstSlot(u64);

impl FirstSlot {
    /// The row that stands there; one that no table has where none does.
    #[inline]
    pub(super) fn row(self) -> usize {
        (self.0 as u32).wrapping_sub(1) as usize
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Slots {
    segments: Vec<Segment>,
    /// Bits of a tag that say its segment.
    bits: u32,
    len: usize,
    /// Slots of all segments.
    slots: usize,
}

/// The slots of the tags that begin with the same bits.
#[derive(Debug)]
struct Segment {
    slots: Vec<u64>,
    shift: u32,
    len: u32,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { segments: vec![Segment::new(BITS_MIN)], bits: 0, len: 0, slots: 1 << BITS_MIN }
    }

    /// Looks for the row with this tag for which `same` holds.
    #[inline]
    pub(crate) fn probe(&self, tag: u32, mut same: impl FnMut(u32) -> bool) -> Probe {
        let at = self.segment_of(tag);
        let segment = &self.segments[at];
        let mask = segment.slots.len() - 1;
        let mut place = segment.home(tag << self.bits);
        loop {
            let slot = segment.slots[place];
            if slot == 0 {
                return Probe::Empty(Place { segment: at, slot: place });
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
    pub(crate) fn occupy(&mut self, place: Place, tag: u32, id: u32) {
        assert!(id < u32::MAX, "a table has fewer than 2^32 - 1 rows");
        let segment = &mut self.segments[place.segment];
        segment.slots[place.slot] = u64::from(tag) << 32 | u64::from(id + 1);
        segment.len += 1;
        self.len += 1;
        if segment.is_crowded() {
            self.grow(place.segment);
        }
    }

    /// Takes out the row of this id, which was put in under this tag; the rows behind it close the gap.
    ///
    /// Contract: the row is in the table.
    pub(crate) fn remove(&mut self, tag: u32, id: u32) {
        let at = self.segment_of(tag);
        let bits = self.bits;
        let segment = &mut self.segments[at];
        let mask = segment.slots.len() - 1;
        let wanted = u64::from(tag) << 32 | u64::from(id + 1);
        let mut hole = segment.home(tag << bits);
        while segment.slots[hole] != wanted {
            assert!(segment.slots[hole] != 0, "row {id} is in the table under its tag");
            hole = (hole + 1) & mask;
        }
        let mut next = (hole + 1) & mask;
        while segment.slots[next] != 0 {
            let home = segment.home(((segment.slots[next] >> 32) as u32) << bits);
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                segment.slots[hole] = segment.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        segment.slots[hole] = 0;
        segment.len -= 1;
        self.len -= 1;
    }

    /// The first slots of these tags. Most keys are found there; and whoever reads all of them, and then the rows in them, in
    /// loops without branches has loads that overlap, which those of probes hardly do.
    #[inline]
    pub(super) fn first_slots(&self, tags: &[u32], firsts: &mut [FirstSlot]) {
        for (first, tag) in firsts.iter_mut().zip(tags) {
            let segment = &self.segments[self.segment_of(*tag)];
            *first = FirstSlot(segment.slots[segment.home(tag << self.bits)]);
        }
    }

    /// Whether the rows of this table are more than caches hold.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.slots >= TOUCH_SLOTS_MIN
    }

    /// Forgets every row and keeps the memory.
    pub(crate) fn clear(&mut self) {
        if self.len > 0 {
            for segment in &mut self.segments {
                segment.slots.fill(0);
                segment.len = 0;
            }
            self.len = 0;
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots * size_of::<u64>() + self.segments.capacity() * size_of::<Segment>()
    }

    #[inline]
    fn segment_of(&self, tag: u32) -> usize {
        (u64::from(tag) >> (32 - self.bits)) as usize
    }

    #[cold]
    fn grow(&mut self, at: usize) {
        if self.bits == 0 && self.slots >= 1 << WHOLE_BITS_MAX {
            return self.cut();
        }
        let bits = self.bits;
        let segment = &mut self.segments[at];
        assert!(segment.shift > bits, "the rows' hashes differ");
        self.slots += segment.slots.len();
        segment.grow(bits);
    }

    /// Hands the slots of the one segment to many.
    fn cut(&mut self) {
        let whole = self.segments.pop().expect("a table that is not cut has one segment");
        let bits = WHOLE_BITS_MAX + 1 - SEGMENT_BITS;
        self.segments = (0..1 << SEGMENT_BITS).map(|_| Segment::new(bits)).collect();
        self.bits = SEGMENT_BITS;
        self.slots = self.segments.len() << bits;
        for slot in whole.slots.into_iter().filter(|slot| *slot != 0) {
            let tag = (slot >> 32) as u32;
            let at = self.segment_of(tag);
            self.segments[at].put(slot, SEGMENT_BITS);
            self.segments[at].len += 1;
            if self.segments[at].is_crowded() {
                self.grow(at);
            }
        }
    }
}

impl Segment {
    fn new(bits: u32) -> Self {
        Self { slots: vec![0; 1 << bits], shift: 32 - bits, len: 0 }
    }

    /// The first place for a tag whose top bits, which say the segment, were shifted out.
    #[inline]
    fn home(&self, rest: u32) -> usize {
        (rest >> self.shift) as usize
    }

    #[inline]
    fn is_crowded(&self) -> bool {
        self.len as usize * 8 > self.slots.len() * 5
    }

    fn grow(&mut self, segment_bits: u32) {
        let old = std::mem::take(&mut self.slots);
        self.shift -= 1;
        self.slots = vec![0; old.len() * 2];
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            self.put(slot, segment_bits);
        }
    }

    fn put(&mut self, slot: u64, segment_bits: u32) {
        let mask = self.slots.len() - 1;
        let mut place = self.home(((slot >> 32) as u32) << segment_bits);
        while self.slots[place] != 0 {
            place = (place + 1) & mask;
        }
        self.slots[place] = slot;
    }
}
