//! The static description of a compiled kernel, as generated crates provide it.

use std::fmt;

use crate::{CpuEntries, DType, Format};

/// A kernel with all its compiled instances.
///
/// **Invariant**: whoever writes a descriptor promises that its compiled functions, given argument words that match the
/// parameters, touch only the memory of these parameters, and that no two programs of a grid write what another uses.
/// Safe code runs them on the strength of that, so descriptors are written by the kernel compiler only.
#[derive(Debug)]
pub struct KernelDescriptor {
    /// Name in source, manifests and errors.
    pub name: &'static str,
    /// Names of the dimensions that the parameters' shapes bind, at most 16.
    pub dims: &'static [&'static str],
    /// Parameters in source order.
    pub params: &'static [ParamDescriptor],
    /// Names of the type parameters, at most 8.
    pub generics: &'static [&'static str],
    /// The compiled combinations of type arguments.
    pub instances: &'static [InstanceDescriptor],
}

/// One parameter of a kernel.
#[derive(Debug)]
pub struct ParamDescriptor {
    /// Name in source and errors.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParamKind,
}

/// What a parameter takes.
#[derive(Debug)]
pub enum ParamKind {
    /// A strided tensor whose last axis is contiguous.
    Tensor {
        /// Element type.
        element: Element,
        /// Shape, outermost axis first.
        shape: &'static [DimExpr],
        /// Whether the kernel writes it.
        mutable: bool,
    },
    /// A weight matrix `(rows, cols)` in a format.
    Quantized {
        /// Format.
        element: Element,
        /// Rows and columns.
        shape: &'static [DimExpr],
    },
    /// A matrix of activations `(m, k)`, plain or int8 with block scales.
    Activations {
        /// Kind of activation.
        element: Element,
        /// Rows and columns.
        shape: &'static [DimExpr],
        /// Whether the kernel writes it.
        mutable: bool,
    },
    /// A scalar of type f32, i32 or u32.
    Scalar(DType),
}

/// The element type of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Element {
    /// Always this one.
    Fixed(Binding),
    /// The type parameter with this index.
    Generic(usize),
}

/// What a type parameter stands for in one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// An element type.
    DType(DType),
    /// A weight format.
    Format(Format),
    /// A kind of activation.
    Activation(ActivationKind),
}

impl Binding {
    /// A nonzero byte that identifies the binding.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::DType(dtype) => 0x01 + dtype as u8,
            Self::Activation(kind) => 0x20 + kind as u8,
            Self::Format(format) => 0x40 + format as u8,
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DType(dtype) => dtype.fmt(f),
            Self::Format(format) => format.fmt(f),
            Self::Activation(kind) => kind.fmt(f),
        }
    }
}

/// How activations are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivationKind {
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// bfloat16.
    BF16,
    /// Signed bytes with one f32 scale and one f32 sum per 32.
    Int8,
}

impl ActivationKind {
    /// The spelling used in instance names and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// The kind of plain activations of an element type; `None` for integers.
    pub const fn plain(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => Some(Self::F32),
            DType::F16 => Some(Self::F16),
            DType::BF16 => Some(Self::BF16),
            _ => None,
        }
    }
}

impl fmt::Display for ActivationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The length of one axis of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum DimExpr {
    /// The named dimension with this index: bound at its first use, checked at later ones.
    Dim(usize),
    /// This length.
    Const(i64),
    /// Computed from the named dimensions once all are bound.
    Computed(fn(&[i64]) -> i64),
}

/// A kernel compiled for one combination of type arguments.
#[derive(Debug)]
pub struct InstanceDescriptor {
    /// One binding per type parameter.
    pub bindings: &'static [Binding],
    /// Schedules in order of preference; the first whose predicate holds is used.
    pub schedules: &'static [ScheduleDescriptor],
}

/// One way to run an instance.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleDescriptor {
    /// Name in tuning files, profiles and errors.
    pub name: &'static str,
    /// Whether the schedule accepts these dimensions.
    pub when: fn(&[i64]) -> bool,
    /// Programs along each axis.
    pub grid: fn(&[i64]) -> [i64; 3],
    /// Compiled CPU code.
    pub cpu: CpuEntries,
    /// Name of the function in the CUDA library of the build, if it has one.
    pub cuda: Option<&'static str>,
    /// Name of the function in the Metal library of the build, if it has one.
    pub metal: Option<&'static str>,
}
