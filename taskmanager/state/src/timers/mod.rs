//! Timers: moments at which a key wants to be woken, in event time or in processing time.
//!
//! A timer is (time, key, namespace), there once however often it is registered. Timers fire in the order of their times, in
//! batches, each of them once. They are keyed state like any other: frozen without a pause, restored by key groups. Keys are the
//! ids of the operator's key index; a key that has timers must keep its id. Must never know what time it is, nor what is done
//! when a timer fires.
//!
//! One ordered tree holds them. Measured with a million timers, in CPU µs on a machine that was busy (compare them only), beside a
//! hash table with buckets of time: moving a random key's timer and firing it in the end 1.07 (hash 0.72), ascending times 0.19
//! (0.27), firing 0.09 to 0.13 (0.13 to 0.9). But the table is moved when it grows (10 to 29 ms at once) and a bucket of one time
//! sorted (76 ms); the tree has no such moments and needs no second structure to know a timer again.

mod kind;
mod namespace;
mod restore;

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use crate::ordered::{OrderedTable, Removed};
use crate::snapshot::{PieceReader, PieceSender, pieces};

pub use kind::{TIME_COLUMN, TimerKind};
pub use namespace::TimerNamespace;
pub use restore::TimerError;

use kind::piece_schema;

/// Timers of one kind of one operator.
///
/// Contract: between `flush` (or `advance`) and the removal of a key from the index no timer of it may be fired or deleted: what
/// a running snapshot still has to save needs the key's columns. `has_timers` says so.
#[derive(Debug)]
pub struct Timers<N: TimerNamespace = ()> {
    timers: OrderedTable<Timer<N>, ()>,
    /// By key id: timers that the key has, those included that a running snapshot has still to save.
    counts: Vec<u32>,
    /// Keys whose last timer has gone since they were asked for.
    emptied: Vec<u32>,
    schema: SchemaRef,
    sender: Option<PieceSender>,
}

/// A timer. Its order is that of firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer<N> {
    time: i64,
    key: u32,
    namespace: N,
}

/// Timers that fire, in the order of their times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fired<N = ()> {
    /// The id of each one's key.
    pub keys: Vec<u32>,
    /// The namespace of each one.
    pub namespaces: Vec<N>,
    /// The time of each one, in milliseconds.
    pub times: Vec<i64>,
}

impl<N> Fired<N> {
    /// Number of timers.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none fires.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Forgets all and keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.namespaces.clear();
        self.times.clear();
    }
}

/// Timers that one step saves.
const PIECE_ROWS_MAX: usize = 8192;

impl<N: TimerNamespace> Timers<N> {
    /// None. `key_columns` are the key's columns, without a prefix.
    pub fn new(key_columns: &[levada_common::types::Column]) -> Self {
        let schema = piece_schema::<N>(key_columns);
        Self { timers: OrderedTable::new(), counts: Vec::new(), emptied: Vec::new(), schema, sender: None }
    }

    /// Wakes the key at `time`; answers whether it was not to be woken then already.
    ///
    /// Units: milliseconds. A time that has passed already fires at the next `fire`.
    pub fn register(&mut self, key: u32, namespace: N, time: i64) -> bool {
        let is_new = self.timers.insert_new(Timer { time, key, namespace }, ());
        if is_new {
            if key as usize >= self.counts.len() {
                self.counts.resize(key as usize + 1, 0);
            }
            self.counts[key as usize] += 1;
        }
        is_new
    }

    /// Does not wake the key at `time`; answers whether it was to be woken.
    pub fn delete(&mut self, key: u32, namespace: N, time: i64) -> bool {
        match self.timers.remove(&Timer { time, key, namespace }) {
            Removed::Absent => return false,
            Removed::Gone(()) => self.forget(key),
            Removed::Kept => {}
        }
        true
    }

    /// Takes the timers whose time is `up_to` or earlier, in order, at most `max` of them, and appends them to `fired`; answers
    /// whether more of them are left. Those of one time come in the order of their key ids.
    ///
    /// Contract: what a function does with a fired timer may register new ones that are due; they fire by the next call.
    pub fn fire(&mut self, up_to: i64, max: usize, fired: &mut Fired<N>) -> bool {
        for _ in 0..max {
            let Some((timer, removed)) = self.timers.remove_first(|timer| timer.time <= up_to) else { return false };
            if removed == Removed::Gone(()) {
                self.forget(timer.key);
            }
            fired.keys.push(timer.key);
            fired.namespaces.push(timer.namespace);
            fired.times.push(timer.time);
        }
        self.next_time().is_some_and(|time| time <= up_to)
    }

    /// When the next timer fires.
    pub fn next_time(&self) -> Option<i64> {
        self.timers.first().map(|timer| timer.time)
    }

    /// Number of timers.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the key has timers, or a running snapshot has still to save one of it: it must keep its id.
    #[inline]
    pub fn has_timers(&self, key: u32) -> bool {
        self.counts.get(key as usize).is_some_and(|count| *count > 0)
    }

    /// Appends the keys whose last timer has gone since the last call; a key may have one again.
    pub fn drain_emptied(&mut self, keys: &mut Vec<u32>) {
        keys.append(&mut self.emptied);
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.timers.memory_bytes() + (self.counts.capacity() + self.emptied.capacity()) * size_of::<u32>()
    }

    fn forget(&mut self, key: u32) {
        let count = &mut self.counts[key as usize];
        *count -= 1;
        if *count == 0 {
            self.emptied.push(key);
        }
    }
}

/// Snapshots. `keys` gives the key columns of these ids.
impl<N: TimerNamespace> Timers<N> {
    /// Starts a snapshot, in time independent of the number of timers. One that is still running is finished first.
    pub fn freeze(&mut self, keys: impl Fn(&[u32]) -> Vec<ArrayRef>) -> PieceReader {
        while self.sender.is_some() {
            self.save_next(PIECE_ROWS_MAX, &keys);
        }
        let (sender, reader) = pieces();
        self.timers.freeze();
        self.sender = Some(sender);
        reader
    }

    /// Saves up to `rows_max` further timers, none while the background has enough to do; answers whether more remain.
    pub fn advance(&mut self, rows_max: usize, keys: impl Fn(&[u32]) -> Vec<ArrayRef>) -> bool {
        match &self.sender {
            None => return false,
            Some(sender) if sender.is_abandoned() => self.abandon(),
            Some(sender) if sender.is_full() => return true,
            Some(_) => self.save_next(rows_max, &keys),
        }
        self.sender.is_some()
    }

    /// Sends what was fired or deleted before it was saved, if that is at least `rows_min`: after it the keys may lose their ids.
    pub fn flush(&mut self, rows_min: usize, keys: impl Fn(&[u32]) -> Vec<ArrayRef>) {
        if self.timers.moved() >= rows_min.max(1) {
            self.save_moved(&keys);
        }
    }

    /// Gives the running snapshot up; its reader is told.
    pub fn abandon(&mut self) {
        let mut kept = Vec::new();
        self.timers.abandon(|(timer, ())| kept.push(timer.key));
        kept.into_iter().for_each(|key| self.forget(key));
        self.sender = None;
    }

    fn save_next(&mut self, rows_max: usize, keys: &impl Fn(&[u32]) -> Vec<ArrayRef>) {
        self.save_moved(keys);
        let mut saved = Vec::new();
        self.timers.save_next(rows_max, |timer, ()| saved.push(*timer));
        self.send(&saved, keys);
        if !self.timers.is_running()
            && let Some(sender) = self.sender.take()
        {
            sender.finish();
        }
    }

    fn save_moved(&mut self, keys: &impl Fn(&[u32]) -> Vec<ArrayRef>) {
        let mut saved = Vec::new();
        self.timers.save_moved(|(timer, ())| saved.push(timer));
        self.send(&saved, keys);
        saved.iter().for_each(|timer| self.forget(timer.key));
    }

    fn send(&self, timers: &[Timer<N>], keys: &impl Fn(&[u32]) -> Vec<ArrayRef>) {
        let Some(sender) = self.sender.as_ref().filter(|_| !timers.is_empty()) else { return };
        let ids: Vec<u32> = timers.iter().map(|timer| timer.key).collect();
        let mut columns = keys(&ids);
        columns.extend(N::column(timers.iter().map(|timer| timer.namespace)));
        columns.push(Arc::new(TimestampMillisecondArray::from_iter_values(timers.iter().map(|timer| timer.time))));
        let options = RecordBatchOptions::new().with_row_count(Some(timers.len()));
        let piece = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        sender.send(piece.expect("the key's columns are those that were named"));
    }
}

#[cfg(test)]
mod tests;
