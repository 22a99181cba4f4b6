//! How operations and types are spelled in IR text and in messages.

use std::fmt;

use crate::ir::{
    ActivationKind, BinaryOp, CompareOp, DimOp, Element, Kernel, OpKind, ReduceOp, Storage, Type,
    UnaryOp, Value,
};
use crate::{DType, Format};

macro_rules! spellings {
    ($ty:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        impl $ty {
            /// Every one of them, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The spelling used in IR text.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The inverse of `name`.
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

spellings!(UnaryOp {
    Neg = "neg",
    Not = "not",
    Abs = "abs",
    Exp = "exp",
    Ln = "ln",
    Sqrt = "sqrt",
    Rsqrt = "rsqrt",
    Tanh = "tanh",
    Sigmoid = "sigmoid",
    Erf = "erf",
    Sin = "sin",
    Cos = "cos",
    Floor = "floor",
    Round = "round",
});

spellings!(BinaryOp {
    Add = "add",
    Sub = "sub",
    Mul = "mul",
    Div = "div",
    Rem = "rem",
    Min = "min",
    Max = "max",
    And = "and",
    Or = "or",
    Xor = "xor",
    Shl = "shl",
    Shr = "shr",
});

spellings!(CompareOp { Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge" });

spellings!(ReduceOp { Sum = "sum", Max = "max", Min = "min", Any = "any" });

spellings!(Storage {
    Vectors = "vectors",
    Memory = "memory",
    Blocked = "blocked",
    Fragment = "fragment",
    Shared = "shared",
});

spellings!(DimOp {
    Add = "+",
    Sub = "-",
    Mul = "*",
    Div = "/",
    DivCeil = "div_ceil",
    Min = "min",
    Max = "max",
});

impl ActivationKind {
    /// The inverse of [`ActivationKind::name`].
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "int8" => Some(Self::Int8),
            name => DType::parse(name).map(Self::Plain),
        }
    }
}

impl fmt::Display for ActivationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Element {
    /// A tile element of this format: packed, or `f32` for plain floats.
    pub fn of_format(format: Format) -> Self {
        if format.is_dense() { Self::Plain(DType::F32) } else { Self::Packed(format) }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(dtype) => write!(f, "{dtype}"),
            Self::Packed(format) => write!(f, "packed<{format}>"),
            Self::Int8 => f.write_str("int8"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(dtype) => write!(f, "{dtype}"),
            Self::Tile { element, shape } => {
                write!(f, "{element}[")?;
                for (axis, extent) in shape.iter().enumerate() {
                    if axis > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{extent}")?;
                }
                f.write_str("]")
            }
        }
    }
}

impl OpKind {
    /// The mnemonic used in IR text and in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Const(_) => "const",
            Self::ProgramId(_) => "program_id",
            Self::Dim(_) => "dim",
            Self::Param(_) => "param",
            Self::Unary(op, _) => op.name(),
            Self::Binary(op, ..) => op.name(),
            Self::Fma(..) => "fma",
            Self::Compare(op, ..) => match op {
                CompareOp::Eq => "cmp.eq",
                CompareOp::Ne => "cmp.ne",
                CompareOp::Lt => "cmp.lt",
                CompareOp::Le => "cmp.le",
                CompareOp::Gt => "cmp.gt",
                CompareOp::Ge => "cmp.ge",
            },
            Self::Select(..) => "select",
            Self::Cast(_) => "cast",
            Self::Bitcast(_) => "bitcast",
            Self::Broadcast { .. } => "broadcast",
            Self::Reshape(_) => "reshape",
            Self::Transpose(_) => "transpose",
            Self::Iota { .. } => "iota",
            Self::Reduce { op, .. } => match op {
                ReduceOp::Sum => "reduce.sum",
                ReduceOp::Max => "reduce.max",
                ReduceOp::Min => "reduce.min",
                ReduceOp::Any => "reduce.any",
            },
            Self::Dot { .. } => "dot",
            Self::Load { .. } => "load",
            Self::Store { .. } => "store",
            Self::For { .. } => "for",
            Self::If { .. } => "if",
            Self::Map(_) => "map",
            Self::DotTile { .. } => "dot_tile",
            Self::ElementLoad { .. } => "element_load",
            Self::ElementStore { .. } => "element_store",
            Self::QuantizeStore { .. } => "quantize_store",
            Self::Barrier => "barrier",
            Self::DecodeRow { .. } => "decode_row",
        }
    }
}

impl Kernel {
    /// The text of a value: `%acc.3` when it is named, else `%3`.
    pub fn value_text(&self, value: Value) -> String {
        match self.values.get(value.0 as usize).and_then(|info| info.name.as_deref()) {
            Some(name) => format!("%{name}.{}", value.0),
            None => format!("%{}", value.0),
        }
    }
}
