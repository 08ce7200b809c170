//! The bytes of long keys, in chunks that never move; a freed place is taken again by a key of about the same length.
//!
//! Places are multiples of 16 bytes, and those of a length have a free list of their own: no pause for compaction, and a table
//! whose keys come and go holds what its fullest moment needed. A key above 1 KiB has a chunk of its own, which goes with it.

/// Bytes of a chunk that keys share.
const CHUNK_BYTES: usize = 1 << 18;

/// Places come in steps of this.
const STEP_BYTES: usize = 16;

/// Longest key that shares a chunk.
const SHARED_BYTES_MAX: usize = 1024;

/// The bytes.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
    /// The chunk that is being filled.
    open: Option<usize>,
    /// Free places by their number of steps.
    free: Vec<Vec<u64>>,
    /// Chunks that belonged to one key.
    free_chunks: Vec<usize>,
    bytes: usize,
}

impl Arena {
    /// Keeps these bytes and answers where.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> u64 {
        if bytes.len() > SHARED_BYTES_MAX {
            let chunk = self.add_chunk(bytes.to_vec());
            return place(chunk, 0);
        }
        let steps = bytes.len().div_ceil(STEP_BYTES);
        if let Some(at) = self.free.get_mut(steps).and_then(Vec::pop) {
            let (chunk, from) = parts(at);
            self.chunks[chunk][from..from + bytes.len()].copy_from_slice(bytes);
            return at;
        }
        let size = steps * STEP_BYTES;
        let chunk = match self.open.filter(|chunk| self.chunks[*chunk].len() + size <= CHUNK_BYTES) {
            Some(chunk) => chunk,
            None => {
                let chunk = self.add_chunk(Vec::new());
                *self.open.insert(chunk)
            }
        };
        let chunk_bytes = &mut self.chunks[chunk];
        let (from, capacity) = (chunk_bytes.len(), chunk_bytes.capacity());
        chunk_bytes.extend_from_slice(bytes);
        chunk_bytes.resize(from + size, 0);
        self.bytes += chunk_bytes.capacity() - capacity;
        place(chunk, from)
    }

    /// The bytes of a place.
    #[inline]
    pub(super) fn get(&self, at: u64, len: usize) -> &[u8] {
        let (chunk, from) = parts(at);
        &self.chunks[chunk][from..from + len]
    }

    /// Gives a place back.
    ///
    /// Contract: `at` and `len` are those of a key that is kept, and it is not read any more.
    pub(super) fn release(&mut self, at: u64, len: usize) {
        if len > SHARED_BYTES_MAX {
            let (chunk, _) = parts(at);
            self.bytes -= std::mem::take(&mut self.chunks[chunk]).capacity();
            self.free_chunks.push(chunk);
            return;
        }
        let steps = len.div_ceil(STEP_BYTES);
        if self.free.len() <= steps {
            self.free.resize_with(steps + 1, Vec::new);
        }
        self.free[steps].push(at);
    }

    /// Forgets all bytes.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let places: usize = self.free.iter().map(Vec::capacity).sum();
        self.bytes + self.chunks.capacity() * size_of::<Vec<u8>>() + places * size_of::<u64>()
    }

    fn add_chunk(&mut self, bytes: Vec<u8>) -> usize {
        self.bytes += bytes.capacity();
        match self.free_chunks.pop() {
            Some(chunk) => {
                self.chunks[chunk] = bytes;
                chunk
            }
            None => {
                self.chunks.push(bytes);
                self.chunks.len() - 1
            }
        }
    }
}

fn place(chunk: usize, from: usize) -> u64 {
    (chunk as u64) << 32 | from as u64
}

#[inline]
fn parts(at: u64) -> (usize, usize) {
    ((at >> 32) as usize, at as u32 as usize)
}
