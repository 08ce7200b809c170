//! Numbers, truth and times: values of a fixed width.

use std::any::type_name;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::array::{BooleanBufferBuilder, NullBufferBuilder};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMillisecondType,
    UInt64Type,
};
use levada_common::types::LogicalType;

use super::error::check_column;
use super::{NotNull, ScalarReader, ScalarType, ScalarWriter, TypeError};

/// A moment, TIMESTAMP.
///
/// Units: milliseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

/// A day, DATE.
///
/// Units: days since 1970-01-01.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Date(pub i32);

/// A number of `P` decimal digits, `S` of them after the point, DECIMAL(P,S).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Decimal<const P: u8, const S: i8>(i128);

impl<const P: u8, const S: i8> Decimal<P, S> {
    /// The number `unscaled / 10^S`; `None` where it has more than `P` digits.
    pub fn new(unscaled: i128) -> Option<Self> {
        const { assert!(P >= 1 && P <= 38 && S >= 0 && S as u8 <= P, "DECIMAL(P,S) has 1 to 38 digits, 0 to P after the point") };
        (unscaled.unsigned_abs() < 10u128.pow(u32::from(P))).then_some(Self(unscaled))
    }

    /// The number times `10^S`.
    pub fn unscaled(self) -> i128 {
        self.0
    }
}

/// A type whose values are an Arrow primitive each.
pub trait FixedType: Clone + Send + Sized + 'static {
    /// The Arrow type.
    type Arrow: ArrowPrimitiveType;

    /// The column's type.
    fn column_type() -> LogicalType;

    /// The value as Arrow has it.
    fn native(&self) -> <Self::Arrow as ArrowPrimitiveType>::Native;

    /// The value that Arrow has; `None` where the type does not have it.
    fn from_native(native: <Self::Arrow as ArrowPrimitiveType>::Native) -> Option<Self>;
}

macro_rules! fixed {
    ($($rust:ty, $arrow:ty, $column:expr, $native:expr, $from:expr;)*) => {$(
        impl FixedType for $rust {
            type Arrow = $arrow;

            fn column_type() -> LogicalType {
                $column
            }

            #[inline]
            fn native(&self) -> <$arrow as ArrowPrimitiveType>::Native {
                #[allow(clippy::redundant_closure_call)]
                ($native)(*self)
            }

            #[inline]
            fn from_native(native: <$arrow as ArrowPrimitiveType>::Native) -> Option<Self> {
                #[allow(clippy::redundant_closure_call)]
                ($from)(native)
            }
        }
    )*};
}

fixed! {
    i8, Int8Type, LogicalType::Int8, |value| value, Some;
    i16, Int16Type, LogicalType::Int16, |value| value, Some;
    i32, Int32Type, LogicalType::Int32, |value| value, Some;
    i64, Int64Type, LogicalType::Int64, |value| value, Some;
    u16, Int32Type, LogicalType::Int32, i32::from, |native: i32| native.try_into().ok();
    u32, Int64Type, LogicalType::Int64, i64::from, |native: i64| native.try_into().ok();
    u64, UInt64Type, LogicalType::UInt64, |value| value, Some;
    f32, Float32Type, LogicalType::Float32, |value| value, Some;
    f64, Float64Type, LogicalType::Float64, |value| value, Some;
    Timestamp, TimestampMillisecondType, LogicalType::Timestamp, |value: Timestamp| value.0, |native| Some(Timestamp(native));
    Date, Date32Type, LogicalType::Date, |value: Date| value.0, |native| Some(Date(native));
}

impl<const P: u8, const S: i8> FixedType for Decimal<P, S> {
    type Arrow = Decimal128Type;

    fn column_type() -> LogicalType {
        LogicalType::Decimal(P, S)
    }

    fn native(&self) -> i128 {
        self.0
    }

    fn from_native(native: i128) -> Option<Self> {
        Self::new(native)
    }
}

impl<T: FixedType> NotNull for T {}

impl<T: FixedType> ScalarType for T {
    const NULLABLE: bool = false;
    const ON_HEAP: bool = false;
    type Writer = FixedWriter<T>;
    type Reader = FixedReader<T>;

    fn logical_type() -> LogicalType {
        T::column_type()
    }

    fn writer(rows: usize) -> FixedWriter<T> {
        FixedWriter { values: Vec::with_capacity(rows), nulls: NullBufferBuilder::new(rows) }
    }

    fn reader(column: &str, array: &ArrayRef) -> Result<FixedReader<T>, TypeError> {
        check_column::<T>(column, T::column_type(), array)?;
        let array = array.as_primitive::<T::Arrow>().clone();
        let bad = |row: &usize| array.is_valid(*row) && T::from_native(array.value(*row)).is_none();
        match (0..array.len()).find(bad) {
            None => Ok(FixedReader { array, rust: PhantomData }),
            Some(row) => {
                let value = format!("{:?}", array.value(row));
                Err(TypeError::Value { column: column.into(), rust: type_name::<T>(), row, value })
            }
        }
    }
}

/// Takes values of a fixed width.
#[derive(Debug)]
pub struct FixedWriter<T: FixedType> {
    values: Vec<<T::Arrow as ArrowPrimitiveType>::Native>,
    nulls: NullBufferBuilder,
}

impl<T: FixedType> ScalarWriter<T> for FixedWriter<T> {
    #[inline]
    fn push(&mut self, value: &T) {
        self.values.push(value.native());
        self.nulls.append_non_null();
    }

    fn push_null(&mut self) {
        self.values.push(Default::default());
        self.nulls.append_null();
    }

    fn finish(self) -> Result<ArrayRef, TypeError> {
        let array = PrimitiveArray::<T::Arrow>::new(self.values.into(), self.nulls.build());
        Ok(Arc::new(array.with_data_type(T::column_type().to_arrow())))
    }
}

/// Gives values of a fixed width.
#[derive(Debug)]
pub struct FixedReader<T: FixedType> {
    array: PrimitiveArray<T::Arrow>,
    rust: PhantomData<fn() -> T>,
}

impl<T: FixedType> ScalarReader<T> for FixedReader<T> {
    #[inline]
    fn get(&self, row: usize) -> T {
        T::from_native(self.array.value(row)).expect("the reader checked every value")
    }
}

impl NotNull for bool {}

impl ScalarType for bool {
    const NULLABLE: bool = false;
    const ON_HEAP: bool = false;
    type Writer = BoolWriter;
    type Reader = BooleanBuffer;

    fn logical_type() -> LogicalType {
        LogicalType::Boolean
    }

    fn writer(rows: usize) -> BoolWriter {
        BoolWriter { values: BooleanBufferBuilder::new(rows), nulls: NullBufferBuilder::new(rows) }
    }

    fn reader(column: &str, array: &ArrayRef) -> Result<BooleanBuffer, TypeError> {
        check_column::<bool>(column, LogicalType::Boolean, array)?;
        Ok(array.as_boolean().values().clone())
    }
}

/// Takes truths.
#[derive(Debug)]
pub struct BoolWriter {
    values: BooleanBufferBuilder,
    nulls: NullBufferBuilder,
}

impl ScalarWriter<bool> for BoolWriter {
    fn push(&mut self, value: &bool) {
        self.values.append(*value);
        self.nulls.append_non_null();
    }

    fn push_null(&mut self) {
        self.values.append(false);
        self.nulls.append_null();
    }

    fn finish(mut self) -> Result<ArrayRef, TypeError> {
        let nulls: Option<NullBuffer> = self.nulls.build();
        Ok(Arc::new(BooleanArray::new(self.values.finish(), nulls)))
    }
}

impl ScalarReader<bool> for BooleanBuffer {
    fn get(&self, row: usize) -> bool {
        self.value(row)
    }
}
