//! Any serde type as columns, through serde_arrow.

use std::any::type_name;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use levada_common::types::{Column, LogicalType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_arrow::schema::{SchemaLike, TracingOptions};
use serde_arrow::utils::Item;
use serde_arrow::{ArrayBuilder, Deserializer};

use super::error::{check_column, check_no_nulls, check_width};
use super::heap::heap_bytes;
use super::{StateReader, StateType, StateWriter, TypeError};

/// A value of any serde type, stored in real columns: a column for each field of a struct, one column for anything else.
///
/// Numbers, truths, texts, options, sequences, tuples, structs and enums without data (as their names) have columns; enums with
/// data and maps have none, and a state of them is refused when it is bound.
///
/// Cost: the type is walked each time that a piece of a snapshot is begun or read (microseconds), each value goes through serde
/// field by field, and a piece is read as a whole into values that are then cloned out. In memory a value is what it is. Prefer
/// tuples and plain types where a snapshot's time counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serde<T>(pub T);

impl<T> Deref for Serde<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Serde<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// What a serde type is stored as.
struct Layout {
    /// Columns without a prefix.
    columns: Vec<Column>,
    /// Whether the columns are the fields of the type; else it has one, in an `Item`.
    is_struct: bool,
}

impl Layout {
    fn trace<T: DeserializeOwned>() -> Result<Self, TypeError> {
        let refuse = |reason: String| TypeError::Untraceable { rust: type_name::<T>(), reason };
        let options = TracingOptions::default()
            .strings_as_large_utf8(false)
            .bytes_as_large_binary(false)
            .sequence_as_large_list(false)
            .allow_null_fields(true)
            .map_as_struct(false)
            .enums_without_data_as_strings(true)
            .from_type_budget(TRACE_STEPS_MAX);
        let fields = Vec::<FieldRef>::from_type::<Item<T>>(options).map_err(|error| refuse(error.message().into()))?;
        let item = fields.first().ok_or_else(|| refuse("it has no field".into()))?;
        let is_struct = matches!(item.data_type(), DataType::Struct(_)) && !item.is_nullable();
        let own = match item.data_type() {
            DataType::Struct(fields) if is_struct => fields.to_vec(),
            _ => vec![Arc::clone(item)],
        };
        let columns = own.iter().map(|field| column(field)).collect::<Result<_, _>>().map_err(refuse)?;
        Ok(Self { columns, is_struct })
    }

    fn fields(&self) -> Vec<FieldRef> {
        self.columns.iter().map(|column| Arc::new(column.to_field())).collect()
    }

    fn name(&self, name: &str, column: &Column) -> String {
        if self.is_struct { format!("{name}.{}", column.name) } else { name.into() }
    }
}

/// Steps in which serde_arrow must have seen every variant of every enum of a type.
const TRACE_STEPS_MAX: usize = 1000;

/// The column that holds what serde_arrow would store in a field, or what it is that has none.
fn column(field: &Field) -> Result<Column, String> {
    match LogicalType::from_arrow(field.data_type()) {
        Some(ty) => Ok(Column::new(field.name(), ty, field.is_nullable())),
        None => Err(format!("\"{}\" would be {}, which no column type holds", field.name(), kind(field.data_type()))),
    }
}

/// What a field is in Rust, for people.
fn kind(data_type: &DataType) -> String {
    match data_type {
        DataType::Union(_, _) => "an enum with data".into(),
        DataType::Map(_, _) => "a map".into(),
        DataType::Null => "always null".into(),
        DataType::List(element) => format!("a list of {}", kind(element.data_type())),
        other => other.to_string(),
    }
}

impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> StateType for Serde<T> {
    const ON_HEAP: bool = true;
    type Writer = SerdeWriter<T>;
    type Reader = SerdeReader<T>;

    fn columns(name: &str) -> Result<Vec<Column>, TypeError> {
        let layout = Layout::trace::<T>()?;
        let named = |column: &Column| Column::new(layout.name(name, column), column.ty.clone(), column.nullable);
        Ok(layout.columns.iter().map(named).collect())
    }

    fn width() -> usize {
        Layout::trace::<T>().map_or(0, |layout| layout.columns.len())
    }

    fn writer(rows: usize) -> SerdeWriter<T> {
        let state = Layout::trace::<T>().and_then(|layout| {
            let mut builder = ArrayBuilder::from_arrow(&layout.fields()).map_err(encode::<T>)?;
            builder.reserve(rows);
            Ok((builder, layout.is_struct))
        });
        SerdeWriter { state, rust: PhantomData }
    }

    fn reader(name: &str, columns: &[ArrayRef]) -> Result<SerdeReader<T>, TypeError> {
        let layout = Layout::trace::<T>()?;
        check_width::<T>(name, layout.columns.len(), columns.len())?;
        for (column, array) in layout.columns.iter().zip(columns) {
            let name = layout.name(name, column);
            check_column::<T>(&name, column.ty.clone(), array)?;
            if !column.nullable {
                check_no_nulls::<T>(&name, array)?;
            }
        }
        let decode = |source| TypeError::Decode { column: name.into(), rust: type_name::<T>(), source };
        let rows = Deserializer::from_arrow(&layout.fields(), columns).map_err(decode)?;
        let values = rows.iter().map(|row| match layout.is_struct {
            true => T::deserialize(row),
            false => Item::<T>::deserialize(row).map(|item| item.0),
        });
        Ok(SerdeReader { values: values.collect::<Result<_, _>>().map_err(decode)? })
    }

    fn heap_bytes(&self) -> usize {
        heap_bytes(&self.0)
    }
}

fn encode<T>(source: serde_arrow::Error) -> TypeError {
    TypeError::Encode { rust: type_name::<T>(), source }
}

/// Takes serde values.
pub struct SerdeWriter<T> {
    /// The builder, and whether `T` is its row; the first failure, after which nothing is taken.
    state: Result<(ArrayBuilder, bool), TypeError>,
    rust: PhantomData<fn(&T)>,
}

impl<T: Serialize> StateWriter<Serde<T>> for SerdeWriter<T> {
    fn push(&mut self, value: &Serde<T>) {
        let Ok((builder, is_struct)) = &mut self.state else { return };
        let pushed = if *is_struct { builder.push(&value.0) } else { builder.push(Item(&value.0)) };
        if let Err(error) = pushed {
            self.state = Err(encode::<T>(error));
        }
    }

    fn finish(self, columns: &mut Vec<ArrayRef>) -> Result<(), TypeError> {
        columns.extend(self.state?.0.into_arrow().map_err(encode::<T>)?);
        Ok(())
    }
}

/// Gives serde values.
#[derive(Debug)]
pub struct SerdeReader<T> {
    values: Vec<T>,
}

impl<T: Clone + Send> StateReader<Serde<T>> for SerdeReader<T> {
    fn get(&self, row: usize) -> Serde<T> {
        Serde(self.values[row].clone())
    }
}
