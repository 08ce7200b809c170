//! When the window of an aggregation gives results, and what its output is then: rows, or changes of rows.

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::graph::TransformNode;
use levada_common::plan::{AggregateSpec, Changelog, FiringSpec, TriggerSpec, WindowSpec};
use levada_common::types::Column;

use super::aggregate::{Arguments, WINDOW_END, WINDOW_START};
use super::graph::Planner;
use super::stream::Stream;

/// Windows of one row that are no cause for a warning.
const OVERLAP_MAX: i64 = 100;

impl Planner<'_> {
    /// When the window gives results beside the time when it is over; what it cannot do is reported.
    pub(super) fn firing(&mut self, node: &TransformNode, window: &WindowSpec) -> Option<FiringSpec> {
        let firing = node.firing.filter(|_| node.trigger.is_none())?;
        let path = format!("transforms.{}.window", node.uid);
        self.check_firing(node, window, &firing);
        if matches!(window, WindowSpec::Count { .. }) {
            let message = "a count window gives its result when its last row has arrived, and no row is late; leave `early`, \
                           `allowed_lateness`, `late` and `accumulate` out";
            self.error(&path, message);
        }
        self.warn_overlap(node, window, "they give results more than once");
        Some(firing)
    }

    /// What a window that gives results more than once cannot be, whoever says when.
    fn check_firing(&mut self, node: &TransformNode, window: &WindowSpec, firing: &FiringSpec) {
        let path = format!("transforms.{}.window", node.uid);
        if *window == WindowSpec::Global && firing.lateness_ms > 0 {
            let message = "a global window is over at the end of the data, and no row is late; leave `allowed_lateness` out";
            self.error(format!("{path}.allowed_lateness"), message);
        }
        if matches!(window, WindowSpec::Session { .. }) && !firing.accumulate {
            let message = "a session grows with its rows, so parts of it have no bounds of their own; leave `accumulate: false` out, \
                           or take a tumbling or sliding window";
            self.error(format!("{path}.accumulate"), message);
        }
    }

    /// The trigger that says when the window gives results, what it looks at among the arguments; what it cannot do is reported.
    pub(super) fn trigger(
        &mut self,
        node: &TransformNode,
        window: &WindowSpec,
        stream: &Stream,
        arguments: &mut Arguments,
    ) -> Option<TriggerSpec> {
        let trigger = node.trigger.as_ref()?;
        let path = format!("transforms.{}.window.trigger", node.uid);
        let firing = node.firing.unwrap_or(FiringSpec { early: None, lateness_ms: 0, late: None, accumulate: true });
        if firing.early.is_some() || firing.late.is_some() {
            let message = "the `trigger` says when the window gives its result; leave `early` and `late` out, or the trigger";
            self.error(format!("transforms.{}.window", node.uid), message);
        }
        if matches!(window, WindowSpec::Count { .. }) {
            let message =
                "a count window gives its result when its last row has arrived; leave `trigger` out, or take a `global` window";
            self.error(&path, message);
        }
        self.check_firing(node, window, &firing);
        self.warn_overlap(node, window, "each of them gives its results by itself");
        let part = *self.window_part(node, FunctionKind::Trigger, trigger, stream)?;
        self.check_trigger_window(node, &part.function, matches!(window, WindowSpec::Session { .. }));
        if !node.window_time.processing {
            self.check_time(&path, "", &part.function, stream);
        }
        for column in part.function.inputs.iter().filter_map(|column| stream.schema.column(&column.name)) {
            arguments.column(column);
        }
        Some(TriggerSpec { part, lateness_ms: firing.lateness_ms, accumulate: firing.accumulate })
    }

    /// What a trigger must be for the windows of its node.
    pub(super) fn check_trigger_window(&mut self, node: &TransformNode, trigger: &FunctionDeclaration, is_session: bool) {
        let path = format!("transforms.{}.window.trigger", node.uid);
        if is_session && !trigger.merging {
            let message = format!(
                "trigger \"{}\" does not merge windows, and sessions become one: implement `on_merge` and declare it `merging`",
                trigger.name
            );
            self.error(&path, message);
        }
        if trigger.event_timers && node.window_time.processing {
            let message = format!(
                "trigger \"{}\" sets timers of event time, and these windows go by processing time, as its timers must: declare it with \
                 `processing_timers` alone",
                trigger.name
            );
            self.error(&path, message);
        }
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

    /// What a trigger keeps stands beside the aggregation's own states, of which DISTINCT would need more.
    pub(super) fn check_trigger_states(&mut self, node: &TransformNode, spec: &AggregateSpec, distinct: &[String]) {
        let path = format!("transforms.{}.window.trigger", node.uid);
        if node.trigger.is_some() && !distinct.is_empty() {
            let message = "DISTINCT is not supported with a `trigger`: each window would keep every value beside what its rows have come \
                           to, and give them up whenever the trigger purges it; leave one of the two out, or write the aggregate in \
                           Rust, as an `AggregateFunction`";
            self.error(&path, message);
        }
        let Some(trigger) = &spec.trigger else { return };
        let own = [spec.state_name().unwrap_or_default(), TriggerSpec::GIVEN];
        let function = &trigger.part.function;
        for state in function.states.iter().filter(|state| own.contains(&state.name.as_str())) {
            let message = format!(
                "trigger \"{}\" has a state \"{}\", which is what the aggregation calls its own ({}); give it another name",
                function.name,
                state.name,
                own.join(", ")
            );
            self.error(&path, message);
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

    /// How the changes of an aggregation are matched, where it gives changes; `accumulate` where it gives results more than once.
    pub(super) fn changes(
        &self,
        node: &TransformNode,
        keys: &[Column],
        window: &WindowSpec,
        accumulate: Option<bool>,
    ) -> Option<Changelog> {
        let is_changelog = accumulate.unwrap_or(*window == WindowSpec::Running);
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
