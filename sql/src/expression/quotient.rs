//! Division of decimals: six digits behind the point at least, rounded half away from zero.
//!
//! Arrow's gives four digits more than the dividend has and cuts the rest off, so that a share of two counts is 0. The type is
//! Flink's, `quotient_type`; a division by zero and a quotient that does not fit are errors, as all arithmetic here.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray, Decimal128Array, new_null_array};
use arrow::compute::try_binary;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, i256};
use arrow::error::ArrowError;
use datafusion_common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Digits behind the point that a quotient has at least.
const SCALE_MIN: i32 = 6;
/// More than any decimal's digits without its point.
const LIMIT: u128 = 10u128.pow(DECIMAL128_MAX_PRECISION as u32);

static DIVIDE: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(Divide { signature: Signature::any(2, Volatility::Immutable) })));

/// Replaces `expr` where it is a division of decimals.
///
/// Contract: its operands were coerced; what it is part of was not.
pub(super) fn divide_decimals(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right })
            if quotient_type(&left.get_type(schema)?, &right.get_type(schema)?).is_some() =>
        {
            Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&DIVIDE), vec![*left, *right])))
        }
        other => Ok(other),
    }
}

/// Whether this is the function that `divide_decimals` puts in: null only where an argument is.
pub(super) fn is_division(function: &ScalarUDF) -> bool {
    function.name() == DIVIDE.name()
}

/// The type of a quotient of decimals: as many digits behind the point as make it exact for most divisors, fewer, but six at least,
/// where those before it need the room. `None` where these are no such decimals.
fn quotient_type(dividend: &DataType, divisor: &DataType) -> Option<DataType> {
    let (DataType::Decimal128(p1, s1 @ 0..), DataType::Decimal128(p2, s2 @ 0..)) = (dividend, divisor) else { return None };
    let [p1, s1, p2, s2] = [i32::from(*p1), i32::from(*s1), i32::from(*p2), i32::from(*s2)];
    let digits_max = i32::from(DECIMAL128_MAX_PRECISION);
    let (before, scale) = (p1 - s1 + s2, SCALE_MIN.max(s1 + p2 + 1));
    let scale = if before + scale > digits_max { SCALE_MIN.max(digits_max - before) } else { scale };
    let precision = digits_max.min(before + scale);
    Some(DataType::Decimal128(u8::try_from(precision).ok()?, i8::try_from(scale).ok()?))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Divide {
    signature: Signature,
}

impl ScalarUDFImpl for Divide {
    fn name(&self) -> &str {
        "checked_divide"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [dividend, divisor] => match quotient_type(dividend, divisor) {
                Some(ty) => Ok(ty),
                None => internal_err!("{} of {dividend} by {divisor}", self.name()),
            },
            _ => internal_err!("{} over {} arguments", self.name(), arguments.len()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [dividend, divisor] = args.args.as_slice() else {
            return internal_err!("{} over {} arguments", self.name(), args.args.len());
        };
        let Some(division) = Division::new(&dividend.data_type(), &divisor.data_type()) else {
            return internal_err!("{} of {} by {}", self.name(), dividend.data_type(), divisor.data_type());
        };
        let ty = division.ty();
        let quotients: Decimal128Array = match (dividend, divisor) {
            (ColumnarValue::Scalar(dividend), ColumnarValue::Scalar(divisor)) => {
                let quotient = decimal(dividend)?.zip(decimal(divisor)?);
                let quotient = quotient.map(|(dividend, divisor)| division.divide(dividend, divisor)).transpose()?;
                let ScalarValue::Decimal128(_, precision, scale) = ScalarValue::try_new_null(&ty)? else {
                    return internal_err!("a quotient is a decimal");
                };
                return Ok(ColumnarValue::Scalar(ScalarValue::Decimal128(quotient, precision, scale)));
            }
            (ColumnarValue::Array(dividends), ColumnarValue::Scalar(divisor)) => match decimal(divisor)? {
                None => return Ok(ColumnarValue::Array(new_null_array(&ty, dividends.len()))),
                Some(divisor) => {
                    dividends.as_primitive::<Decimal128Type>().try_unary(|dividend| division.divide(dividend, divisor))?
                }
            },
            (ColumnarValue::Scalar(dividend), ColumnarValue::Array(divisors)) => match decimal(dividend)? {
                None => return Ok(ColumnarValue::Array(new_null_array(&ty, divisors.len()))),
                Some(dividend) => {
                    divisors.as_primitive::<Decimal128Type>().try_unary(|divisor| division.divide(dividend, divisor))?
                }
            },
            (ColumnarValue::Array(dividends), ColumnarValue::Array(divisors)) => {
                let (dividends, divisors) =
                    (dividends.as_primitive::<Decimal128Type>(), divisors.as_primitive::<Decimal128Type>());
                try_binary(dividends, divisors, |dividend, divisor| division.divide(dividend, divisor))?
            }
        };
        Ok(ColumnarValue::Array(Arc::new(quotients.with_data_type(ty))))
    }
}

fn decimal(value: &ScalarValue) -> Result<Option<i128>> {
    match value {
        ScalarValue::Decimal128(value, ..) => Ok(*value),
        other => internal_err!("{} is no decimal", other.data_type()),
    }
}

/// A division of values of two types.
struct Division {
    dividend: (u8, i8),
    divisor: (u8, i8),
    quotient: (u8, i8),
    /// What a dividend is multiplied by, so that whole numbers are divided; `None` where it does not fit.
    factor: Option<i128>,
    wide_factor: i256,
}

impl Division {
    fn new(dividend: &DataType, divisor: &DataType) -> Option<Self> {
        let quotient = quotient_type(dividend, divisor)?;
        let (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) = (dividend, divisor) else { return None };
        let DataType::Decimal128(precision, scale) = quotient else { return None };
        // Never negative: the scale is at least six, or what `before` leaves of 38 digits, or more than the dividend's.
        let digits = u32::try_from(i32::from(scale) - i32::from(*s1) + i32::from(*s2)).ok()?;
        let wide_factor = (0..digits).fold(i256::ONE, |factor, _| factor.wrapping_mul(i256::from_i128(10)));
        Some(Self {
            dividend: (*p1, *s1),
            divisor: (*p2, *s2),
            quotient: (precision, scale),
            factor: 10i128.checked_pow(digits),
            wide_factor,
        })
    }

    fn ty(&self) -> DataType {
        DataType::Decimal128(self.quotient.0, self.quotient.1)
    }

    #[inline]
    fn divide(&self, dividend: i128, divisor: i128) -> std::result::Result<i128, ArrowError> {
        if divisor == 0 {
            return Err(ArrowError::DivideByZero);
        }
        let narrow = self.factor.and_then(|factor| dividend.checked_mul(factor)).filter(|scaled| *scaled != i128::MIN);
        let quotient = match narrow {
            Some(scaled) => Some(rounded(scaled / divisor, scaled % divisor, divisor, scaled < 0)),
            None => self.divide_wide(dividend, divisor),
        };
        quotient.filter(|quotient| quotient.unsigned_abs() < LIMIT).ok_or_else(|| self.overflow(dividend, divisor))
    }

    /// `None` where the quotient does not fit.
    #[cold]
    fn divide_wide(&self, dividend: i128, divisor: i128) -> Option<i128> {
        let (scaled, wide) = (i256::from_i128(dividend).checked_mul(self.wide_factor)?, i256::from_i128(divisor));
        let quotient = scaled.checked_div(wide)?.to_i128()?;
        Some(rounded(quotient, scaled.checked_rem(wide)?.to_i128()?, divisor, dividend < 0))
    }

    #[cold]
    fn overflow(&self, dividend: i128, divisor: i128) -> ArrowError {
        let text = |value, (precision, scale)| Decimal128Type::format_decimal(value, precision, scale);
        ArrowError::ArithmeticOverflow(format!(
            "overflow: {} / {} has more than {} digits before the point",
            text(dividend, self.dividend),
            text(divisor, self.divisor),
            i32::from(DECIMAL128_MAX_PRECISION) - i32::from(self.quotient.1),
        ))
    }
}

/// The quotient, half away from zero by the remainder that is left.
#[inline]
fn rounded(quotient: i128, remainder: i128, divisor: i128, dividend_is_negative: bool) -> i128 {
    let (remainder, whole) = (remainder.unsigned_abs(), divisor.unsigned_abs());
    match remainder >= whole - remainder {
        true if dividend_is_negative != (divisor < 0) => quotient.saturating_sub(1),
        true => quotient.saturating_add(1),
        false => quotient,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(precision: u8, scale: i8) -> DataType {
        DataType::Decimal128(precision, scale)
    }

    #[test]
    fn types_are_flinks() {
        let cases = [
            ((10, 2), (10, 2), (23, 13)),
            ((38, 0), (38, 0), (38, 6)),
            ((38, 0), (20, 0), (38, 6)),
            ((20, 0), (20, 0), (38, 18)),
            ((1, 1), (1, 0), (6, 6)),
            ((5, 0), (3, 0), (11, 6)),
            ((38, 38), (38, 0), (38, 38)),
            ((38, 38), (38, 38), (38, 6)),
            ((38, 10), (38, 38), (38, 6)),
            ((38, 10), (20, 2), (38, 8)),
        ];
        for ((p1, s1), (p2, s2), (precision, scale)) in cases {
            let ty = quotient_type(&decimal(p1, s1), &decimal(p2, s2));
            assert_eq!(ty, Some(decimal(precision, scale)), "DECIMAL({p1},{s1}) / DECIMAL({p2},{s2})");
        }
    }

    /// The quotient in units of the result, rounded half away from zero, by wide numbers of decimal digits; `None`: does not fit.
    fn naive(dividend: i128, divisor: i128, shift: u32) -> Option<i128> {
        let (mut quotient, mut rest) =
            (dividend.unsigned_abs() / divisor.unsigned_abs(), dividend.unsigned_abs() % divisor.unsigned_abs());
        for _ in 0..shift {
            // Ten times the rest by addition, so that nothing overflows.
            let mut digit = 0;
            let mut ten = 0u128;
            for _ in 0..10 {
                if ten >= divisor.unsigned_abs() - rest {
                    ten -= divisor.unsigned_abs() - rest;
                    digit += 1;
                } else {
                    ten += rest;
                }
            }
            rest = ten;
            quotient = quotient.checked_mul(10)?.checked_add(digit)?;
        }
        if rest >= divisor.unsigned_abs() - rest {
            quotient += 1;
        }
        let quotient = i128::try_from(quotient).ok().filter(|quotient| quotient.unsigned_abs() < LIMIT)?;
        Some(if (dividend < 0) != (divisor < 0) { -quotient } else { quotient })
    }

    proptest! {
        #[test]
        fn quotients_are_those_of_long_division(
            (p1, s1) in (1u8..=38).prop_flat_map(|precision| (Just(precision), 0..=precision as i8)),
            (p2, s2) in (1u8..=38).prop_flat_map(|precision| (Just(precision), 0..=precision as i8)),
            dividend: i128,
            divisor: i128,
            (shift, divisor_shift) in (0u32..120, 0u32..126),
        ) {
            let within = |value: i128, precision: u8| value % 10i128.pow(precision.into());
            let (dividend, divisor) = (within(dividend >> shift, p1), within(divisor >> divisor_shift, p2));
            prop_assume!(divisor != 0);
            let division = Division::new(&decimal(p1, s1), &decimal(p2, s2)).expect("decimals");
            let digits = i32::from(division.quotient.1) - i32::from(s1) + i32::from(s2);
            let given = division.divide(dividend, divisor).ok();
            prop_assert_eq!(given, naive(dividend, divisor, digits as u32));
        }
    }

    #[test]
    fn zero_has_no_quotients_and_wide_ones_are_said() {
        let division = Division::new(&decimal(38, 0), &decimal(3, 2)).expect("decimals");
        assert!(matches!(division.divide(1, 0), Err(ArrowError::DivideByZero)));
        let greatest = 10i128.pow(38) - 1;
        let error = division.divide(greatest, 1).expect_err("it has 40 digits").to_string();
        assert!(
            error.ends_with("overflow: 99999999999999999999999999999999999999 / 0.01 has more than 32 digits before the point"),
            "{error}"
        );
    }
}
