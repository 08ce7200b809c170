//! What one top-N looks at and what it gives: columns by place, the encoded order, schemas.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, UInt32Array, new_null_array};
use arrow::compute::{SortOptions, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use levada_common::ids::Uid;
use levada_common::keys::{KeyGroupRange, normalise_key_column};
use levada_common::plan::{OperatorSpec, TopSpec, TopWindow, WindowTime};
use levada_common::types::{Column, StreamSchema};
use levada_state::format::KEY_PREFIX;
use levada_state::row_codec::TTL_COLUMN;
use levada_state::snapshot::StateMeta;

use super::best::Stamps;
use crate::error::EngineError;
use crate::operator::{RestoredState, in_groups, restored_column};
use crate::operators::rows::{EntryPlaces, Part, restored_since};
use crate::operators::window::{Grid, Spread, WINDOW_END, WINDOW_START, Window, WindowSource, time_column, zone};

/// A top-N, resolved against its input.
pub(super) struct Shape {
    pub(super) uid: Uid,
    pub(super) clause: String,
    keys: Vec<usize>,
    pub(super) key_types: Vec<DataType>,
    order: Vec<usize>,
    encoder: RowConverter,
    pub(super) limit: u32,
    pub(super) changelog_full: bool,
    /// Rows that are in stay in: what comes in goes out as it came.
    pub(super) is_append: bool,
    places: bool,
    /// Whether rows that are equal to the last of the best ones stay, too.
    pub(super) with_ties: bool,
    /// Where windows come from; without any, rows go out as they come.
    pub(super) windows: Option<WindowSource>,
    /// By what rows are in their windows.
    pub(super) placed_by: String,
    /// Where windows overlap: how rows come into each of theirs.
    spread: Option<Spread>,
    /// For each column of what a window gives, where it comes from.
    origins: Vec<Origin>,
    /// Places in the input of what is kept of a row.
    kept: Vec<usize>,
    /// Place of the encoded order among the kept columns.
    pub(super) order_place: usize,
    /// Schema of rows that are taken in: what comes, and of which window each row is where they overlap, else in those of processing
    /// time when it came in.
    input: SchemaRef,
    notes_arrival: bool,
    output: SchemaRef,
    pub(super) state: StateMeta,
    /// Schema of a snapshot's pieces.
    pub(super) pieces: SchemaRef,
    /// For each of its columns, its place among the kept ones.
    pub(super) saved: Vec<usize>,
}

/// Where a column of what a window gives comes from.
enum Origin {
    Input(usize),
    Place,
    WindowStart,
    WindowEnd,
    WindowTime,
}

/// Bytes at the end of an encoded order that say when a row arrived: a number that is never null.
const ARRIVAL_BYTES: usize = 9;

/// Rows that a snapshot had.
pub(super) struct RestoredRows {
    /// The columns of the input; those that are not kept have no values that matter.
    pub(super) columns: Vec<ArrayRef>,
    pub(super) stamps: Stamps,
}

impl Shape {
    pub(super) fn new(spec: &OperatorSpec, top: &TopSpec) -> Result<Self, EngineError> {
        let invariant = |message: String| EngineError::Invariant { uid: spec.uid.clone(), message };
        let place =
            |name: &String| spec.input.batch_index(name).ok_or_else(|| invariant(format!("no column \"{name}\" in the input")));
        let keys = top.keys.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let order = top.order.iter().map(|by| place(&by.column)).collect::<Result<Vec<_>, _>>()?;
        let kept_input = top.kept(&spec.input);
        let input = kept_input.to_arrow();
        let data_type = |at: &usize| input.field(*at).data_type().clone();
        let fields = order.iter().zip(&top.order).map(|(at, by)| {
            // Null is the least value.
            SortField::new_with_options(data_type(at), SortOptions { descending: by.descending, nulls_first: !by.descending })
        });
        // Of equal rows the one that came first is better, or the one that came last: no two are equal.
        let arrival = SortOptions { descending: top.newest_wins, nulls_first: true };
        let fields = fields.chain([SortField::new_with_options(DataType::Int64, arrival)]);
        let encoder = RowConverter::new(fields.collect()).map_err(|error| invariant(error.to_string()))?;
        let is_append = top.is_append();
        let (windows, placed_by) = match &top.window {
            None => (None, String::new()),
            Some(window) => {
                window_source(window, top.local, &kept_input).map(|(source, by)| (Some(source), by)).map_err(invariant)?
            }
        };
        let spread = match &top.window {
            Some(TopWindow::Overlapping { windows, time }) if !top.local => {
                Some(Spread::new(windows, time, &spec.input).map_err(invariant)?)
            }
            Some(_) | None => None,
        };
        // The columns of a window stand behind all others.
        let own = [Origin::WindowStart, Origin::WindowEnd, Origin::WindowTime];
        let others = spec.output.columns.len().checked_sub(own.len()).filter(|_| windows.is_some()).unwrap_or(0);
        let origin = |column: &Column| match Some(&column.name) == top.place.as_ref() {
            true => Ok(Origin::Place),
            false => place(&column.name).map(Origin::Input),
        };
        let origins = spec.output.columns[..others].iter().map(origin).chain(own.map(Ok));
        let origins = origins.collect::<Result<Vec<_>, EngineError>>()?;
        let others = (0..input.fields().len()).filter(|at| !keys.contains(at));
        let kept: Vec<usize> = if is_append { keys.clone() } else { keys.iter().copied().chain(others).collect() };
        let declaration = top.state(&spec.input);
        let key_field = |at: &usize| Field::new(format!("{KEY_PREFIX}{}", input.field(*at).name()), data_type(at), true);
        let values = kept[keys.len()..].iter().map(|at| input.field(*at).clone());
        let ttl = top.ttl_ms.map(|_| Field::new(TTL_COLUMN, DataType::Timestamp(TimeUnit::Millisecond, None), false));
        let arrival = Field::new(TopSpec::ARRIVAL, DataType::Int64, false);
        // Behind what is kept of a row stand its order, when it arrived, and since when it stands; the order is not saved.
        let saved = (0..kept.len()).chain([kept.len() + 1]).chain(ttl.as_ref().map(|_| kept.len() + 2)).collect();
        let fields = keys.iter().map(key_field).chain(values).chain([arrival]).chain(ttl);
        let pieces = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        // In windows a key is one of a window: its start and end belong to it.
        let time = || DataType::Timestamp(TimeUnit::Millisecond, None);
        let window_types: Vec<DataType> = windows.iter().flat_map(|_| [time(), time()]).collect();
        Ok(Self {
            uid: spec.uid.clone(),
            clause: spec.clause.clone(),
            key_types: keys.iter().map(data_type).chain(window_types).collect(),
            keys,
            order,
            encoder,
            limit: top.limit,
            changelog_full: top.changelog_full,
            is_append,
            places: top.place.is_some(),
            with_ties: top.with_ties,
            windows,
            placed_by,
            spread,
            origins,
            order_place: kept.len(),
            kept,
            output: spec.output.to_arrow(),
            state: StateMeta {
                uid: spec.uid.clone(),
                name: declaration.name,
                kind: declaration.kind,
                schema: Arc::new(declaration.schema),
            },
            input,
            notes_arrival: kept_input.event_time.as_deref() == Some(WindowTime::ARRIVED),
            pieces,
            saved,
        })
    }

    /// Whether rows go out with their place.
    pub(super) fn has_places(&self) -> bool {
        self.places
    }

    /// Where an entry of a store has its columns in the heap, in which the number stands behind the arrival.
    pub(super) fn entry_places(&self) -> EntryPlaces {
        let (keys, arrival) = (self.keys.len(), self.order_place + 1);
        let values = (keys..self.kept.len()).chain([arrival]).map(Some).collect();
        let since = self.pieces.field_with_name(TTL_COLUMN).is_ok().then_some(arrival + 2);
        // Rows of windows have no time to live.
        let window = self.windows.as_ref().map(|_| [arrival + 2, arrival + 3]);
        EntryPlaces {
            keys: (0..keys).collect(),
            window,
            values,
            number: arrival + 1,
            since,
            width: arrival + 2 + usize::from(since.is_some()) + 2 * usize::from(window.is_some()),
        }
    }

    /// The columns of the window among those of keys, where it belongs to the key: the last two.
    pub(super) fn window_of_key<'k>(&self, keys: &'k [ArrayRef]) -> &'k [ArrayRef] {
        &keys[self.keys.len()..]
    }

    /// Starts and ends of the windows of rows in front of a store, by the columns of the heap.
    pub(super) fn windows_of_rows<'c>(&self, columns: &'c [ArrayRef]) -> Option<(&'c [i64], &'c [i64])> {
        let [start, end] = self.entry_places().window?;
        let times = |at: usize| -> &'c [i64] { columns[at].as_primitive::<TimestampMillisecondType>().values() };
        Some((times(start), times(end)))
    }

    /// The columns of the input, `kept` the ones that are kept, by place; others have no values that matter.
    pub(super) fn input_columns(&self, kept: impl Fn(usize) -> Option<ArrayRef>, rows: usize) -> Vec<ArrayRef> {
        let column = |(at, field): (usize, &Arc<Field>)| {
            let place = self.kept.iter().position(|kept| *kept == at);
            place.and_then(&kept).unwrap_or_else(|| new_null_array(field.data_type(), rows))
        };
        self.input.fields().iter().enumerate().map(column).collect()
    }

    /// The key columns of rows.
    pub(super) fn keys(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        self.keys.iter().map(|at| Arc::clone(&columns[*at])).collect()
    }

    /// The key columns of rows in this window, to whose key it belongs.
    pub(super) fn keys_in(&self, columns: &[ArrayRef], window: Window, rows: usize) -> Vec<ArrayRef> {
        let (start, end) = window.columns(rows);
        self.keys(columns).into_iter().chain([start, end]).collect()
    }

    /// The columns of rows that are kept.
    pub(super) fn stored(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        self.kept.iter().map(|at| Arc::clone(&columns[*at])).collect()
    }

    /// What rows are ordered by, as bytes: the better, the less.
    pub(super) fn orders(&self, columns: &[ArrayRef], arrivals: &ArrayRef) -> Result<BinaryArray, EngineError> {
        let order = self.order.iter().map(|at| &columns[*at]);
        // Floats have one zero and one NaN, as among keys.
        let columns: Vec<ArrayRef> = order.chain([arrivals]).map(|column| normalise_key_column(Arc::clone(column))).collect();
        let rows = self.encoder.convert_columns(&columns).map_err(|source| self.kernel(source))?;
        rows.try_into_binary().map_err(|source| self.kernel(source))
    }

    /// These rows of a batch, as they came.
    pub(super) fn rows(&self, batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch, EngineError> {
        let taken = take_record_batch(batch, &UInt32Array::from(rows.to_vec())).map_err(|source| self.kernel(source))?;
        RecordBatch::try_new(Arc::clone(&self.output), taken.columns().to_vec()).map_err(|source| self.kernel(source))
    }

    /// Changes of these rows.
    pub(super) fn changes(&self, ops: ArrayRef, rows: &Part<'_>, places: ArrayRef) -> Result<RecordBatch, EngineError> {
        let count = ops.len();
        let columns =
            (0..self.input.fields().len()).map(|at| self.kept_column(rows, at, count)).collect::<Result<Vec<_>, _>>()?;
        let columns = std::iter::once(ops).chain(columns).chain(self.places.then_some(places)).collect();
        RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(|source| self.kernel(source))
    }

    /// An encoded order but for when the row arrived.
    pub(super) fn without_arrival<'o>(&self, order: &'o [u8]) -> &'o [u8] {
        &order[..order.len() - ARRIVAL_BYTES]
    }

    /// A batch of what a window gives: these rows, with their places.
    pub(super) fn of_window(&self, window: Window, rows: &Part<'_>, places: ArrayRef) -> Result<RecordBatch, EngineError> {
        let count = places.len();
        let columns = self.origins.iter().map(|origin| match origin {
            Origin::Input(at) => self.kept_column(rows, *at, count),
            Origin::Place => Ok(Arc::clone(&places)),
            Origin::WindowStart => Ok(window.columns(count).0),
            Origin::WindowEnd => Ok(window.columns(count).1),
            Origin::WindowTime => Ok(window.time_column(count)),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(|source| self.kernel(source))
    }

    /// A column of the input, of rows that are kept.
    fn kept_column(&self, rows: &Part<'_>, at: usize, count: usize) -> Result<ArrayRef, EngineError> {
        let place = self.kept.iter().position(|kept| *kept == at).expect("every column of a row is kept");
        rows.column(place, self.input.field(at).data_type(), count).map_err(|source| self.kernel(source))
    }

    /// The rows of a batch as they are taken in, which come at `now`, where that is kept; in windows that overlap once for each of theirs
    /// that has not fired at this watermark, and which rows have none.
    pub(super) fn taken(
        &self,
        batch: &RecordBatch,
        now: Option<i64>,
        watermark: i64,
    ) -> Result<(RecordBatch, Vec<u32>), EngineError> {
        if let Some(spread) = &self.spread {
            let series = spread.series();
            let rows = spread.rows(batch, now, |slice, windows| windows.extend(series.after(slice, watermark)));
            let mut rows = rows.map_err(|reason| self.invariant(reason))?;
            let late = std::mem::take(&mut rows.late);
            let columns = rows.columns(batch).map_err(|reason| self.invariant(reason))?;
            return Ok((self.batch(columns)?, late));
        }
        let Some(now) = now.filter(|_| self.notes_arrival) else { return Ok((batch.clone(), Vec::new())) };
        let arrived = time_column(now, batch.num_rows());
        Ok((self.batch(batch.columns().iter().cloned().chain([arrived]).collect())?, Vec::new()))
    }

    /// A batch of the columns of rows that are taken in.
    pub(super) fn batch(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch, EngineError> {
        RecordBatch::try_new(Arc::clone(&self.input), columns).map_err(|source| self.kernel(source))
    }

    /// A rule of the engine's own was broken.
    pub(super) fn invariant(&self, message: String) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message }
    }

    /// The rows of a snapshot that are in these key groups.
    ///
    /// Errors: `Restore` where another state, column or type was saved than this top-N has.
    pub(super) fn restored(&self, groups: KeyGroupRange, restored: Vec<RestoredState>) -> Result<Vec<RestoredRows>, EngineError> {
        let mut rows = Vec::new();
        for state in restored {
            let refuse = |reason: String| EngineError::Restore { uid: self.uid.clone(), state: state.name.clone(), reason };
            if state.name != self.state.name {
                return Err(refuse(format!("this operator's state is \"{}\"", self.state.name)));
            }
            for batch in state.batches {
                rows.extend(self.restored_batch(groups, &batch)?);
            }
        }
        Ok(rows)
    }

    /// Likewise of one batch; nothing where it has none of these key groups.
    pub(super) fn restored_batch(&self, groups: KeyGroupRange, batch: &RecordBatch) -> Result<Option<RestoredRows>, EngineError> {
        let refuse = |reason: String| EngineError::Restore { uid: self.uid.clone(), state: self.state.name.clone(), reason };
        let batch = in_groups(batch, groups).map_err(refuse)?;
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        self.columns(&batch).map(Some).map_err(refuse)
    }

    /// The rows of a batch that has the columns of the state, by name.
    ///
    /// Errors: what does not fit, in words.
    pub(super) fn columns(&self, batch: &RecordBatch) -> Result<RestoredRows, String> {
        let (mut kept, mut arrivals, mut since) = (Vec::new(), None, None);
        for (at, field) in self.pieces.fields().iter().enumerate() {
            if at < self.kept.len() {
                kept.push(Arc::clone(restored_column(batch, field)?));
            } else if field.name() == TTL_COLUMN {
                since = Some(restored_since(batch, field)?);
            } else {
                arrivals = Some(Arc::clone(restored_column(batch, field)?));
            }
        }
        let columns = self.input_columns(|place| kept.get(place).cloned(), batch.num_rows());
        let arrivals = arrivals.ok_or("when its rows arrived is not saved")?;
        Ok(RestoredRows { columns, stamps: Stamps { arrivals, since } })
    }

    /// An Arrow kernel failed.
    pub(super) fn kernel(&self, source: ArrowError) -> EngineError {
        EngineError::Kernel { uid: self.uid.clone(), clause: self.clause.clone(), source }
    }
}

/// Where windows come from, of rows that are kept with these columns, and by what the rows are in them.
///
/// Errors: a column that there is not, in words.
fn window_source(window: &TopWindow, is_local: bool, kept: &StreamSchema) -> Result<(WindowSource, String), String> {
    let place = |name: &str| kept.batch_index(name).ok_or_else(|| format!("no column \"{name}\" in the input"));
    let of_columns =
        |[start, end]: [&str; 2]| Ok((WindowSource::Columns { start: place(start)?, end: place(end)? }, start.to_owned()));
    let of_times = |(length_ms, offset_ms), time: &WindowTime| {
        let grid = Grid::new(length_ms, offset_ms, zone(time.time_zone.as_deref())?);
        let time = kept.event_time.clone().ok_or("a window without event time")?;
        Ok((WindowSource::Times { time: place(&time)?, grid }, time))
    };
    match window {
        TopWindow::Tumbling { size_ms, offset_ms, time } => of_times((*size_ms, *offset_ms), time),
        // Who is not among the best of a slice is so in no window, since each has it whole or not at all.
        TopWindow::Overlapping { windows, time } if is_local && !time.processing => {
            of_times(windows.slices().ok_or("windows that overlap have slices")?, time)
        }
        TopWindow::Overlapping { .. } => of_columns(TopSpec::WINDOW),
        TopWindow::Same => of_columns([WINDOW_START, WINDOW_END]),
    }
}
