//! Payments of an account that come one soon after the other: a session, told when it is over and when it grows large.

use levada_taskmanager::Options;
use levada_taskmanager::function::{
    FunctionDeclaration, FunctionError, FunctionKind, KeyedContext, MergedWindows, Output, Rows, TriggerResult, TriggerRows,
    WindowFunction, WindowGroup, WindowTrigger,
};
use levada_taskmanager::state::descriptor::{BindError, Binder, ReducingState, ReducingStateDescriptor};
use levada_taskmanager::types::LogicalType;

/// Tells of a sitting how many payments it has, their sum, and the merchant of the largest one.
pub struct Sitting;

/// Takes `merchant` and `amount`; the account and the session's window come before what it gives.
pub fn declaration() -> FunctionDeclaration {
    FunctionDeclaration::new("sitting", FunctionKind::Window)
        .input("merchant", LogicalType::String)
        .input("amount", LogicalType::Int64)
        .output("payments", LogicalType::Int64)
        .output("spent", LogicalType::Int64)
        .output("largest_at", LogicalType::String)
}

impl WindowFunction for Sitting {
    fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
        let (merchant, amount) = (rows.column::<str>("merchant")?, rows.column::<i64>("amount")?);
        let largest = (0..rows.len()).max_by_key(|row| amount.get(*row)).map_or("", |row| merchant.get(row));
        let spent = amount.values().iter().fold(0i64, |sum, amount| sum.saturating_add(*amount));
        out.push((rows.len() as i64, spent, largest))
    }
}

/// Tells of a sitting each time that its payments have come to a further `limit`, beside when it is over.
pub struct Alarm {
    limit: i64,
}

/// Looks at `amount`; merges what it has added up where a payment makes two sittings one.
pub fn alarm_declaration() -> FunctionDeclaration {
    FunctionDeclaration::new("alarm", FunctionKind::Trigger).options(["limit"]).input("amount", LogicalType::Int64).merging()
}

impl Alarm {
    /// Of the option `limit`.
    pub fn new(options: &Options) -> Result<Self, FunctionError> {
        let limit = options.get("limit").and_then(|value| value.as_i64()).filter(|limit| *limit > 0);
        let limit = limit.ok_or_else(|| FunctionError::option("limit", "a whole number above 0 is expected"))?;
        Ok(Self { limit })
    }
}

impl WindowTrigger for Alarm {
    type States = ReducingState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ReducingStateDescriptor::new("untold", |sum: &mut i64, next: i64| *sum = sum.saturating_add(next))
            .per_window()
            .bind(binder)
    }

    fn on_rows(
        &mut self,
        untold: &Self::States,
        rows: TriggerRows<'_>,
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        let amount = rows.rows().column::<i64>("amount")?;
        for (row, answer) in answers.iter_mut().enumerate() {
            ctx.enter(row);
            untold.add(ctx, amount.get(row))?;
            if untold.get(ctx)?.is_some_and(|sum| *sum >= self.limit) {
                untold.clear(ctx)?;
                *answer = TriggerResult::Fire;
            }
        }
        Ok(())
    }

    fn on_merge(
        &mut self,
        untold: &Self::States,
        merged: MergedWindows<'_>,
        ctx: &mut KeyedContext<'_>,
    ) -> Result<(), FunctionError> {
        Ok(untold.merge_namespaces(ctx, merged.kept(), merged.gone())?)
    }
}
