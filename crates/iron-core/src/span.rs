//! Source positions and diagnostics.

use std::fmt;

/// A position in kernel source: the file as rustc names it, and a 1-based line and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Path as given by `file!()`; empty for IR that was parsed from text.
    pub file: &'static str,
    /// 1-based line; 0 when unknown.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
}

impl Span {
    /// The position of things that no source line wrote.
    pub const NONE: Span = Span { file: "", line: 0, column: 0 };

    /// A position in `file`.
    pub const fn new(file: &'static str, line: u32, column: u32) -> Self {
        Self { file, line, column }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str("<generated>");
        }
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A kernel that does not type-check: where, what was expected, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The Rust line at fault.
    pub span: Span,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// The kernel instance that was being compiled.
    pub kernel: String,
}

impl Diagnostic {
    /// A diagnostic at `span`.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None, kernel: String::new() }
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.span, self.message)?;
        if !self.kernel.is_empty() {
            write!(f, " (in `{}`)", self.kernel)?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
