//! What stands in a row of a table: a value or nothing, or a list.

use crate::types::StateType;

/// The content of a row. An empty one is an absent one.
pub(crate) trait Cell: Clone + Send + 'static {
    /// What it is made of.
    type Item: StateType;
    /// Whether it is a list, so that each item has its number.
    const IS_LIST: bool;

    /// Nothing.
    fn empty() -> Self;

    /// Its items, in order.
    fn items(&self) -> &[Self::Item];

    /// Whether there is nothing.
    #[inline]
    fn is_empty(&self) -> bool {
        self.items().is_empty()
    }

    /// Takes an item out of a snapshot, behind those that it has; `touched` is when it was touched last, where there is a TTL.
    /// Answers by how many bytes behind pointers the cell grew.
    fn restore(&mut self, item: Self::Item, touched: Option<i64>) -> usize;

    /// Puts items before those that it has, with their touches where there is a TTL. Lists only.
    fn precede(&mut self, _items: Vec<Self::Item>, _touched: Option<&[i64]>) {}

    /// Bytes behind pointers.
    fn heap_bytes(&self) -> usize;

    /// When the item was touched, where items have times of their own.
    fn item_touched(&self, _item: usize) -> Option<i64> {
        None
    }

    /// Counts the items from `first` on as touched now, where items have times of their own.
    fn touch_from(&mut self, _first: usize, _now: i64) {}

    /// The first item that was touched after `time`, where items have times of their own: those before it have expired.
    fn first_after(&self, _time: i64) -> usize {
        0
    }

    /// Items that stood here at the barrier of this epoch.
    fn barrier_len(&self, _epoch: u32) -> usize {
        self.items().len()
    }
}

impl<T: StateType> Cell for Option<T> {
    type Item = T;
    const IS_LIST: bool = false;

    #[inline]
    fn empty() -> Self {
        None
    }

    #[inline]
    fn items(&self) -> &[T] {
        self.as_slice()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn restore(&mut self, item: T, _touched: Option<i64>) -> usize {
        *self = Some(item);
        self.heap_bytes()
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        if T::ON_HEAP { self.as_ref().map_or(0, T::heap_bytes) } else { 0 }
    }
}

/// A list. Elements are only ever added behind the others or all replaced: so what stood at a barrier is a length.
#[derive(Debug, Clone)]
pub(crate) struct List<T> {
    items: Vec<T>,
    /// When each item was touched, in rising order; none without a TTL.
    touched: Option<Box<Touches>>,
    /// The epoch whose barrier `barrier_len` was noted for.
    barrier_epoch: u32,
    barrier_len: u32,
}

/// Times of items, milliseconds.
#[derive(Debug, Clone, Default)]
struct Touches(Vec<i64>);

impl<T: StateType> List<T> {
    /// Most items.
    pub(super) const LEN_MAX: usize = i32::MAX as usize;

    /// Adds an item, which for a list with a TTL was touched now. Answers by how many bytes the list grew.
    #[inline]
    pub(super) fn push(&mut self, item: T, touched: Option<i64>) -> usize {
        let capacity = self.items.capacity();
        let bytes = if T::ON_HEAP { item.heap_bytes() } else { 0 };
        self.items.push(item);
        if let Some(touched) = touched {
            self.touched.get_or_insert_default().0.push(touched);
        }
        let times = usize::from(touched.is_some()) * size_of::<i64>();
        (self.items.capacity() - capacity) * size_of::<T>() + bytes + times
    }

    /// Notes that the barrier of `epoch` found the list as it is now, unless that was noted.
    #[inline]
    pub(super) fn note_barrier(&mut self, epoch: u32) {
        if self.barrier_epoch != epoch {
            self.barrier_epoch = epoch;
            self.barrier_len = self.items.len() as u32;
        }
    }

    /// Takes the first `expired` items out.
    pub(super) fn drop_first(&mut self, expired: usize) {
        self.items.drain(..expired);
        if let Some(touched) = &mut self.touched {
            touched.0.drain(..expired);
        }
    }
}

impl<T: StateType> Cell for List<T> {
    type Item = T;
    const IS_LIST: bool = true;

    #[inline]
    fn empty() -> Self {
        Self { items: Vec::new(), touched: None, barrier_epoch: 0, barrier_len: 0 }
    }

    #[inline]
    fn items(&self) -> &[T] {
        &self.items
    }

    fn restore(&mut self, item: T, touched: Option<i64>) -> usize {
        self.push(item, touched)
    }

    fn precede(&mut self, items: Vec<T>, touched: Option<&[i64]>) {
        self.items.splice(0..0, items);
        if let Some(touched) = touched {
            self.touched.get_or_insert_default().0.splice(0..0, touched.iter().copied());
        }
    }

    fn heap_bytes(&self) -> usize {
        let items: usize = if T::ON_HEAP { self.items.iter().map(T::heap_bytes).sum() } else { 0 };
        let times = self.touched.as_ref().map_or(0, |touched| touched.0.len() * size_of::<i64>());
        self.items.capacity() * size_of::<T>() + items + times
    }

    fn item_touched(&self, item: usize) -> Option<i64> {
        self.touched.as_ref().map(|touched| touched.0[item])
    }

    fn touch_from(&mut self, first: usize, now: i64) {
        if let Some(touched) = &mut self.touched {
            touched.0[first..].fill(now);
        }
    }

    fn first_after(&self, time: i64) -> usize {
        self.touched.as_ref().map_or(0, |touched| touched.0.partition_point(|at| *at <= time))
    }

    fn barrier_len(&self, epoch: u32) -> usize {
        if self.barrier_epoch == epoch { self.barrier_len as usize } else { self.items.len() }
    }
}
