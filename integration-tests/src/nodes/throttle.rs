//! Test sinks that misbehave on demand: `slow: { control: FILE }` and `failing: { control: FILE }`.
//!
//! `slow` takes as many rows a second as its control file says, read again at every batch (no file or no number: all there
//! are; 0: none). `failing` fails its task when its control file exists, and removes it. Both throw rows away.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use levada_common::declaration::CustomSink;
use levada_common::fault::{Fault, Retry};
use levada_common::ids::CheckpointId;
use levada_common::plan::SinkSpec;
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext, SinkFactory};

/// How often a sink that waits looks at its control file.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The sinks of this file.
pub fn sinks() -> Vec<(CustomSink, SinkFactory)> {
    let declare =
        |name: &str| CustomSink { name: name.into(), options: vec!["control".into()], changelog: true, exactly_once: false };
    let slow: SinkFactory = Arc::new(|spec| {
        let control = control(spec)?;
        Ok(Box::new(Slow { control, context: None, free_at: Instant::now(), next_look: Instant::now() }) as Box<dyn Sink>)
    });
    let failing: SinkFactory = Arc::new(|spec| Ok(Box::new(Failing { control: control(spec)?, context: None }) as Box<dyn Sink>));
    vec![(declare("slow"), slow), (declare("failing"), failing)]
}

fn control(spec: &SinkSpec) -> Result<PathBuf, EngineError> {
    spec.options.get("control").and_then(|value| value.as_str()).map(PathBuf::from).ok_or_else(|| EngineError::Connector {
        uid: spec.uid.clone(),
        connector: spec.connector.clone(),
        message: "control: a file's path is missing".into(),
        fault: Fault::User,
        retry: Retry::Never,
    })
}

struct Slow {
    control: PathBuf,
    context: Option<SinkContext>,
    free_at: Instant,
    next_look: Instant,
}

impl Slow {
    fn rate(&self) -> Option<f64> {
        fs::read_to_string(&self.control).ok()?.trim().parse().ok()
    }
}

impl Sink for Slow {
    fn open(&mut self, context: SinkContext, _restored: Vec<String>) -> Result<(), EngineError> {
        self.context = Some(context);
        Ok(())
    }

    fn is_ready(&mut self) -> bool {
        let now = Instant::now();
        let ready = match self.rate() {
            None => true,
            Some(rate) => rate > 0.0 && now >= self.free_at,
        };
        if !ready && now >= self.next_look {
            self.next_look = now + LOOK_AGAIN;
            let waker = self.context.as_ref().expect("opened").waker.clone();
            tokio::spawn(async move {
                tokio::time::sleep(LOOK_AGAIN).await;
                waker.wake();
            });
        }
        ready
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        if let Some(rate) = self.rate().filter(|rate| *rate > 0.0) {
            self.free_at = Instant::now() + Duration::from_secs_f64(batch.num_rows() as f64 / rate);
        }
        Ok(())
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        Ok(Prepared::default())
    }

    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }
}

struct Failing {
    control: PathBuf,
    context: Option<SinkContext>,
}

impl Sink for Failing {
    fn open(&mut self, context: SinkContext, _restored: Vec<String>) -> Result<(), EngineError> {
        self.context = Some(context);
        Ok(())
    }

    fn write(&mut self, _batch: &RecordBatch) -> Result<(), EngineError> {
        if fs::remove_file(&self.control).is_err() {
            return Ok(());
        }
        let spec = &self.context.as_ref().expect("opened").spec;
        Err(EngineError::Connector {
            uid: spec.uid.clone(),
            connector: spec.connector.clone(),
            message: format!("told to fail by \"{}\"", self.control.display()),
            fault: Fault::External,
            retry: Retry::Backoff,
        })
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        Ok(Prepared::default())
    }

    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }
}
