//! Writes events as JSON, byte for byte as `serde_json` would, with less work: names of fields are known to need no
//! escaping, and every piece goes straight into one buffer. Events are written on the path of each request.

mod compound;
mod escape;
#[cfg(test)]
mod tests;
pub(crate) mod usual;

use std::fmt::{self, Display, Write as _};

use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::Error;

use compound::Compound;
pub(crate) use escape::{escape, hexadecimal, integer};

/// Appends the value to `out`.
///
/// # Errors
/// For what no event holds: floating-point numbers, bytes, keys of maps that aren't texts.
pub(crate) fn write<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), Error> {
    value.serialize(Json { out })
}

/// A writer of one value.
pub(crate) struct Json<'a> {
    out: &'a mut Vec<u8>,
}

/// A text that is escaped while it is formatted.
struct Escaped<'a>(&'a mut Vec<u8>);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(text, self.0);
        Ok(())
    }
}

fn absent(what: &str) -> Error {
    Error::custom(format_args!("events hold no {what}"))
}

/// `"name":`, for names that need no escaping, as those of our own fields and variants.
#[inline]
fn name(name: &'static str, out: &mut Vec<u8>) {
    out.reserve(name.len() + 3);
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

macro_rules! integers {
    ($($method:ident $type:ty),+ $(,)?) => {
        $(fn $method(self, number: $type) -> Result<(), Error> {
            let wide = i128::from(number);
            integer(u64::try_from(wide.unsigned_abs()).unwrap_or(u64::MAX), wide < 0, self.out);
            Ok(())
        })+
    };
}

impl<'a> Serializer for Json<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Compound<'a>;
    type SerializeTuple = Compound<'a>;
    type SerializeTupleStruct = Compound<'a>;
    type SerializeTupleVariant = Compound<'a>;
    type SerializeMap = Compound<'a>;
    type SerializeStruct = Compound<'a>;
    type SerializeStructVariant = Compound<'a>;

    integers!(
        serialize_i8 i8,
        serialize_i16 i16,
        serialize_i32 i32,
        serialize_i64 i64,
        serialize_u8 u8,
        serialize_u16 u16,
        serialize_u32 u32,
        serialize_u64 u64,
    );

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, _: f32) -> Result<(), Error> {
        Err(absent("floating-point numbers"))
    }

    fn serialize_f64(self, _: f64) -> Result<(), Error> {
        Err(absent("floating-point numbers"))
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Error> {
        Err(absent("bytes"))
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Result<(), Error> {
        self.out.reserve(text.len() + 2);
        self.out.push(b'"');
        escape(text, self.out);
        self.out.push(b'"');
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Error> {
        self.out.push(b'"');
        let written = write!(Escaped(self.out), "{value}");
        self.out.push(b'"');
        written.map_err(Error::custom)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        self.out.reserve(variant.len() + 2);
        self.out.push(b'"');
        self.out.extend_from_slice(variant.as_bytes());
        self.out.push(b'"');
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.out.push(b'{');
        name(variant, self.out);
        write(value, self.out)?;
        self.out.push(b'}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'a>, Error> {
        Ok(Compound::open(self.out, b'[', b"]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'a>, Error> {
        Ok(Compound::open(self.out, b'[', b"]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Compound<'a>, Error> {
        Ok(Compound::open(self.out, b'[', b"]"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a>, Error> {
        self.out.push(b'{');
        name(variant, self.out);
        Ok(Compound::open(self.out, b'[', b"]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'a>, Error> {
        Ok(Compound::open(self.out, b'{', b"}"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Compound<'a>, Error> {
        Ok(Compound::open(self.out, b'{', b"}"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a>, Error> {
        self.out.push(b'{');
        name(variant, self.out);
        Ok(Compound::open(self.out, b'{', b"}}"))
    }
}
