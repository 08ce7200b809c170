//! `FoldingState`: one accumulator a key, into which what is added is folded. Windows of it cannot be merged.

use crate::descriptor::{Fold, FoldingState, FoldingStateDescriptor};
use crate::keyed::at::Namespace;
use crate::keyed::cells::Cells;
use crate::keyed::error::StateResult;
use crate::keyed::rows::{AnyState, State};
use crate::keyed::state::KeyedState;
use crate::keyed::table::TableInfo;
use crate::types::StateType;

/// The function, and what it begins with.
struct Folding<I, A> {
    initial: A,
    fold: Fold<I, A>,
}

type Rows<I, A> = State<Cells<Option<A>>, Folding<I, A>>;

pub(crate) fn make<I: 'static, A: StateType>(descriptor: &FoldingStateDescriptor<I, A>, info: TableInfo) -> Box<dyn AnyState> {
    let logic = Folding { initial: descriptor.initial().clone(), fold: descriptor.fold().clone() };
    Box::new(Rows::<I, A> { rows: Cells::new(info), logic })
}

impl<I: 'static, A: StateType> FoldingState<I, A> {
    /// The accumulator; `None` where nothing was added.
    #[inline]
    pub fn get(self, state: &mut KeyedState) -> StateResult<Option<&A>> {
        let (state, mut at) = state.open::<Rows<I, A>>(self.id())?;
        state.rows.fetch(&mut at)?;
        Ok(state.rows.read(&at).and_then(Option::as_ref))
    }

    /// Folds an input into the accumulator.
    #[inline]
    pub fn add(self, state: &mut KeyedState, input: I) -> StateResult<()> {
        let (State { rows, logic }, mut at) = state.open::<Rows<I, A>>(self.id())?;
        rows.fetch(&mut at)?;
        rows.update(&at, |cell| (logic.fold)(cell.get_or_insert_with(|| logic.initial.clone()), input));
        Ok(())
    }

    /// Forgets what was added.
    pub fn clear(self, state: &mut KeyedState) -> StateResult<()> {
        let (state, mut at) = state.open::<Rows<I, A>>(self.id())?;
        state.rows.fetch(&mut at)?;
        state.rows.remove(&at);
        Ok(())
    }

    /// The windows for which the current key has an accumulator, in the order of their ends.
    pub fn namespaces(self, state: &mut KeyedState) -> StateResult<Vec<Namespace>> {
        let (state, at) = state.open_key::<Rows<I, A>>(self.id())?;
        Ok(state.rows.namespaces(at))
    }

    /// Calls `visit` with each key that has an accumulator, by its id, in no order; in a windowed state once a window.
    pub fn for_each_key(self, state: &mut KeyedState, mut visit: impl FnMut(u32, Option<Namespace>, &A)) -> StateResult<()> {
        let (state, at) = state.open_all::<Rows<I, A>>(self.id())?;
        state.rows.each(at, |key, namespace, cell| cell.iter().for_each(|kept| visit(key, namespace, kept)));
        Ok(())
    }
}
