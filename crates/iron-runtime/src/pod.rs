//! Element types that host code can copy in and out of buffers.

use half::{bf16, f16};

use crate::DType;

mod sealed {
    pub trait Sealed {}
}

/// A plain number: no padding, every bit pattern valid. Sealed.
pub trait Pod: sealed::Sealed + Copy + Default + Send + Sync + 'static {}

/// A [`Pod`] that is the element type of tensors. Sealed.
pub trait TensorElement: Pod {
    /// The matching element type.
    const DTYPE: DType;

    /// The value as `f32`, rounded when it has more digits.
    fn to_f32(self) -> f32;
}

macro_rules! pod {
    ($($type:ty),*) => { $(impl sealed::Sealed for $type {} impl Pod for $type {})* };
}
pod!(f32, f16, bf16, i32, u32, i8, u8, i64, u64);

macro_rules! element {
    ($($type:ty => $dtype:ident, $convert:expr;)*) => {
        $(impl TensorElement for $type {
            const DTYPE: DType = DType::$dtype;

            fn to_f32(self) -> f32 {
                $convert(self)
            }
        })*
    };
}
element! {
    f32 => F32, |value| value;
    f16 => F16, f16::to_f32;
    bf16 => BF16, bf16::to_f32;
    i32 => I32, |value| value as f32;
    u32 => U32, |value| value as f32;
    i8 => I8, f32::from;
    u8 => U8, f32::from;
}

/// The bytes of a slice.
pub(crate) fn bytes_of<T: Pod>(values: &[T]) -> &[u8] {
    // SAFETY: a `Pod` has no padding, so every byte is initialised; the lifetime is that of `values`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of a slice, for writing.
pub(crate) fn bytes_of_mut<T: Pod>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; every bit pattern is valid, so any byte may be written.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
