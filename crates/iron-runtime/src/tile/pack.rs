//! Packing: from a file's blocks to the layout that the dot products stream.

use std::ops::Range;

use iron_core::Format;

/// A tensor cannot be packed as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// The format has no packed layout.
    #[error("{0} weights are used in place and have no packed layout")]
    Dense(Format),
    /// The row length is no whole number of blocks.
    #[error("{format} weights need rows of a multiple of {block} values, found {k}")]
    RowLength {
        /// The format.
        format: Format,
        /// Values per block.
        block: usize,
        /// The row length.
        k: usize,
    },
    /// The tensor's size overflows.
    #[error("a {format} tensor of {n} rows of {k} values is larger than the address space")]
    TooLarge {
        /// The format.
        format: Format,
        /// Rows.
        n: usize,
        /// Row length.
        k: usize,
    },
    /// The storage bytes do not match the shape.
    #[error("{n} rows of {k} {format} values occupy {expected} bytes, found {found}")]
    StorageSize {
        /// The format.
        format: Format,
        /// Rows.
        n: usize,
        /// Row length.
        k: usize,
        /// Bytes of that shape.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The row groups reach past the tensor.
    #[error("row groups {start}..{end} of a tensor with {groups} were asked for")]
    Groups {
        /// First group.
        start: usize,
        /// One past the last group.
        end: usize,
        /// Groups of the tensor.
        groups: usize,
    },
    /// The destination does not fit the row groups.
    #[error("the packed row groups occupy {expected} bytes, the destination has {found}")]
    DestinationSize {
        /// Bytes of the groups.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

/// Row groups (of 16 rows) of a tensor with `n` rows.
pub const fn row_groups(n: usize) -> usize {
    n.div_ceil(16)
}

/// Bytes of a packed `(n, k)` tensor: [`row_groups`] times the bytes of a group, each a multiple of 64.
pub fn packed_bytes(format: Format, n: usize, k: usize) -> Result<usize, PackError> {
    let _ = (format, n, k);
    todo!()
}

/// Packs the row groups `groups` of a row-major `(n, k)` tensor into `dst`, which holds just these groups.
///
/// `storage` are the whole tensor's bytes as in a file. Rows past `n` and values past `k` become zeros with zero scales.
/// Threads pack disjoint ranges of groups into disjoint parts of one allocation, which must start on 64 bytes for speed.
pub fn pack_rows(
    format: Format,
    storage: &[u8],
    n: usize,
    k: usize,
    groups: Range<usize>,
    dst: &mut [u8],
) -> Result<(), PackError> {
    let _ = (format, storage, n, k, groups, dst);
    todo!()
}
