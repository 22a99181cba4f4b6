//! Kernel source as `#[kernel]` records it: the parsed function with spans, before any meaning is given to it.
//!
//! Everything is `'static` constant data, so that a crate of kernels compiles to tables and runs no code.

use crate::Span;

/// A function marked `#[kernel]`.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The doc comment, one paragraph.
    pub docs: &'static str,
    /// Where it stands.
    pub span: Span,
    /// Generic parameters, each an axis of the instance list.
    pub generics: &'static [Generic],
    /// Parameters in order.
    pub params: &'static [Param],
    /// The launch grid over named dimensions; empty for a helper that other kernels inline.
    pub grid: &'static [Expr],
    /// Compile-time parameters and the values they are compiled for.
    pub variants: &'static [Variant],
    /// Targets whose text is a hand-written file: (target, path).
    pub native: &'static [(&'static str, &'static str)],
    /// The body.
    pub body: Block,
}

/// A generic parameter.
#[derive(Debug)]
pub struct Generic {
    /// Its name.
    pub name: &'static str,
    /// What it ranges over.
    pub bound: Bound,
    /// Where it stands.
    pub span: Span,
}

/// What a generic parameter ranges over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `f32`, `f16` or `bf16`.
    Float,
    /// `i32` or `u32`.
    Int,
    /// A weight format.
    Format,
    /// How activations are stored: a float type or int8 blocks.
    Activation,
}

/// A compile-time parameter.
#[derive(Debug)]
pub struct Variant {
    /// Its name, in capitals.
    pub name: &'static str,
    /// The values that are compiled, ascending; the last is the generic fallback.
    pub values: &'static [u32],
    /// Where it stands.
    pub span: Span,
}

/// A parameter of a kernel.
#[derive(Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// Its declared type.
    pub ty: ParamType,
    /// Where it stands.
    pub span: Span,
}

/// The declared type of a parameter. Element names are generics or concrete types.
#[derive(Debug)]
pub enum ParamType {
    /// `Tensor<T, (..)>` or `TensorMut<T, (..)>`.
    Tensor {
        /// Element type name.
        element: &'static str,
        /// Extent per axis, over named dimensions.
        shape: &'static [Expr],
        /// Whether the kernel may store to it.
        mutable: bool,
    },
    /// `Quantized<W, (n, k)>`.
    Quantized {
        /// Format name.
        format: &'static str,
        /// `(n, k)`.
        shape: &'static [Expr],
    },
    /// `Activations<A, (m, k)>` or `ActivationsMut<A, (m, k)>`.
    Activations {
        /// Activation kind name.
        kind: &'static str,
        /// `(m, k)`.
        shape: &'static [Expr],
        /// Whether the kernel may store to it.
        mutable: bool,
    },
    /// A scalar passed by value.
    Scalar(&'static str),
    /// A parameter of a helper that takes any scalar, tile or range (`Value`).
    Value,
}

/// `{ statements; tail }`.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Statements in order.
    pub stmts: &'static [Stmt],
    /// The value of the block.
    pub tail: Option<&'static Expr>,
}

/// One statement.
#[derive(Debug)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Where it stands.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Debug)]
pub enum StmtKind {
    /// `let name = value;` or `let (a, b) = value;`
    Let {
        /// One name, or the names of a tuple pattern.
        names: &'static [&'static str],
        /// Whether the pattern is a tuple.
        tuple: bool,
        /// Whether declared `mut`.
        mutable: bool,
        /// The value.
        value: &'static Expr,
    },
    /// `name = value;` or `name op= value;`
    Assign {
        /// The variable.
        name: &'static str,
        /// The operator of a compound assignment.
        op: Option<BinaryOp>,
        /// The value.
        value: &'static Expr,
    },
    /// `for name in iterator { .. }`
    For {
        /// Loop variable.
        name: &'static str,
        /// `tiles(n, B)` or `range(a, b)` or `a..b`.
        iterator: &'static Expr,
        /// Body.
        body: Block,
    },
    /// An expression for its effect.
    Expr(&'static Expr),
}

/// An expression.
#[derive(Debug)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Debug)]
pub enum ExprKind {
    /// Integer literal.
    Int(i64),
    /// Float literal.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// A variable, dimension, parameter or compile-time constant.
    Name(&'static str),
    /// `-x` or `!x`.
    Unary(UnaryOp, &'static Expr),
    /// `a op b`.
    Binary(BinaryOp, &'static Expr, &'static Expr),
    /// `a cmp b`.
    Compare(CompareOp, &'static Expr, &'static Expr),
    /// `f::<T>(args)`.
    Call {
        /// Function name.
        function: &'static str,
        /// Turbofish type arguments.
        generics: &'static [&'static str],
        /// Arguments.
        args: &'static [Expr],
    },
    /// `receiver.method::<T>(args)`.
    Method {
        /// Receiver.
        receiver: &'static Expr,
        /// Method name.
        name: &'static str,
        /// Turbofish type arguments.
        generics: &'static [&'static str],
        /// Arguments.
        args: &'static [Expr],
    },
    /// `tensor[(i, j)]` or `tensor[i]`.
    Index {
        /// Parameter name.
        tensor: &'static str,
        /// One entry per axis.
        index: &'static [Expr],
    },
    /// `(a, b)`.
    Tuple(&'static [Expr]),
    /// `a..b`.
    Range(&'static Expr, &'static Expr),
    /// `if c { .. } else { .. }`.
    If {
        /// Condition, a scalar.
        condition: &'static Expr,
        /// Taken when true.
        then: Block,
        /// Taken when false.
        otherwise: Option<Block>,
    },
    /// `{ .. }`.
    Block(Block),
}

pub use crate::ir::{BinaryOp, CompareOp, UnaryOp};
