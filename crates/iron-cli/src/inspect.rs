//! `iron inspect`.

use iron_codegen::Target;
use iron_codegen::compile::{Options, Pass};
use iron_codegen::emit::PlannedSchedule;
use iron_core::render;

use crate::catalog;
use crate::{Error, InspectArgs, print};

pub(crate) fn run(args: &InspectArgs) -> Result<(), Error> {
    let gpu = args.target != Target::Cpu;
    let asked = args.pass.iter().chain(&args.without);
    if gpu && asked.clone().any(|pass| *pass == Pass::Vectorize) {
        return Err(format!(
            "error: {} has threads instead of vectors: no vectorize pass runs\n  = help: `--pass schedule` is the last stage",
            args.target.name()
        ));
    }
    if gpu && args.without.contains(&Pass::Schedule) {
        return Err(format!(
            "error: {} cannot do without schedule, which decides what each thread does",
            args.target.name()
        ));
    }
    // An instance's name begins with its kernel's.
    let functions = iron_std::functions();
    let kernel = functions
        .iter()
        .map(|function| function.name)
        .filter(|name| args.kernel == *name || args.kernel.starts_with(&format!("{name}_")))
        .max_by_key(|name| name.len())
        .ok_or_else(|| catalog::unknown(&args.kernel))?;
    let plan = catalog::plan(args.target, Some(kernel))?;
    let candidates: Vec<&PlannedSchedule> =
        catalog::schedules(&plan).filter(|schedule| fits(args, kernel, schedule)).collect();
    let schedule = match candidates[..] {
        [one] => one,
        [] => {
            let all: Vec<&PlannedSchedule> = catalog::schedules(&plan).collect();
            return Err(choose("no instance is", args, &all));
        }
        _ => return Err(choose(&format!("{} instances are", candidates.len()), args, &candidates)),
    };
    let options = Options { until: args.pass, without: args.without.clone(), ..Options::default() };
    let mut kernel = args
        .target
        .compile(&schedule.instance, &catalog::library(), &options)
        .map_err(|fault| render(&fault))?;
    if args.pass.is_some() {
        kernel.compact();
    }
    let text = match args.pass {
        Some(_) if args.spans => kernel.text_with_spans(),
        Some(_) => kernel.to_string(),
        None => args.target.emit(&kernel).map_err(|fault| render(&fault))?,
    };
    print(&text)
}

fn fits(args: &InspectArgs, kernel: &str, schedule: &PlannedSchedule) -> bool {
    let instance = &schedule.instance;
    let named =
        args.kernel == kernel || args.kernel == instance.stem() || args.kernel == instance.name();
    let bindings: Vec<&str> = instance.bindings.iter().map(|binding| binding.name()).collect();
    let bound = args.bindings.is_empty() || args.bindings == bindings;
    named && bound && args.schedule.as_ref().is_none_or(|name| *name == instance.schedule)
}

fn choose(what: &str, args: &InspectArgs, instances: &[&PlannedSchedule]) -> Error {
    let mut asked = format!("`{}`", args.kernel);
    if !args.bindings.is_empty() {
        asked.push_str(&format!(" with bindings {}", args.bindings.join(",")));
    }
    if let Some(schedule) = &args.schedule {
        asked.push_str(&format!(" and schedule {schedule}"));
    }
    let names: Vec<String> =
        instances.iter().map(|schedule| format!("    {}", schedule.instance.name())).collect();
    format!(
        "error: {what} {asked} on {}\n  = help: name one, or narrow it down with --bindings and --schedule:\n{}",
        args.target.name(),
        names.join("\n")
    )
}
