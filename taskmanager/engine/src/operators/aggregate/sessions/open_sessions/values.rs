//! The distinct values of sessions: which session each row of a batch came to be in, and what is computed of them.
//!
//! In front of a store they come in and go with their sessions. A value is noted with a moment of its session, so that it stays where
//! it is while that grows.

use arrow::array::UInt32Array;
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use levada_state::cold::{Addresses, Change};

use super::super::super::value_sets::SetsShape;
use super::super::store::StoredSessions;
use super::*;

impl OpenSessions {
    /// Puts the values of a batch's rows, which were joined, into their sessions.
    pub(super) fn tell_apart(&mut self, shape: &Shape, batch: &Collapse, columns: &[ArrayRef]) -> Result<(), EngineError> {
        let Self { values: Some(values), moves, keys, .. } = self else { return Ok(()) };
        let mut session_of = vec![NONE; batch.parts().len()];
        for (sessions, parts) in [&moves.opened, &moves.joined] {
            sessions.iter().zip(parts).for_each(|(session, part)| session_of[*part as usize] = *session);
        }
        // Rows that were left out are in none.
        let sessions: Vec<u32> = batch.of_rows().iter().map(|part| session_of[*part as usize]).collect();
        let mut columns = columns.iter().enumerate();
        columns.try_for_each(|(column, of_rows)| values.add(shape, keys, column, (of_rows, &sessions)))
    }

    /// Puts the values of sessions that become part of others into these.
    pub(super) fn unite_values(&mut self, shape: &Shape, into: &[u32], gone: &[u32]) -> Result<(), EngineError> {
        let Self { values: Some(values), keys, store, .. } = self else { return Ok(()) };
        for pair in into.iter().copied().zip(gone.iter().copied()) {
            match store {
                Some(store) => {
                    values.unite(shape, keys, pair, Some(&mut |state, change| store.behind.change(state, change)))?;
                }
                None => values.unite(shape, keys, pair, None)?,
            }
        }
        Ok(())
    }

    /// The results of these sessions.
    pub(super) fn results(&self, sessions: &[u32]) -> Vec<ArrayRef> {
        let mut results = self.set.read(Rows::Ids(sessions));
        if let Some(values) = &self.values {
            values.read_into(&mut results, sessions);
        }
        results
    }

    /// Brings in the values of sessions that came out of the store.
    pub(in super::super) fn load_values(
        &mut self,
        shape: &Shape,
        found: &StoredSessions,
        opened: &[u32],
    ) -> Result<(), EngineError> {
        let Self { values: Some(values), store: Some(store), keys, newest, sessions, .. } = self else { return Ok(()) };
        for column in 0..values.columns_len() {
            let of_keys = Addresses { keys: found.keys.clone(), namespace: None, below: Vec::new(), rows: found.rows };
            let loaded = store.behind.load(values.stored(column).state, &of_keys)?;
            let places = loaded.rows.column(0).as_primitive::<Int64Type>().values();
            let session = |(position, place): (&u32, &i64)| {
                let key = sessions[opened[*position as usize] as usize].key;
                session_at(newest, sessions, key, *place).unwrap_or(NONE)
            };
            // Those of sessions that are over are in none.
            let of_values: Vec<u32> = loaded.positions.iter().zip(places).map(session).collect();
            let known = of_values.iter().zip(places).filter(|(session, _)| **session != NONE);
            known.for_each(|(session, place)| values.put_at(*session, *place));
            values.bring_in(shape, keys, column, (loaded.rows.column(1), &of_values))?;
        }
        Ok(())
    }

    /// What is computed of the values of sessions that only the store has, which go: by place among these.
    pub(in super::super) fn take_stored_values(
        &mut self,
        shape: &Shape,
        sets: &Arc<SetsShape>,
        gone: &StoredSessions,
    ) -> Result<ValueSets, EngineError> {
        let (mut taken, mut keys, mut of_rows) = (ValueSets::new(sets), KeyIndex::new(&shape.key_types), Vec::new());
        keys.intern(&gone.keys, gone.rows, &mut of_rows);
        let mut places: Vec<(u32, i64, i64, u32)> = Vec::with_capacity(gone.rows);
        for ((row, key), (start, end)) in (0..).zip(&of_rows).zip(gone.bounds()) {
            taken.open(row, Owner { key: *key, place: start });
            places.push((*key, start, end, row));
        }
        places.sort_unstable();
        // The last session of the key that starts by then, if it has the moment.
        let session_at = |key: u32, place: i64| {
            let behind = places.partition_point(|(of, start, ..)| (*of, *start) <= (key, place));
            let (of, _, end, row) = *places.get(behind.checked_sub(1)?)?;
            (of == key && place < end).then_some(row)
        };
        let is_saving = self.is_saving();
        let Self { values: Some(values), store: Some(store), .. } = self else { return Ok(taken) };
        for column in 0..values.columns_len() {
            let state = values.stored(column).state;
            let of_keys = Addresses { keys: gone.keys.clone(), namespace: None, below: Vec::new(), rows: gone.rows };
            let loaded = store.behind.load(state, &of_keys)?;
            let at = loaded.rows.column(0).as_primitive::<Int64Type>().values();
            let of_value = loaded.positions.iter().zip(at);
            let session = |(position, place): (&u32, &i64)| session_at(of_rows[*position as usize], *place).unwrap_or(NONE);
            let sessions: Vec<u32> = of_value.map(session).collect();
            taken.add(shape, &keys, column, (loaded.rows.column(1), &sessions))?;
            let (rows, of): (Vec<u32>, Vec<u32>) =
                (0..).zip(&sessions).filter(|(_, session)| **session != NONE).map(|(row, session)| (row, *session)).unzip();
            if rows.is_empty() {
                continue;
            }
            let [rows, of] = [rows, of].map(UInt32Array::from);
            let some = |column: &ArrayRef, rows| take(column, rows, None).map_err(|source| shape.kernel(source));
            let keys = gone.keys.iter().map(|column| some(column, &of)).collect::<Result<_, _>>()?;
            let below = loaded.rows.columns()[..2].iter().map(|column| some(column, &rows)).collect::<Result<_, _>>()?;
            let places = Addresses { keys, namespace: None, below, rows: rows.len() };
            match is_saving {
                true => values.delete_beyond(column, places),
                false => store.behind.change(state, Change { deletes: Some(places), upserts: None })?,
            }
        }
        taken.settle();
        Ok(taken)
    }

    /// Takes the values that the snapshot had of the sessions that were restored and end after `time`.
    pub(super) fn restore_values(
        &mut self,
        shape: &Shape,
        (key_groups, restored): (KeyGroupRange, &[RestoredState]),
        time: i64,
    ) -> Result<(), EngineError> {
        let Some(values) = &self.values else { return Ok(()) };
        for rows in values.restored(shape, (key_groups, restored))? {
            self.load(shape, &rows.keys, rows.rows, time)?;
            let Self { values: Some(values), keys, newest, sessions, stored, store, .. } = self else { return Ok(()) };
            let of_values = values.restore(shape, keys, &rows, |key, time| session_at(newest, sessions, key, time))?;
            if store.is_some() {
                of_values.into_iter().filter(|session| *session != NONE).for_each(|session| stored.changed.set_one(session));
            }
            if self.is_short() {
                self.empty(shape)?;
            }
        }
        self.values.iter_mut().for_each(ValueSets::settle);
        Ok(())
    }
}

/// The key's session that has this moment.
fn session_at(newest: &[u32], sessions: &[Session], key: u32, time: i64) -> Option<u32> {
    let some = |session: u32| (session != NONE).then_some(session);
    let mut of_key = std::iter::successors(some(newest[key as usize]), |at| some(sessions[*at as usize].older));
    of_key.find(|at| (sessions[*at as usize].start..sessions[*at as usize].end).contains(&time))
}
