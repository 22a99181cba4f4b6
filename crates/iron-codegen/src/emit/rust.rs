//! The Rust crate of CPU kernels: functions, descriptors and typed wrappers.

use std::fmt::Write as _;

use iron_core::ir::{ActivationKind, DimExpr, DimOp, Kernel, ParamKind};
use iron_core::syntax::{Bound, Function, ParamType};
use iron_core::{DType, Diagnostic};

use super::plan::{Plan, PlannedKernel, PlannedSchedule, same_contract};
use crate::compile::{Options, compile_cpu};
use crate::instance::Binding;
use crate::passes::typecheck::Library;
use crate::target::cpu;

/// Prints the kernels of `plan` whose names `include` admits.
pub fn cpu_crate(
    plan: &Plan,
    library: &Library,
    include: &dyn Fn(&str) -> bool,
    options: &Options,
) -> Result<String, Diagnostic> {
    let mut text = String::from("// Generated from the kernels of iron-std.\n\n");
    for kernel in plan.kernels.iter().filter(|kernel| include(kernel.function.name)) {
        text.push_str(&kernel_module(kernel, library, options)?);
    }
    Ok(text)
}

fn kernel_module(
    kernel: &PlannedKernel,
    library: &Library,
    options: &Options,
) -> Result<String, Diagnostic> {
    let function = kernel.function;
    let name = function.name;
    let mut text = format!("mod {name} {{\n    use super::*;\n");
    for instance in &kernel.instances {
        for schedule in &instance.schedules {
            let compiled = compile_cpu(&schedule.instance, library, options)?;
            let source = cpu::emit(&compiled, &schedule.instance.name())?;
            text.push_str(&source);
        }
    }
    text.push_str("}\n\n");
    let first = &kernel.instances[0].schedules[0].kernel;
    let fault = |schedule: &PlannedSchedule| {
        Diagnostic::new(
            function.span,
            format!("`{}` has other shapes than the first instance", schedule.instance.name()),
        )
        .help(
            "a variant with several values cannot be part of a parameter's shape; use a dimension",
        )
    };
    for schedule in kernel.instances.iter().flat_map(|instance| &instance.schedules) {
        if !same_contract(first, &schedule.kernel) {
            return Err(fault(schedule));
        }
    }
    text.push_str(&descriptor(kernel, first));
    text.push_str(&wrapper(function));
    Ok(text)
}

fn descriptor(kernel: &PlannedKernel, first: &Kernel) -> String {
    let function = kernel.function;
    let mut text =
        format!("/// The contract and the compiled instances of [`{}()`].\n", function.name);
    let _ = writeln!(
        text,
        "pub static {}: KernelDescriptor = KernelDescriptor {{",
        function.name.to_uppercase()
    );
    let _ = writeln!(text, "    name: {:?},\n    dims: &{:?},", function.name, first.dims);
    text.push_str("    params: &[\n");
    for (param, declared) in first.params.iter().zip(function.params) {
        let _ = writeln!(
            text,
            "        ParamDescriptor {{ name: {:?}, kind: {} }},",
            param.name,
            param_kind(function, &param.kind, &declared.ty)
        );
    }
    text.push_str("    ],\n");
    let generics: Vec<&str> = function.generics.iter().map(|generic| generic.name).collect();
    let _ = writeln!(text, "    generics: &{generics:?},\n    instances: &[");
    for instance in &kernel.instances {
        let bindings: Vec<String> =
            instance.bindings.iter().map(|binding| binding_text(*binding)).collect();
        let _ = writeln!(
            text,
            "        InstanceDescriptor {{ bindings: &[{}], schedules: &[",
            bindings.join(", ")
        );
        for schedule in &instance.schedules {
            let _ = writeln!(
                text,
                "            ScheduleDescriptor {{ name: {:?}, when: |d| {}, grid: |d| {}, cpu: {{ use {}::{}; cpu_entries!({}) }}, cuda: None, metal: None }},",
                schedule.instance.schedule,
                predicate(schedule),
                grid(&schedule.kernel),
                function.name,
                schedule.instance.name(),
                schedule.instance.name(),
            );
        }
        text.push_str("        ] },\n");
    }
    text.push_str("    ],\n};\n\n");
    text
}

fn predicate(schedule: &PlannedSchedule) -> String {
    let dims = &schedule.kernel.dims;
    let mut conditions: Vec<String> = schedule
        .limits
        .iter()
        .filter_map(|(dim, limit)| {
            dims.iter().position(|name| name == dim).map(|at| format!("d[{at}] <= {limit}"))
        })
        .collect();
    if let Some(when) = &schedule.when {
        match when.to_rust(dims) {
            Ok(condition) => conditions.push(format!("({condition})")),
            // Shown by rustc at the generated line; the name tells what is wrong.
            Err(unknown) => conditions.push(format!(
                "compile_error!({:?})",
                format!("{}: {unknown:?}", schedule.instance.name())
            )),
        }
    }
    if conditions.is_empty() { "{ let _ = d; true }".to_owned() } else { conditions.join(" && ") }
}

fn grid(kernel: &Kernel) -> String {
    let mut axes: Vec<String> = kernel.grid.iter().map(dim_expr).collect();
    axes.resize(3, "1".to_owned());
    format!("{{ let _ = d; [{}] }}", axes.join(", "))
}

fn dim_expr(expr: &DimExpr) -> String {
    match expr {
        DimExpr::Const(value) => format!("{value}_i64"),
        DimExpr::Dim(index) => format!("d[{index}]"),
        DimExpr::Op(op, a, b) => {
            let (a, b) = (dim_expr(a), dim_expr(b));
            match op {
                DimOp::Add => format!("({a} + {b})"),
                DimOp::Sub => format!("({a} - {b})"),
                DimOp::Mul => format!("({a} * {b})"),
                DimOp::Div => format!("({a}).checked_div({b}).unwrap_or(0)"),
                DimOp::DivCeil => format!("({a} + {b} - 1).checked_div({b}).unwrap_or(0)"),
                DimOp::Min => format!("({a}).min({b})"),
                DimOp::Max => format!("({a}).max({b})"),
            }
        }
    }
}

fn shape(shape: &[DimExpr]) -> String {
    let axes: Vec<String> = shape
        .iter()
        .map(|extent| match extent {
            DimExpr::Const(value) => format!("DimExpr::Const({value})"),
            DimExpr::Dim(index) => format!("DimExpr::Dim({index})"),
            computed @ DimExpr::Op(..) => format!("DimExpr::Computed(|d| {})", dim_expr(computed)),
        })
        .collect();
    format!("&[{}]", axes.join(", "))
}

fn param_kind(function: &Function, kind: &ParamKind, declared: &ParamType) -> String {
    let element = |name: &str, fixed: Binding| match function
        .generics
        .iter()
        .position(|generic| generic.name == name)
    {
        Some(index) => format!("Element::Generic({index})"),
        None => format!("Element::Fixed({})", binding_text(fixed)),
    };
    match (kind, declared) {
        (
            ParamKind::Tensor { dtype, shape: extents, mutable },
            ParamType::Tensor { element: name, .. },
        ) => format!(
            "ParamKind::Tensor {{ element: {}, shape: {}, mutable: {mutable} }}",
            element(name, Binding::DType(*dtype)),
            shape(extents)
        ),
        (
            ParamKind::Quantized { format, shape: extents },
            ParamType::Quantized { format: name, .. },
        ) => format!(
            "ParamKind::Quantized {{ element: {}, shape: {} }}",
            element(name, Binding::Format(*format)),
            shape(extents)
        ),
        (
            ParamKind::Activations { kind, shape: extents, mutable },
            ParamType::Activations { kind: name, .. },
        ) => format!(
            "ParamKind::Activations {{ element: {}, shape: {}, mutable: {mutable} }}",
            element(name, Binding::Activation(*kind)),
            shape(extents)
        ),
        (ParamKind::Scalar(dtype), _) => format!("ParamKind::Scalar(DType::{dtype:?})"),
        _ => unreachable!("TypeCheck keeps the kind of a parameter"),
    }
}

fn binding_text(binding: Binding) -> String {
    match binding {
        Binding::DType(dtype) => format!("Binding::DType(DType::{dtype:?})"),
        Binding::Format(format) => format!("Binding::Format(Format::{format:?})"),
        Binding::Activation(ActivationKind::Int8) => {
            "Binding::Activation(ActivationKind::Int8)".to_owned()
        }
        Binding::Activation(ActivationKind::Plain(dtype)) => {
            format!("Binding::Activation(ActivationKind::{dtype:?})")
        }
    }
}

/// The typed function that encodes a call.
fn wrapper(function: &Function) -> String {
    let mut text = String::new();
    for line in function.docs.lines() {
        let _ = writeln!(text, "/// {}", line.trim());
    }
    text.push_str("///\n/// # Errors\n///\n/// When an argument does not fit the contract: element type, shape or stride.\n///\n/// # Arguments\n///\n");
    for param in function.params {
        let _ = writeln!(text, "/// * `{}`: {}", param.name, describe(function, &param.ty));
    }
    let parameters: Vec<String> = function
        .params
        .iter()
        .map(|param| format!("{}: {}", param.name, rust_type(&param.ty)))
        .collect();
    let arguments: Vec<String> =
        function.params.iter().map(|param| argument(param.name, &param.ty)).collect();
    let _ = writeln!(
        text,
        "pub fn {}(cmd: &CommandBuffer, {}) -> Result<()> {{\n    cmd.encode(&{}, &[{}])\n}}\n",
        function.name,
        parameters.join(", "),
        function.name.to_uppercase(),
        arguments.join(", ")
    );
    text
}

fn rust_type(ty: &ParamType) -> String {
    match ty {
        ParamType::Tensor { .. } | ParamType::Value => "&Tensor".to_owned(),
        ParamType::Quantized { .. } => "&QuantizedTensor".to_owned(),
        ParamType::Activations { .. } => "&Activations".to_owned(),
        ParamType::Scalar(name) => (*name).to_owned(),
    }
}

fn argument(name: &str, ty: &ParamType) -> String {
    match ty {
        ParamType::Tensor { .. } | ParamType::Value => format!("Arg::Tensor({name})"),
        ParamType::Quantized { .. } => format!("Arg::Quantized({name})"),
        ParamType::Activations { .. } => format!("Arg::Activations({name})"),
        ParamType::Scalar(dtype) => match DType::parse(dtype) {
            Some(DType::I32) => format!("Arg::I32({name})"),
            Some(DType::U32) => format!("Arg::U32({name})"),
            _ => format!("Arg::F32({name})"),
        },
    }
}

fn describe(function: &Function, ty: &ParamType) -> String {
    let name = |name: &str| match function.generics.iter().find(|generic| generic.name == name) {
        Some(generic) => match generic.bound {
            Bound::Float => "floats".to_owned(),
            Bound::Int => "integers".to_owned(),
            Bound::Format => "any compiled format".to_owned(),
            Bound::Activation => "plain or int8".to_owned(),
        },
        None => name.to_owned(),
    };
    let extents =
        |shape: &[iron_core::syntax::Expr]| shape.iter().map(source).collect::<Vec<_>>().join(", ");
    match ty {
        ParamType::Tensor { element, shape, mutable } => {
            format!(
                "{}, `[{}]`{}",
                name(element),
                extents(shape),
                if *mutable { ", written" } else { "" }
            )
        }
        ParamType::Quantized { format, shape } => {
            format!("weights, {}, `[{}]`", name(format), extents(shape))
        }
        ParamType::Activations { kind, shape, mutable } => {
            format!(
                "activations, {}, `[{}]`{}",
                name(kind),
                extents(shape),
                if *mutable { ", written" } else { "" }
            )
        }
        ParamType::Scalar(dtype) => (*dtype).to_owned(),
        ParamType::Value => "any".to_owned(),
    }
}

fn source(expr: &iron_core::syntax::Expr) -> String {
    use iron_core::syntax::ExprKind;
    match &expr.kind {
        ExprKind::Int(value) => value.to_string(),
        ExprKind::Name(name) => (*name).to_owned(),
        ExprKind::Binary(op, a, b) => {
            let op = match op {
                iron_core::ir::BinaryOp::Add => "+",
                iron_core::ir::BinaryOp::Sub => "-",
                iron_core::ir::BinaryOp::Mul => "*",
                _ => "/",
            };
            format!("{} {op} {}", source(a), source(b))
        }
        _ => "..".to_owned(),
    }
}
