//! Quantisation formats: how a block of weights is stored, and what its numbers mean.
//!
//! A format is an axis of the compiler. A kernel says `Quantized<W, (n, k)>`; which `W` it runs with is chosen by the
//! instance list, and everything a target needs to know about `W` is in its [`Format`] descriptor.

use std::fmt;

/// A storage format of weights along k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// bfloat16.
    BF16,
    /// ggml `Q8_0`: 32 signed bytes and one f16 scale.
    Q8_0,
    /// ggml `Q4_0`: 32 nibbles offset by 8 and one f16 scale.
    Q4_0,
    /// ggml `Q4_1`: 32 nibbles, one f16 scale, one f16 minimum.
    Q4_1,
    /// ggml `Q5_0`: 32 five-bit values offset by 16, one f16 scale.
    Q5_0,
    /// ggml `Q5_1`: 32 five-bit values, one f16 scale, one f16 minimum.
    Q5_1,
    /// ggml `Q2_K`: 256 two-bit values, sixteen 4-bit scales and minima under an f16 pair.
    Q2K,
    /// ggml `Q3_K`: 256 three-bit values offset by 4, sixteen signed 6-bit scales under one f16.
    Q3K,
    /// ggml `Q4_K`: 256 nibbles, eight 6-bit scales and minima under an f16 pair.
    Q4K,
    /// ggml `Q5_K`: 256 five-bit values, eight 6-bit scales and minima under an f16 pair.
    Q5K,
    /// ggml `Q6_K`: 256 six-bit values offset by 32, sixteen i8 scales under one f16.
    Q6K,
}

/// How a quantised value `q` becomes a number, given the scale `d` (and minimum `m`) of its sub-block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zero {
    /// `d * (q - offset)`.
    Offset(u8),
    /// `d * q + m`, with `m` stored per sub-block.
    Minimum,
}

/// Where the scale of a sub-block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// One f16 per sub-block.
    Half,
    /// A small integer of this many bits per sub-block, under one f16 per block.
    TwoLevel {
        /// Bits of the integer scale.
        bits: u8,
        /// Whether the integer is signed.
        signed: bool,
    },
}

impl Scale {
    const fn unsigned(bits: u8) -> Self {
        Self::TwoLevel { bits, signed: false }
    }

    const fn signed(bits: u8) -> Self {
        Self::TwoLevel { bits, signed: true }
    }
}

/// What a packed format consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    /// Bits of one quantised value.
    pub bits: u8,
    /// Values per storage block.
    pub block: u32,
    /// Values that share one scale.
    pub sub_block: u32,
    /// Bytes of one storage block.
    pub bytes: u32,
    /// Meaning of the stored integers.
    pub zero: Zero,
    /// Encoding of the scales.
    pub scale: Scale,
    /// Where in a block its f16 numbers are, in bytes: the scale, then the minimum of formats that have one.
    pub halves: &'static [usize],
}

impl Format {
    /// Every format, in declaration order.
    pub const ALL: [Format; 13] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// The packing of a quantised format; `None` for plain floats.
    pub const fn packing(self) -> Option<Packing> {
        let (bits, block, sub_block, bytes, zero, scale, halves): (_, _, _, _, _, _, &[usize]) =
            match self {
                Self::F32 | Self::F16 | Self::BF16 => return None,
                Self::Q8_0 => (8, 32, 32, 34, Zero::Offset(0), Scale::Half, &[0]),
                Self::Q4_0 => (4, 32, 32, 18, Zero::Offset(8), Scale::Half, &[0]),
                Self::Q4_1 => (4, 32, 32, 20, Zero::Minimum, Scale::Half, &[0, 2]),
                Self::Q5_0 => (5, 32, 32, 22, Zero::Offset(16), Scale::Half, &[0]),
                Self::Q5_1 => (5, 32, 32, 24, Zero::Minimum, Scale::Half, &[0, 2]),
                Self::Q2K => (2, 256, 16, 84, Zero::Minimum, Scale::unsigned(4), &[80, 82]),
                Self::Q3K => (3, 256, 16, 110, Zero::Offset(4), Scale::signed(6), &[108]),
                Self::Q4K => (4, 256, 32, 144, Zero::Minimum, Scale::unsigned(6), &[0, 2]),
                Self::Q5K => (5, 256, 32, 176, Zero::Minimum, Scale::unsigned(6), &[0, 2]),
                Self::Q6K => (6, 256, 16, 210, Zero::Offset(32), Scale::signed(8), &[208]),
            };
        Some(Packing { bits, block, sub_block, bytes, zero, scale, halves })
    }

    /// Values per storage block (1 for plain floats).
    pub const fn block(self) -> usize {
        match self.packing() {
            Some(packing) => packing.block as usize,
            None => 1,
        }
    }

    /// Bytes of one storage block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            _ => match self.packing() {
                Some(packing) => packing.bytes as usize,
                None => unreachable!(),
            },
        }
    }

    /// Bytes that `elements` values occupy in a file, or `None` when they are no whole number of blocks or overflow.
    pub fn storage_bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block()) {
            return None;
        }
        (elements / self.block()).checked_mul(self.block_bytes())
    }

    /// The lower-case spelling used in kernel instance names and manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        }
    }

    /// The inverse of [`Format::name`], ignoring case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// Whether the values are plain floats.
    pub const fn is_dense(self) -> bool {
        self.packing().is_none()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
