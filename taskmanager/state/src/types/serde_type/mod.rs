//! Any serde type as columns, through serde_arrow.

mod heap;
mod shape;

use std::any::type_name;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::FieldRef;
use levada_common::types::Column;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Serialize};
use serde_arrow::schema::{SchemaLike, TracingOptions};
use serde_arrow::utils::Item;
use serde_arrow::{ArrayBuilder, Deserializer};

use super::error::{check_column, check_no_nulls, check_width};
use super::{StateReader, StateType, StateWriter, TypeError};
use heap::heap_bytes;
use shape::Part;

/// A value of any serde type, stored in real columns: a column for each field of a struct, one column for anything else.
///
/// Numbers, truths, texts, options, sequences, tuples and structs are columns of their types, an enum without data is the name of
/// its variant, an enum with data a STRUCT of `variant` and a column for each variant that has data, a map a LIST of
/// STRUCT(key, value). What has no columns (a type that contains itself, an option of an enum with data, a field that is always
/// null) is refused when the state is bound.
///
/// Cost: the type is walked each time that a piece of a snapshot is begun or read (5 to 200 µs), each value goes through serde
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
    /// Columns without a prefix, and what serde_arrow has for each.
    parts: Vec<Part>,
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
        let (parts, is_struct) = Part::of(item).map_err(refuse)?.into_fields();
        Ok(Self { parts, is_struct })
    }

    fn fields(&self) -> Vec<FieldRef> {
        self.parts.iter().map(|part| Arc::new(part.field())).collect()
    }

    fn columns(&self, name: &str) -> Vec<Column> {
        let named = |part: &Part| {
            let column = part.column();
            Column { name: self.name(name, &column), ..column }
        };
        self.parts.iter().map(named).collect()
    }

    fn name(&self, name: &str, column: &Column) -> String {
        if self.is_struct { format!("{name}.{}", column.name) } else { name.into() }
    }
}

/// Steps in which serde_arrow must have seen every variant of every enum of a type.
const TRACE_STEPS_MAX: usize = 1000;

impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> StateType for Serde<T> {
    const ON_HEAP: bool = true;
    type Writer = SerdeWriter<T>;
    type Reader = SerdeReader<T>;

    fn columns(name: &str) -> Result<Vec<Column>, TypeError> {
        Ok(Layout::trace::<T>()?.columns(name))
    }

    fn width() -> usize {
        Layout::trace::<T>().map_or(0, |layout| layout.parts.len())
    }

    fn writer(rows: usize) -> SerdeWriter<T> {
        let state = Layout::trace::<T>().and_then(|layout| {
            let mut builder = ArrayBuilder::from_arrow(&layout.fields()).map_err(encode::<T>)?;
            builder.reserve(rows);
            Ok((builder, layout))
        });
        SerdeWriter { state, rust: PhantomData }
    }

    fn reader(name: &str, columns: &[ArrayRef]) -> Result<SerdeReader<T>, TypeError> {
        let layout = Layout::trace::<T>()?;
        check_width::<T>(name, layout.parts.len(), columns.len())?;
        let decode = |source| TypeError::Decode { column: name.into(), rust: type_name::<T>(), source };
        let mut arrays = Vec::with_capacity(columns.len());
        for ((part, column), array) in layout.parts.iter().zip(layout.columns(name)).zip(columns) {
            check_column::<T>(&column.name, column.ty, array)?;
            if !column.nullable {
                check_no_nulls::<T>(&column.name, array)?;
            }
            arrays.push(part.to_serde(array).map_err(|error| decode(serde_arrow::Error::custom(error)))?);
        }
        let rows = Deserializer::from_arrow(&layout.fields(), &arrays).map_err(decode)?;
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
    /// The first failure is kept, and nothing is taken after it.
    state: Result<(ArrayBuilder, Layout), TypeError>,
    rust: PhantomData<fn(&T)>,
}

impl<T: Serialize> StateWriter<Serde<T>> for SerdeWriter<T> {
    fn push(&mut self, value: &Serde<T>) {
        let Ok((builder, layout)) = &mut self.state else { return };
        let pushed = if layout.is_struct { builder.push(&value.0) } else { builder.push(Item(&value.0)) };
        if let Err(error) = pushed {
            self.state = Err(encode::<T>(error));
        }
    }

    fn finish(self, columns: &mut Vec<ArrayRef>) -> Result<(), TypeError> {
        let (builder, layout) = self.state?;
        for (part, array) in layout.parts.iter().zip(builder.into_arrow().map_err(encode::<T>)?) {
            columns.push(part.to_column(&array).map_err(|error| encode::<T>(serde_arrow::Error::custom(error)))?);
        }
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
