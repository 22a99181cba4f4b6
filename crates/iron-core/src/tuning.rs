//! Tuning files: the schedules of each kernel on one target.
//!
//! ```toml
//! [[matmul.schedule]]
//! name = "decode"
//! when = "m == 1 && HEAD_DIM <= 64"       # over dimensions and constants; absent: always
//! only = { W = ["q4_0", "q4_1"] }         # for these bindings of generics; absent: for all
//! BM = 1                                  # constants of the kernel, in capitals
//! BN = 16
//! threads = 128                           # GPU
//! stages = 2                              # GPU
//!
//! [[matmul.schedule]]
//! name = "general"
//! BM = 64
//! BN = 64
//! ```
//!
//! Schedules are tried in order. The last one of a kernel has neither `when` nor `only`, so that one always applies.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::lex::ParseError;
use crate::predicate::Predicate;
use crate::verify::is_identifier;

/// A tuning file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Schedules by kernel, in the order in which they are tried.
    pub kernels: BTreeMap<String, Vec<Schedule>>,
}

/// One schedule of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its name, unique in the kernel.
    pub name: String,
    /// When it applies; `None`: always.
    pub when: Option<Predicate>,
    /// The kernel's constants (`BM`, `BLOCK` ..).
    pub constants: BTreeMap<String, i64>,
    /// Threads per program on a GPU.
    pub threads: Option<u32>,
    /// Software pipeline stages on a GPU.
    pub stages: Option<u32>,
    /// The bindings that it is for, by generic; a generic that is not named may be anything.
    pub only: BTreeMap<String, Vec<String>>,
    /// Where it stands in the file.
    pub line: u32,
}

/// A faulty tuning file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningError {
    /// 1-based line.
    pub line: u32,
    /// What is wrong.
    pub fault: TuningFault,
}

/// What is wrong with a tuning file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TuningFault {
    /// It is no TOML.
    Toml(String),
    /// A value has the wrong type or range.
    Value {
        /// The key.
        key: String,
        /// What it takes.
        expected: &'static str,
        /// What it has.
        found: String,
    },
    /// A key that means nothing here.
    Key {
        /// The key.
        key: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// A schedule without a name.
    Unnamed {
        /// The kernel.
        kernel: String,
    },
    /// Two schedules of one name.
    Twice {
        /// The kernel.
        kernel: String,
        /// The name.
        name: String,
    },
    /// A condition that does not parse; line and column are those in the condition.
    Predicate(ParseError),
    /// A kernel without schedules.
    Empty {
        /// The kernel.
        kernel: String,
    },
    /// The last schedule does not always apply.
    Conditional {
        /// The kernel.
        kernel: String,
        /// The last schedule.
        name: String,
    },
    /// A schedule after one that always applies.
    Unreachable {
        /// The schedule.
        name: String,
        /// The one before it that always applies.
        after: String,
    },
}

impl Display for TuningError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.fault {
            TuningFault::Toml(message) => f.write_str(message),
            TuningFault::Value { key, expected, found } => {
                write!(f, "`{key}` is {found}, expected {expected}")
            }
            TuningFault::Key { key, expected } => {
                write!(f, "unknown key `{key}`, expected {expected}")
            }
            TuningFault::Unnamed { kernel } => {
                write!(f, "a schedule of `{kernel}` has no name, expected `name = \"..\"`")
            }
            TuningFault::Twice { kernel, name } => {
                write!(f, "`{kernel}` has a second schedule `{name}`, expected distinct names")
            }
            TuningFault::Predicate(error) => {
                write!(f, "`when`, column {}: {}", error.column, error.message)
            }
            TuningFault::Empty { kernel } => {
                write!(f, "`{kernel}` has no schedules, expected `[[{kernel}.schedule]]`")
            }
            TuningFault::Conditional { kernel, name } => write!(
                f,
                "the last schedule of `{kernel}`, `{name}`, has `when` or `only`, expected one that always applies"
            ),
            TuningFault::Unreachable { name, after } => {
                write!(f, "`{name}` is never reached, because `{after}` before it always applies")
            }
        }
    }
}

impl std::error::Error for TuningError {}

impl Schedule {
    /// Whether it is for these bindings, given as (generic, name) pairs such as `("W", "q4_0")`.
    pub fn applies_to(&self, bindings: &[(&str, &str)]) -> bool {
        bindings.iter().all(|(generic, binding)| {
            self.only.get(*generic).is_none_or(|names| names.iter().any(|name| name == binding))
        })
    }

    /// Whether it has neither `when` nor `only`.
    pub fn is_unconditional(&self) -> bool {
        self.when.is_none() && self.only.is_empty()
    }
}

impl Tuning {
    /// Reads a tuning file.
    pub fn parse(text: &str) -> Result<Self, TuningError> {
        let file = File { text };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            file.error(at, TuningFault::Toml(error.message().to_owned()))
        })?;
        let mut kernels = BTreeMap::new();
        for (name, value) in table.get_ref() {
            let schedules = file.kernel(name.get_ref(), value)?;
            kernels.insert(name.get_ref().to_string(), schedules);
        }
        Ok(Self { kernels })
    }

    /// The schedules of `kernel` that are for these bindings, in the order in which they are tried.
    pub fn schedules<'a>(
        &'a self,
        kernel: &str,
        bindings: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Schedule> {
        let schedules = self.kernels.get(kernel).map_or(&[][..], Vec::as_slice);
        schedules.iter().filter(|schedule| schedule.applies_to(bindings))
    }
}

impl std::str::FromStr for Tuning {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Self, TuningError> {
        Self::parse(text)
    }
}

type Value<'a> = Spanned<DeValue<'a>>;

struct File<'a> {
    text: &'a str,
}

impl File<'_> {
    fn line(&self, offset: usize) -> u32 {
        let before = self.text.get(..offset).unwrap_or(self.text);
        before.matches('\n').count() as u32 + 1
    }

    fn error(&self, offset: usize, fault: TuningFault) -> TuningError {
        TuningError { line: self.line(offset), fault }
    }

    fn wrong(&self, key: &str, value: &Value<'_>, expected: &'static str) -> TuningError {
        let found = match value.get_ref() {
            DeValue::Integer(number) => format!("the integer {}", number.as_str()),
            DeValue::String(text) => format!("the string {text:?}"),
            other => format!("of type {}", other.type_str()),
        };
        self.error(value.span().start, TuningFault::Value { key: key.to_owned(), expected, found })
    }

    fn kernel(&self, kernel: &str, value: &Value<'_>) -> Result<Vec<Schedule>, TuningError> {
        let expected = "a table with `[[kernel.schedule]]` entries";
        let table =
            value.get_ref().as_table().ok_or_else(|| self.wrong(kernel, value, expected))?;
        let mut schedules: Vec<Schedule> = Vec::new();
        for (key, value) in table {
            if key.get_ref() != "schedule" {
                let fault =
                    TuningFault::Key { key: key.get_ref().to_string(), expected: "`schedule`" };
                return Err(self.error(key.span().start, fault));
            }
            let entries = value.get_ref().as_array();
            let expected = "an array of tables, written `[[kernel.schedule]]`";
            for entry in entries.ok_or_else(|| self.wrong("schedule", value, expected))? {
                let schedule = self.schedule(kernel, entry)?;
                self.check_order(kernel, &schedules, &schedule)?;
                schedules.push(schedule);
            }
        }
        match schedules.last() {
            None => {
                Err(self
                    .error(value.span().start, TuningFault::Empty { kernel: kernel.to_owned() }))
            }
            Some(last) if !last.is_unconditional() => {
                let fault =
                    TuningFault::Conditional { kernel: kernel.to_owned(), name: last.name.clone() };
                Err(TuningError { line: last.line, fault })
            }
            Some(_) => Ok(schedules),
        }
    }

    fn check_order(
        &self,
        kernel: &str,
        before: &[Schedule],
        schedule: &Schedule,
    ) -> Result<(), TuningError> {
        let _ = self;
        let name = schedule.name.clone();
        let fault = if before.iter().any(|other| other.name == name) {
            TuningFault::Twice { kernel: kernel.to_owned(), name }
        } else if let Some(always) = before.iter().find(|other| other.is_unconditional()) {
            TuningFault::Unreachable { name, after: always.name.clone() }
        } else {
            return Ok(());
        };
        Err(TuningError { line: schedule.line, fault })
    }

    fn schedule(&self, kernel: &str, entry: &Value<'_>) -> Result<Schedule, TuningError> {
        let table =
            entry.get_ref().as_table().ok_or_else(|| self.wrong("schedule", entry, "a table"))?;
        let mut schedule = Schedule {
            name: String::new(),
            when: None,
            constants: BTreeMap::new(),
            threads: None,
            stages: None,
            only: BTreeMap::new(),
            line: self.line(entry.span().start),
        };
        for (key, value) in table {
            let key_text: &str = key.get_ref();
            match key_text {
                "name" => schedule.name = self.name(value)?,
                "when" => schedule.when = Some(self.predicate(value)?),
                "threads" => schedule.threads = Some(self.positive(key_text, value)?),
                "stages" => schedule.stages = Some(self.positive(key_text, value)?),
                "only" => schedule.only = self.only(value)?,
                constant if constant.starts_with(|first: char| first.is_ascii_uppercase()) => {
                    let number: u32 = self.positive(key_text, value)?;
                    schedule.constants.insert(constant.to_owned(), i64::from(number));
                }
                other => {
                    let expected = "name, when, only, threads, stages or a constant in capitals";
                    let fault = TuningFault::Key { key: other.to_owned(), expected };
                    return Err(self.error(key.span().start, fault));
                }
            }
        }
        if schedule.name.is_empty() {
            let fault = TuningFault::Unnamed { kernel: kernel.to_owned() };
            return Err(TuningError { line: schedule.line, fault });
        }
        Ok(schedule)
    }

    fn name(&self, value: &Value<'_>) -> Result<String, TuningError> {
        let expected = "a string of letters, digits and `_`";
        let name = value.get_ref().as_str().filter(|name| is_identifier(name));
        name.map(str::to_owned).ok_or_else(|| self.wrong("name", value, expected))
    }

    fn predicate(&self, value: &Value<'_>) -> Result<Predicate, TuningError> {
        let text = value.get_ref().as_str();
        let text = text.ok_or_else(|| self.wrong("when", value, "a condition in quotes"))?;
        Predicate::parse(text).map_err(|error| {
            let line = self.line(value.span().start) + error.line - 1;
            TuningError { line, fault: TuningFault::Predicate(error) }
        })
    }

    fn positive(&self, key: &str, value: &Value<'_>) -> Result<u32, TuningError> {
        let number = value.get_ref().as_integer();
        let number = number.and_then(|it| u32::from_str_radix(it.as_str(), it.radix()).ok());
        number
            .filter(|number| *number > 0)
            .ok_or_else(|| self.wrong(key, value, "a positive integer"))
    }

    fn only(&self, value: &Value<'_>) -> Result<BTreeMap<String, Vec<String>>, TuningError> {
        let expected = "a table such as { W = [\"q4_0\"] }";
        let table =
            value.get_ref().as_table().ok_or_else(|| self.wrong("only", value, expected))?;
        let mut only = BTreeMap::new();
        for (generic, names) in table {
            let generic: &str = generic.get_ref();
            let expected = "a list of names in quotes";
            let list = names.get_ref().as_array().filter(|list| !list.is_empty());
            let list = list.ok_or_else(|| self.wrong(generic, names, expected))?;
            let names = list.iter().map(|name| {
                let text = name.get_ref().as_str().map(str::to_owned);
                text.ok_or_else(|| self.wrong(generic, name, expected))
            });
            only.insert(generic.to_owned(), names.collect::<Result<_, _>>()?);
        }
        Ok(only)
    }
}
