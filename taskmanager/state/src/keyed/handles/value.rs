//! `ValueState`: one value a key.

use crate::descriptor::{ValueState, ValueStateDescriptor};
use crate::keyed::at::Namespace;
use crate::keyed::cells::Cells;
use crate::keyed::error::StateResult;
use crate::keyed::rows::{AnyState, State};
use crate::keyed::state::KeyedState;
use crate::keyed::table::TableInfo;
use crate::types::StateType;

/// The rows, and what is read where nothing was set.
type Rows<T> = State<Cells<Option<T>>, Option<T>>;

pub(crate) fn make<T: StateType>(descriptor: &ValueStateDescriptor<T>, info: TableInfo) -> Box<dyn AnyState> {
    Box::new(Rows { rows: Cells::new(info), logic: descriptor.default().cloned() })
}

impl<T: StateType> ValueState<T> {
    /// The value; the default where none was set.
    #[inline]
    pub fn get(self, state: &mut KeyedState) -> StateResult<Option<&T>> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch(&mut at)?;
        Ok(state.rows.read(&at).map_or(state.logic.as_ref(), Option::as_ref))
    }

    /// Sets the value.
    #[inline]
    pub fn set(self, state: &mut KeyedState, value: T) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<T>>(self.id())?;
        state.rows.fetch(&mut at)?;
        state.rows.replace(&at, Some(value));
        Ok(())
    }

    /// Changes the value in place, beginning with the default where none was set; `None` afterwards clears it.
    #[inline]
    pub fn update_with<R>(self, state: &mut KeyedState, change: impl FnOnce(&mut Option<T>) -> R) -> StateResult<R> {
        let (State { rows, logic }, mut at) = state.open::<Rows<T>>(self.id())?;
        rows.fetch(&mut at)?;
        Ok(rows.update(&at, |cell| {
            if cell.is_none() {
                cell.clone_from(logic);
            }
            change(cell)
        }))
    }

    /// Forgets the value.
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

    /// Calls `visit` with each key that has a value, by its id, in no order; in a windowed state once a window.
    pub fn for_each_key(self, state: &mut KeyedState, mut visit: impl FnMut(u32, Option<Namespace>, &T)) -> StateResult<()> {
        let (state, at) = state.open_all::<Rows<T>>(self.id())?;
        state.rows.each(at, |key, namespace, cell| cell.iter().for_each(|value| visit(key, namespace, value)));
        Ok(())
    }
}
