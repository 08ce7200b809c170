//! A function's timers of one kind: of its keys, or of its keys' windows.
//!
//! Two types under one roof, so that timers without windows stay small. Must never know what time it is.

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::state_schema::StateDeclaration;
use levada_common::types::Column;
use levada_state::keyed::Namespace;
use levada_state::snapshot::PieceReader;
use levada_state::timers::{Fired, TimerError, TimerKind, Timers};

/// The timers.
#[derive(Debug)]
pub(crate) enum FunctionTimers {
    /// Of keys.
    Keyed(Timers),
    /// Of keys' windows.
    Windowed(Timers<Namespace>),
}

/// Timers that are due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// The id of each one's key.
    pub(crate) keys: Vec<u32>,
    /// When each was due.
    pub(crate) times_ms: Vec<i64>,
    /// The window of each one; none where timers belong to keys.
    pub(crate) windows: Vec<Namespace>,
}

/// Does the same with both.
macro_rules! either {
    ($timers:expr, $of:ident => $does:expr) => {
        match $timers {
            FunctionTimers::Keyed($of) => $does,
            FunctionTimers::Windowed($of) => $does,
        }
    };
}

impl FunctionTimers {
    /// None, of keys with these columns.
    pub(crate) fn new(keys: &[Column], per_window: bool) -> Self {
        if per_window { Self::Windowed(Timers::new(keys)) } else { Self::Keyed(Timers::new(keys)) }
    }

    /// What a snapshot holds of them, without the key.
    pub(crate) fn declaration(&self, kind: TimerKind) -> StateDeclaration {
        match self {
            Self::Keyed(_) => kind.declaration::<()>(),
            Self::Windowed(_) => kind.declaration::<Namespace>(),
        }
    }

    /// Wakes the key, and its window where timers have one, at `time_ms`; `None` where the window is missing.
    pub(super) fn register(&mut self, key: u32, window: Option<Namespace>, time_ms: i64) -> Option<()> {
        match self {
            Self::Keyed(timers) => timers.register(key, (), time_ms),
            Self::Windowed(timers) => timers.register(key, window?, time_ms),
        };
        Some(())
    }

    /// Takes a timer back; answers as `register`.
    pub(super) fn delete(&mut self, key: u32, window: Option<Namespace>, time_ms: i64) -> Option<()> {
        match self {
            Self::Keyed(timers) => timers.delete(key, (), time_ms),
            Self::Windowed(timers) => timers.delete(key, window?, time_ms),
        };
        Some(())
    }

    /// Takes up to `max` timers that are due at `up_to`, in place of what `due` has.
    pub(super) fn fire(&mut self, up_to: i64, max: usize, due: &mut Due) {
        let (keys, times) = (std::mem::take(&mut due.keys), std::mem::take(&mut due.times_ms));
        match self {
            Self::Keyed(timers) => {
                let mut fired = Fired { keys, times, namespaces: Vec::new() };
                fired.clear();
                timers.fire(up_to, max, &mut fired);
                (due.keys, due.times_ms) = (fired.keys, fired.times);
                due.windows.clear();
            }
            Self::Windowed(timers) => {
                let mut fired = Fired { keys, times, namespaces: std::mem::take(&mut due.windows) };
                fired.clear();
                timers.fire(up_to, max, &mut fired);
                (due.keys, due.times_ms, due.windows) = (fired.keys, fired.times, fired.namespaces);
            }
        }
    }

    /// When the next one is due.
    pub(super) fn next_time(&self) -> Option<i64> {
        either!(self, timers => timers.next_time())
    }

    /// Whether the key must keep its id.
    pub(super) fn has_timers(&self, key: u32) -> bool {
        either!(self, timers => timers.has_timers(key))
    }

    /// See `Timers::drain_emptied`.
    pub(super) fn drain_emptied(&mut self, keys: &mut Vec<u32>) {
        either!(self, timers => timers.drain_emptied(keys));
    }

    /// See `Timers::freeze`.
    pub(super) fn freeze(&mut self, keys: impl Fn(&[u32]) -> Vec<ArrayRef>) -> PieceReader {
        either!(self, timers => timers.freeze(keys))
    }

    /// See `Timers::advance`.
    pub(super) fn advance(&mut self, rows_max: usize, keys: impl Fn(&[u32]) -> Vec<ArrayRef>) -> bool {
        either!(self, timers => timers.advance(rows_max, keys))
    }

    /// See `Timers::flush`.
    pub(super) fn flush(&mut self, rows_min: usize, keys: impl Fn(&[u32]) -> Vec<ArrayRef>) {
        either!(self, timers => timers.flush(rows_min, keys));
    }

    /// See `Timers::abandon`.
    pub(super) fn abandon(&mut self) {
        either!(self, timers => timers.abandon());
    }

    /// See `Timers::restore`.
    pub(crate) fn restore<'a>(
        &mut self,
        parts: impl IntoIterator<Item = (&'a [u32], &'a RecordBatch)>,
    ) -> Result<(), TimerError> {
        either!(self, timers => timers.restore(parts))
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        either!(self, timers => timers.memory_bytes())
    }
}
