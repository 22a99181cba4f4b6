//! The `tojson` of chat templates.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use serde::Serialize;
use serde_json::Value as Json;

/// How deep a value may be nested where it becomes JSON.
const DEEPEST_JSON: usize = 128;

/// `json.dumps` of Python, which is what `tojson` is in chat templates: unlike Jinja's own filter it escapes no HTML.
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja's filters take their arguments by value"
)]
pub(super) fn to_json(state: &State, value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "an undefined value has no JSON"));
    }
    let indent: Option<u8> = kwargs.get("indent")?;
    let sort_keys: Option<bool> = kwargs.get("sort_keys")?;
    let ensure_ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    let separators: Option<(String, String)> =
        match kwargs.get::<Option<Vec<String>>>("separators")? {
            None => None,
            Some(pair) => match <[String; 2]>::try_from(pair) {
                Ok([item, key]) => Some((item, key)),
                Err(_) => {
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        "separators must be two texts",
                    ));
                }
            },
        };
    kwargs.assert_all_used()?;
    let failed =
        |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut json = from_value(state, &value, 0)?;
    if sort_keys == Some(true) {
        json.sort_all_objects();
    }
    let usual = || (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    let (item_separator, key_separator) = separators.unwrap_or_else(usual);
    let mut text = Vec::new();
    let formatter = PythonJson {
        indent: indent.map(usize::from),
        depth: 0,
        after_item: false,
        item_separator,
        key_separator,
    };
    json.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter))
        .map_err(failed)?;
    // As much as minijinja's own filter costs.
    state.consume_fuel(text.len() as u64 / 4)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Value::from(if ensure_ascii == Some(true) { ascii_json(&text) } else { text }))
}

/// A value as JSON. Costs fuel by item, for a template's lists can be longer than memory.
fn from_value(state: &State, value: &Value, depth: usize) -> Result<Json, Error> {
    state.consume_fuel(1)?;
    let invalid =
        |what: &str| Error::new(ErrorKind::BadSerialization, format!("{what} has no JSON"));
    if depth > DEEPEST_JSON {
        return Err(invalid("a value of so many levels"));
    }
    match value.kind() {
        ValueKind::None => Ok(Json::Null),
        ValueKind::Bool => Ok(Json::Bool(value.is_true())),
        ValueKind::Number if value.is_integer() => {
            match (u64::try_from(value.clone()), i64::try_from(value.clone())) {
                (Ok(number), _) => Ok(Json::from(number)),
                (_, Ok(number)) => Ok(Json::from(number)),
                _ => Err(invalid("an integer beyond 64 bits")),
            }
        }
        ValueKind::Number => Ok(Json::from(f64::try_from(value.clone())?)),
        ValueKind::String => Ok(Json::from(value.as_str().unwrap_or_default())),
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                items.push(from_value(state, &item, depth + 1)?);
            }
            Ok(Json::Array(items))
        }
        ValueKind::Map => {
            let mut fields = serde_json::Map::new();
            for key in value.try_iter()? {
                let name = match from_value(state, &key, depth + 1)? {
                    Json::String(name) => name,
                    other => other.to_string(),
                };
                fields.insert(name, from_value(state, &value.get_item(&key)?, depth + 1)?);
            }
            Ok(Json::Object(fields))
        }
        other => Err(invalid(&format!("a value of type {other}"))),
    }
}

/// Writes JSON as Python does.
struct PythonJson {
    indent: Option<usize>,
    depth: usize,
    /// Whether the innermost list or object has something in it.
    after_item: bool,
    item_separator: String,
    key_separator: String,
}

impl PythonJson {
    fn open<W: Write + ?Sized>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.after_item = false;
        writer.write_all(bracket)
    }

    fn close<W: Write + ?Sized>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if std::mem::replace(&mut self.after_item, true) {
            self.new_line(writer)?;
        }
        writer.write_all(bracket)
    }

    fn separate<W: Write + ?Sized>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item_separator.as_bytes())?;
        }
        self.new_line(writer)
    }

    fn new_line<W: Write + ?Sized>(&self, writer: &mut W) -> io::Result<()> {
        match self.indent {
            Some(indent) => write!(writer, "\n{:1$}", "", indent * self.depth),
            None => Ok(()),
        }
    }
}

impl serde_json::ser::Formatter for PythonJson {
    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.separate(writer, first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.after_item = true;
        Ok(())
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.separate(writer, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key_separator.as_bytes())
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.after_item = true;
        Ok(())
    }
}

/// Escapes everything outside ASCII, as UTF-16 code units.
fn ascii_json(json: &str) -> String {
    use std::fmt::Write as _;

    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    ascii
}
