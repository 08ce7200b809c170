//! Amounts in euros, by rates that come as a stream of their own.

use levada_taskmanager::function::{
    BroadcastProcessFunction, FlatMapContext, FunctionDeclaration, FunctionError, FunctionKind, KeyedContext, Output, Rows,
};
use levada_taskmanager::state::descriptor::{BindError, Binder, BroadcastState, BroadcastStateDescriptor};
use levada_taskmanager::types::LogicalType;

/// Converts amounts by the newest rate of their currency; what has none yet is given without an amount.
pub struct Convert;

/// Takes `account`, `currency` and `amount`, and of the broadcast input `currency` and `rate`, in millionths of a euro.
pub fn declaration() -> FunctionDeclaration {
    FunctionDeclaration::new("convert", FunctionKind::BroadcastProcess)
        .input("account", LogicalType::String)
        .input("currency", LogicalType::String)
        .input("amount", LogicalType::Int64)
        .broadcast_input("currency", LogicalType::String)
        .broadcast_input("rate", LogicalType::Int64)
        .output("account", LogicalType::String)
        .nullable_output("euros", LogicalType::Int64)
}

impl BroadcastProcessFunction for Convert {
    type States = BroadcastState<String, i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        BroadcastStateDescriptor::new("rates").bind(binder)
    }

    fn process(
        &mut self,
        rates: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (account, currency) = (rows.column::<str>("account")?, rows.column::<str>("currency")?);
        let amount = rows.column::<i64>("amount")?;
        for row in 0..rows.len() {
            let rate = rates.get(ctx.broadcast(), &currency.get(row).to_owned());
            let euros = rate.map(|rate| (i128::from(amount.get(row)) * i128::from(*rate) / 1_000_000) as i64);
            out.push((account.get(row), euros))?;
        }
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        rates: &Self::States,
        rows: Rows<'_>,
        ctx: &mut FlatMapContext<'_>,
        _out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (currency, rate) = (rows.column::<str>("currency")?, rows.column::<i64>("rate")?);
        for row in 0..rows.len() {
            rates.put(ctx, currency.get(row).to_owned(), rate.get(row));
        }
        Ok(())
    }
}
