//! The plan of a build: every kernel, instance and schedule that will be compiled.

use std::collections::BTreeMap;

use iron_core::ir::{ActivationKind, DimExpr, Kernel};
use iron_core::predicate::Predicate;
use iron_core::syntax::{Bound, Function};
use iron_core::tuning::Tuning;
use iron_core::{DType, Diagnostic, Format};

use crate::compile::{Options, Pass, compile_cpu};
use crate::instance::{Binding, Instance};
use crate::passes::typecheck::Library;

/// Everything that a build compiles, in the order of the instance list.
#[derive(Debug)]
pub struct Plan {
    /// Kernels.
    pub kernels: Vec<PlannedKernel>,
}

/// A kernel and its instances.
#[derive(Debug)]
pub struct PlannedKernel {
    /// The source.
    pub function: &'static Function,
    /// One per choice of bindings.
    pub instances: Vec<PlannedInstance>,
}

/// One choice of bindings and the schedules it is compiled with.
#[derive(Debug)]
pub struct PlannedInstance {
    /// One per generic.
    pub bindings: Vec<Binding>,
    /// Tried in order.
    pub schedules: Vec<PlannedSchedule>,
}

/// One instance with one schedule.
#[derive(Debug)]
pub struct PlannedSchedule {
    /// What to compile.
    pub instance: Instance,
    /// When to use it; `None`: always.
    pub when: Option<Predicate>,
    /// Bounds that variants put on dimensions: `head_dim <= 64`.
    pub limits: Vec<(String, i64)>,
    /// The type-checked kernel, for its dimensions, parameters and grid.
    pub kernel: Kernel,
}

/// A fault in the instance list or a kernel.
#[derive(Debug)]
pub enum PlanError {
    /// The list names what does not exist.
    List(String),
    /// A kernel does not type-check.
    Kernel(Diagnostic),
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::List(message) => f.write_str(message),
            Self::Kernel(diagnostic) => diagnostic.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// Plans the kernels of `list` for one target's `tuning`.
    pub fn new(
        functions: &[&'static Function],
        list: &[(&str, &[&[&str]])],
        tuning: &Tuning,
    ) -> Result<Self, PlanError> {
        let library: Library =
            functions.iter().map(|function| (function.name, *function)).collect();
        let mut kernels = Vec::new();
        for (name, choices) in list {
            let function = library.get(name).copied().ok_or_else(|| {
                PlanError::List(format!("the instance list names `{name}`, which is no kernel"))
            })?;
            let instances = choices
                .iter()
                .map(|choice| instance(function, choice, tuning, &library))
                .collect::<Result<Vec<_>, _>>()?;
            kernels.push(PlannedKernel { function, instances });
        }
        Ok(Self { kernels })
    }

    /// Number of compiled functions: instances times their schedules.
    pub fn count(&self) -> usize {
        self.kernels
            .iter()
            .flat_map(|kernel| &kernel.instances)
            .map(|instance| instance.schedules.len())
            .sum()
    }
}

fn instance(
    function: &'static Function,
    names: &[&str],
    tuning: &Tuning,
    library: &Library,
) -> Result<PlannedInstance, PlanError> {
    let fault = |message: String| {
        PlanError::List(format!("{} [{}]: {message}", function.name, names.join(", ")))
    };
    if names.len() != function.generics.len() {
        return Err(fault(format!("has {} generics", function.generics.len())));
    }
    let mut bindings = Vec::new();
    let mut pairs = Vec::new();
    for (generic, name) in function.generics.iter().zip(names) {
        let binding = parse_binding(generic.bound, name)
            .ok_or_else(|| fault(format!("`{name}` is no {:?}", generic.bound)))?;
        bindings.push(binding);
        pairs.push((generic.name, *name));
    }
    let mut schedules = Vec::new();
    for variants in variant_choices(function) {
        for schedule in tuning.schedules(function.name, &pairs) {
            let mut constants: BTreeMap<String, i64> = schedule.constants.clone();
            constants.extend(variants.iter().map(|(name, value)| (name.clone(), *value)));
            // Constants may settle a condition: `HEAD_DIM <= 128` is no schedule of the other sizes.
            let lookup = |name: &str| constants.get(name).copied();
            let when = schedule.when.as_ref().map(|when| when.bind(&lookup));
            if when.as_ref().is_some_and(never) {
                continue;
            }
            let when = when.filter(|when| *when != Predicate::Const(true));
            let mut schedule_name = schedule.name.clone();
            for (name, value) in &variants {
                if is_varied(function, name) {
                    schedule_name.push('_');
                    schedule_name.push_str(&value.to_string());
                }
            }
            let planned = Instance {
                function,
                bindings: bindings.clone(),
                constants,
                schedule: schedule_name,
                threads: schedule.threads,
                stages: schedule.stages,
            };
            let options = Options { until: Some(Pass::TypeCheck), ..Options::default() };
            let kernel = compile_cpu(&planned, library, &options).map_err(PlanError::Kernel)?;
            let limits = variants
                .iter()
                .filter(|(name, _)| kernel.dims.contains(&name.to_lowercase()))
                .map(|(name, value)| (name.to_lowercase(), *value))
                .collect();
            let always = when.is_none();
            schedules.push(PlannedSchedule { instance: planned, when, limits, kernel });
            // Later schedules of these variants would never be tried.
            if always {
                break;
            }
        }
    }
    if schedules.is_empty() {
        return Err(fault("has no schedule in the tuning file".to_owned()));
    }
    Ok(PlannedInstance { bindings, schedules })
}

fn never(when: &Predicate) -> bool {
    match when {
        Predicate::Const(truth) => !truth,
        Predicate::And(a, b) => never(a) || never(b),
        Predicate::Or(a, b) => never(a) && never(b),
        Predicate::Compare(..) | Predicate::Not(_) => false,
    }
}

fn parse_binding(bound: Bound, name: &str) -> Option<Binding> {
    match bound {
        Bound::Float | Bound::Int => DType::parse(name).map(Binding::DType),
        Bound::Format => Format::parse(name).map(Binding::Format),
        Bound::Activation if name == "int8" => Some(Binding::Activation(ActivationKind::Int8)),
        Bound::Activation => {
            DType::parse(name).map(|dtype| Binding::Activation(ActivationKind::Plain(dtype)))
        }
    }
    .filter(|binding| binding.satisfies(bound))
}

/// Whether a variant has more than one value, so that it belongs in the schedule's name.
fn is_varied(function: &Function, name: &str) -> bool {
    function.variants.iter().any(|variant| variant.name == name && variant.values.len() > 1)
}

/// Every combination of variant values, the smallest first, so that the tightest one that fits is tried first.
fn variant_choices(function: &Function) -> Vec<Vec<(String, i64)>> {
    let mut choices = vec![Vec::new()];
    for variant in function.variants {
        choices = choices
            .into_iter()
            .flat_map(|choice: Vec<(String, i64)>| {
                variant.values.iter().map(move |value| {
                    let mut choice = choice.clone();
                    choice.push((variant.name.to_owned(), i64::from(*value)));
                    choice
                })
            })
            .collect();
    }
    choices
}

/// Whether two kernels agree on what the host must know: dimensions, parameters, shapes.
pub(super) fn same_contract(a: &Kernel, b: &Kernel) -> bool {
    let shapes = |kernel: &Kernel| -> Vec<Vec<DimExpr>> {
        kernel.params.iter().map(|param| param.kind.shape().to_vec()).collect()
    };
    a.dims == b.dims && shapes(a) == shapes(b) && a.grid.len() == b.grid.len()
}
