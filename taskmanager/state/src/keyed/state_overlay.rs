//! Keyed state in front of a cold store: what comes in before a batch, and what goes after it.

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::keys::KeyGroupRange;
use levada_common::types::Column;

use crate::cold::{Addresses, ColdExpiry, Phase, Scope, Within};
use crate::descriptor::StateId;
use crate::format::KEY_PREFIX;
use crate::row_codec::STAMP_UNKNOWN;
use crate::rows::Rows;

use super::cold_rows::ColdRows;
use super::error::StateResult;
use super::overlay::{Overlay, failed, store_failed};
use super::restore::RestoredRows;
use super::rows::StateRows;
use super::state::{KeyedState, SAVED_ROWS_MAX};
use super::table::TableInfo;
use crate::bits::Bits;

/// Keys that are looked at after a batch, at most, to find some that may go. Tests have small overlays that are large.
const LOOKS_MAX: usize = if cfg!(test) { 2_048 } else { 65_536 };

/// Of so many keys that were looked at one has to be clean and used lately for others to be looked at before a generation begins.
const SPARED_PART: usize = 4;

/// Keys that are looked at between two looks at the memory.
const LOOKS_AT_ONCE: usize = 256;

/// About what a map brings in at most: as many as there is room for come in by one read.
const MAP_BYTES: usize = 4096;

/// The part of the overlay's share that the maps of a batch may take before it begins.
const MAPS_PART: usize = 16;

/// Items that are sent after a batch while memory is short.
const SENT_ITEMS: usize = 16_384;

/// How much of a state comes in by one read, and until when: maps some at a time, and only while there is room for them.
pub(super) struct AtOnce {
    is_map: bool,
    is_short: bool,
    rows: usize,
    bytes_max: usize,
}

impl AtOnce {
    pub(super) fn of(rows: &dyn StateRows, overlay: &Overlay, is_short: bool) -> Self {
        let room = overlay.write_back.share_bytes() / MAPS_PART;
        let is_map = rows.entries_at_once() != usize::MAX;
        let at_once = if is_map { (room / MAP_BYTES).clamp(64, 8192) } else { usize::MAX };
        Self { is_map, is_short, rows: at_once, bytes_max: rows.memory_bytes() + room }
    }

    /// The next that come in, and those behind them; none where all are in, or there is no room.
    pub(super) fn next<'a>(&self, rows: &dyn StateRows, left: &'a [u32]) -> Option<(&'a [u32], &'a [u32])> {
        let has_room = !self.is_map || !self.is_short && rows.memory_bytes() <= self.bytes_max;
        (!left.is_empty() && has_room).then(|| left.split_at(left.len().min(self.rows)))
    }
}

impl KeyedState {
    /// Opens the states that were bound since the last call.
    ///
    /// What was restored without the time of its last touch was touched now; where the time is not known yet, when it is first
    /// looked at.
    pub(super) fn open_cold(&mut self) -> StateResult<()> {
        let groups = self.options.key_groups;
        let Some(overlay) = &mut self.overlay else { return Ok(()) };
        for bound in &mut self.states {
            let rows = bound.state.rows_mut();
            if rows.cold_state().is_some() {
                continue;
            }
            let TableInfo { name, schema, ttl, .. } = rows.info();
            let touched_at_ms = ttl.and_then(|ttl| self.at.clock.known(ttl.time)).unwrap_or(STAMP_UNKNOWN);
            let opened = overlay.write_back.store().open_state(&name.state, schema, touched_at_ms);
            let state = opened.map_err(|source| failed(name, source))?;
            let restored = overlay.scan(name, state, Scope { groups, within: Within::Any })?.next();
            let restored = restored.transpose().map_err(|source| failed(name, source))?;
            let mut cold = ColdRows::new(state, restored.is_none());
            if restored.is_some() && schema.windowed {
                let windows = overlay.write_back.store().namespaces(state, groups);
                windows
                    .map_err(|source| failed(name, source))?
                    .into_iter()
                    .flatten()
                    .for_each(|window| cold.stored.insert(window));
            }
            rows.put_cold(cold);
        }
        Ok(())
    }

    /// Brings in what the store has of these keys in states without windows: values, lists, and maps that are not too large. It
    /// takes one sorted read a state; where memory is short, or maps take more room than they should, the rest comes in entry by entry.
    /// Lists that the last batch only added to come in by their ends where a batch `is_begun`.
    pub(super) fn load_keys(&mut self, ids: &[u32], is_begun: bool) -> StateResult<()> {
        self.open_cold()?;
        let is_short = self.is_short();
        let Self { overlay: Some(overlay), states, keys, at, arrived, .. } = self else { return Ok(()) };
        arrived.drain(..).for_each(|key| overlay.live.set_one(key));
        ids.iter().for_each(|key| overlay.used.set_one(*key));
        let (mut unknown, mut by_ends) = (Vec::new(), Vec::with_capacity(states.len()));
        for bound in states {
            let rows = bound.state.rows_mut();
            let ends = is_begun && rows.ends_are_enough();
            by_ends.push(ends);
            unknown.clear();
            rows.drain_unknown(ids, &mut unknown);
            let Some(state) = rows.cold_state().filter(|_| !unknown.is_empty()) else { continue };
            let at_once = AtOnce::of(rows, overlay, is_short);
            let mut left = &unknown[..];
            while let Some((some, behind)) = at_once.next(rows, left) {
                let columns = keys.keys(Rows::Ids(some));
                let addresses = Addresses { keys: columns, namespace: None, below: Vec::new(), rows: some.len() };
                if ends {
                    let loaded = overlay.load_last(&rows.info().name, state, &addresses)?;
                    rows.take_ends(some, &loaded)?;
                } else {
                    let loaded = overlay.load(&rows.info().name, state, &addresses, rows.entries_at_once())?;
                    rows.take_keys(some, &loaded, at)?;
                }
                left = behind;
            }
            rows.forget_known(left);
        }
        let mut whole = (0..).zip(by_ends).filter(|(_, ends)| !ends);
        whole.try_for_each(|(state, _)| self.load_heads_of(state, Some(ids), &[]))
    }

    /// Brings in everything that the store has of a state in these key groups.
    pub(super) fn load_groups(&mut self, id: StateId, groups: KeyGroupRange) -> StateResult<()> {
        self.open_cold()?;
        let Some(bound) = self.states.get_mut(id.0) else { return Ok(()) };
        if bound.state.rows_mut().cold().is_none_or(|cold| cold.is_whole) {
            return Ok(());
        }
        let info = bound.state.rows().info().clone();
        let (Some(state), Some(overlay)) = (bound.state.rows().cold_state(), &mut self.overlay) else { return Ok(()) };
        let scan = overlay.scan(&info.name, state, Scope { groups, within: Within::Any })?;
        let mut absent = Bits::default();
        for batch in scan {
            let batch = batch.map_err(|source| failed(&info.name, source))?;
            self.take_scanned(id.0, &batch, &mut absent)?;
        }
        self.load_heads_of(id.0, None, &[])
    }

    /// Takes a batch of a scan of a state in, but for what its table knows better; `absent` is kept from one batch to the next.
    pub(super) fn take_scanned(&mut self, state: usize, batch: &RecordBatch, absent: &mut Bits) -> StateResult<()> {
        let named = |key: &Column| batch.column_by_name(&format!("{KEY_PREFIX}{}", key.name)).cloned();
        let keys: Vec<ArrayRef> = self.options.keys.iter().filter_map(named).collect();
        let mut ids = Vec::with_capacity(batch.num_rows());
        self.intern(&keys, batch.num_rows(), &mut ids);
        let rows = RestoredRows { batch, keys: &ids, namespaces: None };
        self.states[state].state.rows_mut().take_scanned(&rows, &self.at, absent)?;
        if let Some(overlay) = &mut self.overlay {
            self.arrived.drain(..).for_each(|key| overlay.live.set_one(key));
        }
        Ok(())
    }

    /// Ends a batch: sends what is due, lets clean keys go where memory is short.
    pub(super) fn finish_cold_batch(&mut self, has_timers: impl Fn(u32) -> bool) -> StateResult<()> {
        self.overlay.iter_mut().for_each(|overlay| overlay.asked.end_batch());
        // Keys without anything go with those that were not used lately.
        self.doubtful.clear();
        let phase = self.look()?;
        self.clean();
        self.expire_cold();
        match phase {
            Phase::Idle if self.is_short() => {
                // A small generation costs as much of compaction as a large one.
                let more_may_go = self.make_room(has_timers) && !self.is_nearly_full();
                if self.is_short() && !more_may_go {
                    self.begin_generation();
                }
            }
            Phase::Sending { .. } => {
                let items = if self.is_short() { SENT_ITEMS } else { 0 };
                self.send(items)?;
            }
            Phase::Idle | Phase::Writing(_) => {}
        }
        Ok(())
    }

    /// Tells the store what has expired, which leaves it out of snapshots and drops it whenever it comes past it.
    pub(super) fn expire_cold(&mut self) {
        let Self { overlay: Some(overlay), states, at, .. } = self else { return };
        for rows in states.iter().map(|bound| bound.state.rows()) {
            let Some(ttl) = rows.info().ttl else { continue };
            let expired_until_ms = at.clock.known(ttl.time).and_then(|now| ttl.expired_up_to(now));
            if let (Some(state), Some(expired_until_ms)) = (rows.cold_state(), expired_until_ms) {
                overlay.write_back.store().expire(state, ColdExpiry { expired_until_ms });
            }
        }
    }

    /// Whether there is room for another batch. Where there is none the store is writing; whoever runs the operator waits until
    /// it wakes the task, and asks again.
    pub fn is_ready(&mut self) -> StateResult<bool> {
        if self.overlay.is_none() {
            return Ok(true);
        }
        let held_bytes = self.held_bytes();
        let ready = self.overlay.as_mut().map_or(Ok(true), |overlay| overlay.write_back.is_ready(held_bytes));
        ready.map_err(store_failed)
    }

    fn look(&mut self) -> StateResult<Phase> {
        let phase = self.overlay.as_mut().map_or(Ok(Phase::Idle), |overlay| overlay.write_back.look());
        phase.map_err(store_failed)
    }

    /// Bytes that count: what is free for keys and entries to come does for a quarter of the share at most, or it would leave
    /// nothing to those that are there.
    fn held_bytes(&self) -> usize {
        let share_bytes = self.overlay.as_ref().map_or(0, |overlay| overlay.write_back.share_bytes());
        let free = self.keys.len() - self.keys.live();
        let of_keys = self.keys.memory_bytes() / self.keys.len().max(1) * free;
        let of_rows: usize = self.states.iter().map(|bound| bound.state.rows().idle_bytes(free)).sum();
        let idle = of_keys + of_rows;
        self.memory_bytes().saturating_sub(idle - idle.min(share_bytes / 4))
    }

    /// Whether the next batches may not find room.
    fn is_nearly_full(&self) -> bool {
        self.overlay.as_ref().is_some_and(|overlay| overlay.write_back.is_nearly_full(self.held_bytes()))
    }

    pub(super) fn is_short(&self) -> bool {
        self.overlay.as_ref().is_some_and(|overlay| overlay.write_back.is_short(self.held_bytes()))
    }

    /// Lets keys go that are clean and were not used lately, until there is room for some batches or enough were looked at. Answers
    /// whether many more are clean, and go when they are looked at again.
    fn make_room(&mut self, has_timers: impl Fn(u32) -> bool) -> bool {
        let target_bytes = self.overlay.as_ref().map_or(usize::MAX, |overlay| overlay.write_back.target_bytes());
        let looks = LOOKS_MAX.min(self.keys.len() * 2);
        let (mut looked, mut spared) = (0, 0);
        while looked < looks && self.held_bytes() > target_bytes {
            let now = LOOKS_AT_ONCE.min(looks - looked);
            looked += now;
            spared += (0..now).filter(|_| self.look_at_next_key(&has_timers)).count();
        }
        spared * SPARED_PART >= looked
    }

    /// Lets the next key go if it is clean and was not used since it was looked at last; one with timers keeps its id, as the key without
    /// columns does. Answers whether it is clean and stays because it was used.
    fn look_at_next_key(&mut self, has_timers: &impl Fn(u32) -> bool) -> bool {
        let Self { overlay: Some(overlay), states, keys, .. } = self else { return false };
        let key = overlay.hand;
        overlay.hand = if key as usize + 1 >= keys.len() { 0 } else { key + 1 };
        let was_used = overlay.used.take(key);
        if !overlay.live.get(key) || !states.iter().all(|bound| bound.state.rows().is_clean(key)) {
            return false;
        }
        if was_used {
            return true;
        }
        overlay.warming.end();
        states.iter_mut().for_each(|bound| bound.state.rows_mut().evict(key));
        if !has_timers(key) && !keys.is_unit() {
            overlay.live.clear(key);
            keys.remove(key);
        }
        false
    }

    /// Begins to send all that has changed, with what was being sent. Keys that are not used until it is written go first then.
    fn begin_generation(&mut self) {
        if let Some(overlay) = &mut self.overlay {
            overlay.write_back.begin_generation();
            overlay.used.clear_all();
        }
        self.freeze_dirty();
    }

    /// From now on a change of what has changed since the last generation saves it first.
    pub(super) fn freeze_dirty(&mut self) {
        let clock = self.at.clock;
        self.states.iter_mut().for_each(|bound| bound.state.rows_mut().freeze_dirty(&clock));
    }

    /// Sends about `items` further items of each state, none while the store has enough to do; answers whether more remain.
    pub(super) fn send(&mut self, items: usize) -> StateResult<bool> {
        let Some(overlay) = &mut self.overlay else { return Ok(false) };
        // A failure of the background is heard of here, whether rows come or not.
        if !matches!(overlay.write_back.look().map_err(store_failed)?, Phase::Sending { .. }) {
            return Ok(false);
        }
        if !overlay.write_back.takes_more().map_err(store_failed)? {
            return Ok(true);
        }
        self.send_items(items)
    }

    /// Sends everything that is being sent.
    pub(super) fn send_all(&mut self) -> StateResult<()> {
        while self.send_items(SENT_ITEMS)? {}
        Ok(())
    }

    fn send_items(&mut self, items: usize) -> StateResult<bool> {
        let mut remains = false;
        self.each_state(|rows, keys| {
            remains |= match items {
                0 => rows.flush_saved(keys, SAVED_ROWS_MAX).map(|()| true)?,
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
            overlay.write_back.end_generation();
        }
        Ok(remains)
    }
}
