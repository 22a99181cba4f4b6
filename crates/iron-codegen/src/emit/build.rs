//! What the build scripts of the kernel crates call.

use std::path::{Path, PathBuf};

use iron_core::syntax::Function;
use iron_core::tuning::Tuning;
use iron_core::{Diagnostic, render};

use super::plan::{Plan, PlanError};
use super::rust::cpu_crate;
use crate::compile::{Options, Pass};

/// The kernels of a library and what to compile of them.
#[derive(Clone, Copy, Debug)]
pub struct Catalog<'a> {
    /// Kernels and helpers.
    pub functions: &'a [&'static Function],
    /// Kernel names with the bindings to compile.
    pub instances: &'a [(&'a str, &'a [&'a [&'a str]])],
    /// The CPU's tuning file.
    pub tuning_cpu: &'a str,
    /// Optional passes to leave out, to measure what they are worth.
    pub without: &'a [Pass],
}

/// Why a build failed.
#[derive(Debug)]
pub enum BuildError {
    /// The tuning file, the instance list or a kernel is at fault.
    Plan(String),
    /// The output could not be written.
    Write(PathBuf, std::io::Error),
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan(message) => f.write_str(message),
            Self::Write(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for BuildError {}

impl From<PlanError> for BuildError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Kernel(diagnostic) => diagnostic.into(),
            PlanError::List(message) => Self::Plan(message),
        }
    }
}

impl From<Diagnostic> for BuildError {
    fn from(error: Diagnostic) -> Self {
        Self::Plan(render(&error))
    }
}

impl Catalog<'_> {
    /// The plan for the CPU.
    pub fn plan_cpu(&self) -> Result<Plan, BuildError> {
        let tuning =
            Tuning::parse(self.tuning_cpu).map_err(|error| BuildError::Plan(error.to_string()))?;
        Ok(Plan::new(self.functions, self.instances, &tuning)?)
    }
}

/// Writes `kernels.rs` with the CPU kernels that `include` admits into `out`, unless it is there already.
pub fn build_cpu_crate(
    catalog: &Catalog<'_>,
    include: &dyn Fn(&str) -> bool,
    out: &Path,
) -> Result<(), BuildError> {
    let chosen: Vec<_> =
        catalog.instances.iter().copied().filter(|(name, _)| include(name)).collect();
    let catalog = Catalog { instances: &chosen, ..*catalog };
    let plan = catalog.plan_cpu()?;
    let library = catalog.functions.iter().map(|function| (function.name, *function)).collect();
    let options = Options { without: catalog.without.to_vec(), ..Options::default() };
    let text = cpu_crate(&plan, &library, include, &options)?;
    let path = out.join("kernels.rs");
    if std::fs::read_to_string(&path).is_ok_and(|current| current == text) {
        return Ok(());
    }
    std::fs::write(&path, text).map_err(|error| BuildError::Write(path, error))
}
