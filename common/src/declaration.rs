//! What planning must know of a connector: its declaration.
//!
//! Filled in beside each connector and handed to the planner as a table. A declaration opens nothing but what `splits` lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::function::FunctionDeclaration;
use crate::types::{Column, StreamSchema};

/// The options of one node as written in the job graph, defaults not filled in.
pub type Options = serde_json::Map<String, Value>;

/// A defect of one option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionError {
    /// The option's key below the connector's name (`path`, or `columns.price`); empty for the options as a whole.
    pub key: String,
    /// What is wrong, naming the value found and what is allowed.
    pub message: String,
}

impl OptionError {
    /// A defect of the option `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

/// What a source turns out to be, once its options are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceShape {
    /// The columns that it can give, in order. Columns that are SQL of others (`generate`) have no type before planning:
    /// they stand in `computed`.
    pub columns: Vec<Column>,
    /// Columns given as SQL over `columns`, in order: name and expression. The planner types them and puts a projection
    /// after the source; with any of them, only they are visible to the graph.
    pub computed: Vec<(String, String)>,
    /// The column that is event time and its disorder in milliseconds where the graph sets no `watermark`.
    pub event_time: Option<(String, i64)>,
    /// Whether input ends.
    pub bounded: bool,
    /// Whether a position can be read again after a failure.
    pub replayable: bool,
    /// Most parallel readers that make sense; `None` where any number does.
    pub parallelism_max: Option<u32>,
}

/// Lists what there is to read: one JSON text a split. Called by the JobManager once, at a job's first start.
///
/// Errors: a text naming what could not be listed.
pub type SplitLister = Arc<dyn Fn(&Options, u32) -> Result<Vec<String>, String> + Send + Sync>;

/// Reads a source's options.
pub type SourceReader = Arc<dyn Fn(&Options) -> Result<SourceShape, Vec<OptionError>> + Send + Sync>;

/// Reads a sink's options against the stream it would take.
pub type SinkReader = Arc<dyn Fn(&Options, &StreamSchema) -> Result<(), Vec<OptionError>> + Send + Sync>;

/// A source's declaration.
#[derive(Clone)]
pub struct SourceDeclaration {
    /// Keys that the options may have, for the nearest name of an unknown one.
    pub options: Vec<String>,
    /// Options that hold a path (or a list of paths), made absolute by the command line.
    pub path_options: Vec<String>,
    /// Reads the options.
    pub read: SourceReader,
    /// Lists the splits.
    pub splits: SplitLister,
}

/// A sink's declaration.
#[derive(Clone)]
pub struct SinkDeclaration {
    /// Keys that the options may have.
    pub options: Vec<String>,
    /// Options that hold a path.
    pub path_options: Vec<String>,
    /// Whether it takes a changelog.
    pub changelog: bool,
    /// Whether its output appears exactly once, even where a task fails.
    pub exactly_once: bool,
    /// Reads the options.
    pub read: SinkReader,
}

/// The connectors that a cluster knows, by the name that a graph uses.
#[derive(Clone, Default)]
pub struct Declarations {
    /// Sources.
    pub sources: BTreeMap<String, SourceDeclaration>,
    /// Sinks.
    pub sinks: BTreeMap<String, SinkDeclaration>,
    /// Functions of users; `None` where no cluster was asked, so that none can be known.
    pub functions: Option<BTreeMap<String, FunctionDeclaration>>,
}

/// A source that a TaskManager's own binary brings (`levada_taskmanager::Builder`): its declaration travels with the
/// registration, so it is data, the same for all options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomSource {
    /// The connector's name in job graphs.
    pub name: String,
    /// Keys that the options may have.
    pub options: Vec<String>,
    /// The columns that it can give.
    pub columns: Vec<Column>,
    /// The column that is event time and its disorder in milliseconds.
    pub event_time: Option<(String, i64)>,
    /// Whether input ends.
    pub bounded: bool,
    /// Whether a position can be read again after a failure.
    pub replayable: bool,
    /// Most parallel readers.
    pub parallelism_max: Option<u32>,
    /// Its splits, given out round-robin at a first start.
    pub splits: Vec<String>,
}

/// A sink that a TaskManager's own binary brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomSink {
    /// The connector's name in job graphs.
    pub name: String,
    /// Keys that the options may have.
    pub options: Vec<String>,
    /// Whether it takes a changelog.
    pub changelog: bool,
    /// Whether its output appears exactly once.
    pub exactly_once: bool,
}

impl From<CustomSource> for SourceDeclaration {
    fn from(custom: CustomSource) -> Self {
        let CustomSource { options, columns, event_time, bounded, replayable, parallelism_max, splits, .. } = custom;
        let shape = SourceShape { columns, computed: Vec::new(), event_time, bounded, replayable, parallelism_max };
        Self {
            options,
            path_options: Vec::new(),
            read: Arc::new(move |_| Ok(shape.clone())),
            splits: Arc::new(move |_, _| Ok(splits.clone())),
        }
    }
}

impl From<CustomSink> for SinkDeclaration {
    fn from(custom: CustomSink) -> Self {
        let CustomSink { options, changelog, exactly_once, .. } = custom;
        Self { options, path_options: Vec::new(), changelog, exactly_once, read: Arc::new(|_, _| Ok(())) }
    }
}
