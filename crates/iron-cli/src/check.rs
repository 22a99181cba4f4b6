//! `iron check`.

use iron_codegen::Target;
use iron_codegen::compile::Options;
use iron_core::render;

use crate::catalog;
use crate::{Error, print};

pub(crate) fn run(kernel: Option<&str>, targets: &[Target]) -> Result<(), Error> {
    let library = catalog::library();
    let options = Options { verify: true, ..Options::default() };
    let mut faults: Vec<Error> = Vec::new();
    for target in targets {
        let plan = catalog::plan(*target, kernel)?;
        let (mut count, before) = (0, faults.len());
        for schedule in catalog::schedules(&plan) {
            count += 1;
            let compiled = target.compile(&schedule.instance, &library, &options);
            if let Err(mut fault) = compiled.and_then(|kernel| target.emit(&kernel)) {
                if fault.kernel.is_empty() {
                    fault.kernel = schedule.instance.name();
                }
                faults.push(format!("{} ", target.name()) + &render(&fault));
            }
        }
        let budget = catalog::budget(*target);
        let faulty = faults.len() - before;
        let verdict = if faulty == 0 { "all sound".to_owned() } else { format!("{faulty} faulty") };
        print(&format!("{:5}  {count:4} instances of {budget}: {verdict}\n", target.name()))?;
        if count > budget {
            faults.push(format!(
                "error: {} has {count} instances, its budget is {budget}\n  = help: drop some, or raise BUDGET in iron-std/src/instances.rs\n",
                target.name()
            ));
        }
    }
    print(&excluded(kernel, targets))?;
    print(&native(kernel))?;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The instances that the list leaves out of a target.
fn excluded(kernel: Option<&str>, targets: &[Target]) -> String {
    let mut text = String::new();
    for target in targets {
        let names = catalog::excluded(*target);
        for name in names.iter().filter(|name| kernel.is_none_or(|it| name.starts_with(it))) {
            text.push_str(&format!("excluded {name}: {} cannot run it\n", target.name()));
        }
    }
    text
}

/// The hand-written texts that stand in for generated ones.
fn native(kernel: Option<&str>) -> String {
    let mut text = String::new();
    for function in iron_std::functions() {
        if kernel.is_some_and(|kernel| kernel != function.name) {
            continue;
        }
        for (target, path) in function.native {
            text.push_str(&format!("native {}: {target} runs {path}\n", function.name));
        }
    }
    if text.is_empty() { "native  none: every text is generated\n".to_owned() } else { text }
}
