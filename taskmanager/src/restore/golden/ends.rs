//! The two ends of a golden job: a source that reads what a test gives it, and a sink that notes what comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::Int8Type;
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use levada_common::declaration::{Declarations, Options, SinkDeclaration, SourceDeclaration, SourceShape};
use levada_common::ids::CheckpointId;
use levada_common::plan::SinkSpec;
use levada_common::types::{Column, parse_column_type};
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext};
use levada_engine::source::{Source, SourceContext, SourcePoll};
use levada_engine::task::Environment;
use levada_state::keyed::HeapBudget;

use super::functions::functions;

/// What planning knows of the ends, and of the functions between them. A source that is `endless` is not said to end, though it does.
pub fn declarations() -> Declarations {
    let shape = |options: &Options| SourceShape {
        columns: columns(options),
        computed: Vec::new(),
        event_time: None,
        bounded: options.get("endless").is_none(),
        replayable: true,
        parallelism_max: Some(1),
    };
    let rows = SourceDeclaration {
        options: vec!["columns".into(), "endless".into()],
        path_options: Vec::new(),
        read: Arc::new(move |options| Ok(shape(options))),
        splits: Arc::new(|_, _| Ok(vec!["0".into()])),
    };
    let lines = SinkDeclaration {
        options: Vec::new(),
        path_options: Vec::new(),
        changelog: true,
        exactly_once: true,
        read: Arc::new(|_, _| Ok(())),
    };
    let functions = functions().into_iter().map(|(name, function)| (name, function.declaration().clone())).collect();
    Declarations { sources: [("rows".into(), rows)].into(), sinks: [("lines".into(), lines)].into(), functions: Some(functions) }
}

fn columns(options: &Options) -> Vec<Column> {
    let columns = options.get("columns").and_then(|columns| columns.as_object()).expect("a source has columns");
    let column = |(name, ty): (&String, &serde_json::Value)| {
        let (ty, nullable) = parse_column_type(ty.as_str().expect("a type")).expect("a type");
        Column::new(name, ty, nullable)
    };
    columns.iter().map(column).collect()
}

/// What waits at the sources of an attempt, and what came out of its sinks.
#[derive(Clone, Default)]
pub struct Ends {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    feeds: BTreeMap<String, Feed>,
    given: Vec<String>,
}

#[derive(Default)]
struct Feed {
    batches: VecDeque<Vec<Vec<String>>>,
    is_over: bool,
    /// Batches that its source says were read before the attempt.
    read_before: u64,
}

impl Ends {
    /// Has these rows at a source.
    pub fn feed(&self, source: &str, rows: Vec<Vec<String>>) {
        self.inner.lock().unwrap().feeds.entry(source.into()).or_default().batches.push_back(rows);
    }

    /// Ends a source.
    pub fn end(&self, source: &str) {
        self.inner.lock().unwrap().feeds.entry(source.into()).or_default().is_over = true;
    }

    /// Batches of a source that the snapshot which it was restored from says are read.
    pub fn read_before(&self, source: &str) -> u64 {
        self.inner.lock().unwrap().feeds.get(source).map_or(0, |feed| feed.read_before)
    }

    /// What came out since the last call, sorted.
    pub fn take(&self) -> Vec<String> {
        let mut given = std::mem::take(&mut self.inner.lock().unwrap().given);
        given.sort_unstable();
        given
    }

    /// An environment with these ends.
    pub fn environment(&self) -> Environment {
        let (sources, sinks) = (self.clone(), self.clone());
        Environment {
            compiler: Arc::new(levada_sql::Compiler::new()),
            sources: [("rows".to_owned(), {
                let source: levada_engine::source::SourceFactory = Arc::new(move |_| Ok(Box::new(Rows::new(&sources))));
                source
            })]
            .into(),
            sinks: [("lines".to_owned(), {
                let sink: levada_engine::sink::SinkFactory = Arc::new(move |spec| Ok(Box::new(Lines::new(&sinks, spec))));
                sink
            })]
            .into(),
            functions: functions(),
            heap_budget: Arc::new(HeapBudget::unlimited()),
            processing_time_zero_ms: 0,
        }
    }
}

struct Rows {
    ends: Ends,
    context: Option<SourceContext>,
    read: u64,
}

impl Rows {
    fn new(ends: &Ends) -> Self {
        Self { ends: ends.clone(), context: None, read: 0 }
    }

    /// A batch of rows written as text.
    fn batch(&self, rows: &[Vec<String>]) -> RecordBatch {
        let spec = &self.context.as_ref().expect("a source is opened first").spec;
        let given = columns(&spec.options);
        let column = |column: &Column| {
            let place = given.iter().position(|given| given.name == column.name).expect("a column of the source");
            let text =
                |row: &Vec<String>| row.get(place).unwrap_or_else(|| panic!("{row:?} of \"{}\" is short", spec.uid)).clone();
            let texts = rows.iter().map(text).map(|text| (text != "-").then_some(text));
            let texts: ArrayRef = Arc::new(StringArray::from_iter(texts));
            cast(&texts, &column.ty.to_arrow()).unwrap()
        };
        RecordBatch::try_new(spec.schema.to_arrow(), spec.schema.columns.iter().map(column).collect()).unwrap()
    }
}

impl Source for Rows {
    fn open(&mut self, context: SourceContext, splits: Vec<String>) -> Result<(), EngineError> {
        self.read = splits.iter().map(|split| split.parse::<u64>().unwrap()).sum();
        let mut inner = self.ends.inner.lock().unwrap();
        inner.feeds.entry(context.spec.uid.to_string()).or_default().read_before = self.read;
        drop(inner);
        self.context = Some(context);
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        let uid = self.context.as_ref().expect("a source is opened first").spec.uid.to_string();
        let next = {
            let mut inner = self.ends.inner.lock().unwrap();
            let feed = inner.feeds.entry(uid).or_default();
            feed.batches.pop_front().ok_or(feed.is_over)
        };
        Ok(match next {
            Ok(rows) => {
                self.read += 1;
                SourcePoll::Batch(self.batch(&rows))
            }
            Err(true) => SourcePoll::End,
            Err(false) => SourcePoll::Pending,
        })
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        Ok(vec![self.read.to_string()])
    }
}

struct Lines {
    ends: Ends,
    name: String,
    changelog: bool,
}

impl Lines {
    fn new(ends: &Ends, spec: &SinkSpec) -> Self {
        Self { ends: ends.clone(), name: spec.uid.to_string(), changelog: spec.input.changelog }
    }
}

/// The signs of changes, by their numbers.
const SIGNS: [&str; 4] = ["+I", "-U", "+U", "-D"];

impl Sink for Lines {
    fn open(&mut self, _context: SinkContext, _restored: Vec<String>) -> Result<(), EngineError> {
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let value = |(place, column): (usize, &ArrayRef), row| match column.is_null(row) {
            true => "-".to_owned(),
            false if self.changelog && place == 0 => SIGNS[column.as_primitive::<Int8Type>().value(row) as usize].to_owned(),
            false => array_value_to_string(column, row).unwrap(),
        };
        let line = |row| {
            let values = batch.columns().iter().enumerate().map(|column| value(column, row)).collect::<Vec<_>>();
            format!("{} {}", self.name, values.join(" "))
        };
        self.ends.inner.lock().unwrap().given.extend((0..batch.num_rows()).map(line));
        Ok(())
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        Ok(Prepared::default())
    }

    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }
}
