//! Packing: from a file's blocks to the layout that the dot products stream.

use std::ops::Range;

use iron_core::Format;

use super::packed::{PackedFormat, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};

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

/// What packing needs to know of a layout at run time.
struct Layout {
    unit: usize,
    unit_bytes: usize,
    pack_block: fn(block: &[u8], unit: &mut [u8], index: usize, row: usize),
}

impl Layout {
    fn of<W: PackedFormat>() -> Self {
        Self { unit: W::UNIT, unit_bytes: W::UNIT_BYTES, pack_block: W::pack_block }
    }

    fn new(format: Format) -> Result<Self, PackError> {
        match format {
            Format::Q8_0 => Ok(Self::of::<Q8_0>()),
            Format::Q4_0 => Ok(Self::of::<Q4_0>()),
            Format::Q4_1 => Ok(Self::of::<Q4_1>()),
            Format::Q5_0 => Ok(Self::of::<Q5_0>()),
            Format::Q5_1 => Ok(Self::of::<Q5_1>()),
            Format::Q2K => Ok(Self::of::<Q2K>()),
            Format::Q3K => Ok(Self::of::<Q3K>()),
            Format::Q4K => Ok(Self::of::<Q4K>()),
            Format::Q5K => Ok(Self::of::<Q5K>()),
            Format::Q6K => Ok(Self::of::<Q6K>()),
            Format::F32 | Format::F16 | Format::BF16 => Err(PackError::Dense(format)),
        }
    }

    fn group_bytes(&self, k: usize) -> Option<usize> {
        k.div_ceil(self.unit).checked_mul(self.unit_bytes)
    }
}

/// Bytes of a packed `(n, k)` tensor: [`row_groups`] times the bytes of a group, each a multiple of 64.
pub fn packed_bytes(format: Format, n: usize, k: usize) -> Result<usize, PackError> {
    let layout = Layout::new(format)?;
    if !k.is_multiple_of(format.block()) {
        return Err(PackError::RowLength { format, block: format.block(), k });
    }
    layout
        .group_bytes(k)
        .and_then(|bytes| bytes.checked_mul(row_groups(n)))
        .ok_or(PackError::TooLarge { format, n, k })
}

/// Packs the row groups `groups` of a row-major `(n, k)` tensor into `dst`, which holds just these groups.
///
/// `storage` are the whole tensor's bytes as in a file. Rows past `n` and values past `k` become zeros with zero scales.
/// Threads pack disjoint ranges of groups into disjoint parts of one allocation, which starts on 64 bytes for speed.
pub fn pack_rows(
    format: Format,
    storage: &[u8],
    n: usize,
    k: usize,
    groups: Range<usize>,
    dst: &mut [u8],
) -> Result<(), PackError> {
    let total = packed_bytes(format, n, k)?;
    let layout = Layout::new(format)?;
    let expected = n
        .checked_mul(k)
        .and_then(|elements| format.storage_bytes(elements))
        .ok_or(PackError::TooLarge { format, n, k })?;
    if storage.len() != expected {
        return Err(PackError::StorageSize { format, n, k, expected, found: storage.len() });
    }
    let count = row_groups(n);
    if groups.start > groups.end || groups.end > count {
        return Err(PackError::Groups { start: groups.start, end: groups.end, groups: count });
    }
    let group_bytes = total.checked_div(count).unwrap_or(0);
    let expected = group_bytes * groups.len();
    if dst.len() != expected {
        return Err(PackError::DestinationSize { expected, found: dst.len() });
    }
    dst.fill(0);
    if k == 0 {
        return Ok(());
    }
    let row_bytes = k / format.block() * format.block_bytes();
    let blocks_per_unit = layout.unit / format.block();
    for (group, packed) in groups.zip(dst.chunks_exact_mut(group_bytes)) {
        let rows = 16 * group..n.min(16 * group + 16);
        for row in rows {
            let stored = &storage[row * row_bytes..][..row_bytes];
            for (index, block) in stored.chunks_exact(format.block_bytes()).enumerate() {
                let unit =
                    &mut packed[index / blocks_per_unit * layout.unit_bytes..][..layout.unit_bytes];
                (layout.pack_block)(block, unit, index % blocks_per_unit, row % 16);
            }
        }
    }
    Ok(())
}
