//! The key-value section of a GGUF file.
//!
//! Values are indexed when the file is opened and decoded when asked for: a vocabulary of 262,144 strings costs one
//! pass over its lengths and no allocation.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::super::WeightsError;
use super::super::error::printable;
use super::super::mapped::MappedFile;
use super::reader::Reader;

/// Real files have 20 to 60 entries.
const MOST_ENTRIES: u64 = 1 << 16;
const LONGEST_KEY: u64 = 1 << 16;

/// The metadata of a GGUF file.
#[derive(Debug)]
pub struct Metadata {
    file: Arc<MappedFile>,
    keys: Vec<String>,
    entries: HashMap<String, Stored>,
}

/// One value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Any unsigned integer type.
    Unsigned(u64),
    /// Any signed integer type.
    Signed(i64),
    /// `FLOAT32` or `FLOAT64`.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string's bytes, not yet checked to be UTF-8.
    String(&'a [u8]),
    /// A list of values of one type.
    Array(Array<'a>),
}

/// A list of values of one type, still encoded.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    kind: Kind,
    len: usize,
    bytes: &'a [u8],
}

/// Where a value lies in the file.
#[derive(Clone, Debug)]
struct Stored {
    kind: Kind,
    /// `Some` for a list.
    len: Option<usize>,
    range: Range<usize>,
}

/// The type of a value that is not a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    U64,
    I64,
    F64,
}

const ARRAY: u32 = 9;

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::String,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of one value; for a string, those of its length.
    fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
        }
    }

    /// Decodes one value that is no string. `bytes` are exactly its bytes.
    fn decode(self, bytes: &[u8]) -> Value<'_> {
        let mut wide = [0_u8; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => Value::Unsigned(bits),
            Self::I8 => Value::Signed(bits as i8 as i64),
            Self::I16 => Value::Signed(bits as i16 as i64),
            Self::I32 => Value::Signed(bits as i32 as i64),
            Self::I64 => Value::Signed(bits as i64),
            Self::F32 => Value::Float(f32::from_bits(bits as u32) as f64),
            Self::F64 => Value::Float(f64::from_bits(bits)),
            Self::Bool => Value::Bool(bits != 0),
            Self::String => Value::String(bytes),
        }
    }
}

impl Metadata {
    pub(super) fn read(
        reader: &mut Reader<'_>,
        file: &Arc<MappedFile>,
        count: u64,
    ) -> Result<Self, WeightsError> {
        if count > MOST_ENTRIES {
            let expected = format!("at most {MOST_ENTRIES}");
            return Err(reader.malformed(
                "the number of metadata entries",
                expected,
                count.to_string(),
            ));
        }
        let mut keys = Vec::new();
        let mut entries = HashMap::new();
        for _ in 0..count {
            let key = reader.string("a metadata key", LONGEST_KEY)?;
            let stored = read_stored(reader, &key)?;
            if entries.insert(key.clone(), stored).is_some() {
                let what = format!("metadata `{}`", printable(&key));
                return Err(reader.malformed(&what, "given once", "given twice"));
            }
            keys.push(key);
        }
        Ok(Self { file: Arc::clone(file), keys, entries })
    }

    /// The file that this comes from.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The keys in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// The value of `key`, if the file has one.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let stored = self.entries.get(key)?;
        let bytes = &self.file.bytes()[stored.range.clone()];
        Some(match stored.len {
            Some(len) => Value::Array(Array { kind: stored.kind, len, bytes }),
            None => stored.kind.decode_scalar_or_string(bytes),
        })
    }

    /// `key` as a non-negative integer; absent is `None`, another type is an error.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(value)) => Ok(Some(value)),
            Some(Value::Signed(value)) if value >= 0 => Ok(Some(value as u64)),
            Some(other) => Err(self.wrong(key, "a non-negative integer", &other)),
        }
    }

    /// `key` as a number; absent is `None`, another type is an error.
    pub fn float(&self, key: &str) -> Result<Option<f64>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(value)) => Ok(Some(value)),
            Some(Value::Unsigned(value)) => Ok(Some(value as f64)),
            Some(Value::Signed(value)) => Ok(Some(value as f64)),
            Some(other) => Err(self.wrong(key, "a number", &other)),
        }
    }

    /// `key` as a truth value; absent is `None`, another type is an error.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(key, "true or false", &other)),
        }
    }

    /// `key` as text; absent is `None`, another type or invalid UTF-8 is an error.
    pub fn string(&self, key: &str) -> Result<Option<&str>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(self.wrong(key, "UTF-8 text", &Value::String(bytes))),
            },
            Some(other) => Err(self.wrong(key, "text", &other)),
        }
    }

    /// `key` as a list; absent is `None`, another type is an error.
    pub fn array(&self, key: &str) -> Result<Option<Array<'_>>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(other) => Err(self.wrong(key, "a list", &other)),
        }
    }

    /// The error for a value of `key` that is not what it should be.
    pub(crate) fn wrong(&self, key: &str, expected: &str, found: &Value<'_>) -> WeightsError {
        WeightsError::BadSetting {
            path: self.path().to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
            found: found.describe(),
        }
    }
}

impl Kind {
    fn decode_scalar_or_string(self, bytes: &[u8]) -> Value<'_> {
        if self == Self::String { Value::String(bytes) } else { self.decode(bytes) }
    }
}

impl Value<'_> {
    /// The value as a message may show it.
    fn describe(&self) -> String {
        match self {
            Self::Unsigned(value) => value.to_string(),
            Self::Signed(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Bool(value) => value.to_string(),
            Self::String(bytes) => format!("\"{}\"", printable(&String::from_utf8_lossy(bytes))),
            Self::Array(array) => format!("a list of {} values", array.len),
        }
    }
}

impl<'a> Array<'a> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of each string; `None` when the values are no strings.
    pub fn strings(self) -> Option<impl Iterator<Item = &'a [u8]>> {
        (self.kind == Kind::String).then(|| {
            let mut rest = self.bytes;
            // The lengths were checked when the file was opened.
            std::iter::from_fn(move || {
                let (length, tail) = rest.split_first_chunk::<8>()?;
                let (text, tail) = tail.split_at_checked(u64::from_le_bytes(*length) as usize)?;
                rest = tail;
                Some(text)
            })
        })
    }

    /// The values as integers; `None` when they are of another type.
    pub fn integers(self) -> Option<impl Iterator<Item = i64>> {
        let integral = !matches!(self.kind, Kind::F32 | Kind::F64 | Kind::Bool | Kind::String);
        integral.then(|| {
            self.scalars().map(|value| match value {
                Value::Unsigned(value) => i64::try_from(value).unwrap_or(i64::MAX),
                Value::Signed(value) => value,
                _ => 0,
            })
        })
    }

    /// The values as floats; `None` when they are of another type.
    pub fn floats(self) -> Option<impl Iterator<Item = f64>> {
        matches!(self.kind, Kind::F32 | Kind::F64).then(|| {
            self.scalars().map(|value| match value {
                Value::Float(value) => value,
                _ => 0.0,
            })
        })
    }

    fn scalars(self) -> impl Iterator<Item = Value<'a>> {
        self.bytes.chunks_exact(self.kind.size()).map(move |bytes| self.kind.decode(bytes))
    }
}

fn read_stored(reader: &mut Reader<'_>, key: &str) -> Result<Stored, WeightsError> {
    let what = format!("metadata `{}`", printable(key));
    let number = reader.u32(&what)?;
    if number == ARRAY {
        return read_array(reader, &what);
    }
    let unknown = || reader.malformed(&what, "of a type from 0 to 12", format!("of type {number}"));
    let kind = Kind::from_number(number).ok_or_else(unknown)?;
    let length = if kind == Kind::String { reader.u64(&what)? } else { kind.size() as u64 };
    let start = reader.position();
    reader.take(length, &what)?;
    Ok(Stored { kind, len: None, range: start..reader.position() })
}

fn read_array(reader: &mut Reader<'_>, what: &str) -> Result<Stored, WeightsError> {
    let number = reader.u32(what)?;
    let found = || match number {
        ARRAY => "a list of lists".to_owned(),
        _ => format!("a list of type {number}"),
    };
    let kind = Kind::from_number(number).ok_or_else(|| {
        reader.malformed(what, "a list of numbers, truth values or strings", found())
    })?;
    let len = reader.u64(what)?;
    // Strings take at least their length field, so this bounds the loop below too.
    let least = len.checked_mul(kind.size() as u64).filter(|&bytes| bytes <= reader.remaining());
    let Some(least) = least else {
        return Err(WeightsError::Truncated {
            path: reader.path().to_owned(),
            what: what.to_owned(),
            offset: reader.position() as u64,
            needed: len.saturating_mul(kind.size() as u64),
            length: reader.position() as u64 + reader.remaining(),
        });
    };
    let start = reader.position();
    if kind == Kind::String {
        for _ in 0..len {
            let length = reader.u64(what)?;
            reader.take(length, what)?;
        }
    } else {
        reader.take(least, what)?;
    }
    Ok(Stored { kind, len: Some(len as usize), range: start..reader.position() })
}
