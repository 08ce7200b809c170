//! A small payment, and soon after it a large one: someone has tried whether a stolen card works.

use levada_taskmanager::Options;
use levada_taskmanager::function::{
    Counter, FiredTimers, FunctionContext, FunctionDeclaration, FunctionError, FunctionKind, KeyedContext, KeyedProcessFunction,
    Output, Rows,
};
use levada_taskmanager::state::descriptor::{
    BindError, Binder, ListState, ListStateDescriptor, MapState, MapStateDescriptor, ValueState, ValueStateDescriptor,
};
use levada_taskmanager::state::types::Timestamp;
use levada_taskmanager::types::LogicalType;

/// A payment below this is small, in cents.
const SMALL: i64 = 100;

/// Gives an alert for a payment of at least `large` within `within_ms` of event time after a small one of the same account.
pub struct Detect {
    large: i64,
    within_ms: i64,
    alerts: Option<Counter>,
}

/// What is kept of each account.
pub struct States {
    /// When the last small payment was made, while it counts.
    small_at: ValueState<Timestamp>,
    /// Amounts since then.
    since: ListState<i64>,
    /// Payments at each merchant, as long as the account is known.
    merchants: MapState<String, i64>,
}

/// Takes `account`, `merchant`, `amount` and `at`; gives an alert with how often the account was at the merchant before.
pub fn declaration() -> FunctionDeclaration {
    FunctionDeclaration::new("detect", FunctionKind::KeyedProcess)
        .options(["large", "within_ms"])
        .input("account", LogicalType::String)
        .input("merchant", LogicalType::String)
        .input("amount", LogicalType::Int64)
        .input("at", LogicalType::Timestamp)
        .output("account", LogicalType::String)
        .output("amount", LogicalType::Int64)
        .output("payments", LogicalType::Int64)
        .output("known_merchant", LogicalType::Boolean)
        .output("at", LogicalType::Timestamp)
        .event_time("at")
        .event_timers()
}

impl Detect {
    /// Reads the options.
    pub fn new(options: &Options) -> Result<Self, FunctionError> {
        let whole = |name: &str, default: i64| match options.get(name) {
            None => Ok(default),
            Some(value) => value
                .as_i64()
                .filter(|value| *value > 0)
                .ok_or_else(|| FunctionError::option(name, format!("a whole number above 0 is expected, found {value}"))),
        };
        Ok(Self { large: whole("large", 50_000)?, within_ms: whole("within_ms", 60_000)?, alerts: None })
    }
}

impl KeyedProcessFunction for Detect {
    type States = States;

    fn bind(binder: &mut dyn Binder) -> Result<States, BindError> {
        Ok(States {
            small_at: ValueStateDescriptor::new("small_at").bind(binder)?,
            since: ListStateDescriptor::new("since").bind(binder)?,
            merchants: MapStateDescriptor::new("merchants").bind(binder)?,
        })
    }

    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.alerts = Some(context.counter("alerts"));
        Ok(())
    }

    fn process(
        &mut self,
        states: &States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (account, merchant) = (rows.column::<str>("account")?, rows.column::<str>("merchant")?);
        let (amount, at) = (rows.column::<i64>("amount")?, rows.column::<Timestamp>("at")?);
        let mut alerts = 0;
        for row in 0..rows.len() {
            ctx.enter(row);
            let (amount, at, merchant) = (amount.get(row), at.get(row), merchant.get(row).to_owned());
            let visits = states.merchants.get(ctx, &merchant)?.copied().unwrap_or(0);
            states.merchants.put(ctx, &merchant, visits + 1)?;
            match states.small_at.get(ctx)?.copied() {
                Some(small_at) if at.0 - small_at.0 <= self.within_ms => {
                    states.since.add(ctx, amount)?;
                    if amount >= self.large {
                        let payments = states.since.get(ctx)?.len() as i64;
                        out.push((account.get(row), amount, payments, visits > 0, at))?;
                        alerts += 1;
                    }
                }
                _ => states.since.clear(ctx)?,
            }
            if amount < SMALL {
                states.small_at.set(ctx, at)?;
                ctx.set_event_timer(at.0 + self.within_ms + 1)?;
            }
        }
        if let Some(counter) = &self.alerts {
            counter.add(alerts);
        }
        Ok(())
    }

    /// A small payment is forgotten, where no later one has taken its place.
    fn on_timers(
        &mut self,
        states: &States,
        timers: FiredTimers<'_>,
        ctx: &mut KeyedContext<'_>,
        _out: &mut Output,
    ) -> Result<(), FunctionError> {
        for (row, time_ms) in timers.times_ms().iter().enumerate() {
            ctx.enter(row);
            if states.small_at.get(ctx)?.is_some_and(|small_at| small_at.0 + self.within_ms < *time_ms) {
                states.small_at.clear(ctx)?;
                states.since.clear(ctx)?;
            }
        }
        Ok(())
    }
}
