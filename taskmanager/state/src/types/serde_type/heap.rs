//! About how many bytes a serde value holds behind pointers: a serializer that only counts.
//!
//! What stands in the value itself is in its own size and not counted; texts count their bytes, elements of sequences and maps
//! their widths. Spare capacity, boxes and the balance of trees are not seen.

use std::fmt;

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant, Serializer,
};

/// Bytes behind pointers of `value`; 0 where it refuses to be serialized, which its next snapshot says.
pub(super) fn heap_bytes<T: Serialize>(value: &T) -> usize {
    let mut counter = Counter { bytes: 0, depth: 0 };
    match value.serialize(&mut counter) {
        Ok(()) => counter.bytes,
        Err(fmt::Error) => 0,
    }
}

/// What was counted, and in how many sequences and maps it stands.
struct Counter {
    bytes: usize,
    depth: usize,
}

/// Width of a `String` or `Vec`.
const HEADER_BYTES: usize = size_of::<String>();

impl Counter {
    /// A value that is part of another: on the heap where that one is.
    fn inline(&mut self, bytes: usize) -> Result<(), fmt::Error> {
        if self.depth > 0 {
            self.bytes += bytes;
        }
        Ok(())
    }

    /// A text or bytes.
    fn text(&mut self, bytes: usize) -> Result<(), fmt::Error> {
        self.bytes += bytes;
        self.inline(HEADER_BYTES)
    }
}

macro_rules! inline {
    ($($method:ident $ty:ty),*) => {
        $(fn $method(self, _value: $ty) -> Result<(), fmt::Error> {
            self.inline(size_of::<$ty>())
        })*
    };
}

impl Serializer for &mut Counter {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    inline!(
        serialize_bool bool, serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64, serialize_i128 i128,
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64, serialize_u128 u128,
        serialize_f32 f32, serialize_f64 f64, serialize_char char
    );

    fn serialize_str(self, value: &str) -> Result<(), fmt::Error> {
        self.text(value.len())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), fmt::Error> {
        self.text(value.len())
    }

    fn serialize_none(self) -> Result<(), fmt::Error> {
        self.inline(size_of::<usize>())
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, _variant: &'static str) -> Result<(), fmt::Error> {
        self.inline(1)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _name: &'static str, value: &T) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Self, fmt::Error> {
        self.inline(HEADER_BYTES)?;
        self.depth += 1;
        Ok(self)
    }

    fn serialize_tuple(self, _len: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Self, fmt::Error> {
        self.inline(HEADER_BYTES)?;
        self.depth += 1;
        Ok(self)
    }

    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl SerializeSeq for &mut Counter {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), fmt::Error> {
        self.depth -= 1;
        Ok(())
    }
}

impl SerializeMap for &mut Counter {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), fmt::Error> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), fmt::Error> {
        self.depth -= 1;
        Ok(())
    }
}

/// Kinds whose parts stand in the value itself.
macro_rules! parts {
    ($($kind:ident $method:ident),*) => {
        $(impl $kind for &mut Counter {
            type Ok = ();
            type Error = fmt::Error;

            fn $method<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), fmt::Error> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), fmt::Error> {
                Ok(())
            }
        })*
    };
}

parts!(SerializeTuple serialize_element, SerializeTupleStruct serialize_field, SerializeTupleVariant serialize_field);

macro_rules! fields {
    ($($kind:ident),*) => {
        $(impl $kind for &mut Counter {
            type Ok = ();
            type Error = fmt::Error;

            fn serialize_field<T: ?Sized + Serialize>(&mut self, _key: &'static str, value: &T) -> Result<(), fmt::Error> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), fmt::Error> {
                Ok(())
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);
