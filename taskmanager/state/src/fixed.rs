//! Columns of up to 64 bits a value, seen as `i64`s that order as the values do.
//!
//! One loop over `i64` then serves integers, dates, timestamps, booleans and floats alike. Invariant: `from_ordered` gives back
//! what `ordered` took, and `a < b` as values exactly where their words say so (floats by arrow's total order: −NaN, −∞ … −0.0,
//! 0.0 … ∞, NaN).

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMillisecondType, UInt64Type,
};

/// Whether values of this type have at most 64 bits, so that the functions here take them.
pub fn is_fixed(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Millisecond, None)
    )
}

/// The words of a column; a word under a null is anything. INT64 and TIMESTAMP are borrowed, others are laid out in `scratch`.
///
/// Contract: `is_fixed` holds for the column's type; another type panics.
pub fn ordered<'a>(column: &'a ArrayRef, scratch: &'a mut Vec<i64>) -> &'a [i64] {
    scratch.clear();
    match column.data_type() {
        DataType::Int64 => return column.as_primitive::<Int64Type>().values(),
        DataType::Timestamp(TimeUnit::Millisecond, None) => return column.as_primitive::<TimestampMillisecondType>().values(),
        DataType::Boolean => scratch.extend(column.as_boolean().values().iter().map(i64::from)),
        DataType::Int8 => widen::<Int8Type>(column, scratch, i64::from),
        DataType::Int16 => widen::<Int16Type>(column, scratch, i64::from),
        DataType::Int32 => widen::<Int32Type>(column, scratch, i64::from),
        DataType::Date32 => widen::<Date32Type>(column, scratch, i64::from),
        DataType::UInt64 => widen::<UInt64Type>(column, scratch, |value| (value ^ SIGN) as i64),
        DataType::Float32 => widen::<Float32Type>(column, scratch, |value| i64::from(order_f32(value.to_bits() as i32))),
        DataType::Float64 => widen::<Float64Type>(column, scratch, |value| order_f64(value.to_bits() as i64)),
        other => panic!("{other} does not fit 64 bits"),
    }
    scratch
}

/// The words of a column as `ordered` gives them, borrowed where it can be.
pub fn ordered_cow(column: &ArrayRef) -> Cow<'_, [i64]> {
    match column.data_type() {
        DataType::Int64 => Cow::Borrowed(column.as_primitive::<Int64Type>().values()),
        DataType::Timestamp(TimeUnit::Millisecond, None) => {
            Cow::Borrowed(column.as_primitive::<TimestampMillisecondType>().values())
        }
        _ => {
            let mut words = Vec::with_capacity(column.len());
            ordered(column, &mut words);
            Cow::Owned(words)
        }
    }
}

/// The column of these words.
///
/// Contract: `is_fixed` holds for `data_type` and the words came from `ordered` of a column of that type.
pub fn from_ordered(words: Vec<i64>, nulls: Option<NullBuffer>, data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Int64 => primitive::<Int64Type>(words, nulls),
        DataType::Timestamp(TimeUnit::Millisecond, None) => primitive::<TimestampMillisecondType>(words, nulls),
        DataType::Boolean => Arc::new(BooleanArray::new(words.iter().map(|word| *word != 0).collect::<BooleanBuffer>(), nulls)),
        DataType::Int8 => narrow::<Int8Type>(&words, nulls, |word| word as i8),
        DataType::Int16 => narrow::<Int16Type>(&words, nulls, |word| word as i16),
        DataType::Int32 => narrow::<Int32Type>(&words, nulls, |word| word as i32),
        DataType::Date32 => narrow::<Date32Type>(&words, nulls, |word| word as i32),
        DataType::UInt64 => narrow::<UInt64Type>(&words, nulls, |word| word as u64 ^ SIGN),
        DataType::Float32 => narrow::<Float32Type>(&words, nulls, |word| f32::from_bits(order_f32(word as i32) as u32)),
        DataType::Float64 => narrow::<Float64Type>(&words, nulls, |word| f64::from_bits(order_f64(word) as u64)),
        other => panic!("{other} does not fit 64 bits"),
    }
}

const SIGN: u64 = 1 << 63;

/// Flips all bits but the sign of negative floats: their bits then order as integers. Its own inverse.
#[inline]
pub(crate) fn order_f64(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// As `order_f64`.
#[inline]
pub(crate) fn order_f32(bits: i32) -> i32 {
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

fn widen<T: ArrowPrimitiveType>(column: &ArrayRef, out: &mut Vec<i64>, word: impl Fn(T::Native) -> i64) {
    out.extend(column.as_primitive::<T>().values().iter().map(|value| word(*value)));
}

fn primitive<T: ArrowPrimitiveType<Native = i64>>(words: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(words.into(), nulls))
}

fn narrow<T: ArrowPrimitiveType>(words: &[i64], nulls: Option<NullBuffer>, value: impl Fn(i64) -> T::Native) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(words.iter().map(|word| value(*word)).collect(), nulls))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array, Int8Array, UInt64Array};

    use super::*;

    #[test]
    fn words_order_as_values_and_come_back() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Float64Array::from(vec![-f64::NAN, f64::NEG_INFINITY, -1.5, -0.0, 0.0, 2.0, f64::INFINITY, f64::NAN])),
            Arc::new(Float32Array::from(vec![-f32::NAN, f32::NEG_INFINITY, -1.5, -0.0, 0.0, 2.0, f32::INFINITY, f32::NAN])),
            Arc::new(UInt64Array::from(vec![0, 1, i64::MAX as u64, SIGN, u64::MAX])),
            Arc::new(Int8Array::from(vec![i8::MIN, -1, 0, i8::MAX])),
            Arc::new(BooleanArray::from(vec![false, true])),
        ];
        for column in columns {
            let mut scratch = Vec::new();
            let words = ordered(&column, &mut scratch).to_vec();
            assert!(words.windows(2).all(|pair| pair[0] < pair[1]), "{column:?} gives {words:?}");
            let back = from_ordered(words, None, column.data_type());
            assert_eq!(back.to_data(), column.to_data());
        }
    }
}
