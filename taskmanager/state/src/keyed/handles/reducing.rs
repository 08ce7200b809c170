//! `ReducingState`: one value a key, into which what is added is reduced.

use crate::descriptor::{Reduce, ReducingState, ReducingStateDescriptor};
use crate::keyed::at::{At, Namespace};
use crate::keyed::cells::Cells;
use crate::keyed::error::StateResult;
use crate::keyed::rows::{AnyState, State};
use crate::keyed::state::KeyedState;
use crate::keyed::table::TableInfo;
use crate::types::StateType;

type Rows<T> = State<Cells<Option<T>>, Reduce<T>>;

pub(crate) fn make<T: StateType>(descriptor: &ReducingStateDescriptor<T>, info: TableInfo) -> Box<dyn AnyState> {
    Box::new(Rows { rows: Cells::new(info), logic: descriptor.reduce().clone() })
}

impl<T: StateType> Rows<T> {
    #[inline]
    fn add(&mut self, at: &At, value: T) {
        let reduce = &self.logic;
        self.rows.update(at, |cell| match cell {
            Some(kept) => reduce(kept, value),
            None => *cell = Some(value),
        });
    }
}

impl<T: StateType> ReducingState<T> {
    /// What the added values were reduced to; `None` where none was added.
    #[inline]
    pub fn get(self, state: &mut KeyedState) -> StateResult<Option<&T>> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch(&mut at)?;
        Ok(state.rows.read(&at).and_then(Option::as_ref))
    }

    /// Reduces a value into what is kept; the first one is kept as it is.
    #[inline]
    pub fn add(self, state: &mut KeyedState, value: T) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch(&mut at)?;
        state.add(&at, value);
        Ok(())
    }

    /// Forgets what is kept.
    pub fn clear(self, state: &mut KeyedState) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch(&mut at)?;
        state.rows.remove(&at);
        Ok(())
    }

    /// The windows for which the current key has a value, in the order of their ends.
    pub fn namespaces(self, state: &mut KeyedState) -> StateResult<Vec<Namespace>> {
        let (state, at) = state.open_key::<Rows<T>>(self.id())?;
        Ok(state.rows.namespaces(at))
    }

    /// Reduces the current key's values of the windows `from` into that of `into`, in the order of `from`, and clears them.
    pub fn merge_namespaces(self, state: &mut KeyedState, into: Namespace, from: &[Namespace]) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        let into_at = At { namespace: Some(into), ..*at };
        state.rows.fetch(&mut at.with(&into_at))?;
        for namespace in from.iter().filter(|namespace| **namespace != into) {
            let from_at = At { namespace: Some(*namespace), ..*at };
            state.rows.fetch(&mut at.with(&from_at))?;
            if let Some(value) = state.rows.take(&from_at).flatten() {
                state.add(&into_at, value);
            }
        }
        Ok(())
    }

    /// Calls `visit` with each key that has a value, by its id, in no order; in a windowed state once a window.
    pub fn for_each_key(self, state: &mut KeyedState, mut visit: impl FnMut(u32, Option<Namespace>, &T)) -> StateResult<()> {
        let (state, at) = state.open_all::<Rows<T>>(self.id())?;
        state.rows.each(at, |key, namespace, cell| cell.iter().for_each(|value| visit(key, namespace, value)));
        Ok(())
    }
}
