//! The store behind the sessions: what memory does not hold of them.
//!
//! It has a session's accumulators by end, start and key, so that those that are due lie together; and by key where its sessions
//! are, so that those of a batch's keys are found. A session that grows has another place: what was at the old one is deleted when
//! it is sent. Must never know which sessions memory holds. Invariant: both states have the same sessions in every snapshot.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::keys::KeyGroupRange;
use levada_common::planned_state::{SESSION_BOUNDS, session_bounds_schema};
use levada_common::state_schema::StateSchema;
use levada_state::cold::{Addresses, Change, ColdStateId, ColdStores, Scan, Scope, Within};
use levada_state::snapshot::{Contents, DatabaseSnapshot, StateMeta, StatePart};

use super::super::shape::Shape;
use super::super::value_sets::ValueSets;
use super::away::Away;
use crate::error::EngineError;
use crate::operators::behind::Behind;
use crate::operators::rows::StoredEntries;
use crate::operators::window::namespace_column;

/// Sessions of a store, by columns.
#[derive(Debug, Clone)]
pub(super) struct StoredSessions {
    pub(super) rows: usize,
    pub(super) keys: Vec<ArrayRef>,
    pub(super) starts: ArrayRef,
    pub(super) ends: ArrayRef,
    pub(super) states: Vec<ArrayRef>,
}

impl StoredSessions {
    /// A batch of the state's columns.
    pub(super) fn of(shape: &Shape, batch: &RecordBatch) -> Self {
        let (columns, keys) = (batch.columns(), shape.key_types.len());
        let bounds = columns[keys].as_struct();
        Self {
            rows: batch.num_rows(),
            keys: columns[..keys].to_vec(),
            starts: Arc::clone(bounds.column(0)),
            ends: Arc::clone(bounds.column(1)),
            states: columns[keys + 1..].to_vec(),
        }
    }

    /// Start and end of each.
    pub(super) fn bounds(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        let [starts, ends] = [&self.starts, &self.ends].map(|column| column.as_primitive::<TimestampMillisecondType>().values());
        starts.iter().copied().zip(ends.iter().copied())
    }

    /// These of them.
    pub(super) fn take(&self, shape: &Shape, rows: &UInt32Array) -> Result<Self, EngineError> {
        let one = |column: &ArrayRef| take(column, rows, None).map_err(|source| shape.kernel(source));
        Ok(Self {
            rows: rows.len(),
            keys: taken(shape, &self.keys, rows)?,
            starts: one(&self.starts)?,
            ends: one(&self.ends)?,
            states: taken(shape, &self.states, rows)?,
        })
    }
}

/// Places of sessions that are to be deleted.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) rows: usize,
    pub(super) keys: Vec<ArrayRef>,
    pub(super) starts: ArrayRef,
    pub(super) ends: ArrayRef,
}

impl Places {
    /// In the state of the accumulators, and in that of the bounds.
    fn addresses(&self) -> [Addresses; 2] {
        let namespace = namespace_column(Arc::clone(&self.starts), Arc::clone(&self.ends));
        [
            Addresses { keys: self.keys.clone(), namespace: Some(namespace), below: Vec::new(), rows: self.rows },
            Addresses { keys: self.keys.clone(), namespace: None, below: vec![Arc::clone(&self.starts)], rows: self.rows },
        ]
    }
}

/// The store of the sessions of one aggregation in one task.
#[derive(Debug)]
pub(super) struct SessionStore {
    pub(super) behind: Behind,
    sessions: ColdStateId,
    bounds: ColdStateId,
    bounds_schema: Arc<StateSchema>,
    key_groups: KeyGroupRange,
    pub(super) away: Away,
    /// What is to be deleted once the generation that is being sent is out.
    gone: Vec<Places>,
}

impl SessionStore {
    /// Takes up the aggregation's states in its store, with what was restored there.
    pub(super) fn open(shape: &Shape, stores: &dyn ColdStores, key_groups: KeyGroupRange) -> Result<Self, EngineError> {
        let mut behind = Behind::open(&shape.uid, stores)?;
        let bounds_schema = Arc::new(session_bounds_schema(&shape.state.keys));
        let sessions = behind.open_state(shape.state_name(), &shape.state)?;
        let bounds = behind.open_state(SESSION_BOUNDS, &bounds_schema)?;
        let restored = behind.scan(bounds, Scope { groups: key_groups, within: Within::Any })?;
        let mut away = Away::counting(restored);
        away.count_next(shape)?;
        Ok(Self { behind, sessions, bounds, bounds_schema, key_groups, away, gone: Vec::new() })
    }

    /// The sessions of these keys that end after `time`; keys that are named twice are found once.
    ///
    /// Contract: memory has no session of theirs, so that nothing that is on its way into the store is among them.
    pub(super) fn load(
        &mut self,
        shape: &Shape,
        keys: Vec<ArrayRef>,
        rows: usize,
        time: i64,
    ) -> Result<StoredSessions, EngineError> {
        let of_keys = Addresses { keys: keys.clone(), namespace: None, below: Vec::new(), rows };
        let bounds = self.behind.load(self.bounds, &of_keys)?;
        let [starts, ends] = [bounds.rows.column(0), bounds.rows.column(1)];
        let sessions = StoredSessions {
            rows: bounds.positions.len(),
            keys: taken(shape, &keys, &UInt32Array::from(bounds.positions))?,
            starts: Arc::clone(starts),
            ends: Arc::clone(ends),
            states: Vec::new(),
        };
        // Those that are over are on their way out of the store.
        let open = (0..).zip(sessions.bounds()).filter(|(_, (_, end))| *end > time).map(|(row, _)| row);
        let sessions = sessions.take(shape, &open.collect::<Vec<u32>>().into())?;
        let namespace = Some(namespace_column(Arc::clone(&sessions.starts), Arc::clone(&sessions.ends)));
        let exactly = Addresses { keys: sessions.keys.clone(), namespace, below: Vec::new(), rows: sessions.rows };
        let found = self.behind.load(self.sessions, &exactly)?;
        if found.positions.len() != sessions.rows {
            let (known, found) = (sessions.rows, found.positions.len());
            return Err(shape.invariant(format!("the store has {found} of {known} sessions that it knows of")));
        }
        let sessions = sessions.take(shape, &UInt32Array::from(found.positions))?;
        Ok(StoredSessions { states: found.rows.columns().to_vec(), ..sessions })
    }

    /// Begins to visit the written sessions that end after `after`, at `until` or before.
    pub(super) fn scan(&mut self, after: i64, until: i64) -> Result<Scan, EngineError> {
        self.behind.scan(self.sessions, Scope { groups: self.key_groups, within: Within::Ending { after, until } })
    }

    /// Sends sessions as they are now, `piece` in the columns of a snapshot, and where some of them were before.
    pub(super) fn upsert(&mut self, shape: &Shape, piece: RecordBatch, moved: Option<&Places>) -> Result<(), EngineError> {
        let sessions = StoredSessions::of(shape, &piece);
        let columns = Arc::clone(self.behind.write_back.store().layout(self.bounds).columns());
        let bounds = sessions.keys.into_iter().chain([sessions.starts, sessions.ends]).collect();
        let bounds = RecordBatch::try_new(columns, bounds).map_err(|source| shape.kernel(source))?;
        let [from_sessions, from_bounds] = moved.map(Places::addresses).map_or([None, None], |places| places.map(Some));
        self.behind.change(self.sessions, Change { deletes: from_sessions, upserts: Some(piece) })?;
        self.behind.change(self.bounds, Change { deletes: from_bounds, upserts: Some(bounds) })
    }

    /// Deletes sessions; `is_sending`: once the generation that is being sent is out, which has them if it is a snapshot.
    pub(super) fn delete(&mut self, places: Places, is_sending: bool) -> Result<(), EngineError> {
        if is_sending {
            self.gone.push(places);
            return Ok(());
        }
        let [sessions, bounds] = places.addresses().map(|addresses| Change { deletes: Some(addresses), upserts: None });
        self.behind.change(self.sessions, sessions)?;
        self.behind.change(self.bounds, bounds)
    }

    /// Deletes what was to be deleted later.
    pub(super) fn delete_gone(&mut self) -> Result<(), EngineError> {
        std::mem::take(&mut self.gone).into_iter().try_for_each(|places| self.delete(places, false))
    }

    /// Opens a state of distinct values.
    pub(super) fn open_values(&mut self, meta: StateMeta, schema: &Arc<StateSchema>) -> Result<StoredEntries, EngineError> {
        let state = self.behind.open_state(&meta.name, schema)?;
        let columns = Arc::clone(self.behind.write_back.store().layout(state).columns());
        Ok(StoredEntries::new(state, meta, columns))
    }

    /// What a snapshot of the store says of itself.
    pub(super) fn parts(
        &self,
        shape: &Shape,
        values: Option<&ValueSets>,
        snapshot: &Arc<dyn DatabaseSnapshot>,
    ) -> Vec<StatePart> {
        let states = [(shape.state_name(), &shape.state), (SESSION_BOUNDS, &self.bounds_schema)];
        let meta = |(name, schema): (&str, &Arc<StateSchema>)| StateMeta {
            uid: shape.uid.clone(),
            name: name.into(),
            kind: StateKind::Keyed,
            schema: Arc::clone(schema),
        };
        let of_values =
            values.iter().flat_map(|values| (0..values.columns_len()).map(|column| values.stored(column).meta.clone()));
        let metas = states.into_iter().map(meta).chain(of_values);
        metas.map(|meta| StatePart { meta, contents: Contents::Database(Arc::clone(snapshot)) }).collect()
    }
}

fn taken(shape: &Shape, columns: &[ArrayRef], rows: &UInt32Array) -> Result<Vec<ArrayRef>, EngineError> {
    columns.iter().map(|column| take(column, rows, None).map_err(|source| shape.kernel(source))).collect()
}
