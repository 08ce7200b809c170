//! The trigger of `early`, `late` and `accumulate`: it gives a window whenever so many rows came or so much time went by since it was
//! last given, and only where something came.

use levada_common::plan::{FiringSpec, ProcessSpec, Trigger};
use levada_state::descriptor::{BindError, Binder, ValueState, ValueStateDescriptor};

use crate::function::{
    FiredTimers, FunctionError, KeyedContext, MergedWindows, Namespace, TriggerResult, TriggerRows, WindowTrigger,
};

/// The trigger. Its state is how many rows came since the window was last given.
pub(super) struct Results(pub(super) FiringSpec);

impl Results {
    fn give(&self) -> TriggerResult {
        if self.0.accumulate { TriggerResult::Fire } else { TriggerResult::FireAndPurge }
    }

    /// Gives those windows where something came; `answers` has one for each window.
    fn give_rest(
        &self,
        rows: ValueState<i64>,
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        for (row, answer) in answers.iter_mut().enumerate() {
            ctx.enter(row);
            *answer = TriggerResult::Continue;
            if rows.get(ctx)?.copied().unwrap_or(0) > 0 {
                rows.clear(ctx)?;
                *answer = self.give();
            }
        }
        Ok(())
    }
}

impl WindowTrigger for Results {
    type States = ValueState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ValueStateDescriptor::new(ProcessSpec::RESULTS).per_window().bind(binder)
    }

    fn on_rows(
        &mut self,
        states: &Self::States,
        rows: TriggerRows<'_>,
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        for (row, answer) in answers.iter_mut().enumerate() {
            ctx.enter(row);
            let is_over = rows.is_over(row);
            let trigger = if is_over { self.0.late } else { self.0.early };
            let came = states.get(ctx)?.copied().unwrap_or(0) + 1;
            let gives = match trigger {
                Some(Trigger { rows, .. }) => rows.is_some_and(|rows| came >= i64::from(rows)),
                None => is_over && *answer == TriggerResult::Fire,
            };
            if gives {
                states.clear(ctx)?;
                *answer = self.give();
                continue;
            }
            states.set(ctx, came)?;
            *answer = TriggerResult::Continue;
            if came == 1
                && let Some(Trigger { every_ms: Some(every_ms), .. }) = trigger
            {
                ctx.set_processing_timer(ctx.processing_time_ms().saturating_add(every_ms))?;
            }
        }
        Ok(())
    }

    fn on_timers(
        &mut self,
        states: &Self::States,
        _timers: FiredTimers<'_>,
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        self.give_rest(*states, ctx, answers)
    }

    fn on_end(
        &mut self,
        states: &Self::States,
        _windows: &[Namespace],
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        self.give_rest(*states, ctx, answers)
    }

    fn on_merge(
        &mut self,
        states: &Self::States,
        merged: MergedWindows<'_>,
        ctx: &mut KeyedContext<'_>,
    ) -> Result<(), FunctionError> {
        let mut came = 0;
        for window in merged.gone().iter().copied().chain([merged.kept()]) {
            ctx.set_namespace(Some(window));
            came += states.get(ctx)?.copied().unwrap_or(0);
        }
        ctx.set_namespace(Some(merged.kept()));
        states.set(ctx, came)?;
        // The timers of those that are no more do not come.
        let every_ms = [self.0.early, self.0.late].into_iter().flatten().filter_map(|trigger| trigger.every_ms).min();
        match every_ms.filter(|_| came > 0) {
            Some(every_ms) => ctx.set_processing_timer(ctx.processing_time_ms().saturating_add(every_ms)),
            None => Ok(()),
        }
    }
}
