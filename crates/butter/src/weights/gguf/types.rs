//! ggml's storage types.

use std::fmt;

use iron_core::Format;

/// A storage type by ggml's number. Any number can be described; only those of a [`Format`] can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GgmlType(pub u32);

/// (number, name, values per block, bytes per block), from ggml's `type_traits`.
const TYPES: [(u32, &str, usize, usize); 34] = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
];

impl GgmlType {
    /// Values and bytes of one block; `None` for a number that ggml had not given out when this was written.
    pub fn layout(self) -> Option<(usize, usize)> {
        self.entry().map(|&(_, _, block, bytes)| (block, bytes))
    }

    /// The format that the compiler knows this type as.
    pub fn format(self) -> Option<Format> {
        Format::parse(self.entry()?.1)
    }

    fn entry(self) -> Option<&'static (u32, &'static str, usize, usize)> {
        TYPES.iter().find(|entry| entry.0 == self.0)
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry() {
            Some((_, name, ..)) => f.write_str(name),
            None => write!(f, "ggml type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_of_loadable_types_equal_the_compilers() {
        for (number, name, block, bytes) in TYPES {
            if let Some(format) = GgmlType(number).format() {
                assert_eq!((block, bytes), (format.block(), format.block_bytes()), "{name}");
            }
        }
    }

    #[test]
    fn every_format_has_a_ggml_type() {
        for format in Format::ALL {
            assert!(
                TYPES.iter().any(|&(number, ..)| GgmlType(number).format() == Some(format)),
                "{format}"
            );
        }
    }
}
