//! An input whose rows wait, resolved: which columns are kept, where windows come from, how rows are saved.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::state_schema::StateDeclaration;
use levada_common::types::{Column, StreamSchema};
use levada_state::format::KEY_PREFIX;
use levada_state::row_codec::TTL_COLUMN;
use levada_state::snapshot::StateMeta;

use crate::operators::rows::Part;
use crate::operators::window::{Grid, NAMESPACE_COLUMN, WindowSource, namespace_type, time_column};

/// One side, resolved against its input.
#[derive(Debug)]
pub(in crate::operators) struct Side {
    /// Places of the key columns.
    keys: Vec<usize>,
    pub(in crate::operators) key_types: Vec<DataType>,
    /// Place of the event time, where rows meet within an interval of it.
    pub(in crate::operators) time: Option<usize>,
    /// Where its windows come from, where rows meet in one.
    pub(in crate::operators) windows: Option<WindowSource>,
    /// Places in a batch of the columns that are kept: the others are read by no one here.
    places: Vec<usize>,
    /// Whether the last kept column is none of these, and says when a row came in.
    notes_arrival: bool,
    /// Whether batches carry `_op` before their columns.
    is_changelog: bool,
    /// Places of the unique key's columns, on a changelog; as all below, among the kept columns.
    unique: Option<Vec<usize>>,
    /// Schema of the kept columns.
    pub(in crate::operators) input: SchemaRef,
    /// Its state.
    pub(in crate::operators) state: StateMeta,
    /// Schema of a snapshot's pieces.
    pub(in crate::operators) pieces: SchemaRef,
    /// For each column of a piece but the marks, its place in the input; that of the window, where the state has windows, is behind
    /// the input's columns.
    pub(in crate::operators) saved: Vec<usize>,
    /// Whether pieces end with a column of marks; before it they have one that says since when rows stand, where they have a time to
    /// live.
    pub(in crate::operators) saves_marks: bool,
}

/// What a side is made of.
pub(in crate::operators) struct SidePlan<'a> {
    /// The node.
    pub(in crate::operators) uid: &'a Uid,
    /// What the input carries.
    pub(in crate::operators) given: &'a StreamSchema,
    /// The columns of it that are kept, without `_op`; in windows of processing time that of a row's arrival behind them.
    pub(in crate::operators) kept: StreamSchema,
    pub(in crate::operators) keys: &'a [String],
    /// By which columns a change finds the row that it replaces, on a changelog.
    pub(in crate::operators) unique: Option<&'a Vec<String>>,
    pub(in crate::operators) meets: Meets,
    /// Whether the last of the kept columns says when a row came in.
    pub(in crate::operators) notes_arrival: bool,
    pub(in crate::operators) state: StateDeclaration,
    /// Whether the last value of the state is a mark.
    pub(in crate::operators) has_mark: bool,
}

/// What of a row says with which others it is together.
#[derive(Debug, Clone, Copy)]
pub(in crate::operators) enum Meets {
    /// Its key alone.
    Anywhere,
    /// Its event time.
    InTime,
    /// The window of its event time in a grid.
    InGrid(Grid),
    /// The window in its columns `window_start` and `window_end`.
    InColumns,
}

impl Side {
    /// Errors: a column that the plan names and the input does not have, as text.
    pub(in crate::operators) fn new(plan: SidePlan<'_>) -> Result<Self, String> {
        let SidePlan { uid, given, kept: input, keys: names, unique, meets, notes_arrival, state: declaration, has_mark } = plan;
        let place = |name: &String| {
            input.batch_index(name).ok_or_else(|| format!("no column \"{name}\" for state \"{}\"", declaration.name))
        };
        let keys = names.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let event_time = || {
            let time = input.event_time.as_ref();
            place(time.ok_or_else(|| format!("no event time for state \"{}\"", declaration.name))?)
        };
        let (time, windows) = match meets {
            Meets::Anywhere => (None, None),
            Meets::InTime => (Some(event_time()?), None),
            Meets::InGrid(grid) => (None, Some(WindowSource::Times { time: event_time()?, grid })),
            Meets::InColumns => {
                let (start, end) = (place(&"window_start".into())?, place(&"window_end".into())?);
                (None, Some(WindowSource::Columns { start, end }))
            }
        };
        let arrow = input.to_arrow();
        let place_given =
            |column: &Column| given.batch_index(&column.name).ok_or_else(|| format!("no column \"{}\"", column.name));
        let of_input = &input.columns[..input.columns.len() - usize::from(notes_arrival)];
        let places = of_input.iter().map(place_given).collect::<Result<Vec<_>, _>>()?;
        let unique = unique.map(|unique| unique.iter().map(place).collect::<Result<Vec<_>, _>>()).transpose()?;
        let ttl = declaration
            .schema
            .ttl
            .is_some()
            .then(|| Field::new(TTL_COLUMN, DataType::Timestamp(TimeUnit::Millisecond, None), false));
        let key = |at: &usize| {
            Field::new(format!("{KEY_PREFIX}{}", arrow.field(*at).name()), arrow.field(*at).data_type().clone(), true)
        };
        let mut values: Vec<Field> = declaration.schema.values.iter().map(Column::to_field).collect();
        let mark = has_mark.then(|| values.pop()).flatten();
        let window = declaration.schema.windowed.then(|| Field::new(NAMESPACE_COLUMN, namespace_type(), false));
        let others = (0..arrow.fields().len()).filter(|at| !keys.contains(at));
        let saved = keys.iter().copied().chain(window.iter().map(|_| arrow.fields().len())).chain(others).collect();
        let pieces = keys.iter().map(key).chain(window).chain(values).chain(ttl).chain(mark);
        let pieces = Arc::new(Schema::new(pieces.collect::<Vec<_>>()));
        let (name, kind) = (declaration.name, declaration.kind);
        Ok(Self {
            key_types: keys.iter().map(|at| arrow.field(*at).data_type().clone()).collect(),
            keys,
            places,
            notes_arrival,
            is_changelog: given.changelog,
            unique,
            time,
            windows,
            input: arrow,
            state: StateMeta { uid: uid.clone(), name, kind, schema: Arc::new(declaration.schema) },
            pieces,
            saved,
            saves_marks: has_mark,
        })
    }

    /// What each row does, on a changelog, and the columns of a batch that are kept.
    pub(in crate::operators) fn split(&self, batch: &RecordBatch) -> (Option<ArrayRef>, Vec<ArrayRef>) {
        let ops = self.is_changelog.then(|| Arc::clone(batch.column(0)));
        (ops, self.places.iter().map(|at| Arc::clone(batch.column(*at))).collect())
    }

    /// The types of the unique key, on a changelog.
    pub(in crate::operators) fn unique_types(&self) -> Option<Vec<DataType>> {
        let unique = self.unique.as_ref()?;
        Some(unique.iter().map(|at| self.input.field(*at).data_type().clone()).collect())
    }

    /// The unique key's columns, on a changelog.
    pub(in crate::operators) fn unique_keys(&self, columns: &[ArrayRef]) -> Option<Vec<ArrayRef>> {
        let unique = self.unique.as_ref()?;
        Some(unique.iter().map(|at| Arc::clone(&columns[*at])).collect())
    }

    /// The rows of a batch that is no changelog, in the columns that are kept; they come in at `now`, where that is kept.
    pub(in crate::operators) fn rows(&self, batch: RecordBatch, now: Option<i64>) -> Result<RecordBatch, ArrowError> {
        if let Some(now) = now.filter(|_| self.notes_arrival) {
            let kept = self.places.iter().map(|at| Arc::clone(batch.column(*at)));
            return self.batch(kept.chain([time_column(now, batch.num_rows())]).collect());
        }
        if batch.num_columns() == self.places.len() { Ok(batch) } else { batch.project(&self.places) }
    }

    /// The kept columns of some rows.
    pub(in crate::operators) fn gather(&self, part: &Part<'_>, rows: usize) -> Result<Vec<ArrayRef>, ArrowError> {
        let fields = self.input.fields().iter().enumerate();
        fields.map(|(at, field)| part.column(at, field.data_type(), rows)).collect()
    }

    /// A batch of the kept columns.
    pub(in crate::operators) fn batch(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_new(Arc::clone(&self.input), columns)
    }

    /// The name of the column that says in which window a row is, where one does.
    pub(in crate::operators) fn time_name(&self) -> Option<&str> {
        match &self.windows {
            Some(WindowSource::Times { time, .. }) => Some(self.input.field(*time).name()),
            _ => None,
        }
    }

    /// The place of a column of the key.
    pub(in crate::operators) fn key(&self, at: usize) -> Option<usize> {
        self.keys.get(at).copied()
    }

    /// The key's columns among those of the input.
    pub(in crate::operators) fn keys(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        self.keys.iter().map(|at| Arc::clone(&columns[*at])).collect()
    }
}
