//! Element types of scalars, tiles and tensors.

use std::fmt;

/// The type of one element.
///
/// Arithmetic happens in `F32`, `I32`, `U32` and `Bool`; the narrower types are for storage and are widened when loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16 (storage).
    F16,
    /// The upper half of a binary32 (storage).
    BF16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 8-bit signed integer (storage).
    I8,
    /// 8-bit unsigned integer (storage).
    U8,
    /// Truth value; exists only inside a kernel.
    Bool,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 8] =
        [Self::F32, Self::F16, Self::BF16, Self::I32, Self::U32, Self::I8, Self::U8, Self::Bool];

    /// Size of one stored element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// The spelling used in kernels, IR text and manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }

    /// The inverse of [`DType::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Whether this is an integer type.
    pub const fn is_int(self) -> bool {
        matches!(self, Self::I32 | Self::U32 | Self::I8 | Self::U8)
    }

    /// The type a loaded element computes in: floats in `f32`, small integers in `i32`.
    #[must_use]
    pub const fn compute(self) -> Self {
        match self {
            Self::F16 | Self::BF16 | Self::F32 => Self::F32,
            Self::I8 | Self::U8 | Self::I32 => Self::I32,
            Self::U32 => Self::U32,
            Self::Bool => Self::Bool,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
