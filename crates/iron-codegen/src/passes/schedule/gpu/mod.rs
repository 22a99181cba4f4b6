//! Scheduling for GPUs: one thread block per program, tiles in registers, matrix fragments or shared memory.
//!
//! Where a tile lives ([`Storage`]) follows from how it is used:
//! * `Blocked`: element `e` (row-major) belongs to thread `e % threads`, slot `e / threads`. The default.
//! * `Fragment`: the accumulator layout of the matrix unit. What `dot` accumulates, and every tile of the same shape that
//!   is combined with it elementwise.
//! * `Shared`: read at other positions than a thread's own (broadcast rows, transposes, gathers), or the result of a
//!   reduction along an axis.
//!
//! The steps are: `copies` makes loop-carried and accumulated tiles updatable in place, `placement` chooses storage and
//! buffers, `barriers` inserts the synchronisation.

mod barriers;
mod copies;
mod placement;

use std::collections::BTreeMap;

use iron_core::ir::{
    ActivationKind, DotOperand, Kernel, Map, MapOutput, Op, OpKind, ParamKind, Storage, Value,
};
use iron_core::{DType, Diagnostic, Format, Span};

/// What a GPU target offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Bytes of shared memory that a block may use.
    pub max_shared: u32,
    /// Extent along n of one matrix step.
    pub step_n: u32,
    /// Extent along k of one matrix step.
    pub step_k: u32,
}

impl Machine {
    /// sm_80 and newer: `mma.sync.m16n8k16` with the weights as the 16-row operand. 99 KB is what every one of them has.
    pub const CUDA: Self = Self { max_shared: 99 << 10, step_n: 16, step_k: 16 };
    /// Apple 7 and newer: `simdgroup_matrix` 8 x 8.
    pub const METAL: Self = Self { max_shared: 32 << 10, step_n: 8, step_k: 8 };
    /// Extent along m of one matrix step, on every target.
    pub const STEP_M: u32 = 8;
}

/// Threads of a block when the schedule names no number.
const DEFAULT_THREADS: u32 = 128;

/// Runs the pass.
pub fn schedule(kernel: &mut Kernel, machine: Machine) -> Result<(), Diagnostic> {
    if kernel.launch.threads == 0 {
        kernel.launch.threads = DEFAULT_THREADS;
    }
    kernel.launch.stages = kernel.launch.stages.max(1);
    check(kernel)?;
    copies::insert(kernel);
    placement::place(kernel);
    barriers::insert(kernel, machine);
    let layout = SharedLayout::of(kernel, machine);
    kernel.launch.shared_bytes = layout.total;
    if layout.total > machine.max_shared {
        let message = format!(
            "this schedule needs {} bytes of shared memory, the target has {}",
            layout.total, machine.max_shared
        );
        let diagnostic =
            Diagnostic::new(Span::NONE, message).help("use smaller tiles or fewer stages");
        return Err(Diagnostic { kernel: kernel.name.clone(), ..diagnostic });
    }
    Ok(())
}

fn check(kernel: &Kernel) -> Result<(), Diagnostic> {
    let fail = |span: Span, message: String, help: &str| {
        Err(Diagnostic { kernel: kernel.name.clone(), ..Diagnostic::new(span, message).help(help) })
    };
    let threads = kernel.launch.threads;
    if !threads.is_multiple_of(32) || threads > 1024 {
        let message =
            format!("a block has {threads} threads, expected a multiple of 32 up to 1024");
        return fail(Span::NONE, message, "change the schedule");
    }
    for param in &kernel.params {
        if matches!(param.kind, ParamKind::Activations { kind: ActivationKind::Int8, .. }) {
            let message = format!(
                "`{}` holds int8 activations, which GPU targets do not take yet",
                param.name
            );
            return fail(param.span, message, "use f16, bf16 or f32 activations for this target");
        }
    }
    let mut found = None;
    kernel.body.walk(&mut |op| {
        if found.is_none() && matches!(op.kind, OpKind::QuantizeStore { .. }) {
            found = Some(op.span);
        }
    });
    match found {
        Some(span) => fail(
            span,
            "GPU targets do not quantise activations yet".into(),
            "store floats for this target",
        ),
        None => Ok(()),
    }
}

/// Whether a map reads `input` only at the point it stands at.
pub(crate) fn is_identity(kernel: &Kernel, map: &Map, input: &iron_core::ir::MapInput) -> bool {
    input.axes.iter().copied().eq(0..map.space.len() as u32)
        && kernel.ty(input.value).shape() == map.space
}

/// How the points of a map are spread over threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Linear order.
    Blocked(Vec<u32>),
    /// Elements of an accumulator `[m, n]`.
    Fragment(Vec<u32>),
}

/// The domain of a map, given the storage of its tiles.
pub(crate) fn domain(kernel: &Kernel, map: &Map, results: &[Value]) -> Domain {
    let fragment = |value: Value| kernel.info(value).storage == Some(Storage::Fragment);
    let reads = map.inputs.iter().any(|input| fragment(input.value));
    if reads || results.iter().any(|result| fragment(*result)) {
        Domain::Fragment(map.space.clone())
    } else {
        Domain::Blocked(map.space.clone())
    }
}

/// The type in which the matrix unit takes its operands.
///
/// Memory decides: two operands of one 16-bit type keep it, a computed tile or packed weights follow the other operand,
/// and everything else is multiplied in f32 (without tensor cores on CUDA).
pub(crate) fn operand_dtype(kernel: &Kernel, a: &DotOperand, b: &DotOperand) -> DType {
    let wanted = |operand: &DotOperand| match operand {
        DotOperand::Tile(_) => None,
        DotOperand::Memory(tile) => match &kernel.params[tile.tensor as usize].kind {
            ParamKind::Tensor { dtype, .. }
            | ParamKind::Activations { kind: ActivationKind::Plain(dtype), .. } => Some(*dtype),
            ParamKind::Quantized { format, .. } => match format {
                Format::F32 => Some(DType::F32),
                Format::F16 => Some(DType::F16),
                Format::BF16 => Some(DType::BF16),
                _ => None,
            },
            ParamKind::Activations { .. } | ParamKind::Scalar(_) => Some(DType::F32),
        },
    };
    let chosen = match (wanted(a), wanted(b)) {
        (Some(a), Some(b)) if a == b => a,
        (Some(one), None) | (None, Some(one)) => one,
        _ => DType::F32,
    };
    if matches!(chosen, DType::F16 | DType::BF16) { chosen } else { DType::F32 }
}

/// A dot operand staged in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Extents padded to whole matrix steps.
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    /// Distance between rows in elements: 16 bytes more than a row, against bank conflicts.
    pub(crate) pitch: u32,
    /// Offset in the scratch area in bytes.
    pub(crate) offset: u32,
}

/// The staged operands of a dot and the scratch bytes they take.
pub(crate) fn stages(
    machine: Machine,
    dtype: DType,
    m: u32,
    n: u32,
    k: u32,
) -> (Stage, Stage, u32) {
    let size = dtype.size() as u32;
    let cols = k.next_multiple_of(machine.step_k);
    let pitch = cols + 16 / size;
    let a = Stage { rows: m.next_multiple_of(Machine::STEP_M), cols, pitch, offset: 0 };
    let offset = (a.rows * pitch * size).next_multiple_of(16);
    let b = Stage { rows: n.next_multiple_of(machine.step_n), cols, pitch, offset };
    (a, b, offset + (b.rows * pitch * size).next_multiple_of(16))
}

/// Offsets in the scratch area of a map's reductions, one entry per output, and the bytes they take.
pub(crate) fn reduction_scratch(kernel: &Kernel, map: &Map, results: &[Value]) -> (Vec<u32>, u32) {
    let mut offsets = Vec::new();
    let mut total = 0;
    for (output, result) in map.outputs.iter().zip(results) {
        offsets.push(total);
        if matches!(output, MapOutput::Reduce { .. }) {
            let ty = kernel.ty(*result);
            let warps = kernel.launch.threads / 32;
            let count = match (ty.is_scalar(), warps) {
                (true, 1) => 0,
                (true, _) => warps,
                (false, _) => map.space.iter().product(),
            };
            let size = ty.dtype().map_or(4, DType::size) as u32;
            total += (count * size).next_multiple_of(16);
        }
    }
    (offsets, total)
}

fn scratch_bytes(kernel: &Kernel, op: &Op, machine: Machine) -> u32 {
    match &op.kind {
        OpKind::Map(map) => reduction_scratch(kernel, map, &op.results).1,
        OpKind::DotTile { a, b, acc, k } => {
            let shape = kernel.ty(*acc).shape();
            stages(machine, operand_dtype(kernel, a, b), shape[0], shape[1], *k).2
        }
        _ => 0,
    }
}

/// How a block's shared memory is divided: buffers in ascending order, then one scratch area for staged operands and
/// reductions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLayout {
    /// Offset of each buffer in bytes.
    pub buffers: BTreeMap<u32, u32>,
    /// Offset of the scratch area.
    pub scratch: u32,
    /// All bytes.
    pub total: u32,
}

impl SharedLayout {
    /// The layout of a scheduled kernel.
    pub fn of(kernel: &Kernel, machine: Machine) -> Self {
        let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
        for info in &kernel.values {
            if let (Some(Storage::Shared), Some(buffer)) = (info.storage, info.buffer) {
                let elements: u32 = info.ty.shape().iter().product();
                let bytes = elements * info.ty.dtype().map_or(4, DType::size) as u32;
                let size = sizes.entry(buffer).or_default();
                *size = (*size).max(bytes.next_multiple_of(16));
            }
        }
        let mut layout = Self::default();
        for (buffer, size) in sizes {
            layout.buffers.insert(buffer, layout.scratch);
            layout.scratch += size;
        }
        let mut scratch = 0;
        kernel.body.walk(&mut |op| scratch = scratch.max(scratch_bytes(kernel, op, machine)));
        layout.total = layout.scratch + scratch;
        layout
    }
}
