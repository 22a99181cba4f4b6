//! `manifest.json`: what a host needs to launch every compiled kernel.

use iron_core::DType;
use iron_core::ir::{ActivationKind, DimExpr, Kernel, ParamKind};
use serde_json::{Value, json};

use super::plan::PlannedSchedule;
use crate::target::Target;

/// A planned schedule and what became of it.
#[derive(Debug)]
pub struct Compiled<'p> {
    /// What was asked for.
    pub planned: &'p PlannedSchedule,
    /// After the last pass.
    pub kernel: Kernel,
    /// The target's text.
    pub text: String,
}

/// The manifest of one target: an entry for every compiled kernel.
pub fn manifest(target: Target, compiled: &[Compiled<'_>]) -> Value {
    let kernels: Vec<Value> = compiled.iter().map(|it| entry(target, it)).collect();
    json!({ "target": target.name(), "arch": target.arch(), "count": kernels.len(), "kernels": kernels })
}

fn entry(target: Target, compiled: &Compiled<'_>) -> Value {
    let (schedule, kernel) = (compiled.planned, &compiled.kernel);
    let function = schedule.instance.function;
    let native = function.native.iter().find(|(name, _)| *name == target.name());
    let extent = |expr: &DimExpr| extent(expr, &kernel.dims);
    let params: Vec<Value> = kernel
        .params
        .iter()
        .map(|param| {
            let mut described = match &param.kind {
                ParamKind::Tensor { dtype, mutable, .. } => {
                    json!({ "kind": "tensor", "dtype": dtype.name(), "mutable": mutable })
                }
                ParamKind::Quantized { format, .. } => {
                    json!({ "kind": "quantized", "format": format.name() })
                }
                ParamKind::Activations { kind, mutable, .. } => {
                    json!({ "kind": "activations", "activation": kind.name(), "mutable": mutable })
                }
                ParamKind::Scalar(dtype) => json!({ "kind": "scalar", "dtype": dtype.name() }),
            };
            described["name"] = json!(param.name);
            let shape: Vec<String> = param.kind.shape().iter().map(extent).collect();
            if !shape.is_empty() {
                let (alignment, multiple) = layout(target, &param.kind);
                described["shape"] = json!(shape);
                described["alignment"] = json!(alignment);
                described["last_axis_multiple_of"] = json!(multiple);
            }
            described
        })
        .collect();
    let mut when: Vec<String> =
        schedule.limits.iter().map(|(dim, limit)| format!("{dim} <= {limit}")).collect();
    when.extend(schedule.when.as_ref().map(ToString::to_string));
    json!({
        "name": schedule.instance.name(),
        "kernel": schedule.instance.function.name,
        "schedule": schedule.instance.schedule,
        "bindings": schedule.instance.bindings.iter().map(|binding| binding.name()).collect::<Vec<_>>(),
        "constants": schedule.instance.constants,
        "when": when.join(" && "),
        "dims": kernel.dims,
        "params": params,
        "grid": kernel.grid.iter().map(extent).collect::<Vec<_>>(),
        "threads": kernel.launch.threads,
        "shared_bytes": kernel.launch.shared_bytes,
        "stages": kernel.launch.stages,
        "source": native.map_or_else(|| "generated".to_owned(), |(_, path)| format!("native: {path}")),
        "hash": format!("{:016x}", fnv(compiled.text.as_bytes())),
    })
}

/// The bytes that a parameter's address is a multiple of, and the values that its last axis is.
fn layout(target: Target, kind: &ParamKind) -> (usize, usize) {
    match kind {
        ParamKind::Tensor { dtype, .. }
        | ParamKind::Activations { kind: ActivationKind::Plain(dtype), .. }
        | ParamKind::Scalar(dtype) => (dtype.size(), 1),
        // Scales and sums of 32 values are floats of their own.
        ParamKind::Activations { kind: ActivationKind::Int8, .. } => (DType::F32.size(), 32),
        ParamKind::Quantized { format, .. } if format.is_dense() => (format.block_bytes(), 1),
        // The CPU packs blocks into cache lines; elsewhere they are read byte by byte.
        ParamKind::Quantized { format, .. } => {
            (if target == Target::Cpu { 64 } else { 1 }, format.block())
        }
    }
}

fn extent(expr: &DimExpr, dims: &[String]) -> String {
    use iron_core::ir::DimOp;
    match expr {
        DimExpr::Const(value) => value.to_string(),
        DimExpr::Dim(index) => dims[*index as usize].clone(),
        DimExpr::Op(op, a, b) => {
            let (a, b) = (extent(a, dims), extent(b, dims));
            match op {
                DimOp::Add => format!("({a} + {b})"),
                DimOp::Sub => format!("({a} - {b})"),
                DimOp::Mul => format!("{a} * {b}"),
                DimOp::Div => format!("{a} / {b}"),
                DimOp::DivCeil => format!("{a}.div_ceil({b})"),
                DimOp::Min => format!("{a}.min({b})"),
                DimOp::Max => format!("{a}.max({b})"),
            }
        }
    }
}

/// FNV-1a over 64 bits: tells texts apart, guards against nothing.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
