//! What changes set off, on its way out: each a row of its own side alone, or with each row of its key on the other side, or those rows
//! of the other side alone.
//!
//! Invariant: a row is taken back alone only where it went out so, which a mark says; what a time to live has made forgotten is never
//! taken back.

use std::collections::VecDeque;

use levada_common::plan::{JoinKind, JoinSide};
use levada_common::types::RowKind;

use super::changes::{Change, What};
use super::side::Standing;
use crate::operators::rows::NO_ROW;

/// Rows to go out.
#[derive(Debug)]
struct Step {
    side: JoinSide,
    op: RowKind,
    /// The row of the side; none where those of the other side go out alone.
    own: u32,
    /// The next row of the other side; none where the side's row goes out alone.
    other: u32,
}

/// Rows that go out, as numbers.
#[derive(Debug, Default)]
pub(super) struct Emission {
    steps: VecDeque<Step>,
    pub(super) ops: Vec<i8>,
    /// By side.
    pub(super) rows: [Vec<u32>; 2],
}

impl Emission {
    /// Queues what a change of `side` sets off: `first` is the first row of the key on the other side, or `NO_ROW`; `standing` is
    /// the side.
    pub(super) fn queue(&mut self, kind: JoinKind, side: JoinSide, change: &Change, first: u32, standing: &mut Standing) {
        use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
        let (keeps, other_keeps) = match side {
            JoinSide::Left => (kind.keeps_left(), kind.keeps_right()),
            JoinSide::Right => (kind.keeps_right(), kind.keeps_left()),
        };
        let meets = first != NO_ROW;
        // Left rows of a semi-join go out alone where they meet one, all others where they meet none.
        let is_semi = kind == JoinKind::Semi;
        let goes_alone = if is_semi { side == JoinSide::Left && meets } else { keeps && !meets };
        let pairs = meets && kind.gives_pairs();
        let others_turn = meets && (other_keeps || (is_semi && side == JoinSide::Right));
        let mut give = |op, own, other| self.steps.push_back(Step { side, op, own, other });
        match change.what {
            What::Insert { row, is_first } => {
                if is_first && others_turn {
                    give(if is_semi { Insert } else { Delete }, NO_ROW, first);
                }
                if pairs {
                    give(Insert, row, first);
                } else if goes_alone && standing.set_alone(row) {
                    give(Insert, row, NO_ROW);
                }
            }
            What::Delete { row, was_last } => {
                if pairs {
                    give(Delete, row, first);
                } else if standing.is_alone(row) {
                    give(Delete, row, NO_ROW);
                }
                if was_last && others_turn {
                    give(if is_semi { Delete } else { Insert }, NO_ROW, first);
                }
            }
            What::Update { before, after } => {
                if pairs {
                    give(UpdateBefore, before, first);
                    give(UpdateAfter, after, first);
                } else if goes_alone {
                    let replaces = standing.is_alone(before);
                    if replaces {
                        give(UpdateBefore, before, NO_ROW);
                    }
                    standing.set_alone(after);
                    give(if replaces { UpdateAfter } else { Insert }, after, NO_ROW);
                } else if standing.is_alone(before) {
                    give(Delete, before, NO_ROW);
                }
            }
        }
    }

    /// Makes rows of what is queued, up to `rows_max`.
    pub(super) fn fill(&mut self, sides: &mut [Standing; 2], rows_max: usize) {
        while self.ops.len() < rows_max {
            let Some(step) = self.steps.front_mut() else { return };
            let (own, other) = (step.side as usize, 1 - step.side as usize);
            let row = step.other;
            if step.own != NO_ROW || turns(&mut sides[other], row, step.op) {
                self.ops.push(step.op as i8);
                self.rows[own].push(step.own);
                self.rows[other].push(row);
            }
            step.other = if row == NO_ROW { NO_ROW } else { sides[other].lists.after(row) };
            if step.other == NO_ROW {
                self.steps.pop_front();
            }
        }
    }

    /// Whether nothing is queued.
    pub(super) fn is_idle(&self) -> bool {
        self.steps.is_empty()
    }

    /// Forgets the rows that were made.
    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.rows.iter_mut().for_each(Vec::clear);
    }
}

/// Notes that a row goes out alone or is taken back; whether that is a change.
fn turns(standing: &mut Standing, row: u32, op: RowKind) -> bool {
    if op == RowKind::Insert { standing.set_alone(row) } else { standing.clear_alone(row) }
}
