//! Keyed state in front of a cold store: what is done around a batch and at a barrier.

use std::sync::Arc;

use arrow::array::ArrayRef;
use levada_common::checkpoint::StateKind;
use levada_common::keys::KeyGroupRange;

use crate::cold::{Addresses, Scope, Within};
use crate::descriptor::StateId;
use crate::format::KEY_PREFIX;
use crate::rows::Rows;
use crate::snapshot::{Contents, StateMeta, StatePart};

use super::bits::Bits;
use super::cold_rows::ColdRows;
use super::error::StateResult;
use super::overlay::{Overlay, Phase, failed};
use super::restore::RestoredRows;
use super::state::KeyedState;
use super::table::TableInfo;

/// Ids that should be free before a batch, so that its new keys make nothing grow.
const FREE_IDS_MIN: usize = 16_384;

/// Keys that are looked at after a batch, at most, to find some that may go.
const LOOKS_MAX: usize = 65_536;

/// Items that are sent after a batch while a generation ends.
const SENT_ITEMS: usize = 16_384;

impl KeyedState {
    /// Opens the states that were bound since the last call.
    fn open_cold(&mut self) -> StateResult<()> {
        let Some(overlay) = &mut self.overlay else { return Ok(()) };
        for bound in &mut self.states {
            let rows = bound.state.rows_mut();
            if rows.cold_state().is_some() {
                continue;
            }
            let TableInfo { name, schema, ttl, .. } = rows.info();
            let touched_at_ms = ttl.map_or(0, |ttl| self.at.clock.now(ttl.time));
            let opened = overlay.store().open_state(&name.state, schema, touched_at_ms);
            let state = opened.map_err(|source| failed(name, source))?;
            rows.put_cold(ColdRows::new(state));
        }
        Ok(())
    }

    /// Brings in what the store has of these keys, in states without windows and map keys.
    pub(super) fn load_keys(&mut self, ids: &[u32]) -> StateResult<()> {
        self.open_cold()?;
        let Self { overlay: Some(overlay), states, keys, at, arrived, .. } = self else { return Ok(()) };
        arrived.drain(..).for_each(|key| overlay.live.set_one(key));
        ids.iter().for_each(|key| overlay.used.set_one(*key));
        let mut unknown = Vec::new();
        for bound in states {
            let rows = bound.state.rows_mut();
            unknown.clear();
            rows.drain_unknown(ids, &mut unknown);
            let Some(state) = rows.cold_state().filter(|_| !unknown.is_empty()) else { continue };
            let columns = keys.keys(Rows::Ids(&unknown));
            let addresses = Addresses { keys: columns, namespace: None, below: Vec::new(), rows: unknown.len() };
            let loaded = overlay.load(&rows.info().name, state, &addresses)?;
            rows.take_keys(&unknown, &loaded, at)?;
        }
        Ok(())
    }

    /// Brings in everything that the store has of a state in these key groups.
    pub(super) fn load_groups(&mut self, id: StateId, groups: KeyGroupRange) -> StateResult<()> {
        self.open_cold()?;
        let Some(bound) = self.states.get(id.0) else { return Ok(()) };
        let info = bound.state.rows().info().clone();
        let (Some(state), Some(overlay)) = (bound.state.rows().cold_state(), &mut self.overlay) else { return Ok(()) };
        let scan = overlay.scan(&info.name, state, Scope { groups, within: Within::Any })?;
        let (mut absent, mut ids) = (Bits::default(), Vec::new());
        for batch in scan {
            let batch = batch.map_err(|source| failed(&info.name, source))?;
            let named = |name: &str| batch.column_by_name(&format!("{KEY_PREFIX}{name}")).cloned();
            let keys: Vec<ArrayRef> = info.schema.keys.iter().filter_map(|key| named(&key.name)).collect();
            ids.clear();
            self.intern(&keys, batch.num_rows(), &mut ids);
            let rows = RestoredRows { batch: &batch, keys: &ids, namespaces: None };
            self.states[id.0].state.rows_mut().take_scanned(&rows, &self.at, &mut absent)?;
        }
        if let Some(overlay) = &mut self.overlay {
            self.arrived.drain(..).for_each(|key| overlay.live.set_one(key));
        }
        Ok(())
    }

    /// Ends a batch: sends what is due, lets clean keys go where memory is short.
    pub(super) fn finish_cold_batch(&mut self, has_timers: impl Fn(u32) -> bool) -> StateResult<()> {
        let at = self.at;
        for bound in &mut self.states {
            let rows = bound.state.rows_mut();
            if rows.info().ttl.is_some() {
                rows.clean(&at, super::state::CLEANED_ROWS);
            }
        }
        let full = self.memory_bytes() > self.overlay.as_ref().map_or(usize::MAX, |overlay| overlay.share);
        self.look()?;
        match self.overlay.as_ref().map(|overlay| overlay.phase) {
            Some(Phase::Idle) if full && !self.make_room(has_timers) => self.end_generation(false),
            Some(Phase::Sending { .. }) => {
                self.send(if full { SENT_ITEMS } else { 0 })?;
            }
            _ => {}
        }
        self.charge()
    }

    /// Whether there is room for another batch. Where there is none the store is writing; whoever runs the operator waits until
    /// it wakes the task, and asks again.
    pub fn is_ready(&mut self) -> StateResult<bool> {
        self.look()?;
        let bytes = self.memory_bytes();
        let Some(overlay) = &self.overlay else { return Ok(true) };
        Ok(bytes <= overlay.share * 2 || matches!(overlay.phase, Phase::Idle | Phase::Sending { .. }))
    }

    fn look(&mut self) -> StateResult<()> {
        let Some(overlay) = &mut self.overlay else { return Ok(()) };
        let looked = overlay.look();
        looked.map_err(|source| failed(&self.states[0].state.rows().info().name, source))
    }

    /// Lets keys go that are clean and were not used lately, until there is room for a batch; answers whether there is.
    fn make_room(&mut self, has_timers: impl Fn(u32) -> bool) -> bool {
        let Self { overlay: Some(overlay), states, keys, .. } = self else { return true };
        let ids = keys.len() as u32;
        for _ in 0..LOOKS_MAX.min(ids as usize * 2) {
            if keys.len() - keys.live() >= FREE_IDS_MIN {
                return true;
            }
            let key = overlay.hand;
            overlay.hand = if key + 1 >= ids { 0 } else { key + 1 };
            if !overlay.live.get(key) || !overlay.used.set(key) {
                overlay.used.clear(key);
                continue;
            }
            overlay.used.clear(key);
            if states.iter().all(|bound| bound.state.rows().is_clean(key)) {
                states.iter_mut().for_each(|bound| bound.state.rows_mut().evict(key));
                if !has_timers(key) {
                    overlay.live.clear(key);
                    keys.remove(key);
                }
            }
        }
        keys.len() - keys.live() >= FREE_IDS_MIN
    }

    /// Begins to send all that has changed.
    fn end_generation(&mut self, snapshot: bool) {
        let clock = self.at.clock;
        self.states.iter_mut().for_each(|bound| bound.state.rows_mut().freeze_dirty(&clock));
        if let Some(overlay) = &mut self.overlay {
            overlay.phase = Phase::Sending { snapshot };
        }
    }

    /// Sends about `items` further items of each state; answers whether more remain.
    pub(super) fn send(&mut self, items: usize) -> StateResult<bool> {
        let Some(overlay) = &self.overlay else { return Ok(false) };
        if !matches!(overlay.phase, Phase::Sending { .. }) {
            return Ok(false);
        }
        if overlay.is_busy() {
            return Ok(true);
        }
        let mut remains = false;
        self.each_state(|rows, keys| {
            remains |= match items {
                0 => rows.flush_saved(keys, super::state::SAVED_ROWS_MAX).map(|()| true)?,
                items => rows.advance(keys, items)?,
            };
            Ok(())
        })?;
        let Self { overlay: Some(overlay), states, .. } = self else { return Ok(false) };
        for bound in states {
            let rows = bound.state.rows_mut();
            let changes = rows.take_changes();
            if let Some(state) = rows.cold_state() {
                overlay.change(&rows.info().name, state, changes)?;
            }
        }
        if !remains {
            overlay.end_generation();
        }
        Ok(remains)
    }

    /// The synchronous part of a snapshot of the store.
    pub(super) fn snapshot_store(&mut self) -> StateResult<Vec<StatePart>> {
        self.open_cold()?;
        while matches!(self.overlay.as_ref().map(|overlay| overlay.phase), Some(Phase::Sending { .. })) {
            self.send(usize::MAX / 16)?;
        }
        let Some(overlay) = &mut self.overlay else { return Ok(Vec::new()) };
        let database = overlay.store().begin_snapshot();
        self.end_generation(true);
        let parts = self.states.iter().map(|bound| {
            let TableInfo { name, schema, .. } = bound.state.rows().info();
            let meta =
                StateMeta { uid: name.uid.clone(), name: name.state.clone(), kind: StateKind::Keyed, schema: Arc::clone(schema) };
            StatePart { meta, contents: Contents::Database(Arc::clone(&database)) }
        });
        Ok(parts.collect())
    }
}

impl Overlay {
    /// The running snapshot was given up; what changed is sent all the same.
    pub(super) fn abandon_snapshot(&mut self) {
        if self.phase == (Phase::Sending { snapshot: true }) {
            self.store().abandon_snapshot();
            self.phase = Phase::Sending { snapshot: false };
        }
    }
}
