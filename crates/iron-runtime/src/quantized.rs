//! Weight matrices in a storage or compute format.

use crate::buffer::{BUFFER_ALIGN, check_range};
use crate::{Buffer, DType, Format, Result, RuntimeError, Tensor};

/// How the bytes of a weight matrix are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightLayout {
    /// Plain floats, one row after another.
    Dense {
        /// Elements from one row to the next.
        row_stride: usize,
    },
    /// Packed for the CPU's kernels: 16 rows interleaved.
    CpuPacked,
    /// As in the file: whole blocks, one row after another. No kernel reads it; it is packed at load.
    Storage,
}

impl WeightLayout {
    /// The layout's name in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dense { .. } => "dense",
            Self::CpuPacked => "CPU-packed",
            Self::Storage => "storage-format",
        }
    }
}

/// A weight matrix `[rows, cols]`; cheap to clone.
#[derive(Clone, Debug)]
pub struct QuantizedTensor {
    buffer: Buffer,
    offset: usize,
    bytes: usize,
    format: Format,
    rows: usize,
    cols: usize,
    layout: WeightLayout,
}

impl QuantizedTensor {
    /// A matrix of plain floats whose rows are `row_stride` elements apart.
    pub fn dense(
        buffer: Buffer,
        offset: usize,
        format: Format,
        rows: usize,
        cols: usize,
        row_stride: usize,
    ) -> Result<Self> {
        if !format.is_dense() {
            return Err(mismatch("dense", format, rows, cols, "the format is not plain floats"));
        }
        let size = format.block_bytes();
        if !buffer.as_ptr().addr().wrapping_add(offset).is_multiple_of(size) {
            return Err(RuntimeError::Misaligned {
                what: "the weight matrix",
                offset,
                align: size,
            });
        }
        let elements = if rows == 0 || cols == 0 {
            Some(0)
        } else {
            (rows - 1).checked_mul(row_stride).and_then(|before| before.checked_add(cols))
        };
        let bytes = elements.and_then(|elements| elements.checked_mul(size));
        check_range("the weight matrix", offset, bytes, buffer.len())?;
        let layout = WeightLayout::Dense { row_stride };
        Ok(Self { buffer, offset, bytes: bytes.unwrap_or(0), format, rows, cols, layout })
    }

    /// A float tensor of two axes as a weight matrix.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self> {
        let format = match tensor.dtype() {
            DType::F32 => Some(Format::F32),
            DType::F16 => Some(Format::F16),
            DType::BF16 => Some(Format::BF16),
            _ => None,
        };
        match (format, tensor.shape(), tensor.strides()) {
            (Some(format), &[rows, cols], &[row_stride, stride]) if stride == 1 || cols <= 1 => {
                Self::dense(
                    tensor.buffer().clone(),
                    tensor.offset(),
                    format,
                    rows,
                    cols,
                    row_stride,
                )
            }
            _ => Err(RuntimeError::Shape {
                operation: "weight matrix",
                tensor: format!("{tensor:?}"),
                reason: "expected floats with two axes and contiguous rows".to_owned(),
            }),
        }
    }

    /// A matrix in its file's format: `rows` times the blocks of `cols` values.
    pub fn storage(
        buffer: Buffer,
        offset: usize,
        format: Format,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let Some(row) = format.storage_bytes(cols) else {
            return Err(mismatch(
                "storage",
                format,
                rows,
                cols,
                "a row is no whole number of blocks",
            ));
        };
        let bytes = row.checked_mul(rows);
        check_range("the weight matrix", offset, bytes, buffer.len())?;
        let layout = WeightLayout::Storage;
        Ok(Self { buffer, offset, bytes: bytes.unwrap_or(0), format, rows, cols, layout })
    }

    /// A matrix that was packed into `bytes` bytes at a multiple of 64 for the CPU's kernels.
    pub fn cpu_packed(
        buffer: Buffer,
        offset: usize,
        bytes: usize,
        format: Format,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let least = format.storage_bytes(cols).and_then(|row| row.checked_mul(rows));
        match least {
            Some(least) if !format.is_dense() && least <= bytes => {}
            _ => {
                let reason = format!(
                    "{bytes} bytes cannot hold it: expected whole quantised blocks in at least {least:?}"
                );
                return Err(mismatch("cpu_packed", format, rows, cols, &reason));
            }
        }
        if !buffer.as_ptr().addr().wrapping_add(offset).is_multiple_of(BUFFER_ALIGN) {
            return Err(RuntimeError::Misaligned {
                what: "the packed matrix",
                offset,
                align: BUFFER_ALIGN,
            });
        }
        check_range("the packed matrix", offset, Some(bytes), buffer.len())?;
        Ok(Self { buffer, offset, bytes, format, rows, cols, layout: WeightLayout::CpuPacked })
    }

    /// The buffer it lies in.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Bytes from the start of the buffer to the matrix.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes that the matrix occupies.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Format of the values.
    #[inline]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Number of rows (outputs).
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns (inputs).
    #[inline]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Arrangement of the bytes.
    #[inline]
    pub fn layout(&self) -> WeightLayout {
        self.layout
    }

    /// Address of the first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.buffer.as_ptr().wrapping_add(self.offset)
    }
}

fn mismatch(
    operation: &'static str,
    format: Format,
    rows: usize,
    cols: usize,
    reason: &str,
) -> RuntimeError {
    RuntimeError::Shape {
        operation,
        tensor: format!("{format} [{rows}, {cols}]"),
        reason: reason.to_owned(),
    }
}
