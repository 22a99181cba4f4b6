//! `manifest.json`: what a host needs to launch every compiled kernel.

use iron_core::ir::{DimExpr, ParamKind};
use serde_json::{Value, json};

use super::plan::{Plan, PlannedSchedule};

/// The manifest of `plan` for one target.
pub fn manifest(plan: &Plan, target: &str) -> Value {
    let kernels: Vec<Value> = plan
        .kernels
        .iter()
        .flat_map(|kernel| &kernel.instances)
        .flat_map(|instance| &instance.schedules)
        .map(entry)
        .collect();
    json!({ "version": 1, "target": target, "count": kernels.len(), "kernels": kernels })
}

fn entry(schedule: &PlannedSchedule) -> Value {
    let kernel = &schedule.kernel;
    let extent = |expr: &DimExpr| extent(expr, &kernel.dims);
    let params: Vec<Value> = kernel
        .params
        .iter()
        .map(|param| {
            let shape: Vec<String> = param.kind.shape().iter().map(extent).collect();
            match &param.kind {
                ParamKind::Tensor { dtype, mutable, .. } => {
                    json!({ "name": param.name, "kind": "tensor", "dtype": dtype.name(), "shape": shape, "mutable": mutable })
                }
                ParamKind::Quantized { format, .. } => {
                    json!({ "name": param.name, "kind": "quantized", "format": format.name(), "shape": shape })
                }
                ParamKind::Activations { kind, mutable, .. } => {
                    json!({ "name": param.name, "kind": "activations", "activation": kind.name(), "shape": shape, "mutable": mutable })
                }
                ParamKind::Scalar(dtype) => json!({ "name": param.name, "kind": "scalar", "dtype": dtype.name() }),
            }
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
        "source": "generated",
    })
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
