//! Which rows of a group the function does not get: those that a user's evictor names, or all but the last.

use levada_common::plan::Evict;

use crate::function::{EvictorWork, FunctionContext, FunctionError, WindowGroups};
use crate::operators::event_time::event_times;

/// What is left out of groups.
pub(super) enum Evictor {
    /// Rows that came before the last ones, or whose time, in the column of this place, is so much before the last one's.
    Last(Evict, Option<usize>),
    /// Those that a user's evictor names.
    Function(Box<dyn EvictorWork>),
}

impl Evictor {
    pub(super) fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        match self {
            Self::Last(..) => Ok(()),
            Self::Function(evictor) => evictor.open(context),
        }
    }

    /// Unmarks what goes before the function gets the groups.
    pub(super) fn before(&mut self, groups: &WindowGroups, keep: &mut [bool]) -> Result<(), FunctionError> {
        let (evict, time) = match self {
            Self::Function(evictor) => return evictor.before(groups, keep),
            Self::Last(evict, time) => (*evict, *time),
        };
        let (rows, spans) = &groups.inputs[0];
        let times = time.and_then(|at| event_times(rows.column(at)));
        for span in spans {
            match (evict, times) {
                (Evict::Rows { rows }, _) => keep[span.start..span.end.saturating_sub(rows as usize).max(span.start)].fill(false),
                (Evict::Time { ms }, Some(times)) => {
                    let times = &times[span.clone()];
                    let last = times.iter().copied().max().unwrap_or(i64::MIN);
                    keep[span.clone()].iter_mut().zip(times).for_each(|(keep, time)| *keep = *time > last.saturating_sub(ms));
                }
                (Evict::Time { .. }, None) => {}
            }
        }
        Ok(())
    }

    /// Unmarks what goes after the function got the groups.
    pub(super) fn after(&mut self, groups: &WindowGroups, keep: &mut [bool]) -> Result<(), FunctionError> {
        match self {
            Self::Last(..) => Ok(()),
            Self::Function(evictor) => evictor.after(groups, keep),
        }
    }
}
