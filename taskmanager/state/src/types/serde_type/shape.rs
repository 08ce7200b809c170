//! What serde_arrow writes, and the columns that it becomes.
//!
//! Most arrays are columns as they are. A map becomes a LIST of STRUCT(key, value); an enum with data becomes a STRUCT of the
//! variant's name, `variant`, and a nullable column for each variant that has data: types that every reader of columns knows.
//!
//! Invariant: `to_serde` gives back what `to_column` took, value for value.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, MapArray, NullArray, StringArray, StructArray, UInt32Array, UnionArray,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, UnionFields, UnionMode};
use arrow::error::ArrowError;
use levada_common::types::{Column, LogicalType};

/// The column of an enum's variant names.
const VARIANT_COLUMN: &str = "variant";

/// The columns of a map's entries.
const ENTRY_COLUMNS: [&str; 2] = ["key", "value"];

/// A field of a serde type.
#[derive(Debug)]
pub(super) struct Part {
    name: String,
    nullable: bool,
    shape: Shape,
}

/// What a field's values are.
#[derive(Debug)]
enum Shape {
    /// The array is the column.
    Plain(LogicalType),
    /// Nothing is stored: an enum's variant without data.
    Nothing,
    List(Box<Part>),
    Struct(Vec<Part>),
    Map(Box<[Part; 2]>),
    Enum(Vec<(i8, Part)>),
}

impl Part {
    /// Of a field that serde_arrow has traced.
    ///
    /// Errors: what it is that has no column.
    pub(super) fn of(field: &Field) -> Result<Self, String> {
        let shape = Shape::of(field.data_type()).map_err(|problem| match problem {
            Problem::Below(text) => text,
            Problem::Here(text) => format!("\"{}\" would be {text}, which no column type holds", field.name()),
        })?;
        if field.is_nullable() && matches!(shape, Shape::Enum(_)) {
            return Err(format!("\"{}\" is an option of an enum with data; give the enum a variant for it", field.name()));
        }
        Ok(Self { name: field.name().clone(), nullable: field.is_nullable(), shape })
    }

    /// The fields of a struct that may not be null; itself otherwise.
    pub(super) fn into_fields(self) -> (Vec<Part>, bool) {
        match self {
            Part { shape: Shape::Struct(parts), nullable: false, .. } => (parts, true),
            Part { shape: Shape::Plain(LogicalType::Struct(columns)), nullable: false, .. } => {
                let plain =
                    |column: Column| Part { name: column.name, nullable: column.nullable, shape: Shape::Plain(column.ty) };
                (columns.into_iter().map(plain).collect(), true)
            }
            other => (vec![other], false),
        }
    }

    pub(super) fn column(&self) -> Column {
        Column::new(&self.name, self.shape.logical_type(), self.nullable)
    }

    /// What serde_arrow is told to write and read. To Arrow a union is null where its variant is, so that the field of an enum
    /// must allow for it.
    pub(super) fn field(&self) -> Field {
        Field::new(&self.name, self.shape.serde_type(), self.nullable || matches!(self.shape, Shape::Enum(_)))
    }

    /// The column of what serde_arrow wrote.
    pub(super) fn to_column(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match &self.shape {
            Shape::Plain(_) | Shape::Nothing => Ok(Arc::clone(array)),
            Shape::List(item) => {
                let (_, offsets, values, nulls) = array.as_list::<i32>().clone().into_parts();
                let field = list_item(&self.shape.logical_type().to_arrow());
                Ok(Arc::new(ListArray::try_new(field, offsets, item.to_column(&values)?, nulls)?))
            }
            Shape::Struct(parts) => {
                let array = array.as_struct();
                let columns = parts.iter().zip(array.columns()).map(|(part, column)| part.to_column(column));
                struct_array(parts.iter().map(Part::column), columns.collect::<Result<_, _>>()?, array.nulls().cloned())
            }
            Shape::Map(parts) => {
                let (_, offsets, entries, nulls, _) = array.as_map().clone().into_parts();
                let columns = parts.iter().zip(entries.columns()).map(|(part, column)| part.to_column(column));
                let entries = struct_array(entry_columns(parts), columns.collect::<Result<_, _>>()?, None)?;
                let field = list_item(&self.shape.logical_type().to_arrow());
                Ok(Arc::new(ListArray::try_new(field, offsets, entries, nulls)?))
            }
            Shape::Enum(variants) => enum_to_column(variants, array.as_union()),
        }
    }

    /// What serde_arrow reads, of a column that has the right type.
    pub(super) fn to_serde(&self, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match &self.shape {
            Shape::Plain(_) | Shape::Nothing => Ok(Arc::clone(column)),
            Shape::List(item) => {
                let (_, offsets, values, nulls) = column.as_list::<i32>().clone().into_parts();
                let field = list_item(&self.shape.serde_type());
                Ok(Arc::new(ListArray::try_new(field, offsets, item.to_serde(&values)?, nulls)?))
            }
            Shape::Struct(parts) => {
                let array = column.as_struct();
                let columns = parts.iter().zip(array.columns()).map(|(part, column)| part.to_serde(column));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let DataType::Struct(fields) = self.shape.serde_type() else { unreachable!("a struct's type is STRUCT") };
                Ok(Arc::new(StructArray::try_new(fields, columns, array.nulls().cloned())?))
            }
            Shape::Map(parts) => {
                let (_, offsets, values, nulls) = column.as_list::<i32>().clone().into_parts();
                let columns = parts.iter().zip(values.as_struct().columns()).map(|(part, column)| part.to_serde(column));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let DataType::Map(field, _) = self.shape.serde_type() else { unreachable!("a map's type is MAP") };
                let DataType::Struct(fields) = field.data_type().clone() else { unreachable!("a map's entries are STRUCT") };
                let entries = StructArray::try_new(fields, columns, values.nulls().cloned())?;
                Ok(Arc::new(MapArray::try_new(field, offsets, entries, nulls, false)?))
            }
            Shape::Enum(variants) => enum_to_serde(variants, column.as_struct(), union_fields(variants)),
        }
    }
}

/// Why a type has no columns.
enum Problem {
    /// Something in it has none: the text names it.
    Below(String),
    /// It has none itself: what it is.
    Here(String),
}

impl Shape {
    fn of(data_type: &DataType) -> Result<Self, Problem> {
        let part = |field: &FieldRef| Part::of(field).map_err(Problem::Below);
        let shape = match data_type {
            DataType::List(item) => match Part::of(item) {
                Ok(item) => Self::List(Box::new(item)),
                Err(text) => return Err(Problem::Below(text)),
            },
            DataType::Struct(fields) => Self::Struct(fields.iter().map(part).collect::<Result<_, _>>()?),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) if fields.len() == 2 => Self::Map(Box::new([part(&fields[0])?, part(&fields[1])?])),
                other => return Err(Problem::Here(other.to_string())),
            },
            DataType::Union(fields, _) => {
                let variants = fields.iter().map(|(id, field)| match field.data_type() {
                    DataType::Null => Ok((id, Part { name: field.name().clone(), nullable: true, shape: Self::Nothing })),
                    _ => part(field).map(|part| (id, part)),
                });
                let variants = variants.collect::<Result<Vec<_>, _>>()?;
                if variants.iter().any(|(_, part)| part.name == VARIANT_COLUMN) {
                    return Err(Problem::Here(format!("an enum with a variant named \"{VARIANT_COLUMN}\"")));
                }
                Self::Enum(variants)
            }
            DataType::Null => return Err(Problem::Here("always null".into())),
            other => match LogicalType::from_arrow(other) {
                Some(ty) => Self::Plain(ty),
                None => return Err(Problem::Here(other.to_string())),
            },
        };
        Ok(shape.simplified())
    }

    /// `Plain` where all that is below is.
    fn simplified(self) -> Self {
        let is_plain = match &self {
            Self::List(item) => matches!(item.shape, Self::Plain(_)),
            Self::Struct(parts) => parts.iter().all(|part| matches!(part.shape, Self::Plain(_))),
            _ => false,
        };
        if is_plain { Self::Plain(self.logical_type()) } else { self }
    }

    fn logical_type(&self) -> LogicalType {
        match self {
            Self::Plain(ty) => ty.clone(),
            Self::Nothing => LogicalType::Struct(Vec::new()),
            Self::List(item) => LogicalType::List(Box::new(item.shape.logical_type())),
            Self::Struct(parts) => LogicalType::Struct(parts.iter().map(Part::column).collect()),
            Self::Map(parts) => LogicalType::List(Box::new(LogicalType::Struct(entry_columns(parts).collect()))),
            Self::Enum(variants) => LogicalType::Struct(variant_columns(variants).collect()),
        }
    }

    fn serde_type(&self) -> DataType {
        match self {
            Self::Plain(ty) => ty.to_arrow(),
            Self::Nothing => DataType::Null,
            Self::List(item) => DataType::List(Arc::new(item.field())),
            Self::Struct(parts) => DataType::Struct(parts.iter().map(Part::field).collect()),
            Self::Map(parts) => {
                let entries = DataType::Struct(parts.iter().map(Part::field).collect());
                DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
            }
            Self::Enum(variants) => DataType::Union(union_fields(variants), UnionMode::Dense),
        }
    }
}

fn list_item(list: &DataType) -> FieldRef {
    let DataType::List(item) = list else { unreachable!("a list's type is LIST") };
    Arc::clone(item)
}

fn entry_columns(parts: &[Part; 2]) -> impl Iterator<Item = Column> {
    let named = parts.iter().zip(ENTRY_COLUMNS);
    named.map(|(part, name)| Column::new(name, part.shape.logical_type(), part.nullable))
}

/// The variant's name, and a column for each variant that has data.
fn variant_columns(variants: &[(i8, Part)]) -> impl Iterator<Item = Column> {
    let with_data = variants.iter().map(|(_, part)| part).filter(|part| !matches!(part.shape, Shape::Nothing));
    let name = Column::new(VARIANT_COLUMN, LogicalType::String, false);
    std::iter::once(name).chain(with_data.map(|part| Column::new(&part.name, part.shape.logical_type(), true)))
}

fn union_fields(variants: &[(i8, Part)]) -> UnionFields {
    variants.iter().map(|(id, part)| (*id, Arc::new(part.field()))).collect()
}

fn struct_array(
    columns: impl Iterator<Item = Column>,
    arrays: Vec<ArrayRef>,
    nulls: Option<arrow::buffer::NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let fields = columns.map(|column| column.to_field()).collect();
    Ok(Arc::new(StructArray::try_new(fields, arrays, nulls)?))
}

fn enum_to_column(variants: &[(i8, Part)], array: &UnionArray) -> Result<ArrayRef, ArrowError> {
    let ids = array.type_ids();
    let name_of = |id: &i8| variants.iter().find(|(of, _)| of == id).map_or("", |(_, part)| part.name.as_str());
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values(ids.iter().map(name_of)))];
    for (id, part) in variants.iter().filter(|(_, part)| !matches!(part.shape, Shape::Nothing)) {
        let places = (0..array.len()).map(|row| (ids[row] == *id).then(|| array.value_offset(row) as i32));
        arrays.push(take(&part.to_column(array.child(*id))?, &places.collect::<Int32Array>(), None)?);
    }
    struct_array(variant_columns(variants), arrays, None)
}

fn enum_to_serde(variants: &[(i8, Part)], column: &StructArray, fields: UnionFields) -> Result<ArrayRef, ArrowError> {
    let names = column.column(0).as_string::<i32>();
    let mut ids = Vec::with_capacity(column.len());
    let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); variants.len()];
    let mut offsets = Vec::with_capacity(column.len());
    for row in 0..column.len() {
        let name = names.value(row);
        let variant = variants.iter().position(|(_, part)| part.name == name);
        let variant = variant.ok_or_else(|| ArrowError::SchemaError(format!("the enum has no variant \"{name}\"")))?;
        ids.push(variants[variant].0);
        offsets.push(rows_of[variant].len() as i32);
        rows_of[variant].push(row as u32);
    }
    let mut data = column.columns()[1..].iter();
    let mut children: Vec<ArrayRef> = Vec::with_capacity(variants.len());
    for ((_, part), rows) in variants.iter().zip(rows_of) {
        children.push(match part.shape {
            Shape::Nothing => Arc::new(NullArray::new(rows.len())),
            _ => {
                let own = data.next().expect("the column's type was checked");
                part.to_serde(&take(own, &UInt32Array::from(rows), None)?)?
            }
        });
    }
    Ok(Arc::new(UnionArray::try_new(fields, ids.into(), Some(offsets.into()), children)?))
}
