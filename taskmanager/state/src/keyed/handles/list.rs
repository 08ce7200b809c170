//! `ListState`: a list a key.

use crate::descriptor::{ListState, ListStateDescriptor};
use crate::keyed::at::{At, Namespace};
use crate::keyed::cell::List;
use crate::keyed::cells::Cells;
use crate::keyed::error::StateResult;
use crate::keyed::rows::{AnyState, State};
use crate::keyed::state::KeyedState;
use crate::keyed::table::TableInfo;
use crate::types::StateType;

type Rows<T> = State<Cells<List<T>>, ()>;

pub(crate) fn make<T: StateType>(_descriptor: &ListStateDescriptor<T>, info: TableInfo) -> Box<dyn AnyState> {
    Box::new(Rows::<T> { rows: Cells::new(info), logic: () })
}

impl<T: StateType> ListState<T> {
    /// The elements in the order in which they were added; empty where there are none.
    #[inline]
    pub fn get(self, state: &mut KeyedState) -> StateResult<&[T]> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch(&mut at)?;
        Ok(state.rows.living(&at))
    }

    /// The elements one by one.
    #[inline]
    pub fn iter(self, state: &mut KeyedState) -> StateResult<std::slice::Iter<'_, T>> {
        Ok(self.get(state)?.iter())
    }

    /// Whether there is no element.
    pub fn is_empty(self, state: &mut KeyedState) -> StateResult<bool> {
        Ok(self.get(state)?.is_empty())
    }

    /// Adds an element behind the others.
    #[inline]
    pub fn add(self, state: &mut KeyedState, element: T) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch_end(&mut at)?;
        state.rows.append(&at, element)
    }

    /// Adds elements behind the others.
    pub fn add_all(self, state: &mut KeyedState, elements: impl IntoIterator<Item = T>) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch_end(&mut at)?;
        elements.into_iter().try_for_each(|element| state.rows.append(&at, element))
    }

    /// Puts elements in the place of those that are there; none clears the list.
    pub fn update(self, state: &mut KeyedState, elements: impl IntoIterator<Item = T>) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch(&mut at)?;
        state.rows.remove(&at);
        elements.into_iter().try_for_each(|element| state.rows.append(&at, element))
    }

    /// Forgets the elements.
    pub fn clear(self, state: &mut KeyedState) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch(&mut at)?;
        state.rows.remove(&at);
        Ok(())
    }

    /// The windows for which the current key has elements, in the order of their ends.
    pub fn namespaces(self, state: &mut KeyedState) -> StateResult<Vec<Namespace>> {
        let (state, at) = state.open_key::<Rows<T>>(self.id())?;
        Ok(state.rows.namespaces(at))
    }

    /// Adds the current key's elements of the windows `from` behind those of `into`, in the order of `from`, and clears them.
    pub fn merge_namespaces(self, state: &mut KeyedState, into: Namespace, from: &[Namespace]) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        let into_at = At { namespace: Some(into), ..*at };
        state.rows.fetch_end(&mut at.with(&into_at))?;
        for namespace in from.iter().filter(|namespace| **namespace != into) {
            let from_at = At { namespace: Some(*namespace), ..*at };
            state.rows.fetch(&mut at.with(&from_at))?;
            let elements = state.rows.living(&from_at).to_vec();
            state.rows.remove(&from_at);
            elements.into_iter().try_for_each(|element| state.rows.append(&into_at, element))?;
        }
        Ok(())
    }

    /// Calls `visit` with each key that has elements, by its id, in no order; in a windowed state once a window.
    pub fn for_each_key(self, state: &mut KeyedState, mut visit: impl FnMut(u32, Option<Namespace>, &[T])) -> StateResult<()> {
        let (state, at) = state.open_all::<Rows<T>>(self.id())?;
        state.rows.each_living(at, |key, namespace, items| visit(key, namespace, items));
        Ok(())
    }
}
