//! What can go wrong, with what was expected, what was found and what to do.

use std::io;

use crate::{DType, IsaLevel};

/// The result of a runtime operation.
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;

/// A failed runtime operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The system refused memory, or the size cannot exist.
    #[error(
        "cannot allocate {bytes} bytes of host memory: {reason}; ask for less or free memory first"
    )]
    Allocation {
        /// Requested size.
        bytes: usize,
        /// Why it failed.
        reason: String,
    },
    /// A byte range does not lie inside its buffer.
    #[error(
        "{what} needs bytes {start}..{end}, but its buffer has {len} bytes; use a larger buffer or a smaller range"
    )]
    OutOfBounds {
        /// What the range is for.
        what: &'static str,
        /// First byte.
        start: usize,
        /// One past the last byte (saturated when the sum overflows).
        end: usize,
        /// Size of the buffer.
        len: usize,
    },
    /// An offset or address is not aligned as its element type needs.
    #[error(
        "{what} at byte offset {offset} is not aligned to {align} bytes; place it at a multiple of {align}"
    )]
    Misaligned {
        /// What is placed there.
        what: &'static str,
        /// The offset or address.
        offset: usize,
        /// The alignment that is needed.
        align: usize,
    },
    /// A write to a buffer that maps a file.
    #[error(
        "this buffer maps a file and is read-only; copy it into a buffer of the device before writing"
    )]
    ReadOnly,
    /// Host access to a buffer that a running command buffer uses.
    #[error(
        "the buffer is in use by a running command buffer; read or write it before `run` or after it returned"
    )]
    Busy,
    /// A tensor cannot have the shape or view asked for.
    #[error("{operation}: {reason} (tensor is {tensor})")]
    Shape {
        /// The operation asked for.
        operation: &'static str,
        /// What it was asked of.
        tensor: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// Host values of another type than the tensor's elements.
    #[error(
        "the tensor holds {expected} elements, but {found} was asked for; use the tensor's own type"
    )]
    ElementType {
        /// The tensor's type.
        expected: DType,
        /// The type of the host values.
        found: DType,
    },
    /// Host values of another number than the tensor's elements.
    #[error("the tensor has {expected} elements, but {found} values were given")]
    ElementCount {
        /// Elements of the tensor.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// An instruction set name that does not exist.
    #[error("unknown instruction set `{name}`; use avx512, avx2 or portable")]
    UnknownIsa {
        /// The name given.
        name: String,
    },
    /// An instruction set that this processor lacks.
    #[error(
        "instruction set {requested} was asked for, but this processor supports {detected} at best"
    )]
    UnsupportedIsa {
        /// The level asked for.
        requested: IsaLevel,
        /// The best that was detected.
        detected: IsaLevel,
    },
    /// A number of threads that cannot be used.
    #[error("{requested} threads were asked for; use 1 to {limit}")]
    ThreadCount {
        /// The number asked for.
        requested: usize,
        /// The largest number allowed.
        limit: usize,
    },
    /// The system refused to start a thread.
    #[error("cannot start worker thread {index}: {source}; ask for fewer threads")]
    ThreadSpawn {
        /// Which thread.
        index: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// A kernel call that breaks the kernel's contract.
    #[error("kernel {kernel}: {error}")]
    Encode {
        /// The kernel's name.
        kernel: &'static str,
        /// What is wrong with the call.
        error: Box<EncodeError>,
    },
    /// A kernel panicked; the outputs of its command buffer are undefined.
    #[error(
        "kernel {kernel} panicked: {message}; the outputs of this command buffer are undefined"
    )]
    KernelPanicked {
        /// The kernel's name.
        kernel: &'static str,
        /// The panic message.
        message: String,
    },
    /// `run` was called inside `parallel`.
    #[error(
        "a command buffer cannot run inside its own parallel group; call run after parallel returned"
    )]
    OpenGroup,
    /// The system does not say what was asked.
    #[error("cannot read {what} from the system: {reason}")]
    System {
        /// What was asked.
        what: &'static str,
        /// Why it is not known.
        reason: String,
    },
}

/// How a kernel call breaks the kernel's contract.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Too many or too few arguments.
    #[error("expected {expected} arguments, found {found}")]
    ArgumentCount {
        /// Parameters of the kernel.
        expected: usize,
        /// Arguments given.
        found: usize,
    },
    /// An argument of another kind than the parameter.
    #[error("parameter {parameter}: expected {expected}, found {found}")]
    ArgumentKind {
        /// The parameter.
        parameter: &'static str,
        /// What the parameter takes.
        expected: String,
        /// What was given.
        found: String,
    },
    /// An argument of another element type or format than the parameter, or than an earlier use of the same generic.
    #[error("parameter {parameter}: expected elements of {expected}, found {found}")]
    Element {
        /// The parameter.
        parameter: &'static str,
        /// What the parameter takes.
        expected: String,
        /// What was given.
        found: String,
    },
    /// An argument of another shape than the parameter.
    #[error("parameter {parameter}: expected shape {expected}, found {found}")]
    Shape {
        /// The parameter.
        parameter: &'static str,
        /// The shape expected, with the names and values of its dimensions.
        expected: String,
        /// The shape given.
        found: String,
    },
    /// An argument whose last axis is not contiguous, or whose parts have different strides.
    #[error("parameter {parameter}: {reason}; copy the tensor into a contiguous one")]
    Stride {
        /// The parameter.
        parameter: &'static str,
        /// What was expected and what was found.
        reason: String,
    },
    /// A read-only buffer for a parameter that the kernel writes.
    #[error("parameter {parameter} is written, but its buffer maps a file and is read-only")]
    ReadOnly {
        /// The parameter.
        parameter: &'static str,
    },
    /// Weights in a layout that this device's kernels do not read.
    #[error(
        "parameter {parameter}: expected {expected} weights, found {found}; pack the weights for this device at load"
    )]
    Layout {
        /// The parameter.
        parameter: &'static str,
        /// The layout needed.
        expected: &'static str,
        /// The layout given.
        found: &'static str,
    },
    /// No instance was compiled for these element types.
    #[error(
        "no instance was compiled for {requested}; there is {available}; add it to the instance list"
    )]
    NoInstance {
        /// The generics and what the arguments bind them to.
        requested: String,
        /// The instances that exist.
        available: String,
    },
    /// No schedule accepts these dimensions.
    #[error("no schedule accepts {dims}; there is {available}")]
    NoSchedule {
        /// The dimensions and their values.
        dims: String,
        /// The schedules that exist.
        available: String,
    },
    /// The grid has more programs than a launch can number, or a negative number.
    #[error("grid {grid:?} for {dims} must have axes in 0..2^32 and fewer than 2^32 programs")]
    Grid {
        /// The grid.
        grid: [i64; 3],
        /// The dimensions and their values.
        dims: String,
    },
    /// The descriptor contradicts itself; a fault of the kernel compiler.
    #[error("malformed descriptor: {reason}; this is a fault of the kernel's build")]
    Descriptor {
        /// What is wrong.
        reason: String,
    },
}
