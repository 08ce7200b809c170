//! `AggregatingState`: one accumulator a key, into which what is added is aggregated.

use std::sync::Arc;

use crate::descriptor::{AggregateFunction, AggregatingState, AggregatingStateDescriptor};
use crate::keyed::at::{At, Namespace};
use crate::keyed::cells::Cells;
use crate::keyed::error::StateResult;
use crate::keyed::rows::{AnyState, State};
use crate::keyed::state::KeyedState;
use crate::keyed::table::TableInfo;

type Rows<A> = State<Cells<Option<<A as AggregateFunction>::Accumulator>>, Arc<A>>;

pub(crate) fn make<A: AggregateFunction>(descriptor: &AggregatingStateDescriptor<A>, info: TableInfo) -> Box<dyn AnyState> {
    Box::new(Rows::<A> { rows: Cells::new(info), logic: Arc::clone(descriptor.function()) })
}

impl<A: AggregateFunction> AggregatingState<A> {
    /// What was added so far comes to; `None` where nothing was added.
    #[inline]
    pub fn get(self, state: &mut KeyedState) -> StateResult<Option<A::Output>> {
        let (State { rows, logic }, mut at) = state.open::<Rows<A>>(self.id())?;
        rows.fetch(&mut at)?;
        Ok(rows.read(&at).and_then(Option::as_ref).map(|kept| logic.read(kept)))
    }

    /// Takes an input into the accumulator.
    #[inline]
    pub fn add(self, state: &mut KeyedState, input: A::Input) -> StateResult<()> {
        let (State { rows, logic }, mut at) = state.open::<Rows<A>>(self.id())?;
        rows.fetch(&mut at)?;
        rows.update(&at, |cell| logic.add(cell.get_or_insert_with(|| logic.create()), input));
        Ok(())
    }

    /// Forgets what was added.
    pub fn clear(self, state: &mut KeyedState) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<A>>(self.id())?;
        state.rows.fetch(&mut at)?;
        state.rows.remove(&at);
        Ok(())
    }

    /// The windows for which the current key has an accumulator, in the order of their ends.
    pub fn namespaces(self, state: &mut KeyedState) -> StateResult<Vec<Namespace>> {
        let (state, at) = state.open_key::<Rows<A>>(self.id())?;
        Ok(state.rows.namespaces(at))
    }

    /// Merges the current key's accumulators of the windows `from` into that of `into`, in the order of `from`, and clears them.
    pub fn merge_namespaces(self, state: &mut KeyedState, into: Namespace, from: &[Namespace]) -> StateResult<()> {
        let (State { rows, logic }, mut at) = state.open::<Rows<A>>(self.id())?;
        let into_at = At { namespace: Some(into), ..*at };
        rows.fetch(&mut at.with(&into_at))?;
        for namespace in from.iter().filter(|namespace| **namespace != into) {
            let from_at = At { namespace: Some(*namespace), ..*at };
            rows.fetch(&mut at.with(&from_at))?;
            if let Some(other) = rows.take(&from_at).flatten() {
                rows.update(&into_at, |cell| match cell {
                    Some(kept) => logic.merge(kept, other),
                    None => *cell = Some(other),
                });
            }
        }
        Ok(())
    }

    /// Calls `visit` with each key that has an accumulator, by its id, in no order; in a windowed state once a window.
    pub fn for_each_key(
        self,
        state: &mut KeyedState,
        mut visit: impl FnMut(u32, Option<Namespace>, A::Output),
    ) -> StateResult<()> {
        let (State { rows, logic }, at) = state.open_all::<Rows<A>>(self.id())?;
        rows.each(at, |key, namespace, cell| cell.iter().for_each(|kept| visit(key, namespace, logic.read(kept))));
        Ok(())
    }
}
