//! Tokens of IR text and of schedule predicates.

use std::fmt;

/// Text that is no kernel, dimension expression or predicate: where, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// 1-based line.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A word.
    Word(String),
    /// `%12` or `%acc.12`.
    Value(u32, Option<String>),
    /// Digits, with what belongs to a number.
    Number(String),
    /// A string without its quotes.
    Text(String),
    /// An operator or bracket.
    Mark(&'static str),
    /// The end of the text.
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Value(number, Some(name)) => write!(f, "`%{name}.{number}`"),
            Self::Value(number, None) => write!(f, "`%{number}`"),
            Self::Number(digits) => write!(f, "`{digits}`"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Mark(mark) => write!(f, "`{mark}`"),
            Self::End => f.write_str("the end of the text"),
        }
    }
}

/// Longest first, so that `<=` is not read as `<`.
const MARKS: [&str; 27] = [
    "&&", "||", "==", "!=", "<=", ">=", "{", "}", "(", ")", "[", "]", "<", ">", "=", ":", ",", ".",
    "+", "-", "*", "/", "%", "!", "?", "@", ";",
];

/// A token and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) token: Token,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Placed {
    /// "expected `what`, found the token".
    pub(crate) fn expected(&self, what: &str) -> ParseError {
        self.fault(format!("expected {what}, found {}", self.token))
    }

    pub(crate) fn fault(&self, message: String) -> ParseError {
        ParseError { line: self.line, column: self.column, message }
    }
}

/// Splits `text` into tokens; the last one is [`Token::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Placed>, ParseError> {
    let mut tokens = Vec::new();
    let mut lines = 0;
    for (index, line) in text.lines().enumerate() {
        lines = index as u32 + 1;
        let mut rest = line;
        loop {
            rest = rest.trim_start();
            let column = (line.len() - rest.len()) as u32 + 1;
            if rest.is_empty() || rest.starts_with("//") {
                break;
            }
            let place = |token| Placed { token, line: lines, column };
            let (token, length) = next(rest).ok_or_else(|| {
                place(Token::End).fault(format!("unknown character in `{}`", head(rest)))
            })?;
            tokens.push(place(token));
            rest = &rest[length..];
        }
    }
    let column = text.lines().last().map_or(0, str::len) as u32 + 1;
    tokens.push(Placed { token: Token::End, line: lines.max(1), column });
    Ok(tokens)
}

fn head(rest: &str) -> String {
    rest.chars().take(12).collect()
}

fn next(rest: &str) -> Option<(Token, usize)> {
    let first = rest.chars().next()?;
    if first == '%'
        && let Some(value) = value(&rest[1..])
    {
        return Some(value);
    }
    if first.is_ascii_digit() {
        let length = number(rest);
        return Some((Token::Number(rest[..length].to_owned()), length));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = word(rest);
        return Some((Token::Word(rest[..length].to_owned()), length));
    }
    if first == '"' {
        return string(rest);
    }
    let mark = MARKS.iter().find(|mark| rest.starts_with(**mark))?;
    Some((Token::Mark(mark), mark.len()))
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// What follows `%`: `12` or `acc.12`.
fn value(rest: &str) -> Option<(Token, usize)> {
    let length = word(rest);
    let (first, after) = rest.split_at(length);
    if let Ok(number) = first.parse() {
        return Some((Token::Value(number, None), length + 1));
    }
    let digits = after.strip_prefix('.')?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits[..end].parse().ok()?;
    let named = !first.is_empty() && !first.starts_with(|c: char| c.is_ascii_digit());
    named.then(|| (Token::Value(number, Some(first.to_owned())), length + end + 2))
}

/// Digits, a fraction and an exponent, or hexadecimal.
fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    if let Some(digits) = rest.strip_prefix("0x") {
        return 2 + word(digits);
    }
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    end
}

/// A string with `\"` and `\\` escapes.
fn string(rest: &str) -> Option<(Token, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, letter)) = chars.next() {
        match letter {
            '"' => return Some((Token::Text(text), at + 1)),
            '\\' => text.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                escaped @ ('"' | '\\') => escaped,
                _ => return None,
            }),
            letter => text.push(letter),
        }
    }
    None
}

/// A position in a list of tokens.
#[derive(Debug)]
pub(crate) struct Cursor {
    tokens: Vec<Placed>,
    at: usize,
}

impl Cursor {
    pub(crate) fn new(text: &str) -> Result<Self, ParseError> {
        Ok(Self { tokens: tokens(text)?, at: 0 })
    }

    pub(crate) fn here(&self) -> &Placed {
        &self.tokens[self.at]
    }

    pub(crate) fn peek(&self) -> &Token {
        &self.here().token
    }

    /// The token after the next one.
    pub(crate) fn peek_second(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].token
    }

    pub(crate) fn advance(&mut self) -> Placed {
        let placed = self.here().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        placed
    }

    pub(crate) fn expected<T>(&self, what: &str) -> Result<T, ParseError> {
        Err(self.here().expected(what))
    }

    /// Takes `mark` when it is next.
    pub(crate) fn eat(&mut self, mark: &str) -> bool {
        let found = matches!(self.peek(), Token::Mark(next) if *next == mark);
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn mark(&mut self, mark: &str) -> Result<(), ParseError> {
        if self.eat(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    /// Takes the word when it is next.
    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(next) if next == word);
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn keyword(&mut self, word: &str) -> Result<(), ParseError> {
        if self.eat_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    pub(crate) fn word(&mut self, what: &str) -> Result<String, ParseError> {
        match self.peek() {
            Token::Word(word) => {
                let word = word.clone();
                self.advance();
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    /// A number of type `T`, with a sign when there is one.
    pub(crate) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, ParseError> {
        let start = self.here().clone();
        let sign = if self.eat("-") { "-" } else { "" };
        let Token::Number(digits) = self.peek() else { return self.expected(what) };
        let number = format!("{sign}{digits}");
        match number.parse() {
            Ok(number) => {
                self.advance();
                Ok(number)
            }
            Err(_) => Err(start.fault(format!("expected {what}, found `{number}`"))),
        }
    }

    pub(crate) fn end(&self) -> Result<(), ParseError> {
        if *self.peek() == Token::End { Ok(()) } else { self.expected("the end of the text") }
    }
}
