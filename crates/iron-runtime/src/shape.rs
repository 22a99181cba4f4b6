//! Shapes and strides, stored inline.

use std::fmt;
use std::ops::Deref;

use crate::{Result, RuntimeError};

/// The largest number of axes of a tensor.
pub const MAX_RANK: usize = 4;

/// The largest length of an axis: products of three fit no machine word, but any such length is an error elsewhere.
const MAX_AXIS: usize = 1 << 40;

/// Lengths of a tensor's axes, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    rank: u8,
    dims: [usize; MAX_RANK],
}

impl Shape {
    /// Copies `dims`; at most [`MAX_RANK`] axes, each below 2^40, whose product fits `usize`.
    pub fn new(dims: &[usize]) -> Result<Self> {
        let fail = |reason: String| {
            Err(RuntimeError::Shape { operation: "shape", tensor: format!("{dims:?}"), reason })
        };
        if dims.len() > MAX_RANK {
            return fail(format!("at most {MAX_RANK} axes are possible, found {}", dims.len()));
        }
        if let Some(axis) = dims.iter().find(|&&len| len > MAX_AXIS) {
            return fail(format!("an axis has at most 2^40 elements, found {axis}"));
        }
        if dims.iter().try_fold(1usize, |product, &len| product.checked_mul(len)).is_none() {
            return fail("the number of elements overflows".to_owned());
        }
        Ok(Self::from_checked(dims))
    }

    /// Copies at most [`MAX_RANK`] lengths that are known to be valid.
    pub(crate) fn from_checked(dims: &[usize]) -> Self {
        let mut shape = Self { rank: dims.len() as u8, dims: [0; MAX_RANK] };
        shape.dims[..dims.len()].copy_from_slice(dims);
        shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.iter().product()
    }

    /// Strides in elements of a contiguous tensor of this shape.
    pub(crate) fn contiguous_strides(&self) -> Strides {
        let mut strides = *self;
        let mut stride = 1;
        for axis in (0..self.len()).rev() {
            strides.dims[axis] = stride;
            stride *= self[axis].max(1);
        }
        strides
    }

    /// The lengths, for changing them in place.
    pub(crate) fn as_mut(&mut self) -> &mut [usize] {
        &mut self.dims[..self.rank as usize]
    }

    /// The shape without `axis`.
    pub(crate) fn without(&self, axis: usize) -> Self {
        let mut out = Self { rank: self.rank - 1, dims: [0; MAX_RANK] };
        out.dims[..axis].copy_from_slice(&self.dims[..axis]);
        out.dims[axis..MAX_RANK - 1].copy_from_slice(&self.dims[axis + 1..]);
        out
    }
}

/// Strides share the inline representation of shapes.
pub(crate) type Strides = Shape;

impl Deref for Shape {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &**self)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
