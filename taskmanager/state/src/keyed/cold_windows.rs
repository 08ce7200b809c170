//! Windows of keys in front of a cold store: those of timers that fire come in together, and so do those of a batch, as far as they
//! are the windows that most rows of the last one asked for.
//!
//! Must never know why a window is wanted.

use crate::bits::Bits;
use crate::cold::{Addresses, Loaded};
use crate::row_codec::Namespaces;
use crate::rows::Rows;

use super::at::{At, Namespace};
use super::cell::Cell;
use super::error::StateResult;
use super::restore::RestoredRows;
use super::row_index::RowIndex;
use super::state::KeyedState;
use super::state_overlay::AtOnce;
use super::table::Table;

/// Windows that are counted while a batch goes on.
const COUNTED_MAX: usize = 16;

/// Of so many rows of a batch one has to ask for a window for it to be brought in with the next batch.
const ROWS_PER_USE: usize = 4;

/// The windows that the rows of a batch ask for.
#[derive(Debug, Default)]
pub(super) struct AskedWindows {
    asked: Vec<(Namespace, u32)>,
    /// Rows of the batch; none while timers fire, whose windows are over.
    rows: usize,
}

impl AskedWindows {
    /// A row asks for this window.
    #[inline]
    pub(super) fn count(&mut self, window: Namespace) {
        if self.rows == 0 {
            return;
        }
        let has_room = self.asked.len() < COUNTED_MAX;
        match self.asked.iter_mut().find(|(asked, _)| *asked == window) {
            Some((_, rows)) => *rows += 1,
            None if has_room => self.asked.push((window, 1)),
            None => {}
        }
    }

    /// A batch of so many rows begins; the windows that many rows of the last one asked for.
    fn next_batch(&mut self, rows: usize) -> Vec<Namespace> {
        self.end_batch();
        self.rows = rows;
        self.asked.drain(..).map(|(window, _)| window).collect()
    }

    /// Whether a batch is going on.
    pub(super) fn is_batch(&self) -> bool {
        self.rows > 0
    }

    /// The batch is over: who asks now does so for other reasons. What many of its rows asked for is kept for the next one.
    pub(super) fn end_batch(&mut self) {
        let least = self.rows.div_ceil(ROWS_PER_USE) as u32;
        self.asked.retain(|(_, rows)| *rows >= least);
        self.rows = 0;
    }
}

impl<I: RowIndex, C: Cell> Table<I, C> {
    /// The places of those of these windows of keys of which the store has to be asked; none but of a table with windows.
    pub(super) fn unknown_windows(&self, keys: &[u32], windows: &[Namespace], at: &At) -> Vec<u32> {
        let Some(cold) = self.cold.as_ref().filter(|cold| self.index.is_windowed() && !cold.is_whole) else { return Vec::new() };
        let is_unknown = |(_, (key, window)): &(u32, (&u32, &Namespace))| {
            let may_have = cold.stored.may_have(**window) && !cold.known_windows.is_known(**key, **window);
            may_have && !(I::SINGLE && self.has_row(&At { key: **key, namespace: Some(**window), ..*at }))
        };
        (0..).zip(keys.iter().zip(windows)).filter(is_unknown).map(|(place, _)| place).collect()
    }

    /// Whether something of this place has a row.
    fn has_row(&self, at: &At) -> bool {
        self.first_of(at).is_some()
    }

    /// Takes in what the store has of these windows of keys; those of which it has nothing are known to be empty.
    pub(super) fn take_windows(&mut self, keys: &[u32], windows: &[Namespace], loaded: &Loaded, at: &At) -> StateResult<()> {
        let places = || loaded.positions.iter().map(|position| *position as usize);
        let of_rows: Vec<u32> = places().map(|place| keys[place]).collect();
        let namespaces: Vec<_> = places().map(|place| Some(windows[place])).collect();
        let rows = RestoredRows { batch: &loaded.rows, keys: &of_rows, namespaces: Some(&namespaces) };
        self.take_loaded(&rows, at, &mut Bits::default())?;
        let mut cut = Bits::default();
        loaded.cut.iter().for_each(|place| cut.set_one(*place));
        for (place, (key, window)) in (0..).zip(keys.iter().zip(windows)) {
            // A single entry is known by its row.
            let is_here = I::SINGLE && self.has_row(&At { key: *key, namespace: Some(*window), ..*at });
            if let Some(cold) = self.cold.as_mut().filter(|_| !is_here) {
                cold.known_windows.brought_in(*key, *window, !cut.get(place));
            }
        }
        Ok(())
    }
}

impl KeyedState {
    /// As `fetch`, and of states kept per window these windows, one of each key.
    ///
    /// Contract: as of `fetch`; as many windows as keys, or none.
    pub fn fetch_windows(&mut self, ids: &[u32], windows: &[Namespace]) -> StateResult<()> {
        self.fetch(ids)?;
        self.load_windows(ids, windows)?;
        self.load_heads(ids, windows)
    }

    /// Brings in, of the keys of a batch, the windows that most rows of the last one asked for.
    pub(super) fn load_asked_windows(&mut self, ids: &[u32]) -> StateResult<()> {
        let Some(overlay) = &mut self.overlay else { return Ok(()) };
        let asked = overlay.asked.next_batch(ids.len());
        if asked.is_empty() {
            return Ok(());
        }
        let mut keys = ids.to_vec();
        keys.sort_unstable();
        keys.dedup();
        asked.into_iter().try_for_each(|window| self.load_windows(&keys, &vec![window; keys.len()]))
    }

    /// Brings in what the store has of these windows, one of each key, as far as there is room.
    fn load_windows(&mut self, ids: &[u32], windows: &[Namespace]) -> StateResult<()> {
        let is_short = self.is_short();
        let Self { overlay: Some(overlay), states, keys, at, .. } = self else { return Ok(()) };
        for bound in states {
            let rows = bound.state.rows_mut();
            let unknown = rows.unknown_windows(ids, windows, at);
            let Some(state) = rows.cold_state().filter(|_| !unknown.is_empty()) else { continue };
            let at_once = AtOnce::of(rows, overlay, is_short);
            let mut left = &unknown[..];
            while let Some((some, behind)) = at_once.next(rows, left) {
                let of_keys: Vec<u32> = some.iter().map(|place| ids[*place as usize]).collect();
                let of_windows: Vec<Namespace> = some.iter().map(|place| windows[*place as usize]).collect();
                let namespace = Namespaces::column(&of_windows.iter().copied().map(Some).collect::<Vec<_>>());
                let columns = keys.keys(Rows::Ids(&of_keys));
                let addresses = Addresses { keys: columns, namespace: Some(namespace), below: Vec::new(), rows: of_keys.len() };
                let loaded = overlay.load(&rows.info().name, state, &addresses, rows.entries_at_once())?;
                rows.take_windows(&of_keys, &of_windows, &loaded, at)?;
                left = behind;
            }
        }
        Ok(())
    }
}
