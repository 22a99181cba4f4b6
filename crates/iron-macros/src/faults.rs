//! Errors in kernel source: what was found, what is expected, what to write instead.

use proc_macro2::Span;
use quote::ToTokens;
use syn::{Error, Result};

/// An error at one token.
pub(crate) fn at(span: Span, found: &str, expected: &str, write: &str) -> Error {
    Error::new(span, text(found, expected, write))
}

/// An error over a piece of source.
pub(crate) fn over(tokens: &impl ToTokens, found: &str, expected: &str, write: &str) -> Error {
    let quoted = (found == "this").then(|| quote_source(tokens)).flatten();
    Error::new_spanned(tokens, text(quoted.as_deref().unwrap_or(found), expected, write))
}

/// Short source in backquotes.
fn quote_source(tokens: &impl ToTokens) -> Option<String> {
    let mut text = tokens.to_token_stream().to_string();
    for (spaced, tight) in [(" . ", "."), (" :: ", "::"), (" (", "("), (" [", "["), (" , ", ", ")] {
        text = text.replace(spaced, tight);
    }
    (!text.is_empty() && text.len() <= 40).then(|| format!("`{text}`"))
}

fn text(found: &str, expected: &str, write: &str) -> String {
    format!("found {found}, expected {expected}\nhelp: {write}")
}

/// Collects errors, so that one compilation shows all of them.
#[derive(Default)]
pub(crate) struct Faults(Option<Error>);

impl Faults {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The value, or `None` with its errors kept.
    pub(crate) fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// `value` when no error was collected.
    pub(crate) fn finish<T: Complete>(self, value: T) -> Result<T::Whole> {
        match (self.0, value.complete()) {
            (None, Some(whole)) => Ok(whole),
            (Some(errors), _) => Err(errors),
            (None, None) => unreachable!("a value is missing only with an error"),
        }
    }
}

/// What [`Faults::finish`] turns from optional into present.
pub(crate) trait Complete {
    /// The present form.
    type Whole;
    /// The present form, when all of it is there.
    fn complete(self) -> Option<Self::Whole>;
}

impl Complete for () {
    type Whole = ();
    fn complete(self) -> Option<()> {
        Some(())
    }
}

impl<A, B> Complete for (Option<A>, Option<B>) {
    type Whole = (A, B);
    fn complete(self) -> Option<(A, B)> {
        Some((self.0?, self.1?))
    }
}

impl<A, B, C> Complete for (Option<A>, Option<B>, Option<C>) {
    type Whole = (A, B, C);
    fn complete(self) -> Option<(A, B, C)> {
        Some((self.0?, self.1?, self.2?))
    }
}

/// All values, or all errors.
pub(crate) fn collect<T>(results: impl IntoIterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut faults = Faults::default();
    let values = results.into_iter().filter_map(|result| faults.take(result)).collect();
    faults.finish(())?;
    Ok(values)
}
