//! Named values, whether they come from JSON or from GGUF metadata, with errors that name file and key.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::weights::WeightsError;
use crate::weights::error::printable;
use crate::weights::gguf::Gguf;
use crate::weights::safetensors::read_small_file;

const LONGEST_CONFIG: u64 = 16 << 20;

/// One setting under both its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    huggingface: Option<&'static str>,
    /// Without the architecture that it starts with, unless `absolute`.
    gguf: Option<&'static str>,
    absolute: bool,
}

impl Key {
    pub(super) const fn new(huggingface: &'static str, gguf: &'static str) -> Self {
        Self { huggingface: Some(huggingface), gguf: Some(gguf), absolute: false }
    }

    pub(super) const fn huggingface(name: &'static str) -> Self {
        Self { huggingface: Some(name), gguf: None, absolute: false }
    }

    pub(super) const fn gguf(name: &'static str) -> Self {
        Self { huggingface: None, gguf: Some(name), absolute: false }
    }

    pub(super) const fn gguf_absolute(name: &'static str) -> Self {
        Self { huggingface: None, gguf: Some(name), absolute: true }
    }
}

/// A model's settings.
pub(super) struct Settings<'a> {
    path: PathBuf,
    source: Source<'a>,
}

enum Source<'a> {
    Json(Json),
    Gguf { gguf: &'a Gguf, architecture: &'a str },
}

impl<'a> Settings<'a> {
    pub(super) fn from_json_file(path: &Path) -> Result<Self, WeightsError> {
        let text = read_small_file(path, LONGEST_CONFIG)?;
        Self::from_json(path, &text)
    }

    pub(super) fn from_json(path: &Path, text: &[u8]) -> Result<Self, WeightsError> {
        let malformed =
            |found: String| WeightsError::malformed(path, "its content", "a JSON object", found);
        let json: Json =
            serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
        if !json.is_object() {
            return Err(malformed("another JSON value".to_owned()));
        }
        Ok(Self { path: path.to_owned(), source: Source::Json(json) })
    }

    pub(super) fn from_gguf(gguf: &'a Gguf) -> Result<Self, WeightsError> {
        let architecture = gguf.metadata().string("general.architecture")?;
        let architecture = architecture.ok_or_else(|| WeightsError::MissingSetting {
            path: gguf.path().to_owned(),
            key: "general.architecture".to_owned(),
            expected: "text".to_owned(),
        })?;
        Ok(Self { path: gguf.path().to_owned(), source: Source::Gguf { gguf, architecture } })
    }

    /// The GGUF file, if the settings come from one.
    pub(super) fn gguf(&self) -> Option<&'a Gguf> {
        match self.source {
            Source::Gguf { gguf, .. } => Some(gguf),
            Source::Json(_) => None,
        }
    }

    /// llama.cpp's name of the architecture, if the settings come from a GGUF file.
    pub(super) fn architecture(&self) -> Option<&'a str> {
        match self.source {
            Source::Gguf { architecture, .. } => Some(architecture),
            Source::Json(_) => None,
        }
    }

    /// A field of `config.json`; absent, null and GGUF are all `None`.
    pub(super) fn json_field(&self, name: &str) -> Option<&Json> {
        match &self.source {
            Source::Json(json) => json.get(name).filter(|value| !value.is_null()),
            Source::Gguf { .. } => None,
        }
    }

    /// A non-negative integer.
    pub(super) fn integer(&self, key: Key) -> Result<Option<u64>, WeightsError> {
        match &self.source {
            Source::Json(_) => {
                let value = key.huggingface.and_then(|name| self.json_field(name));
                value.map(|value| self.json_integer(key, value)).transpose()
            }
            Source::Gguf { gguf, .. } => match key.gguf {
                Some(_) => gguf.metadata().unsigned(&self.spelled(key)),
                None => Ok(None),
            },
        }
    }

    fn json_integer(&self, key: Key, value: &Json) -> Result<u64, WeightsError> {
        let integral = |float: f64| {
            (float >= 0.0 && float.fract() == 0.0 && float < 1e15).then_some(float as u64)
        };
        let integer = value.as_u64().or_else(|| value.as_f64().and_then(integral));
        integer.ok_or_else(|| self.bad(key, "a non-negative integer", shown(value)))
    }

    /// An integer from 1 to `most`.
    pub(super) fn count(&self, key: Key, most: u64) -> Result<Option<usize>, WeightsError> {
        match self.integer(key)? {
            None => Ok(None),
            Some(value) if (1..=most).contains(&value) => Ok(Some(value as usize)),
            Some(value) => Err(self.bad(key, &format!("from 1 to {most}"), value)),
        }
    }

    /// Like [`Settings::count`], but it must be there.
    pub(super) fn require_count(&self, key: Key, most: u64) -> Result<usize, WeightsError> {
        self.count(key, most)?
            .ok_or_else(|| self.missing(key, &format!("a number from 1 to {most}")))
    }

    /// A finite number.
    pub(super) fn number(&self, key: Key) -> Result<Option<f64>, WeightsError> {
        let number = match &self.source {
            Source::Json(_) => match key.huggingface.and_then(|name| self.json_field(name)) {
                None => None,
                Some(value) => {
                    Some(value.as_f64().ok_or_else(|| self.bad(key, "a number", shown(value)))?)
                }
            },
            Source::Gguf { gguf, .. } => match key.gguf {
                Some(_) => gguf.metadata().float(&self.spelled(key))?,
                None => None,
            },
        };
        match number {
            Some(number) if !number.is_finite() => Err(self.bad(key, "a finite number", number)),
            number => Ok(number),
        }
    }

    pub(super) fn require_number(&self, key: Key) -> Result<f64, WeightsError> {
        self.number(key)?.ok_or_else(|| self.missing(key, "a number"))
    }

    /// A number above zero.
    pub(super) fn positive(&self, key: Key) -> Result<Option<f32>, WeightsError> {
        match self.number(key)? {
            Some(number) if number <= 0.0 => Err(self.bad(key, "above zero", number)),
            number => Ok(number.map(|number| number as f32)),
        }
    }

    /// A truth value of `config.json`.
    pub(super) fn boolean(&self, name: &'static str) -> Result<Option<bool>, WeightsError> {
        let Some(value) = self.json_field(name) else { return Ok(None) };
        let boolean = value.as_bool();
        boolean
            .map(Some)
            .ok_or_else(|| self.bad(Key::huggingface(name), "true or false", shown(value)))
    }

    /// A text of `config.json`.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<&str>, WeightsError> {
        let Some(value) = self.json_field(name) else { return Ok(None) };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.bad(Key::huggingface(name), "text", shown(value)))
    }

    /// One token id or a list of them in `config.json`.
    pub(super) fn token_ids(&self, name: &'static str) -> Result<Vec<u32>, WeightsError> {
        const MOST: usize = 1024;
        let Some(value) = self.json_field(name) else { return Ok(Vec::new()) };
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let ids: Option<Vec<u32>> = values
            .iter()
            .take(MOST)
            .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
            .collect();
        ids.ok_or_else(|| {
            self.bad(Key::huggingface(name), "a token id or a list of them", shown(value))
        })
    }

    /// The token that starts a text.
    pub(super) fn bos_token_id(&self) -> Result<Option<u32>, WeightsError> {
        match self.gguf() {
            Some(_) => self.gguf_token("tokenizer.ggml.bos_token_id"),
            None => Ok(self.token_ids("bos_token_id")?.first().copied()),
        }
    }

    /// The tokens that end an answer.
    pub(super) fn eos_token_ids(&self) -> Result<Vec<u32>, WeightsError> {
        if self.gguf().is_none() {
            return self.token_ids("eos_token_id");
        }
        let mut ids = Vec::new();
        for key in [
            "tokenizer.ggml.eos_token_id",
            "tokenizer.ggml.eot_token_id",
            "tokenizer.ggml.eom_token_id",
        ] {
            ids.extend(self.gguf_token(key)?);
        }
        Ok(ids)
    }

    fn gguf_token(&self, name: &'static str) -> Result<Option<u32>, WeightsError> {
        let key = Key::gguf_absolute(name);
        let id = self.integer(key)?;
        // -1 in the type of the time: "there is none".
        let id = id.filter(|&id| id != u64::from(u32::MAX));
        id.map(|id| u32::try_from(id).map_err(|_| self.bad(key, "a token id", id))).transpose()
    }

    /// A text of the GGUF metadata, under the architecture's prefix.
    pub(super) fn gguf_text(&self, key: Key) -> Result<Option<&'a str>, WeightsError> {
        match self.gguf() {
            Some(gguf) => gguf.metadata().string(&self.spelled(key)),
            None => Ok(None),
        }
    }

    /// The key as this source spells it.
    fn spelled(&self, key: Key) -> String {
        match self.source {
            Source::Json(_) => key.huggingface.or(key.gguf).unwrap_or_default().to_owned(),
            Source::Gguf { architecture, .. } => {
                let name = key.gguf.or(key.huggingface).unwrap_or_default();
                if key.absolute {
                    name.to_owned()
                } else {
                    format!("{}.{name}", printable(architecture))
                }
            }
        }
    }

    pub(super) fn bad(&self, key: Key, expected: &str, found: impl Display) -> WeightsError {
        WeightsError::BadSetting {
            path: self.path.clone(),
            key: self.spelled(key),
            expected: expected.to_owned(),
            found: printable(&found.to_string()),
        }
    }

    pub(super) fn missing(&self, key: Key, expected: &str) -> WeightsError {
        WeightsError::MissingSetting {
            path: self.path.clone(),
            key: self.spelled(key),
            expected: expected.to_owned(),
        }
    }

    pub(super) fn unsupported(&self, key: Key, found: &str, supported: &str) -> WeightsError {
        WeightsError::UnsupportedSetting {
            path: self.path.clone(),
            key: self.spelled(key),
            found: format!("`{}`", printable(found)),
            supported: supported.to_owned(),
        }
    }
}

fn shown(value: &Json) -> String {
    match value {
        Json::Array(values) => format!("a list of {} values", values.len()),
        Json::Object(fields) => format!("an object of {} fields", fields.len()),
        scalar => scalar.to_string(),
    }
}
