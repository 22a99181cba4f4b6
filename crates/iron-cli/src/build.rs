//! `iron build`.

use std::path::Path;

use iron_codegen::Target;
use iron_codegen::compile::Options;
use iron_codegen::emit::{Compiled, Plan, cpu_crate, manifest};
use iron_codegen::target::{cuda, metal};
use iron_core::ir::Kernel;
use iron_core::render;
use serde_json::json;

use crate::catalog;
use crate::{Emit, Error, print};

pub(crate) fn run(emit: &[Emit], out: &Path) -> Result<(), Error> {
    let wants = |what: Emit| emit.contains(&Emit::All) || emit.contains(&what);
    let mut folder = Folder { root: out, written: 0, unchanged: 0 };
    let mut manifests = Vec::new();
    let (mut over_budget, mut report) = (Vec::new(), String::new());
    for target in Target::ALL {
        let sources = match target {
            Target::Cpu => wants(Emit::Cpu),
            Target::Cuda => wants(Emit::Cuda),
            Target::Metal => wants(Emit::Metal),
        };
        if !sources && !wants(Emit::Manifest) {
            continue;
        }
        let plan = catalog::plan(target, None)?;
        let compiled = compile(target, &plan)?;
        let budget = catalog::budget(target);
        report.push_str(&format!(
            "{:5}  {:4} instances of {budget}\n",
            target.name(),
            compiled.len()
        ));
        if compiled.len() > budget {
            over_budget.push(target.name());
        }
        if sources {
            write_sources(target, &plan, &compiled, &mut folder)?;
        }
        manifests.push(manifest(target, &compiled));
    }
    // The manifest describes every target, so it is written only when every target was compiled.
    if wants(Emit::Manifest) {
        let text = serde_json::to_string_pretty(&json!({ "version": 1, "targets": manifests }));
        folder.write("manifest.json", &(text.map_err(|error| error.to_string())? + "\n"))?;
    }
    let Folder { written, unchanged, .. } = folder;
    print(&format!(
        "{report}{written} files written, {unchanged} unchanged in {}\n",
        out.display()
    ))?;
    if over_budget.is_empty() {
        return Ok(());
    }
    Err(format!(
        "error: over the instance budget: {}\n  = help: drop instances, or raise BUDGET in iron-std/src/instances.rs",
        over_budget.join(", ")
    ))
}

fn compile(target: Target, plan: &Plan) -> Result<Vec<Compiled<'_>>, Error> {
    let library = catalog::library();
    catalog::schedules(plan)
        .map(|planned| {
            let kernel = target.compile(&planned.instance, &library, &Options::default())?;
            let text = target.emit(&kernel)?;
            Ok(Compiled { planned, kernel, text })
        })
        .collect::<Result<_, _>>()
        .map_err(|fault| render(&fault))
}

/// One file a kernel for GPUs, with all its instances; one for the CPU, which also has the typed wrappers.
fn write_sources(
    target: Target,
    plan: &Plan,
    compiled: &[Compiled<'_>],
    folder: &mut Folder<'_>,
) -> Result<(), Error> {
    if target == Target::Cpu {
        let text = cpu_crate(plan, &catalog::library(), &|_| true, &Options::default())
            .map_err(|fault| render(&fault))?;
        return folder.write("cpu/kernels.rs", &text);
    }
    let (library, library_name, extension) = match target {
        Target::Metal => (metal::TILE_LIBRARY, "iron_tile.metal", "metal"),
        _ => (cuda::TILE_LIBRARY, "iron_tile.cuh", "cu"),
    };
    folder.write(&format!("kernels/{library_name}"), library)?;
    for kernel in &plan.kernels {
        let name = kernel.function.name;
        let instances: Vec<&Kernel> = compiled
            .iter()
            .filter(|it| it.planned.instance.function.name == name)
            .map(|it| &it.kernel)
            .collect();
        let text = match target {
            Target::Metal => metal::emit(&instances),
            _ => cuda::emit(&instances),
        };
        let text = text.map_err(|fault| render(&fault))?;
        folder.write(&format!("kernels/{name}.{extension}"), &text)?;
    }
    Ok(())
}

/// Where artefacts go; what is there already in the same words is not written again.
struct Folder<'a> {
    root: &'a Path,
    written: usize,
    unchanged: usize,
}

impl Folder<'_> {
    fn write(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.root.join(name);
        if std::fs::read_to_string(&path).is_ok_and(|current| current == text) {
            self.unchanged += 1;
            return Ok(());
        }
        let parent = path.parent().unwrap_or(self.root);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| format!("error: cannot write {}: {error}", path.display()))?;
        self.written += 1;
        Ok(())
    }
}
