//! What the user sees: errors, notes, colours, numbers.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use butter::hub::HubError;

use crate::interrupt::Interrupt;

/// Exit code of a program that Ctrl-C ended: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
const ERROR: u8 = 1;
const USAGE: u8 = 2;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It went wrong: a line about what, and one about what to do.
    Error { message: String, help: Option<String> },
    /// The arguments make no sense.
    Usage { message: String, help: Option<String> },
    /// The user pressed Ctrl-C.
    Interrupted,
    /// Whoever reads our output wants no more, as `head` does.
    OutputClosed,
}

impl Failure {
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self::Error { message: message.into(), help: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), help: None }
    }

    /// The same failure with a line about what to do.
    pub(crate) fn with_help(mut self, text: impl Into<String>) -> Self {
        if let Self::Error { help, .. } | Self::Usage { help, .. } = &mut self {
            *help = Some(text.into());
        }
        self
    }

    /// An error of the operating system: `cannot open \`x\`: No such file or directory`.
    pub(crate) fn io(action: &str, path: &std::path::Path, error: &io::Error) -> Self {
        Self::error(format!("cannot {action} `{}`: {error}", path.display()))
    }
}

impl From<butter::Error> for Failure {
    fn from(error: butter::Error) -> Self {
        match &error {
            butter::Error::Hub(HubError::Cancelled) => Self::Interrupted,
            butter::Error::Hub(HubError::NoSource { .. }) => Self::error(error.to_string())
                .with_help(
                    "check the network with `butter doctor`, or give the path of a .gguf file",
                ),
            butter::Error::Options(_) => Self::usage(error.to_string()),
            butter::Error::ContextTooLong { model, .. } => Self::usage(error.to_string())
                .with_help(format!("leave out --ctx, or give at most {model}")),
            _ => Self::advising(&error.to_string()),
        }
    }
}

impl Failure {
    /// Butter's messages say what to do behind their last semicolon.
    fn advising(text: &str) -> Self {
        match text.rsplit_once("; ") {
            Some((message, help)) => Self::error(message).with_help(help),
            None => Self::error(text),
        }
    }
}

/// Errors of butter's parts, by way of [`butter::Error`].
macro_rules! from_parts {
    ($($part:ty),*) => { $(
        impl From<$part> for Failure {
            fn from(error: $part) -> Self {
                butter::Error::from(error).into()
            }
        }
    )* };
}
from_parts!(
    HubError,
    butter::batch::BatchError,
    butter::cache::CacheError,
    butter::generate::OptionsError,
    butter::template::TemplateError,
    butter::tokenizer::TokenizerError,
    butter::weights::WeightsError,
    iron_runtime::RuntimeError
);

/// An error of writing to standard output, which is all that is written without a path.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::error(format!("cannot write the output: {error}")),
        }
    }
}

/// Where notes, warnings and errors go, and how they look.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    pub(crate) interrupt: Interrupt,
    is_quiet: bool,
    is_animatable: bool,
}

impl Terminal {
    pub(crate) fn new(is_quiet: bool) -> Self {
        let is_animatable = io::stderr().is_terminal();
        Self { interrupt: Interrupt::default(), is_quiet, is_animatable }
    }

    /// Whether standard error is a terminal, on which a line can be drawn again.
    pub(crate) fn is_animated(&self) -> bool {
        self.is_animatable && !self.is_quiet
    }

    /// Says something that is not the result.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        if !self.is_quiet {
            line(&format!("{}", self.paint(Style::Dim, text)));
        }
    }

    /// Says that the result may not be what the user wants.
    pub(crate) fn warn(&self, text: impl fmt::Display) {
        if !self.is_quiet {
            line(&format!("{} {text}", self.paint(Style::Yellow, "warning:")));
        }
    }

    /// Shows an error without ending the program.
    pub(crate) fn show(&self, failure: &Failure) {
        if let Failure::Error { message, help } | Failure::Usage { message, help } = failure {
            line(&format!("{} {}", self.paint(Style::Red, "error:"), one_line(message)));
            if let Some(help) = help {
                line(&format!("{} {}", self.paint(Style::Cyan, "help:"), one_line(help)));
            }
        }
    }

    /// Shows an error; returns the program's exit code.
    pub(crate) fn fail(&self, failure: &Failure) -> ExitCode {
        self.show(failure);
        match failure {
            Failure::Error { .. } => ExitCode::from(ERROR),
            Failure::Usage { .. } => ExitCode::from(USAGE),
            Failure::Interrupted => ExitCode::from(INTERRUPTED),
            Failure::OutputClosed => ExitCode::SUCCESS,
        }
    }

    fn paint(&self, style: Style, text: impl fmt::Display) -> impl fmt::Display {
        Painted { style: has_colours(self.is_animatable).then_some(style), text: text.to_string() }
    }
}

/// Says something that was asked for, but is not the result.
pub(crate) fn report(text: impl fmt::Display) {
    line(&text.to_string());
}

/// Writes a line to standard error.
fn line(text: &str) {
    // Nobody is left to be told when standard error is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Colours for standard output.
pub(crate) fn paint(style: Style, text: impl fmt::Display) -> impl fmt::Display {
    let style = has_colours(io::stdout().is_terminal()).then_some(style);
    Painted { style, text: text.to_string() }
}

/// <https://no-color.org>
fn has_colours(is_terminal: bool) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// How a word looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

struct Painted {
    style: Option<Style>,
    text: String,
}

impl fmt::Display for Painted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self.style {
            None => return f.pad(&self.text),
            Some(Style::Bold) => "1",
            Some(Style::Dim) => "2",
            Some(Style::Red) => "1;31",
            Some(Style::Green) => "32",
            Some(Style::Yellow) => "1;33",
            Some(Style::Cyan) => "36",
        };
        write!(f, "\x1b[{code}m")?;
        f.pad(&self.text)?;
        f.write_str("\x1b[0m")
    }
}

/// Messages quote files and other programs, which may hold line breaks and control characters.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for (index, word) in text.split_whitespace().enumerate() {
        let gap = if index > 0 { " " } else { "" };
        let _ = write!(line, "{gap}{}", word.replace(char::is_control, "\u{fffd}"));
    }
    line
}

/// A number of bytes for people: `134.5 MB`, in powers of 1000 as disks and downloads are sold.
pub(crate) fn bytes(count: u64) -> String {
    let (mut value, mut unit) = (count as f64, "B");
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
}

/// A count for people: `134.5 M`.
pub(crate) fn count(number: u64) -> String {
    match number as f64 {
        value if value >= 1e9 => format!("{:.2} B", value / 1e9),
        value if value >= 1e6 => format!("{:.1} M", value / 1e6),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3),
        _ => number.to_string(),
    }
}

/// A number of things: `1 layer`, `30 layers`.
pub(crate) fn plural(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::{Failure, bytes, count, one_line, plural};

    #[test]
    fn bytes_have_the_unit_that_fits() {
        for (number, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (134_515_008, "134.5 MB"),
            (999_999, "1.0 MB"),
        ] {
            assert_eq!(bytes(number), shown);
        }
    }

    #[test]
    fn counts_are_short() {
        assert_eq!([count(512), count(49_152), count(134_515_008)], ["512", "49.2 k", "134.5 M"]);
        assert_eq!([plural(1, "layer"), plural(2, "layer")], ["1 layer", "2 layers"]);
    }

    #[test]
    fn messages_stay_on_one_line() {
        assert_eq!(one_line("a\nb\t c\x1b[2J"), "a b c\u{fffd}[2J");
    }

    #[test]
    fn advice_is_what_follows_the_last_semicolon() {
        let Failure::Error { message, help } =
            Failure::advising("it is cut; short; download it again")
        else {
            panic!("an error");
        };
        assert_eq!(
            (message.as_str(), help.as_deref()),
            ("it is cut; short", Some("download it again"))
        );
    }
}
