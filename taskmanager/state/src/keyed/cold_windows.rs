//! Windows of keys in front of a cold store: those of timers that fire come in together.
//!
//! Which windows of a batch's keys a function will ask for nobody knows; those of timers are said. Not for maps, of which entries of
//! a window come in when they are asked for. Must never know why a window is wanted.

use crate::bits::Bits;
use crate::cold::{Addresses, Loaded};
use crate::row_codec::Namespaces;
use crate::rows::Rows;

use super::at::{At, Namespace};
use super::cell::Cell;
use super::error::StateResult;
use super::restore::RestoredRows;
use super::row_index::{ByEntry, RowIndex};
use super::state::KeyedState;
use super::table::Table;

impl<C: Cell> Table<ByEntry<()>, C> {
    /// The places of those of these windows of keys of which the store has to be asked.
    pub(super) fn unknown_windows(&self, keys: &[u32], windows: &[Namespace], at: &At) -> Vec<u32> {
        if self.cold.as_ref().is_none_or(|cold| cold.is_whole) {
            return Vec::new();
        }
        let is_unknown = |(_, (key, window)): &(u32, (&u32, &Namespace))| {
            self.index.find(&At { key: **key, namespace: Some(**window), ..*at }, &()).is_none()
        };
        (0..).zip(keys.iter().zip(windows)).filter(is_unknown).map(|(place, _)| place).collect()
    }

    /// Takes in what the store has of these windows of keys; those of which it has nothing are known to be empty.
    pub(super) fn take_windows(&mut self, keys: &[u32], windows: &[Namespace], loaded: &Loaded, at: &At) -> StateResult<()> {
        let places = || loaded.positions.iter().map(|position| *position as usize);
        let of_rows: Vec<u32> = places().map(|place| keys[place]).collect();
        let namespaces: Vec<_> = places().map(|place| Some(windows[place])).collect();
        let rows = RestoredRows { batch: &loaded.rows, keys: &of_rows, namespaces: Some(&namespaces) };
        self.take_loaded(&rows, at, &mut Bits::default())?;
        for (key, window) in keys.iter().zip(windows) {
            let row = self.index.insert(&At { key: *key, namespace: Some(*window), ..*at }, &());
            self.cover(row);
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
        let Self { overlay: Some(overlay), states, keys, at, .. } = self else { return Ok(()) };
        for bound in states {
            let rows = bound.state.rows_mut();
            let unknown = rows.unknown_windows(ids, windows, at);
            let Some(state) = rows.cold_state().filter(|_| !unknown.is_empty()) else { continue };
            let of_keys: Vec<u32> = unknown.iter().map(|place| ids[*place as usize]).collect();
            let of_windows: Vec<Namespace> = unknown.iter().map(|place| windows[*place as usize]).collect();
            let namespace = Namespaces::column(&of_windows.iter().copied().map(Some).collect::<Vec<_>>());
            let columns = keys.keys(Rows::Ids(&of_keys));
            let addresses = Addresses { keys: columns, namespace: Some(namespace), below: Vec::new(), rows: of_keys.len() };
            let loaded = overlay.load(&rows.info().name, state, &addresses, usize::MAX)?;
            rows.take_windows(&of_keys, &of_windows, &loaded, at)?;
        }
        Ok(())
    }
}
