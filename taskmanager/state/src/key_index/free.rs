//! Ids of rows whose keys were removed, to be used again.

/// The ids.
#[derive(Debug, Default)]
pub(super) struct FreeIds {
    free: Vec<u32>,
    reused: Vec<u32>,
}

impl FreeIds {
    /// An id to be used again.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        let id = self.free.pop()?;
        self.reused.push(id);
        Some(id)
    }

    /// An id is free.
    pub(super) fn give(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Number of free ids.
    pub(super) fn len(&self) -> usize {
        self.free.len()
    }

    /// Appends the ids that were taken since the last call.
    pub(super) fn drain_reused(&mut self, ids: &mut Vec<u32>) {
        ids.append(&mut self.reused);
    }

    pub(super) fn clear(&mut self) {
        self.free.clear();
        self.reused.clear();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.free.capacity() + self.reused.capacity()) * size_of::<u32>()
    }
}
