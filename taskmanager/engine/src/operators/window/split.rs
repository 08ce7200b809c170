//! The rows of a batch cut by their windows.

use std::collections::HashMap;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::error::ArrowError;

use super::Window;

/// The rows of a batch that are in one window; row order is kept.
#[derive(Debug)]
pub(in crate::operators) enum Split {
    /// All of them.
    All,
    /// A run of them.
    Run {
        /// First row.
        start: usize,
        /// Number of rows.
        rows: usize,
    },
    /// These.
    Rows(UInt32Array),
}

impl Split {
    /// Number of rows, of a batch that has `all`.
    pub(in crate::operators) fn rows(&self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::Run { rows, .. } => *rows,
            Self::Rows(rows) => rows.len(),
        }
    }

    /// The numbers of the rows, of a batch that has `all`.
    pub(in crate::operators) fn numbers(&self, all: usize) -> Vec<u32> {
        match self {
            Self::All => (0..all as u32).collect(),
            Self::Run { start, rows } => (*start as u32..(start + rows) as u32).collect(),
            Self::Rows(rows) => rows.values().to_vec(),
        }
    }

    /// These rows of the batch's columns.
    pub(in crate::operators) fn columns(&self, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>, ArrowError> {
        match self {
            Self::All => Ok(columns.to_vec()),
            Self::Run { start, rows } => Ok(columns.iter().map(|column| column.slice(*start, *rows)).collect()),
            Self::Rows(rows) => columns.iter().map(|column| take(column, rows, None)).collect(),
        }
    }
}

/// Runs of rows in one window up to which a batch is cut by slices: beyond, windows alternate and rows are gathered.
const RUNS_MAX: usize = 16;

/// Cuts rows that have these windows, at least one.
pub(in crate::operators) fn split_windows(starts: &[i64], ends: &[i64]) -> Vec<(Window, Split)> {
    let (start, end) = (bounds(starts), bounds(ends));
    if start.0 == start.1 && end.0 == end.1 {
        return vec![(Window { start: start.0, end: end.0 }, Split::All)];
    }
    split_runs(starts.len(), |row| {
        let (start, end) = (starts[row], ends[row]);
        let run = starts[row..].iter().zip(&ends[row..]).take_while(|bounds| *bounds == (&start, &end));
        (Window { start, end }, run.count())
    })
}

/// The least and the greatest of at least one value.
pub(super) fn bounds(values: &[i64]) -> (i64, i64) {
    values.iter().fold((i64::MAX, i64::MIN), |(least, greatest), value| (least.min(*value), greatest.max(*value)))
}

/// Cuts rows of which `run_at` says, from each row that it is asked for, the window and how many rows have it, at least one.
pub(super) fn split_runs(rows: usize, mut run_at: impl FnMut(usize) -> (Window, usize)) -> Vec<(Window, Split)> {
    let (mut runs, mut start) = (Vec::new(), 0);
    while start < rows {
        let (window, rows) = run_at(start);
        runs.push((window, start, rows));
        start += rows;
    }
    if runs.len() <= RUNS_MAX {
        return runs.into_iter().map(|(window, start, rows)| (window, Split::Run { start, rows })).collect();
    }
    let windows: Vec<Window> = runs.into_iter().flat_map(|(window, _, rows)| std::iter::repeat_n(window, rows)).collect();
    gather_rows(&windows)
}

/// The rows of each window, by a counting sort.
fn gather_rows(windows: &[Window]) -> Vec<(Window, Split)> {
    let mut numbers: HashMap<Window, usize> = HashMap::new();
    let mut found: Vec<(Window, usize)> = Vec::new();
    let mut last = (windows[0], 0);
    let numbered: Vec<usize> = windows
        .iter()
        .map(|window| {
            if found.is_empty() || *window != last.0 {
                let number = *numbers.entry(*window).or_insert_with(|| {
                    found.push((*window, 0));
                    found.len() - 1
                });
                last = (*window, number);
            }
            found[last.1].1 += 1;
            last.1
        })
        .collect();
    let mut next = 0;
    let mut places: Vec<usize> = found
        .iter()
        .map(|(_, rows)| {
            next += rows;
            next - rows
        })
        .collect();
    let mut sorted = vec![0u32; windows.len()];
    for (row, number) in numbered.into_iter().enumerate() {
        sorted[places[number]] = row as u32;
        places[number] += 1;
    }
    let sorted = UInt32Array::from(sorted);
    let ends = places;
    found.into_iter().zip(ends).map(|((window, rows), end)| (window, Split::Rows(sorted.slice(end - rows, rows)))).collect()
}
