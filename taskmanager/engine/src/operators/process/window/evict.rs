//! Which rows of a group the function gets: all, or the last ones.

use levada_common::plan::Evict;

use crate::operators::event_time::event_times;
use crate::operators::rows::RowBuffer;

/// What is left out of a group.
#[derive(Debug, Clone, Copy)]
pub(super) enum Evictor {
    /// All but the last rows.
    Rows(usize),
    /// Rows whose time, in this column, is at least so much before the last one's.
    Time { column: usize, ms: i64 },
}

impl Evictor {
    /// What the plan says, where the event time of the kept columns is in this place.
    ///
    /// Errors: times without an event time, as text.
    pub(super) fn new(evict: &Evict, time: Option<usize>) -> Result<Self, String> {
        Ok(match evict {
            Evict::Rows { rows } => Self::Rows(*rows as usize),
            Evict::Time { ms } => Self::Time { column: time.ok_or("eviction by time without event time")?, ms: *ms },
        })
    }

    /// Takes rows of a group out: those in `rows` from `start` on, numbered over the buffers.
    pub(super) fn evict(self, buffers: &[&RowBuffer], start: usize, rows: &mut Vec<u32>) {
        match self {
            Self::Rows(kept) => drop(rows.drain(start..rows.len().saturating_sub(kept).max(start))),
            Self::Time { column, ms } => {
                let times: Vec<i64> = rows[start..].iter().map(|row| time(buffers, column, *row)).collect();
                let last = times.iter().copied().max().unwrap_or(i64::MIN);
                let mut kept = start;
                for (at, time) in (start..).zip(times) {
                    if time > last.saturating_sub(ms) {
                        rows[kept] = rows[at];
                        kept += 1;
                    }
                }
                rows.truncate(kept);
            }
        }
    }
}

/// The event time of a row.
fn time(buffers: &[&RowBuffer], column: usize, row: u32) -> i64 {
    let mut row = row as usize;
    for buffer in buffers {
        if row < buffer.len() {
            let (columns, place) = buffer.at(row);
            return event_times(&columns[column]).map_or(i64::MIN, |times| times[place]);
        }
        row -= buffer.len();
    }
    i64::MIN
}
