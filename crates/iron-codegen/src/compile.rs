//! From an instance to a target's text: the six passes in order.

use iron_core::Diagnostic;
use iron_core::ir::Kernel;

use crate::instance::Instance;
use crate::passes::typecheck::{Library, typecheck};
use crate::passes::{const_fold, fusion, schedule, tile_lowering, vectorize};

/// The six passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Names, types and shapes.
    TypeCheck,
    /// Literals, equal and unused expressions.
    ConstFold,
    /// Tiles to maps and primitives.
    TileLowering,
    /// Maps to fewer maps.
    Fusion,
    /// Places, launch contract.
    Schedule,
    /// Vectors, fused multiply-add.
    Vectorize,
}

impl Pass {
    /// Every pass, in order.
    pub const ALL: [Pass; 6] = [
        Self::TypeCheck,
        Self::ConstFold,
        Self::TileLowering,
        Self::Fusion,
        Self::Schedule,
        Self::Vectorize,
    ];

    /// The spelling on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TypeCheck => "typecheck",
            Self::ConstFold => "constfold",
            Self::TileLowering => "tilelowering",
            Self::Fusion => "fusion",
            Self::Schedule => "schedule",
            Self::Vectorize => "vectorize",
        }
    }

    /// The inverse of [`Pass::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pass| pass.name().eq_ignore_ascii_case(name))
    }
}

/// Which passes run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The last pass to run; all when absent.
    pub until: Option<Pass>,
    /// Optional passes to leave out: Fusion, Schedule or Vectorize.
    pub without: Vec<Pass>,
    /// Verify after every pass in release builds too; debug builds always do.
    pub verify: bool,
}

impl Options {
    fn runs(&self, pass: Pass) -> bool {
        self.until.is_none_or(|until| pass <= until) && !self.without.contains(&pass)
    }

    /// The pass left a well-formed kernel.
    fn check(&self, kernel: &Kernel, pass: Pass) -> Result<(), Diagnostic> {
        if !cfg!(debug_assertions) && !self.verify {
            return Ok(());
        }
        let Err(faults) = iron_core::verify(kernel) else { return Ok(()) };
        let mut fault = faults.into_iter().next().expect("a failure names at least one fault");
        fault.message = format!("{} broke the kernel: {}", pass.name(), fault.message);
        Err(fault)
    }
}

/// Compiles `instance` for the CPU.
pub fn compile_cpu(
    instance: &Instance,
    library: &Library,
    options: &Options,
) -> Result<Kernel, Diagnostic> {
    let mut kernel = shared_passes(instance, library, options)?;
    if options.until.is_none_or(|until| until >= Pass::Schedule) {
        // Vector registers hold tiles only where maps run in vectors.
        let placed = options.runs(Pass::Schedule) && !options.without.contains(&Pass::Vectorize);
        if placed {
            schedule::cpu::schedule(&mut kernel);
        } else {
            schedule::cpu::unscheduled(&mut kernel);
        }
        options.check(&kernel, Pass::Schedule)?;
    }
    if options.runs(Pass::Vectorize) {
        vectorize::vectorize(&mut kernel, schedule::cpu::LANES);
        options.check(&kernel, Pass::Vectorize)?;
    }
    Ok(kernel)
}

/// Compiles `instance` for a GPU. Schedule cannot be left out: it decides which thread does what.
pub fn compile_gpu(
    instance: &Instance,
    library: &Library,
    options: &Options,
    machine: schedule::gpu::Machine,
) -> Result<Kernel, Diagnostic> {
    let mut kernel = shared_passes(instance, library, options)?;
    if options.until.is_none_or(|until| until >= Pass::Schedule) {
        kernel.launch.threads = instance.threads.unwrap_or_default();
        kernel.launch.stages = instance.stages.unwrap_or_default();
        schedule::gpu::schedule(&mut kernel, machine)?;
        options.check(&kernel, Pass::Schedule)?;
    }
    Ok(kernel)
}

/// The passes that every target runs alike.
fn shared_passes(
    instance: &Instance,
    library: &Library,
    options: &Options,
) -> Result<Kernel, Diagnostic> {
    let mut kernel = typecheck(instance, library)?;
    options.check(&kernel, Pass::TypeCheck)?;
    let named = |mut diagnostic: Diagnostic| {
        diagnostic.kernel = instance.name();
        diagnostic
    };
    if options.runs(Pass::ConstFold) {
        const_fold::const_fold(&mut kernel);
        options.check(&kernel, Pass::ConstFold)?;
    }
    if options.runs(Pass::TileLowering) {
        tile_lowering::tile_lowering(&mut kernel).map_err(named)?;
        options.check(&kernel, Pass::TileLowering)?;
    }
    if options.runs(Pass::Fusion) {
        fusion::fusion(&mut kernel);
        options.check(&kernel, Pass::Fusion)?;
    }
    Ok(kernel)
}
