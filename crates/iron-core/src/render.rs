//! Diagnostics as a compiler prints them: the offending line with a caret under it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::{Diagnostic, Span};

/// The text of a diagnostic, with the source line when the file can be read.
///
/// ```text
/// error: `x` is read-only
///   --> crates/iron-std/src/mlx/add.rs:12:11
///    |
/// 12 |     store(x[(row, j)], 0.0);
///    |           ^
///    = help: declare it TensorMut or ActivationsMut
///    = note: in the instance `add__row`
/// ```
pub fn render(diagnostic: &Diagnostic) -> String {
    let source = find(diagnostic.span).and_then(|path| std::fs::read_to_string(path).ok());
    render_with(diagnostic, source.as_deref())
}

/// The text of a diagnostic whose file holds `source`.
pub fn render_with(diagnostic: &Diagnostic, source: Option<&str>) -> String {
    let Diagnostic { span, message, help, kernel } = diagnostic;
    let number = span.line.to_string();
    let margin = " ".repeat(number.len());
    let mut text = format!("error: {message}\n");
    if span.line > 0 {
        let _ = writeln!(text, "{margin}--> {span}");
        let at = (span.line as usize).saturating_sub(1);
        if let Some(line) = source.and_then(|source| source.lines().nth(at)) {
            let _ = writeln!(text, "{margin} |\n{number} | {line}");
            let _ = writeln!(text, "{margin} | {}", underline(line, span.column));
        }
    }
    if let Some(help) = help {
        let _ = writeln!(text, "{margin} = help: {help}");
    }
    if !kernel.is_empty() {
        let _ = writeln!(text, "{margin} = note: in the instance `{kernel}`");
    }
    text
}

/// Carets under the word, number or sign at `column`.
fn underline(line: &str, column: u32) -> String {
    let skipped = (column as usize).saturating_sub(1);
    let mut carets: String =
        line.chars().take(skipped).map(|it| if it == '\t' { '\t' } else { ' ' }).collect();
    let word = line.chars().skip(skipped).take_while(|it| it.is_alphanumeric() || *it == '_');
    carets.extend(std::iter::repeat_n('^', word.count().max(1)));
    carets
}

/// The file of a position. `file!()` is relative to the workspace; build scripts and users stand somewhere inside it.
fn find(span: Span) -> Option<PathBuf> {
    let path = Path::new(span.file);
    if span.file.is_empty() || path.is_absolute() {
        return (!span.file.is_empty()).then(|| path.to_path_buf());
    }
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join(path)).find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offending_word_is_underlined() {
        let fault = Diagnostic::new(Span::new("src/add.rs", 2, 11), "`x` is read-only")
            .help("declare it TensorMut");
        let text = render_with(&fault, Some("fn add() {\n    store(input[j], 0.0);\n"));
        let expected = "error: `x` is read-only
 --> src/add.rs:2:11
  |
2 |     store(input[j], 0.0);
  |           ^^^^^
  = help: declare it TensorMut
";
        assert_eq!(text, expected);
    }

    #[test]
    fn without_the_file_the_position_is_enough() {
        let fault = Diagnostic::new(Span::new("gone/add.rs", 2, 11), "`x` is read-only");
        assert_eq!(render(&fault), "error: `x` is read-only\n --> gone/add.rs:2:11\n");
    }

    #[test]
    fn generated_things_have_no_position() {
        let fault = Diagnostic::new(Span::NONE, "too much shared memory");
        assert_eq!(render(&fault), "error: too much shared memory\n");
    }
}
