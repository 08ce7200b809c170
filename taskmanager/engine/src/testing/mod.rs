//! Doubles for the engine's tests: channels in memory, scripted sources, recording sinks, expressions that are closures, plans.

mod channels;
mod connectors;
mod expressions;
mod library;
mod plans;
mod tasks;

pub(crate) use channels::{Queue, channel};
pub(crate) use connectors::{Script, SinkLog, sink_factory, source_factory};
pub(crate) use expressions::Closures;
pub(crate) use library::collect;
pub(crate) use plans::{column, context, edge, filter, plan, schema, sink, source, vertex};
pub(crate) use tasks::{TestTask, drain, ints, numbers};
