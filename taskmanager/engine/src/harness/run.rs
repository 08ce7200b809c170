//! A function that runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::json::writer::JsonArray;
use arrow::json::{ArrayWriter, ReaderBuilder, WriterBuilder};
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::keys::{KeyGroupRange, key_groups, owner_of_group};
use levada_common::plan::SecondInput;
use levada_common::time::Watermark;
use levada_common::types::{Column, StreamSchema};
use serde_json::Value;

use super::snapshot::HarnessSnapshot;
use super::{Harness, HarnessError};
use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::metrics::NodeMetrics;
use crate::operator::{Operator, OperatorContext};
use crate::operators;

/// A function that runs in one or several instances.
pub struct HarnessRun {
    harness: Harness,
    input: StreamSchema,
    broadcast: Option<StreamSchema>,
    subtasks: Vec<Box<dyn Operator>>,
    metrics: Arc<NodeMetrics>,
    /// The instance that gets the next batch without a key.
    next: usize,
    checkpoint: u64,
    output: Vec<RecordBatch>,
    side_names: Vec<String>,
    /// By its outputs beside the main one.
    sides: Vec<Vec<RecordBatch>>,
}

/// A function needs no expression.
struct NoExpressions;

impl ExpressionCompiler for NoExpressions {
    fn compile(
        &self,
        sql: &str,
        _input: &StreamSchema,
        _result: &levada_common::types::LogicalType,
    ) -> Result<Arc<dyn Expression>, String> {
        Err(format!("a harness compiles no expression: {sql}"))
    }
}

impl HarnessRun {
    pub(super) fn open(harness: Harness, snapshot: Option<&HarnessSnapshot>) -> Result<Self, HarnessError> {
        let (spec, functions) = (harness.spec(), harness.functions());
        let metrics = Arc::new(NodeMetrics::new(spec.uid.clone()));
        let (budget, overlay) = (Harness::budget(), harness.overlay());
        let databases =
            snapshot.filter(|_| harness.in_databases).map(|snapshot| snapshot.databases.as_slice()).unwrap_or_default();
        let states = harness.states();
        let mut subtasks = Vec::new();
        for subtask in 0..harness.parallelism {
            let mut operator = operators::build(&spec, &NoExpressions, &functions)?;
            let key_groups = KeyGroupRange::of_subtask(subtask, harness.parallelism, harness.max_parallelism);
            let context = OperatorContext {
                subtask,
                parallelism: harness.parallelism,
                max_parallelism: harness.max_parallelism,
                key_groups,
                batch_rows_max: harness.batch_rows_max,
                metrics: Arc::clone(&metrics),
                heap_budget: Arc::clone(&budget),
                cold: overlay.clone().map(|overlay| harness.stores(overlay, databases, key_groups)),
            };
            let of_subtask = (subtask, harness.parallelism);
            let restored = snapshot.map(|snapshot| snapshot.of(of_subtask, &states, !databases.is_empty())).unwrap_or_default();
            operator.open(&context, restored)?;
            subtasks.push(operator);
        }
        let broadcast = harness.function.declaration().broadcast.clone().map(StreamSchema::append);
        let checkpoint = snapshot.map_or(0, |snapshot| snapshot.checkpoint);
        let sides = vec![Vec::new(); spec.sides.len()];
        let side_names = spec.sides.iter().map(|side| side.name.clone()).collect();
        let (next, output, input) = (0, Vec::new(), spec.input);
        let mut run = Self { input, harness, broadcast, subtasks, metrics, next, checkpoint, output, side_names, sides };
        run.drain()?;
        Ok(run)
    }

    /// Gives rows, one JSON object each, to the instances that have their keys (without a key to one instance in turn).
    ///
    /// Errors: rows that do not fit the input; what the function answers.
    pub fn push(&mut self, rows: &[Value]) -> Result<(), HarnessError> {
        let batches = read(rows, &self.input, self.harness.batch_rows_max)?;
        batches.into_iter().try_for_each(|batch| self.push_batch(batch))
    }

    /// The same for a batch: the key's columns that the function does not declare, then the declared ones.
    pub fn push_batch(&mut self, batch: RecordBatch) -> Result<(), HarnessError> {
        let place = |key: &Column| self.input.batch_index(&key.name);
        let places = self.harness.keys.iter().filter_map(place).collect::<Vec<_>>();
        self.spread(0, &places, batch)
    }

    /// Gives rows of the second input, which has the key too, to the instances that have their keys.
    ///
    /// Errors: as `push`; a function without such an input.
    pub fn push_second(&mut self, rows: &[Value]) -> Result<(), HarnessError> {
        let SecondInput { schema, keys } = self.harness.second().ok_or_else(|| self.no_input("second"))?;
        let places: Vec<usize> = keys.iter().filter_map(|key| schema.batch_index(key)).collect();
        let batches = read(rows, &schema, self.harness.batch_rows_max)?;
        batches.into_iter().try_for_each(|batch| self.spread(1, &places, batch))
    }

    /// The counters of all instances together.
    #[cfg(test)]
    pub(crate) fn metrics(&self) -> &NodeMetrics {
        &self.metrics
    }

    fn no_input(&self, input: &'static str) -> HarnessError {
        HarnessError::NoInput { function: self.harness.function.declaration().name.clone(), input }
    }

    /// Gives rows of an input to the instances that have their keys, which stand at these places.
    fn spread(&mut self, input: usize, keys: &[usize], batch: RecordBatch) -> Result<(), HarnessError> {
        let keys: Vec<ArrayRef> = keys.iter().map(|place| Arc::clone(batch.column(*place))).collect();
        if keys.is_empty() {
            let subtask = self.next;
            self.next = (self.next + 1) % self.subtasks.len();
            self.process(subtask, input, batch)?;
            return self.drain();
        }
        let (max, parallelism) = (self.harness.max_parallelism, self.harness.parallelism);
        let mut groups = Vec::new();
        key_groups(&keys, max, &mut groups);
        for subtask in 0..parallelism {
            let mine = groups.iter().enumerate().filter(|(_, group)| owner_of_group(**group, parallelism, max) == subtask);
            let rows: Vec<u32> = mine.map(|(row, _)| row as u32).collect();
            if !rows.is_empty() {
                let part = take_record_batch(&batch, &UInt32Array::from(rows)).map_err(HarnessError::Rows)?;
                self.process(subtask as usize, input, part)?;
                self.drain()?;
            }
        }
        Ok(())
    }

    /// Gives rows of the second input to every instance.
    ///
    /// Errors: as `push`; a function without such an input.
    pub fn push_broadcast(&mut self, rows: &[Value]) -> Result<(), HarnessError> {
        let schema = self.broadcast.clone().ok_or_else(|| self.no_input("broadcast"))?;
        for batch in read(rows, &schema, self.harness.batch_rows_max)? {
            for subtask in 0..self.subtasks.len() {
                self.process(subtask, 1, batch.clone())?;
            }
            self.drain()?;
        }
        Ok(())
    }

    /// Event time reaches `time_ms`: no row with it or an earlier one comes any more, and timers up to it fire.
    pub fn watermark(&mut self, time_ms: i64) -> Result<(), HarnessError> {
        self.each(|subtask| subtask.advance(Watermark(time_ms)).map(drop))
    }

    /// Processing time is `time_ms`, in milliseconds since 1970: timers up to it fire. It may not go back.
    pub fn processing_time(&mut self, time_ms: i64) -> Result<(), HarnessError> {
        self.each(|subtask| subtask.tick(time_ms).map(drop))
    }

    /// The same for one instance alone.
    #[cfg(test)]
    pub(crate) fn processing_time_of(&mut self, instance: usize, time_ms: i64) -> Result<(), HarnessError> {
        self.subtasks[instance].tick(time_ms)?;
        self.drain()
    }

    /// The data ends: all timers of event time fire, and the function is closed.
    pub fn finish(&mut self) -> Result<(), HarnessError> {
        self.watermark(i64::MAX)?;
        self.each(|subtask| subtask.finish())
    }

    /// Takes a snapshot, of all instances.
    pub fn snapshot(&mut self) -> Result<HarnessSnapshot, HarnessError> {
        self.checkpoint += 1;
        let checkpoint = CheckpointId(self.checkpoint);
        let mut snapshot = HarnessSnapshot::new(self.checkpoint);
        for subtask in &mut self.subtasks {
            subtask.before_barrier()?;
            let parts = subtask.snapshot(checkpoint, false)?;
            while subtask.background()? {}
            parts.into_iter().try_for_each(|part| snapshot.take(part, self.harness.max_parallelism))?;
            subtask.notify(checkpoint, true)?;
        }
        Ok(snapshot)
    }

    /// What the function gave since this was asked last, a JSON object a row: of one key in order, of several keys in the order of
    /// their instances.
    pub fn output(&mut self) -> Result<Vec<Value>, HarnessError> {
        json(&self.batches())
    }

    /// What it gave to its output `side`, likewise; in a window what came too late, under `late` or `late_left` and `late_right`.
    ///
    /// Errors: as `output`; an output that it does not have.
    pub fn side_output(&mut self, side: &str) -> Result<Vec<Value>, HarnessError> {
        let declaration = self.harness.function.declaration();
        let at = self.side_names.iter().position(|known| known == side);
        let no_side = || HarnessError::NoSide { function: declaration.name.clone(), side: side.into() };
        json(&std::mem::take(&mut self.sides[at.ok_or_else(no_side)?]))
    }

    /// The same as `output`, as batches.
    pub fn batches(&mut self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.output)
    }

    /// The function's counters, over all instances.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.metrics.counters().into_iter().collect()
    }

    fn each(&mut self, mut does: impl FnMut(&mut Box<dyn Operator>) -> Result<(), EngineError>) -> Result<(), HarnessError> {
        self.subtasks.iter_mut().try_for_each(&mut does)?;
        self.drain()
    }

    /// Gives an instance rows as a task does: when it is ready, and with the work that waits beside them.
    fn process(&mut self, subtask: usize, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let subtask = &mut self.subtasks[subtask];
        wait_ready(subtask)?;
        subtask.process(input, batch)?;
        subtask.background().map(drop)
    }

    fn drain(&mut self) -> Result<(), HarnessError> {
        for subtask in &mut self.subtasks {
            loop {
                wait_ready(subtask)?;
                if let Some(batch) = subtask.poll()? {
                    self.output.push(batch);
                } else if let Some((side, batch)) = subtask.poll_side()? {
                    self.sides[side].push(batch);
                } else {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Waits until the operator's store has written enough.
fn wait_ready(operator: &mut Box<dyn Operator>) -> Result<(), EngineError> {
    while !operator.is_ready()? {
        operator.background()?;
    }
    Ok(())
}

/// Batches as JSON objects.
fn json(batches: &[RecordBatch]) -> Result<Vec<Value>, HarnessError> {
    let mut writer: ArrayWriter<Vec<u8>> = WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(Vec::new());
    for batch in batches {
        writer.write(batch).map_err(HarnessError::Output)?;
    }
    writer.finish().map_err(HarnessError::Output)?;
    let text = writer.into_inner();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&text).map_err(|error| HarnessError::Output(arrow::error::ArrowError::JsonError(error.to_string())))
}

/// JSON objects as batches of `schema`.
fn read(rows: &[Value], schema: &StreamSchema, rows_max: usize) -> Result<Vec<RecordBatch>, HarnessError> {
    let mut batches = Vec::new();
    for part in rows.chunks(rows_max) {
        let reader = ReaderBuilder::new(schema.to_arrow()).with_batch_size(rows_max).with_strict_mode(true);
        let mut decoder = reader.build_decoder().map_err(HarnessError::Rows)?;
        decoder.serialize(part).map_err(HarnessError::Rows)?;
        batches.extend(decoder.flush().map_err(HarnessError::Rows)?);
    }
    Ok(batches)
}
