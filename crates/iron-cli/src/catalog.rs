//! The kernels of iron-std and what is compiled of them for each target.

use iron_codegen::Target;
use iron_codegen::emit::{Plan, PlanError, PlannedSchedule};
use iron_codegen::passes::typecheck::Library;
use iron_core::render;
use iron_core::syntax::Function;
use iron_core::tuning::Tuning;

use crate::Error;

/// Kernels and helpers by name.
pub(crate) fn library() -> Library {
    iron_std::functions().into_iter().map(|function| (function.name, function)).collect()
}

/// The plan for one target; `kernel` limits it to one kernel.
pub(crate) fn plan(target: Target, kernel: Option<&str>) -> Result<Plan, Error> {
    let (list, tuning) = match target {
        Target::Cpu => (iron_std::INSTANCES, iron_std::TUNING_CPU),
        Target::Cuda => (iron_std::INSTANCES_GPU, iron_std::TUNING_CUDA),
        Target::Metal => (iron_std::INSTANCES_GPU, iron_std::TUNING_METAL),
    };
    let tuning = Tuning::parse(tuning)
        .map_err(|fault| format!("error: tuning/{}.toml, {fault}", target.name()))?;
    let chosen: Vec<_> = list
        .iter()
        .copied()
        .filter(|(name, _)| kernel.is_none_or(|kernel| kernel == *name))
        .collect();
    if chosen.is_empty() {
        return Err(unknown(kernel.unwrap_or_default()));
    }
    let mut plan =
        Plan::new(&iron_std::functions(), &chosen, &tuning).map_err(|fault| match fault {
            PlanError::Kernel(diagnostic) => render(&diagnostic),
            PlanError::List(message) => {
                format!("error: {} instance list: {message}", target.name())
            }
        })?;
    let excluded = excluded(target);
    for instance in plan.kernels.iter_mut().flat_map(|kernel| &mut kernel.instances) {
        instance.schedules.retain(|it| !excluded.contains(&it.instance.name().as_str()));
    }
    Ok(plan)
}

/// Names of the instances that `target` cannot run.
pub(crate) fn excluded(target: Target) -> &'static [&'static str] {
    let entry = iron_std::EXCLUDED.iter().find(|(name, _)| *name == target.name());
    entry.map_or(&[], |(_, names)| names)
}

/// Every function that `plan` compiles.
pub(crate) fn schedules(plan: &Plan) -> impl Iterator<Item = &PlannedSchedule> {
    plan.kernels.iter().flat_map(|kernel| &kernel.instances).flat_map(|it| &it.schedules)
}

/// The most functions that `target` may have.
pub(crate) fn budget(target: Target) -> usize {
    let entry = iron_std::BUDGET.iter().find(|(name, _)| *name == target.name());
    entry.map_or(usize::MAX, |(_, budget)| *budget)
}

/// The error for a name that is no kernel.
pub(crate) fn unknown(name: &str) -> Error {
    let functions = iron_std::functions();
    if functions.iter().any(|function| function.name == name && function.grid.is_empty()) {
        return format!(
            "error: `{name}` is a helper: it is compiled inside the kernels that call it"
        );
    }
    let kernels: Vec<&str> =
        functions.iter().filter(|it| is_kernel(it)).map(|it| it.name).collect();
    format!("error: no kernel `{name}`\n  = help: kernels: {}", kernels.join(", "))
}

/// Whether a function is launched, not inlined.
pub(crate) fn is_kernel(function: &Function) -> bool {
    !function.grid.is_empty()
}
