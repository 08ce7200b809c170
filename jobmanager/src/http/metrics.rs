//! Prometheus text, made at each scrape from what is. Every name stands in one table.

use std::sync::Arc;

use levada_common::prometheus::{self, head};
use levada_proto::v1;

use crate::status::state_name;

/// What is measured at one moment.
pub(super) struct Sample {
    pub jobs: Vec<Arc<v1::JobStatus>>,
    pub task_managers: Vec<v1::TaskManagerStatus>,
    pub inline_used_bytes: u64,
    pub inline_budget_bytes: u64,
}

/// A metric: name, kind, help, and its series.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    series: fn(&Sample) -> Vec<(Labels, f64)>,
}

type Labels = Vec<(&'static str, String)>;

/// The table. Names are stable: dashboards depend on them. None is one of a TaskManager's: what both count would be counted twice.
const METRICS: &[Metric] = &[
    Metric { name: "levada_jobs", kind: "gauge", help: "Jobs by state.", series: jobs_by_state },
    Metric { name: "levada_task_managers", kind: "gauge", help: "Registered TaskManagers.", series: task_managers },
    Metric { name: "levada_slots", kind: "gauge", help: "Slots of all TaskManagers.", series: slots },
    Metric { name: "levada_slots_free", kind: "gauge", help: "Slots that no job holds.", series: slots_free },
    Metric { name: "levada_inline_state_bytes", kind: "gauge", help: "Inline state held here.", series: inline_used },
    Metric {
        name: "levada_inline_budget_bytes",
        kind: "gauge",
        help: "Inline state that may be held here.",
        series: inline_budget,
    },
    Metric { name: "levada_job_restarts_total", kind: "counter", help: "Attempts after the first.", series: restarts },
    Metric { name: "levada_job_degraded", kind: "gauge", help: "1 where checkpoints do not complete.", series: degraded },
    Metric { name: "levada_checkpoints_triggered_total", kind: "counter", help: "Checkpoints begun.", series: triggered },
    Metric { name: "levada_checkpoints_completed_total", kind: "counter", help: "Checkpoints completed.", series: completed },
    Metric { name: "levada_checkpoints_failed_total", kind: "counter", help: "Checkpoints given up.", series: failed },
    Metric { name: "levada_checkpoints_in_progress", kind: "gauge", help: "Checkpoints under way.", series: in_progress },
    Metric { name: "levada_checkpoint_age_seconds", kind: "gauge", help: "Since the newest one was triggered.", series: age },
    Metric { name: "levada_checkpoint_duration_seconds", kind: "gauge", help: "Of the newest one.", series: duration },
    Metric { name: "levada_checkpoint_size_bytes", kind: "gauge", help: "State in the newest one.", series: size },
    Metric {
        name: "levada_savepoints",
        kind: "gauge",
        help: "Remembered savepoints (at most 20 a job) by state.",
        series: savepoints_by_state,
    },
    Metric {
        name: "levada_job_node_rows_in_total",
        kind: "counter",
        help: "Rows that a node took.",
        series: |s| nodes(s, |n| n.rows_in as f64),
    },
    Metric {
        name: "levada_job_node_rows_out_total",
        kind: "counter",
        help: "Rows that a node gave.",
        series: |s| nodes(s, |n| n.rows_out as f64),
    },
    Metric {
        name: "levada_job_node_late_rows_total",
        kind: "counter",
        help: "Rows dropped as late.",
        series: |s| nodes(s, |n| n.late_rows as f64),
    },
    Metric {
        name: "levada_job_node_future_rows_total",
        kind: "counter",
        help: "Rows too far ahead of processing time to move event time.",
        series: |s| nodes(s, |n| n.future_rows as f64),
    },
    Metric {
        name: "levada_job_node_bad_records_total",
        kind: "counter",
        help: "Records dropped as bad.",
        series: |s| nodes(s, |n| n.bad_records as f64),
    },
    Metric {
        name: "levada_job_node_state_bytes",
        kind: "gauge",
        help: "Working state.",
        series: |s| nodes(s, |n| n.state_bytes as f64),
    },
    Metric {
        name: "levada_job_node_state_keys",
        kind: "gauge",
        help: "Keys in working state.",
        series: |s| nodes(s, |n| n.state_keys as f64),
    },
];

fn one(value: f64) -> Vec<(Labels, f64)> {
    vec![(Vec::new(), value)]
}

fn jobs_by_state(sample: &Sample) -> Vec<(Labels, f64)> {
    (1..)
        .map_while(|number| v1::JobState::try_from(number).ok())
        .map(|state| {
            let count = sample.jobs.iter().filter(|job| job.state() == state).count();
            (vec![("state", state.as_str_name().trim_start_matches("JOB_STATE_").into())], count as f64)
        })
        .collect()
}

fn savepoints_by_state(sample: &Sample) -> Vec<(Labels, f64)> {
    let savepoints = || sample.jobs.iter().filter(|job| is_live(job)).flat_map(|job| &job.savepoints);
    (1..)
        .map_while(|number| v1::SavepointState::try_from(number).ok())
        .map(|state| {
            let count = savepoints().filter(|savepoint| savepoint.state() == state).count();
            (vec![("state", state.as_str_name().trim_start_matches("SAVEPOINT_STATE_").into())], count as f64)
        })
        .collect()
}

fn task_managers(sample: &Sample) -> Vec<(Labels, f64)> {
    one(sample.task_managers.len() as f64)
}

fn slots(sample: &Sample) -> Vec<(Labels, f64)> {
    one(sample.task_managers.iter().map(|status| f64::from(status.slots)).sum())
}

fn slots_free(sample: &Sample) -> Vec<(Labels, f64)> {
    one(sample.task_managers.iter().map(|status| f64::from(status.slots_free)).sum())
}

fn inline_used(sample: &Sample) -> Vec<(Labels, f64)> {
    one(sample.inline_used_bytes as f64)
}

fn inline_budget(sample: &Sample) -> Vec<(Labels, f64)> {
    one(sample.inline_budget_bytes as f64)
}

/// Whether the job has not ended: those that have are counted by state only, or series would pile up.
fn is_live(job: &v1::JobStatus) -> bool {
    !matches!(state_name(job), "FINISHED" | "FAILED" | "CANCELED")
}

/// The labels of a job, as TaskManagers have them.
fn of_job(job: &v1::JobStatus) -> Labels {
    vec![("job", job.name.clone()), ("job_id", job.job_id.clone())]
}

fn jobs(sample: &Sample, value: impl Fn(&v1::JobStatus) -> Option<f64>) -> Vec<(Labels, f64)> {
    let live = sample.jobs.iter().filter(|job| is_live(job));
    live.filter_map(|job| Some((of_job(job), value(job)?))).collect()
}

fn checkpoints(sample: &Sample, value: impl Fn(&v1::CheckpointsStatus) -> Option<f64>) -> Vec<(Labels, f64)> {
    jobs(sample, |job| value(job.checkpoints.as_ref()?))
}

fn nodes(sample: &Sample, value: impl Fn(&v1::NodeStatus) -> f64) -> Vec<(Labels, f64)> {
    let live = sample.jobs.iter().filter(|job| is_live(job));
    let labels = |job: &v1::JobStatus, uid: &str| of_job(job).into_iter().chain([("node", uid.to_string())]).collect();
    live.flat_map(|job| job.nodes.iter().map(|node| (labels(job, &node.uid), value(node)))).collect()
}

fn restarts(sample: &Sample) -> Vec<(Labels, f64)> {
    jobs(sample, |job| Some(job.restarts.into()))
}

fn degraded(sample: &Sample) -> Vec<(Labels, f64)> {
    jobs(sample, |job| Some(if job.degraded { 1.0 } else { 0.0 }))
}

fn triggered(sample: &Sample) -> Vec<(Labels, f64)> {
    checkpoints(sample, |all| Some(all.triggered as f64))
}

fn completed(sample: &Sample) -> Vec<(Labels, f64)> {
    checkpoints(sample, |all| Some(all.completed as f64))
}

fn failed(sample: &Sample) -> Vec<(Labels, f64)> {
    checkpoints(sample, |all| Some(all.failed as f64))
}

fn in_progress(sample: &Sample) -> Vec<(Labels, f64)> {
    checkpoints(sample, |all| Some(all.in_progress as f64))
}

fn age(sample: &Sample) -> Vec<(Labels, f64)> {
    checkpoints(sample, |all| all.last_completed.as_ref().map(|_| all.age_ms as f64 / 1e3))
}

fn duration(sample: &Sample) -> Vec<(Labels, f64)> {
    checkpoints(sample, |all| Some(all.last_completed.as_ref()?.duration_ms as f64 / 1e3))
}

fn size(sample: &Sample) -> Vec<(Labels, f64)> {
    checkpoints(sample, |all| Some(all.last_completed.as_ref()?.bytes as f64))
}

/// The text of a scrape.
pub(super) fn text(sample: &Sample) -> String {
    let mut text = String::new();
    for metric in METRICS {
        head(&mut text, metric.name, metric.kind, metric.help);
        for (labels, value) in (metric.series)(sample) {
            prometheus::sample(&mut text, metric.name, &labels, value);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_ended_jobs_have_no_series() {
        let job = |id: &str, name: &str, state: v1::JobState| {
            Arc::new(v1::JobStatus {
                job_id: id.into(),
                name: name.into(),
                state: state.into(),
                restarts: 2,
                ..Default::default()
            })
        };
        let sample = Sample {
            jobs: vec![job("1", "a\"b\\c\nd", v1::JobState::Running), job("2", "old", v1::JobState::Finished)],
            task_managers: vec![v1::TaskManagerStatus { slots: 4, slots_free: 1, ..Default::default() }],
            inline_used_bytes: 7,
            inline_budget_bytes: 9,
        };
        let text = text(&sample);
        assert!(text.contains("levada_jobs{state=\"RUNNING\"} 1\n"), "{text}");
        assert!(text.contains("levada_jobs{state=\"FINISHED\"} 1\n"), "{text}");
        assert!(text.contains("levada_job_restarts_total{job=\"a\\\"b\\\\c\\nd\",job_id=\"1\"} 2\n"), "{text}");
        assert!(!text.contains("job=\"old\"") && !text.contains("job_id=\"2\""), "{text}");
        assert!(text.contains("levada_slots_free 1\n") && text.contains("levada_inline_state_bytes 7\n"), "{text}");
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }
}
