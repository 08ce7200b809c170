//! `MapState`: a map a key.

use std::hash::Hash;

use crate::descriptor::{MapState, MapStateDescriptor};
use crate::keyed::at::Namespace;
use crate::keyed::error::StateResult;
use crate::keyed::row_index::ByEntry;
use crate::keyed::rows::{AnyState, State};
use crate::keyed::state::KeyedState;
use crate::keyed::table::{Table, TableInfo};
use crate::types::StateType;

type Rows<K, V> = State<Table<ByEntry<K>, Option<V>>, ()>;

pub(crate) fn make<K: StateType + Hash + Eq, V: StateType>(
    _descriptor: &MapStateDescriptor<K, V>,
    info: TableInfo,
) -> Box<dyn AnyState> {
    let index = ByEntry::new(info.schema.windowed);
    Box::new(Rows::<K, V> { rows: Table::new(info, index), logic: () })
}

impl<K: StateType + Hash + Eq, V: StateType> MapState<K, V> {
    /// The value under this key of the map.
    #[inline]
    pub fn get<'a>(self, state: &'a mut KeyedState, key: &K) -> StateResult<Option<&'a V>> {
        let (state, mut at) = state.open::<Rows<K, V>>(self.id())?;
        state.rows.fetch(&mut at, key)?;
        Ok(state.rows.read(&at, key).and_then(Option::as_ref))
    }

    /// Whether there is a value under this key of the map.
    #[inline]
    pub fn contains(self, state: &mut KeyedState, key: &K) -> StateResult<bool> {
        Ok(self.get(state, key)?.is_some())
    }

    /// Puts a value under this key of the map.
    #[inline]
    pub fn put(self, state: &mut KeyedState, key: &K, value: V) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<K, V>>(self.id())?;
        state.rows.fetch(&mut at, key)?;
        state.rows.replace(&at, key, Some(value));
        Ok(())
    }

    /// Puts values under keys of the map.
    pub fn put_all(self, state: &mut KeyedState, entries: impl IntoIterator<Item = (K, V)>) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<K, V>>(self.id())?;
        for (key, value) in entries {
            state.rows.fetch(&mut at, &key)?;
            state.rows.replace(&at, &key, Some(value));
        }
        Ok(())
    }

    /// Changes the value under this key of the map in place; `None` afterwards removes it.
    #[inline]
    pub fn update_with<R>(self, state: &mut KeyedState, key: &K, change: impl FnOnce(&mut Option<V>) -> R) -> StateResult<R> {
        let (state, mut at) = state.open::<Rows<K, V>>(self.id())?;
        state.rows.fetch(&mut at, key)?;
        Ok(state.rows.update(&at, key, change))
    }

    /// Removes what is under this key of the map.
    pub fn remove(self, state: &mut KeyedState, key: &K) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<K, V>>(self.id())?;
        state.rows.fetch(&mut at, key)?;
        state.rows.remove(&at, key);
        Ok(())
    }

    /// The entries of the map, in no order.
    pub fn iter(self, state: &mut KeyedState) -> StateResult<impl Iterator<Item = (&K, &V)>> {
        let (state, mut at) = state.open::<Rows<K, V>>(self.id())?;
        state.rows.fetch_all(&mut at)?;
        state.rows.touch_all(&at);
        Ok(state.rows.entries_of(at.at).filter_map(|(key, cell)| cell.as_ref().map(|value| (key, value))))
    }

    /// Whether the map has no entry.
    pub fn is_empty(self, state: &mut KeyedState) -> StateResult<bool> {
        Ok(self.iter(state)?.next().is_none())
    }

    /// Forgets the entries.
    pub fn clear(self, state: &mut KeyedState) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<K, V>>(self.id())?;
        state.rows.fetch_all(&mut at)?;
        state.rows.clear(&at);
        Ok(())
    }

    /// The windows for which the current key has entries, in the order of their ends.
    pub fn namespaces(self, state: &mut KeyedState) -> StateResult<Vec<Namespace>> {
        let (state, at) = state.open_key::<Rows<K, V>>(self.id())?;
        Ok(state.rows.namespaces(at))
    }

    /// Calls `visit` with each entry of each key, by the key's id, in no order.
    pub fn for_each_key(self, state: &mut KeyedState, mut visit: impl FnMut(u32, Option<Namespace>, &K, &V)) -> StateResult<()> {
        let (state, at) = state.open_all::<Rows<K, V>>(self.id())?;
        state.rows.each(at, |key, namespace, map_key, cell| {
            cell.iter().for_each(|value| visit(key, namespace, map_key, value));
        });
        Ok(())
    }
}
