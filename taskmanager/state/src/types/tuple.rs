//! Tuples: the columns of each part, one after the other.

use arrow::array::ArrayRef;
use levada_common::types::Column;

use super::error::check_width;
use super::{StateReader, StateType, StateWriter, TypeError};

impl StateType for () {
    const ON_HEAP: bool = false;
    type Writer = NoWriter;
    type Reader = NoReader;

    fn columns(_name: &str) -> Result<Vec<Column>, TypeError> {
        Ok(Vec::new())
    }

    fn width() -> usize {
        0
    }

    fn writer(_rows: usize) -> NoWriter {
        NoWriter
    }

    fn reader(name: &str, columns: &[ArrayRef]) -> Result<NoReader, TypeError> {
        check_width::<()>(name, 0, columns.len())?;
        Ok(NoReader)
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Takes `()`, of which nothing is stored.
#[derive(Debug)]
pub struct NoWriter;

impl StateWriter<()> for NoWriter {
    fn push(&mut self, _value: &()) {}

    fn finish(self, _columns: &mut Vec<ArrayRef>) -> Result<(), TypeError> {
        Ok(())
    }
}

/// Gives `()`.
#[derive(Debug)]
pub struct NoReader;

impl StateReader<()> for NoReader {
    fn get(&self, _row: usize) {}
}

/// Cuts the first `count` columns off.
fn take<'a>(columns: &mut &'a [ArrayRef], count: usize) -> &'a [ArrayRef] {
    let (first, rest) = columns.split_at(count);
    *columns = rest;
    first
}

/// The writers or the readers of a tuple's parts.
#[derive(Debug)]
pub struct Parts<T>(T);

macro_rules! tuple {
    ($($part:ident $index:tt),+) => {
        impl<$($part: StateType),+> StateType for ($($part,)+) {
            const ON_HEAP: bool = $($part::ON_HEAP)||+;
            type Writer = Parts<($($part::Writer,)+)>;
            type Reader = Parts<($($part::Reader,)+)>;

            fn columns(name: &str) -> Result<Vec<Column>, TypeError> {
                let mut columns = Vec::new();
                $(columns.extend($part::columns(&format!("{name}.{}", $index))?);)+
                Ok(columns)
            }

            fn width() -> usize {
                0 $(+ $part::width())+
            }

            fn writer(rows: usize) -> Self::Writer {
                Parts(($($part::writer(rows),)+))
            }

            fn reader(name: &str, columns: &[ArrayRef]) -> Result<Self::Reader, TypeError> {
                check_width::<Self>(name, Self::width(), columns.len())?;
                let mut rest = columns;
                Ok(Parts(($($part::reader(&format!("{name}.{}", $index), take(&mut rest, $part::width()))?,)+)))
            }

            fn heap_bytes(&self) -> usize {
                0 $(+ self.$index.heap_bytes())+
            }
        }

        impl<$($part: StateType),+> StateWriter<($($part,)+)> for Parts<($($part::Writer,)+)> {
            #[inline]
            fn push(&mut self, value: &($($part,)+)) {
                $(self.0.$index.push(&value.$index);)+
            }

            fn finish(self, columns: &mut Vec<ArrayRef>) -> Result<(), TypeError> {
                $(self.0.$index.finish(columns)?;)+
                Ok(())
            }
        }

        impl<$($part: StateType),+> StateReader<($($part,)+)> for Parts<($($part::Reader,)+)> {
            #[inline]
            fn get(&self, row: usize) -> ($($part,)+) {
                ($(self.0.$index.get(row),)+)
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
