//! `iron list`.

use std::fmt::Write as _;

use iron_codegen::Target;

use crate::catalog;
use crate::{Error, print};

pub(crate) fn run(kernel: Option<&str>, targets: &[Target]) -> Result<(), Error> {
    match kernel {
        Some(kernel) => instances(kernel, targets),
        None => kernels(targets),
    }
}

/// One line a kernel: its name, its generics, its instances per target, what it computes.
fn kernels(targets: &[Target]) -> Result<(), Error> {
    let plans =
        targets.iter().map(|target| catalog::plan(*target, None)).collect::<Result<Vec<_>, _>>()?;
    let mut text = String::new();
    for function in iron_std::functions().into_iter().filter(|it| catalog::is_kernel(it)) {
        let generics: Vec<&str> = function.generics.iter().map(|generic| generic.name).collect();
        let name = if generics.is_empty() {
            function.name.to_owned()
        } else {
            format!("{}<{}>", function.name, generics.join(", "))
        };
        let counts: Vec<String> = targets
            .iter()
            .zip(&plans)
            .map(|(target, plan)| {
                let count = catalog::schedules(plan)
                    .filter(|it| it.instance.function.name == function.name)
                    .count();
                format!("{} {count:3}", target.name())
            })
            .collect();
        let _ = writeln!(text, "{name:20} {}  {}", counts.join("  "), summary(function.docs));
    }
    print(&text)
}

/// The first sentence of a doc comment, without the paper it names.
fn summary(docs: &str) -> &str {
    let line = docs.lines().next().unwrap_or_default();
    let end = line.find(" ([").into_iter().chain(line.find(". ")).min();
    line[..end.unwrap_or(line.len())].trim_end_matches('.')
}

/// One line an instance: its name and when its schedule is chosen.
fn instances(kernel: &str, targets: &[Target]) -> Result<(), Error> {
    let mut text = String::new();
    for target in targets {
        let plan = catalog::plan(*target, Some(kernel))?;
        for schedule in catalog::schedules(&plan) {
            let mut when: Vec<String> =
                schedule.limits.iter().map(|(dim, limit)| format!("{dim} <= {limit}")).collect();
            when.extend(schedule.when.as_ref().map(ToString::to_string));
            let when = if when.is_empty() { "otherwise".to_owned() } else { when.join(" && ") };
            let name = schedule.instance.name();
            let _ = writeln!(text, "{:5}  {name:36} {when}", target.name());
        }
    }
    print(&text)
}
