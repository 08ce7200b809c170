//! When the window of an aggregation gives results, and what its output is then: rows, or changes of rows.

use levada_common::graph::TransformNode;
use levada_common::plan::{Changelog, FiringSpec, WindowSpec};
use levada_common::types::Column;

use super::aggregate::{WINDOW_END, WINDOW_START};
use super::graph::Planner;

/// Windows of one row that are no cause for a warning.
const OVERLAP_MAX: i64 = 100;

impl Planner<'_> {
    /// When the window gives results beside the time when it is over; what it cannot do is reported.
    pub(super) fn firing(&mut self, node: &TransformNode, window: &WindowSpec) -> Option<FiringSpec> {
        let firing = node.firing?;
        let path = format!("transforms.{}.window", node.uid);
        if *window == WindowSpec::Global && firing.lateness_ms > 0 {
            let message = "a global window is over at the end of the data, and no row is late; leave `allowed_lateness` out";
            self.error(format!("{path}.allowed_lateness"), message);
        }
        if matches!(window, WindowSpec::Count { .. }) {
            let message = "a count window gives its result when its last row has arrived, and no row is late; leave `early`, \
                           `allowed_lateness`, `late` and `accumulate` out";
            self.error(&path, message);
        }
        if node.window_time.processing {
            let message = "an aggregate gives each result of a window of processing time once, when it is over: `early` and `accumulate` \
                           are for event time, or for the windows of a `process`";
            self.error(format!("{path}.time"), message);
        }
        self.warn_overlap(node, window, "they give results more than once");
        if matches!(window, WindowSpec::Session { .. }) && !firing.accumulate {
            let message = "a session grows with its rows, so parts of it have no bounds of their own; leave `accumulate: false` out, \
                           or take a tumbling or sliding window";
            self.error(format!("{path}.accumulate"), message);
        }
        Some(firing)
    }

    /// Each row is kept in every window that it is in: says so where these are many.
    pub(super) fn warn_overlap(&mut self, node: &TransformNode, window: &WindowSpec, why: &str) {
        let overlap = match window {
            WindowSpec::Sliding { size_ms, slide_ms, .. } => (size_ms + slide_ms - 1) / slide_ms.max(&1),
            WindowSpec::Cumulate { size_ms, step_ms, .. } => size_ms / step_ms.max(&1),
            _ => 1,
        };
        if overlap > OVERLAP_MAX {
            self.warnings.push(format!(
                "transform \"{}\": each row is kept in all {overlap} windows that it is in, since {why}",
                node.uid
            ));
        }
    }

    /// What happens in this window happens once: what says otherwise is reported.
    pub(super) fn refuse_firing(&mut self, node: &TransformNode, what: &str) {
        if node.firing.is_some() {
            let message = format!(
                "{what} once, when the window is over: `early`, `allowed_lateness`, `late` and `accumulate` belong to the window of an \
                 `aggregate`"
            );
            self.error(format!("transforms.{}.window", node.uid), message);
        }
    }

    /// What happens in this window goes by UTC: what says otherwise is reported.
    pub(super) fn refuse_time_zone(&mut self, node: &TransformNode, what: &str) {
        if node.window_time.time_zone.is_some() {
            let message = format!(
                "{what} in windows that begin by UTC; `time_zone` belongs to the window of an `aggregate`, whose windows `same` takes \
                 over, or of a `join`"
            );
            self.error(format!("transforms.{}.window.time_zone", node.uid), message);
        }
    }

    /// How the changes of an aggregation are matched, where it gives changes.
    pub(super) fn changes(
        &self,
        node: &TransformNode,
        keys: &[Column],
        window: &WindowSpec,
        firing: Option<&FiringSpec>,
    ) -> Option<Changelog> {
        let is_changelog = firing.map_or(*window == WindowSpec::Running, |firing| firing.accumulate);
        let bounds: &[&str] = match window {
            WindowSpec::Running | WindowSpec::Global | WindowSpec::Count { .. } => &[],
            // The end of a session moves with its rows; no two that stand begin at one time.
            WindowSpec::Session { .. } => &[WINDOW_START],
            _ => &[WINDOW_START, WINDOW_END],
        };
        let key = keys.iter().map(|key| key.name.clone()).chain(bounds.iter().map(|name| (*name).to_owned()));
        is_changelog.then(|| Changelog { key: key.collect(), full: node.changelog_full, unique: true })
    }
}
