//! Planning a call of one of DataFusion's aggregates: its types, and the columns of its state.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_expr::AggregateUDF;
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion_physical_expr::expressions::{Column as Place, Literal};
use datafusion_physical_expr::{PhysicalExpr, PhysicalSortExpr};
use levada_common::plan::{AggregateCall, AggregateFunction, LibraryArgument, LibraryCall, OrderSpec};
use levada_common::types::{Column, LogicalType};

use super::LIBRARY;
use super::adapter::Adapter;
use super::names::find;
use crate::expression::reason;

/// An argument: a column, or what is the same for every row, as SQL and as it is.
#[derive(Debug, Clone)]
pub(crate) enum Argument {
    Column(Column),
    Constant(String, ScalarValue),
}

/// What is asked of an aggregate.
#[derive(Debug)]
pub(crate) struct LibraryRequest {
    pub(crate) function: String,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) order: Vec<OrderSpec>,
    pub(crate) distinct: bool,
    pub(crate) filter: Option<String>,
}

/// An aggregate over columns of known types.
#[derive(Debug)]
pub(super) struct Typed {
    pub(super) expr: AggregateFunctionExpr,
    /// What the aggregate takes: a field for each column of `LibraryCall::reads` but the filter.
    pub(super) input: SchemaRef,
    /// The types of its state's columns, as DataFusion has them.
    pub(super) state: Vec<DataType>,
}

impl LibraryRequest {
    /// Types the request as the call `name`.
    ///
    /// Errors: the reason as text: arguments that the aggregate does not take, or a state or result that no column can hold.
    pub(crate) fn plan(self, name: &str) -> Result<AggregateCall, String> {
        let typed = self.typed()?;
        let place = |data_type: &DataType| {
            LogicalType::from_arrow(data_type)
                .ok_or_else(|| format!("{} keeps {data_type}, which no column can hold", self.function))
        };
        let column = |(number, data_type): (usize, &DataType)| {
            Ok(Column::new(LibraryCall::state_name(name, LIBRARY, number), place(data_type)?, true))
        };
        let state = typed.state.iter().enumerate().map(column).collect::<Result<_, String>>()?;
        let result = place(typed.expr.field().data_type())?;
        // Whether it works at all with these arguments shows when one is made.
        Adapter::new(typed, &[], result.to_arrow()).groups().map_err(reason)?;
        let arguments = self.arguments.into_iter().map(|argument| match argument {
            Argument::Column(column) => LibraryArgument::Column(column),
            Argument::Constant(sql, _) => LibraryArgument::Constant(sql),
        });
        let (function, distinct, filter) = (self.function.to_lowercase(), self.distinct, self.filter);
        let library = LibraryCall { function, arguments: arguments.collect(), distinct, filter, state };
        Ok(AggregateCall {
            name: name.into(),
            function: AggregateFunction::Library,
            argument: None,
            argument_type: None,
            argument_nullable: true,
            order: self.order,
            result,
            library: Some(Box::new(library)),
        })
    }

    /// What computes a planned call; `constant` gives the values of its constants.
    pub(crate) fn compile(
        call: &AggregateCall,
        constant: impl Fn(&str) -> Result<ScalarValue, String>,
    ) -> Result<Adapter, String> {
        let library = call.library.as_ref().ok_or_else(|| format!("\"{}\" is no call of a library", call.name))?;
        let argument = |argument: &LibraryArgument| match argument {
            LibraryArgument::Column(column) => Ok(Argument::Column(column.clone())),
            LibraryArgument::Constant(sql) => Ok(Argument::Constant(sql.clone(), constant(sql)?)),
        };
        let request = Self {
            function: library.function.clone(),
            arguments: library.arguments.iter().map(argument).collect::<Result<_, String>>()?,
            order: call.order.clone(),
            distinct: library.distinct,
            filter: library.filter.clone(),
        };
        Ok(Adapter::new(request.typed()?, &library.state, call.result.to_arrow()))
    }

    fn typed(&self) -> Result<Typed, String> {
        let function = find(&self.function).ok_or_else(|| format!("there is no aggregate \"{}\"", self.function))?;
        let taken = self.coerced(&function)?;
        let (mut fields, mut arguments): (Vec<FieldRef>, Vec<Arc<dyn PhysicalExpr>>) = (Vec::new(), Vec::new());
        for (argument, taken) in self.arguments.iter().zip(taken) {
            match argument {
                Argument::Constant(_, value) => {
                    arguments.push(Arc::new(Literal::new(value.cast_to(taken.data_type()).map_err(reason)?)));
                }
                Argument::Column(_) => {
                    let name = format!("argument_{}", fields.len());
                    arguments.push(Arc::new(Place::new(&name, fields.len())));
                    fields.push(Arc::new(Field::new(name, taken.data_type().clone(), true)));
                }
            }
        }
        let mut order = Vec::new();
        for by in &self.order {
            let name = format!("order_{}", fields.len());
            // Null is the least value, as in every order here.
            let options = SortOptions { descending: by.descending, nulls_first: !by.descending };
            order.push(PhysicalSortExpr::new(Arc::new(Place::new(&name, fields.len())), options));
            fields.push(Arc::new(Field::new(name, by.ty.to_arrow(), true)));
        }
        let input = Arc::new(Schema::new(fields));
        let expr = AggregateExprBuilder::new(function, arguments)
            .schema(Arc::clone(&input))
            .alias(&self.function)
            .order_by(order)
            .with_distinct(self.distinct)
            .build()
            .map_err(reason)?;
        let state = expr.state_fields().map_err(reason)?.iter().map(|field| field.data_type().clone()).collect();
        Ok(Typed { expr, input, state })
    }

    /// What the aggregate takes in the place of each argument.
    fn coerced(&self, function: &AggregateUDF) -> Result<Vec<FieldRef>, String> {
        let field = |argument: &Argument| {
            let data_type = match argument {
                Argument::Column(column) => column.ty.to_arrow(),
                Argument::Constant(_, value) => value.data_type(),
            };
            Arc::new(Field::new("argument", data_type, true))
        };
        let fields: Vec<FieldRef> = self.arguments.iter().map(field).collect();
        if fields.is_empty() {
            return Err(format!("{} needs an argument", self.function));
        }
        fields_with_udf(&fields, function).map_err(|error| {
            let types = fields.iter().map(|field| field.data_type().to_string()).collect::<Vec<_>>().join(", ");
            format!("{}({types}): {}", self.function, reason(error))
        })
    }
}
