//! Conditions under which a schedule is chosen: `m == 1 && HEAD_DIM <= 64`.
//!
//! Arithmetic wraps, and division by zero gives zero, so that a condition over known names always has a value and the
//! generated Rust gives the same one.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use crate::ir::CompareOp;
use crate::lex::{Cursor, ParseError, Placed, Token};

/// A condition over runtime dimensions and compile-time constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// `true` or `false`
    Const(bool),
    /// `a == b`, `a < b` ..
    Compare(CompareOp, Term, Term),
    /// `a && b`
    And(Box<Predicate>, Box<Predicate>),
    /// `a || b`
    Or(Box<Predicate>, Box<Predicate>),
    /// `!a`
    Not(Box<Predicate>),
}

/// A number in a predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// A literal.
    Int(i64),
    /// A dimension, or a constant in capitals.
    Name(String),
    /// An operation on two.
    Op(TermOp, Box<Term>, Box<Term>),
}

/// Arithmetic of predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, towards zero
    Div,
    /// `a % b`
    Rem,
}

/// A name in a predicate that is no dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// The dimensions there are.
    pub dims: Vec<String>,
}

impl Display for UnknownName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is neither a dimension ({}) nor a constant",
            self.name,
            self.dims.join(", ")
        )
    }
}

impl std::error::Error for UnknownName {}

/// What a name stands for.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<i64>;

impl TermOp {
    const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Rem => "%",
        }
    }

    const fn precedence(self) -> u8 {
        match self {
            Self::Add | Self::Sub => 1,
            Self::Mul | Self::Div | Self::Rem => 2,
        }
    }

    const fn apply(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div | Self::Rem if b == 0 => 0,
            Self::Div => a.wrapping_div(b),
            Self::Rem => a.wrapping_rem(b),
        }
    }
}

const fn symbol(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

impl Term {
    fn op(op: TermOp, a: Term, b: Term) -> Self {
        Self::Op(op, Box::new(a), Box::new(b))
    }

    /// The value, or `None` when a name is unknown.
    pub fn eval(&self, lookup: Lookup<'_>) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Name(name) => lookup(name),
            Self::Op(op, a, b) => Some(op.apply(a.eval(lookup)?, b.eval(lookup)?)),
        }
    }

    fn bind(&self, lookup: Lookup<'_>) -> Self {
        if let Some(number) = self.eval(lookup) {
            return Self::Int(number);
        }
        match self {
            Self::Op(op, a, b) => Self::op(*op, a.bind(lookup), b.bind(lookup)),
            other => other.clone(),
        }
    }

    fn names<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        match self {
            Self::Int(_) => {}
            Self::Name(name) => {
                names.insert(name);
            }
            Self::Op(_, a, b) => {
                a.names(names);
                b.names(names);
            }
        }
    }

    fn to_rust(&self, dims: &[String]) -> Result<String, UnknownName> {
        Ok(match self {
            Self::Int(number @ ..0) => format!("({number}i64)"),
            Self::Int(number) => format!("{number}i64"),
            Self::Name(name) => match dims.iter().position(|dim| dim == name) {
                Some(position) => format!("d[{position}]"),
                None => return Err(UnknownName { name: name.clone(), dims: dims.to_vec() }),
            },
            Self::Op(op, a, b) => {
                let (a, divisor) = (a.to_rust(dims)?, matches!(**b, Self::Int(1..)));
                let b = b.to_rust(dims)?;
                match op {
                    TermOp::Add => format!("{a}.wrapping_add({b})"),
                    TermOp::Sub => format!("{a}.wrapping_sub({b})"),
                    TermOp::Mul => format!("{a}.wrapping_mul({b})"),
                    TermOp::Div | TermOp::Rem if divisor => format!("({a} {} {b})", op.symbol()),
                    TermOp::Div => {
                        format!("(if {b} == 0 {{ 0 }} else {{ {a}.wrapping_div({b}) }})")
                    }
                    TermOp::Rem => {
                        format!("(if {b} == 0 {{ 0 }} else {{ {a}.wrapping_rem({b}) }})")
                    }
                }
            }
        })
    }

    fn write(&self, f: &mut Formatter<'_>, least: u8) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
            Self::Op(op, a, b) => {
                let precedence = op.precedence();
                let parentheses = precedence < least;
                if parentheses {
                    f.write_str("(")?;
                }
                a.write(f, precedence)?;
                write!(f, " {} ", op.symbol())?;
                b.write(f, precedence + 1)?;
                if parentheses {
                    f.write_str(")")?;
                }
                Ok(())
            }
        }
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Predicate {
    /// Reads a condition: comparisons of sums over names and integers, joined by `&&`, `||` and `!`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parser = Parser(Cursor::new(text)?);
        let start = parser.0.here().clone();
        let node = parser.or()?;
        parser.0.end()?;
        node.predicate(&start)
    }

    /// Whether it holds; `None` when that depends on a name that `lookup` does not know.
    pub fn eval(&self, lookup: Lookup<'_>) -> Option<bool> {
        match self {
            Self::Const(truth) => Some(*truth),
            Self::Compare(op, a, b) => {
                let (a, b) = (a.eval(lookup)?, b.eval(lookup)?);
                Some(match op {
                    CompareOp::Eq => a == b,
                    CompareOp::Ne => a != b,
                    CompareOp::Lt => a < b,
                    CompareOp::Le => a <= b,
                    CompareOp::Gt => a > b,
                    CompareOp::Ge => a >= b,
                })
            }
            Self::And(a, b) => match (a.eval(lookup), b.eval(lookup)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (a, b) => Some(a? && b?),
            },
            Self::Or(a, b) => match (a.eval(lookup), b.eval(lookup)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (a, b) => Some(a? || b?),
            },
            Self::Not(a) => a.eval(lookup).map(|truth| !truth),
        }
    }

    /// The condition that is left once the names that `lookup` knows (compile-time constants) are numbers.
    #[must_use]
    pub fn bind(&self, lookup: Lookup<'_>) -> Self {
        if let Some(truth) = self.eval(lookup) {
            return Self::Const(truth);
        }
        match self {
            Self::Const(truth) => Self::Const(*truth),
            Self::Compare(op, a, b) => Self::Compare(*op, a.bind(lookup), b.bind(lookup)),
            Self::And(a, b) => match (a.bind(lookup), b.bind(lookup)) {
                (Self::Const(true), rest) | (rest, Self::Const(true)) => rest,
                (a, b) => Self::And(Box::new(a), Box::new(b)),
            },
            Self::Or(a, b) => match (a.bind(lookup), b.bind(lookup)) {
                (Self::Const(false), rest) | (rest, Self::Const(false)) => rest,
                (a, b) => Self::Or(Box::new(a), Box::new(b)),
            },
            Self::Not(a) => Self::Not(Box::new(a.bind(lookup))),
        }
    }

    /// The names it depends on.
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.collect_names(&mut names);
        names
    }

    fn collect_names<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        match self {
            Self::Const(_) => {}
            Self::Compare(_, a, b) => {
                a.names(names);
                b.names(names);
            }
            Self::And(a, b) | Self::Or(a, b) => {
                a.collect_names(names);
                b.collect_names(names);
            }
            Self::Not(a) => a.collect_names(names),
        }
    }

    /// A Rust expression of type `bool` over `d: &[i64]`, the extents in the order of `dims`. Constants must have been
    /// bound before.
    pub fn to_rust(&self, dims: &[String]) -> Result<String, UnknownName> {
        Ok(match self {
            Self::Const(truth) => truth.to_string(),
            Self::Compare(op, a, b) => {
                format!("{} {} {}", a.to_rust(dims)?, symbol(*op), b.to_rust(dims)?)
            }
            Self::And(a, b) => format!("({}) && ({})", a.to_rust(dims)?, b.to_rust(dims)?),
            Self::Or(a, b) => format!("({}) || ({})", a.to_rust(dims)?, b.to_rust(dims)?),
            Self::Not(a) => format!("!({})", a.to_rust(dims)?),
        })
    }

    const fn precedence(&self) -> u8 {
        match self {
            Self::Or(..) => 0,
            Self::And(..) => 1,
            Self::Compare(..) => 2,
            Self::Not(_) | Self::Const(_) => 3,
        }
    }

    fn write(&self, f: &mut Formatter<'_>, least: u8) -> fmt::Result {
        let parentheses = self.precedence() < least;
        if parentheses {
            f.write_str("(")?;
        }
        match self {
            Self::Const(truth) => write!(f, "{truth}")?,
            Self::Compare(op, a, b) => write!(f, "{a} {} {b}", symbol(*op))?,
            Self::And(a, b) => {
                a.write(f, 1)?;
                f.write_str(" && ")?;
                b.write(f, 2)?;
            }
            Self::Or(a, b) => {
                a.write(f, 0)?;
                f.write_str(" || ")?;
                b.write(f, 1)?;
            }
            Self::Not(a) => {
                f.write_str("!")?;
                a.write(f, 3)?;
            }
        }
        if parentheses {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl Display for Predicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl FromStr for Predicate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

/// A parsed piece, before it is known whether a truth value or a number is wanted.
enum Node {
    Truth(Predicate),
    Number(Term),
}

impl Node {
    fn predicate(self, at: &Placed) -> Result<Predicate, ParseError> {
        match self {
            Self::Truth(predicate) => Ok(predicate),
            Self::Number(term) => {
                Err(at.fault(format!("expected a condition, found the number `{term}`")))
            }
        }
    }

    fn term(self, at: &Placed) -> Result<Term, ParseError> {
        match self {
            Self::Number(term) => Ok(term),
            Self::Truth(predicate) => {
                Err(at.fault(format!("expected a number, found the condition `{predicate}`")))
            }
        }
    }
}

struct Parser(Cursor);

impl Parser {
    fn or(&mut self) -> Result<Node, ParseError> {
        self.joined("||", Self::and, |a, b| Predicate::Or(Box::new(a), Box::new(b)))
    }

    fn and(&mut self) -> Result<Node, ParseError> {
        self.joined("&&", Self::comparison, |a, b| Predicate::And(Box::new(a), Box::new(b)))
    }

    fn joined(
        &mut self,
        mark: &str,
        operand: fn(&mut Self) -> Result<Node, ParseError>,
        join: fn(Predicate, Predicate) -> Predicate,
    ) -> Result<Node, ParseError> {
        let start = self.0.here().clone();
        let mut left = operand(self)?;
        while self.0.eat(mark) {
            let place = self.0.here().clone();
            let right = operand(self)?.predicate(&place)?;
            left = Node::Truth(join(left.predicate(&start)?, right));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Node, ParseError> {
        let start = self.0.here().clone();
        let left = self.sum()?;
        let Some(op) = self.compare_op() else { return Ok(left) };
        let left = left.term(&start)?;
        let place = self.0.here().clone();
        let right = self.sum()?.term(&place)?;
        if matches!(self.0.peek(), Token::Mark("==" | "!=" | "<" | "<=" | ">" | ">=")) {
            return self.0.expected("`&&` or `||` after a comparison");
        }
        Ok(Node::Truth(Predicate::Compare(op, left, right)))
    }

    fn compare_op(&mut self) -> Option<CompareOp> {
        let op =
            CompareOp::ALL.iter().copied().find(|op| *self.0.peek() == Token::Mark(symbol(*op)))?;
        self.0.advance();
        Some(op)
    }

    fn sum(&mut self) -> Result<Node, ParseError> {
        self.chain(&[TermOp::Add, TermOp::Sub], Self::product)
    }

    fn product(&mut self) -> Result<Node, ParseError> {
        self.chain(&[TermOp::Mul, TermOp::Div, TermOp::Rem], Self::atom)
    }

    fn chain(
        &mut self,
        ops: &[TermOp],
        operand: fn(&mut Self) -> Result<Node, ParseError>,
    ) -> Result<Node, ParseError> {
        let start = self.0.here().clone();
        let mut left = operand(self)?;
        while let Some(op) = ops.iter().find(|op| self.0.eat(op.symbol())) {
            let place = self.0.here().clone();
            let right = operand(self)?.term(&place)?;
            left = Node::Number(Term::op(*op, left.term(&start)?, right));
        }
        Ok(left)
    }

    fn atom(&mut self) -> Result<Node, ParseError> {
        let what = "a dimension, a constant or an integer";
        let place = self.0.here().clone();
        Ok(match self.0.peek().clone() {
            Token::Number(_) => Node::Number(Term::Int(self.0.number(what)?)),
            Token::Word(word) => {
                self.0.advance();
                match word.as_str() {
                    "true" => Node::Truth(Predicate::Const(true)),
                    "false" => Node::Truth(Predicate::Const(false)),
                    _ => Node::Number(Term::Name(word)),
                }
            }
            Token::Mark("-") if matches!(self.0.peek_second(), Token::Number(_)) => {
                Node::Number(Term::Int(self.0.number(what)?))
            }
            Token::Mark("-") => {
                self.0.advance();
                Node::Number(Term::op(TermOp::Sub, Term::Int(0), self.atom()?.term(&place)?))
            }
            Token::Mark("!") => {
                self.0.advance();
                let place = self.0.here().clone();
                Node::Truth(Predicate::Not(Box::new(self.atom()?.predicate(&place)?)))
            }
            Token::Mark("(") => {
                self.0.advance();
                let inner = self.or()?;
                self.0.mark(")")?;
                inner
            }
            _ => return self.0.expected(what),
        })
    }
}
