//! What the JobManager hears of sources that keep pace with others: how far they have come, as soon as that has changed.
//!
//! Must never know how far a source may go: the JobManager says.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use levada_common::ids::{AttemptId, TaskId};
use levada_proto::convert::task_to_ref;
use levada_proto::v1;

use crate::task::TaskHandle;

/// How far a source has come, and whether it is idle.
type Time = (i64, bool);

/// What the JobManager was told last.
#[derive(Debug, Default)]
pub struct SourceTimes {
    told: HashMap<(AttemptId, TaskId), Time>,
}

impl SourceTimes {
    /// What is new of the sources among `tasks`, to be told now; `None` where nothing is.
    pub fn news(&mut self, tasks: &[Arc<TaskHandle>]) -> Option<v1::SourceTimes> {
        let mut told = HashMap::new();
        let mut sources = Vec::new();
        for task in tasks.iter().filter(|task| task.keeps_pace) {
            let key = (task.attempt, task.task);
            let time = (task.metrics.watermark_ms.load(Relaxed), task.metrics.idle.load(Relaxed));
            if self.told.get(&key) != Some(&time) {
                let (watermark_ms, idle) = time;
                sources.push(v1::SourceTime { task: Some(task_to_ref(task.attempt, task.task)), watermark_ms, idle });
            }
            told.insert(key, time);
        }
        self.told = told;
        (!sources.is_empty()).then_some(v1::SourceTimes { sources })
    }
}
