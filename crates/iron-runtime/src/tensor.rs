//! Typed, strided views of buffers.

use std::ops::Range;

use crate::buffer::check_range;
use crate::shape::Strides;
use crate::{Buffer, DType, MAX_RANK, Result, RuntimeError, Shape, TensorElement};

/// A view of a buffer as an array of up to four axes; cheap to clone.
///
/// Every tensor that exists lies inside its buffer and is aligned to its element size.
#[derive(Clone)]
pub struct Tensor {
    buffer: Buffer,
    offset: usize,
    dtype: DType,
    shape: Shape,
    strides: Strides,
}

impl Tensor {
    /// A contiguous tensor that starts `offset` bytes into `buffer`.
    pub fn new(buffer: Buffer, offset: usize, dtype: DType, shape: &[usize]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        Self::checked(buffer, offset, dtype, shape, shape.contiguous_strides())
    }

    /// A tensor with the given strides in elements; a stride of zero repeats an axis.
    pub fn with_strides(
        buffer: Buffer,
        offset: usize,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self> {
        let shape = Shape::new(shape)?;
        if strides.len() != shape.len() {
            return Err(RuntimeError::Shape {
                operation: "with_strides",
                tensor: shape.to_string(),
                reason: format!("expected {} strides, found {}", shape.len(), strides.len()),
            });
        }
        Self::checked(buffer, offset, dtype, shape, Strides::from_checked(strides))
    }

    /// A contiguous tensor of zeros in a buffer of its own.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self> {
        let checked = Shape::new(shape)?;
        let bytes = checked.elements().saturating_mul(dtype.size());
        Self::new(Buffer::zeroed(bytes)?, 0, dtype, shape)
    }

    /// A contiguous tensor with a copy of `values`.
    pub fn from_slice<T: TensorElement>(values: &[T], shape: &[usize]) -> Result<Self> {
        let elements = Shape::new(shape)?.elements();
        if elements != values.len() {
            return Err(RuntimeError::ElementCount { expected: elements, found: values.len() });
        }
        Self::new(Buffer::from_slice(values)?, 0, T::DTYPE, shape)
    }

    fn checked(
        buffer: Buffer,
        offset: usize,
        dtype: DType,
        shape: Shape,
        strides: Strides,
    ) -> Result<Self> {
        let size = dtype.size();
        if !(buffer.as_ptr().addr().wrapping_add(offset)).is_multiple_of(size) {
            return Err(RuntimeError::Misaligned { what: "the tensor", offset, align: size });
        }
        let bytes = if shape.contains(&0) {
            Some(0)
        } else {
            shape
                .iter()
                .zip(strides.iter())
                .try_fold(1usize, |end, (&len, &stride)| {
                    end.checked_add((len - 1).checked_mul(stride)?)
                })
                .and_then(|elements| elements.checked_mul(size))
        };
        check_range("the tensor", offset, bytes, buffer.len())?;
        Ok(Self { buffer, offset, dtype, shape, strides })
    }

    /// The buffer it lies in.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Bytes from the start of the buffer to the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Lengths of the axes.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Strides of the axes in elements.
    #[inline]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Length of one axis, or an error when there is no such axis.
    pub fn dim(&self, axis: usize) -> Result<usize> {
        self.shape.get(axis).copied().ok_or_else(|| self.no_axis("dim", axis))
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Address of the first element.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        // `offset <= buffer.len()` by construction.
        self.buffer.as_ptr().wrapping_add(self.offset)
    }

    /// Whether the elements lie in order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.shape.iter().zip(self.strides.iter()).rev().all(|(&len, &stride)| {
            let matches = len <= 1 || stride == expected;
            expected *= len;
            matches
        }) || self.shape.contains(&0)
    }

    /// The elements `range` of one axis.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Self> {
        let len = *self.shape.get(axis).ok_or_else(|| self.no_axis("slice", axis))?;
        if range.start > range.end || range.end > len {
            return Err(self.error("slice", format!("axis {axis} has 0..{len}, found {range:?}")));
        }
        let mut out = self.clone();
        out.shape.as_mut()[axis] = range.len();
        if out.shape.contains(&0) {
            return Ok(out);
        }
        // In bounds: the first element of a nonempty part is an element of `self`.
        out.offset += range.start * self.strides[axis] * self.dtype.size();
        Ok(out)
    }

    /// `len` elements of one axis from `start`.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Self> {
        self.slice(axis, start..start.saturating_add(len))
    }

    /// The entry `index` of the outermost axis, without that axis.
    pub fn row(&self, index: usize) -> Result<Self> {
        let mut out = self.narrow(0, index, 1)?;
        out.shape = out.shape.without(0);
        out.strides = out.strides.without(0);
        Ok(out)
    }

    /// The same elements in another shape; the tensor must be contiguous.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        self.view(self.dtype, shape)
    }

    /// The same bytes as another type and shape; the tensor must be contiguous.
    pub fn view(&self, dtype: DType, shape: &[usize]) -> Result<Self> {
        if !self.is_contiguous() {
            return Err(self.error("view", "expected a contiguous tensor".to_owned()));
        }
        let shape = Shape::new(shape)?;
        let bytes = self.elements() * self.dtype.size();
        if shape.elements().checked_mul(dtype.size()) != Some(bytes) {
            return Err(
                self.error("view", format!("{dtype} {shape} does not have its {bytes} bytes"))
            );
        }
        Self::checked(self.buffer.clone(), self.offset, dtype, shape, shape.contiguous_strides())
    }

    /// Splits one axis of length `outer * inner` in two; needs no contiguity.
    pub fn split_axis(&self, axis: usize, inner: usize) -> Result<Self> {
        let len = *self.shape.get(axis).ok_or_else(|| self.no_axis("split_axis", axis))?;
        if inner == 0 || !len.is_multiple_of(inner) {
            return Err(self.error("split_axis", format!("axis {axis} is no multiple of {inner}")));
        }
        if self.rank() == MAX_RANK {
            return Err(self.error("split_axis", format!("at most {MAX_RANK} axes are possible")));
        }
        let (mut shape, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
        let rank = self.rank() + 1;
        for i in 0..rank {
            let from = if i > axis { i - 1 } else { i };
            shape[i] = self.shape[from];
            strides[i] = self.strides[from];
        }
        (shape[axis], shape[axis + 1]) = (len / inner, inner);
        strides[axis] = self.strides[axis].saturating_mul(inner);
        let (shape, strides) =
            (Shape::from_checked(&shape[..rank]), Strides::from_checked(&strides[..rank]));
        Self::checked(self.buffer.clone(), self.offset, self.dtype, shape, strides)
    }

    /// The same elements with two axes exchanged.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        if let Some(axis) = [a, b].into_iter().find(|&axis| axis >= self.rank()) {
            return Err(self.no_axis("transpose", axis));
        }
        let mut out = self.clone();
        out.shape.as_mut().swap(a, b);
        out.strides.as_mut().swap(a, b);
        Ok(out)
    }

    /// Copies the elements, in order of the axes, into a vector.
    pub fn read<T: TensorElement>(&self) -> Result<Vec<T>> {
        self.check_type::<T>()?;
        let mut values = vec![T::default(); self.elements()];
        self.for_each_run(|offset, elements| self.buffer.read(offset, &mut values[elements]))?;
        Ok(values)
    }

    /// Copies the elements, in order of the axes, into a vector of floats.
    pub fn read_f32(&self) -> Result<Vec<f32>> {
        fn convert<T: TensorElement>(tensor: &Tensor) -> Result<Vec<f32>> {
            Ok(tensor.read::<T>()?.into_iter().map(T::to_f32).collect())
        }
        match self.dtype {
            DType::F32 => self.read(),
            DType::F16 => convert::<half::f16>(self),
            DType::BF16 => convert::<half::bf16>(self),
            DType::I32 => convert::<i32>(self),
            DType::U32 => convert::<u32>(self),
            DType::I8 => convert::<i8>(self),
            DType::U8 => convert::<u8>(self),
            DType::Bool => {
                Err(RuntimeError::ElementType { expected: DType::Bool, found: DType::F32 })
            }
        }
    }

    /// Writes one value per element, in order of the axes.
    pub fn write<T: TensorElement>(&self, values: &[T]) -> Result<()> {
        self.check_type::<T>()?;
        if values.len() != self.elements() {
            return Err(RuntimeError::ElementCount {
                expected: self.elements(),
                found: values.len(),
            });
        }
        self.for_each_run(|offset, elements| self.buffer.write(offset, &values[elements]))
    }

    fn check_type<T: TensorElement>(&self) -> Result<()> {
        if T::DTYPE == self.dtype {
            Ok(())
        } else {
            Err(RuntimeError::ElementType { expected: self.dtype, found: T::DTYPE })
        }
    }

    /// Calls `copy` with the byte offset and the element numbers of every contiguous run.
    fn for_each_run(&self, mut copy: impl FnMut(usize, Range<usize>) -> Result<()>) -> Result<()> {
        let elements = self.elements();
        if elements == 0 {
            return Ok(());
        }
        let run = match (self.is_contiguous(), self.strides.last()) {
            (true, _) | (_, None) => elements,
            (false, Some(1)) => self.shape[self.rank() - 1],
            (false, Some(_)) => 1,
        };
        for first in (0..elements).step_by(run) {
            let (mut rest, mut position) = (first, 0);
            for axis in (0..self.rank()).rev() {
                position += rest % self.shape[axis] * self.strides[axis];
                rest /= self.shape[axis];
            }
            copy(self.offset + position * self.dtype.size(), first..first + run)?;
        }
        Ok(())
    }

    fn no_axis(&self, operation: &'static str, axis: usize) -> RuntimeError {
        self.error(operation, format!("there is no axis {axis}"))
    }

    fn error(&self, operation: &'static str, reason: String) -> RuntimeError {
        RuntimeError::Shape { operation, tensor: format!("{self:?}"), reason }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)?;
        if !self.is_contiguous() {
            write!(f, " with strides {}", self.strides)?;
        }
        Ok(())
    }
}
