//! The intermediate representation: SSA over scalars and tiles, with structured control flow.
//!
//! One representation carries a kernel through all six passes. After `TypeCheck` it speaks of tiles (`Load`, `Binary`,
//! `Reduce`, `Dot` ..). `TileLowering` turns tile operations into [`Map`]s (a scalar body over an index space, as in
//! linear-algebra compilers) and the few operations that have a primitive of their own ([`OpKind::DotTile`],
//! [`OpKind::QuantizeStore`], [`OpKind::DecodeRow`]). The later passes merge, schedule and vectorise the maps; the
//! emitters print what is left.

use crate::{DType, Format, Span};

/// An SSA value: an index into [`Kernel::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// What a tile is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// Plain numbers.
    Plain(DType),
    /// Quantised weights, not yet decoded; only `dot` and `.f32()` take them.
    Packed(Format),
    /// Int8 activations in blocks of 32 with scale and sum; only `dot` takes them.
    Int8,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// One number.
    Scalar(DType),
    /// A block of numbers with static extents.
    Tile {
        /// What it is made of.
        element: Element,
        /// Extent per axis.
        shape: Vec<u32>,
    },
}

impl Type {
    /// A tile of plain numbers.
    pub fn tile(dtype: DType, shape: impl Into<Vec<u32>>) -> Self {
        Self::Tile { element: Element::Plain(dtype), shape: shape.into() }
    }

    /// The number type, unless the elements are packed.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Self::Scalar(dtype) | Self::Tile { element: Element::Plain(dtype), .. } => Some(*dtype),
            Self::Tile { .. } => None,
        }
    }

    /// Extents; empty for a scalar.
    pub fn shape(&self) -> &[u32] {
        match self {
            Self::Scalar(_) => &[],
            Self::Tile { shape, .. } => shape,
        }
    }

    /// The same shape with another number type.
    #[must_use]
    pub fn with_dtype(&self, dtype: DType) -> Self {
        match self {
            Self::Scalar(_) => Self::Scalar(dtype),
            Self::Tile { shape, .. } => Self::tile(dtype, shape.clone()),
        }
    }

    /// Whether this is a scalar.
    pub fn is_scalar(&self) -> bool {
        matches!(self, Self::Scalar(_))
    }
}

/// Where a tile lives once a target has placed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// CPU: vector registers (an array of 16-lane vectors, indices static).
    Vectors,
    /// CPU: stack memory that stays in L1; the last axis is padded to a multiple of 16.
    Memory,
    /// GPU: spread over the threads of the block in linear order, each thread its own registers.
    Blocked,
    /// GPU: accumulator fragments of the matrix units.
    Fragment,
    /// GPU: shared (threadgroup) memory, visible to the whole block.
    Shared,
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Its type.
    pub ty: Type,
    /// The source line that made it.
    pub span: Span,
    /// The variable it was bound to, for readable text.
    pub name: Option<String>,
    /// Where the tile lives; set by `Schedule`.
    pub storage: Option<Storage>,
    /// Values with the same number share memory (in-place updates); set by `Schedule`.
    pub buffer: Option<u32>,
}

/// An integer expression over named dimensions, evaluated by the host or folded by the compiler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DimExpr {
    /// A literal.
    Const(i64),
    /// A named dimension, by index into [`Kernel::dims`].
    Dim(u32),
    /// An operation on two.
    Op(DimOp, Box<DimExpr>, Box<DimExpr>),
}

/// Operations of [`DimExpr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DimOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, rounded down
    Div,
    /// `a.div_ceil(b)`
    DivCeil,
    /// `a.min(b)`
    Min,
    /// `a.max(b)`
    Max,
}

/// How activations are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActivationKind {
    /// Plain floats.
    Plain(DType),
    /// Int8 in blocks of 32 with an f32 scale and an f32 sum.
    Int8,
}

impl ActivationKind {
    /// The spelling used in instance names and manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Int8 => "int8",
        }
    }

    /// The element of a tile loaded from such activations.
    pub const fn element(self) -> Element {
        match self {
            Self::Plain(dtype) => Element::Plain(dtype.compute()),
            Self::Int8 => Element::Int8,
        }
    }
}

/// A parameter of a kernel instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ParamKind,
    /// Where it was declared.
    pub span: Span,
}

/// The type of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A strided tensor, last axis contiguous.
    Tensor {
        /// Element type in memory.
        dtype: DType,
        /// Extent per axis.
        shape: Vec<DimExpr>,
        /// Whether it is written.
        mutable: bool,
    },
    /// Weights `(n, k)`.
    Quantized {
        /// Format in memory.
        format: Format,
        /// `[n, k]`.
        shape: Vec<DimExpr>,
    },
    /// Activations `(m, k)`.
    Activations {
        /// Storage in memory.
        kind: ActivationKind,
        /// `[m, k]`.
        shape: Vec<DimExpr>,
        /// Whether they are written.
        mutable: bool,
    },
    /// A number.
    Scalar(DType),
}

impl ParamKind {
    /// Extents; empty for a scalar.
    pub fn shape(&self) -> &[DimExpr] {
        match self {
            Self::Tensor { shape, .. }
            | Self::Quantized { shape, .. }
            | Self::Activations { shape, .. } => shape,
            Self::Scalar(_) => &[],
        }
    }

    /// What a tile loaded from this parameter is made of.
    pub fn element(&self) -> Element {
        match self {
            Self::Tensor { dtype, .. } => Element::Plain(dtype.compute()),
            Self::Quantized { format, .. } => match format {
                Format::F32 | Format::F16 | Format::BF16 => Element::Plain(DType::F32),
                packed => Element::Packed(*packed),
            },
            Self::Activations { kind, .. } => kind.element(),
            Self::Scalar(dtype) => Element::Plain(*dtype),
        }
    }
}

/// A compiled kernel instance: one function, one choice of types, formats, variants and schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Instance name, unique in the manifest.
    pub name: String,
    /// Named runtime dimensions in order of first appearance in the parameters.
    pub dims: Vec<String>,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Programs per grid axis (one to three axes, axis 0 fastest).
    pub grid: Vec<DimExpr>,
    /// The launch contract; filled in by `Schedule`.
    pub launch: Launch,
    /// Facts about every value.
    pub values: Vec<ValueInfo>,
    /// What one program does.
    pub body: Block,
}

/// The launch contract of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Threads per program (GPU); 0 until scheduled, 1 on the CPU.
    pub threads: u32,
    /// Bytes of shared memory per program (GPU).
    pub shared_bytes: u32,
    /// Software pipeline stages (GPU).
    pub stages: u32,
}

/// A list of operations, with the values that enter and leave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Loop variable and carried values, or map indices and elements.
    pub args: Vec<Value>,
    /// Operations in order.
    pub ops: Vec<Op>,
    /// What the block hands on.
    pub yields: Vec<Value>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// The values it defines.
    pub results: Vec<Value>,
    /// The source line.
    pub span: Span,
}

/// A literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Const {
    /// Float.
    F32(f32),
    /// Signed integer.
    I32(i32),
    /// Unsigned integer.
    U32(u32),
    /// Truth value.
    Bool(bool),
}

impl Const {
    /// Its type.
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::I32(_) => DType::I32,
            Self::U32(_) => DType::U32,
            Self::Bool(_) => DType::Bool,
        }
    }
}

/// Operations on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `!x`: bitwise or logical
    Not,
    /// absolute value
    Abs,
    /// e^x
    Exp,
    /// natural logarithm
    Ln,
    /// square root
    Sqrt,
    /// 1 / sqrt(x), correctly rounded division of the correctly rounded root
    Rsqrt,
    /// hyperbolic tangent
    Tanh,
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// error function
    Erf,
    /// sine, radians
    Sin,
    /// cosine, radians
    Cos,
    /// round towards minus infinity
    Floor,
    /// round to nearest, ties to even
    Round,
}

/// Operations on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b` (integers: towards zero)
    Div,
    /// `a % b` (integers)
    Rem,
    /// smaller
    Min,
    /// larger
    Max,
    /// bitwise or logical and
    And,
    /// bitwise or logical or
    Or,
    /// bitwise exclusive or
    Xor,
    /// `a << b`
    Shl,
    /// `a >> b`: arithmetic for i32, logical for u32
    Shr,
}

/// Comparisons; the result is `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

/// Reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Maximum.
    Max,
    /// Minimum.
    Min,
    /// Logical or.
    Any,
}

/// One axis of a tensor access.
#[derive(Clone, Debug, PartialEq)]
pub enum Index {
    /// One position (a scalar i32); the axis disappears.
    At(Value),
    /// `len` positions `start + i * stride`; those at or past `bound` are masked.
    Range {
        /// First position, scalar i32.
        start: Value,
        /// Extent of the tile along this axis.
        len: u32,
        /// Distance between neighbours.
        stride: u32,
        /// The first position that does not exist: a scalar i32. `None` when the range is known to be inside.
        bound: Option<Value>,
    },
    /// The positions listed by a 1-D tile of i32; negative ones and those past the axis are masked.
    Gather(Value),
}

/// A tile of a tensor that an operation reads in place instead of loading it first.
#[derive(Clone, Debug, PartialEq)]
pub struct TileRef {
    /// Parameter index.
    pub tensor: u32,
    /// One entry per axis.
    pub index: Vec<Index>,
    /// Whether the two range axes are swapped (`.t()` of the tile).
    pub transposed: bool,
}

/// An operand of [`OpKind::DotTile`].
#[derive(Clone, Debug, PartialEq)]
pub enum DotOperand {
    /// A tile that was computed.
    Tile(Value),
    /// A tile read from memory by the primitive.
    Memory(TileRef),
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub enum OpKind {
    // ---- scalars and tiles ------------------------------------------------------------------------------------
    /// A literal scalar.
    Const(Const),
    /// This program's position along a grid axis (i32).
    ProgramId(u8),
    /// A named dimension (i32).
    Dim(u32),
    /// A scalar parameter.
    Param(u32),
    /// Elementwise on one value.
    Unary(UnaryOp, Value),
    /// Elementwise on two values of one type.
    Binary(BinaryOp, Value, Value),
    /// `a * b + c` with one rounding.
    Fma(Value, Value, Value),
    /// Elementwise comparison.
    Compare(CompareOp, Value, Value),
    /// `condition ? a : b`, elementwise.
    Select(Value, Value, Value),
    /// Number conversion to the result's type: floats round to nearest even, float to int truncates.
    Cast(Value),
    /// Same bits, other type of the same size.
    Bitcast(Value),
    /// Result axis `axes[i]` is operand axis `i`; all other axes repeat. A scalar has no axes.
    Broadcast {
        /// Operand.
        value: Value,
        /// Result axis of each operand axis, ascending.
        axes: Vec<u32>,
    },
    /// Same elements in row-major order, other extents.
    Reshape(Value),
    /// Swaps the two axes of a 2-D tile.
    Transpose(Value),
    /// 1-D i32 tile `start + i * stride`.
    Iota {
        /// First element, scalar i32.
        start: Value,
        /// Distance.
        stride: u32,
    },
    /// Folds one axis (`Some`) or all of them (`None`).
    Reduce {
        /// The fold.
        op: ReduceOp,
        /// Operand tile.
        value: Value,
        /// Axis that disappears.
        axis: Option<u32>,
    },
    /// `acc + a · bᵀ` for a `[m, k]`, b `[n, k]`, acc `[m, n]` in f32.
    Dot {
        /// `[m, k]`.
        a: Value,
        /// `[n, k]`.
        b: Value,
        /// `[m, n]`.
        acc: Value,
    },
    /// Reads a tile; masked elements are `fill` (0 when absent). With all axes `At` it reads a scalar.
    Load {
        /// Parameter index.
        tensor: u32,
        /// One entry per axis.
        index: Vec<Index>,
        /// Scalar for masked elements.
        fill: Option<Value>,
    },
    /// Writes a tile or scalar, converting to the tensor's type; masked elements are not written.
    Store {
        /// Parameter index.
        tensor: u32,
        /// One entry per axis.
        index: Vec<Index>,
        /// What to write.
        value: Value,
    },
    /// Counts from `lower` to below `upper` by `step`. Body arguments: the counter, then the carried values; its
    /// yields are the next carried values; the results are the last ones.
    For {
        /// First value, scalar i32.
        lower: Value,
        /// Bound, scalar i32.
        upper: Value,
        /// Distance, positive.
        step: u32,
        /// Carried values on entry.
        carried: Vec<Value>,
        /// Body.
        body: Block,
    },
    /// Runs one of two blocks; their yields are the results.
    If {
        /// Scalar bool.
        condition: Value,
        /// Block for true.
        then: Block,
        /// Block for false.
        otherwise: Block,
    },

    // ---- after TileLowering -----------------------------------------------------------------------------------
    /// A scalar body over an index space.
    Map(Map),
    /// The target's matrix primitive; `a`, `b`, `acc` as in `Dot`.
    DotTile {
        /// `[m, k]`.
        a: DotOperand,
        /// `[n, k]`.
        b: DotOperand,
        /// `[m, n]`; the result replaces it.
        acc: Value,
        /// Extent along k of one step.
        k: u32,
    },
    /// Inside a map: reads one element at scalar indices, or gives `fill` where a guard fails.
    ElementLoad {
        /// Parameter index.
        tensor: u32,
        /// Scalar i32 per axis.
        index: Vec<Value>,
        /// Each pair must satisfy `0 <= a < b`; pairs that compare against nothing are absent.
        guards: Vec<Guard>,
        /// Value when masked.
        fill: Value,
    },
    /// Inside a map: writes one element unless a guard fails.
    ElementStore {
        /// Parameter index.
        tensor: u32,
        /// Scalar i32 per axis.
        index: Vec<Value>,
        /// As in `ElementLoad`.
        guards: Vec<Guard>,
        /// What to write.
        value: Value,
    },
    /// Quantises a computed `[rows, len]` or `[len]` f32 tile into int8 activations (len a multiple of 32).
    QuantizeStore {
        /// Parameter index of the activations.
        tensor: u32,
        /// Entries for the row and the k axis.
        index: Vec<Index>,
        /// f32 tile.
        value: Value,
    },
    /// Decodes a piece of one weight row into an f32 tile `[len]`.
    DecodeRow {
        /// Parameter index of the weights.
        tensor: u32,
        /// `At` for the row, `Range` along k.
        index: Vec<Index>,
    },

    // ---- after Schedule ---------------------------------------------------------------------------------------
    /// GPU: every thread of the block arrives before any goes on; what they wrote becomes visible to all of them.
    Barrier,
}

/// `0 <= index < bound`. The lower test is needed only for gathered indices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// Scalar i32.
    pub index: Value,
    /// Scalar i32.
    pub bound: Value,
    /// Whether `index` may be negative.
    pub signed: bool,
}

/// A scalar body evaluated at every point of an index space, in row-major order where order matters.
///
/// Body arguments: one i32 per axis of `space`, then one scalar per input. Body yields: one scalar per output.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Extent per axis.
    pub space: Vec<u32>,
    /// Tiles read at each point.
    pub inputs: Vec<MapInput>,
    /// The scalar body.
    pub body: Block,
    /// What becomes of each yield.
    pub outputs: Vec<MapOutput>,
    /// How the loop runs; filled in by `Schedule` and `Vectorize`.
    pub schedule: MapSchedule,
}

/// A tile read by a map.
#[derive(Clone, Debug, PartialEq)]
pub struct MapInput {
    /// The tile.
    pub value: Value,
    /// Space axis that indexes each axis of the tile (any order: a transposed read is possible).
    pub axes: Vec<u32>,
}

/// What becomes of a yield of a map.
#[derive(Clone, Debug, PartialEq)]
pub enum MapOutput {
    /// One element of a result tile with the map's space as its shape.
    Element,
    /// Folded over these axes; the result has the remaining ones (none: a scalar).
    Reduce {
        /// The fold.
        op: ReduceOp,
        /// Axes that disappear, ascending.
        axes: Vec<u32>,
    },
}

/// How a map runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSchedule {
    /// Points along the last axis handled by one vector (CPU) or one thread at a time (GPU).
    pub lanes: u32,
    /// Independent vectors in flight along the last axis.
    pub unroll: u32,
}

impl Default for MapSchedule {
    fn default() -> Self {
        Self { lanes: 1, unroll: 1 }
    }
}
