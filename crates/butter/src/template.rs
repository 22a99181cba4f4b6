//! Chat templates: a conversation to the prompt that a model was trained on.
//!
//! Templates are Jinja programs that come with a model, so from a stranger. They run as Hugging Face's
//! `apply_chat_template` runs them (`transformers/utils/chat_template_utils.py`), with bounded steps and output.

mod python_json;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value as Json;

use crate::tokenizer::token_text;
use crate::weights::gguf::{Array, Gguf};
use crate::weights::{Weights, WeightsError, read_small_file};

/// What a rendering may cost: one unit is an instruction or 64 bytes of text. A conversation of a million tokens and a
/// thousand turns takes less than a fifth of it; using it up takes about a second.
const FUEL: u64 = 4_000_000;
/// The longest prompt that a template may make, several times the text of a million tokens.
const LONGEST_OUTPUT: usize = 32 << 20;
/// The stack of the thread that a template runs on. Values that a template has nested as deeply as [`FUEL`] allows
/// (half a million levels) are shown and dropped recursively. Only touched pages take memory.
const STACK: usize = 1 << 30;
const LONGEST_TEMPLATE: u64 = 4 << 20;
const DEEPEST: usize = 100;

/// Why a template could not be read or did not make a prompt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] WeightsError),
    /// `tokenizer_config.json` or the metadata has something else where the template should be.
    #[error("`{}`: the chat template should be {expected}, but is {found}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The template is no Jinja that we run.
    #[error("the model's chat template cannot be read (line {line}): {reason}; give another one")]
    Syntax {
        /// The line in the template.
        line: usize,
        /// The parser's reason.
        reason: String,
    },
    /// The template itself refused the conversation, by `raise_exception`.
    #[error("the model's chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template failed on this conversation.
    #[error("the model's chat template failed (line {line}): {reason}")]
    Failed {
        /// The line in the template.
        line: usize,
        /// What went wrong.
        reason: String,
    },
    /// The template took too many steps or made too much text.
    #[error(
        "the model's chat template needs too much {0}; it is broken or hostile: give another one"
    )]
    TooMuch(&'static str),
}

/// The texts of the tokens that templates refer to, such as (`bos_token`, `<s>`).
pub type SpecialTokens = Vec<(String, String)>;

/// A model's chat template, ready to run.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    special_tokens: SpecialTokens,
}

/// A conversation, and what else a template can see.
#[derive(Clone, Debug, Default)]
pub struct Conversation<'a> {
    /// Messages: objects with `role`, `content` and whatever else the template knows.
    pub messages: &'a [Json],
    /// Tools as JSON schemas.
    pub tools: Option<&'a [Json]>,
    /// Documents to answer from.
    pub documents: Option<&'a [Json]>,
    /// Whether to end with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables, such as (`enable_thinking`, false).
    pub variables: &'a [(String, Json)],
    /// What `strftime_now` takes for now; the clock's time when absent.
    pub now: Option<SystemTime>,
}

const NAME: &str = "chat";

impl ChatTemplate {
    /// Reads a template.
    pub fn new(source: &str, special_tokens: SpecialTokens) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| failure(&error))?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_recursion_limit(DEEPEST);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", python_json::to_json);
        environment.add_test("iterable", is_iterable);
        environment.add_template_owned(NAME, plain_blocks(source)).map_err(|error| match error
            .kind()
        {
            ErrorKind::OutOfFuel => TemplateError::TooMuch("work"),
            _ => TemplateError::Syntax { line: error.line().unwrap_or(0), reason: reason(&error) },
        })?;
        Ok(Self { environment, source: source.to_owned(), special_tokens })
    }

    /// The template in a GGUF file; `None` when the model has none (a base model, mostly).
    pub fn from_gguf(gguf: &Gguf) -> Result<Option<Self>, TemplateError> {
        let metadata = gguf.metadata();
        let Some(source) = metadata.string("tokenizer.chat_template")? else { return Ok(None) };
        let mut special_tokens = Vec::new();
        for (name, key) in [
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("unk_token", "unknown"),
            ("pad_token", "padding"),
        ] {
            let id = metadata.unsigned(&format!("tokenizer.ggml.{key}_token_id"))?;
            let tokens = metadata.array("tokenizer.ggml.tokens")?.and_then(Array::strings);
            let text =
                id.zip(tokens).and_then(|(id, mut tokens)| tokens.nth(usize::try_from(id).ok()?));
            if let Some(text) = text {
                special_tokens.push((name.to_owned(), String::from_utf8_lossy(text).into_owned()));
            }
        }
        Self::new(source, special_tokens).map(Some)
    }

    /// The template in a folder: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`; `None` when there
    /// is none.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, TemplateError> {
        let path = folder.join("tokenizer_config.json");
        let config = if path.is_file() { read_json(&path)? } else { Json::Null };
        let special_tokens: SpecialTokens = config
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| name.ends_with("_token"))
            .filter_map(|(name, value)| Some((name.clone(), token_text(value)?.to_owned())))
            .collect();
        let file = folder.join("chat_template.jinja");
        if file.is_file() {
            let source =
                String::from_utf8(read_small_file(&file, LONGEST_TEMPLATE)?).map_err(|_| {
                    TemplateError::Malformed {
                        path: file.clone(),
                        expected: "UTF-8 text",
                        found: "other bytes".to_owned(),
                    }
                })?;
            return Self::new(&source, special_tokens).map(Some);
        }
        let Some(template) = config.get("chat_template").filter(|template| !template.is_null())
        else {
            return Ok(None);
        };
        match default_template(template) {
            Some(source) => Self::new(source, special_tokens).map(Some),
            None => Err(TemplateError::Malformed {
                path,
                expected: "text, or a list with one named `default`",
                found: "something else".to_owned(),
            }),
        }
    }

    /// The template that belongs to `weights`: inside the GGUF file, or beside the safetensors.
    pub fn from_weights(weights: &Weights) -> Result<Option<Self>, TemplateError> {
        match weights.gguf() {
            Some(gguf) => Self::from_gguf(gguf),
            None if weights.path().is_dir() => Self::from_folder(weights.path()),
            None => Self::from_folder(weights.path().parent().unwrap_or(Path::new("."))),
        }
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt of a conversation. Special tokens are spelled out in it, so encode it without adding any.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String, TemplateError> {
        std::thread::scope(|scope| {
            let thread =
                std::thread::Builder::new().name("chat template".to_owned()).stack_size(STACK);
            let failed = |reason: String| TemplateError::Failed { line: 0, reason };
            let thread = thread
                .spawn_scoped(scope, || self.render_here(conversation))
                .map_err(|error| failed(format!("no thread to run it on: {error}")))?;
            thread.join().unwrap_or_else(|_| Err(failed("the template engine panicked".to_owned())))
        })
    }

    fn render_here(&self, conversation: &Conversation<'_>) -> Result<String, TemplateError> {
        let template = self.environment.get_template(NAME).map_err(|error| failure(&error))?;
        let mut prompt = Capped { bytes: Vec::new(), full: false };
        let result =
            template.render_captured_to(self.variables(conversation), &mut prompt).map(drop);
        if prompt.full {
            return Err(TemplateError::TooMuch("text"));
        }
        result.map_err(|error| failure(&error))?;
        String::from_utf8(prompt.bytes).map_err(|_| TemplateError::Failed {
            line: 0,
            reason: "the prompt is no UTF-8".to_owned(),
        })
    }

    fn variables(&self, conversation: &Conversation<'_>) -> Value {
        let now = conversation.now;
        let standard = [
            ("messages", list(conversation.messages)),
            ("tools", conversation.tools.map_or(Value::from(()), list)),
            ("documents", conversation.documents.map_or(Value::from(()), list)),
            ("add_generation_prompt", Value::from(conversation.add_generation_prompt)),
            ("strftime_now", Value::from_function(move |format: &str| strftime(now, format))),
        ];
        let special = self
            .special_tokens
            .iter()
            .map(|(name, text)| (name.clone(), Value::from(text.as_str())));
        let given =
            conversation.variables.iter().map(|(name, value)| (name.clone(), to_value(value)));
        Value::from_pairs(
            special.chain(standard.map(|(name, value)| (name.to_owned(), value))).chain(given),
        )
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

/// JSON as templates see it.
fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(value), ..) => Value::from(value),
            (_, Some(value), _) => Value::from(value),
            (.., value) => Value::from(value.unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(values) => list(values),
        Json::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(name, value)| (name.as_str(), to_value(value))))
        }
    }
}

fn list(values: &[Json]) -> Value {
    values.iter().map(to_value).collect()
}

fn read_json(path: &Path) -> Result<Json, TemplateError> {
    serde_json::from_slice(&read_small_file(path, LONGEST_TEMPLATE)?).map_err(|error| {
        TemplateError::Malformed {
            path: path.to_owned(),
            expected: "in a JSON object",
            found: error.to_string(),
        }
    })
}

/// A model can have several templates; the one named `default` is for chats.
fn default_template(template: &Json) -> Option<&str> {
    template.as_str().or_else(|| {
        let named = template.as_array()?.iter();
        named
            .clone()
            .find(|one| one.get("name").and_then(Json::as_str) == Some("default"))?
            .get("template")?
            .as_str()
    })
}

/// Training code marks the assistant's words with `{% generation %}`, which changes nothing in a prompt. Jinja has no
/// such tag, so it becomes a condition that always holds.
fn plain_blocks(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let Some(end) = tag.find("%}") else { break };
        let (tag, after) = tag.split_at(end + 2);
        plain.push_str(before);
        let word = tag[2..end].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        plain.push_str(&match word {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_owned(),
        });
        rest = after;
    }
    plain.push_str(rest);
    plain
}

/// The message that tells [`failure`] a refusal from a fault.
const REFUSAL: &str = "raise_exception: ";

#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja's functions take their arguments by value"
)]
fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{REFUSAL}{message}")))
}

/// Jinja's test: minijinja's own says yes to `none`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja's tests take their arguments by value"
)]
fn is_iterable(value: Value) -> bool {
    use ValueKind as Kind;
    matches!(
        value.kind(),
        Kind::Undefined | Kind::String | Kind::Bytes | Kind::Seq | Kind::Map | Kind::Iterable
    )
}

fn failure(error: &Error) -> TemplateError {
    if error.kind() == ErrorKind::OutOfFuel {
        return TemplateError::TooMuch("work");
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(link) = cause {
        let detail = link.downcast_ref::<Error>().and_then(Error::detail);
        if let Some(message) = detail.and_then(|detail| detail.strip_prefix(REFUSAL)) {
            return TemplateError::Refused(message.to_owned());
        }
        cause = link.source();
    }
    TemplateError::Failed { line: error.line().unwrap_or(0), reason: reason(error) }
}

fn reason(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// Python's `datetime.now().strftime`, in the machine's time zone.
fn strftime(now: Option<SystemTime>, format: &str) -> Result<String, Error> {
    let invalid = |error: jiff::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let now = now.unwrap_or_else(SystemTime::now);
    let now = Timestamp::try_from(now).map_err(invalid)?.to_zoned(TimeZone::system());
    jiff::fmt::strtime::format(format, &now).map_err(invalid)
}

/// Takes bytes up to [`LONGEST_OUTPUT`], then fails.
struct Capped {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > LONGEST_OUTPUT {
            self.full = true;
            return Err(io::Error::other("the prompt is too long"));
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
