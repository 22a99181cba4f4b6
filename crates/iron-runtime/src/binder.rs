//! Checking arguments against a kernel's contract, and laying out the argument words.

use std::fmt::Write as _;

use crate::activations::INT8_BLOCK;
use crate::backend::Backend;
use crate::error::EncodeError;
use crate::{
    ActivationKind, Activations, Binding, Buffer, DType, DimExpr, Element, InstanceDescriptor,
    KernelDescriptor, ParamKind, QuantizedTensor, Tensor, WeightLayout,
};

/// Most named dimensions of a kernel.
pub(crate) const MAX_DIMS: usize = 16;

/// Most type parameters of a kernel.
const MAX_GENERICS: usize = 8;

/// The value of a dimension before its first use.
const UNBOUND: i64 = i64::MIN;

/// One argument of a kernel call.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// For a tensor parameter, or plain activations.
    Tensor(&'a Tensor),
    /// For a weight matrix.
    Quantized(&'a QuantizedTensor),
    /// For activations.
    Activations(&'a Activations),
    /// For an f32 scalar.
    F32(f32),
    /// For an i32 scalar.
    I32(i32),
    /// For a u32 scalar.
    U32(u32),
}

impl Arg<'_> {
    /// Calls `keep` with every buffer that the argument points into.
    #[inline]
    pub(crate) fn for_each_buffer(&self, mut keep: impl FnMut(&Buffer)) {
        match *self {
            Self::Tensor(tensor) | Self::Activations(Activations::Plain(tensor)) => {
                keep(tensor.buffer());
            }
            Self::Quantized(matrix) => keep(matrix.buffer()),
            Self::Activations(Activations::Int8 { q, scale, sum }) => {
                keep(q.buffer());
                keep(scale.buffer());
                keep(sum.buffer());
            }
            Self::F32(_) | Self::I32(_) | Self::U32(_) => {}
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Tensor(tensor) => format!("a tensor ({tensor:?})"),
            Self::Quantized(matrix) => format!("a {} weight matrix", matrix.format()),
            Self::Activations(Activations::Plain(_)) => "plain activations".to_owned(),
            Self::Activations(Activations::Int8 { .. }) => "int8 activations".to_owned(),
            Self::F32(_) => "an f32 scalar".to_owned(),
            Self::I32(_) => "an i32 scalar".to_owned(),
            Self::U32(_) => "a u32 scalar".to_owned(),
        }
    }
}

/// The dimensions and type arguments that a call's arguments bind.
pub(crate) struct Bound {
    pub(crate) dims: [i64; MAX_DIMS],
    /// One [`Binding::code`] per type parameter, the first in the lowest byte.
    pub(crate) codes: u64,
}

type Checked<T = ()> = Result<T, Box<EncodeError>>;

/// Checks `args` and appends the argument words; on an error, words may have been appended.
#[inline]
pub(crate) fn bind(
    backend: &Backend,
    kernel: &'static KernelDescriptor,
    args: &[Arg<'_>],
    words: &mut Vec<u64>,
) -> Checked<Bound> {
    if args.len() != kernel.params.len() {
        return Err(EncodeError::ArgumentCount {
            expected: kernel.params.len(),
            found: args.len(),
        }
        .into());
    }
    if kernel.dims.len() > MAX_DIMS || kernel.generics.len() > MAX_GENERICS {
        return Err(malformed(format!(
            "more than {MAX_DIMS} dimensions or {MAX_GENERICS} type parameters"
        ))
        .into());
    }
    let mut binder = Binder {
        backend,
        kernel,
        words,
        dims: [UNBOUND; MAX_DIMS],
        generics: [None; MAX_GENERICS],
        has_computed: false,
    };
    for (index, arg) in args.iter().enumerate() {
        binder.bind(index, arg)?;
    }
    binder.finish(args)
}

struct Binder<'a> {
    backend: &'a Backend,
    kernel: &'static KernelDescriptor,
    words: &'a mut Vec<u64>,
    dims: [i64; MAX_DIMS],
    generics: [Option<Binding>; MAX_GENERICS],
    has_computed: bool,
}

impl Binder<'_> {
    #[inline]
    fn bind(&mut self, index: usize, arg: &Arg<'_>) -> Checked {
        match (&self.kernel.params[index].kind, *arg) {
            (&ParamKind::Tensor { element, shape, mutable }, Arg::Tensor(tensor)) => {
                self.element(index, element, Binding::DType(tensor.dtype()))?;
                self.shape(index, shape, tensor.shape())?;
                self.tensor(index, tensor, mutable)
            }
            (&ParamKind::Quantized { element, shape }, Arg::Quantized(matrix)) => {
                self.element(index, element, Binding::Format(matrix.format()))?;
                self.shape(index, shape, &[matrix.rows(), matrix.cols()])?;
                if let Err(expected) = self.backend.check_layout(matrix.format(), matrix.layout()) {
                    return Err(self.layout(index, expected, matrix.layout().name()).into());
                }
                self.words.push(matrix.as_ptr().addr() as u64);
                self.words.push(match matrix.layout() {
                    WeightLayout::Dense { row_stride } => row_stride as u64,
                    WeightLayout::CpuPacked | WeightLayout::Storage => 0,
                });
                Ok(())
            }
            (
                &ParamKind::Activations { element, shape, mutable },
                Arg::Tensor(tensor) | Arg::Activations(Activations::Plain(tensor)),
            ) => {
                let Some(kind) = ActivationKind::plain(tensor.dtype()) else {
                    return Err(self.kind(index, arg).into());
                };
                self.element(index, element, Binding::Activation(kind))?;
                self.shape(index, shape, tensor.shape())?;
                self.tensor(index, tensor, mutable)
            }
            (
                &ParamKind::Activations { element, shape, mutable },
                Arg::Activations(Activations::Int8 { q, scale, sum }),
            ) => {
                self.element(index, element, Binding::Activation(ActivationKind::Int8))?;
                self.shape(index, shape, q.shape())?;
                self.int8(index, [q, scale, sum], mutable)
            }
            (ParamKind::Scalar(DType::F32), Arg::F32(value)) => self.scalar(value.to_bits()),
            (ParamKind::Scalar(DType::I32), Arg::I32(value)) => self.scalar(value as u32),
            (ParamKind::Scalar(DType::U32), Arg::U32(value)) => self.scalar(value),
            _ => Err(self.kind(index, arg).into()),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the arms of `bind` share a type")]
    fn scalar(&mut self, bits: u32) -> Checked {
        self.words.push(u64::from(bits));
        Ok(())
    }

    /// Address and outer strides of a tensor.
    #[inline]
    fn tensor(&mut self, index: usize, tensor: &Tensor, mutable: bool) -> Checked {
        self.access(index, tensor, mutable)?;
        self.words.push(tensor.as_ptr().addr() as u64);
        if let [outer @ .., _] = tensor.strides() {
            self.words.extend(outer.iter().map(|&stride| stride as u64));
        }
        Ok(())
    }

    /// Addresses and row strides of int8 activations.
    fn int8(&mut self, index: usize, parts: [&Tensor; 3], mutable: bool) -> Checked {
        let [q, scale, sum] = parts;
        for part in parts {
            self.access(index, part, mutable)?;
        }
        let &[m, k] = q.shape() else {
            return Err(self.part(index, "two axes".to_owned(), q).into());
        };
        if q.dtype() != DType::I8 || !k.is_multiple_of(INT8_BLOCK) {
            return Err(self
                .part(index, "i8 values in rows of a multiple of 32".to_owned(), q)
                .into());
        }
        let blocks = [m, k / INT8_BLOCK];
        for part in [scale, sum] {
            if part.dtype() != DType::F32 || part.shape() != blocks {
                return Err(self
                    .part(index, format!("f32 scales and sums {blocks:?}"), part)
                    .into());
            }
        }
        if scale.strides()[0] != sum.strides()[0] && m > 1 {
            let (scale, sum) = (scale.strides()[0], sum.strides()[0]);
            let reason =
                format!("expected one row stride for scales and sums, found {scale} and {sum}");
            return Err(self.stride(index, reason).into());
        }
        self.words.extend(parts.map(|part| part.as_ptr().addr() as u64));
        self.words.extend([q.strides()[0] as u64, scale.strides()[0] as u64]);
        Ok(())
    }

    /// Checks strides and mutability.
    #[inline]
    fn access(&self, index: usize, tensor: &Tensor, mutable: bool) -> Checked {
        let (shape, strides) = (tensor.shape(), tensor.strides());
        if let (Some(&len), Some(&stride)) = (shape.last(), strides.last())
            && stride != 1
            && len > 1
        {
            return Err(self
                .stride(
                    index,
                    format!("expected a last axis of stride 1, found strides {strides:?}"),
                )
                .into());
        }
        if mutable {
            if !tensor.buffer().is_writable() {
                return Err(self.read_only(index).into());
            }
            if shape.iter().zip(strides).any(|(&len, &stride)| stride == 0 && len > 1) {
                return Err(self
                    .stride(
                        index,
                        format!("a written tensor must not repeat, found strides {strides:?}"),
                    )
                    .into());
            }
        }
        Ok(())
    }

    /// Binds or checks a parameter's element type.
    #[inline]
    fn element(&mut self, index: usize, element: Element, found: Binding) -> Checked {
        let expected = match element {
            Element::Fixed(expected) => Some(expected),
            Element::Generic(generic) => match self.generics.get_mut(generic) {
                Some(slot) => *slot.get_or_insert(found),
                None => {
                    return Err(malformed(format!("there is no type parameter {generic}")).into());
                }
            }
            .into(),
        };
        if expected == Some(found) {
            Ok(())
        } else {
            Err(self.wrong_element(index, expected, found).into())
        }
    }

    /// Binds or checks a parameter's shape; computed lengths are checked at the end.
    #[inline]
    fn shape(&mut self, index: usize, expected: &'static [DimExpr], found: &[usize]) -> Checked {
        let mut matches = expected.len() == found.len();
        for (expr, &len) in expected.iter().zip(found) {
            let len = len as i64;
            match *expr {
                DimExpr::Dim(dim) => match self.dims.get_mut(dim) {
                    Some(value) if *value == UNBOUND => *value = len,
                    Some(value) => matches &= *value == len,
                    None => return Err(malformed(format!("there is no dimension {dim}")).into()),
                },
                DimExpr::Const(value) => matches &= value == len,
                DimExpr::Computed(_) => self.has_computed = true,
            }
        }
        if matches { Ok(()) } else { Err(self.wrong_shape(index, expected, found).into()) }
    }

    #[inline]
    fn finish(self, args: &[Arg<'_>]) -> Checked<Bound> {
        let dims = &self.dims[..self.kernel.dims.len()];
        if let Some(dim) = dims.iter().position(|&value| value == UNBOUND) {
            return Err(malformed(format!(
                "no parameter binds dimension {}",
                self.kernel.dims[dim]
            ))
            .into());
        }
        if self.has_computed {
            self.check_computed(args)?;
        }
        self.words.extend(dims.iter().map(|&value| value as u64));
        let mut codes = 0;
        for (position, binding) in self.generics[..self.kernel.generics.len()].iter().enumerate() {
            let Some(binding) = binding else {
                return Err(malformed(format!(
                    "no parameter binds type {}",
                    self.kernel.generics[position]
                ))
                .into());
            };
            codes |= u64::from(binding.code()) << (8 * position);
        }
        Ok(Bound { dims: self.dims, codes })
    }

    fn check_computed(&self, args: &[Arg<'_>]) -> Checked {
        let dims = &self.dims[..self.kernel.dims.len()];
        for (index, arg) in args.iter().enumerate() {
            let (expected, found): (&[DimExpr], &[usize]) =
                match (&self.kernel.params[index].kind, arg) {
                    (
                        ParamKind::Tensor { shape, .. } | ParamKind::Activations { shape, .. },
                        Arg::Tensor(tensor),
                    ) => (shape, tensor.shape()),
                    (ParamKind::Activations { shape, .. }, Arg::Activations(activations)) => {
                        (shape, activations.shape())
                    }
                    (ParamKind::Quantized { shape, .. }, Arg::Quantized(matrix)) => {
                        (shape, &[matrix.rows(), matrix.cols()])
                    }
                    _ => continue,
                };
            let matches = expected.iter().zip(found).all(|(expr, &len)| match expr {
                DimExpr::Computed(compute) => compute(dims) == len as i64,
                DimExpr::Dim(_) | DimExpr::Const(_) => true,
            });
            if !matches {
                return Err(self.wrong_shape(index, expected, found).into());
            }
        }
        Ok(())
    }

    fn name(&self, index: usize) -> &'static str {
        self.kernel.params[index].name
    }

    #[cold]
    fn kind(&self, index: usize, arg: &Arg<'_>) -> EncodeError {
        let expected = match self.kernel.params[index].kind {
            ParamKind::Tensor { .. } => "a tensor".to_owned(),
            ParamKind::Quantized { .. } => "a weight matrix".to_owned(),
            ParamKind::Activations { .. } => "activations (floats or int8)".to_owned(),
            ParamKind::Scalar(dtype) => format!("a scalar of type {dtype}"),
        };
        EncodeError::ArgumentKind { parameter: self.name(index), expected, found: arg.describe() }
    }

    #[cold]
    fn wrong_element(
        &self,
        index: usize,
        expected: Option<Binding>,
        found: Binding,
    ) -> EncodeError {
        let expected = expected.map_or_else(String::new, |expected| expected.to_string());
        let found = found.to_string();
        EncodeError::Element { parameter: self.name(index), expected, found }
    }

    #[cold]
    fn wrong_shape(&self, index: usize, expected: &[DimExpr], found: &[usize]) -> EncodeError {
        let dims = &self.dims[..self.kernel.dims.len()];
        let axes: Vec<String> = expected
            .iter()
            .map(|expr| match expr {
                DimExpr::Dim(dim) if dims[*dim] == UNBOUND => self.kernel.dims[*dim].to_owned(),
                DimExpr::Dim(dim) => format!("{} = {}", self.kernel.dims[*dim], dims[*dim]),
                DimExpr::Const(value) => value.to_string(),
                DimExpr::Computed(compute) if !dims.contains(&UNBOUND) => compute(dims).to_string(),
                DimExpr::Computed(_) => "_".to_owned(),
            })
            .collect();
        EncodeError::Shape {
            parameter: self.name(index),
            expected: format!("[{}]", axes.join(", ")),
            found: format!("{found:?}"),
        }
    }

    #[cold]
    fn part(&self, index: usize, expected: String, found: &Tensor) -> EncodeError {
        EncodeError::Shape { parameter: self.name(index), expected, found: format!("{found:?}") }
    }

    #[cold]
    fn stride(&self, index: usize, reason: String) -> EncodeError {
        EncodeError::Stride { parameter: self.name(index), reason }
    }

    #[cold]
    fn read_only(&self, index: usize) -> EncodeError {
        EncodeError::ReadOnly { parameter: self.name(index) }
    }

    #[cold]
    fn layout(&self, index: usize, expected: &'static str, found: &'static str) -> EncodeError {
        EncodeError::Layout { parameter: self.name(index), expected, found }
    }
}

/// The instance whose bindings have these codes.
pub(crate) fn find_instance(
    kernel: &'static KernelDescriptor,
    codes: u64,
) -> Checked<&'static InstanceDescriptor> {
    let generics = kernel.generics.len();
    let code_of = |instance: &InstanceDescriptor| {
        instance
            .bindings
            .iter()
            .rev()
            .fold(0u64, |codes, binding| codes << 8 | u64::from(binding.code()))
    };
    kernel
        .instances
        .iter()
        .find(|instance| instance.bindings.len() == generics && code_of(instance) == codes)
        .ok_or_else(|| no_instance(kernel, codes).into())
}

#[cold]
fn no_instance(kernel: &KernelDescriptor, codes: u64) -> EncodeError {
    let all = DType::ALL
        .map(Binding::DType)
        .into_iter()
        .chain(crate::Format::ALL.map(Binding::Format))
        .chain(
            [ActivationKind::F32, ActivationKind::F16, ActivationKind::BF16, ActivationKind::Int8]
                .map(Binding::Activation),
        );
    let requested: Vec<String> = kernel
        .generics
        .iter()
        .zip(codes.to_le_bytes())
        .filter_map(|(name, code)| {
            all.clone()
                .find(|binding| binding.code() == code)
                .map(|binding| format!("{name} = {binding}"))
        })
        .collect();
    let available: Vec<String> = kernel
        .instances
        .iter()
        .map(|instance| {
            let bindings: Vec<String> = instance.bindings.iter().map(ToString::to_string).collect();
            format!("<{}>", bindings.join(", "))
        })
        .collect();
    EncodeError::NoInstance { requested: requested.join(", "), available: list(&available) }
}

#[cold]
pub(crate) fn no_schedule(
    kernel: &KernelDescriptor,
    instance: &InstanceDescriptor,
    dims: &[i64],
) -> EncodeError {
    let names: Vec<String> =
        instance.schedules.iter().map(|schedule| schedule.name.to_owned()).collect();
    EncodeError::NoSchedule { dims: describe_dims(kernel, dims), available: list(&names) }
}

#[cold]
pub(crate) fn bad_grid(kernel: &KernelDescriptor, grid: [i64; 3], dims: &[i64]) -> EncodeError {
    EncodeError::Grid { grid, dims: describe_dims(kernel, dims) }
}

fn malformed(reason: String) -> EncodeError {
    EncodeError::Descriptor { reason }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn describe_dims(kernel: &KernelDescriptor, dims: &[i64]) -> String {
    let mut text = String::new();
    for (name, value) in kernel.dims.iter().zip(dims) {
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{separator}{name} = {value}");
    }
    text
}
