//! The operators of a node that tells values apart, one behind the other as the planner puts them, driven as one.

use std::collections::VecDeque;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{AggregateSpec, AssignSpec, DistinctSpec, OperatorKind, OperatorSpec, WindowSpec, WindowTime};
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::function::Functions;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::build;
use crate::testing::Closures;

/// Whether the values of this aggregation's calls are told apart by operators before it.
pub(super) fn is_linked(aggregate: &AggregateSpec) -> bool {
    let in_sets = matches!(aggregate.window, WindowSpec::Session { .. } | WindowSpec::Count { .. });
    !aggregate.distinct.is_empty() && !in_sets
}

/// Operators, of which all but the last give something only for rows.
struct Linked {
    specs: Vec<OperatorSpec>,
    operators: Vec<Box<dyn Operator>>,
    /// Rows for the last one.
    waiting: VecDeque<RecordBatch>,
}

/// The operators of an aggregation whose spec is `last`, whose `distinct` values are told apart before it.
pub(super) fn linked(last: OperatorSpec, aggregate: &AggregateSpec) -> Result<Box<dyn Operator>, EngineError> {
    let lateness_ms = aggregate.firing.map_or(0, |firing| firing.lateness_ms);
    let mut specs: Vec<OperatorSpec> = Vec::new();
    let mut spec = AggregateSpec { distinct: Vec::new(), ..aggregate.clone() };
    let mut input = last.input.clone();
    let mut push = |kind: OperatorKind, output: levada_common::types::StreamSchema| {
        let before = std::mem::replace(&mut input, output.clone());
        specs.push(OperatorSpec { kind, input: before, output, sides: Vec::new(), ..last.clone() });
        input.clone()
    };
    let mut schema = last.input.clone();
    if spec.window.overlaps() {
        let window = std::mem::replace(&mut spec.window, WindowSpec::Same);
        let time = std::mem::replace(&mut spec.time, WindowTime { time_zone: None, ..aggregate.time.clone() });
        let assign = AssignSpec { window, time, lateness_ms };
        let output = assign.output(&schema);
        schema = push(OperatorKind::Assign(assign), output);
    }
    let (keys, window, time, values) = (spec.keys.clone(), spec.window.clone(), spec.time.clone(), aggregate.distinct.clone());
    let distinct = DistinctSpec { keys, window, time, lateness_ms, values };
    let output = distinct.output(&schema);
    push(OperatorKind::Distinct(distinct), output);
    specs.push(OperatorSpec { kind: OperatorKind::Aggregate(spec), input, ..last });
    let operators = specs.iter().map(|spec| build(spec, &Closures::default(), &Functions::default()));
    let operators = operators.collect::<Result<_, _>>()?;
    Ok(Box::new(Linked { specs, operators, waiting: VecDeque::new() }))
}

impl Linked {
    fn each<T>(&mut self, act: impl FnMut(&mut Box<dyn Operator>) -> Result<T, EngineError>) -> Result<Vec<T>, EngineError> {
        self.operators.iter_mut().map(act).collect()
    }

    fn give(&mut self, at: usize, batch: RecordBatch) -> Result<(), EngineError> {
        if at + 1 == self.operators.len() {
            self.waiting.push_back(batch);
            return Ok(());
        }
        while !self.operators[at].is_ready()? {
            self.each(|operator| operator.background())?;
        }
        self.operators[at].process(0, batch)?;
        while let Some(batch) = self.operators[at].poll()? {
            self.give(at + 1, batch)?;
        }
        Ok(())
    }

    fn last(&mut self) -> &mut Box<dyn Operator> {
        self.operators.last_mut().expect("there is one")
    }
}

impl Operator for Linked {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let all: Vec<String> = self.specs.iter().flat_map(|spec| spec.state_names()).collect();
        for (spec, operator) in self.specs.iter().zip(&mut self.operators) {
            let mut own = spec.state_names();
            own.extend(spec.kind.heard_states().map(String::from));
            let is_own = |state: &&RestoredState| own.contains(&state.name) || !all.contains(&state.name);
            operator.open(context, restored.iter().filter(is_own).cloned().collect())?;
        }
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        Ok(self.each(|operator| operator.is_ready())?.into_iter().all(|is_ready| is_ready))
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.give(0, batch)
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            if let Some(batch) = self.last().poll()? {
                return Ok(Some(batch));
            }
            let Some(batch) = self.waiting.pop_front() else { return Ok(None) };
            while !self.last().is_ready()? {
                self.each(|operator| operator.background())?;
            }
            self.last().process(0, batch)?;
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        self.last().poll_side()
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        Ok(self.each(|operator| operator.advance(watermark))?.pop().flatten())
    }

    fn keeps_time(&self) -> bool {
        self.operators.iter().any(|operator| operator.keeps_time())
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        let keepers = self.operators.iter_mut().filter(|operator| operator.keeps_time());
        let next = keepers.map(|operator| operator.tick(time_ms)).collect::<Result<Vec<_>, _>>()?;
        Ok(next.into_iter().flatten().min())
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        Ok(self.each(|operator| operator.snapshot(checkpoint, finished))?.into_iter().flatten().collect())
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(self.each(|operator| operator.background())?.contains(&true))
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.each(|operator| {
            operator.advance(Watermark::MAX)?;
            operator.finish()
        })?;
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        self.each(|operator| operator.notify(checkpoint, completed)).map(|_| ())
    }
}
