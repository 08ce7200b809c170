//! Timers out of a snapshot.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;

use super::{TIME_COLUMN, Timer, TimerNamespace, Timers};

/// Why rows of a snapshot are no timers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimerError {
    /// A column is missing, of another type or has nulls.
    #[error("a snapshot's timers have {found} as column \"{column}\", which is {expected}")]
    Column {
        /// The column.
        column: &'static str,
        /// What it is in timers of this program.
        expected: &'static str,
        /// What was found.
        found: String,
    },
}

impl<N: TimerNamespace> Timers<N> {
    /// Takes the timers of a snapshot. To be called with all batches of a restore together: they are put in order once.
    ///
    /// Shape: batches as the pieces of `freeze`, with or without `_key_group`, beside the ids of their rows' keys. Rows of other
    /// subtasks were left out by the caller.
    /// Errors: another shape; nothing is taken then.
    pub fn restore<'a>(&mut self, parts: impl IntoIterator<Item = (&'a [u32], &'a RecordBatch)>) -> Result<(), TimerError> {
        let mut timers = Vec::new();
        for (keys, batch) in parts {
            let times = batch.column_by_name(TIME_COLUMN).map(time_values);
            let times = times.unwrap_or_else(|| Err("nothing".into()));
            let times =
                times.map_err(|found| TimerError::Column { column: TIME_COLUMN, expected: "TIMESTAMP NOT NULL", found })?;
            let namespaces = N::read(batch)?;
            assert_eq!(keys.len(), times.len(), "every row has a key");
            let rows = keys.iter().zip(times).zip(namespaces);
            timers.extend(rows.map(|((key, time), namespace)| Timer { time: *time, key: *key, namespace }));
        }
        if let Some(key) = timers.iter().map(|timer| timer.key).max().filter(|key| *key as usize >= self.counts.len()) {
            self.counts.resize(key as usize + 1, 0);
        }
        timers.sort_unstable();
        timers.dedup();
        timers.retain(|timer| self.timers.get(timer).is_none());
        timers.iter().for_each(|timer| self.counts[timer.key as usize] += 1);
        self.timers.extend_new(timers.into_iter().map(|timer| (timer, ())).collect());
        Ok(())
    }
}

/// The times of a column, or what it is instead.
fn time_values(column: &ArrayRef) -> Result<&[i64], String> {
    match column.as_primitive_opt::<TimestampMillisecondType>() {
        Some(times) if times.null_count() == 0 => Ok(times.values()),
        Some(times) => Err(format!("{} nulls", times.null_count())),
        None => Err(column.data_type().to_string()),
    }
}
